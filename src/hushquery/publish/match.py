"""How well a released query answers to a typed text; :mod:`hushquery.publish.search` says what the numbers are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

from hushquery.publish.distance import allowed_edits, edits
from hushquery.publish.text import key_of, tokens

__all__ = ["Matcher", "Typed"]

_BEGINNING = (0.5, 0.3)
_MISTAKES = 0.8
_WORDS = 0.8
# Two texts that share less than this of their words have nothing to do with each other.
_LEAST_SHARED = 0.3
# More words than anybody types add nothing but time.
_MOST_WORDS = 24


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

    def nearness(self, word: str, other: str) -> float:
        """Give how much of another word a typed word is: its beginning, or the same with mistakes; 0 for neither."""
        pair = (word, other)
        if pair not in self._nearness:
            if word == self.unfinished and other.startswith(word):
                value = 0.5 + 0.5 * len(word) / len(other)
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

    def quality(self, typed: Typed, folded: str, key: str) -> tuple[float, str]:
        """Give the quality of a query for a text, from 0 (nothing in common) to 0.8, and the reason."""
        best, why = 0.0, ""
        if folded.startswith(typed.text):
            base, more = _BEGINNING
            best, why = base + more * len(typed.text) / len(folded), "starts with the text"
        distance = edits(typed.text, folded, typed.edits)
        if distance:
            quality = _MISTAKES * (1 - distance / max(len(typed.text), len(folded)))
            if quality > best:
                best, why = quality, f"{distance} typing mistake{'s' if distance > 1 else ''} away"
        shared, common = self._shared_words(typed, key)
        if shared >= _LEAST_SHARED and _WORDS * shared**2 > best:
            best, why = _WORDS * shared**2, f"has the words: {', '.join(common)}"
        return best, why

    def weight(self, word: str) -> float:
        """Give the weight of a word: the rarer the heavier (inverse document frequency)."""
        return math.log(1 + (self._queries + 1) / (self._frequency.get(word, 0) + 1))

    def _shared_words(self, typed: Typed, key: str) -> tuple[float, list[str]]:
        """Give Dice's share of common words, 2 |both| / (|one| + |other|), by weight, and these words."""
        left = dict.fromkeys(tokens(key)[:_MOST_WORDS])
        total = sum(map(self.weight, left))
        both = 0.0
        common = []
        for word in typed.words:
            same, value = (word, 1.0) if word in left else self._nearest(word, left, typed)
            # A mistyped word is unknown to the release; it weighs as much as the word it stands for.
            weight = self.weight(same or word)
            total += weight
            if same:
                both += value * weight
                common.append(same)
                del left[same]  # one word answers to one word
        return (2 * both / total if total else 0.0), common

    def _nearest(self, word: str, others: Iterable[str], typed: Typed) -> tuple[str, float]:
        best, value = "", 0.0
        for other in others:
            found = typed.nearness(word, other)
            if found > value:
                best, value = other, found
        return best, value
