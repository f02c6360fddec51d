"""Which queries hold the words of a text: exactly, begun, or with typing mistakes; none that holds one is missed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hushquery.publish.match import ALL, BEGUN, MISTAKEN, SOME, SOME_MISTAKEN, Matcher, Typed
from hushquery.publish.text import grams, tokens

__all__ = ["GramIndex", "WordIndex", "largest"]

# Of words that look like a typed one, so many are compared with it letter by letter.
_LOOKALIKES = 300

_Places = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.float64]


class GramIndex:
    """Texts by their character n-grams."""

    def __init__(self, keys: Sequence[str]) -> None:
        code, self._owners = grams(keys)
        self._grams, self._starts = np.unique(code, return_index=True)
        self._ends = np.append(self._starts[1:], len(code))
        self._sizes = np.bincount(self._owners, minlength=len(keys))

    def sharing(self, key: str) -> tuple[_Places, _Numbers, _Numbers]:
        """Give the texts that share grams with a key, the share of the key's grams, and how alike the two are."""
        wanted = np.unique(grams([key])[0])
        places = np.searchsorted(self._grams, wanted)
        places = places[places < len(self._grams)]
        places = places[np.isin(self._grams[places], wanted)]
        if not len(places):
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        owners = np.concatenate([self._owners[self._starts[p] : self._ends[p]] for p in places])
        shared = np.bincount(owners, minlength=len(self._sizes))
        near = np.flatnonzero(shared)
        return near, shared[near] / len(wanted), shared[near] / (len(wanted) + self._sizes[near])


class WordIndex:
    """Queries by their words."""

    def __init__(self, keys: Sequence[str]) -> None:
        holders: dict[str, list[int]] = {}
        for index, key in enumerate(keys):
            for word in dict.fromkeys(tokens(key)):
                holders.setdefault(word, []).append(index)
        self.frequency = Counter({word: len(places) for word, places in holders.items()})
        self._words = sorted(holders)
        self._starts = np.cumsum([0, *(len(holders[word]) for word in self._words)])
        self._owners = np.array([place for word in self._words for place in holders[word]], dtype=np.int64)
        self._lengths = np.array([len(word) for word in self._words], dtype=np.float64)
        self._lookalikes = GramIndex(self._words)
        self._queries = len(keys)

    def holders(self, typed: Typed, matcher: Matcher) -> tuple[_Places, _Numbers]:
        """Give the queries that hold a word of a text, and about how good a match each is: kind + share of the text."""
        found, exact, begun, share = (np.zeros(self._queries) for _ in range(4))
        for word in typed.words:
            value = self._value(word, typed)
            found += value > 0
            exact += value == 1
            if word == typed.unfinished:
                begun += (value > 0) & (value < 1) & self._begun(word)
            share += value * matcher.weight(word)
        total = sum(map(matcher.weight, typed.words))
        some = np.where(exact > 0, SOME, SOME_MISTAKEN)
        whole = np.where(exact == found, ALL, np.where(exact + begun == found, BEGUN, MISTAKEN))
        kind = np.where(found == len(typed.words), whole, some)
        # Of several words, the beginning of the last one alone says nothing.
        kept = (found > 0) & ((len(typed.words) == 1) | (found > 1) | (begun == 0))
        rows = np.flatnonzero(kept)
        return rows, kind[rows] + 0.9 * share[rows] / max(total, 1e-9)

    def _value(self, word: str, typed: Typed) -> _Numbers:
        """Give for every query how much of the word it has, as :meth:`Typed.nearness` says."""
        value = np.zeros(self._queries)
        near, _, alike = self._lookalikes.sharing(word)
        for place in near[largest(alike, _LOOKALIKES)]:
            much = typed.nearness(word, self._words[place])
            if much:
                owners = self._of(place, place + 1)
                value[owners] = np.maximum(value[owners], much)
        if word == typed.unfinished:
            first, last = self._beginning(word)
            much_each = 0.5 + 0.5 * len(word) / self._lengths[first:last]
            np.maximum.at(value, self._of(first, last), np.repeat(much_each, np.diff(self._starts[first : last + 1])))
        place = bisect_left(self._words, word)
        if place < len(self._words) and self._words[place] == word:
            value[self._of(place, place + 1)] = 1
        return value

    def _begun(self, word: str) -> npt.NDArray[np.bool_]:
        held = np.zeros(self._queries, dtype=bool)
        held[self._of(*self._beginning(word))] = True
        return held

    def _beginning(self, word: str) -> tuple[int, int]:
        return bisect_left(self._words, word), bisect_left(self._words, word + "\U0010ffff")

    def _of(self, first: int, last: int) -> _Places:
        return self._owners[self._starts[first] : self._starts[last]]


def largest(values: _Numbers, count: int) -> _Places:
    """Give the places of the largest values, in no order."""
    if len(values) <= count:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - count)[len(values) - count :]
