"""``hushquery trends`` for a task's periods: each value over time, and whether its last change is noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushquery.cli.listing import listing, percent

if TYPE_CHECKING:
    from hushquery.publish.periods import Change, Period, PeriodSeries, PeriodTrends, Point
    from hushquery.release import Release

# So many periods fit on a screen; --json has all.
_SHOWN = 12
_BARS = "▁▂▃▄▅▆▇█"


def as_data(result: PeriodTrends, releases: Sequence[Release], folders: Sequence[str], limit: int) -> dict[str, Any]:
    """Return the series as plain data: every period, also the missing ones, and each value's changes."""
    named = {id(release): folder for release, folder in zip(releases, folders, strict=True)}
    series = []
    for one in result.series:
        periods = [
            {"number": p.number, "last": p.last, "began": p.label, "folder": named.get(id(p.release))}
            for p in one.periods
        ]
        since = {name: _changes(one, result, earlier) for name, earlier in _compared(one)}
        values = [
            {"value": cell, "estimates": [None if point is None else point._asdict() for point in one.values(cell)]}
            | {f"since_{name}": _plain(changes.get(cell)) for name, changes in since.items()}
            for cell in one.largest(limit)
        ]
        series.append(
            {"task": one.name, "measure": one.measure, "begins": one.begins, "level": one.level}
            | {"periods": periods, "values": values}
        )
    return {
        "series": series,
        "level": result.level,
        "bonferroni": result.bonferroni,
        "same_devices_declared": result.last.same_devices,
        "notes": list(result.notes),
    }


def as_text(result: PeriodTrends, limit: int) -> str:
    """Return a table for each series: a row per value, a column per period, and changes since two of them."""
    return "\n\n".join(_series(one, result, limit) for one in result.series)


def _compared(series: PeriodSeries) -> list[tuple[str, Period | None]]:
    """Name what the last period is compared with: the previous one, and the first where that is another."""
    return [("previous", None), *([("first", series.present[0])] if len(series.present) > 2 else [])]


def _changes(series: PeriodSeries, result: PeriodTrends, earlier: Period | None) -> Mapping[str, Change]:
    return {change.cell: change for change in result.changes_of(series, earlier)}


def _plain(change: Change | None) -> dict[str, Any] | None:
    return None if change is None else {name: value for name, value in vars(change).items() if name != "cell"}


def _series(series: PeriodSeries, result: PeriodTrends, limit: int) -> str:
    shown, dropped = series.periods[-_SHOWN:], len(series.periods) - _SHOWN
    heads = [f"{period.label} and on" if period.last > period.number else period.label for period in shown]
    if len(set(heads)) < len(heads):
        heads = [f"{place}. {head}" for place, head in enumerate(heads, 1)]
    since = [(f"since {name}", _changes(series, result, earlier)) for name, earlier in _compared(series)]
    since = [(name, changes) for name, changes in since if changes]
    rows = []
    for cell in series.largest(limit):
        points = list(zip(series.values(cell), series.periods, strict=True))[-_SHOWN:]
        row = [
            cell.replace("\t", "  "),
            _spark([point for point, _ in points]),
            *(_level(*point, series) for point in points),
        ]
        rows.append([*row, *(part for _, changes in since for part in _change(changes.get(cell), series))])
    tails = [part for name, _ in since for part in (name, "interval", "")]
    what = f"{series.name}: {series.measure} by period, {100 * series.level:g}% intervals"
    table = listing(["value", "over time", *heads, *tails], rows, [*heads, *filter(None, tails)])
    parts = (series.begins, what + (f"; {dropped:,} older periods are left out" if dropped > 0 else ""), table)
    return "\n".join(filter(None, parts))


def _number(value: float, series: PeriodSeries) -> str:
    return percent(value) if series.measure == "share" else f"{value:,.4g}"


def _level(point: Point | None, period: Period, series: PeriodSeries) -> str:
    return _number(point.estimate, series) if point else "no data" if period.missing else "not found"


def _change(change: Change | None, series: PeriodSeries) -> tuple[str, str, str]:
    if change is None:
        return "", "", "not in both"
    number = _number(change.difference, series)
    ends = f"{_number(change.low, series)} to {_number(change.high, series)}"
    return number if number.startswith("-") else f"+{number}", ends, "noise" if change.noise else "changed"


def _spark(points: Sequence[Point | None]) -> str:
    """Draw a value over time from the lowest to the highest end of its intervals, so that noise looks small."""
    known = [point for point in points if point is not None]
    low = min((point.low for point in known), default=0.0)
    reach = max((point.high for point in known), default=0.0) - low or 1.0
    last = len(_BARS) - 1
    return "".join("·" if point is None else _BARS[round(last * (point.estimate - low) / reach)] for point in points)
