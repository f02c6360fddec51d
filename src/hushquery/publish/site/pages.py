"""Compute what the pages of a site show: trends, the ledger over time, and what it all costs in privacy.

Each population has its own chart and scale; nothing is added up across populations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from hushquery.errors import UsageError
from hushquery.publish.tables import Queries, queries_of
from hushquery.publish.trends import Change, Trends, compare, query_trends
from hushquery.release import Release
from hushquery.release.intervals import published
from hushquery.release.manifest import REST, release_measure
from hushquery.release.page import compared, in_numbers, limits, promise, two_promises
from hushquery.release.series import spoken, together
from hushquery.templates import number, percent

# All changes of a table together miss zero by chance in one of twenty releases.
_LEVEL = 0.95
_MOVERS = 5
_GONE = 20
_GROUPS = 10

# What a person gives, by the kind of task.
_GIVES = {
    "searches": "what they search for and which result they choose",
    "setting": "the value of one setting",
    "number": "one number",
    "text": "one text",
}
# What a page says where the client would send nothing.
_REFUSED = {
    "number": "A device reports whole numbers in this range only: nothing would be sent.",
    "text": "A device reports texts of one line, not empty and not too long: nothing would be sent.",
}
_NOT_LISTED = "This value is not on the list, and the task takes no others: nothing would be sent."

# The chart of the ledger: its heights, what a telephone has room for, and what a row of the ledger has.
_HEIGHT, _TOP, _BOTTOM = 130, 24, 24
_LABELS = 6
_MOST_BARS = 52
_COLUMNS = ("time", "account", "period", "what", "spent_epsilon", "budget_epsilon")
_OPENED = "account opened"


# ---- trends ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A query or (query, URL) record of the latest release; ``most_before`` bounds it if the one before lacks it."""

    key: tuple[str, ...]
    low: float | None
    high: float | None
    series: tuple[float | None, ...]
    change: Change | None
    most_before: int | None


@dataclass(frozen=True)
class Ranked:
    """The most frequent rows, those that surely changed, and how many were released; ``trends`` of the last two."""

    rows: tuple[Row, ...] = ()
    moved: tuple[Row, ...] = ()
    released: int = 0
    trends: Trends | None = None


def ranked_queries(releases: Sequence[Release], most: int) -> Ranked:
    """Rank the queries of the last release and compare them with those of the one before; return at most so many."""
    tables = [queries_of(release) for release in releases]
    changes = None
    if len(tables) > 1 and tables[-1].names:
        changes = query_trends(releases[-2:], max(len(table.names) for table in tables), level=_LEVEL, bonferroni=True)
    return _ranked(tables, changes, most, lambda name: (name,), lambda _: True)


def ranked_records(releases: Sequence[Release], most: int) -> Ranked:
    """Do the same for (query, URL) records; a release without clicks has none."""
    if "clicks" not in releases[-1].tables:
        return Ranked()
    clicked = [release for release in releases if "clicks" in release.tables]
    tables, changes, counted = [_records_of(release) for release in clicked], None, set()
    if len(tables) > 1 and tables[-1].names:
        every, manifests = max(len(table.names) for table in tables), [release.manifest for release in clicked[-2:]]
        changes = compare(tables[-2:], manifests, every, _LEVEL, bonferroni=True)
        # Clicks of a query that was not released were not counted: of those nothing is known.
        counted = set(clicked[-2].tables["queries"]["query"].to_pylist())
    return _ranked(tables, changes, most, lambda name: tuple(json.loads(name)), lambda key: key[0] in counted)


def _records_of(release: Release) -> Queries:
    """Return the clicks of a release by one text for query and URL, from which both can be read again."""
    table = release.tables["clicks"]
    both = zip(table["query"].to_pylist(), table["url"].to_pylist(), strict=True)
    names = [json.dumps(pair, ensure_ascii=False) for pair in both]
    return Queries(names, published(table, "clicks", release.manifest))


