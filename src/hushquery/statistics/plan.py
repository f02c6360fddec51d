"""Private statistics: what a person asks of a table, its noise and its cost, before anything has run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Required, TypedDict, Unpack

from hushquery.core.budget import Budget, Number, Relation, Unit, format_delta, format_epsilon
from hushquery.core.calibration import laplace_scale, mu_for, sigma_for
from hushquery.core.description import UNDESCRIBED, Description, clean_text
from hushquery.core.estimates import Estimate, Estimates, combinable, quotient
from hushquery.core.guarantee import Step
from hushquery.core.loss import Loss
from hushquery.core.sensitivity import checked_clamp
from hushquery.engine import execute, no_such_column
from hushquery.errors import UsageError
from hushquery.log.tables import paths_of, read_table
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import Bits, sampler
from hushquery.plan import Charge, Paid, Plan
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

#: Turns the noisy answers of a plan into the table that it returns; sees nothing else.
Finish = Callable[[list[Estimates]], Estimates]


@dataclass(frozen=True)
class Noise:
    """Integer noise for one question: its law in grid steps, what a step is worth, and its cost."""

    law: DiscreteLaplace | RoundedGaussian
    step: Fraction
    loss: Loss
    name: str
    rounds: bool = False

    @property
    def stderr(self) -> float:
        """The standard error in the units of the answer, rounding to the grid included."""
        return float(self.step) * math.sqrt(self.law.variance + (1 / 12 if self.rounds else 0.0))

    def added(self, truth: Sequence[int], bits: Bits) -> list[int]:
        """Add a fresh draw to each of some answers, in grid steps."""
        return [t + int(z) for t, z in zip(truth, sampler(self.law).draw(len(truth), bits), strict=True)]

    def half_width(self, level: float) -> float:
        """How far the noise reaches with probability ``level``, in the units of the answer, rounding included."""
        return float(self.step) * (self.law.half_width(level) + (0.5 if self.rounds else 0.0))


def noise_for(questions: Sequence[Question], unit: Unit, budget: Budget, kind: str = "auto") -> tuple[Noise, ...]:
    """Choose the noise of some questions that share a budget equally; data-free. Laplace noise splits epsilon, Gaussian
    noise splits mu^2; ``auto`` takes the one with the smaller product of variances.
    """
    if kind not in ("auto", "laplace", "gaussian"):
        raise UsageError(f"no noise is called {kind!r}", fix="Use laplace, gaussian or auto")
    if budget.epsilon <= 0 or (kind == "gaussian" and budget.delta <= 0):
        raise UsageError(
            "this budget buys no noise of that kind", fix="Use epsilon > 0, and for Gaussian noise delta > 0"
        )
    bounds = [question.bounds(unit.relation) for question in questions]
    laws: dict[str, list[tuple[DiscreteLaplace | RoundedGaussian, Loss]]] = {}
    if kind != "gaussian":
        scales = [(bound.l1, laplace_scale(int(bound.l1), budget.epsilon / len(questions))) for bound in bounds]
        laws["discrete-laplace"] = [(DiscreteLaplace(b), Loss(pure=(l1 / b,))) for l1, b in scales]
    if kind == "gaussian" or (kind == "auto" and budget.delta > 0):
        mu_squared = mu_for(budget.epsilon, budget.delta) ** 2 / len(questions)
        sigmas = [(bound.l2_squared, sigma_for(bound.l2_squared, mu_squared)) for bound in bounds]
        laws["gaussian"] = [(RoundedGaussian(s), Loss(mu_squared=l2 / s**2)) for l2, s in sigmas]
    choices = [
        tuple(Noise(law, q.step, loss, name, q.rounds) for q, (law, loss) in zip(questions, chosen, strict=True))
        for name, chosen in laws.items()
    ]
    return min(choices, key=lambda noises: math.prod(noise.law.variance for noise in noises))


@dataclass(frozen=True, repr=False)
class StatisticPlan(Plan[Estimates]):
    """Questions to one table, each with its noise; nothing has run and no row has been read."""

    data: Any
    unit: Unit
    population: str
    budget: Budget
    questions: tuple[Question, ...]
    noises: tuple[Noise, ...]
    finish: Finish
    description: Description = UNDESCRIBED

    def _charges(self) -> list[Charge]:
        (charge,) = super()._charges()
        return [replace(charge, files=paths_of(self.data))]

    def _loss_at(self, budget: Budget) -> Loss:
        kind = "gaussian" if self.noises[0].name == "gaussian" else "laplace"
        return sum((noise.loss for noise in noise_for(self.questions, self.unit, budget, kind)), Loss())

    def _steps(self) -> list[Step]:
        return [
            Step(
                n.name,
                f"{q.describe()}; {q.bounds(self.unit.relation).because}; noise of standard error {n.stderr:.4g}",
                n.loss,
            )
            for q, n in zip(self.questions, self.noises, strict=True)
        ]

    def _explained(self) -> list[str]:
        lines = []
        for i, (question, noise) in enumerate(zip(self.questions, self.noises, strict=True), 1):
            bounds = question.bounds(self.unit.relation)
            lines += [
                f"{i}. {question.describe()}",
                f"   bound: {bounds.because} (L1 {float(bounds.l1 * question.step):g})",
                f"   noise: {noise.name}, standard error {noise.stderr:.4g}; costs epsilon "
                f"{format_epsilon(noise.loss.epsilon(self.budget.delta))} at delta {format_delta(self.budget.delta)}",
            ]
        return lines

    def _ask(self) -> dict[str, Any]:
        types = {self.unit.name: "string"}
        for question in self.questions:
            types |= question.types()
        table = read_table(self.data, types=types)
        if self.unit.name not in table.columns:
            raise no_such_column(self.unit.name, table.columns, "it is needed to bound what one unit contributes")
        # A row that belongs to nobody can't be bounded.
        rows = table.filter(table[self.unit.name].notnull())
        return {f"question {n}": question.ask(rows, self.unit) for n, question in enumerate(self.questions, 1)}

    def _read(self, paid: Paid) -> Estimates:
        measured = []
        for question, noise, expression in zip(self.questions, self.noises, paid.asked.values(), strict=True):
            truth = question.read(execute(expression))
            values = [float(v * question.step) for v in noise.added(truth, paid.bits)]
            stderrs = [noise.stderr] * len(values)
            measured.append(
                Estimates.raw(list(question.labels), values, stderrs, guarantee=paid.guarantee, noise=noise)
            )
        return self.finish(measured)


class Options(TypedDict, total=False):
    """What every plan of a statistic takes, see :func:`plan_statistic`."""

    unit: Required[Unit | str]
    population: Required[str]
    budget: Budget | None
    epsilon: Number | None
    delta: Number | None
    relation: Relation | str | None
    noise: str
    description: Description | None


def plan_statistic(
    data: Any,
    questions: Question | Iterable[Question],
    *,
    unit: Unit | str,
    population: str,
    budget: Budget | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    relation: Relation | str | None = None,
    noise: str = "auto",
    users: int | None = None,
    finish: Finish | None = None,
    description: Description | None = None,
) -> StatisticPlan:
    """Plan the answers to some questions about one table. Reads no row; ``plan.run(ledger)`` spends, then reads.

    Args:
        data: A table in memory, of an engine, or a file.
        questions: One or several of :mod:`hushquery.statistics.queries`; they share the budget equally.
        unit: Whom to protect: a :class:`~hushquery.Unit`, or the column that names them.
        population: Whose data it is, as named in public and in the ledger.
        budget: The cost of all answers together; or ``epsilon`` and ``delta`` as numbers.
        epsilon: Of all answers together.
        delta: Of all answers together; 0 by default, for a pure guarantee.
        relation: ``add-remove`` by default, or ``replace-one``.
        noise: ``laplace``, ``gaussian``, or ``auto`` for the smaller variance.
        users: The number of units where it is public: delta is compared with it.
        finish: Turns the noisy answers, one table for each question, into the one that is returned.
        description: Its title and period go into the ledger's history.

    **Guarantee:** pure epsilon with Laplace noise of scale bound/epsilon, or the Gaussian's (epsilon, delta), per unit.
    **Estimator:** the noisy answers; unbiased for the bounded ones.
    **Reference:** Dwork, McSherry, Nissim and Smith 2006.

    >>> rows = {"user": [1, 1, 2], "age": [30, 30, 40]}
    >>> plan = plan_statistic(rows, [CountUnits(), CountRows(2)], unit="user", epsilon=1, population="a lab")
    >>> [step.loss.epsilon(0) for step in plan.guarantee.steps]
    [0.5, 0.5]
    """
    protected, spend = Unit.of(unit, relation), Budget.of(budget, epsilon, delta)
    asked = (questions,) if isinstance(questions, Question) else tuple(questions)
    if not asked:
        raise UsageError("there are no questions to answer", fix="Use one or more of hushquery.statistics.queries")
    spend.warn(users)
    noises = noise_for(asked, protected, spend, noise)
    named = clean_text(population, "the population")
    about = description or UNDESCRIBED
    return StatisticPlan(data, protected, named, spend, asked, noises, finish or _one_table, about)


def _one_table(measured: list[Estimates]) -> Estimates:
    """Put the answers to several questions into one table, each with the intervals of its own noise."""
    if len(measured) == 1:
        return measured[0]

    def intervals(level: float) -> tuple[list[float], list[float]]:
        rows = [row for estimates in measured for row in estimates.at_level(level).rows]
        return [row.low for row in rows], [row.high for row in rows]

    rows = tuple(row for estimates in measured for row in estimates.rows)
    return replace(measured[0], rows=rows, noise=None, intervals=intervals)


def plan_count(
    data: Any,
    *,
    where: Condition | None = None,
    types: Mapping[str, str] | None = None,
    rows_per_unit: int | None = None,
    **options: Unpack[Options],
) -> StatisticPlan:
    """Count units (or, with ``rows_per_unit``, rows of which each unit contributes at most so many).
    A condition sees the columns of a text file as text, but for those that ``types`` names (``{"age": "float64"}``).
    Options, guarantee and reference as for :func:`plan_statistic`.

    >>> plan = plan_count({"user": [1, 1, 2]}, unit=Unit("user", "add-remove"), budget=Budget(1), population="a lab")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(1, 1)
    """
    if rows_per_unit is not None and where is not None:
        raise UsageError("use either a condition or rows_per_unit", fix="Filter the table first")
    if rows_per_unit is not None:
        return plan_statistic(data, CountRows(rows_per_unit), **options)
    return plan_statistic(data, CountUnits(where=where, column_types=tuple((types or {}).items())), **options)


def plan_sum(data: Any, column: str, *, lower: Number, upper: Number, **options: Unpack[Options]) -> StatisticPlan:
    """Sum a column, each unit's sum clamped to ``lower..upper``; options as for :func:`plan_statistic`.
    The bounds must come from knowledge, not from a look at the data. The larger one (add-remove) or their distance
    (replace-one) is the sensitivity.

    >>> owned = {"user": [1], "albums": [7]}
    >>> plan = plan_sum(owned, "albums", lower=0, upper=3, unit="user", epsilon=1, population="fans")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(3, 1)
    """
    return plan_statistic(data, ClampedTotal(column, *checked_clamp(lower, upper)), **options)


def plan_mean(
    data: Any, column: str, *, lower: Number, upper: Number, users: int | None = None, **options: Unpack[Options]
) -> StatisticPlan:
    """Average a column over units, each unit's average clamped to ``lower..upper``; options as for
    :func:`plan_statistic`.

    Under add-remove the number of units is secret: half of the budget measures the sum of distances from the middle of
    the range, half the number of units. Under replace-one that number is public and must be given as ``users``; all of
    the budget goes into the sum, and every unit must have a value.

    **Guarantee:** both measurements together within (epsilon, delta); the ratio is post-processing.
    **Estimator:** middle + noisy sum / noisy count; a ratio, so only approximately unbiased. See the interval.

    >>> people = {"user": [1], "age": [30]}
    >>> plan = plan_mean(people, "age", lower=0, upper=120, unit="user", epsilon=1, population="a lab")
    >>> [q.describe() for q in plan.questions][1]
    'the number of units that meet a condition'
    """
    clamp = checked_clamp(lower, upper)
    middle = (clamp[0] + clamp[1]) / 2
    distance = ClampedTotal(column, *clamp, "mean", middle)
    low, high = map(float, clamp)
    if Unit.of(options.get("unit", ""), options.get("relation")).relation is Relation.REPLACE_ONE:
        if users is None or users < 1:
            raise UsageError(
                "an average under replace-one needs the public number of units",
                fix="Pass users, or use relation add-remove",
            )

        def per_unit(measured: list[Estimates]) -> Estimates:
            row, noise = measured[0].rows[0], measured[0].noise
            value, low, high = (float(middle) + x / users for x in (row.value, row.low, row.high))
            average = Estimate(f"mean of {column}", value, row.stderr / users, low, high)
            shared = replace(noise, step=noise.step / users) if isinstance(noise, Noise) else None
            return replace(measured[0], rows=(average,), noise=shared)

        return plan_statistic(data, distance, users=users, finish=per_unit, **options)

    def has_number(table: Any) -> Any:
        value = numbers_of(table, column)
        return value.notnull() & ~value.isnan()

    counted = CountUnits(("units",), where=has_number, column_types=((column, "float64"),))

    def ratio(measured: list[Estimates]) -> Estimates:
        distances, units = measured
        shift = quotient(combinable(distances, distances.rows[0]), combinable(units, units.rows[0]), label=column)

        def inside(x: float) -> float:
            return float(middle) if math.isnan(x) else min(max(float(middle) + x, low), high)

        average = Estimate(
            f"mean of {column}", inside(shift.value), shift.stderr, inside(shift.low), inside(shift.high)
        )
        marks = ("ratio of two noisy numbers", "clipped to the bounds")
        return replace(distances, rows=(average,), noise=None, marks=marks)

    return plan_statistic(data, [distance, counted], finish=ratio, **options)


def plan_histogram(
    data: Any, column: str, keys: Sequence[Any], *, keys_per_unit: int = 1, **options: Unpack[Options]
) -> StatisticPlan:
    """Count units per value of a column, over values that are publicly known; zeros get noise too.
    Each unit counts for at most ``keys_per_unit`` values and changes so many counts, twice as many under replace-one.
    Options as for :func:`plan_statistic`.

    >>> people = {"user": [1], "sex": ["f"]}
    >>> plan = plan_histogram(people, "sex", ["f", "m"], unit="user", epsilon=1, population="a lab")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(1, 1)
    """
    return plan_statistic(data, Histogram(column, tuple(keys), keys_per_unit), **options)


def plan_queries(
    data: Any,
    conditions: Mapping[str, Condition],
    *,
    at_most: int | None = None,
    types: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> StatisticPlan:
    """Count the units that meet each of several conditions, which may overlap; ``types`` as in :func:`plan_count`.
    A unit changes up to ``at_most`` counts (all of them by default); options as for :func:`plan_statistic`.

    >>> people = {"user": [1, 2], "age": [14, 50]}
    >>> ages = {"young": lambda t: t.age < 17, "all": lambda t: t.age > 0}
    >>> plan = plan_queries(people, ages, unit="user", epsilon=1, population="a lab")
    >>> plan.questions[0].bounds(plan.unit.relation).l1
    Fraction(2, 1)
    """
    if not conditions:
        raise UsageError("there are no conditions to count", fix="Use a mapping of names to conditions")
    return plan_statistic(data, Overlapping(dict(conditions), at_most, tuple((types or {}).items())), **options)
