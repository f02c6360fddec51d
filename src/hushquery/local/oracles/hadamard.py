"""Hadamard response: one private bit about a random row of a Hadamard matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.local.intervals import IntArray
from hushquery.local.oracles.krr import Response
from hushquery.local.randomizer import Answer, coins
from hushquery.local.report import bytes_for, numbers_from
from hushquery.noise.sampler import Bits, below


@dataclass(frozen=True)
class Hadamard(Response):
    """Hadamard response with one bit (Bassily, Nissim, Stemmer and Thakurta 2017; Acharya, Sun and Zhang 2019).

    The client draws a row of the Hadamard matrix of the smallest power of two that holds the domain, and sends it with
    its cell's bit (the parity of row AND cell), flipped with chance 1/(e^epsilon + 1), which is ``lie`` over 2^53. The
    row is public and uniform, so all of epsilon is in the bit. Best for the smallest epsilons and reports.

    >>> round(Hadamard.calibrate(51, 1).variance(), 2), round(Hadamard.calibrate(51, 4).variance(), 2)
    (4.68, 1.08)
    """

    k: int
    lie: int

    name: ClassVar[str] = "hadamard"

    @property
    def order(self) -> int:
        """The number of rows: the smallest power of two that is not below k."""
        return 1 << (self.k - 1).bit_length()

    @property
    def q(self) -> Fraction:
        """Another cell has the same bit in exactly half of the rows."""
        return Fraction(1, 2)

    @property
    def report_bytes(self) -> int:
        """The row and the bit as one number."""
        return bytes_for(2 * self.order)

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        """Draw (row, bit) for each value."""
        cells = self.checked_values(values)
        rows = below(bits, self.order, len(cells))
        return np.stack([rows, parity(rows & cells) ^ coins(self.lie, len(cells), bits)], axis=1)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count, for each cell, the reports with its bit: half of all of them plus half of a Hadamard transform."""
        rows = self.checked_columns(rows, self.order, 2)
        signs = np.bincount(rows[:, 0], minlength=self.order) - 2 * np.bincount(
            rows[rows[:, 1] == 1, 0], minlength=self.order
        )
        return (len(rows) + walsh_hadamard(signs.astype(np.int64))[: self.k]) // 2

    def law(self, value: int) -> Mapping[Answer, float]:
        """Every row, with its bit true or flipped."""
        self.check_listable(2 * self.order)
        return {
            (row, bit): float(self.p if bit == (row & value).bit_count() % 2 else 1 - self.p) / self.order
            for row in range(self.order)
            for bit in (0, 1)
        }

    def encode(self, answer: tuple[int, int]) -> bytes:
        """Twice the row plus the bit, little-endian."""
        row, bit = answer
        return (2 * row + bit).to_bytes(self.report_bytes, "little")

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> IntArray:
        """Read rows and bits."""
        numbers = numbers_from(payloads)
        return self.checked_columns(np.stack([numbers >> np.uint64(1), numbers & np.uint64(1)], axis=1), self.order, 2)


def parity(numbers: IntArray) -> IntArray:
    """Compute the parity of the set bits of each number below 2^32."""
    folded = numbers
    for shift in (16, 8, 4, 2, 1):
        folded = folded ^ (folded >> shift)
    return folded & 1


def walsh_hadamard(numbers: IntArray) -> IntArray:
    """Multiply by the Hadamard matrix, entry (i, j) = -1 to the parity of i AND j, in n log n steps."""
    out, half = numbers.copy(), 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        half *= 2
    return out
