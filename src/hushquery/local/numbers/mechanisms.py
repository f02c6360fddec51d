"""1BitMean and dBitFlip as the registry knows them: tiny domains whose laws can be enumerated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.registry import Pair
from hushquery.local.intervals import IntArray
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.mechanisms import ChannelReport
from hushquery.local.randomizer import ONE
from hushquery.noise.sampler import Bits


class OneBit(ChannelReport):
    """1BitMean of a number in 0..10; on devices rounded to one of the two ends, which is the same on average.

    **Guarantee:** pure epsilon for one report, replace-one, from the integers over 2^53. **Estimator:** see
    :class:`~hushquery.local.numbers.onebit.OneBitMean`; the bit itself estimates nothing without its chances.

    >>> OneBit.calibrate(1, 0).loss.fits(1, 0)
    True
    """

    oracle: OneBitMean

    name: ClassVar[str] = "one-bit-mean"
    summary: ClassVar[str] = "one random bit for the average of numbers in 0..10"
    built = staticmethod(partial(OneBitMean.calibrate, 10))  # numbers in 0..10

    def pairs(self) -> Sequence[Pair[int]]:
        """The two ends, and the middle against an end."""
        return [Pair("nothing or everything", 0, 10), Pair("half or everything", 5, 10)]

    def run(self, dataset: int, n: int, bits: Bits) -> IntArray:
        """Draw n bits."""
        return self.columns(self.oracle.randomize_many(np.full(n, dataset, dtype=np.int64), bits))

    def law(self, dataset: int) -> Mapping[tuple[int, ...], float]:
        """Return the chances of 0 and 1."""
        one = self.oracle.chance(dataset)
        return {(0,): (ONE - one) / ONE, (1,): one / ONE}


class DBitFlipAnswer(ChannelReport):
    """dBitFlip with 4 buckets, of which 0, 1 and 2 were sampled.

    **Guarantee:** pure 2 ln(keep/(1-keep)) for one answer, replace-one. **Estimator:** see
    :class:`~hushquery.local.numbers.dbitflip.DBitFlip`.

    >>> DBitFlipAnswer.calibrate(1, 0).loss.fits(1, 0)
    True
    """

    oracle: DBitFlip

    name: ClassVar[str] = "d-bit-flip"
    summary: ClassVar[str] = "three flipped bits of four buckets"
    built = staticmethod(partial(DBitFlip.calibrate, 4, 3))  # three of four buckets

    def pairs(self) -> Sequence[Pair[int]]:
        """Two sampled buckets, and a sampled one against one that was not."""
        return [Pair("one sampled bucket or another", 0, 2), Pair("a sampled bucket or none", 1, 3)]

    def columns(self, reports: npt.NDArray[Any]) -> IntArray:
        """The bits of those that sampled the buckets 0, 1 and 2."""
        return np.asarray(reports[(reports[:, :3] == [0, 1, 2]).all(axis=1), 3:], dtype=np.int64)

    def run(self, dataset: int, n: int, bits: Bits) -> IntArray:
        """Answer n times with fresh bits."""
        sampled = np.tile(np.arange(3), (n, 1))
        return self.oracle.randomize_many(np.full(n, dataset, dtype=np.int64), sampled, bits).astype(np.int64)

    def law(self, dataset: int) -> Mapping[tuple[int, ...], float]:
        """Enumerate the eight answers."""
        keep = self.oracle.keep / ONE
        return {
            answer: math.prod(keep if bit == (dataset == j) else 1 - keep for j, bit in enumerate(answer))
            for answer in itertools.product((0, 1), repeat=3)
        }
