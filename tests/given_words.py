"""Random words that are given: what runs on integers is held to those integers, word by word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

TOP = 2**64 - 1


class Given:
    """Bits that give exactly these words; asking for more is an error, and :attr:`left` says what nobody asked for."""

    secret = False

    def __init__(self, words: Iterable[int]) -> None:
        self._left = list(words)

    @property
    def left(self) -> int:
        """How many words are left."""
        return len(self._left)

    def words(self, n: int) -> npt.NDArray[np.uint64]:
        """Give the next words."""
        if n > len(self._left):
            raise AssertionError(f"{n} words were asked for and {len(self._left)} are left")
        taken, self._left = self._left[:n], self._left[n:]
        return np.array(taken, dtype=np.uint64)


def word_of(fraction: int, below: int = 0) -> int:
    """Give a word whose upper 53 bits are a fraction over 2^53, and whose other 11 bits decide nothing."""
    return (fraction << 11) | below


def around(thresholds: Sequence[int], most: int = 2**53 - 1) -> list[int]:
    """List the integers just below and just at every threshold, and both ends.

    >>> around([5], 9)
    [0, 4, 5, 9]
    """
    near = {place for threshold in thresholds for place in (threshold - 1, threshold)}
    return sorted({place for place in near if 0 <= place <= most} | {0, most})
