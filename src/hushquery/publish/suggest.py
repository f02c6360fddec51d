"""Correct spelling, and suggest what to search for next, from counts, reformulations and shared clicks.

A released query ``c`` within a few typing mistakes of the text ``t`` scores, as in a noisy channel::

    ln (2 + weight of c) / (2 + weight of t)   people search for c more often
    - mistakes * ln 20                         a mistake is made about once in 20 words
    + ln (1 + 20 * share)                      share of the searches for t after which people went on to c
    + ln (0.1 + clicks of c) / (0.1 + clicks of t)     clicks per search, at most 2 either way: few clicks on t

A released text is corrected only if the score is above zero, any other gets the best candidate. Texts that differ in a
digit are never taken for each other. A weight is a count (negative ones are zero), or a share of 100,000 records.

References:
    M. D. Kernighan, K. W. Church, W. A. Gale, A spelling correction program based on a noisy channel, COLING 1990.
    S. Cucerzan, E. Brill, Spelling correction as an iterative process, EMNLP 2004.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hushquery.errors import DataError
from hushquery.publish.search import SearchIndex, rows_of
from hushquery.publish.tables import Rows, checked_limit, click_graph, queries_of, weighted_rows
from hushquery.publish.text import allowed_edits, edits, fold, has_digits_changed
from hushquery.release.manifest import SHARE_SCALE

if TYPE_CHECKING:
    from hushquery.release import Release

_ONE_MISTAKE_IN = 20.0
_FEWEST_CLICKS = 0.1
_CLICKS_SAY_AT_MOST = 2.0
# How many of the URLs that two queries share are named.
_NAMED = 3


@dataclass(frozen=True)
class Similar:
    """A query whose searchers clicked on the same URLs: the cosine between the click vectors, and the heaviest URLs."""

    query: str
    cosine: float
    shared: tuple[str, ...]


@dataclass(frozen=True)
class Suggestion:
    """A query to try next: one that people went on to (how many, noisy), or one that shares clicks (their cosine)."""

    query: str
    source: Literal["reformulation", "clicks"]
    count: int | None
    low: float | None
    high: float | None
    cosine: float | None
    why: str


def similar(release: Release, query: str, limit: int = 10) -> Rows[Similar]:
    """Return the queries whose searchers clicked on the same URLs, by the cosine of their click vectors.

    Negative clicks are taken as zero. Empty when the release does not know the query, or no click of it.
    Reference: R. Baeza-Yates, A. Tiberi, Extracting semantic relations from query logs, KDD 2007.

    >>> from hushquery.publish.example import tiny_release
    >>> [(s.query, round(s.cosine, 2)) for s in similar(tiny_release(), "weather")]
    [('weather london', 1.0), ('weather leeds', 0.2)]
    """
    limit = checked_limit(limit)
    graph = click_graph(release, "there is nothing to compare queries by")
    place = graph.query(query)
    own = graph.weights[[place], :].toarray().ravel() if place is not None else np.zeros(0)
    size = float(np.linalg.norm(own))
    if size == 0:
        return Rows()
    dots = np.asarray(graph.weights @ own).ravel()
    sizes = np.sqrt(np.asarray(graph.weights.multiply(graph.weights).sum(axis=1)).ravel())
    others = [index for index in np.flatnonzero(dots).tolist() if index != place]
    cosines = {index: min(1.0, float(dots[index] / (sizes[index] * size))) for index in others}
    others.sort(key=lambda index: (-round(cosines[index], 9), graph.queries[index]))
    rows = []
    for index in others[:limit]:
        products = graph.weights[[index], :].toarray().ravel() * own
        heaviest = sorted(np.flatnonzero(products), key=lambda url: (-products[url], graph.urls[url]))
        rows.append(Similar(graph.queries[index], cosines[index], tuple(graph.urls[u] for u in heaviest[:_NAMED])))
    return Rows(rows)


def suggest(release: Release, query: str, limit: int = 10) -> Rows[Suggestion]:
    """Suggest what to search for after a query: what people went on to, then queries that share clicks with it.

    Works with either table. Noisy counts of zero or less suggest nothing. Reference: R. Baeza-Yates, C. Hurtado,
    M. Mendoza, Query recommendation using query logs in search engines, EDBT 2004.

    >>> from hushquery.publish.example import tiny_release
    >>> for s in suggest(tiny_release(), "weather"):
    ...     print(s.query, "-", s.why)
    weather leeds - people went on to it
    weather london - clicks on the same URLs
    """
    limit = checked_limit(limit)
    if "reformulations" not in release.tables and "clicks" not in release.tables:
        raise DataError(
            "this release can't suggest queries",
            why="it has neither reformulations nor clicks",
            fix="Make a release with --reformulations-per-user or --clicks-per-user",
        )
    queries = queries_of(release)
    place = queries.where(query)
    if place is None:
        return Rows()
    name = queries.names[place]
    rows = [
        Suggestion(row.name, "reformulation", row.count, row.low, row.high, None, "people went on to it")
        for row in rows_of(release, "reformulations", "next_query", name) or ()
        if row.count is not None and row.count > 0 and row.name != name
    ]
    if "clicks" in release.tables:
        seen = {row.query for row in rows}
        rows += [
            Suggestion(other.query, "clicks", None, None, None, other.cosine, "clicks on the same URLs")
            for other in similar(release, name, limit + len(seen))
            if other.query not in seen
        ]
    return Rows(rows[:limit])


@dataclass(frozen=True)
class Correction:
    """The released query that a text, itself released if ``known``, was probably meant to be, and the evidence."""

    query: str
    mistakes: int
    score: float
    reasons: tuple[str, ...]
    known: bool


def correct(release: Release, text: str, *, index: SearchIndex | None = None) -> Correction | None:
    """Return the query that a text was probably meant to be, or None; pass ``index`` to correct many texts.

    >>> from hushquery.publish.example import tiny_release
    >>> correction = correct(tiny_release(), "waether leeds")
    >>> correction.query, correction.mistakes, correction.known
    ('weather leeds', 1, True)
    """
    index = index or SearchIndex(release)
    typed = fold(text)
    place = index.queries.where(text)
    evidence = _Evidence(release, index, place)
    best: Correction | None = None
    for query in index.alike(text):
        folded = fold(query)
        mistakes = edits(typed, folded, allowed_edits(typed))
        if not mistakes or has_digits_changed(typed, folded):
            continue
        score, reasons = evidence.weigh(query, mistakes)
        if best is None or score > best.score:
            best = Correction(query, mistakes, score, reasons, place is not None)
    return best if best is not None and (place is None or best.score > 0) else None


class _Evidence:
    """What a release says about a text and its candidates."""

    def __init__(self, release: Release, index: SearchIndex, place: int | None) -> None:
        self._queries = index.queries
        self._name = None if place is None else index.queries.names[place]
        self._count = 0.0 if place is None else float(index.queries.weight[place])
        self._counted = index.queries.measured is not None
        self._measure = index.queries.measure
        self._clicks: defaultdict[str, float] = defaultdict(float)
        for query, _, clicks in weighted_rows(release, "clicks", "url"):
            self._clicks[query] += clicks
        rows = weighted_rows(release, "reformulations", "next_query")
        self._next = {following: weight for query, following, weight in rows if query == self._name and weight > 0}

    def weigh(self, candidate: str, mistakes: int) -> tuple[float, tuple[str, ...]]:
        score = -mistakes * math.log(_ONE_MISTAKE_IN)
        reasons = [f"{mistakes} typing mistake{'s' if mistakes > 1 else ''} away"]
        weight = float(self._queries.weight[self._queries.by_name[candidate]])
        if self._counted:
            score += math.log((2 + weight) / (2 + self._count))
            if self._name is None:
                reasons.append(f"its {self._measure} is about {self._say(weight)}, the text is not in the release")
            elif weight > self._count:
                both = f"{self._say(weight)}, that of the text {self._say(self._count)}"
                reasons.append(f"its {self._measure} is about {both}")
        elif self._name is None:
            reasons.append("the text is not in the release")
        if self._name is None:
            return score, tuple(reasons)
        went = self._next.get(candidate, 0.0)
        if went > 0:
            share = went / max(self._count, sum(self._next.values()))
            score += math.log1p(_ONE_MISTAKE_IN * share)
            reasons.append(f"about {went:,.0f} went on to it from the text")
        if self._clicks and self._counted:
            theirs = self._clicks.get(candidate, 0.0) / max(weight, 1.0)
            ours = self._clicks.get(self._name, 0.0) / max(self._count, 1.0)
            say = math.log((_FEWEST_CLICKS + theirs) / (_FEWEST_CLICKS + ours))
            score += max(-_CLICKS_SAY_AT_MOST, min(_CLICKS_SAY_AT_MOST, say))
            if say > math.log(2):
                reasons.append("the text got few clicks")
        return score, tuple(reasons)

    def _say(self, weight: float) -> str:
        return f"{100 * weight / SHARE_SCALE:.3g}%" if self._measure == "share" else f"{weight:,.0f}"
