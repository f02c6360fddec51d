"""Questions that mean nothing are refused before anything else happens; a population has a name."""

from __future__ import annotations

import math

import pytest

from hushquery import statistics
from hushquery.errors import UsageError

LAB = {"user": ["ann", "bob"], "sex": ["f", "m"], "age": [31, 44]}
COMMON = {"unit": "user", "population": "a lab"}
DECK = {"female": lambda t: t.sex == "f", "over 45": lambda t: t.age > 45}


@pytest.mark.parametrize(
    "make",
    [
        lambda: statistics.count(LAB, unit="user", epsilon=1, population=""),
        lambda: statistics.count(LAB, unit=" ", epsilon=1, population="p"),
        lambda: statistics.count(LAB, epsilon=0, **COMMON),
        lambda: statistics.count(LAB, epsilon=-1, **COMMON),
        lambda: statistics.count(LAB, epsilon=math.nan, **COMMON),
        lambda: statistics.count(LAB, epsilon=1, delta=1, **COMMON),
        lambda: statistics.count(LAB, epsilon=1, noise="gaussian", **COMMON),  # without a delta
        lambda: statistics.count(LAB, epsilon=1, noise="uniform", **COMMON),
        lambda: statistics.count(LAB, epsilon=1, relation="edit", **COMMON),
        lambda: statistics.count(LAB, epsilon=1, rows_per_unit=0, **COMMON),
        lambda: statistics.count(LAB, epsilon=1, rows_per_unit=2, where=lambda t: t.age > 1, **COMMON),
        lambda: statistics.count(LAB, epsilon="1e-13", **COMMON),  # wider than 64 bits
        lambda: statistics.total(LAB, "age", lower=3, upper=0, epsilon=1, **COMMON),
        lambda: statistics.total(LAB, "age", lower="x", upper=0, epsilon=1, **COMMON),
        lambda: statistics.mean(LAB, "age", lower=0, upper=1, relation="replace-one", epsilon=1, **COMMON),
        lambda: statistics.mean(LAB, "age", lower=0, upper=1, relation="replace-one", users=0, epsilon=1, **COMMON),
        lambda: statistics.histogram(LAB, "sex", [], epsilon=1, **COMMON),
        lambda: statistics.histogram(LAB, "sex", ["f"], keys_per_unit=0, epsilon=1, **COMMON),
        lambda: statistics.queries(LAB, {}, epsilon=1, **COMMON),
        lambda: statistics.queries(LAB, DECK, at_most=0, epsilon=1, **COMMON),
    ],
)
def test_questions_that_mean_nothing_are_refused_at_once(make):
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.what


def test_the_population_is_named_by_who_asks_and_not_after_the_file(tmp_path):
    path = tmp_path / "visits of may.csv"
    path.write_text("user\nann\n")
    with pytest.raises(TypeError, match="population"):
        statistics.count(path, unit="user", epsilon=1)
    assert statistics.count(path, unit="user", epsilon=1, population=" readers ").population == "readers"
