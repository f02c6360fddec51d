"""The private statistics as the registry knows them: from rows to a noisy answer, bounding included.

A dataset is a tuple of rows (user, value). Whole plans run too, on a ledger of their own. The laws are computed from
the rows by the definition, so that a cap that does not cap contradicts them.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from hushquery.core.budget import Budget, Unit
from hushquery.core.estimates import Estimates
from hushquery.core.loss import Loss
from hushquery.core.registry import Law, Mechanism, Pair
from hushquery.engine import as_table, execute
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import Bits, IntArray
from hushquery.statistics.plan import Noise, StatisticPlan, noise_for
from hushquery.statistics.queries import ClampedTotal, CountRows, Histogram, Overlapping, Question

Rows = tuple[tuple[str, int], ...]

_TIMES = 40

_OTHERS: Rows = (("ann", 1), ("bob", 2), ("bob", 1), ("cem", 0))


@dataclass(frozen=True)
class _TableMechanism(Mechanism[Rows]):
    """A question to rows, with its noise."""

    question: Question
    noise: Noise
    unit: Unit

    asks: ClassVar[Question]

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> _TableMechanism:
        """Choose Laplace noise for the question's bound; delta is not needed and not used."""
        del delta
        unit = Unit("user", cls.relation)
        return cls(cls.asks, noise_for([cls.asks], unit, Budget(epsilon), "laplace")[0], unit)

    @property
    def loss(self) -> Loss:
        return self.noise.loss

    @abstractmethod
    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Answer by the definition, without an engine."""

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        answers = self.question.read(execute(self.question.ask(as_table(_arrow(dataset)), self.unit)))
        return np.array(self.noise.added(answers * n, bits), dtype=np.int64).reshape(n, len(answers))

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run a whole plan that asks the question many times, and pays for each."""
        answers: list[list[float]] = []

        def finish(measured: list[Estimates]) -> Estimates:
            answers.extend(estimates.values for estimates in measured)
            return measured[0]

        budget = Budget(_TIMES * self.loss.epsilon(0) * 2, 0)
        times = (self.question,) * _TIMES, (self.noise,) * _TIMES
        with TemporaryDirectory() as folder:
            plan = StatisticPlan(_arrow(dataset), self.unit, "the audited", budget, *times, finish)
            plan.run(Path(folder, "ledger.db"), bits=bits)
        return np.rint(np.array(answers) / float(self.question.step)).astype(np.int64), self.law(dataset)

    def law(self, dataset: Rows) -> Mapping[tuple[int, ...], float]:
        return product_law([noisy_law(count, self.noise.law) for count in self.exact(dataset)])

    def truth(self, dataset: Rows) -> Sequence[float]:
        return self.exact(dataset)

    def variance(self, dataset: Rows) -> Sequence[float]:
        return [self.noise.law.variance] * len(self.exact(dataset))


def _arrow(dataset: Rows) -> Any:
    import pyarrow as pa

    users, values = [row[0] for row in dataset], [row[1] for row in dataset]
    return pa.table({"user": pa.array(users, pa.string()), "value": pa.array(values, pa.int64())})


def _by_user(dataset: Rows) -> dict[str, list[int]]:
    values: dict[str, list[int]] = {}
    for user, value in dataset:
        values.setdefault(user, []).append(value)
    return values


class CappedRowCount(_TableMechanism):
    """Count rows, at most 3 of each user.

    **Guarantee:** pure epsilon = 3/b for one user, add-remove. **Estimator:** unbiased for the capped count.

    >>> CappedRowCount.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "capped-row-count"
    summary: ClassVar[str] = "a count of rows, at most 3 per user, with discrete Laplace noise"
    asks: ClassVar[Question] = CountRows(3)

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """At most 3 rows of each user."""
        return (sum(min(3, len(values)) for values in _by_user(dataset).values()),)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Add one user with many more rows than the cap."""
        return [Pair("a user with 40 rows", _OTHERS, (*_OTHERS, *((("dot", 1),) * 40)))]


class ClampedSumOfRows(_TableMechanism):
    """Sum values, each user's sum clamped to 0..3.

    **Guarantee:** pure epsilon = 3/b for one user, add-remove. **Estimator:** unbiased for the clamped sum.

    >>> ClampedSumOfRows.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "clamped-sum"
    summary: ClassVar[str] = "a sum of values, each user's clamped to 0..3, with discrete Laplace noise"
    asks: ClassVar[Question] = ClampedTotal("value", Fraction(0), Fraction(3))

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Each user's sum, brought into 0..3."""
        return (int(sum(min(3, max(0, sum(values))) for values in _by_user(dataset).values()) / self.question.step),)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, with a value far above the clamp, and one spread over many rows."""
        return [
            Pair("a user with the value 1000", _OTHERS, (*_OTHERS, ("dot", 1000))),
            Pair("a user with 40 rows", _OTHERS, (*_OTHERS, *((("dot", 1),) * 40))),
        ]


class HistogramOfUnits(_TableMechanism):
    """Count users per value 0, 1, 2, each in at most 2 of them.

    **Guarantee:** pure epsilon = 2/b for one user, add-remove. **Estimator:** unbiased for the capped counts.

    >>> HistogramOfUnits.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "histogram"
    summary: ClassVar[str] = "users per value, each in at most 2 of 3, with discrete Laplace noise"
    asks: ClassVar[Question] = Histogram("value", (0, 1, 2), 2)

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Each user once per value, in the first 2 of them by a digest of user and value."""
        counted: list[int] = []
        for user, values in _by_user(dataset).items():
            digests = {hashlib.md5(f"{user}|{value}".encode()).hexdigest(): value for value in values}  # noqa: S324
            counted += [digests[digest] for digest in sorted(digests)[:2]]
        return tuple(counted.count(value) for value in (0, 1, 2))

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Add one user with every value, some of them twice."""
        return [Pair("a user with every value", _OTHERS, (*_OTHERS, ("dot", 0), ("dot", 1), ("dot", 1), ("dot", 2)))]


class OverlappingCountsOfUnits(_TableMechanism):
    """Count the users that meet each of two overlapping conditions.

    **Guarantee:** pure epsilon = 2/b for one user, add-remove. **Estimator:** unbiased.

    >>> OverlappingCountsOfUnits.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "overlapping-counts"
    summary: ClassVar[str] = "two overlapping counts of users, with discrete Laplace noise"
    asks: ClassVar[Question] = Overlapping({"above zero": lambda t: t.value > 0, "above one": lambda t: t.value > 1})

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Users with a row above zero, and with one above one."""
        return tuple(sum(max(values) > least for values in _by_user(dataset).values()) for least in (0, 1))

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Add one user that meets both conditions on several rows."""
        return [Pair("a user who meets both", _OTHERS, (*_OTHERS, ("dot", 2), ("dot", 3)))]
