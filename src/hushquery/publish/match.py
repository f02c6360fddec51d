"""How well a released query answers to a typed text; :mod:`hushquery.publish.search` says what the numbers are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from hushquery.publish.text import allowed_edits, edits, key_of, tokens

__all__ = ["ALL", "BEGUN", "MISTAKEN", "SAME", "SOME", "SOME_MISTAKEN", "Match", "Matcher", "Typed"]

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
_BEGINNING = (0.5, 0.3)
_MISTAKES = 0.8
_WORDS = 0.8
# More words than anybody types add nothing but time.
_MOST_WORDS = 24
# A shorter word inside another one is another word (rain, train), not the same with a letter missing.
_LEAST_PIECE = 6


@dataclass(frozen=True)
class Match:
    """How a query answers to a text: its kind, how much of the text it has (0 to 1), its quality, and why."""

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
        """Tell whether a typed word is the unfinished beginning of another one."""
        return word == self.unfinished and word != other and other.startswith(word)

    def nearness(self, word: str, other: str) -> float:
        """Give how much of another word a typed word is: its beginning, or the same with mistakes; 0 for neither."""
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
        """Say how a query, which is not the same text, answers to a text."""
        best, kind, share, common = self._shared_words(typed, key)
        why = f"{_WHICH[kind]}{'s' if kind > SOME and len(common) > 1 else ''}: {', '.join(common)}" if kind else ""
        length = max(len(typed.text), len(folded))
        distance = edits(typed.text, folded, typed.edits)
        # A known word is no mistake for a longer one around it.
        if distance and not (_is_piece(typed.text, folded) and typed.text in self._frequency):
            near = _MISTAKES * (1 - distance / length)
            best = max(best, near)
            if kind <= MISTAKEN:
                share = max(near, share) if kind == MISTAKEN else near
                kind, why = MISTAKEN, f"{distance} typing mistake{'s' if distance > 1 else ''} away"
        if folded.startswith(typed.text):
            base, more = _BEGINNING
            best = max(best, base + more * len(typed.text) / length)
            if kind < BEGUN:
                kind, share = BEGUN, 0.5 + 0.5 * len(typed.text) / length
            why = "starts with the text"
        return Match(kind, share, best, why)

    def weight(self, word: str) -> float:
        """Give the weight of a word: the rarer the heavier (inverse document frequency)."""
        return math.log(1 + (self._queries + 1) / (self._frequency.get(word, 0) + 1))

    def _shared_words(self, typed: Typed, key: str) -> tuple[float, int, float, list[str]]:
        """Compare words by weight: give the quality, the kind, the share of the text's words, and the words."""
        left = dict.fromkeys(tokens(key))
        theirs = sum(map(self.weight, left))
        # One word answers to one word; those that are there come before those that are only near.
        answers = {word: (word, 1.0) for word in typed.words if word in left}
        exact = len(answers)
        for word in answers:
            del left[word]
        for word in typed.words:
            if word not in answers:
                same, value = self._nearest(word, islice(left, _MOST_WORDS), typed)
                if same:
                    answers[word] = (same, value)
                    del left[same]
        begun = [word for word, (same, _) in answers.items() if typed.begins(word, same)]
        if not answers or (begun and len(answers) == 1 < len(typed.words)):
            return 0.0, 0, 0.0, []  # of several words, the beginning of the last one alone says nothing
        # A mistyped word is unknown to the release; it weighs as much as the word it stands for.
        found = [(answers.get(word, (word, 0.0)), word in answers) for word in typed.words]
        both = sum(value * self.weight(same) for (same, value), _ in found)
        ours = sum(self.weight(same) for (same, _), _ in found)
        if len(answers) < len(typed.words):
            kind = SOME if exact else SOME_MISTAKEN
        else:
            kind = ALL if exact == len(answers) else BEGUN if exact + len(begun) == len(answers) else MISTAKEN
        # Dice's share of common words, 2 |both| / (|one| + |other|), says how good a match it is for both sides.
        return _WORDS * (2 * both / (ours + theirs)) ** 2, kind, both / ours, [same for (same, _), is_ in found if is_]

    def _nearest(self, word: str, others: Iterable[str], typed: Typed) -> tuple[str, float]:
        best, value = "", 0.0
        for other in others:
            found = typed.nearness(word, other)
            if found > value:
                best, value = other, found
        return best, value


def _is_piece(one: str, other: str) -> bool:
    """Tell whether one text lies in the other and is too short to be the same with a letter missing."""
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) < _LEAST_PIECE and short in long
