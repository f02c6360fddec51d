"""Negative controls of the local model: oracles and RAPPOR, broken as real libraries were.

Each runs its defect and claims the epsilon of the honest one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.core.loss import Loss
from hushquery.core.registry import Mechanism, Pair
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.mechanisms import SubsetReport, UnaryReport
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import ONE, Answer, coins
from hushquery.local.rappor.mechanisms import RapporPermanent
from hushquery.noise.sampler import Bits

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

    def law(self, value: int) -> Mapping[Answer, float]:
        out: dict[Answer, float] = {}
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

    def law(self, value: int) -> Mapping[Answer, float]:
        out: dict[Answer, float] = {}
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


class _Rappor(RapporPermanent):
    """RAPPOR's permanent response of many devices at once: coins in place of a MAC under each device's secret."""

    def run(self, dataset: bytes, n: int, bits: Bits) -> IntArray:
        out = np.zeros((n, 1), dtype=np.int64)
        for j in range(self.params.k):
            chance = int(self.chance_of_one(bool(self.bloom(dataset) >> j & 1)) * ONE)
            out[:, 0] += coins(chance, n, bits).astype(np.int64) << j
        return out


class _RapporNeverCleared(_Rappor):
    """A bit of the Bloom filter stays on, so whoever sends 0 did not hold the value (pure-ldp 1.2.0)."""

    def run(self, dataset: bytes, n: int, bits: Bits) -> IntArray:
        return super().run(dataset, n, bits) | self.bloom(dataset)

    def law(self, dataset: bytes) -> Mapping[tuple[int, ...], float]:
        out: dict[tuple[int, ...], float] = {}
        for (answer,), chance in super().law(dataset).items():
            key = (answer | self.bloom(dataset),)
            out[key] = out.get(key, 0.0) + chance
        return out


class _RapporOneHash(_Rappor):
    """f as if the filter had one hash function, though each sets a bit of its own (pure-ldp 1.2.0)."""

    @property
    def loss(self) -> Loss:
        return Loss(pure=(super().loss.epsilon(0) / self.params.h,))


class _RapporTwice(_Rappor):
    """Two answers of one device, shown as one number; paid for once."""

    def together(self, first: Any, second: Any) -> Any:
        return (first << self.params.k) + second

    def two_answers(self, one: bytes, other: bytes) -> Mapping[tuple[int, ...], float]:
        laws = RapporPermanent.law(self, one).items(), RapporPermanent.law(self, other).items()
        return {(self.together(a, b),): p * q for ((a,), p), ((b,), q) in itertools.product(*laws)}


class _RapporRedrawn(_RapporTwice):
    """The permanent response is drawn anew when a device is asked again (multi-freq-ldpy 0.2.5)."""

    def run(self, dataset: bytes, n: int, bits: Bits) -> IntArray:
        first, second = (_Rappor.run(self, dataset, n, bits) for _ in range(2))
        return np.asarray(self.together(first, second))

    def law(self, dataset: bytes) -> Mapping[tuple[int, ...], float]:
        return self.two_answers(dataset, dataset)


class _RapporShared(_RapporTwice):
    """The noise of two metrics comes from one key, so equal values give equal answers (google/rappor's Python client).

    A dataset is a value of each metric; one of them changes.
    """

    def pairs(self) -> Sequence[Pair[Any]]:
        [pair] = super().pairs()
        return [Pair("two metrics agree or not", (pair.left, pair.left), (pair.left, pair.right))]

    def run(self, dataset: Any, n: int, bits: Bits) -> IntArray:
        one, other = dataset
        first = _Rappor.run(self, one, n, bits)
        # Filters that differ give independent MACs under one key; equal ones the same.
        second = first if one == other else _Rappor.run(self, other, n, bits)
        return np.asarray(self.together(first, second))

    def law(self, dataset: Any) -> Mapping[tuple[int, ...], float]:
        one, other = dataset
        if one != other:
            return self.two_answers(one, other)
        return {(self.together(a, a),): p for (a,), p in RapporPermanent.law(self, one).items()}


def _rappor(broken: type[RapporPermanent], times: int = 1) -> Callable[[Fraction, Fraction], Mechanism[Any]]:
    def build(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
        return broken(RapporPermanent.calibrate(times * epsilon, delta).params)

    return build


def _true_first(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    del delta
    honest = SubsetReport.built(epsilon)
    return SubsetReport(_TrueFirst(honest.k, honest.omega, honest.truth))


def _last_bit_bare(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    del delta
    honest = UnaryReport.built(epsilon)
    return UnaryReport(_LastBitBare(honest.k, honest.lie))


def _never_cleared(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    del delta
    honest = UnaryReport.built(epsilon)
    return UnaryReport(_NeverCleared(honest.k, honest.lie))


#: The negative controls of the local model: name, and how to build it for an honest mechanism's (epsilon, delta).
LOCAL_CONTROLS: dict[str, Callable[[Fraction, Fraction], Mechanism[Any]]] = {
    "subset selection with the true cell first": _true_first,
    "last bit of a unary encoding left bare": _last_bit_bare,
    "unary encoding that never clears a bit": _never_cleared,
    "RAPPOR that never clears a bit": _rappor(_RapporNeverCleared),
    "RAPPOR that forgets its second hash function": _rappor(_RapporOneHash, times=2),
    "RAPPOR's permanent response redrawn": _rappor(_RapporRedrawn),
    "RAPPOR's noise shared by two metrics": _rappor(_RapporShared),
}
