"""1BitMean and dBitFlip as the registry knows them: tiny domains whose laws can be enumerated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from hushquery.core.loss import Loss
from hushquery.core.registry import Kind, Law, Mechanism, Pair
from hushquery.core.unit import Relation
from hushquery.local.numbers.channels import HistogramChannel, MeanChannel
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import AlphaPoint, OneBitMean
from hushquery.local.oracles.chance import ONE
from hushquery.local.oracles.mechanisms import new_devices
from hushquery.noise.sampler import Bits, IntArray

__all__ = ["DBitFlipAnswer", "OneBit"]

# How many clients answer one by one.
_CLIENTS = 4_000


@dataclass(frozen=True)
class OneBit(Mechanism[int]):
    """1BitMean of a number in 0..10.

    **Guarantee:** pure epsilon for one report, replace-one, from the integers over 2^53. **Estimator:** see
    :class:`~hushquery.local.numbers.onebit.OneBitMean`; the bit itself estimates nothing without its chances.

    >>> OneBit.calibrate(Fraction(1), Fraction(0)).loss.fits(1, 0)
    True
    """

    name: ClassVar[str] = "one-bit-mean"
    summary: ClassVar[str] = "one random bit for the average of numbers in 0..10"
    kind: ClassVar[Kind] = "randomizer"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    mean: OneBitMean

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> OneBit:
        """Choose the integers; delta is not needed and not used."""
        del delta
        return cls(OneBitMean.calibrate(10, epsilon))

    @property
    def loss(self) -> Loss:
        """The claimed epsilon."""
        return Loss(pure=(self.mean.epsilon,))

    def pairs(self) -> Sequence[Pair[int]]:
        """The two ends, and the middle against an end."""
        return [Pair("nothing or everything", 0, 10), Pair("half or everything", 5, 10)]

    def run(self, world: int, n: int, bits: Bits) -> IntArray:
        """Draw n bits."""
        return self.mean.randomize_many(np.full(n, world, dtype=np.int64), bits).astype(np.int64).reshape(n, 1)

    def end_to_end(self, world: int, bits: Bits) -> tuple[IntArray, Law]:
        """Answer as devices do, each from its secret, rounded to one of the two ends: on average it is the same."""
        channel = MeanChannel(AlphaPoint(self.mean, self.mean.most))
        answers = [channel.answer(world, device, bits) for device in new_devices(_CLIENTS, bits)]
        return np.array([[channel.unpack(channel.payload(kept, bits))] for kept in answers]), self.law(world)

    def law(self, world: int) -> Mapping[tuple[int, ...], float]:
        """Give the chances of 0 and 1."""
        one = self.mean.chance(world)
        return {(0,): (ONE - one) / ONE, (1,): one / ONE}


@dataclass(frozen=True)
class DBitFlipAnswer(Mechanism[int]):
    """dBitFlip with 4 buckets, of which 0, 1 and 2 were sampled.

    **Guarantee:** pure 2 ln(keep/(1-keep)) for one answer, replace-one. **Estimator:** see
    :class:`~hushquery.local.numbers.dbitflip.DBitFlip`.

    >>> DBitFlipAnswer.calibrate(Fraction(1), Fraction(0)).loss.fits(1, 0)
    True
    """

    name: ClassVar[str] = "d-bit-flip"
    summary: ClassVar[str] = "three flipped bits of four buckets"
    kind: ClassVar[Kind] = "randomizer"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    flip: DBitFlip

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> DBitFlipAnswer:
        """Choose the chance; delta is not needed and not used."""
        del delta
        return cls(DBitFlip.calibrate(4, 3, epsilon))

    @property
    def loss(self) -> Loss:
        """The claimed epsilon."""
        return Loss(pure=(self.flip.epsilon,))

    def pairs(self) -> Sequence[Pair[int]]:
        """Two sampled buckets, and a sampled one against one that was not."""
        return [Pair("one sampled bucket or another", 0, 2), Pair("a sampled bucket or none", 1, 3)]

    def run(self, world: int, n: int, bits: Bits) -> IntArray:
        """Answer n times with fresh bits."""
        sampled = np.tile(np.arange(3), (n, 1))
        return self.flip.randomize_many(np.full(n, world, dtype=np.int64), sampled, bits).astype(np.int64)

    def end_to_end(self, world: int, bits: Bits) -> tuple[IntArray, Law]:
        """Answer as devices do, each from its secret; those that sampled the buckets 0, 1 and 2."""
        channel = HistogramChannel(self.flip, self.flip.k - 1)
        answers = [channel.answer(world, device, bits) for device in new_devices(_CLIENTS, bits)]
        read = [channel.unpack(channel.payload(kept, bits)) for kept in answers]
        return np.array([row[3:] for row in read if row[:3] == (0, 1, 2)], dtype=np.int64), self.law(world)

    def law(self, world: int) -> Mapping[tuple[int, ...], float]:
        """Enumerate the eight answers."""
        keep = self.flip.keep / ONE
        return {
            answer: math.prod(keep if bit == (world == j) else 1 - keep for j, bit in enumerate(answer))
            for answer in itertools.product((0, 1), repeat=3)
        }
