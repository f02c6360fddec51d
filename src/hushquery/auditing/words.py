"""Chances measured exactly: where one random word decides a run, at which words the output changes.

Runs on random bits see a chance that is off by a few percent. Most client randomizers turn one word of 64 bits into one
report, and between two words at which the report changes it is the same: bisection finds all of these words, and the
distances between them are the chances themselves, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.core.registry import Mechanism
from hushquery.noise.bits import SeededBits

__all__ = ["exact_chances", "word_findings"]

# Words tried at first, evenly spread; an output with a chance of less than one in this many could be missed.
_TRIED = 2**12
# With how many runs it is seen whether one word decides.
_FEW = 16
# Only laws whose outputs are all likelier than this are measured.
_LEAST_CHANCE = 2**-8
# The law is in doubles.
_SLACK = 1e-12

UInt64Array = npt.NDArray[np.uint64]


class _GivenWords:
    """The words that are given, at the first call; it notes whether that was all anybody asked for."""

    secret = False

    def __init__(self, words: UInt64Array) -> None:
        self._words, self._then = words, SeededBits("more words")
        self._asked: list[int] = []

    def words(self, n: int) -> UInt64Array:
        """Give the words, if as many are asked for; others after that."""
        self._asked.append(n)
        return self._words if self.one_call else self._then.words(n)

    @property
    def one_call(self) -> bool:
        return self._asked == [len(self._words)]


def word_findings(mechanism: Mechanism[Any]) -> Iterator[str]:
    """Where one word decides a run, the words that lead to each output are as many as the law says."""
    if mechanism.kind != "randomizer":
        return
    for world in dict.fromkeys(world for pair in mechanism.pairs() for world in (pair.left, pair.right)):
        law = mechanism.law(world)
        if law is None or min(law.values()) < _LEAST_CHANCE:
            continue
        measured = exact_chances(mechanism, world)
        if measured is None:
            return
        for output in dict.fromkeys([*law, *measured]):
            found, stated = measured.get(output, 0.0), law.get(output, 0.0)
            if not abs(found - stated) <= _SLACK:
                yield f"world {world}: output {output} has a chance of {found:.12g}, not {stated:.12g}"


def exact_chances(mechanism: Mechanism[Any], world: Any) -> Mapping[tuple[int, ...], float] | None:
    """Give the chance of each output, measured; None where a run takes another number of words than one.

    >>> from fractions import Fraction
    >>> from hushquery.core.registry import find
    >>> made = find("binary-response").calibrate(Fraction(1), Fraction(0))
    >>> [round(chance, 6) for chance in exact_chances(made, 0).values()]
    [0.268941, 0.731059]
    """

    def outputs(words: UInt64Array) -> npt.NDArray[np.int64] | None:
        source = _GivenWords(words)
        rows = mechanism.run(world, len(words), source)
        return rows if source.one_call and len(rows) == len(words) else None

    if outputs(SeededBits("one word each").words(_FEW)) is None:
        return None
    spread = np.linspace(0, 2.0**64, _TRIED, endpoint=False).astype(np.uint64)
    words = np.append(spread, np.uint64(2**64 - 1))
    rows, again = outputs(words), outputs(words[::-1].copy())
    if rows is None or again is None or not np.array_equal(rows, again[::-1]):
        return None
    # Of each pair of neighbours with different outputs, the last word with the left one's output.
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1))
    low, high, left = words[changes], words[changes + 1], rows[changes]
    while (high - low > np.uint64(1)).any():
        middle = low + (high - low) // np.uint64(2)
        found = outputs(middle)
        if found is None:
            return None
        same = (found == left).all(axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    ends = [*(int(word) + 1 for word in low), 2**64]
    chances: dict[tuple[int, ...], float] = {}
    for begin, end, row in zip([0, *ends[:-1]], ends, [*left.tolist(), rows[-1].tolist()], strict=True):
        chances[tuple(row)] = chances.get(tuple(row), 0.0) + (end - begin) / 2**64
    return chances
