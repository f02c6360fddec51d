"""dBitFlip: a histogram from d bits of each client, memoised. Ding, Kulkarni and Yekhanin 2017, as corrected.

A client samples d of the k buckets once, whatever its value, and sends a bit for each: 1 with chance e'/(e'+1) for its
own bucket, else 1/(e'+1), where e' = e^(epsilon/2), or e^epsilon for one bit. Memoised, a device has only min(k, d + 1)
different answers. docs/proofs/onebit.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, working
from hushquery.core.estimates import Estimates
from hushquery.errors import DataError, UsageError
from hushquery.local.intervals import IntArray, largest_variance, share_interval
from hushquery.local.randomizer import (
    ONE,
    Channel,
    Device,
    chance_down,
    check_reports,
    checked_cells,
    checked_epsilon,
    e_to,
    loss_of_ratio,
)
from hushquery.local.report import bits_from, bytes_for
from hushquery.noise.sampler import Bits, below

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DBitFlip(Channel):
    """d bits of each client for a histogram over k equal ranges of 0..most; ``keep`` is over 2^53, above one half.

    A memo class is the sampled bucket of a value, or none of them.

    **Guarantee:** pure 2 ln(keep/(1-keep)) (once that for d = 1) for each class ever used, replace-one, given the
    change times of the class.
    **Estimator:** h(v) = the mean over the clients that sampled v of (b - (1-keep))/(2 keep - 1); unbiased given who
    sampled. (The published division by the expected nd/k adds the variance of who was sampled.)

    >>> flip = DBitFlip.calibrate(8, 4, "ln 9")
    >>> round(flip.keep / ONE, 6), float(flip.epsilon) <= math.log(9)
    (0.75, True)
    >>> ranges = DBitFlip.calibrate(4, 2, 1, most=9)
    >>> [ranges.bucket(x) for x in range(10)], ranges.ranges()
    ([0, 0, 0, 1, 1, 2, 2, 2, 3, 3], ['0..2', '3..4', '5..7', '8..9'])
    """

    most: int
    k: int
    d: int
    keep: int

    name: ClassVar[str] = "dbitflip"

    def __post_init__(self) -> None:
        if not self.k <= self.most + 1:
            raise UsageError("there are more buckets than numbers", fix="Use fewer buckets")

    @classmethod
    def calibrate(cls, k: int, d: int, epsilon: Number, most: int | None = None) -> DBitFlip:
        """Choose the chance for an epsilon, which is never exceeded; by default each number has its own bucket."""
        wanted, cells = checked_epsilon(epsilon), checked_cells(k)
        if isinstance(d, bool) or not isinstance(d, int) or not 1 <= d <= cells:
            raise UsageError("a client answers for 1 to k buckets", fix="Set d, the number of bits")
        with working():
            grown = e_to(wanted / (1 if d == 1 else 2))
            keep = chance_down(grown / (grown + 1))
        while (flip := cls(cells - 1 if most is None else most, cells, d, keep)).epsilon > wanted:
            keep -= 1
        return flip

    @property
    def epsilon(self) -> Fraction:
        """What one answer costs, from the integers, rounded up."""
        return (1 if self.d == 1 else 2) * loss_of_ratio(self.keep, ONE - self.keep)

    @property
    def report_bytes(self) -> int:
        """The sampled buckets, then a bit for each."""
        return self.d * bytes_for(self.k) + -(-self.d // 8)

    @property
    def length(self) -> int:
        """Per bucket how many sampled it, then per bucket how many said 1."""
        return 2 * self.k

    @property
    def note(self) -> str:
        """Classes and bytes."""
        classes = min(self.k, self.d + 1)
        return f"{self.k:,} buckets, at most {classes:,} answers per device, in {self.report_bytes:,} bytes"

    def expected_errors(self, reports: int) -> tuple[float, float]:
        """Compute the standard errors of the share of a rare bucket and of the worst one."""
        check_reports(reports)
        keep = self.keep / ONE
        rare = everybody = keep * (1 - keep) / (2 * keep - 1) ** 2  # of one client that sampled the bucket
        sampled = reports * self.d / self.k
        return math.sqrt(rare / sampled), math.sqrt(largest_variance(rare, everybody) / sampled)

    def error_bound(self, n: int, beta: float = 0.05) -> float:
        """Compute what the largest error of all shares exceeds with probability at most beta (as published)."""
        if n < 1 or not 0 < beta < 1:
            raise UsageError("an error bound needs n >= 1 and 0 < beta < 1")
        gap = (2 * self.keep - ONE) / ONE
        return math.sqrt(5 * self.k / (n * self.d)) / gap * math.sqrt(math.log(6 * self.k / beta))

    def bucket(self, value: int) -> int:
        """Compute the bucket of a number: floor(value k / (most + 1))."""
        return value * self.k // (self.most + 1)

    def ranges(self) -> list[str]:
        """Name the buckets by the numbers in them."""
        ends = [-(-bucket * (self.most + 1) // self.k) for bucket in range(self.k + 1)]
        return [str(a) if a == b - 1 else f"{a}..{b - 1}" for a, b in pairwise(ends)]

    def sample(self, n: int, bits: Bits) -> IntArray:
        """Choose d distinct buckets for each of n clients, ascending; independent of their values."""
        # Uniform ranks of distinct words: the d smallest of k random words name a uniform subset.
        chosen = np.empty((n, self.d), dtype=np.int64)
        block = max(1, 2**22 // self.k)
        for start in range(0, n, block):
            size = min(block, n - start)
            words = bits.words(size * self.k).reshape(size, self.k)
            chosen[start : start + size] = np.argpartition(words, self.d - 1, axis=1)[:, : self.d]
        return np.sort(chosen, axis=1)

    def randomize_many(self, buckets: npt.ArrayLike, sampled: IntArray, bits: Bits) -> BoolArray:
        """Draw each client's bits for its sampled buckets, from the bucket it is in."""
        truth = sampled == self._checked(buckets)[:, None]
        words = bits.words(truth.size).reshape(truth.shape) >> np.uint64(11)
        answer: BoolArray = truth == (words < np.uint64(self.keep))
        return answer

    def sampled(self, device: Device) -> tuple[int, ...]:
        """Return the buckets that a device answers for, ascending: the same ones for good, whatever its value."""
        return tuple(self.sample(1, _Stream(device.secret, device.task, b"sample"))[0].tolist())

    def respond(self, bucket: int, device: Device) -> tuple[int, ...]:
        """Return a device's sampled buckets and kept bits: the same each time for the same class of values."""
        cell = int(self._checked([bucket])[0])
        sampled = np.array(self.sampled(device), dtype=np.int64)
        where = np.flatnonzero(sampled == cell)
        name = b"bits:%d" % (int(where[0]) if len(where) else -1)
        kept = self.randomize_many([cell], sampled[None, :], _Stream(device.coins, device.task, name))[0]
        return *sampled.tolist(), *kept.astype(int).tolist()

    def memo_class(self, value: int, device: Device) -> int:
        """Which of the sampled buckets it is, from 0; d for none of them."""
        sampled, bucket = self.sampled(device), self.bucket(value)
        return sampled.index(bucket) if bucket in sampled else self.d

    def answer(self, value: int, device: Device, bits: Bits) -> bytes:
        """The bits that the secret gives to the class."""
        del bits
        return self.pack(self.respond(self.bucket(value), device))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """The same buckets, answered with fresh coins for a bucket drawn evenly: it counts as spread evenly."""
        sampled = self.sampled(device)
        fresh = self.randomize_many(below(bits, self.k, 1), np.array([sampled], dtype=np.int64), bits)[0]
        return self.pack((*sampled, *(int(bit) for bit in fresh)))

    def _checked(self, buckets: npt.ArrayLike) -> IntArray:
        given = np.asarray(buckets)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= self.k):
            raise UsageError(f"a value is not a bucket 0..{self.k - 1}", fix="Map each value to its bucket first")
        return given.astype(np.int64)

    def encode(self, answer: tuple[int, ...]) -> bytes:
        """The sampled buckets ascending, each little-endian; then their bits in the same order."""
        sampled, bits = answer[: self.d], answer[self.d :]
        data = b"".join(bucket.to_bytes(bytes_for(self.k), "little") for bucket in sampled)
        return data + np.packbits(np.array(bits, dtype=np.uint8), bitorder="little").tobytes()

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Rows of d buckets and d bits."""
        width = bytes_for(self.k)
        places = 256 ** np.arange(width, dtype=np.int64)
        sampled = payloads[:, : self.d * width].reshape(len(payloads), self.d, width) @ places
        bits = bits_from(payloads[:, self.d * width :], self.d)
        if bits is None or (sampled >= self.k).any() or (np.diff(sampled, axis=1) <= 0).any():
            raise self.malformed("its buckets are out of range or not in ascending order, or spare bits are set")
        return np.concatenate([sampled, bits], axis=1)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count who sampled each bucket, and who said 1."""
        sampled, bits = rows[:, : self.d], rows[:, self.d :].astype(np.bool_)
        counts = [np.bincount(named.ravel(), minlength=self.k) for named in (sampled, sampled[bits])]
        return np.concatenate(counts).astype(np.int64)

    def adds_up(self, support: IntArray, n: int) -> bool:
        """Each report samples d buckets, and says 1 for sampled ones only."""
        seen, ones = support[: self.k], support[self.k :]
        return super().adds_up(support, n) and int(seen.sum()) == n * self.d and bool((ones <= seen).all())

    def table(
        self, support: IntArray, n: int, level: float, labels: Sequence[str], *, records: int = 1, repeats: int = 1
    ) -> Estimates:
        """Estimate the raw share of each bucket from the clients that sampled it; unknown where nobody did."""
        del records
        if n < 2:
            raise DataError("a histogram needs at least two answers", fix="Wait for more")
        flipped, gap = 1 - self.keep / ONE, (2 * self.keep - ONE) / ONE
        seen, ones = support[: self.k], support[self.k :]
        known, among = seen > 0, np.maximum(seen, 1)
        values = np.where(known, (ones / among - flipped) / gap, 0.0)
        rate = np.clip(ones / among, flipped, 1 - flipped)
        stderr = np.where(known, np.sqrt(rate * (1 - rate) * repeats / np.maximum(seen - 1, 1)) / gap, 1.0)

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            low, high = share_interval(ones, among, wanted, flipped, gap, repeats=repeats)
            return np.where(known, low, 0.0).tolist(), np.where(known, high, 1.0).tolist()

        return Estimates.raw(labels, values.tolist(), stderr.tolist(), level=level, intervals=intervals)

    def estimate(self, sampled: IntArray, bits: BoolArray, level: float = 0.95) -> Estimates:
        """Estimate the histogram from the answers of :meth:`randomize_many`.

        >>> from hushquery.noise.sampler import SeededBits
        >>> flip, bits = DBitFlip.calibrate(4, 2, 4), SeededBits(1)
        >>> sampled = flip.sample(60_000, bits)
        >>> table = flip.estimate(sampled, flip.randomize_many([2] * 60_000, sampled, bits))
        >>> [abs(round(row.value, 1)) for row in table]
        [0.0, 0.0, 1.0, 0.0]
        """
        support = self.support(np.concatenate([sampled, bits], axis=1))
        return self.table(support, len(sampled), level, self.ranges())


class _Stream:
    """Random words that only the device can compute, the same each time: HMAC in counter mode."""

    secret = True

    def __init__(self, key: bytes, task: bytes, what: bytes) -> None:
        self._key = hmac.digest(key, len(task).to_bytes(4, "big") + task + what, hashlib.sha256)
        self._block = 0

    def words(self, n: int) -> npt.NDArray[np.uint64]:
        """Return the next n 64-bit words."""
        parts = []
        for _ in range(-(-n // 4)):
            parts.append(hmac.digest(self._key, self._block.to_bytes(8, "big"), hashlib.sha256))
            self._block += 1
        return np.frombuffer(b"".join(parts), dtype=">u8")[:n].astype(np.uint64)
