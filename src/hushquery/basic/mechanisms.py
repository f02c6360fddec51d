"""The private statistics as the registry knows them: from rows of several people to a noisy answer, bounding included.

A world is a tuple of rows (user, value). The audit runs the same questions through the same engine as a release does,
so
that a cap that does not cap is found.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from hushquery.basic.plan import Noise, noise_for
from hushquery.basic.queries import ClampedTotal, CountRows, Histogram, Overlapping, Question
from hushquery.engine import as_table
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import add_noise, noisy_law, product_law
from hushquery.noise.sampler import IntArray
from hushquery.privacy.budget import Budget
from hushquery.privacy.loss import Loss
from hushquery.privacy.registry import Mechanism, Pair
from hushquery.privacy.unit import Unit

__all__ = ["CappedRowCount", "ClampedSumOfRows", "HistogramOfUnits", "OverlappingCountsOfUnits", "Rows"]

#: What a table is to an audit: rows of a user and a value.
Rows = tuple[tuple[str, int], ...]

_OTHERS: Rows = (("ann", 1), ("bob", 2), ("bob", 1), ("cem", 0))


@dataclass(frozen=True)
class _TableMechanism(Mechanism[Rows]):
    """A question to rows, with its noise."""

    question: Question
    noise: Noise
    unit: Unit

    @classmethod
    @abstractmethod
    def ask(cls) -> Question:
        """Give the question with its bound."""

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> _TableMechanism:
        """Choose Laplace noise for the question's bound; delta is not needed and not used."""
        del delta
        question, unit = cls.ask(), Unit("user", cls.relation)
        return cls(question, noise_for([question], unit, Budget(epsilon), "laplace")[0], unit)

    @property
    def loss(self) -> Loss:
        """The noise's exact cost."""
        return self.noise.loss

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Bound and count the rows in the engine, then add noise ``n`` times."""
        return add_noise(self._exact(world), n, self.noise.law, bits)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate the noisy answers."""
        return product_law([noisy_law(count, self.noise.law) for count in self._exact(world)])

    def truth(self, world: Rows) -> Sequence[float]:
        """The bounded answers themselves."""
        return self._exact(world)

    def variance(self, world: Rows) -> Sequence[float]:
        """The variance of the noise, for each answer."""
        return [self.noise.law.variance] * len(self._exact(world))

    def _exact(self, world: Rows) -> tuple[int, ...]:
        import pyarrow as pa

        users, values = [row[0] for row in world], [row[1] for row in world]
        rows = as_table(pa.table({"user": pa.array(users, pa.string()), "value": pa.array(values, pa.int64())}))
        return tuple(self.question.read(self.question.ask(rows, self.unit).to_pyarrow()))


class CappedRowCount(_TableMechanism):
    """Count rows, at most 3 of each user.

    **Guarantee:** pure epsilon = 3/b for one user, add-remove. **Estimator:** unbiased for the capped count.

    >>> CappedRowCount.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "capped-row-count"
    summary: ClassVar[str] = "a count of rows, at most 3 per user, with discrete Laplace noise"

    @classmethod
    def ask(cls) -> Question:
        """Count rows, at most 3 per user."""
        return CountRows(3)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, who holds many more rows than the cap."""
        return [Pair("a user with 40 rows", _OTHERS, (*_OTHERS, *((("dot", 1),) * 40)))]


class ClampedSumOfRows(_TableMechanism):
    """Sum values, each user's sum clamped to 0..3.

    **Guarantee:** pure epsilon = 3/b for one user, add-remove. **Estimator:** unbiased for the clamped sum.

    >>> ClampedSumOfRows.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "clamped-sum"
    summary: ClassVar[str] = "a sum of values, each user's clamped to 0..3, with discrete Laplace noise"

    @classmethod
    def ask(cls) -> Question:
        """Sum the values, clamped to 0..3."""
        return ClampedTotal("value", Fraction(0), Fraction(3))

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

    @classmethod
    def ask(cls) -> Question:
        """Count users per value."""
        return Histogram("value", (0, 1, 2), 2)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, who holds every value, some of them twice."""
        return [Pair("a user with every value", _OTHERS, (*_OTHERS, ("dot", 0), ("dot", 1), ("dot", 1), ("dot", 2)))]


class OverlappingCountsOfUnits(_TableMechanism):
    """Count the users that meet each of two overlapping conditions.

    **Guarantee:** pure epsilon = 2/b for one user, add-remove. **Estimator:** unbiased.

    >>> OverlappingCountsOfUnits.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    name: ClassVar[str] = "overlapping-counts"
    summary: ClassVar[str] = "two overlapping counts of users, with discrete Laplace noise"

    @classmethod
    def ask(cls) -> Question:
        """Count the users above zero, and those above one."""
        return Overlapping({"above zero": lambda t: t.value > 0, "above one": lambda t: t.value > 1})

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, who meets both conditions on several rows."""
        return [Pair("a user who meets both", _OTHERS, (*_OTHERS, ("dot", 2), ("dot", 3)))]
