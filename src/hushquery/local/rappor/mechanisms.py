"""RAPPOR in the registry: its permanent response, and a report, on a Bloom filter small enough to enumerate.

Each run is a new device with a new secret, so the whole way from a value through the MAC to the bits is checked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar

import mpmath
import numpy as np

from hushquery.core.budget import Relation, exact, rational_mpf, working
from hushquery.core.loss import Loss
from hushquery.core.registry import Kind, Law, Mechanism, Pair
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.mechanisms import new_devices
from hushquery.local.randomizer import ONE, chance_down, chance_up, checked_epsilon
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.response import BoolArray, Encoder, Params, Variant
from hushquery.noise.sampler import Bits

_BITS, _HASHES = 4, 2
_COHORT = 0
_DEVICES = 3_000
_TASK = b"conformance"


@dataclass(frozen=True)
class _Rappor(Mechanism[bytes]):
    """What both share: devices, values with disjoint filters, and a law that is a product over bits."""

    params: Params

    kind: ClassVar[Kind] = "randomizer"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    @abstractmethod
    def chance_of_one(self, on: bool) -> Fraction:
        """Return the chance that an output bit is 1, given the Bloom filter's bit."""

    @abstractmethod
    def answers(self, permanent: BoolArray, device: Encoder, bits: Bits) -> BoolArray:
        """Return what leaves the devices, from their permanent responses."""

    @abstractmethod
    def leaves(self, channel: Rappor, kept: bytes, bits: Bits) -> bytes:
        """The same for one device and the answer that it keeps."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Return what is claimed, as tasks and pages claim it."""

    @property
    def loss(self) -> Loss:
        """Pure: two values differ in h bits one way and in h the other, from the integers that run."""
        return Loss(pure=(exact(self.epsilon),))

    def pairs(self) -> Sequence[Pair[bytes]]:
        """Two values whose filters share no bit: as far apart as two values can be."""
        return [Pair("values with disjoint filters", _value(0b0011), _value(0b1100))]

    def bloom(self, dataset: bytes) -> int:
        return _device(self.params).bloom(_COHORT, dataset)

    def run(self, dataset: bytes, n: int, bits: Bits) -> IntArray:
        """Answer ``n`` times, each time as a new device; one column, the answer's bits as a number."""
        secrets = bits.words(4 * n).astype("<u8").tobytes()
        permanent = np.empty((n, _BITS), dtype=np.bool_)
        any_device, bloom = _device(self.params), self.bloom(dataset)
        for i in range(n):
            answer = any_device.another(secrets[32 * i : 32 * i + 32]).permanent(bloom)
            permanent[i] = [answer >> j & 1 for j in range(_BITS)]
        left = self.answers(permanent, any_device, bits)
        return (left @ (1 << np.arange(_BITS))).reshape(n, 1).astype(np.int64)

    def end_to_end(self, dataset: bytes, bits: Bits) -> tuple[IntArray, Law]:
        channel = Rappor(self.params)
        kept = [channel.answer(dataset, device, bits) for device in new_devices(_DEVICES, bits)]
        read = [channel.unpack(self.leaves(channel, answer, bits))[1] for answer in kept]
        return np.array(read, dtype=np.int64).reshape(_DEVICES, 1), self.law(dataset)

    def law(self, dataset: bytes) -> Mapping[tuple[int, ...], float]:
        """Enumerate all answers: bits are independent given the filter."""
        bloom = self.bloom(dataset)
        law: dict[tuple[int, ...], float] = {}
        for answer in range(1 << _BITS):
            chance = Fraction(1)
            for j in range(_BITS):
                one = self.chance_of_one(bool(bloom >> j & 1))
                chance *= one if answer >> j & 1 else 1 - one
            law[(answer,)] = float(chance)
        return law


