"""Search in a release: the pages that people who searched for this clicked on, and queries near to it.

How a result is scored, so that anybody can check it:

* The **score of a query** is a whole number, which says how it matches, and a fraction below 1, which says how much
  and how frequent it is. Every query that holds a word of the text is found; the whole number is

  - 6 for the same text but for case, accents, width and blanks;
  - 5 when it has all words of the text;
  - 4 when it has all words, of the last one the beginning (it may be unfinished);
  - 3 when it has all words, or is the text as a whole, with few typing mistakes;
  - 2 when it has some of the words;
  - 1 when it has some of the words with few typing mistakes.

  The fraction is 0.9 times the share of the text's words that it has (rare words weigh more, a word with a mistake or
  a beginning counts in part) times ln(2 + its weight) / ln(2 + the largest weight in the release). So of queries that
  match alike the more frequent comes first. A word inside another one is no mistake (rain, train) unless it is long,
  and the beginning of a last word counts only beside another word of the text, if there are several.
* The **quality** of a query, from 0 to 1, says how much the two texts are the same, and is used for URLs alone: 1 for
  the same text, else the best of

  - 0.5 to 0.8 when the query starts with the text, the more of it the better;
  - 0.8 (1 - mistakes / length) when few typing mistakes lie between them;
  - 0.8 times the squared share of words they have in common (Dice), rare words weighing more.

* The **score of a URL** is the sum, over matched queries at least half as good as the best one, of the square of the
  query's quality times the clicks on the URL after it: a page that most people chose is not outvoted by one that a few
  chose after many similar queries.

A weight is a count, or a share of 100,000 records (:mod:`hushquery.publish.tables`). Counts and clicks are noisy;
negative ones are taken as zero here, for ranking only. Candidates come from an index of
words, beginnings and character n-grams, so that a text is never compared with every query. Of more than 1,000 queries
that hold its words the best are compared, as many as are asked for; the others are counted.

References:
    E. Ukkonen, Approximate string matching with q-grams and maximal matches, TCS 92(1), 1992.
    K. Sparck Jones, A statistical interpretation of term specificity, Journal of Documentation 28(1), 1972.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushquery.publish.match import SAME, GramIndex, Match, Matcher, Typed, WordIndex, largest
from hushquery.publish.tables import PER, checked_limit, queries_of, row_numbers, with_pages
from hushquery.publish.text import fold, key_of

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["QueryHit", "SearchIndex", "SearchResult", "UrlHit"]

# Longer texts than anybody types are looked up by their beginning.
_LONGEST = 256
# How many candidates each way of finding them gives.
_CANDIDATES = 80
# How many of the queries that hold words of the text are compared with it, if no more are asked for.
_HOLDERS = 1000
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
    """What a search found; ``notes`` says what the release could not answer.

    ``more_urls`` and ``more_queries`` say how many were found beyond the limit.
    """

    urls: tuple[UrlHit, ...]
    queries: tuple[QueryHit, ...]
    notes: tuple[str, ...] = ()
    more_urls: int = 0
    more_queries: int = 0


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
        self._grams = GramIndex(self._keys)
        self._words = WordIndex(self._keys)
        self._matcher = Matcher(self._words.frequency, len(folded))
        self._popularity = np.log(2.0 + self.queries.weight)
        self._highest = float(np.max(self._popularity, initial=0.0))
        self._clicks = _Clicks(release, self.queries.by_name) if "clicks" in release.tables else None

    def search(self, text: str, limit: int = 10) -> SearchResult:
        """Find pages and queries for a text.

        Args:
            text: What a person types, in any script; mistakes and unfinished words are fine.
            limit: How many URLs and how many queries to give at most.
        """
        hits, more = self._near(text, max(_HOLDERS, checked_limit(limit)))
        notes = []
        urls: list[UrlHit] = []
        if self._clicks is None:
            notes.append("this release has no clicks, so there are queries but no URLs")
        elif hits:
            best = max(hit.quality for hit in hits)
            urls = self._clicks.rank([hit for hit in hits if hit.quality >= _VOTES * best])
        if self.queries.measured is None:
            notes.append("this release has no counts, so queries rank by how well they match alone")
        more_urls, more_queries = max(0, len(urls) - limit), more + max(0, len(hits) - limit)
        return SearchResult(tuple(urls[:limit]), tuple(hits[:limit]), tuple(notes), more_urls, more_queries)

    def near(self, text: str) -> list[QueryHit]:
        """Give all released queries near to a text, the best first."""
        return self._near(text, len(self.queries.names))[0]

    def alike(self, text: str) -> list[str]:
        """Give released queries that may be the text with typing mistakes, the most frequent first."""
        typed = Typed(fold(text)[:_LONGEST])
        found = {*self._starting_with(typed.text), *self._sharing_grams(typed.key)} if typed.text else set()
        names = self.queries.names
        return [names[index] for index in sorted(found, key=lambda i: (-self._popularity[i], names[i]))]

    def _near(self, text: str, most: int) -> tuple[list[QueryHit], int]:
        """Give the queries near to a text, and how many hold words of it but were not compared."""
        folded = fold(text)
        if not folded or not self.queries.names:
            return [], 0
        typed = Typed(folded[:_LONGEST])
        exact = set(self._same.get(folded, ()))
        holders, about = self._words.holders(typed, self._matcher)
        kind = np.floor(about)
        about = kind + (about - kind) * self._popularity[holders] / self._highest
        compared = {
            *exact,
            *holders[largest(about, most)].tolist(),
            *self._starting_with(typed.text),
            *self._sharing_grams(typed.key),
        }
        found = []
        for index in compared:
            match = (
                Match(SAME, 1.0, 1.0, "the same text")
                if index in exact
                else self._matcher.match(typed, self.queries.folded[index], self._keys[index])
            )
            if match.kind:
                score = match.kind + 0.9 * match.share * float(self._popularity[index]) / self._highest
                name, told, share = self.queries.names[index], self.queries.numbers(index), self.queries.share(index)
                found.append(QueryHit(name, *told, match.quality, score, match.why, share))
        found.sort(key=lambda hit: (-hit.score, hit.query))
        return found, len(set(holders.tolist()) - compared)

    def _starting_with(self, text: str) -> list[int]:
        first = bisect_left(self._sorted_texts, text)
        last = bisect_left(self._sorted_texts, text + "\U0010ffff")
        inside = self._sorted[first:last]
        if len(inside) <= _CANDIDATES:
            return inside
        return [inside[i] for i in largest(self._popularity[inside], _CANDIDATES)]

    def _sharing_grams(self, key: str) -> list[int]:
        near, held, alike = self._grams.sharing(key)
        # Alike as a whole, whatever the count (typing mistakes); and holding all that was typed, popular ones first.
        picked = np.union1d(largest(alike, _CANDIDATES), largest(held * self._popularity[near], _CANDIDATES))
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
