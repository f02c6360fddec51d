"""Which hash is which word? By how many people use each word, in which place of a query, and beside which others.

This is the statistical attack of Kumar, Novak, Pang and Tomkins (2007) on token-based hashing: two logs of one language
look alike, whatever the words are called. Matches are made one at a time, the surest first; each match makes the
following ones surer, because words that stand beside a known word are told apart by how often they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

_PLACES = 4  # alone, first, second, third and later


@dataclass(frozen=True)
class Habits:
    """How the most frequent words of a log are used; people are counted, not searches.

    Attributes:
        words: The words, the most frequent first.
        places: How many people use each in each place of a query.
        beside: How many people use the word of a row right before the word of a column.
        total: How many different searches people have, in all.
    """

    words: list[str]
    places: Any
    beside: Any
    total: int


def habits(log: Mapping[Any, Iterable[str]], size: int) -> Habits:
    """Count how the ``size`` most frequent words of a log are used."""
    searches = [query.split() for queries in log.values() for query in set(queries)]
    words = [word for word, _ in Counter(word for search in searches for word in search).most_common(size)]
    number = {word: i for i, word in enumerate(words)}
    places, beside = np.zeros((len(words), _PLACES)), np.zeros((len(words), len(words)))
    for search in searches:
        known = [number.get(word, -1) for word in search]
        for i, word in enumerate(known):
            if word >= 0:
                places[word, 0 if len(search) == 1 else min(i + 1, _PLACES - 1)] += 1
        for first, second in pairwise(known):
            if first >= 0 and second >= 0:
                beside[first, second] += 1
    return Habits(words, places, beside, len(searches))


def match(unknown: Habits, known: Habits) -> dict[str, str]:
    """Give each hash of one log a word of the other."""
    share = unknown.total / (unknown.total + known.total)
    size = len(unknown.words)
    start = sum(_unlike(unknown.places[:, p], known.places[:, p], share) for p in range(_PLACES))
    unlike, found = start.copy(), np.full(size, -1)
    for _ in range(size):
        rows, columns = np.flatnonzero(found < 0), np.setdiff1d(np.arange(size), found)
        row, column = _surest(unlike[np.ix_(rows, columns)])
        i, j = int(rows[row]), int(columns[column])
        found[i] = j
        unlike += _beside(unknown, known, i, j, share)
    for _ in range(3):  # all at once, each given all the others
        unlike = start + sum(_beside(unknown, known, i, int(j), share) for i, j in enumerate(found))
        found = linear_sum_assignment(unlike)[1]
    return {unknown.words[i]: known.words[int(j)] for i, j in enumerate(found)}


def _unlike(left: Any, right: Any, share: float) -> Any:
    """How badly counts of two logs fit one rate: the log-likelihood ratio of the two, for each pair."""
    x, y = left[:, None], right[None, :]
    return xlogy(x, x) + xlogy(y, y) - xlogy(x + y, x + y) - xlogy(x, share) - xlogy(y, 1 - share)


def _beside(unknown: Habits, known: Habits, i: int, j: int, share: float) -> Any:
    """What it says about all others that hash ``i`` is word ``j``."""
    before = _unlike(unknown.beside[:, i], known.beside[:, j], share)
    return before + _unlike(unknown.beside[i], known.beside[j], share)


def _surest(unlike: Any) -> tuple[int, int]:
    """Of pairs that are each other's best, take the one whose second best is furthest behind."""
    if len(unlike) == 1:
        return 0, 0
    best = unlike.argmin(1)
    two, of_word = np.partition(unlike, 1, axis=1), np.partition(unlike, 1, axis=0)
    lead = np.minimum(two[:, 1] - two[:, 0], of_word[1][best] - of_word[0][best])
    mutual = unlike.argmin(0)[best] == np.arange(len(unlike))
    row = int(np.where(mutual, lead, -1.0).argmax())
    return row, int(best[row])
