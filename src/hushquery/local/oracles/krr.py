"""k-ary randomised response (Warner 1965): the true cell with chance p, else another one, each equally likely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, working
from hushquery.local.intervals import IntArray
from hushquery.local.randomizer import (
    ONE,
    Answer,
    Oracle,
    Randomizer,
    chance_up,
    check_truth,
    checked_cells,
    checked_epsilon,
    e_to,
    fractions_of_one,
    loss_of_ratio,
    within_budget,
)
from hushquery.local.report import bytes_for, numbers_from
from hushquery.noise.sampler import Bits, one_word

# Clients are randomised in blocks that stay in the processor's cache.
_BLOCK = 1 << 14


class CellReports(Randomizer):
    """A randomizer whose report is one cell of its own domain."""

    @property
    def report_bytes(self) -> int:
        """One cell number."""
        return bytes_for(self.k)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count the cells."""
        return np.bincount(self._checked(rows), minlength=self.k).astype(np.int64, copy=False)

    def adds_up(self, support: IntArray, n: int) -> bool:
        """Each report is in one cell."""
        return super().adds_up(support, n) and int(support.sum()) == n

    def encode(self, answer: int) -> bytes:
        """The cell number, little-endian."""
        return answer.to_bytes(self.report_bytes, "little")

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> IntArray:
        """Read cell numbers."""
        return self._checked(numbers_from(payloads))

    def _checked(self, rows: npt.NDArray[Any]) -> IntArray:
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise self.malformed("it is no cell number")
        if rows.size and (rows.min() < 0 or rows.max() >= self.k):
            raise self.malformed(f"cells are 0 to {self.k - 1}")
        return rows.astype(np.int64, copy=False)


class Response(Oracle):
    """An oracle with a randomised response in it: the truth, or each of the other answers with the same chance."""

    #: The chance of each other answer, over 2^53; a field of every subclass.
    lie: int

    @classmethod
    def calibrate(cls, k: int, epsilon: Number) -> Self:
        """Choose the chance of a lie between two answers, rounded up."""
        return cls(checked_cells(k), lie_chance(2, checked_epsilon(epsilon)))  # type: ignore[call-arg]

    def __post_init__(self) -> None:
        check_truth(self.truth, self.lie)

    @property
    def answers(self) -> int:
        """How many answers there are: two bits, where nothing else is said."""
        return 2

    @property
    def truth(self) -> int:
        """The chance of the true answer, over 2^53."""
        return ONE - (self.answers - 1) * self.lie

    @property
    def epsilon(self) -> Fraction:
        """ln(truth/lie), rounded up."""
        return loss_of_ratio(self.truth, self.lie)

    @property
    def p(self) -> Fraction:
        """The chance of the true answer."""
        return Fraction(self.truth, ONE)


@dataclass(frozen=True)
class KRR(CellReports, Response):
    """k-ary randomised response.

    One integer below 2^53 decides: each other cell has ``lie`` of them, the true one the remaining ``ONE - (k-1) lie``.
    So the chances are exact, and epsilon is ln((ONE - (k-1) lie)/lie).

    >>> oracle = KRR.calibrate(3, 1)
    >>> float(oracle.epsilon), round(float(oracle.p), 4)
    (0.9999999999999991, 0.5761)
    """

    k: int
    lie: int

    name: ClassVar[str] = "krr"

    @classmethod
    def calibrate(cls, k: int, epsilon: Number) -> KRR:
        """Choose the chance of a lie, rounded up."""
        return cls(checked_cells(k), lie_chance(k, checked_epsilon(epsilon)))

    @property
    def answers(self) -> int:
        """The cells."""
        return self.k

    @property
    def q(self) -> Fraction:
        """The chance of another given cell."""
        return Fraction(self.lie, ONE)

    def randomize(self, value: int, bits: Bits) -> int:
        """Randomise one client's cell, from the same word to the same report as in an array."""
        if type(value) is not int or not 0 <= value < self.k:
            value = int(self.checked_values([value])[0])
        steps = min((one_word(bits) >> 11) // self.lie, self.k - 1)
        return (value + 1 + steps) % self.k

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        """Draw a cell for each value."""
        cells = self.checked_values(values)
        out = np.empty(len(cells), dtype=np.int64)
        for start in range(0, len(cells), _BLOCK):
            block = cells[start : start + _BLOCK]
            out[start : start + _BLOCK] = respond(block, self.k, self.lie, bits)
        return out

    def law(self, value: int) -> Mapping[Answer, float]:
        """The true cell with p, each other with q."""
        return {cell: float(self.p if cell == value else self.q) for cell in range(self.k)}


def lie_chance(k: int, epsilon: Fraction) -> int:
    """Find the smallest chance of each other cell, over 2^53, at which k-RR is within epsilon."""
    with working():
        lie = chance_up(1 / (e_to(epsilon) + (k - 1)))
    return within_budget(lie, +1, lambda each: loss_of_ratio(ONE - (k - 1) * each, each), epsilon)


def respond(cells: IntArray, k: int, lie: int, bits: Bits) -> IntArray:
    """Draw another of k cells with chance ``lie`` over 2^53 each, else the cell itself; without a branch, so fast."""
    # Every `lie` integers stand for one step to another cell; all that remain, for the k-th step, back to the own one.
    steps = np.minimum(fractions_of_one(len(cells), bits) // np.uint64(lie), np.uint64(k - 1))
    steps += cells.astype(np.uint64) + np.uint64(1)
    # Around the end of the domain: below k the difference wraps to above every cell, and the smaller one is right.
    around: IntArray = np.minimum(steps, steps - np.uint64(k)).view(np.int64)
    return around
