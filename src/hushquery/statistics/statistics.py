"""The private statistics as a person asks for them; each gives a :class:`StatisticPlan`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hushquery.core.budget import Budget, Number, Relation, Unit
from hushquery.core.estimates import Estimate, Estimates, combinable, quotient
from hushquery.core.ledger.entries import clean_text
from hushquery.core.sensitivity import ClampedSum
from hushquery.errors import UsageError
from hushquery.statistics.plan import Noise, PerUnit, StatisticPlan, noise_for
from hushquery.statistics.queries import (
    ClampedTotal,
    Condition,
    CountRows,
    CountUnits,
    Histogram,
    Overlapping,
    Question,
    numbers_of,
)

__all__ = ["count", "histogram", "mean", "queries", "total"]


def count(
    data: Any,
    *,
    unit: str,
    epsilon: Number,
    population: str,
    delta: Number = 0,
    relation: str = "add-remove",
    where: Condition | None = None,
    types: Mapping[str, str] | None = None,
    rows_per_unit: int | None = None,
    noise: str = "auto",
) -> StatisticPlan:
    """Count units (or, with ``rows_per_unit``, rows of which each unit contributes at most so many).

    A condition sees the columns of a text file as text, but for those that ``types`` names (``{"age": "float64"}``).

    **Guarantee:** pure epsilon with Laplace noise of scale bound/epsilon, or the Gaussian's (epsilon, delta).
    **Estimator:** the noisy count; unbiased for the capped count.
    **Reference:** Dwork, McSherry, Nissim and Smith 2006.

    >>> plan = count({"user": [1, 1, 2]}, unit="user", epsilon=1, population="a lab")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(1, 1)
    """
    if rows_per_unit is not None and where is not None:
        raise UsageError("give either a condition or rows_per_unit", fix="Filter the table first")
    named = tuple((types or {}).items())
    question: Question = (
        CountUnits(where=where, column_types=named) if rows_per_unit is None else CountRows(rows_per_unit)
    )
    return _plan(data, unit, relation, population, Budget(epsilon, delta), [question], noise)


def total(
    data: Any,
    column: str,
    *,
    lower: Number,
    upper: Number,
    unit: str,
    epsilon: Number,
    population: str,
    delta: Number = 0,
    relation: str = "add-remove",
    noise: str = "auto",
) -> StatisticPlan:
    """Sum a column, each unit's sum clamped to ``lower..upper``.

    The bounds must come from knowledge, not from a look at the data.

    **Guarantee:** as :func:`count`, with the larger bound (add-remove) or the width (replace-one) as sensitivity.
    **Estimator:** the noisy sum; unbiased for the clamped sum.

    >>> owned = {"user": [1], "albums": [7]}
    >>> plan = total(owned, "albums", lower=0, upper=3, unit="user", epsilon=1, population="fans")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(3, 1)
    """
    clamp = ClampedSum(lower, upper)
    return _plan(
        data,
        unit,
        relation,
        population,
        Budget(epsilon, delta),
        [ClampedTotal(column, clamp.lower, clamp.upper)],
        noise,
    )


def mean(
    data: Any,
    column: str,
    *,
    lower: Number,
    upper: Number,
    unit: str,
    epsilon: Number,
    population: str,
    delta: Number = 0,
    relation: str = "add-remove",
    users: int | None = None,
    noise: str = "auto",
) -> StatisticPlan:
    """Average a column over units, each unit's average clamped to ``lower..upper``.

    Under add-remove the number of units is a secret too: half of the budget measures the sum of distances from the
    middle
    of the range, half the number of units, and the average is their ratio, with an interval that knows it. Under
    replace-one the number of units is public and must be given as ``users``; all of the budget goes into the sum, and
    every unit must have a value.

    **Guarantee:** both measurements together within (epsilon, delta); the ratio is post-processing.
    **Estimator:** middle + noisy sum / noisy count; a ratio, so only approximately unbiased. See the interval.

    >>> plan = mean({"user": [1], "age": [30]}, "age", lower=0, upper=120, unit="user", epsilon=1, population="a lab")
    >>> [q.describe() for q in plan.questions][1]
    'the number of units that meet a condition'
    """
    clamp = ClampedSum(lower, upper)
    budget = Budget(epsilon, delta)
    middle = (clamp.lower + clamp.upper) / 2
    distance = ClampedTotal(column, clamp.lower, clamp.upper, "mean", middle)
    if Relation.of(relation) is Relation.REPLACE_ONE:
        if users is None or users < 1:
            raise UsageError(
                "an average under replace-one needs the public number of units",
                fix="Give users, or use relation add-remove",
            )

        def per_unit(measured: list[Estimates]) -> Estimates:
            row = measured[0].rows[0]
            value, low, high = (float(middle) + x / users for x in (row.value, row.low, row.high))
            average = Estimate(f"mean of {column}", value, row.stderr / users, low, high)
            shared = measured[0].noise
            return replace(
                measured[0], rows=(average,), noise=PerUnit(shared, users) if isinstance(shared, Noise) else None
            )

        return _plan(data, unit, relation, population, budget, [distance], noise, per_unit, users)
    counted = CountUnits(label="units", where=_has_number(column), column_types=((column, "float64"),))

    def ratio_of(measured: list[Estimates]) -> Estimates:
        distances, units = measured
        shift = quotient(combinable(distances, distances.rows[0]), combinable(units, units.rows[0]), label=column)
        low, high = float(clamp.lower), float(clamp.upper)

        def inside(x: float) -> float:
            return float(middle) if math.isnan(x) else min(max(float(middle) + x, low), high)

        average = Estimate(
            f"mean of {column}", inside(shift.value), shift.stderr, inside(shift.low), inside(shift.high)
        )
        marks = ("ratio of two noisy numbers", "clipped to the bounds")
        return replace(distances, rows=(average,), noise=None, marks=marks)

    return _plan(data, unit, relation, population, budget, [distance, counted], noise, ratio_of)


def _has_number(column: str) -> Condition:
    """Give the condition that a row has a number in a column, which is what an average is over."""

    def condition(table: Any) -> Any:
        value = numbers_of(table, column)
        return value.notnull() & ~value.isnan()

    return condition


def histogram(
    data: Any,
    column: str,
    keys: Sequence[Any],
    *,
    unit: str,
    epsilon: Number,
    population: str,
    delta: Number = 0,
    relation: str = "add-remove",
    keys_per_unit: int = 1,
    noise: str = "auto",
) -> StatisticPlan:
    """Count units per value of a column, over values that are publicly known; zeros get noise too.

    **Guarantee:** as :func:`count`, with ``keys_per_unit`` changed counts (twice that under replace-one).
    **Estimator:** noisy counts; unbiased for the counts of capped units.

    >>> plan = histogram({"user": [1], "sex": ["f"]}, "sex", ["f", "m"], unit="user", epsilon=1, population="a lab")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(1, 1)
    """
    question = Histogram(column, tuple(keys), keys_per_unit)
    return _plan(data, unit, relation, population, Budget(epsilon, delta), [question], noise)


def queries(
    data: Any,
    conditions: Mapping[str, Condition],
    *,
    unit: str,
    epsilon: Number,
    population: str,
    delta: Number = 0,
    relation: str = "add-remove",
    at_most: int | None = None,
    types: Mapping[str, str] | None = None,
    noise: str = "auto",
) -> StatisticPlan:
    """Count the units that meet each of several conditions, which may overlap; ``types`` as in :func:`count`.

    **Guarantee:** as :func:`count`; a unit changes up to ``at_most`` counts (all of them by default).
    **Estimator:** noisy counts; unbiased for the counts of capped units.

    >>> people = {"user": [1, 2], "age": [14, 50]}
    >>> asked = {"young": lambda t: t.age < 17, "all": lambda t: t.age > 0}
    >>> plan = queries(people, asked, unit="user", epsilon=1, population="a lab")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(2, 1)
    """
    if not conditions:
        raise UsageError("there are no conditions to count", fix="Give a mapping of names to conditions")
    return _plan(
        data,
        unit,
        relation,
        population,
        Budget(epsilon, delta),
        [Overlapping(dict(conditions), at_most, tuple((types or {}).items()))],
        noise,
    )


def _plan(
    data: Any,
    unit: str,
    relation: str,
    population: str,
    budget: Budget,
    asked: Sequence[Question],
    noise: str,
    finish: Callable[[list[Estimates]], Estimates] | None = None,
    users: int | None = None,
) -> StatisticPlan:
    protected = Unit(unit, relation)
    budget.warn(users)
    return StatisticPlan(
        data=data,
        unit=protected,
        population=clean_text(population, "the population"),
        budget=budget,
        questions=tuple(asked),
        noises=noise_for(asked, protected, budget, noise),
        finish=finish or (lambda measured: measured[0]),
    )
