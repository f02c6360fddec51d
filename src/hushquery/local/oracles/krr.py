"""k-ary randomised response: the true cell with chance p, else another one, each equally likely."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.rounding import Number, working
from hushquery.local.oracles.chance import (
    ONE,
    chance_up,
    check_truth,
    checked_cells,
    checked_epsilon,
    e_to,
    fractions_of_one,
    loss_of_ratio,
    within_budget,
)
from hushquery.local.oracles.oracle import IntArray, Oracle, Randomizer, Report, bytes_for, numbers_from
from hushquery.noise.sampler import Bits, one_word

__all__ = ["KRR", "CellReports", "Response", "binary_response", "cells_from", "lie_chance", "respond"]

# Clients are randomised in blocks that stay in the processor's cache.
_BLOCK = 1 << 14


class CellReports(Randomizer):
    """A randomizer whose report is one cell of its own domain."""

    @property
    def report_bytes(self) -> int:
        """One cell number."""
        return bytes_for(self.k)

    def support(self, reports: npt.NDArray[Any]) -> IntArray:
        """Count the cells."""
        cells = cells_from(self, reports)
        return np.bincount(cells, minlength=self.k).astype(np.int64, copy=False)

    def report(self, row: Any) -> int:
        """A cell number."""
        return int(row)

    def rows(self, reports: Iterable[Any]) -> IntArray:
        """An array of cell numbers."""
        return cells_from(self, _numbers(self, reports if isinstance(reports, list) else list(reports)))

    def pack(self, report: Report) -> bytes:
        """The cell number, little-endian."""
        return int(self.one(report)).to_bytes(self.report_bytes, "little")  # type: ignore[arg-type]

    def unpack(self, data: bytes) -> int:
        """Read a cell number."""
        return self.report(self.rows([int.from_bytes(self.checked_bytes(data), "little")])[0])

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> IntArray:
        """Read many cell numbers."""
        return cells_from(self, numbers_from(payloads))


class Response(Oracle):
    """An oracle that answers truly with a larger chance than with each of the other answers, all equally likely."""

    #: The chance of each other answer, over 2^53; a field of every subclass.
    lie: int

    def __post_init__(self) -> None:
        check_truth(self.truth, self.lie)

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many answers there are."""

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

    Args:
        k: The number of cells.
        lie: The chance of each other cell, over 2^53.

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
        """Give a cell for each value."""
        cells = self.checked_values(values)
        out = np.empty(len(cells), dtype=np.int64)
        for start in range(0, len(cells), _BLOCK):
            block = cells[start : start + _BLOCK]
            out[start : start + _BLOCK] = respond(block, self.k, self.lie, bits)
        return out

    def law(self, value: int) -> Mapping[Report, float]:
        """The true cell with p, each other with q."""
        return {cell: float(self.p if cell == value else self.q) for cell in range(self.k)}

    def describe(self) -> dict[str, Any]:
        """Name, domain and integers."""
        return {"name": self.name, "k": self.k, "lie": self.lie}


def binary_response(epsilon: Number) -> KRR:
    """Give randomised response over yes and no (Warner 1965): two cells, p = e^epsilon/(e^epsilon + 1).

    >>> round(float(binary_response("ln 3").p), 6)
    0.75
    """
    return KRR.calibrate(2, epsilon)


def lie_chance(k: int, epsilon: Fraction) -> int:
    """Give the smallest chance of each other cell, over 2^53, at which k-RR is within epsilon."""
    with working():
        lie = chance_up(1 / (e_to(epsilon) + (k - 1)))
    return within_budget(lie, +1, lambda each: loss_of_ratio(ONE - (k - 1) * each, each), epsilon)


def respond(cells: IntArray, k: int, lie: int, bits: Bits) -> IntArray:
    """Give another of k cells with chance ``lie`` over 2^53 each, else the cell itself; without a branch, so fast."""
    # Every `lie` integers stand for one step to another cell; all that remain, for the k-th step, back to the own one.
    steps = np.minimum(fractions_of_one(len(cells), bits) // np.uint64(lie), np.uint64(k - 1))
    steps += cells.astype(np.uint64) + np.uint64(1)
    # Around the end of the domain: below k the difference wraps to above every cell, and the smaller one is right.
    around: IntArray = np.minimum(steps, steps - np.uint64(k)).view(np.int64)
    return around


def cells_from(oracle: Randomizer, given: npt.NDArray[Any]) -> IntArray:
    """Refuse what is no array of cells of the domain."""
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise oracle.malformed("it is no cell number")
    if given.size and (given.min() < 0 or given.max() >= oracle.k):
        raise oracle.malformed(f"cells are 0 to {oracle.k - 1}")
    return given.astype(np.int64, copy=False)


def _numbers(oracle: Randomizer, listed: list[Any]) -> IntArray:
    """Give a list of whole numbers as an array; ``struct`` reads one faster than NumPy, and nothing else than them."""
    try:
        numbers = np.frombuffer(struct.pack(f"{len(listed)}q", *listed), dtype=np.int64)
    except (struct.error, TypeError, ValueError, OverflowError):
        raise oracle.malformed("it is no cell number") from None
    # It takes True for 1, so what became 0 or 1 is looked at again.
    if any(isinstance(listed[place], bool | np.bool_) for place in np.flatnonzero(numbers.view(np.uint64) <= 1)):
        raise oracle.malformed("it is no cell number")
    return numbers
