"""Search a release: pages and queries near to a text, queries that fit a pattern, and all that is known of one query.

Scores can be checked by hand (docs/howto/use-a-release.md has a table of them):

* The **score of a query** is a whole number for how it matches (from 6, the same text, to 1, some words with mistakes;
  see :mod:`hushquery.publish.match`) and a fraction: 0.9 times the share of the text's words that it has (rare words
  weigh more, mistyped or begun ones count in part) times ln(2 + its weight) / ln(2 + the largest weight). A word inside
  another is no mistake (rain, train) unless it is long; a begun last word counts only beside another word of the text.
* The **quality** of a query, used for URLs alone, is 1 for the same text, else the best of: 0.5 to 0.8 when it starts
  with the text; 0.8 (1 - mistakes / length); 0.8 times the squared share of words in common (Dice), rare ones heavier.
* The **score of a URL** is the sum, over matched queries at least half as good as the best one, of the square of the
  quality times the clicks after it: few people's page after many similar queries can't outvote most people's choice.

A weight is a count (negative ones rank as zero), or a share of 100,000 records. Candidates come from an index, so that
a text is never compared with every query; of more than 1,000 that hold its words only the best are, others counted.

References:
    E. Ukkonen, Approximate string matching with q-grams and maximal matches, TCS 92(1), 1992.
    K. Sparck Jones, A statistical interpretation of term specificity, Journal of Documentation 28(1), 1972.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushquery.errors import UsageError
from hushquery.publish.match import SAME, GramIndex, Match, Matcher, Typed, WordIndex, largest
from hushquery.publish.tables import Rows, Shown, checked_limit, queries_of, weighted_rows
from hushquery.publish.text import fold, key_of
from hushquery.release.intervals import published
from hushquery.release.manifest import SHARE_SCALE

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["About", "Measured", "PatternHit", "QueryHit", "SearchIndex", "SearchResult", "UrlHit", "find", "look_up"]

# Longer texts than anybody types are looked up by their beginning.
_LONGEST = 256
# How many candidates each way of finding them gives.
_CANDIDATES = 80
# How many of the queries that hold words of the text are compared with it, if no more are asked for.
_HOLDERS = 1000
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
    """A URL clicked after queries near to a text: noisy ``clicks``, none negative, or the ``share`` with a click."""

    url: str
    score: float
    clicks: int | None
    queries: tuple[str, ...]
    why: str
    share: float | None = None


@dataclass(frozen=True)
class SearchResult(Shown):
    """What a search found, how many more lie beyond the limit, and ``notes`` on what the release could not answer."""

    urls: Rows[UrlHit]
    queries: Rows[QueryHit]
    notes: tuple[str, ...] = ()
    more_urls: int = 0
    more_queries: int = 0


class SearchIndex:
    """An index of a release in memory, built from its public tables alone.

    >>> from hushquery.publish.example import tiny_release
    >>> result = SearchIndex(tiny_release()).search("waether leds")
    >>> result.queries[0].query, result.queries[0].why
    ('weather leeds', '2 typing mistakes away')
    >>> result.urls[0].url
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
        self._clicks: dict[str, list[tuple[str, float]]] | None = {} if "clicks" in release.tables else None
        self._click_shares = "clicks" in release.tables and "share" in release.tables["clicks"].column_names
        for query, url, clicks in weighted_rows(release, "clicks", "url"):
            if self._clicks is not None and clicks > 0 and query in self.queries.by_name:
                self._clicks.setdefault(query, []).append((url, clicks))

    def __repr__(self) -> str:
        clicked = sum(map(len, (self._clicks or {}).values()))
        return f"SearchIndex({len(self.queries.names):,} queries, {clicked:,} clicks)"

    def search(self, text: str, limit: int = 10) -> SearchResult:
        """Find at most ``limit`` pages and queries for a text in any script; mistakes and unfinished words are fine."""
        hits, more = self._near(text, max(_HOLDERS, checked_limit(limit)))
        notes = []
        if self._clicks is None:
            notes.append("this release has no clicks, so there are queries but no URLs")
        if self.queries.measured is None:
            notes.append("this release has no counts, so queries rank by how well they match alone")
        urls = self._rank_urls(hits)
        more_urls, more_queries = max(0, len(urls) - limit), more + max(0, len(hits) - limit)
        return SearchResult(Rows(urls[:limit]), Rows(hits[:limit]), tuple(notes), more_urls, more_queries)

    def alike(self, text: str) -> list[str]:
        """Return released queries that may be the text with typing mistakes, the most frequent first."""
        typed = Typed(fold(text)[:_LONGEST])
        places = {*self._starting_with(typed.text), *self._sharing_grams(typed.key)} if typed.text else set()
        names = self.queries.names
        return [names[index] for index in sorted(places, key=lambda i: (-self._popularity[i], names[i]))]

    def _near(self, text: str, most: int) -> tuple[list[QueryHit], int]:
        """Return the queries near to a text, and how many hold words of it but were not compared."""
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
        hits = []
        for index in compared:
            match = Match(SAME, 1.0, 1.0, "the same text")
            if index not in exact:
                match = self._matcher.match(typed, self.queries.folded[index], self._keys[index])
            if match.kind:
                score = match.kind + 0.9 * match.share * float(self._popularity[index]) / self._highest
                name, numbers = self.queries.names[index], self.queries.numbers(index)
                hits.append(QueryHit(name, *numbers, match.quality, score, match.why, self.queries.share(index)))
        hits.sort(key=lambda hit: (-hit.score, hit.query))
        return hits, len(set(holders.tolist()) - compared)

    def _starting_with(self, text: str) -> list[int]:
        first = bisect_left(self._sorted_texts, text)
        last = bisect_left(self._sorted_texts, text + "\U0010ffff")
        inside = self._sorted[first:last]
        return [inside[i] for i in largest(self._popularity[inside], _CANDIDATES)]

    def _sharing_grams(self, key: str) -> list[int]:
        near, held, alike = self._grams.sharing(key)
        # Alike as a whole, whatever the count (typing mistakes); and holding all that was typed, popular ones first.
        picked = np.union1d(largest(alike, _CANDIDATES), largest(held * self._popularity[near], _CANDIDATES))
        return [int(index) for index in near[picked]]

    def _rank_urls(self, hits: Sequence[QueryHit]) -> list[UrlHit]:
        """Add up what the matched queries say of each URL."""
        best = max((hit.quality for hit in hits), default=0.0)
        votes: dict[str, list[tuple[float, float, QueryHit]]] = {}
        for hit in hits:
            for url, clicks in (self._clicks or {}).get(hit.query, ()) if hit.quality >= _VOTES * best else ():
                votes.setdefault(url, []).append((hit.quality**2 * clicks, clicks, hit))
        ranked = []
        for url, cast in votes.items():
            cast.sort(key=lambda vote: (-vote[0], vote[2].query))
            total, score = sum(clicks for _, clicks, _ in cast), sum(score for score, _, _ in cast)
            count, share = (None, total / SHARE_SCALE) if self._click_shares else (int(total), None)
            ranked.append(UrlHit(url, score, count, tuple(hit.query for _, _, hit in cast), cast[0][2].why, share))
        return sorted(ranked, key=lambda hit: (-hit.score, hit.url))


