"""Subset selection: send a small set of cells that holds the true one more often than by chance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, working
from hushquery.errors import UsageError
from hushquery.local.intervals import IntArray
from hushquery.local.randomizer import (
    ONE,
    Answer,
    Oracle,
    chance_down,
    check_truth,
    checked_cells,
    checked_epsilon,
    coins,
    e_to,
    loss_of_ratio,
    within_budget,
)
from hushquery.local.report import bytes_for, numbers_from
from hushquery.noise.sampler import Bits, below

# Clients are randomised in blocks of about so many marks (clients times cells).
_MARKS = 1 << 22


@dataclass(frozen=True)
class SubsetSelection(Oracle):
    """Subset selection (Ye and Barg 2018; Wang et al. 2016): omega cells, of the best variance there is.

    The true cell is sent with chance p (``truth`` over 2^53) beside omega - 1 uniform others, else omega uniform others
    are. The set leaves in ascending order: any order that depends on the true cell would reveal it.

    >>> oracle = SubsetSelection.calibrate(501, 4)
    >>> oracle.omega, round(oracle.variance(), 3)
    (9, 0.072)
    """

    k: int
    omega: int
    truth: int

    name: ClassVar[str] = "subset"

    def __post_init__(self) -> None:
        # A set with the own cell against the same set without it, both times what is common to the two.
        check_truth(self.truth * (self.k - self.omega), (ONE - self.truth) * self.omega)

    @classmethod
    def calibrate(cls, k: int, epsilon: Number, omega: int | None = None) -> SubsetSelection:
        """Choose omega = max(1, round(k/(e^epsilon + 1))) and p, rounded down."""
        wanted, cells = checked_epsilon(epsilon), checked_cells(k)
        with working():
            e = e_to(wanted)
            size = max(1, int(mpmath.nint(cells / (e + 1)))) if omega is None else omega
            if not 1 <= size < cells:
                raise UsageError("a subset has at least one cell and fewer than all", fix="Leave omega out")
            truth = chance_down(size * e / (size * e + cells - size))
        return cls(cells, size, within_budget(truth, -1, lambda p: _loss(p, size, cells), wanted))

    @property
    def epsilon(self) -> Fraction:
        """ln(p (k - omega)/((1 - p) omega)), rounded up."""
        return _loss(self.truth, self.omega, self.k)

    @property
    def p(self) -> Fraction:
        """The chance that the true cell is in the set."""
        return Fraction(self.truth, ONE)

    @property
    def q(self) -> Fraction:
        """The chance that another given cell is in the set."""
        return (self.p * (self.omega - 1) + (1 - self.p) * self.omega) / (self.k - 1)

    @property
    def report_bytes(self) -> int:
        """A list of cells or a bit per cell, whichever is shorter."""
        return min(self.omega * bytes_for(self.k), -(-self.k // 8))

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        """Draw a row of omega ascending cells for each value."""
        cells = self.checked_values(values)
        out = np.empty((len(cells), self.omega), dtype=np.int64)
        step = max(1, _MARKS // self.k)
        for start in range(0, len(cells), step):
            block = cells[start : start + step]
            kept = coins(self.truth, len(block), bits)
            marked = np.zeros((len(block), self.k), dtype=np.bool_)
            marked[kept, block[kept]] = True
            for chosen, size in ((kept, self.omega - 1), (~kept, self.omega)):
                row = np.flatnonzero(chosen)
                for cell in others(block[row], self.k, size, bits):
                    marked[row, cell] = True
            out[start : start + step] = np.nonzero(marked)[1].reshape(len(block), self.omega)
        return out

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count the cells of all sets."""
        return np.bincount(self._checked(rows).ravel(), minlength=self.k).astype(np.int64, copy=False)

    def adds_up(self, support: IntArray, n: int) -> bool:
        """Each report is a set of omega cells."""
        return super().adds_up(support, n) and int(support.sum()) == n * self.omega

    def law(self, value: int) -> Mapping[Answer, float]:
        """Every set, by whether it holds the true cell."""
        self.check_listable(math.comb(self.k, self.omega))
        inside = float(self.p / math.comb(self.k - 1, self.omega - 1))
        outside = float((1 - self.p) / math.comb(self.k - 1, self.omega))
        return {
            cells: inside if value in cells else outside for cells in itertools.combinations(range(self.k), self.omega)
        }

    def encode(self, answer: tuple[int, ...]) -> bytes:
        """The ascending cells, each little-endian, or the bits of the set where they are shorter."""
        if self._as_bits:
            marked = np.zeros(self.k, dtype=np.uint8)
            marked[list(answer)] = 1
            return np.packbits(marked, bitorder="little").tobytes()
        return b"".join(cell.to_bytes(bytes_for(self.k), "little") for cell in answer)

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> IntArray:
        """Read sets; another order, a cell twice, and spare bits are refused."""
        if self._as_bits:
            marked = np.unpackbits(payloads, axis=1, bitorder="little")
            if (marked.sum(axis=1, dtype=np.int64) != self.omega).any():
                raise self.malformed(f"it is no set of {self.omega} cells")
            return self._checked(np.nonzero(marked)[1].reshape(len(payloads), self.omega))
        flat = numbers_from(payloads.reshape(-1, bytes_for(self.k)))
        return self._checked(flat.astype(np.int64).reshape(len(payloads), self.omega))

    @property
    def _as_bits(self) -> bool:
        return -(-self.k // 8) < self.omega * bytes_for(self.k)

    def _checked(self, rows: npt.NDArray[Any]) -> IntArray:
        if rows.ndim != 2 or rows.shape[1] != self.omega or rows.dtype.kind not in "iu":
            raise self.malformed(f"it is no set of {self.omega} cells")
        rows = rows.astype(np.int64, copy=False)
        if len(rows) and (rows[:, 0].min() < 0 or rows[:, -1].max() >= self.k or (np.diff(rows, axis=1) <= 0).any()):
            raise self.malformed("its cells are out of range or not in ascending order")
        return rows


def _loss(truth: int, omega: int, k: int) -> Fraction:
    return loss_of_ratio(truth * (k - omega), (ONE - truth) * omega)


def others(cells: IntArray, k: int, size: int, bits: Bits) -> list[IntArray]:
    """Draw for each cell ``size`` distinct other cells of 0..k-1, every such set equally likely (Floyd's algorithm)."""
    n = len(cells)
    taken = np.zeros((n, k - 1), dtype=np.bool_)
    every = np.arange(n)
    drawn = []
    for last in range(k - 1 - size, k - 1):
        draw = below(bits, last + 1, n)
        draw[taken[every, draw]] = last
        taken[every, draw] = True
        drawn.append(draw + (draw >= cells))
    return drawn