def _ranked(
    tables: Sequence[Queries],
    compared_last: Trends | None,
    most: int,
    read: Callable[[str], tuple[str, ...]],
    counted_before: Callable[[tuple[str, ...]], bool],
) -> Ranked:
    last = tables[-1]
    changes = {change.query: change for change in compared_last.changes} if compared_last else {}
    at_most = compared_last.most_missing[0] if compared_last else None

    def row(name: str) -> Row:
        key, places = read(name), [table.by_name.get(name) for table in tables]
        series = tuple(
            None if at is None or table.measured is None else float(table.measured.value[at])
            for table, at in zip(tables, places, strict=True)
        )
        missing = compared_last is not None and places[-2] is None and counted_before(key)
        _, low, high = last.numbers(last.by_name[name])
        return Row(key, low, high, series, changes.get(name), at_most if missing else None)

    moved = tuple(row(name) for name, change in changes.items() if change.significant)
    return Ranked(tuple(row(last.names[i]) for i in last.ranked[:most]), moved, len(last.names), compared_last)


def trends_page(releases: Sequence[Release], names: Sequence[str], most: int) -> dict[str, Any]:
    """Return what ``trends.html`` shows of releases, oldest first: at most so many queries, and as many records."""
    last = releases[-1]
    measure = release_measure(last.tables)
    queries = ranked_queries(releases, most)
    grouped = "records" in last.tables and last.tables["records"].num_rows
    return {
        "manifest": last.manifest,
        "measure": measure or "count",
        "numbered": measure is not None,
        "before": spoken(names[-2]) if len(names) > 1 else "",
        "level": f"{100 * float(last.manifest['interval_level']):g}",
        "rest": last.manifest["parameters"].get(REST),
        "queries": _table(queries, measure),
        "records": _table(ranked_records(releases, most), measure),
        "clicks": last.tables["clicks"].num_rows if "clicks" in last.tables else None,
        "gone": _gone(queries.trends),
        "groups": compared(last.tables, _GROUPS) if grouped else None,
        "limits": [*_notes(queries), *limits(last)],
    }


def _table(ranked: Ranked, measure: str | None) -> dict[str, Any]:
    rows = ranked.rows
    top = max((row.high or 0.0 for row in rows), default=1.0) or 1.0
    moved = [table_row(row, measure, top) for row in ranked.moved if row.change is not None and row.change.change]
    return {
        "rows": [table_row(row, measure, top) for row in rows],
        "released": ranked.released,
        "numbered": bool(rows) and rows[0].series[-1] is not None,
        "several": bool(rows) and len(rows[0].series) > 1,
        "moved": len(ranked.moved) if ranked.trends else None,
        "new": len(ranked.trends.appeared) if ranked.trends else 0,
        "compared": ranked.trends.compared if ranked.trends else 0,
        "up": [row for row in moved if row["change"]["up"]][:_MOVERS],
        "down": [row for row in moved if not row["change"]["up"]][:_MOVERS],
    }


def table_row(row: Row, measure: str | None, top: float) -> dict[str, Any]:
    """Return a row as the macro ``ranking`` prints it; bars reach from zero to ``top``."""
    value, low, high = row.series[-1] or 0.0, row.low or 0.0, row.high or 0.0
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
        "sure": change is not None and change.significant,
        "relisted": change is not None and change.relisted,
        "change": change
        and {"value": change.change, "up": change.change > 0, "said": _points(change.change, measure)}
        | {"low": _points(change.low, measure), "high": _points(change.high, measure)},
    }


def _points(value: float, measure: str | None) -> str:
    """Print a change with its sign; that of a share in points, with two digits where they say something."""
    if measure != "share":
        text = number(value)
    else:
        text = f"{100 * value:.2f}".replace("-", "−") if abs(value) >= 5e-5 else percent(value).removesuffix("%")
    return text if text.startswith("−") or value <= 0 else f"+{text}"


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


def _gone(changes: Trends | None) -> dict[str, Any] | None:
    if changes is None or not changes.gone:
        return None
    rows = [(row.query, (row.shares or row.counts)[0] or 0) for row in changes.gone[:_GONE]]
    return {"many": len(changes.gone), "rows": rows, "most": changes.most_missing[-1]}


