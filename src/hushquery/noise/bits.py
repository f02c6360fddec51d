"""Where random bits come from: the operating system in production, a seed in tests and audits."""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError

__all__ = ["Bits", "SeededBits", "SystemBits", "below", "one_word"]

UInt64Array = npt.NDArray[np.uint64]


class Bits(Protocol):
    """A source of independent, uniformly random 64-bit words."""

    @property
    def secret(self) -> bool:
        """Whether nobody can predict the words; a guarantee made from other bits is marked as void."""
        ...

    def words(self, n: int) -> UInt64Array:
        """Give ``n`` fresh words."""
        ...


class SystemBits:
    """The operating system's generator: what every production draw uses.

    >>> SystemBits().words(2).dtype, SystemBits().secret
    (dtype('uint64'), True)
    """

    secret = True

    def words(self, n: int) -> UInt64Array:
        """Give ``n`` fresh words from ``os.urandom``."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


class SeededBits:
    """Repeatable bits for tests and audits: SHAKE-256 of a seed. Results made from them are not private.

    >>> int(SeededBits(7).words(1)[0]) == int(SeededBits(7).words(1)[0])
    True
    """

    secret = False
    _BLOCK = 1 << 16

    def __init__(self, seed: int | str) -> None:
        self._seed = f"hushquery test bits {seed}".encode()
        self._block = 0
        self._rest: UInt64Array = np.empty(0, dtype=np.uint64)

    def words(self, n: int) -> UInt64Array:
        """Give the next ``n`` words of the stream; the stream does not depend on how it is cut into calls."""
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


def one_word(bits: Bits) -> int:
    """Give one word as a Python integer."""
    return int(bits.words(1)[0])


def below(bits: Bits, limit: int, n: int) -> npt.NDArray[np.int64]:
    """Give ``n`` integers uniform on 0..limit-1, without modulo bias.

    >>> sorted(set(below(SeededBits(1), 3, 100).tolist()))
    [0, 1, 2]
    """
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
