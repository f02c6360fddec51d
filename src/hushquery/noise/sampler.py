"""Random bits, and exact draws from a law by comparing them with its CDF.

Bits come from the operating system in production, from a seed in tests and audits, and from a secret key where repeated
work must have the same result. A draw compares 64 binary digits of a uniform real with a certified table of the CDF,
and more digits where these don't decide. So the law drawn is the law stated, with nothing to charge to delta and no end
to its tails (docs/proofs/sampler.md).

Both table and words are uint64: NumPy would promote a mix with int64 to float64 and lose the low bits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.noise.law import Law

__all__ = ["Bits", "IntArray", "KeyedBits", "Sampler", "SeededBits", "SystemBits"]
__all__ += ["add_noise", "below", "one_word", "sampler"]

#: Whole numbers, as all counts and all noise are.
IntArray = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_WORD = 64
_LARGEST_WORD = (1 << _WORD) - 1

# A law wider than _MOST_ENTRIES gets a coarse table of about _COARSE_ENTRIES; its draws then finish by bisection.
_MOST_ENTRIES = 2**17
_COARSE_ENTRIES = 2**12


class Bits(Protocol):
    """A source of independent, uniformly random 64-bit words."""

    @property
    def secret(self) -> bool:
        """Whether nobody can predict the words; a guarantee made from other bits is marked as void."""
        ...

    def words(self, n: int) -> UInt64Array:
        """Return ``n`` fresh words."""
        ...


class SystemBits:
    """The operating system's generator: what every production draw uses."""

    secret = True

    def words(self, n: int) -> UInt64Array:
        """Return ``n`` fresh words from ``os.urandom``."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


class _Stream:
    """Words determined by a seed: SHAKE-256 of it and of the number of the block."""

    _BLOCK = 1 << 16

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._block = 0
        self._rest: UInt64Array = np.empty(0, dtype=np.uint64)

    def words(self, n: int) -> UInt64Array:
        """Return the next ``n`` words of the stream; the stream does not depend on how it is cut into calls."""
        parts = [self._rest]
        have = len(self._rest)
        while have < n:
            digest = hashlib.shake_256(self._seed + self._block.to_bytes(8, "little")).digest(8 * self._BLOCK)
            parts.append(np.frombuffer(digest, dtype="<u8").astype(np.uint64))
            have += self._BLOCK
            self._block += 1
        stream = np.concatenate(parts)
        self._rest = stream[n:]
        return stream[:n]


class SeededBits(_Stream):
    """Repeatable bits for tests and audits: SHAKE-256 of a seed. Results made from them are not private."""

    secret = False

    def __init__(self, seed: int | str) -> None:
        super().__init__(f"hushquery test bits {seed}".encode())


class KeyedBits(_Stream):
    """Secret bits that can be drawn again: SHAKE-256 of a key of 32 bytes, for work that a crash interrupts.
    Anyone who learns the key can subtract the noise. So a key is drawn for one result, from what only the holder of the
    data has, and destroyed with the data.
    """

    secret = True

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise UsageError("the key of secret bits must have 32 bytes", fix="Draw one with os.urandom(32)")
        super().__init__(b"hushquery secret bits " + key)
        #: Identifies the bits and reveals nothing about them.
        self.name = hashlib.sha256(b"hushquery name of secret bits " + key).hexdigest()[:32]


def one_word(bits: Bits) -> int:
    """Return one word as a Python integer."""
    return int(bits.words(1)[0])


def below(bits: Bits, limit: int, n: int) -> npt.NDArray[np.int64]:
    """Return ``n`` integers uniform on 0..limit-1, without modulo bias."""
    if not 1 <= limit <= 2**63:
        raise UsageError("a uniform draw needs a limit from 1 to 2^63")
    # Accept words below the largest multiple of limit; each residue is then equally likely.
    ceiling = (2**64 // limit) * limit - 1
    out = np.empty(n, dtype=np.int64)
    filled = 0
    while filled < n:
        words = bits.words(n - filled + 8)
        good = words[words <= np.uint64(ceiling)][: n - filled] % np.uint64(limit)
        out[filled : filled + len(good)] = good.astype(np.int64)
        filled += len(good)
    return out


class _LazyUniform:
    """A uniform real in [0, 1), known to as many binary digits as have been asked for."""

    def __init__(self, word: int, bits: Bits) -> None:
        self._value, self._digits, self._bits = word, _WORD, bits

    def is_below(self, law: Law, z: int) -> bool:
        """Whether u < F(z), drawing more digits until that is certain."""
        while True:
            threshold, exact = law.cdf_floor(z, self._digits)
            if self._value != threshold:
                return self._value < threshold
            if exact:
                return False
            self._value = (self._value << _WORD) | one_word(self._bits)
            self._digits += _WORD


class Sampler:
    """Exact draws from one law. Build it once through :func:`sampler`, which caches.

    >>> from fractions import Fraction
    >>> from hushquery.noise.law import DiscreteLaplace
    >>> sampler(DiscreteLaplace(Fraction(2))).draw(5, SeededBits(1)).tolist()
    [1, 4, 3, 0, -1]
    """

    def __init__(self, law: Law, *, most_entries: int = _MOST_ENTRIES) -> None:
        self.law = law
        first, last = _table_range(law)
        width = last - first + 1
        self._stride = 1 if width <= most_entries else -(-width // min(most_entries, _COARSE_ENTRIES))
        points = range(first, last + self._stride, self._stride)
        self._first = first
        # A threshold of 2^64 (F = 1) can't be reached by any word, so it is left out together with all after it.
        self._table = np.array([t for t in law.cdf_floors(points, _WORD) if t <= _LARGEST_WORD], dtype=np.uint64)

    def draw(self, n: int, bits: Bits) -> IntArray:
        """Draw ``n`` independent values."""
        if n < 0:
            raise UsageError("can't draw a negative number of values")
        return self._values(bits.words(n), bits)

    def draw_at_least(self, least: int, n: int, bits: Bits) -> IntArray:
        """Draw ``n`` independent values given that each is at least ``least``, which must be above the median.

        Only words are drawn that may belong to such a value; the first of them is thrown away where it does not.
        """
        floor, _ = self.law.cdf_floor(least - 1, _WORD)
        out = np.empty(n, dtype=np.int64)
        filled = 0
        while filled < n:
            words = np.uint64(floor) + below(bits, 2**_WORD - floor, n - filled).astype(np.uint64)
            values = self._values(words, bits)
            values = values[values >= least]
            out[filled : filled + len(values)] = values
            filled += len(values)
        return out

    def _values(self, words: UInt64Array, bits: Bits) -> IntArray:
        n = len(words)
        index = np.searchsorted(self._table, words, side="right")
        if len(self._table):
            undecided = (index > 0) & (self._table[np.maximum(index, 1) - 1] == words)
        else:
            undecided = np.zeros(n, dtype=np.bool_)
        values = self._first + index.astype(np.int64) * self._stride
        for i in np.flatnonzero(undecided if self._stride == 1 else np.ones(n, dtype=np.bool_)):
            values[i] = self._decide(int(words[i]), int(index[i]), bits)
        return values

    def draw_one(self, bits: Bits) -> int:
        """Draw one value."""
        return int(self.draw(1, bits)[0])

    def _decide(self, word: int, index: int, bits: Bits) -> int:
        """Find the first z with u < F(z), starting from what 64 digits already say."""
        u = _LazyUniform(word, bits)
        high, step = self._first + index * self._stride, 1
        while not u.is_below(self.law, high):
            high, step = high + step, step * 2
        low, step = self._first + (index - 2) * self._stride, 1
        while u.is_below(self.law, low):
            low, step = low - step, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if u.is_below(self.law, middle) else (middle, high)
        return high


@lru_cache(maxsize=512)
def sampler(law: Law) -> Sampler:
    """Return the sampler of a law, built once per process."""
    return Sampler(law)


def add_noise(values: IntArray, law: Law, bits: Bits) -> IntArray:
    """Add a fresh draw of a law to each of some whole numbers: the one way in which a curator's noise is added."""
    return np.asarray(values, dtype=np.int64) + sampler(law).draw(len(values), bits)


def _table_range(law: Law) -> tuple[int, int]:
    """Find the first and last value whose threshold is neither 0 nor 2^64 - 1, and one more where there is no end."""
    centre, spread = law.centre()
    step = max(1, int(spread))
    first = _boundary(centre, -step, lambda z: law.cdf_floor(z, _WORD)[0] == 0)
    last = _boundary(centre, step, lambda z: law.cdf_floor(z, _WORD)[0] >= _LARGEST_WORD)
    return (
        first if law.lowest is None else max(first, law.lowest),
        last if law.highest is None else min(last, law.highest),
    )


def _boundary(start: int, step: int, outside: Callable[[int], bool]) -> int:
    """Walk from ``start`` in the direction of ``step`` to the nearest value outside, by doubling and bisection."""
    inside, direction = start, 1 if step > 0 else -1
    if outside(start):
        return start
    reach = start + step
    while not outside(reach):
        inside, step = reach, step * 2
        reach = inside + step
    while abs(reach - inside) > 1:
        middle = inside + direction * (abs(reach - inside) // 2)
        inside, reach = (inside, middle) if outside(middle) else (middle, reach)
    return reach