@dataclass(frozen=True)
class Measured:
    """A URL or a query with its noisy count or share and interval, as released."""

    name: str
    count: int | None
    low: float
    high: float
    share: float | None = None


@dataclass(frozen=True)
class About(Shown):
    """What a release holds on a query, and on searches for it without a click; None where it has no such table."""

    query: str
    count: int | None
    low: float | None
    high: float | None
    urls: Rows[Measured] | None
    next_queries: Rows[Measured] | None
    share: float | None = None
    unclicked: Measured | None = None


def look_up(release: Release, query: str, limit: int = 10) -> About | None:
    """Return a query's count or share, its URLs and what people searched for next, as released; None if not there.

    >>> from hushquery.publish.example import tiny_release
    >>> about = look_up(tiny_release(), "Weather  London")
    >>> about.count, [(row.name, row.count) for row in about.urls]
    (400, [('https://weather.example.org/', 150), ('https://news.example.org/', -3)])
    """
    limit = checked_limit(limit)
    queries = queries_of(release)
    place = queries.where(query)
    if place is None:
        return None
    name = queries.names[place]
    clicks = rows_of(release, "clicks", "url", name)
    following = rows_of(release, "reformulations", "next_query", name)
    return About(
        name,
        *queries.numbers(place),
        None if clicks is None else Rows([row for row in clicks if row.name][:limit]),
        None if following is None else Rows(following[:limit]),
        queries.share(place),
        next((row for row in clicks or () if not row.name), None),
    )


