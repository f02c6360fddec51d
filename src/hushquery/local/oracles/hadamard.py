"""Hadamard response: one private bit about a random row of a Hadamard matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.rounding import Number
from hushquery.errors import UsageError
from hushquery.local.oracles.chance import (
    ONE,
    check_truth,
    checked_cells,
    checked_epsilon,
    coins,
    loss_of_ratio,
    uniform_below,
)
from hushquery.local.oracles.krr import lie_chance
from hushquery.local.oracles.oracle import MOST_OUTCOMES, IntArray, Oracle, Report, bytes_for, numbers_from
from hushquery.noise.sampler import Bits

__all__ = ["Hadamard", "parity", "walsh_hadamard"]


@dataclass(frozen=True)
class Hadamard(Oracle):
    """Hadamard response with one bit (Bassily, Nissim, Stemmer and Thakurta 2017; Acharya, Sun and Zhang 2019).

    The client draws a row of the Hadamard matrix of the smallest power of two that holds the domain, looks up the bit
    of its cell (the parity of row AND cell), and sends the row with the bit, flipped with chance 1/(e^epsilon + 1).
    The row is public and uniform, so all of epsilon is in the bit. Best for the smallest epsilons and reports.

    Args:
        k: The number of cells.
        lie: The chance of the flip, over 2^53.

    >>> round(Hadamard.calibrate(51, 1).variance(), 2), round(Hadamard.calibrate(51, 4).variance(), 2)
    (4.68, 1.08)
    """

    k: int
    lie: int

    name: ClassVar[str] = "hadamard"

    def __post_init__(self) -> None:
        check_truth(ONE - self.lie, self.lie)

    @classmethod
    def calibrate(cls, k: int, epsilon: Number) -> Hadamard:
        """Choose the chance of the flip, rounded up."""
        return cls(checked_cells(k), lie_chance(2, checked_epsilon(epsilon)))

    @property
    def order(self) -> int:
        """The number of rows: the smallest power of two that is not below k."""
        return 1 << (self.k - 1).bit_length()

    @property
    def epsilon(self) -> Fraction:
        """ln((1 - flip)/flip), rounded up."""
        return loss_of_ratio(ONE - self.lie, self.lie)

    @property
    def p(self) -> Fraction:
        """The chance that the bit is that of the true cell."""
        return Fraction(ONE - self.lie, ONE)

    @property
    def q(self) -> Fraction:
        """Another cell has the same bit in exactly half of the rows."""
        return Fraction(1, 2)

    @property
    def report_bytes(self) -> int:
        """The row and the bit as one number."""
        return bytes_for(2 * self.order)

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        """Give (row, bit) for each value."""
        cells = self.checked_values(values)
        rows = uniform_below(bits, self.order, len(cells))
        return np.stack([rows, parity(rows & cells) ^ coins(self.lie, len(cells), bits)], axis=1)

    def support(self, reports: npt.NDArray[Any]) -> IntArray:
        """Count, for each cell, the reports with its bit: half of all of them plus half of a Hadamard transform."""
        rows = self._checked(reports)
        signs = np.bincount(rows[:, 0], minlength=self.order) - 2 * np.bincount(
            rows[rows[:, 1] == 1, 0], minlength=self.order
        )
        return (len(rows) + walsh_hadamard(signs.astype(np.int64))[: self.k]) // 2

    def law(self, value: int) -> Mapping[Report, float]:
        """Every row, with its bit true or flipped."""
        if 2 * self.order > MOST_OUTCOMES:
            raise UsageError("this domain's rows are too many to list", fix="Ask for the law of a small domain")
        return {
            (row, bit): float(self.p if bit == (row & value).bit_count() % 2 else 1 - self.p) / self.order
            for row in range(self.order)
            for bit in (0, 1)
        }

    def report(self, row: Any) -> tuple[int, int]:
        """A row and a bit."""
        return int(row[0]), int(row[1])

    def rows(self, reports: Iterable[Any]) -> IntArray:
        """A row (row, bit) per report."""
        listed = list(reports)
        if not all(
            isinstance(r, tuple) and len(r) == 2 and all(type(x) is int and 0 <= x < self.order for x in r)
            for r in listed
        ):
            raise self.malformed("it is no row and bit")
        return self._checked(np.array(listed, dtype=np.int64).reshape(-1, 2))

    def pack(self, report: Report) -> bytes:
        """Twice the row plus the bit, little-endian."""
        row, bit = self.report(self.rows([report])[0])
        return (2 * row + bit).to_bytes(self.report_bytes, "little")

    def unpack(self, data: bytes) -> tuple[int, int]:
        """Read a row and a bit."""
        number = int.from_bytes(self.checked_bytes(data), "little")
        return self.report(self.rows([(number >> 1, number & 1)])[0])

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> IntArray:
        """Read many rows and bits."""
        numbers = numbers_from(payloads)
        return self._checked(np.stack([numbers >> np.uint64(1), numbers & np.uint64(1)], axis=1))

    def describe(self) -> dict[str, Any]:
        """Name, domain and integers."""
        return {"name": self.name, "k": self.k, "lie": self.lie}

    def _checked(self, reports: npt.NDArray[Any]) -> IntArray:
        if reports.ndim != 2 or reports.shape[1] != 2 or reports.dtype.kind not in "iu":
            raise self.malformed("it is no row and bit")
        if reports.size and (reports.min() < 0 or reports[:, 0].max() >= self.order or reports[:, 1].max() > 1):
            raise self.malformed("its row or its bit is out of range")
        return reports.astype(np.int64, copy=False)


def parity(numbers: IntArray) -> IntArray:
    """Give the parity of the set bits of each number below 2^32.

    >>> parity(np.array([0, 1, 3, 7])).tolist()
    [0, 1, 0, 1]
    """
    folded = numbers
    for shift in (16, 8, 4, 2, 1):
        folded = folded ^ (folded >> shift)
    return folded & 1


def walsh_hadamard(numbers: IntArray) -> IntArray:
    """Multiply by the Hadamard matrix, entry (i, j) = -1 to the parity of i AND j, in n log n steps.

    >>> walsh_hadamard(np.array([1, 0, 0, 2])).tolist()
    [3, -1, -1, 3]
    """
    out, half = numbers.copy(), 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        half *= 2
    return out
