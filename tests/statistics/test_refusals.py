"""Questions that mean nothing are refused before anything else happens; a population has a name."""

from __future__ import annotations

import math

import pytest

from hushquery import statistics
from hushquery.core.budget import Budget, Unit
from hushquery.errors import UsageError
from hushquery.statistics.queries import CountUnits

LAB = {"user": ["ann", "bob"], "sex": ["f", "m"], "age": [31, 44]}
COMMON = {"unit": "user", "population": "a lab"}
DECK = {"female": lambda t: t.sex == "f", "over 45": lambda t: t.age > 45}


@pytest.mark.parametrize(
    "make",
    [
        lambda: statistics.plan_count(LAB, unit="user", epsilon=1, population=""),
        lambda: statistics.plan_count(LAB, unit=" ", epsilon=1, population="p"),
        lambda: statistics.plan_count(LAB, epsilon=0, **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=-1, **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=math.nan, **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=1, delta=1, **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=1, noise="gaussian", **COMMON),  # without a delta
        lambda: statistics.plan_count(LAB, epsilon=1, noise="uniform", **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=1, relation="edit", **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=1, rows_per_unit=0, **COMMON),
        lambda: statistics.plan_count(LAB, epsilon=1, rows_per_unit=2, where=lambda t: t.age > 1, **COMMON),
        lambda: statistics.plan_count(LAB, epsilon="1e-13", **COMMON),  # wider than 64 bits
        lambda: statistics.plan_sum(LAB, "age", lower=3, upper=0, epsilon=1, **COMMON),
        lambda: statistics.plan_sum(LAB, "age", lower="x", upper=0, epsilon=1, **COMMON),
        lambda: statistics.plan_mean(LAB, "age", lower=0, upper=1, relation="replace-one", epsilon=1, **COMMON),
        lambda: statistics.plan_mean(
            LAB, "age", lower=0, upper=1, relation="replace-one", users=0, epsilon=1, **COMMON
        ),
        lambda: statistics.plan_histogram(LAB, "sex", [], epsilon=1, **COMMON),
        lambda: statistics.plan_histogram(LAB, "sex", ["f"], keys_per_unit=0, epsilon=1, **COMMON),
        lambda: statistics.plan_queries(LAB, {}, epsilon=1, **COMMON),
        lambda: statistics.plan_queries(LAB, DECK, at_most=0, epsilon=1, **COMMON),
    ],
)
def test_questions_that_mean_nothing_are_refused_at_once(make):
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.what


@pytest.mark.parametrize(
    "make",
    [
        lambda: statistics.plan_count(LAB, budget=Budget(1), epsilon=1, **COMMON),
        lambda: statistics.plan_count(LAB, budget=Budget(1), delta="1e-6", **COMMON),
        lambda: statistics.plan_count(LAB, **COMMON),  # no budget at all
        lambda: statistics.plan_count(LAB, budget=1, **COMMON),
        lambda: statistics.plan_count(
            LAB, epsilon=1, unit=Unit("user", "add-remove"), relation="replace-one", population="p"
        ),
        lambda: statistics.plan_mean(LAB, "age", lower=0, upper=1, epsilon=1, population="a lab"),  # no unit
        lambda: statistics.plan_statistic(LAB, [], epsilon=1, **COMMON),
    ],
)
def test_a_budget_and_a_unit_are_given_once(make):
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.fix


def test_a_budget_and_a_unit_may_be_objects():
    """A unit that was an object once met a bare AttributeError."""
    for relation in ("add-remove", "replace-one"):
        unit, budget = Unit("user", relation), Budget(1, "1e-6")
        plain = {"unit": "user", "relation": relation, "epsilon": 1, "delta": "1e-6", "population": "a lab"}
        whole = {"unit": unit, "budget": budget, "population": "a lab"}
        for plan in (
            lambda given: statistics.plan_count(LAB, **given),
            lambda given: statistics.plan_sum(LAB, "age", lower=0, upper=9, **given),
            lambda given: statistics.plan_mean(LAB, "age", lower=0, upper=9, users=200_000, **given),
            lambda given: statistics.plan_histogram(LAB, "sex", ["f", "m"], **given),
            lambda given: statistics.plan_queries(LAB, DECK, **given),
            lambda given: statistics.plan_statistic(LAB, CountUnits(), **given),
        ):
            assert plan(whole).guarantee == plan(plain).guarantee
            assert (plan(whole).unit, plan(whole).budget) == (unit, budget)


def test_the_population_is_named_by_who_asks_and_not_after_the_file(tmp_path):
    path = tmp_path / "visits of may.csv"
    path.write_text("user\nann\n")
    with pytest.raises(TypeError, match="population"):
        statistics.plan_count(path, unit="user", epsilon=1)
    assert statistics.plan_count(path, unit="user", epsilon=1, population=" readers ").population == "readers"
