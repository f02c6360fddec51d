"""dBitFlip: a histogram from d bits of each client, memoised. Ding, Kulkarni and Yekhanin 2017, as corrected.

A client samples d of the k buckets once, whatever its value, and for each sampled bucket sends a bit that is 1 with
chance e'/(e'+1) if the bucket is its own, else 1/(e'+1). Two values change at most two bits, so e' = e^(epsilon/2);
with a single bit e' = e^epsilon. Memoised, the bits depend on which sampled bucket the value is in, or none: there are
only min(k, d + 1) different answers a device can ever give. docs/proofs/onebit.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hushquery.core.estimates import Estimates
from hushquery.core.rounding import Number, working
from hushquery.errors import DataError, UsageError
from hushquery.local.oracles.chance import ONE, chance_down, checked_cells, checked_epsilon, e_to, loss_of_ratio
from hushquery.local.server.intervals import share_interval
from hushquery.noise.sampler import Bits

__all__ = ["BitSums", "DBitFlip"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DBitFlip:
    """d bits of each client for a histogram over k buckets.

    Args:
        k: The number of buckets.
        d: How many of them each client answers for.
        keep: The chance that a bit is sent as it is, over 2^53; above one half.

    **Guarantee:** pure 2 ln(keep/(1-keep)) for one answer, replace-one; once that for d = 1 (or k = 1 sampled bucket).
    **Estimator:** h(v) = the mean over the clients that sampled v of (b - (1-keep))/(2 keep - 1); unbiased given who
    sampled. (As published, the sum of these is divided by the number nd/k that is expected to sample v: unbiased too,
    but a bucket that everybody is in then varies with who was sampled.)

    >>> flip = DBitFlip.calibrate(8, 4, "ln 9")
    >>> round(flip.keep / ONE, 6), float(flip.epsilon) <= math.log(9)
    (0.75, True)
    """

    k: int
    d: int
    keep: int

    @classmethod
    def calibrate(cls, k: int, d: int, epsilon: Number) -> DBitFlip:
        """Choose the chance for an epsilon, which is never exceeded."""
        wanted, cells = checked_epsilon(epsilon), checked_cells(k)
        if isinstance(d, bool) or not isinstance(d, int) or not 1 <= d <= cells:
            raise UsageError("a client answers for 1 to k buckets", fix="Give d, the number of bits")
        with working():
            grown = e_to(wanted / (1 if d == 1 else 2))
            keep = chance_down(grown / (grown + 1))
        while (made := cls(cells, d, keep)).epsilon > wanted:
            keep -= 1
        return made

    @property
    def epsilon(self) -> Fraction:
        """What one answer costs, from the integers, rounded up."""
        return (1 if self.d == 1 else 2) * loss_of_ratio(self.keep, ONE - self.keep)

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

    def randomize_many(self, values: npt.ArrayLike, sampled: IntArray, bits: Bits) -> BoolArray:
        """Give each client's bits for its sampled buckets."""
        cells = self._checked(values)
        truth = sampled == cells[:, None]
        words = bits.words(truth.size).reshape(truth.shape) >> np.uint64(11)
        kept = words < np.uint64(self.keep)
        answer: BoolArray = truth == kept
        return answer

    def sampled(self, secret: bytes, task: bytes) -> tuple[int, ...]:
        """Give the buckets that a device answers for, ascending: the same ones for good, whatever its value."""
        return tuple(self.sample(1, _Stream(secret, task, b"sample"))[0].tolist())

    def respond(
        self, secret: bytes, task: bytes, value: int, coins: bytes | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return one device's sampled buckets and kept bits: the same each time for the same class of values.

        ``coins`` is the key of the bits' coins, by default the secret.
        """
        cell = int(self._checked([value])[0])
        sampled = np.array(self.sampled(secret, task), dtype=np.int64)
        where = np.flatnonzero(sampled == cell)
        name = b"bits:%d" % (int(where[0]) if len(where) else -1)
        stream = _Stream(secret if coins is None else coins, task, name)
        answer = self.randomize_many([cell], sampled[None, :], stream)[0]
        return tuple(sampled.tolist()), tuple(answer.astype(int).tolist())

    def error_bound(self, n: int, beta: float = 0.05) -> float:
        """Give what the largest error of all buckets' shares exceeds with probability at most beta (as published)."""
        if n < 1 or not 0 < beta < 1:
            raise UsageError("an error bound needs n >= 1 and 0 < beta < 1")
        gap = (2 * self.keep - ONE) / ONE
        return math.sqrt(5 * self.k / (n * self.d)) / gap * math.sqrt(math.log(6 * self.k / beta))

    def _checked(self, values: npt.ArrayLike) -> IntArray:
        given = np.asarray(values)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= self.k):
            raise UsageError(f"a value is not a bucket 0..{self.k - 1}", fix="Map each value to its bucket first")
        return given.astype(np.int64)


