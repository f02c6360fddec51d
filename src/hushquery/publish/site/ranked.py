"""The rows of the trends page: what is frequent, how it changed since the last release, and how it went before that.

Queries and records are compared by the same rule, :func:`hushquery.publish.trends.trends`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hushquery.publish.tables import Queries, queries_of
from hushquery.publish.trends import Change, Trends, trends
from hushquery.release import Release

__all__ = ["Ranked", "Row", "ranked_queries", "ranked_records"]


@dataclass(frozen=True)
class Row:
    """One query, or one record, of the latest release.

    Attributes:
        key: The query; for a record also the URL.
        value: Its count or share; None where only the list was released.
        low: The lower end of its interval.
        high: The upper end.
        series: Its number in each release, oldest first; None where it was not released.
        change: Since the release before; None where there is none, or it was not in it.
        most_before: How many it had at most in the release before, if it was not in it and that is known.
    """

    key: tuple[str, ...]
    value: float | None
    low: float | None
    high: float | None
    series: tuple[float | None, ...]
    change: Change | None
    most_before: int | None = None

    @property
    def relisted(self) -> bool:
        """Whether other pages of the query were listed then: the difference is then no change of its own."""
        return self.change is not None and self.change.relisted

    @property
    def sure(self) -> bool:
        """Whether it changed by more than noise, and for no other reason than what people did."""
        return self.change is not None and self.change.significant


@dataclass(frozen=True)
class Ranked:
    """The most frequent rows, the highest first.

    Attributes:
        rows: As many as were asked for.
        moved: Those that surely changed, the surest first, wherever they rank.
        released: How many there are in all.
        found: What comparing the last two releases found; None where there is nothing to compare.
    """

    rows: tuple[Row, ...] = ()
    moved: tuple[Row, ...] = ()
    released: int = 0
    found: Trends | None = None


def ranked_queries(releases: Sequence[Release], level: float, most: int) -> Ranked:
    """Rank the queries of the last release and compare them with those of the one before.

    Args:
        releases: The releases, oldest first.
        level: The coverage of all intervals of changes together.
        most: How many rows to give.
    """
    return _ranked(releases, level, most, lambda name: (name,), lambda _: True)


def ranked_records(releases: Sequence[Release], level: float, most: int) -> Ranked:
    """Do the same for (query, URL) records; a release without clicks has none."""
    if "clicks" not in releases[-1].tables:
        return Ranked()
    clicked = [release for release in releases if "clicks" in release.tables]
    # Clicks of a query that was not released were not counted: of those nothing is known.
    asked = set(clicked[-2].tables["queries"]["query"].to_pylist()) if len(clicked) > 1 else set()
    known = [_records_as_queries(release) for release in clicked]
    return _ranked(known, level, most, lambda name: tuple(json.loads(name)), lambda key: key[0] in asked)


def _records_as_queries(release: Release) -> Release:
    """Let one text stand for query and URL, from which both can be read again."""
    table = release.tables["clicks"]
    both = zip(table["query"].to_pylist(), table["url"].to_pylist(), strict=True)
    keys = pa.array([json.dumps(pair, ensure_ascii=False) for pair in both], pa.string())
    numbers = {name: table[name] for name in table.column_names if name not in ("query", "url")}
    # The noise of the clicks is now that of the table called queries.
    steps = [_renamed(ran) for ran in release.manifest.get("steps", ())]
    manifest = {**release.manifest, "steps": steps}
    return Release({"queries": pa.table({"query": keys, **numbers})}, release.guarantees, manifest)


def _renamed(ran: Mapping[str, Any]) -> dict[str, Any]:
    names = {"clicks": "queries", "queries": ""}
    parameters = dict(ran["parameters"])
    if "table" in parameters:
        parameters["table"] = names.get(parameters["table"], parameters["table"])
    return {**ran, "parameters": parameters}


def _ranked(
    releases: Sequence[Release],
    level: float,
    most: int,
    read: Callable[[str], tuple[str, ...]],
    counted_before: Callable[[tuple[str, ...]], bool],
) -> Ranked:
    tables = [queries_of(release) for release in releases]
    names, found = _by_number(tables[-1]), None
    if len(releases) > 1 and names:
        every = max(len(table.names) for table in tables)
        found = trends(releases[-2:], every, level=level, bonferroni=True)
    changes = {change.query: change for change in found.changes} if found else {}
    limit = found.most_missing[0] if found else None

    def row(name: str) -> Row:
        key = read(name)
        missing = found is not None and name not in tables[-2].by_name
        return _row(tables, name, key, changes, limit if missing and counted_before(key) else None)

    def rows(chosen: Iterable[str]) -> tuple[Row, ...]:
        return tuple(map(row, chosen))

    moved = [row for row in rows(name for name, change in changes.items() if change.significant) if row.sure]
    return Ranked(rows(names[:most]), tuple(moved), len(names), found)


def _by_number(queries: Queries) -> list[str]:
    measured = queries.measured
    if measured is None:
        return queries.names
    order = sorted(range(len(queries.names)), key=lambda i: (-measured.value[i], queries.names[i]))
    return [queries.names[i] for i in order]


def _row(
    tables: Sequence[Queries],
    name: str,
    key: tuple[str, ...],
    changes: Mapping[str, Change],
    most_before: int | None,
) -> Row:
    series = tuple(_value(table, name) for table in tables)
    _, low, high = tables[-1].numbers(tables[-1].by_name[name])
    return Row(key, series[-1], low, high, series, changes.get(name), most_before)


def _value(queries: Queries, name: str) -> float | None:
    place = queries.by_name.get(name)
    return None if place is None or queries.measured is None else float(queries.measured.value[place])
