"""Where random bits come from: the operating system in production, a seed in tests and audits.

Work that has to come out the same when a crash makes somebody repeat it draws from a secret key instead.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError

__all__ = ["Bits", "KeyedBits", "SeededBits", "SystemBits", "below", "one_word"]

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


class _Stream:
    """Words that a text of bytes determines: SHAKE-256 of it and of the number of the block."""

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
    """Repeatable bits for tests and audits: SHAKE-256 of a seed. Results made from them are not private.

    >>> int(SeededBits(7).words(1)[0]) == int(SeededBits(7).words(1)[0])
    True
    """

    secret = False

    def __init__(self, seed: int | str) -> None:
        super().__init__(f"hushquery test bits {seed}".encode())


class KeyedBits(_Stream):
    """Secret bits that can be drawn again: SHAKE-256 of a key of 32 bytes, for work that a crash interrupts.

    As good as the key is secret: whoever learns it can take the noise off again. So a key is drawn for one result,
    from what only the holder of the data has, and destroyed with the data.

    >>> key = b"a secret of thirty-two bytes ..."
    >>> int(KeyedBits(key).words(1)[0]) == int(KeyedBits(key).words(1)[0]), KeyedBits(key).secret
    (True, True)
    """

    secret = True

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise UsageError("the key of secret bits must have 32 bytes", fix="Draw one with os.urandom(32)")
        super().__init__(b"hushquery secret bits " + key)
        #: Names the bits, and tells nothing of them: other bits have another name.
        self.name = hashlib.sha256(b"hushquery name of secret bits " + key).hexdigest()[:32]


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
