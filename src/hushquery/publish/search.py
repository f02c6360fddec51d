"""Search in a release: the pages that people who searched for this clicked on, and queries near to it.

How a result is scored, so that anybody can check it:

* The **quality** of a released query for a text is the best of

  - 1 when both are the same but for case, accents, width and blanks;
  - 0.5 to 0.8 when the query starts with the text, the more of it the better;
  - 0.8 (1 - mistakes / length) when few typing mistakes lie between them;
  - 0.8 times the squared share of words they have in common (Dice), rare words weighing more; a word with a mistake,
    or whose beginning was typed last, counts in part.

* The **score of a query** is its quality times ln(2 + its weight); the same text always comes first.
* The **score of a URL** is the sum, over matched queries at least half as good as the best one, of the square of the
  query's quality times the clicks on the URL after it: a page that most people chose is not outvoted by one that a few
  chose after many similar queries.

A weight is a count, or a share of 100,000 records (:mod:`hushquery.publish.tables`). Counts and clicks are noisy;
negative ones are taken as zero here, for ranking only. Candidates come from an index of
character n-grams, beginnings and words, so that a text is never compared with every query.

References:
    E. Ukkonen, Approximate string matching with q-grams and maximal matches, TCS 92(1), 1992.
    K. Sparck Jones, A statistical interpretation of term specificity, Journal of Documentation 28(1), 1972.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hushquery.publish.match import Matcher, Typed
from hushquery.publish.tables import PER, checked_limit, queries_of, row_numbers, with_pages
from hushquery.publish.text import fold, grams, key_of, tokens

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["QueryHit", "SearchIndex", "SearchResult", "UrlHit"]

# Longer texts than anybody types are looked up by their beginning.
_LONGEST = 256
# How many candidates each way of finding them gives.
_CANDIDATES = 80
# A query less than half as good as the best match has no say about URLs.
_VOTES = 0.5


@dataclass(frozen=True)
class QueryHit:
    """A released query near to a text: its noisy count or share with interval (None if not released), and why."""

    query: str
    count: int | None
    low: float | None
    high: float | None
    quality: float
    score: float
    why: str
    share: float | None = None


@dataclass(frozen=True)
class UrlHit:
    """A URL that was clicked after queries near to a text.

    Attributes:
        url: The URL.
        score: What it is ranked by.
        clicks: The noisy clicks after those queries, negative ones left out; None where shares were released.
        queries: The queries it comes from, the one that says most first.
        why: How the first of them matches.
        share: The share of those queries with a click on the URL; None where counts were released.
    """

    url: str
    score: float
    clicks: int | None
    queries: tuple[str, ...]
    why: str
    share: float | None = None


@dataclass(frozen=True)
class SearchResult:
    """What a search found; ``notes`` says what the release could not answer."""

    urls: tuple[UrlHit, ...]
    queries: tuple[QueryHit, ...]
    notes: tuple[str, ...] = ()


class SearchIndex:
    """An index of a release in memory, built from its public tables alone.

    >>> from hushquery.publish.example import tiny_release
    >>> index = SearchIndex(tiny_release())
    >>> found = index.search("waether leds")
    >>> found.queries[0].query, found.queries[0].why
    ('weather leeds', '2 typing mistakes away')
    >>> found.urls[0].url
    'https://weather.example.org/leeds'
    """

    def __init__(self, release: Release) -> None:
        self.queries = queries_of(release)
        folded = self.queries.folded
        self._same = self.queries.by_folded  # made here, so that the first search is as fast as the others
        self._keys = [key_of(text) for text in folded]
        self._sorted = sorted(range(len(folded)), key=folded.__getitem__)
        self._sorted_texts = [folded[index] for index in self._sorted]
        code, owner = grams(self._keys)
        self._grams, self._starts = np.unique(code, return_index=True)
        self._ends = np.append(self._starts[1:], len(code))
        self._owners = owner
        self._sizes = np.bincount(owner, minlength=len(folded))
        frequency = Counter(word for key in self._keys for word in set(tokens(key)))
        self._matcher = Matcher(frequency, len(folded))
        self._popularity = np.log(2.0 + self.queries.weight)
        self._clicks = _Clicks(release, self.queries.by_name) if "clicks" in release.tables else None

    def search(self, text: str, limit: int = 10) -> SearchResult:
        """Find pages and queries for a text.

        Args:
            text: What a person types, in any script; mistakes and unfinished words are fine.
            limit: How many URLs and how many queries to give at most.
        """
        hits = self.near(text)
        notes = []
        urls: list[UrlHit] = []
        if self._clicks is None:
            notes.append("this release has no clicks, so there are queries but no URLs")
        elif hits:
            best = max(hit.quality for hit in hits)
            urls = self._clicks.rank([hit for hit in hits if hit.quality >= _VOTES * best])
        if self.queries.measured is None:
            notes.append("this release has no counts, so queries rank by how well they match alone")
        return SearchResult(tuple(urls[: checked_limit(limit)]), tuple(hits[:limit]), tuple(notes))

    def near(self, text: str) -> list[QueryHit]:
        """Give all released queries near to a text, the best first."""
        folded = fold(text)
        if not folded or not self.queries.names:
            return []
        typed = Typed(folded[:_LONGEST])
        exact = set(self._same.get(folded, ()))
        found = []
        for index in exact.union(self._candidates(typed)):
            quality, why = (
                (1.0, "the same text")
                if index in exact
                else self._matcher.quality(typed, self.queries.folded[index], self._keys[index])
            )
            if quality > 0:
                score = quality * float(self._popularity[index])
                name, told, share = self.queries.names[index], self.queries.numbers(index), self.queries.share(index)
                found.append(QueryHit(name, *told, quality, score, why, share))
        found.sort(key=lambda hit: (hit.quality < 1, -hit.score, hit.query))
        return found

    def _candidates(self, typed: Typed) -> set[int]:
        return {*self._starting_with(typed.text), *self._sharing_grams(typed.key)}

    def _starting_with(self, text: str) -> list[int]:
        first = bisect_left(self._sorted_texts, text)
        last = bisect_left(self._sorted_texts, text + "\U0010ffff")
        inside = self._sorted[first:last]
        if len(inside) <= _CANDIDATES:
            return inside
        return [inside[i] for i in _largest(self._popularity[inside], _CANDIDATES)]

    def _sharing_grams(self, key: str) -> list[int]:
        wanted = np.unique(grams([key])[0])
        places = np.searchsorted(self._grams, wanted)
        places = places[places < len(self._grams)]
        places = places[np.isin(self._grams[places], wanted)]
        if not len(places):
            return []
        owners = np.concatenate([self._owners[self._starts[p] : self._ends[p]] for p in places])
        shared = np.bincount(owners, minlength=len(self._sizes))
        near = np.flatnonzero(shared)
        overlap = shared[near]
        # Alike as a whole, whatever the count (typing mistakes); and holding all that was typed, popular ones first.
        alike = overlap / (len(wanted) + self._sizes[near])
        holding = overlap / len(wanted) * self._popularity[near]
        picked = np.union1d(_largest(alike, _CANDIDATES), _largest(holding, _CANDIDATES))
        return [int(index) for index in near[picked]]


class _Clicks:
    """The clicked URLs of each query."""

    def __init__(self, release: Release, places: dict[str, int]) -> None:
        table = with_pages(release.tables["clicks"])
        numbers = row_numbers(table)
        self._shares = numbers.measure == "share"
        weight = numbers.weight
        self._rows: dict[str, list[tuple[str, float]]] = {}
        for query, url, clicks in zip(
            table["query"].to_pylist(), table["url"].to_pylist(), weight.tolist(), strict=True
        ):
            if clicks > 0 and query in places:
                self._rows.setdefault(query, []).append((url, clicks))

    def rank(self, hits: list[QueryHit]) -> list[UrlHit]:
        """Add up what the matched queries say of each URL."""
        votes: dict[str, list[tuple[float, float, QueryHit]]] = {}
        for hit in hits:
            for url, clicks in self._rows.get(hit.query, ()):
                votes.setdefault(url, []).append((hit.quality**2 * clicks, clicks, hit))
        found = []
        for url, cast in votes.items():
            cast.sort(key=lambda vote: (-vote[0], vote[2].query))
            queries = tuple(hit.query for _, _, hit in cast)
            total = sum(clicks for _, clicks, _ in cast)
            number = (None, total / PER) if self._shares else (int(total), None)
            score = sum(score for score, _, _ in cast)
            found.append(UrlHit(url, score, number[0], queries, cast[0][2].why, number[1]))
        found.sort(key=lambda hit: (-hit.score, hit.url))
        return found


def _largest(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Give the places of the largest values, in no order."""
    if len(values) <= count:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - count)[len(values) - count :]