class _Stream:
    """Random words that only the device can compute, the same each time: HMAC in counter mode."""

    secret = True

    def __init__(self, key: bytes, task: bytes, what: bytes) -> None:
        self._key = hmac.digest(key, len(task).to_bytes(4, "big") + task + what, hashlib.sha256)
        self._block = 0

    def words(self, n: int) -> npt.NDArray[np.uint64]:
        """Give n 64-bit words."""
        parts = []
        for _ in range(-(-n // 4)):
            parts.append(hmac.digest(self._key, self._block.to_bytes(8, "big"), hashlib.sha256))
            self._block += 1
        return np.frombuffer(b"".join(parts), dtype=">u8")[:n].astype(np.uint64)


@dataclass(frozen=True)
class BitSums:
    """The server's side: per bucket, how many clients sampled it and how many of their bits were 1.

    >>> flip = DBitFlip.calibrate(4, 2, 4)
    >>> from hushquery.noise.sampler import SeededBits
    >>> bits = SeededBits(1)
    >>> sampled = flip.sample(60_000, bits)
    >>> sums = BitSums.of(flip).add_many(sampled, flip.randomize_many([2] * 60_000, sampled, bits))
    >>> [abs(round(row.value, 1)) for row in sums.estimate()]
    [0.0, 0.0, 1.0, 0.0]
    """

    flip: DBitFlip
    clients: int
    sampled: tuple[int, ...]
    ones: tuple[int, ...]

    @classmethod
    def of(cls, flip: DBitFlip) -> BitSums:
        """Begin with nothing."""
        return cls(flip, 0, (0,) * flip.k, (0,) * flip.k)

    def add_many(self, sampled: IntArray, bits: BoolArray) -> BitSums:
        """Count answers; refuses what no client of this task sends."""
        d, k = self.flip.d, self.flip.k
        good = sampled.ndim == 2 and sampled.shape == bits.shape and sampled.shape[1] == d
        if not good or (sampled.size and (sampled.min() < 0 or sampled.max() >= k or (np.diff(sampled) <= 0).any())):
            raise DataError("these are no dBitFlip answers", fix="Reject them; clients of this task never send them")
        seen = np.bincount(sampled.ravel(), minlength=k)
        ones = np.bincount(sampled[bits], minlength=k)
        return BitSums(
            self.flip,
            self.clients + len(sampled),
            tuple((np.array(self.sampled) + seen).tolist()),
            tuple((np.array(self.ones) + ones).tolist()),
        )

    def merge(self, other: BitSums) -> BitSums:
        """Give the sums of both."""
        if self.flip != other.flip:
            raise UsageError("sums of different randomizers can't be merged", fix="Keep one per task configuration")
        return BitSums(
            self.flip,
            self.clients + other.clients,
            tuple(a + b for a, b in zip(self.sampled, other.sampled, strict=True)),
            tuple(a + b for a, b in zip(self.ones, other.ones, strict=True)),
        )

    def estimate(self, level: float = 0.95, *, labels: Sequence[str] | None = None, repeats: int = 1) -> Estimates:
        """Give the raw share of each bucket, unbiased given who sampled it.

        Which clients sample a bucket does not depend on their values: of those who do, the ones are binomial, and the
        interval is that of their rate, mapped. Of a bucket that nobody sampled nothing is known.

        Args:
            level: The coverage of each interval.
            labels: The buckets' names; their numbers by default.
            repeats: In how many periods a client answers.
        """
        flip = self.flip
        if self.clients < 2:
            raise DataError("a histogram needs at least two answers", fix="Wait for more")
        flipped, gap = 1 - flip.keep / ONE, (2 * flip.keep - ONE) / ONE
        ones, seen = np.array(self.ones), np.array(self.sampled)
        asked, among = seen > 0, np.maximum(seen, 1)
        values = np.where(asked, (ones / among - flipped) / gap, 0.0)
        rate = np.clip(ones / among, flipped, 1 - flipped)
        stderr = np.where(asked, np.sqrt(rate * (1 - rate) * repeats / np.maximum(seen - 1, 1)) / gap, 1.0)

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            low, high = share_interval(ones, among, wanted, flipped, gap, repeats=repeats)
            return np.where(asked, low, 0.0).tolist(), np.where(asked, high, 1.0).tolist()

        names = [str(v) for v in range(flip.k)] if labels is None else list(labels)
        return Estimates.raw(names, values.tolist(), stderr.tolist(), level=level, intervals=intervals)
