"""Optimised unary encoding: a bit per cell; the client's own bit is a fair coin, every other one is rarely set."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.rounding import Number, working
from hushquery.errors import UsageError
from hushquery.local.oracles.chance import (
    ONE,
    chance_up,
    check_truth,
    checked_cells,
    checked_epsilon,
    coins,
    e_to,
    loss_of_ratio,
    many_coins,
    within_budget,
)
from hushquery.local.oracles.oracle import MOST_OUTCOMES, IntArray, Oracle, Report
from hushquery.noise.sampler import Bits

__all__ = ["OUE", "bit_counts"]

# Clients are randomised in blocks of about so many coins, and reports counted in blocks of about so many words.
_COINS = 1 << 20
_WORDS = 1 << 17


@dataclass(frozen=True)
class OUE(Oracle):
    """Optimised unary encoding (Wang, Blocki, Li and Jha 2017): p = 1/2, q = 1/(e^epsilon + 1).

    A report is the bit vector: bit ``i % 8`` of byte ``i // 8`` stands for cell i, and spare bits are 0.

    Args:
        k: The number of cells.
        lie: q over 2^53.

    >>> oracle = OUE.calibrate(51, 4)
    >>> round(oracle.variance(), 3), oracle.report_bytes
    (0.076, 7)
    """

    k: int
    lie: int

    name: ClassVar[str] = "oue"

    def __post_init__(self) -> None:
        check_truth(ONE - self.lie, self.lie)

    @classmethod
    def calibrate(cls, k: int, epsilon: Number) -> OUE:
        """Choose q, rounded up."""
        wanted = checked_epsilon(epsilon)
        with working():
            lie = chance_up(1 / (e_to(wanted) + 1))
        return cls(checked_cells(k), within_budget(lie, +1, lambda q: loss_of_ratio(ONE - q, q), wanted))

    @property
    def epsilon(self) -> Fraction:
        """Two bits differ between two values: ln(p(1-q)/((1-p)q)) = ln((1-q)/q), rounded up."""
        return loss_of_ratio(ONE - self.lie, self.lie)

    @property
    def p(self) -> Fraction:
        """A fair coin."""
        return Fraction(1, 2)

    @property
    def q(self) -> Fraction:
        """The chance of each other bit."""
        return Fraction(self.lie, ONE)

    @property
    def report_bytes(self) -> int:
        """A bit per cell."""
        return -(-self.k // 8)

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[np.uint8]:
        """Give the packed bits of each client, one row of bytes each."""
        cells = self.checked_values(values)
        out = np.empty((len(cells), self.report_bytes), dtype=np.uint8)
        step = max(1, _COINS // self.k)
        for start in range(0, len(cells), step):
            block = cells[start : start + step]
            vectors = many_coins(self.lie, len(block) * self.k, bits).reshape(len(block), self.k)
            vectors[np.arange(len(block)), block] = coins(ONE // 2, len(block), bits)
            out[start : start + step] = np.packbits(vectors, axis=1, bitorder="little")
        return out

    def support(self, reports: npt.NDArray[Any]) -> IntArray:
        """Count each cell's bits."""
        return bit_counts(self._checked(reports))[: self.k]

    def law(self, value: int) -> Mapping[Report, float]:
        """Every bit vector, its bits independent."""
        if 2**self.k > MOST_OUTCOMES:
            raise UsageError("this domain's bit vectors are too many to list", fix="Ask for the law of a small domain")
        out: dict[Report, float] = {}
        for vector in itertools.product((0, 1), repeat=self.k):
            chance = 1.0
            for cell, bit in enumerate(vector):
                rate = float(self.p if cell == value else self.q)
                chance *= rate if bit else 1 - rate
            out[np.packbits(np.array(vector, dtype=np.uint8), bitorder="little").tobytes()] = chance
        return out

    def report(self, row: Any) -> bytes:
        """The bytes of the bit vector."""
        return bytes(row)

    def rows(self, reports: Iterable[Any]) -> npt.NDArray[np.uint8]:
        """A row of bytes per report."""
        size = self.report_bytes
        # A call for each of millions of reports would take longer than counting them.
        listed = [r if type(r) is bytes and len(r) == size else self.checked_bytes(r) for r in reports]
        return self._checked(np.frombuffer(b"".join(listed), dtype=np.uint8).reshape(len(listed), size))

    def pack(self, report: Report) -> bytes:
        """A report is its bytes."""
        return self.unpack(report)  # type: ignore[arg-type]

    def unpack(self, data: bytes) -> bytes:
        """Refuse another length and spare bits that are set."""
        return self.report(self.rows([data])[0])

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Reports are their bytes."""
        return self._checked(payloads)

    def describe(self) -> dict[str, Any]:
        """Name, domain and integers."""
        return {"name": self.name, "k": self.k, "lie": self.lie}

    def _checked(self, reports: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        if reports.ndim != 2 or reports.dtype != np.uint8 or reports.shape[1] != self.report_bytes:
            raise self.malformed(f"it is not {self.report_bytes} bytes long")
        spare = 8 * self.report_bytes - self.k
        if spare and (reports[:, -1] >> (8 - spare)).any():
            raise self.malformed("bits beyond its last cell are set")
        return reports


def bit_counts(rows: npt.NDArray[np.uint8]) -> IntArray:
    """Count the set bits in each position of rows of bytes; position i is bit ``i % 8`` of byte ``i // 8``.

    Rows are added like digits: three rows of the same weight make one of that weight (their sum without carry) and one
    of twice the weight (the carry), 64 positions at a time. Only a few rows per weight are left to be unpacked.

    >>> bit_counts(np.array([[3], [1]], dtype=np.uint8)).tolist()
    [2, 1, 0, 0, 0, 0, 0, 0]
    """
    n, width = rows.shape
    out = np.zeros(8 * width, dtype=np.int64)
    words = -(-width // 8)
    step = max(3, _WORDS // max(1, words))
    for start in range(0, n, step):
        block = rows[start : start + step]
        if width % 8:
            wide = np.zeros((len(block), 8 * words), dtype=np.uint8)
            wide[:, :width] = block
            block = wide
        out += _column_sums(np.ascontiguousarray(block).view(np.uint64), 8 * width)
    return out


def _column_sums(rows: npt.NDArray[np.uint64], positions: int) -> IntArray:
    out = np.zeros(positions, dtype=np.int64)
    weight = 1
    while len(rows):
        carries = []
        while len(rows) >= 3:
            third = len(rows) // 3
            a, b, c, rest = rows[:third], rows[third : 2 * third], rows[2 * third : 3 * third], rows[3 * third :]
            either = a ^ b
            carries.append((a & b) | (either & c))
            rows = np.concatenate([either ^ c, rest]) if len(rest) else either ^ c
        left = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=1, bitorder="little")[:, :positions]
        out += weight * left.sum(axis=0, dtype=np.int64)
        rows = np.concatenate(carries) if carries else rows[:0]
        weight *= 2
    return out
