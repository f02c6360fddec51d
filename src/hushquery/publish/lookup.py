"""Everything a release says of one query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushquery.publish.tables import checked_limit, queries_of, row_numbers

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["About", "Measured", "look_up"]


@dataclass(frozen=True)
class Measured:
    """A URL or a query with its noisy count or share and interval, as released."""

    name: str
    count: int | None
    low: float
    high: float
    share: float | None = None


@dataclass(frozen=True)
class About:
    """What a release says of a query; ``urls`` and ``next_queries`` are None where the release has no such table.

    ``unclicked`` is what it says of searches for the query without a click; None where it says nothing.
    """

    query: str
    count: int | None
    low: float | None
    high: float | None
    urls: tuple[Measured, ...] | None
    next_queries: tuple[Measured, ...] | None
    share: float | None = None
    unclicked: Measured | None = None


def look_up(release: Release, query: str, limit: int = 10) -> About | None:
    """Give a query's count or share, its URLs and what people searched for next, as released; None if it is not there.

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
    clicks, following = _rows(release, "clicks", "url", name), _rows(release, "reformulations", "next_query", name)
    pages = None if clicks is None else tuple(row for row in clicks if row.name)
    return About(
        name,
        *queries.numbers(place),
        pages if pages is None else pages[:limit],
        following if following is None else following[:limit],
        queries.share(place),
        next((row for row in clicks or () if not row.name), None),
    )


def _rows(release: Release, table_name: str, column: str, query: str) -> tuple[Measured, ...] | None:
    if table_name not in release.tables:
        return None
    table = release.tables[table_name]
    numbers = row_numbers(table)
    names = table[column].to_pylist()
    rows = [
        Measured(names[index], *numbers.told(index), numbers.share(index))
        for index, other in enumerate(table["query"].to_pylist())
        if other == query
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.count or row.share or 0), row.name)))
