"""What to search for next, and which queries mean the same: from reformulations and from shared clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hushquery.errors import DataError
from hushquery.publish.tables import Rows, checked_limit, click_graph, queries_of
from hushquery.release.intervals import published

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["Similar", "Suggestion", "similar", "suggest"]

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

    References:
        R. Baeza-Yates, A. Tiberi, Extracting semantic relations from query logs, KDD 2007.

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

    A release with only one of the two tables gives what that one tells. Noisy counts of zero or less suggest nothing.

    References:
        R. Baeza-Yates, C. Hurtado, M. Mendoza, Query recommendation using query logs in search engines, EDBT 2004.

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
    rows = _went_on_to(release, name)
    if "clicks" in release.tables:
        seen = {row.query for row in rows}
        rows += [
            Suggestion(other.query, "clicks", None, None, None, other.cosine, "clicks on the same URLs")
            for other in similar(release, name, limit + len(seen))
            if other.query not in seen
        ]
    return Rows(rows[:limit])


def _went_on_to(release: Release, name: str) -> list[Suggestion]:
    if "reformulations" not in release.tables:
        return []
    table = release.tables["reformulations"]
    numbers = published(table)  # counts: there are no shares of reformulations
    nexts = table["next_query"].to_pylist()
    rows = [
        Suggestion(nexts[index], "reformulation", *numbers.row(index), None, "people went on to it")
        for index, query in enumerate(table["query"].to_pylist())
        if query == name and numbers.value[index] > 0 and nexts[index] != name
    ]
    return sorted(rows, key=lambda row: (-(row.count or 0), row.query))
