"""Numbers as a task collects them: their average from one bit of each client, or a histogram from a few.

Both are memoised: what a device can ever answer is a function of its secret and the configuration, for few classes of
values.
**Guarantee:** pure epsilon for each class that was ever used, replace-one, given the change times of the class;
docs/proofs/onebit.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.core.estimates import Estimates
from hushquery.errors import UsageError
from hushquery.local.channel import Channel, Device, packed_bits
from hushquery.local.numbers.dbitflip import BitSums, DBitFlip
from hushquery.local.numbers.onebit import AlphaPoint, BitCount
from hushquery.local.oracles.chance import ONE, coins, uniform_below
from hushquery.local.oracles.oracle import IntArray, bytes_for
from hushquery.noise.sampler import Bits

__all__ = ["HistogramChannel", "MeanChannel"]


@dataclass(frozen=True)
class MeanChannel(Channel):
    """1BitMean with alpha-point rounding. A class is a grid point; its answer is one bit.

    Args:
        memo: The randomizer and its grid.

    >>> from hushquery.local.numbers.onebit import OneBitMean
    >>> channel = MeanChannel(AlphaPoint(OneBitMean.calibrate(100, 1), 50))
    >>> channel.unpack(channel.pack(1)), channel.length
    (1, 2)
    """

    memo: AlphaPoint

    @property
    def name(self) -> str:
        """As in a task file."""
        return "onebit"

    @property
    def epsilon(self) -> Fraction:
        """What the bit of one grid point costs."""
        return self.memo.mean.epsilon

    @property
    def report_bytes(self) -> int:
        """One byte, 0 or 1."""
        return 1

    @property
    def length(self) -> int:
        """How many zeros, and how many ones."""
        return 2

    @property
    def note(self) -> str:
        """Classes and error."""
        points, width = self.memo.mean.most // self.memo.step + 1, ONE / self.memo.mean.unit / 2
        return f"at most {points:,} answers per device; standard error of the average at most {width:,.4g}/sqrt(n)"

    def describe(self) -> dict[str, Any]:
        """Name, bound, grid and integers."""
        mean = self.memo.mean
        return {"name": self.name, "most": mean.most, "step": self.memo.step, "low": mean.low, "unit": mean.unit}

    def memo_class(self, value: int, device: Device) -> int:
        """The number of the grid point."""
        return self.memo.point(device.secret, device.task, value) // self.memo.step

    def answer(self, value: int, device: Device, bits: Bits) -> bytes:
        """The bit that the secret gives to the grid point."""
        del bits
        return self.pack(self.memo.respond(device.secret, device.task, value, device.coins))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """A fair coin: it counts as half of the highest number."""
        del device
        return self.pack(int(coins(ONE // 2, 1, bits)[0]))

    def pack(self, answer: Any) -> bytes:
        """One byte."""
        if type(answer) is not int or answer not in (0, 1):
            raise self.malformed("it is neither 0 nor 1")
        return bytes([answer])

    def one(self, row: Any) -> int:
        """The bit."""
        return int(row)

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """The bits."""
        if (payloads > 1).any():
            raise self.malformed("it is neither 0 nor 1")
        return payloads[:, 0]

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count zeros and ones."""
        return np.bincount(rows, minlength=2).astype(np.int64)

    def table(
        self,
        support: IntArray,
        n: int,
        level: float,
        labels: Sequence[str],
        *,
        records: int = 1,
        repeats: int = 1,
    ) -> Estimates:
        """One row, the average; it may lie outside 0 to highest."""
        del labels, records
        return BitCount(n, int(support[1])).estimate(self.memo.mean, level, repeats=repeats)


