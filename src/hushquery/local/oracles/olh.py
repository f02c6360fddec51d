"""Optimised local hashing: hash the cell into few buckets, then randomised response over the buckets.

Cell x under the seed a * P + b hashes to h = (a x + b) mod P with P = 2^31 - 1, and its bucket is floor(h g / P).
Hashes of two cells are exactly independent and uniform over the seeds, so the estimate is exactly unbiased; a mixing
hash would only be nearly so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, working
from hushquery.errors import UsageError
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.krr import Response, lie_chance, respond
from hushquery.local.randomizer import ONE, Answer, checked_cells, checked_epsilon, e_to
from hushquery.local.report import bytes_for, numbers_from
from hushquery.noise.sampler import Bits, below

__all__ = ["MOST_BUCKETS", "OLH", "PRIME"]

#: The modulus of the hash.
PRIME = 2**31 - 1

#: More buckets than this are never used; by then epsilon is so large that k-RR is better anyway.
MOST_BUCKETS = 2**16

# Reports are counted in blocks that stay in the processor's cache.
_BLOCK = 1 << 13


@dataclass(frozen=True)
class OLH(Response):
    """Optimised local hashing (Wang, Blocki, Li and Jha 2017): g = round(e^epsilon) + 1 buckets.

    A report is (seed, bucket); the seed is public and uniform, so all of epsilon is in the bucket. ``lie`` is the
    chance of each other bucket, over 2^53; ``prime`` is below :data:`PRIME` only to enumerate the law.

    >>> oracle = OLH.calibrate(5001, 1)
    >>> oracle.g, round(oracle.variance(), 2), oracle.report_bytes, oracle.bucket(5 * PRIME + 7, 12)
    (4, 3.69, 9, 0)
    """

    k: int
    g: int
    lie: int
    prime: int = PRIME

    name: ClassVar[str] = "olh"

    @classmethod
    def calibrate(cls, k: int, epsilon: Number, g: int | None = None, prime: int = PRIME) -> OLH:
        """Choose the number of buckets and the chance of each other bucket, rounded up."""
        wanted = checked_epsilon(epsilon)
        with working():
            best = int(mpmath.nint(e_to(wanted))) + 1
        buckets = min(best, MOST_BUCKETS) if g is None else g
        if not 2 <= buckets <= MOST_BUCKETS:
            raise UsageError(f"local hashing needs 2 to {MOST_BUCKETS:,} buckets", fix="Leave g out")
        if checked_cells(k) > prime:
            raise UsageError("the modulus of the hash must not be below the number of cells", fix="Leave prime out")
        return cls(int(k), buckets, lie_chance(buckets, wanted), prime)

    @property
    def answers(self) -> int:
        """The buckets."""
        return self.g

    @property
    def q(self) -> Fraction:
        """The chance of another given cell's bucket: that of the same bucket by chance, or of a lie."""
        full, wide = divmod(self.prime, self.g)
        # `wide` buckets hold full + 1 hashes, the others full.
        same = Fraction(wide * (full + 1) ** 2 + (self.g - wide) * full**2, self.prime**2)
        return same * self.p + (1 - same) * Fraction(self.lie, ONE)

    @property
    def report_bytes(self) -> int:
        """The seed and the bucket."""
        return bytes_for(self.prime**2) + bytes_for(self.g)

    def bucket(self, seed: int, cell: int) -> int:
        """Compute the bucket of a cell under a seed."""
        a, b = divmod(seed, self.prime)
        return ((a * cell + b) % self.prime) * self.g // self.prime

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        """Draw (seed, bucket) for each value."""
        cells = self.checked_values(values)
        seeds = below(bits, self.prime**2, len(cells))
        a, b = np.divmod(seeds, self.prime)
        hashes = (a * cells + b) % self.prime  # below 2^31 * 2^24 + 2^31
        buckets = hashes * self.g // self.prime
        return np.stack([seeds, respond(buckets, self.g, self.lie, bits)], axis=1)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count, for each cell, the reports whose seed puts it into their bucket.

        The hash of the next cell is the last one plus a. Hashes are kept relative to the start of the reported bucket.
        """
        rows = self.checked_columns(rows, self.prime**2, self.g)
        out = np.zeros(self.k, dtype=np.int64)
        modulus = np.uint32(self.prime)
        for start in range(0, len(rows), _BLOCK):
            seeds, buckets = rows[start : start + _BLOCK].T
            first = -(-buckets * self.prime // self.g)
            width = (-(-(buckets + 1) * self.prime // self.g) - first).astype(np.uint32)
            slope, begin = np.divmod(seeds, self.prime)
            step = slope.astype(np.uint32)
            place = ((begin - first) % self.prime).astype(np.uint32)
            less, inside = np.empty_like(place), np.empty(len(place), dtype=np.bool_)
            for cell in range(self.k):
                np.less(place, width, out=inside)
                out[cell] += np.count_nonzero(inside)
                np.add(place, step, out=place)  # below 2^32
                np.subtract(place, modulus, out=less)  # wraps to above place when place < P
                np.minimum(place, less, out=place)
        return out

    def law(self, value: int) -> Mapping[Answer, float]:
        """Every seed, with randomised response over the buckets."""
        self.check_listable(self.prime**2 * self.g)
        each = 1 / self.prime**2
        return {
            (seed, bucket): each * (self.truth if bucket == self.bucket(seed, value) else self.lie) / ONE
            for seed in range(self.prime**2)
            for bucket in range(self.g)
        }

    def encode(self, answer: tuple[int, int]) -> bytes:
        """The seed, then the bucket, each little-endian."""
        seed, bucket = answer
        return seed.to_bytes(bytes_for(self.prime**2), "little") + bucket.to_bytes(bytes_for(self.g), "little")

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> IntArray:
        """Read seeds and buckets."""
        cut = bytes_for(self.prime**2)
        rows = np.stack([numbers_from(payloads[:, :cut]), numbers_from(payloads[:, cut:])], axis=1)
        return self.checked_columns(rows, self.prime**2, self.g)
