"""Match a typed text with released queries and rate it; :mod:`hushquery.publish.search` defines the numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from hushquery.publish.text import allowed_edits, edits, grams, key_of, tokens

#: The kinds of a match, the best first: the same text; all words; all, the last one unfinished; all (or the text as a
#: whole) with typing mistakes; some of the words; some with typing mistakes. 0 is no match.
SAME, ALL, BEGUN, MISTAKEN, SOME, SOME_MISTAKEN = 6, 5, 4, 3, 2, 1

_WHICH = {
    ALL: "has the word",
    BEGUN: "has the word",
    MISTAKEN: "has the near word",
    SOME: "has some of the words",
    SOME_MISTAKEN: "has some near words",
}
# The best quality of a query that is the text with mistakes, or has its words.
_NEAR = 0.8
# More words than anybody types add nothing but time.
_MOST_WORDS = 24
# A shorter word inside another one is another word (rain, train), not the same with a letter missing.
_LEAST_PIECE = 6
# Of words that look like a typed one, so many are compared with it letter by letter.
_LOOKALIKES = 300

_Places = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Match:
    """How a query matches a text: its kind, how much of the text it has (0 to 1), its quality, and why."""

    kind: int
    share: float
    quality: float
    why: str


class Typed:
    """A typed, folded text, with what is needed to compare it with many queries."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.edits = allowed_edits(text)
        self._nearness: dict[tuple[str, str], float] = {}

    @cached_property
    def key(self) -> str:
        """Its words, with single blanks between."""
        return key_of(self.text)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its distinct words, in order."""
        return tuple(dict.fromkeys(tokens(self.key)))[:_MOST_WORDS]

    @cached_property
    def unfinished(self) -> str:
        """The word at the end, which may be the beginning of a longer one."""
        last = self.words[-1] if self.words else ""
        return last if self.text.endswith(last) else ""

    def begins(self, word: str, other: str) -> bool:
        """Return whether a typed word is the unfinished beginning of another one."""
        return word == self.unfinished and word != other and other.startswith(word)

    def nearness(self, word: str, other: str) -> float:
        """Return how much of another word a typed word is: its beginning, or the same with mistakes; 0 for neither."""
        pair = (word, other)
        if pair not in self._nearness:
            if self.begins(word, other):
                value = 0.5 + 0.5 * len(word) / len(other)
            elif _is_piece(word, other):
                value = 0.0
            else:
                distance = edits(word, other, min(2, allowed_edits(word)))
                value = 0.8 * (1 - distance / max(len(word), len(other))) if distance is not None else 0.0
            self._nearness[pair] = value
        return self._nearness[pair]


class Matcher:
    """Compare texts with queries, given in how many of how many queries each word is."""

    def __init__(self, frequency: Mapping[str, int], queries: int) -> None:
        self._frequency = frequency
        self._queries = queries

    def match(self, typed: Typed, folded: str, key: str) -> Match:
        """Return how a query, which is not the same text, matches a text."""
        best, kind, share, common = self._shared_words(typed, key)
        why = f"{_WHICH[kind]}{'s' if kind > SOME and len(common) > 1 else ''}: {', '.join(common)}" if kind else ""
        length = max(len(typed.text), len(folded))
        distance = edits(typed.text, folded, typed.edits)
        # A known word is no mistake for a longer one around it.
        if distance and not (_is_piece(typed.text, folded) and typed.text in self._frequency):
            near = _NEAR * (1 - distance / length)
            best = max(best, near)
            if kind <= MISTAKEN:
                share = max(near, share) if kind == MISTAKEN else near
                kind, why = MISTAKEN, f"{distance} typing mistake{'s' if distance > 1 else ''} away"
        if folded.startswith(typed.text):
            best = max(best, 0.5 + 0.3 * len(typed.text) / length)
            if kind < BEGUN:
                kind, share = BEGUN, 0.5 + 0.5 * len(typed.text) / length
            why = "starts with the text"
        return Match(kind, share, best, why)

    def weight(self, word: str) -> float:
        """Return the weight of a word: the rarer the heavier (inverse document frequency)."""
        return math.log(1 + (self._queries + 1) / (self._frequency.get(word, 0) + 1))

    def _shared_words(self, typed: Typed, key: str) -> tuple[float, int, float, list[str]]:
        """Compare words by weight: return the quality, the kind, the share of the text's words, and the words."""
        left = dict.fromkeys(tokens(key))
        theirs = sum(map(self.weight, left))
        # One word answers to one word; those that are there come before those that are only near.
        answers = {word: (word, 1.0) for word in typed.words if word in left}
        exact = len(answers)
        for word in answers:
            del left[word]
        for word in typed.words:
            if word not in answers:
                near = [(typed.nearness(word, other), other) for other in islice(left, _MOST_WORDS)]
                value, same = max(near, key=itemgetter(0), default=(0.0, ""))
                if value:
                    answers[word] = (same, value)
                    del left[same]
        begun = [word for word, (same, _) in answers.items() if typed.begins(word, same)]
        if not answers or (begun and len(answers) == 1 < len(typed.words)):
            return 0.0, 0, 0.0, []  # of several words, the beginning of the last one alone says nothing
        # A mistyped word is unknown to the release; it weighs as much as the word it stands for.
        pairs = [answers.get(word, (word, 0.0)) for word in typed.words]
        both = sum(value * self.weight(same) for same, value in pairs)
        ours = sum(self.weight(same) for same, _ in pairs)
        if len(answers) < len(typed.words):
            kind = SOME if exact else SOME_MISTAKEN
        else:
            kind = ALL if exact == len(answers) else BEGUN if exact + len(begun) == len(answers) else MISTAKEN
        # Dice's share of common words, 2 |both| / (|one| + |other|), says how good a match it is for both sides.
        return _NEAR * (2 * both / (ours + theirs)) ** 2, kind, both / ours, [same for same, value in pairs if value]


def _is_piece(one: str, other: str) -> bool:
    """Return whether one text lies in the other and is too short to be the same with a letter missing."""
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) < _LEAST_PIECE and short in long


class GramIndex:
    """Texts by their character n-grams."""

    def __init__(self, keys: Sequence[str]) -> None:
        code, self._owners = grams(keys)
        self._grams, self._starts = np.unique(code, return_index=True)
        self._ends = np.append(self._starts[1:], len(code))
        self._sizes = np.bincount(self._owners, minlength=len(keys))

    def sharing(self, key: str) -> tuple[_Places, _Numbers, _Numbers]:
        """Return the texts that share grams with a key, the share of the key's grams, and how alike the two are."""
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
    """Find queries by their words: exact, begun, or with typing mistakes; none that holds one is missed."""

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
        """Return the queries that hold a word of a text, and about how good a match each is: kind + share."""
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
        """Return for every query how much of the word it has, as :meth:`Typed.nearness` says."""
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
    """Return the places of the largest values, in no order."""
    if len(values) <= count:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - count)[len(values) - count :]