@dataclass(frozen=True)
class HistogramChannel(Channel):
    """dBitFlip over equal ranges of 0..highest. A class is the sampled bucket of a value, or none of them.

    Args:
        flip: The randomizer.
        highest: The largest number.

    >>> channel = HistogramChannel(DBitFlip.calibrate(4, 2, 1), 9)
    >>> [channel.bucket(x) for x in range(10)], channel.ranges()
    ([0, 0, 0, 1, 1, 2, 2, 2, 3, 3], ['0..2', '3..4', '5..7', '8..9'])
    >>> channel.unpack(channel.pack((1, 3, 0, 1)))
    (1, 3, 0, 1)
    """

    flip: DBitFlip
    highest: int

    def __post_init__(self) -> None:
        if not self.flip.k <= self.highest + 1:
            raise UsageError("there are more buckets than numbers", fix="Give fewer buckets")

    @property
    def name(self) -> str:
        """As in a task file."""
        return "dbitflip"

    @property
    def epsilon(self) -> Fraction:
        """What the answer of one class costs."""
        return self.flip.epsilon

    @property
    def report_bytes(self) -> int:
        """The sampled buckets, then a bit for each."""
        return self.flip.d * bytes_for(self.flip.k) + -(-self.flip.d // 8)

    @property
    def length(self) -> int:
        """Per bucket how many sampled it, then per bucket how many said 1."""
        return 2 * self.flip.k

    @property
    def note(self) -> str:
        """Classes and bytes."""
        classes = min(self.flip.k, self.flip.d + 1)
        return f"{self.flip.k:,} buckets, at most {classes:,} answers per device, in {self.report_bytes:,} bytes"

    def describe(self) -> dict[str, Any]:
        """Name, buckets and integers."""
        flip = self.flip
        return {"name": self.name, "most": self.highest, "k": flip.k, "d": flip.d, "keep": flip.keep}

    def bucket(self, value: int) -> int:
        """Give the bucket of a number: floor(value k / (highest + 1))."""
        return value * self.flip.k // (self.highest + 1)

    def ranges(self) -> list[str]:
        """Name the buckets by the numbers in them."""
        ends = [-(-bucket * (self.highest + 1) // self.flip.k) for bucket in range(self.flip.k + 1)]
        return [str(a) if a == b - 1 else f"{a}..{b - 1}" for a, b in pairwise(ends)]

    def memo_class(self, value: int, device: Device) -> int:
        """Which of the sampled buckets it is, from 0; d for none of them."""
        sampled = self.flip.sampled(device.secret, device.task)
        bucket = self.bucket(value)
        return sampled.index(bucket) if bucket in sampled else self.flip.d

    def answer(self, value: int, device: Device, bits: Bits) -> bytes:
        """The bits that the secret gives to the class."""
        del bits
        sampled, answer = self.flip.respond(device.secret, device.task, self.bucket(value), device.coins)
        return self.pack((*sampled, *answer))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """The same buckets, answered with fresh coins for a bucket drawn evenly: it counts as spread evenly."""
        sampled = self.flip.sampled(device.secret, device.task)
        anywhere = uniform_below(bits, self.flip.k, 1)
        answer = self.flip.randomize_many(anywhere, np.array([sampled], dtype=np.int64), bits)[0]
        return self.pack((*sampled, *(int(bit) for bit in answer)))

    def pack(self, answer: Any) -> bytes:
        """The sampled buckets ascending, each little-endian; then their bits in the same order."""
        d, width = self.flip.d, bytes_for(self.flip.k)
        if not isinstance(answer, tuple) or len(answer) != 2 * d or not all(type(part) is int for part in answer):
            raise self.malformed(f"it is not {d} buckets and {d} bits")
        sampled, bits = answer[:d], answer[d:]
        if not all(0 <= bucket < self.flip.k for bucket in sampled) or not all(bit in (0, 1) for bit in bits):
            raise self.malformed("its buckets or its bits are out of range")
        data = b"".join(bucket.to_bytes(width, "little") for bucket in sampled)
        data += np.packbits(np.array(bits, dtype=np.uint8), bitorder="little").tobytes()
        self.unpack(data)
        return data

    def one(self, row: Any) -> tuple[int, ...]:
        """The sampled buckets, then their bits."""
        return tuple(int(part) for part in row)

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Rows of d buckets and d bits."""
        d, width = self.flip.d, bytes_for(self.flip.k)
        places = 256 ** np.arange(width, dtype=np.int64)
        sampled = payloads[:, : d * width].reshape(len(payloads), d, width) @ places
        bits = packed_bits(payloads[:, d * width :], d)
        if bits is None or (sampled >= self.flip.k).any() or (np.diff(sampled, axis=1) <= 0).any():
            raise self.malformed("its buckets are out of range or not in ascending order, or spare bits are set")
        return np.concatenate([sampled, bits], axis=1)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count who sampled each bucket, and who said 1."""
        d = self.flip.d
        sums = BitSums.of(self.flip).add_many(rows[:, :d], rows[:, d:].astype(np.bool_))
        return np.array([*sums.sampled, *sums.ones], dtype=np.int64)

    def table(
        self,
        support: IntArray,
        n: int,
        level: float,
        labels: Sequence[str],
        *,
        records: int = 1,
        repeats: int = 1,
    ) -> Estimates:
        """The share of clients in each bucket."""
        del records
        k = self.flip.k
        sums = BitSums(self.flip, n, tuple(support[:k].tolist()), tuple(support[k:].tolist()))
        return sums.estimate(level, labels=labels, repeats=repeats)
