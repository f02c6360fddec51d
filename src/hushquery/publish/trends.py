"""Find the most frequent queries of a release, and what changed between releases.

The interval of a change follows from the two intervals given publication. Releases draw their noise independently, so
distances to the ends combine by the root of the sum of squares; where reports are memoised, or the same people drawn
twice, the errors go the same way and the interval is on the safe side. Of 1,000 unchanged queries about 50 seem changed
at 95%: ``bonferroni`` divides the chance of a miss by the number of looks (O. J. Dunn, JASA 56(293), 1961). A missing
query was below the threshold, which is not zero: no change is computed, only how many it had at most.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hushquery import plot
from hushquery.errors import DataError, UsageError
from hushquery.publish.periods import PeriodTrends, checked_level, is_of_clients, period_chart, period_trends
from hushquery.publish.tables import Queries, Rows, Shown, checked_limit, queries_of
from hushquery.release.intervals import change_ends
from hushquery.release.series import check_same_people

if TYPE_CHECKING:
    import altair

    from hushquery.release import Release

__all__ = ["Change", "Listed", "Top", "Trends", "query_trends", "trend_chart", "trends"]

# A query that is missing had more than is said with a chance of one in twenty at most.
_MISSING_LEVEL = 0.95

# What makes the numbers of two releases differ although nothing changed.
_COMPARABLE = ("queries_per_user", "clicks_per_user", "keep", "selector", "records_per_user", "mode", "robust")

_NO_ROWS: Rows[Any] = Rows()

_NOISY = {
    "count": "Counts are noisy, and capped: each person adds only a limited number of searches.",
    "share": "Shares are noisy, and of records: each person takes part with a limited number of them.",
}
_MISSING = {
    "count": "A query missing in a release was below the threshold then, which is not zero. Where it says at most, one "
    "with more would have been missing with a chance of 5% or less.",
    "share": "A query missing in a release was not on its head list then, which is not zero.",
}
_RELISTED = (
    "Of some queries other pages are listed than before: their shares are sums over different pages, and the "
    "difference says nothing."
)


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
    """How a query changed from the first release to the last; ``counts`` and ``shares`` are None where not released.

    A change is ``significant`` if its interval leaves out zero and it is not ``relisted``: a share sums over listed
    pages, so with other pages the difference is no change of what people did.
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
    """A query that is in the first release or in the last, not in both, with its numbers as in :class:`Change`."""

    query: str
    counts: tuple[int | None, ...]
    shares: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Trends(Shown):
    """What is frequent in the last release, and what changed since the first, the surest changes first.

    ``appeared`` and ``gone`` were below the threshold once. ``level`` is corrected for many looks. ``most_missing`` is
    how many a query that is not in a release had at most, at 95%; None where unknown.
    """

    top: Rows[Top]
    changes: Rows[Change] = _NO_ROWS
    appeared: Rows[Listed] = _NO_ROWS
    gone: Rows[Listed] = _NO_ROWS
    compared: int = 0
    level: float = 0.95
    notes: tuple[str, ...] = ()
    measure: Literal["count", "share"] = "count"
    most_missing: tuple[int | None, ...] = ()


def trends(
    releases: Release | Sequence[Release],
    limit: int = 20,
    *,
    level: float | None = None,
    bonferroni: bool = False,
    same_devices: float = 0.0,
) -> Trends | PeriodTrends:
    """Return what changed between releases: of queries :func:`query_trends`, of a task's periods its series.

    ``same_devices`` declares which share of devices gives the same answer in a period and in the next. ``level`` is by
    default 0.95, or that of the periods' own intervals.
    """
    several = list(releases) if isinstance(releases, Sequence) else [releases]
    if any(map(is_of_clients, several)):
        return period_trends(several, limit, level=level, bonferroni=bonferroni, same_devices=same_devices)
    if same_devices:
        raise UsageError("same_devices is for estimates from clients' reports", fix="Leave it out")
    return query_trends(several, limit, level=0.95 if level is None else level, bonferroni=bonferroni)


def query_trends(
    releases: Release | Sequence[Release], limit: int = 20, *, level: float = 0.95, bonferroni: bool = False
) -> Trends:
    """Return the most frequent queries and, for several releases (oldest first), what changed from first to last.

    Each list has at most ``limit`` rows; ``bonferroni`` makes ``level`` hold for all compared queries at once.

    >>> from hushquery.publish.example import tiny_release
    >>> result = query_trends([tiny_release(), tiny_release()], limit=1)
    >>> result.top[0].query, result.compared, result.changes[0].change, result.changes[0].significant
    ('weather leeds', 9, 0, False)
    """
    several = list(releases) if isinstance(releases, Sequence) else [releases]
    if not several:
        raise UsageError("trends need a release", fix="Give one, or several with the oldest first")
    limit, level = checked_limit(limit), checked_level(level)
    tables = [queries_of(release) for release in several]
    measure = _measure(tables)
    check_same_people(several)
    if len(several) > 1:
        before, after = (_pages(release) if measure == "share" else {} for release in (several[0], several[-1]))
        relisted = {query for query in before if query in after and before[query] != after[query]}
        return compare(tables, [r.manifest for r in several], limit, level, bonferroni=bonferroni, relisted=relisted)
    if tables[0].measured is None:
        raise DataError(
            "this release has no counts",
            why="it was made with --select-only: a list of queries without an order",
            fix="Use a release with counts; `hushquery find DIR '*'` lists the queries",
        )
    return Trends(_top(tables[0], limit), notes=(_NOISY[measure],), measure=measure)