def _notes(queries: Ranked) -> list[str]:
    changes = queries.trends
    if changes is None or not changes.compared:
        return []
    notes = [
        f"A change is called sure where its interval leaves out zero at a level at which all {changes.compared:,} "
        f"comparisons together hold in {100 * _LEVEL:g} of 100 cases."
    ]
    if any(row.change is not None and row.change.relisted for row in queries.rows):
        notes.append(
            "Of some queries other pages are listed than before. Their shares are sums over different pages, so that "
            "the difference may not be a change in what people search for."
        )
    return notes + [note for note in changes.notes if "made with different" in note]


# ---- privacy ---------------------------------------------------------------------------------------------------------


def checked_task(privacy: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the task that clients of the latest release run, as a collector serves it, or None; refuse half of one."""
    task = privacy.get("task")
    if task is None:
        return None
    if not isinstance(task, Mapping) or not {"id", "task", "configuration"} <= set(task):
        raise UsageError("the task of a site is incomplete", fix="Give its id, task and configuration, as served")
    return task if task["configuration"] is not None else None


def privacy_page(releases: Sequence[Release], names: Sequence[str], privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``privacy.html`` shows; ``privacy`` is what :func:`hushquery.publish.site.build_site` takes."""
    last, task = releases[-1], checked_task(privacy)
    asked = {} if task is None else task["task"]
    kind = "" if task is None else str(asked["task"]["kind"])
    each = last.manifest["parameters"].get("records_per_user")
    whole = together(releases)
    return {
        "facts": list(last.description.facts()),
        "signed": last.signature.fingerprint if last.signature else "",
        "together": [promise(replace(guarantee, steps=()), {"steps": ()}) for guarantee in whole],
        "in_all": {guarantee.population: in_numbers(guarantee) for guarantee in whole},
        "promises": [promise(guarantee, last.manifest) for guarantee in last.guarantees],
        "two_promises": two_promises(last.guarantees),
        "kind": kind,
        "highest": asked["task"]["highest"] if kind == "number" else 0,
        "refused": _REFUSED.get(kind, _NOT_LISTED),
        "precision": asked["collect"]["time_precision"] if asked else 0,
        "each": asked["client"]["records_per_user"] if asked else 1,
        "periodic": not asked or asked["task"]["period"] is not None,
        "costs": None,
        "gives": _GIVES.get(kind or "searches", "one value"),
        "records_each": each if isinstance(each, int) and each > 1 else 0,
        "accounts": ledger_charts(privacy.get("ledger") or (), privacy.get("accounts") or ()),
        "people": list(dict.fromkeys(g.population for release in releases for g in release.guarantees)),
        "history": [
            {"name": name, "created": release.manifest["created"]}
            | {"promised": {guarantee.population: in_numbers(guarantee) for guarantee in release.guarantees}}
            for release, name in zip(releases, names, strict=True)
        ],
    }


# ---- the ledger over time --------------------------------------------------------------------------------------------


def epsilon_text(value: float, *, up: bool = True) -> str:
    """Print an epsilon with three digits: what was spent is rounded up, what may be spent is rounded down."""
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return f"{Context(prec=3, rounding=rounding).create_decimal(repr(float(value))).normalize():f}"


def ledger_charts(
    rows: Sequence[Mapping[str, Any]], accounts: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return what the macro ``ledger`` draws of each account, from :meth:`Ledger.over_time` and accounts as JSON."""
    for given in (rows, accounts):
        if not isinstance(given, Sequence) or not all(isinstance(row, Mapping) for row in given):
            raise UsageError("the ledger of a site is a list of rows", fix="Give what Ledger.over_time() gives")
    by_account: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        _check(row)
        by_account.setdefault(str(row["account"]), []).append(row)
    lives = {f"{account.get('population')} ({account.get('relation')})": account for account in accounts}
    return [_account(name, entries, lives.get(name, {})) for name, entries in by_account.items()]


def _check(row: Mapping[str, Any]) -> None:
    spent, budget = row.get("spent_epsilon"), row.get("budget_epsilon")
    good = set(_COLUMNS) <= set(row) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        for value in (0 if spent is None else spent, budget)
    )
    try:
        _when(row)
    except (ValueError, KeyError):
        good = False
    if not good:
        why = f"each has {', '.join(_COLUMNS)}"
        raise UsageError("a row of the ledger can't be shown", why=why, fix="Give what Ledger.over_time() gives")


def _when(row: Mapping[str, Any]) -> datetime:
    time = datetime.fromisoformat(str(row["time"]))
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _account(name: str, rows: Sequence[Mapping[str, Any]], life: Mapping[str, Any]) -> dict[str, Any]:
    budget = float(rows[-1]["budget_epsilon"])
    periods = len({row["period"] for row in rows}) > 1
    most = max([budget, *map(_spent, rows)]) or 1.0
    limit = _y(budget, most)
    spent, left = life.get("lifetime_spent_epsilon"), life.get("lifetime_remaining_epsilon")
    lifetime = None
    if isinstance(spent, int | float) and isinstance(left, int | float):
        lifetime = {"spent": epsilon_text(spent), "left": epsilon_text(left, up=False)}
    return {
        "name": name,
        "budget": epsilon_text(budget, up=False),
        "periods": periods,
        "lifetime": lifetime,
        "height": _HEIGHT,
        "bottom": _HEIGHT - _BOTTOM,
        "limit": limit,
        "above_limit": f"{float(limit) - 7:.1f}",
        "bars": _bars(rows, most) if periods else _growth(rows, most),
        "spends": [
            {"day": _day(row), "spent": _spent_text(row), "what": row["what"]} for row in rows if row["what"] != _OPENED
        ],
    }


def _spent_text(row: Mapping[str, Any]) -> str:
    return "without bound" if row["spent_epsilon"] is None else epsilon_text(float(row["spent_epsilon"]))


def _day(row: Mapping[str, Any]) -> str:
    return _when(row).date().isoformat()


def _spent(row: Mapping[str, Any]) -> float:
    return float(row["budget_epsilon"] if row["spent_epsilon"] is None else row["spent_epsilon"])


def _y(value: float, most: float) -> str:
    return f"{_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most:.1f}"


def _bars(rows: Sequence[Mapping[str, Any]], most: float) -> list[dict[str, str]]:
    """Return a bar for what each period has spent in all: its last row."""
    periods = list({row["period"]: row for row in rows if row["what"] != _OPENED}.values())[-_MOST_BARS:]
    wide = 100 / max(4, len(periods))
    every = math.ceil(len(periods) / _LABELS)
    drawn, labelled = [], ""
    for place, row in enumerate(periods):
        left, day = place * wide, ""
        if place % every == 0 and _day(row) != labelled:
            day = labelled = _day(row)
        bar = _bar(row, most, left + 0.08 * wide, 0.84 * wide)
        drawn.append({**bar, "middle": f"{left + wide / 2:.2f}", "anchor": "middle", "day": day[5:]})
    return drawn


def _growth(rows: Sequence[Mapping[str, Any]], most: float) -> list[dict[str, str]]:
    """Return steps for how the sum has grown since the account was opened."""
    seconds = [_when(row).timestamp() for row in rows]
    # Some room behind the last spend, so that its level can be seen.
    reach = ((max(seconds) - seconds[0]) or 86400.0) * 1.25
    places = [100 * (second - seconds[0]) / reach for second in seconds]
    drawn, before, printed, labelled = [], 0.0, -100.0, ""
    for row, left, right in zip(rows, places, [*places[1:], 100.0], strict=True):
        day = ""
        if left - printed >= 100 / _LABELS and _day(row) != labelled:
            day, labelled, printed = _day(row), _day(row), left
        bar = _bar(row, most, left, max(0.0, right - left))
        label = {"middle": f"{left:.2f}", "anchor": "start" if left < 10 else "middle", "day": day[5:]}
        drawn.append({**bar, **label, "right": f"{right:.2f}", "before": _y(before, most)})
        before = _spent(row)
    return drawn


def _bar(row: Mapping[str, Any], most: float, left: float, width: float) -> dict[str, str]:
    top = _y(_spent(row), most)
    height = f"{_HEIGHT - _BOTTOM - float(top):.1f}"
    return {"left": f"{left:.2f}", "width": f"{width:.2f}", "top": top, "height": height}
