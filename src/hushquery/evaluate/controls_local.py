"""Negative controls of the local model: frequency oracles that are broken as real libraries were.

Each runs its defect and claims the epsilon of the honest oracle.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.local.chance import coins
from hushquery.local.mechanisms import SubsetReport, UnaryReport
from hushquery.local.oracle import IntArray, Report
from hushquery.local.subset import SubsetSelection
from hushquery.local.unary import OUE
from hushquery.noise.bits import Bits
from hushquery.privacy.registry import Mechanism

__all__ = ["LOCAL_CONTROLS"]


@dataclass(frozen=True)
class _TrueFirst(SubsetSelection):
    """The true cell, when it is kept, leaves first (multi-freq-ldpy 0.2.5)."""

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        cells = self.checked_values(values)
        sets = super().randomize_many(cells, bits)
        # A stable sort by "is another cell" brings the true one to the front and leaves the rest ascending.
        order = np.argsort(sets != cells[:, None], axis=1, kind="stable")
        return np.take_along_axis(sets, order, axis=1)

    def law(self, value: int) -> Mapping[Report, float]:
        out: dict[Report, float] = {}
        rest = [cell for cell in range(self.k) if cell != value]
        for some in itertools.combinations(rest, self.omega - 1):
            out[(value, *some)] = float(self.p / comb(self.k - 1, self.omega - 1))
        for some in itertools.combinations(rest, self.omega):
            out[some] = float((1 - self.p) / comb(self.k - 1, self.omega))
        return out


@dataclass(frozen=True)
class _LastBitBare(OUE):
    """The last bit says the truth (OpenDP's bit vectors up to 0.14.1)."""

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[np.uint8]:
        vectors = self._bits(super().randomize_many(values, bits))
        vectors[:, -1] = np.asarray(values) == self.k - 1
        return np.packbits(vectors, axis=1, bitorder="little")

    def law(self, value: int) -> Mapping[Report, float]:
        out: dict[Report, float] = {}
        for report, chance in super().law(value).items():
            vector = self._bits(np.frombuffer(bytes(report), dtype=np.uint8)[None])
            vector[:, -1] = value == self.k - 1
            changed = np.packbits(vector, axis=1, bitorder="little").tobytes()
            out[changed] = out.get(changed, 0.0) + chance
        return out

    def _bits(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        return np.unpackbits(rows, axis=1, bitorder="little")[:, : self.k]


@dataclass(frozen=True)
class _NeverCleared(OUE):
    """A set bit is never cleared (RAPPOR in pure-ldp 1.2.0)."""

    @property
    def p(self) -> Fraction:
        return Fraction(1)

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[np.uint8]:
        cells = self.checked_values(values)
        vectors = coins(self.lie, len(cells) * self.k, bits).reshape(len(cells), self.k)
        vectors[np.arange(len(cells)), cells] = True
        return np.packbits(vectors, axis=1, bitorder="little")


def _true_first(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    del delta
    honest = SubsetReport.build(epsilon)
    return SubsetReport(_TrueFirst(honest.k, honest.omega, honest.truth))


def _last_bit_bare(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    del delta
    honest = UnaryReport.build(epsilon)
    return UnaryReport(_LastBitBare(honest.k, honest.lie))


def _never_cleared(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    del delta
    honest = UnaryReport.build(epsilon)
    return UnaryReport(_NeverCleared(honest.k, honest.lie))


#: The negative controls of the local model: name, and how to build it for an honest mechanism's (epsilon, delta).
LOCAL_CONTROLS: dict[str, Callable[[Fraction, Fraction], Mechanism[Any]]] = {
    "subset selection with the true cell first": _true_first,
    "last bit of a unary encoding left bare": _last_bit_bare,
    "unary encoding that never clears a bit": _never_cleared,
}