def rows_of(release: Release, table_name: str, column: str, query: str) -> list[Measured] | None:
    """Return what a table says of a query, the most frequent first; None where the release has no such table."""
    if table_name not in release.tables:
        return None
    table = release.tables[table_name]
    numbers = published(table)
    names = table[column].to_pylist()
    rows = [
        Measured(names[index], *numbers.row(index), numbers.share(index))
        for index, other in enumerate(table["query"].to_pylist())
        if other == query
    ]
    return sorted(rows, key=lambda row: (-(row.count or row.share or 0), row.name))


@dataclass(frozen=True)
class PatternHit:
    """A query that fits a pattern; given all intervals, its true rank lies from ``best_rank`` to ``worst_rank``."""

    rank: int | None
    query: str
    count: int | None
    low: float | None
    high: float | None
    best_rank: int | None
    worst_rank: int | None
    share: float | None = None


def find(release: Release, patterns: str | Sequence[str], limit: int | None = None) -> Rows[PatternHit]:
    """Return the queries that fit a pattern, the most frequent first: ``fear of *`` is the study of human fears.

    ``*`` stands for any text, also none; ``?`` for one character; everything else for itself, whatever its case,
    accents or width. Of several patterns a query has to fit one.

    References:
        A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas, Releasing search queries and clicks privately, WWW 2009.

    >>> from hushquery.publish.example import tiny_release
    >>> for row in find(tiny_release(), "fear of *"):
    ...     print(row.rank, row.query, row.count, (row.best_rank, row.worst_rank))
    1 fear of flying 90 (1, 2)
    2 fear of heights 70 (1, 2)
    """
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    if not any(pattern.strip() for pattern in wanted):
        raise UsageError("the pattern is empty", fix="Give a pattern such as 'fear of *'; '*' gives every query")
    if limit is not None:
        checked_limit(limit)
    tests = [pattern_expression(pattern) for pattern in wanted if pattern.strip()]
    queries = queries_of(release)
    fits = [index for index in queries.ranked if any(test.fullmatch(queries.folded[index]) for test in tests)]
    if queries.measured is None:
        names = sorted(queries.names[index] for index in fits)
        return Rows(PatternHit(None, name, None, None, None, None, None) for name in names[:limit])
    lows, highs = queries.measured.low, queries.measured.high
    all_lows, all_highs = sorted(lows[fits].tolist()), sorted(highs[fits].tolist())
    rows = []
    for rank, index in enumerate(fits[:limit], 1):
        surely_above = len(fits) - bisect_right(all_lows, highs[index])
        surely_below = bisect_left(all_highs, lows[index])
        ranks = (1 + surely_above, len(fits) - surely_below)
        rows.append(PatternHit(rank, queries.names[index], *queries.numbers(index), *ranks, queries.share(index)))
    return Rows(rows)


def pattern_expression(pattern: str) -> re.Pattern[str]:
    """Return a regular expression over folded texts; atomic groups make it linear per star: first fits suffice."""
    pieces = [re.sub(r"\s+", " ", fold(piece, trim=False)) for piece in re.split(r"[*?]", pattern)]
    pieces[0] = pieces[0].lstrip()
    pieces[-1] = pieces[-1].rstrip()
    parts = [re.escape(pieces[0])]
    for wildcard, piece in zip(re.findall(r"[*?]", pattern), pieces[1:], strict=True):
        if wildcard == "*":
            parts.append("")
        else:
            parts[-1] += "."
        parts[-1] += re.escape(piece)
    first, *rest = parts
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    between = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{between}.*{last}", re.DOTALL)