def compare(
    tables: Sequence[Queries],
    manifests: Sequence[Mapping[str, Any]],
    limit: int,
    level: float,
    *,
    bonferroni: bool,
    relisted: Collection[str] = (),
) -> Trends:
    """Compare the first with the last of several tables; shares of ``relisted`` names sum over other pages."""
    first, last = tables[0], tables[-1]
    measure = _measure(tables)
    both = [name for name in last.names if name in first.by_name]
    used = 1 - (1 - level) / max(1, len(both)) if bonferroni else level
    changes = _changes(tables, both, used, relisted)
    notes = [_NOISY[measure], *([_RELISTED] if any(change.relisted for change in changes) else []), _MISSING[measure]]
    if first.measured is None or last.measured is None:
        notes.append("A release without counts (--select-only) is among them: only what appeared and went is known.")
    elif both and not bonferroni:
        notes.append(
            f"At {100 * level:g}% per query, about {(1 - level) * len(both):.2g} of {len(both):,} unchanged queries "
            "are marked as changed by chance; --bonferroni corrects for that."
        )
    chosen = [manifest.get("parameters") or {} for manifest in (manifests[0], manifests[-1])]
    differ = [name for name in _COMPARABLE if chosen[0].get(name) != chosen[1].get(name)]
    if differ:
        notes.append(f"The releases were made with different {', '.join(differ)}: their numbers are not alike.")
    appeared = [Listed(name, *_series(tables, name, measure)) for name in last.names if name not in first.by_name]
    gone = [Listed(name, *_series(tables, name, measure)) for name in first.names if name not in last.by_name]
    return Trends(
        _top(last, limit),
        Rows(changes[:limit]),
        Rows(sorted(appeared, key=lambda row: (-((row.shares or row.counts)[-1] or 0), row.query))[:limit]),
        Rows(sorted(gone, key=lambda row: (-((row.shares or row.counts)[0] or 0), row.query))[:limit]),
        len(both),
        used,
        tuple(notes),
        measure,
        tuple(None if t.measured is None else t.measured.most_missing(_MISSING_LEVEL) for t in tables),
    )


def _measure(tables: Sequence[Queries]) -> Literal["count", "share"]:
    measures = {table.measure for table in tables} - {None}
    if len(measures) > 1:
        raise DataError(
            "a release of counts can't be compared with a release of shares",
            why="a count depends on how many people there are, a share does not",
            fix="Compare releases of one kind: curator with curator, hybrid with hybrid",
        )
    return "share" if "share" in measures else "count"


def _top(queries: Queries, limit: int) -> Rows[Top]:
    measured = queries.measured
    if measured is None:
        return Rows()
    places = enumerate(queries.ranked[:limit], 1)
    return Rows(Top(rank, queries.names[i], *measured.row(i), measured.share(i)) for rank, i in places)


def _pages(release: Release) -> dict[str, set[str]]:
    """Return the listed pages of each query."""
    pages: dict[str, set[str]] = {}
    if (table := release.tables.get("clicks")) is not None:
        for query, url in zip(table["query"].to_pylist(), table["url"].to_pylist(), strict=True):
            pages.setdefault(query, set()).add(url)
    return pages


def _changes(tables: Sequence[Queries], names: Sequence[str], level: float, relisted: Collection[str]) -> list[Change]:
    first, last = tables[0].measured, tables[-1].measured
    if first is None or last is None:
        return []
    whole = first.measure == "count"
    before, after = first.ends(level), last.ends(level)
    rows = []
    for name in names:
        i, j = tables[0].by_name[name], tables[-1].by_name[name]
        difference = float(last.value[j] - first.value[i])
        change = int(difference) if whole else difference
        stderr = math.hypot(first.stderr[i], last.stderr[j])
        low, high = change_ends(before[i], after[j], whole=whole)
        counts, shares = _series(tables, name, first.measure)
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
    """Return the counts of a query, or its shares, release by release; the other of the two is empty."""
    places = [table.by_name.get(name) for table in tables]
    if measure == "count":
        return tuple(None if i is None else t.numbers(i)[0] for t, i in zip(tables, places, strict=True)), ()
    return (), tuple(None if i is None else t.share(i) for t, i in zip(tables, places, strict=True))


def trend_chart(
    result: Trends | PeriodTrends, releases: Sequence[Release] = ()
) -> altair.LayerChart | altair.FacetChart:
    """Draw the most frequent queries of one release with their intervals, or the surest changes over all releases.

    Of a task's periods all are drawn, and missing ones are gaps.
    """
    if isinstance(result, PeriodTrends):
        return period_chart(result)
    if len(releases) > 1 and result.changes:
        return plot.trend(releases, [change.query for change in result.changes])
    if not result.top:
        raise DataError("there is nothing to draw", why="the releases have no counts to compare", fix="Use others")
    if len(releases) > 1:
        return plot.trend(releases, [row.query for row in result.top])
    rows = [{"label": row.query, "value": row.value, "low": row.low, "high": row.high} for row in result.top]
    return plot.intervals(rows, f"noisy {result.measure} with its interval", per_cent=result.measure == "share")
