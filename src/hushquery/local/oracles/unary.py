"""Optimised unary encoding: a bit per cell; the client's own bit is a fair coin, every other one is rarely set."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.local.intervals import IntArray
from hushquery.local.oracles.krr import Response
from hushquery.local.randomizer import ONE, Answer, coins, many_coins
from hushquery.noise.sampler import Bits

# Clients are randomised in blocks of about so many coins, and reports counted in blocks of about so many words.
_COINS = 1 << 20
_WORDS = 1 << 17


@dataclass(frozen=True)
class OUE(Response):
    """Optimised unary encoding (Wang, Blocki, Li and Jha 2017): p = 1/2, q = 1/(e^epsilon + 1), ``lie`` over 2^53.

    A report is the bit vector: bit ``i % 8`` of byte ``i // 8`` stands for cell i, and spare bits are 0. Two bits
    differ between two values, so epsilon is ln(p(1-q)/((1-p)q)) = ln((1-q)/q).

    >>> oracle = OUE.calibrate(51, 4)
    >>> round(oracle.variance(), 3), oracle.report_bytes
    (0.076, 7)
    """

    k: int
    lie: int

    name: ClassVar[str] = "oue"

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
        """Draw the packed bits of each client, one row of bytes each."""
        cells = self.checked_values(values)
        out = np.empty((len(cells), self.report_bytes), dtype=np.uint8)
        step = max(1, _COINS // self.k)
        for start in range(0, len(cells), step):
            block = cells[start : start + step]
            vectors = many_coins(self.lie, len(block) * self.k, bits).reshape(len(block), self.k)
            vectors[np.arange(len(block)), block] = coins(ONE // 2, len(block), bits)
            out[start : start + step] = np.packbits(vectors, axis=1, bitorder="little")
        return out

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count each cell's bits."""
        return bit_counts(self._checked(rows))[: self.k]

    def law(self, value: int) -> Mapping[Answer, float]:
        """Every bit vector, its bits independent."""
        self.check_listable(2**self.k)
        out: dict[Answer, float] = {}
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

    def encode(self, answer: bytes) -> bytes:
        """An answer is its bytes."""
        return bytes(answer)

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Refuse spare bits that are set; answers are their bytes."""
        return self._checked(payloads)

    def _checked(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        if rows.ndim != 2 or rows.dtype != np.uint8 or rows.shape[1] != self.report_bytes:
            raise self.malformed(f"it is not {self.report_bytes} bytes long")
        spare = 8 * self.report_bytes - self.k
        if spare and (rows[:, -1] >> (8 - spare)).any():
            raise self.malformed("bits beyond its last cell are set")
        return rows


def bit_counts(rows: npt.NDArray[np.uint8]) -> IntArray:
    """Count the set bits in each position of rows of bytes; position i is bit ``i % 8`` of byte ``i // 8``.

    Carry-save addition of 64 positions at a time: three rows of one weight make one of that weight and one of twice it.
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
