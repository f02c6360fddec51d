"""The trends page: what is frequent, what changed since the last release, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hushquery.publish.site.pages import Ranked, Row, ranked_queries, ranked_records
from hushquery.release import Release
from hushquery.release.page import compared, limits
from hushquery.release.tables import REST, release_measure
from hushquery.templates import number, percent

__all__ = ["trends_page"]

# All changes of a table together miss zero by chance in one of twenty releases.
_LEVEL = 0.95
_MOVERS = 5
_GONE = 20
_GROUPS = 10


def trends_page(releases: Sequence[Release], names: Sequence[str], most: int) -> dict[str, Any]:
    """Return what ``trends.html`` shows.

    Args:
        releases: The releases, oldest first, all of counts or all of shares.
        names: What each release is called.
        most: How many queries, and how many records, to show.
    """
    last = releases[-1]
    measure = release_measure(last.tables)
    level = float(last.manifest["interval_level"])
    queries, records = ranked_queries(releases, _LEVEL, most), ranked_records(releases, _LEVEL, most)
    return {
        "manifest": last.manifest,
        "measure": measure or "count",
        "numbered": measure is not None,
        "before": names[-2] if len(names) > 1 else "",
        "level": f"{100 * level:g}",
        "rest": last.manifest["parameters"].get(REST),
        "queries": _table(queries, measure),
        "records": _table(records, measure),
        "clicks": last.tables["clicks"].num_rows if "clicks" in last.tables else None,
        "gone": _gone(queries),
        "groups": compared(last.tables, _GROUPS) if _has_rows(last, "records") else None,
        "limits": [*_notes(queries), *limits(last.tables, level, last.guarantees)],
    }


def _has_rows(release: Release, name: str) -> bool:
    return name in release.tables and bool(release.tables[name].num_rows)


def _table(ranked: Ranked, measure: str | None) -> dict[str, Any]:
    rows = ranked.rows
    top = max((row.high or 0.0 for row in rows), default=1.0) or 1.0
    moved = [_row(row, measure, top) for row in ranked.moved if row.change is not None and row.change.change]
    return {
        "rows": [_row(row, measure, top) for row in rows],
        "released": ranked.released,
        "numbered": bool(rows) and rows[0].value is not None,
        "several": bool(rows) and len(rows[0].series) > 1,
        "moved": len(ranked.moved) if ranked.found else None,
        "up": [row for row in moved if row["change"]["up"]][:_MOVERS],
        "down": [row for row in moved if not row["change"]["up"]][:_MOVERS],
    }


def _row(row: Row, measure: str | None, top: float) -> dict[str, Any]:
    value, low, high = row.value or 0.0, row.low or 0.0, row.high or 0.0
    bar, left, right = (f"{100 * max(0.0, min(1.0, at / top)):.4g}" for at in (value, low, high))
    line, end = _line(row.series)
    change = row.change
    return {
        "query": row.key[0],
        # As browsers show it, without the scheme that nearly all have.
        "url": row.key[1].removeprefix("https://").removesuffix("/") if len(row.key) > 1 else None,
        "value": value,
        "low": low,
        "high": high,
        "bar": bar,
        "range": f"M{left} 8H{right}M{left} 5v6M{right} 5v6",
        "line": line,
        "end": end,
        "before": row.series[-2] or 0.0 if len(row.series) > 1 else None,
        "new": change is None and len(row.series) > 1 and row.series[-2] is None,
        "most_before": row.most_before,
        "sure": row.sure,
        "relisted": row.relisted,
        "change": change
        and {
            "value": change.change,
            "up": change.change > 0,
            "said": _points(change.change, measure),
            "low": _points(change.low, measure),
            "high": _points(change.high, measure),
        },
    }


def _points(value: float, measure: str | None) -> str:
    """Print a change with its sign; that of a share in points, with two digits where they say something."""
    if measure != "share":
        said = number(value)
    else:
        said = f"{100 * value:.2f}".replace("-", "−") if abs(value) >= 5e-5 else percent(value).removesuffix("%")
    return said if said.startswith("−") or value <= 0 else f"+{said}"


def _line(series: Sequence[float | None]) -> tuple[str, str]:
    """Return the numbers of all releases as a path, and where it ends; it breaks where a release lacks the row."""
    top = max(0.0, *(value or 0.0 for value in series)) or 1.0
    step = 64 / max(1, len(series) - 1)
    drawn, joined = "", False
    for place, value in enumerate(series):
        if value is not None:
            drawn += f"{'L' if joined else 'M'}{4 + place * step:.3g} {20 - 16 * max(0.0, value) / top:.3g}"
        joined = value is not None
    return drawn, f"{20 - 16 * max(0.0, series[-1] or 0.0) / top:.3g}"


def _gone(queries: Ranked) -> dict[str, Any] | None:
    if queries.found is None or not queries.found.gone:
        return None
    gone = queries.found.gone
    rows = [(row.query, (row.shares or row.counts)[0] or 0) for row in gone[:_GONE]]
    return {"many": len(gone), "rows": rows, "most": queries.found.most_missing[-1]}


def _notes(queries: Ranked) -> list[str]:
    found = queries.found
    if found is None or not found.compared:
        return []
    sure = (
        f"A change is called sure where its interval leaves out zero at a level at which all {found.compared:,} "
        f"comparisons together hold in {100 * _LEVEL:g} of 100 cases."
    )
    relisted = [
        "Of some queries other pages are listed than before. Their shares are sums over different pages, so that the "
        "difference may not be a change in what people search for."
    ]
    differ = [note for note in found.notes if "made with different" in note]
    return [sure, *(relisted if any(row.relisted for row in queries.rows) else []), *differ]