class RapporPermanent(_Rappor):
    """The permanent response alone: what many reports of one value converge to, and so all that they can ever tell.

    **Guarantee:** pure epsilon = 2h ln((1 - f/2)/(f/2)) for one value, replace-one; given the change times.
    **Estimator:** none on its own; reports of many clients are decoded together.
    **Reference:** Erlingsson, Pihur and Korolova 2014, Theorem 1.

    >>> RapporPermanent.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0) <= 1
    True
    """

    name: ClassVar[str] = "rappor-permanent"
    summary: ClassVar[str] = "RAPPOR's permanent response: a Bloom filter of 4 bits, each flipped with chance f/2"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> RapporPermanent:
        """Choose f/2 = 1/(1 + e^(epsilon/2h)); delta is not needed and not used."""
        del delta
        with working():
            flip = chance_up(1 - _kept(checked_epsilon(epsilon)))
        while (mechanism := cls(Params(_BITS, _HASHES, 1, 0, 1, Fraction(2 * flip, ONE)))).epsilon > epsilon:
            flip += 1  # what is claimed is a double, rounded up
        return mechanism

    @property
    def epsilon(self) -> float:
        """Eps infinity."""
        return self.params.permanent_epsilon(Variant.NATIVE)

    def chance_of_one(self, on: bool) -> Fraction:
        """1 - f/2 or f/2."""
        flip = self.params.chances(Variant.NATIVE).f / 2
        return 1 - flip if on else flip

    def answers(self, permanent: BoolArray, device: Encoder, bits: Bits) -> BoolArray:
        """The permanent responses themselves."""
        del device, bits
        return permanent

    def leaves(self, channel: Rappor, kept: bytes, bits: Bits) -> bytes:
        """The permanent response itself."""
        del channel, bits
        return kept


class RapporReport(_Rappor):
    """One report: the permanent response, answered once with fresh coins.

    **Guarantee:** pure epsilon = h ln(q*(1 - p*)/(p*(1 - q*))) for one report, replace-one.
    **Estimator:** none on its own; reports of many clients are decoded together.
    **Reference:** Erlingsson, Pihur and Korolova 2014, Theorem 2.

    >>> RapporReport.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0) <= 1
    True
    """

    name: ClassVar[str] = "rappor-report"
    summary: ClassVar[str] = "one RAPPOR report: permanent and instantaneous response of a Bloom filter of 4 bits"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> RapporReport:
        """Choose q* = s = 1 - p* for epsilon, with f = 1 - s, so q = (3s - 1)/(2s); delta is not needed."""
        del delta
        with working():
            kept = _kept(checked_epsilon(epsilon))
            f = Fraction(2 * chance_up((1 - kept) / 2), ONE)
            q = chance_down((3 * kept - 1) / (2 * kept))
        while (
            mechanism := cls(Params(_BITS, _HASHES, 1, Fraction(ONE - q, ONE), Fraction(q, ONE), f))
        ).epsilon > epsilon:
            q -= 1  # what is claimed is a double, rounded up
        return mechanism

    @property
    def epsilon(self) -> float:
        """Eps 1."""
        return self.params.instant_epsilon(Variant.NATIVE)

    def chance_of_one(self, on: bool) -> Fraction:
        """q* or p*."""
        chances = self.params.chances(Variant.NATIVE)
        return chances.q_star if on else chances.p_star

    def answers(self, permanent: BoolArray, device: Encoder, bits: Bits) -> BoolArray:
        """Fresh reports of the permanent responses."""
        return device.instant_many(permanent, bits)

    def leaves(self, channel: Rappor, kept: bytes, bits: Bits) -> bytes:
        """A fresh report of the permanent response."""
        return channel.payload(kept, bits)


def _kept(epsilon: Fraction) -> mpmath.mpf:
    """Return the chance to keep a bit with which 2h different bits lose epsilon."""
    return 1 / (1 + mpmath.exp(-rational_mpf(epsilon) / (2 * _HASHES)))


@cache
def _device(params: Params) -> Encoder:
    return Encoder(params, bytes(32), task=_TASK)


@cache
def _value(bloom: int) -> bytes:
    """Find a value with this Bloom filter."""
    device = _device(Params(_BITS, _HASHES, 1, 0, 1, 1))
    return next(value for value in (b"value %d" % i for i in range(10**4)) if device.bloom(_COHORT, value) == bloom)
