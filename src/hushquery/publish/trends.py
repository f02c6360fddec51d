"""Trends: the most frequent queries of a release, and what changed between releases.

The change of a query is the difference of two noisy counts, or of two shares. Its interval follows from the two
intervals given publication: a count that was shown because it reached a threshold may have been far below, and so may
the change. Releases draw their noise independently, so distances to the ends combine by the root of the sum of their
squares (:func:`hushquery.release.intervals.change_ends`). Where clients answered both times with a memoised report,
or the same people were drawn twice, the two errors go the same way, and the interval is on the safe side.

Looking at many queries makes some intervals miss zero by chance: of 1,000 unchanged queries, about 50 at a level of
95%. ``bonferroni`` divides the chance of a miss by the number of looks.

A query that is missing in a release was below the threshold then. That is not zero, so no change is computed; what is
known is how many it had at most, because a query with more would seldom be missing.

References:
    O. J. Dunn, Multiple comparisons among means, JASA 56(293), 1961.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hushquery.errors import DataError, UsageError
from hushquery.publish.tables import Queries, checked_limit, queries_of
from hushquery.release.intervals import change_ends

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["Change", "Listed", "Top", "Trends", "trends"]

# A query that is missing had more than is said with a chance of one in twenty at most.
_MISSING_LEVEL = 0.95

# What makes the numbers of two releases differ although nothing changed.
_COMPARABLE = ("queries_per_user", "clicks_per_user", "keep", "selector", "records_per_user", "mode", "robust")


@dataclass(frozen=True)
class Top:
    """One of the most frequent queries, with its noisy count or share (the other is None) and interval as released."""

    rank: int
    query: str
    count: int | None
    low: float
    high: float
    share: float | None = None

    @property
    def value(self) -> float:
        """The count or the share."""
        return self.share if self.share is not None else self.count or 0


@dataclass(frozen=True)
class Change:
    """How the count or the share of a query changed from the first release to the last.

    Attributes:
        query: The query.
        counts: Its noisy count in each release; None where it was below the threshold. Empty for shares.
        change: The last count or share less the first.
        stderr: The standard error of the change.
        low: The lower end of the interval of the change.
        high: The upper end.
        significant: Whether the interval leaves out zero, and the two numbers are of the same pages.
        shares: Its share in each release; None where it was not on the head list. Empty for counts.
        relisted: Whether the last release lists other pages of the query than the first. The share of a query is the
            sum over its listed pages, so the difference is then no change of what people did.
    """

    query: str
    counts: tuple[int | None, ...]
    change: float
    stderr: float
    low: float
    high: float
    significant: bool
    shares: tuple[float | None, ...] = ()
    relisted: bool = False


@dataclass(frozen=True)
class Listed:
    """A query that is in the first release or in the last, not in both; None where it was not released.

    ``counts`` is empty for releases of shares, ``shares`` for releases of counts.
    """

    query: str
    counts: tuple[int | None, ...]
    shares: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Trends:
    """What is frequent, and what changed.

    Attributes:
        top: The most frequent queries of the last release.
        changes: Queries in the first and the last release, the surest changes first.
        appeared: Queries that were below the threshold in the first release, the most frequent first.
        gone: Queries that are below the threshold in the last release.
        compared: How many queries are in both.
        level: The coverage of the intervals of changes, after the correction for many looks.
        notes: What a reader has to know.
        measure: Whether all of this is about counts or about shares.
        most_missing: Of each release, how many a query that is not in it had at most, at 95%; None where nobody knows.
    """

    top: tuple[Top, ...]
    changes: tuple[Change, ...] = ()
    appeared: tuple[Listed, ...] = ()
    gone: tuple[Listed, ...] = ()
    compared: int = 0
    level: float = 0.95
    notes: tuple[str, ...] = ()
    measure: Literal["count", "share"] = "count"
    most_missing: tuple[int | None, ...] = ()


def trends(
    releases: Release | Sequence[Release], limit: int = 20, *, level: float = 0.95, bonferroni: bool = False
) -> Trends:
    """Return the most frequent queries, and with several releases what changed from the first to the last.

    Args:
        releases: One release, or several, the oldest first.
        limit: How many rows of each kind to give at most.
        level: The coverage of the interval of a change.
        bonferroni: Make the level hold for all compared queries at once.

    Raises:
        DataError: A release of counts can't be compared with one of shares, nor a list without numbers looked at alone.

    >>> from hushquery.publish.example import tiny_release
    >>> found = trends([tiny_release(), tiny_release()], limit=1)
    >>> found.top[0].query, found.compared, found.changes[0].change, found.changes[0].significant
    ('weather leeds', 9, 0, False)
    """
    several = list(releases) if isinstance(releases, Sequence) else [releases]
    if not several:
        raise UsageError("trends need a release", fix="Give one, or several with the oldest first")
    limit = checked_limit(limit)
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Give for example 0.95")
    tables = [queries_of(release) for release in several]
    counted = [table.measured is not None for table in tables]
    measure = _measure(tables)
    if not any(counted) and len(several) == 1:
        raise DataError(
            "this release has no counts",
            why="it was made with --select-only: a list of queries without an order",
            fix="Use a release with counts; `hushquery find DIR '*'` lists the queries",
        )
    notes = [_NOISY[measure]]
    if len(several) == 1:
        return Trends(_top(tables[0], limit), notes=tuple(notes), measure=measure)
    first, last = tables[0], tables[-1]
    both = [name for name in last.names if name in first.by_name]
    used = 1 - (1 - level) / max(1, len(both)) if bonferroni else level
    relisted = _relisted(several[0], several[-1]) if measure == "share" else set()
    changes = _changes(tables, both, used, relisted) if counted[0] and counted[-1] else []
    if any(change.relisted for change in changes):
        notes.append(
            "Of some queries other pages are listed than before: their shares are sums over different pages, and the "
            "difference says nothing."
        )
    missing = tuple(_most_missing(table) for table in tables)
    notes += [_MISSING[measure], *_warnings(several, counted, len(both), level, bonferroni)]
    appeared = [Listed(name, *_series(tables, name, measure)) for name in last.names if name not in first.by_name]
    gone = [Listed(name, *_series(tables, name, measure)) for name in first.names if name not in last.by_name]
    return Trends(
        _top(last, limit) if counted[-1] else (),
        tuple(changes[:limit]),
        tuple(sorted(appeared, key=lambda row: (-((row.shares or row.counts)[-1] or 0), row.query))[:limit]),
        tuple(sorted(gone, key=lambda row: (-((row.shares or row.counts)[0] or 0), row.query))[:limit]),
        len(both),
        used,
        tuple(notes),
        measure,
        missing,
    )


_NOISY = {
    "count": "Counts are noisy, and capped: each person adds only a limited number of searches.",
    "share": "Shares are noisy, and of records: each person takes part with a limited number of them.",
}
_MISSING = {
    "count": "A query missing in a release was below the threshold then, which is not zero. Where it says at most, one "
    "with more would have been missing with a chance of 5% or less.",
    "share": "A query missing in a release was not on its head list then, which is not zero.",
}


def _measure(tables: Sequence[Queries]) -> Literal["count", "share"]:
    found = {table.measure for table in tables if table.measure is not None}
    if len(found) > 1:
        raise DataError(
            "a release of counts can't be compared with a release of shares",
            why="a count depends on how many people there are, a share does not",
            fix="Compare releases of one kind: curator with curator, hybrid with hybrid",
        )
    return "share" if "share" in found else "count"


def _most_missing(table: Queries) -> int | None:
    known = table.measured.published if table.measured is not None else None
    return None if known is None else known.most_missing(_MISSING_LEVEL)


def _top(queries: Queries, limit: int) -> tuple[Top, ...]:
    measured = queries.measured
    if measured is None:
        return ()
    order = sorted(range(len(queries.names)), key=lambda i: (-measured.value[i], queries.names[i]))
    return tuple(
        Top(rank, queries.names[i], *measured.told(i), measured.share(i)) for rank, i in enumerate(order[:limit], 1)
    )


def _relisted(first: Release, last: Release) -> set[str]:
    """Give the queries of which two releases list different pages, where a query is the sum of its pages."""
    before, after = _pages(first), _pages(last)
    return {query for query in before if query in after and before[query] != after[query]}


def _pages(release: Release) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    if (table := release.tables.get("clicks")) is not None:
        for query, url in zip(table["query"].to_pylist(), table["url"].to_pylist(), strict=True):
            found.setdefault(query, set()).add(url)
    return found


def _changes(tables: Sequence[Queries], names: Sequence[str], level: float, relisted: Collection[str]) -> list[Change]:
    first, last = tables[0], tables[-1]
    if first.measured is None or last.measured is None:
        return []
    if first.measured.published is None or last.measured.published is None:
        return []
    measure, whole = first.measured.measure, first.measured.measure == "count"
    before, after = first.measured.published.ends(level), last.measured.published.ends(level)
    rows = []
    for name in names:
        i, j = first.by_name[name], last.by_name[name]
        difference = float(last.measured.value[j] - first.measured.value[i])
        change = int(difference) if whole else difference
        stderr = math.hypot(first.measured.stderr[i], last.measured.stderr[j])
        low, high = change_ends(before[i], after[j], whole=whole)
        counts, shares = _series(tables, name, measure)
        other = name in relisted
        sure = (low > 0 or high < 0) and not other
        rows.append(Change(name, counts, change, stderr, low, high, sure, shares, other))
    return sorted(rows, key=lambda row: (-_significance(row), row.query))


def _significance(row: Change) -> float:
    """Return how far the middle of the interval is from zero, in half widths: above one where zero is outside."""
    middle, width = (row.low + row.high) / 2, (row.high - row.low) / 2
    return abs(middle) / width if width > 0 else math.inf if middle else 0.0


def _series(
    tables: Sequence[Queries], name: str, measure: str
) -> tuple[tuple[int | None, ...], tuple[float | None, ...]]:
    """Give the counts of a query, or its shares, release by release; the other of the two is empty."""
    places = [table.by_name.get(name) for table in tables]
    if measure == "count":
        return tuple(None if i is None else t.numbers(i)[0] for t, i in zip(tables, places, strict=True)), ()
    return (), tuple(None if i is None else t.share(i) for t, i in zip(tables, places, strict=True))


def _warnings(
    releases: Sequence[Release], counted: Sequence[bool], looks: int, level: float, bonferroni: bool
) -> list[str]:
    notes = []
    if not (counted[0] and counted[-1]):
        notes.append("A release without counts (--select-only) is among them: only what appeared and went is known.")
    elif looks and not bonferroni:
        notes.append(
            f"At {100 * level:g}% per query, about {(1 - level) * looks:.2g} of {looks:,} unchanged queries are marked "
            "as changed by chance; --bonferroni corrects for that."
        )
    chosen: list[Mapping[str, object]] = [
        release.manifest.get("parameters") or {} for release in (releases[0], releases[-1])
    ]
    differ = [name for name in _COMPARABLE if chosen[0].get(name) != chosen[1].get(name)]
    if differ:
        notes.append(f"The releases were made with different {', '.join(differ)}: their numbers are not alike.")
    return notes
