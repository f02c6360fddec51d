"""Compute what the pages of a task's periods show: the newest, what changed, all of them over time, two compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hushquery.errors import DataError, UsageError
from hushquery.publish.periods import Change, Period, PeriodSeries, Point
from hushquery.publish.site.pages import Row, epsilon_text, table_row
from hushquery.publish.trends import Change as Changed
from hushquery.release import Release
from hushquery.release.estimates_page import OTHERS, results
from hushquery.release.manifest import task_of
from hushquery.release.series import DeviceCosts, device_costs, series_names, spoken
from hushquery.release.series import period as period_of
from hushquery.templates import Axis, amount

# The heights of charts, and what a telephone has room for.
_TALL, _SMALL, _DAYS, _ROOM = 200, 132, 20, 16
_LABELS = 5
# Of more values the largest have a chart; of more periods or values the last and the largest are compared.
_CHARTS = 12
_COMPARED_PERIODS, _COMPARED_VALUES = 16, 60


def period_names(series: Sequence[PeriodSeries]) -> list[str]:
    """Name all releases of some series, in their order: by their dates, or by when a shorter period began."""
    periods = [period for one in series for period in one.present]
    names = series_names([released(period) for period in periods])
    labels = [period.label for period in periods]
    return labels if names[0].startswith("release ") and len(set(labels)) == len(labels) else names


def released(period: Period) -> Release:
    """Return the release of a period that has one."""
    if period.release is None:
        raise UsageError("a missing period has no release", fix="Use one of the present periods")
    return period.release


def estimates_page(
    series: Sequence[PeriodSeries], names: Sequence[str], missing: Mapping[int, str], most: int
) -> dict[str, Any]:
    """Return what ``results.html`` shows of the series of a task, whose releases have these names."""
    now = series[-1]
    newest, before = now.present[-1], now.present[-2] if len(now.present) > 1 else None
    release = released(newest)
    changes = {change.cell: change for change in now.changes(bonferroni=True)} if before else {}
    shown = results(release, most)
    ranked = _ranked(now, changes, most) if shown["measure"] == "share" else None
    return {
        **shown,
        "before": spoken(names[-2]) if before else "",
        "table": ranked,
        "mean": _mean(now, changes.get("mean")) if ranked is None else None,
        "moved": sum(not change.noise for change in changes.values()) if before else None,
        "compared": len(changes),
        "histories": [_history(one, missing, newest=one is now) for one in reversed(series) if len(one.periods) > 1],
        "begins": now.begins,
        "gone": _gone(now),
        "choices": _choices(series, names),
        "cut": len(now.present) > _COMPARED_PERIODS or len(now.cells) > _COMPARED_VALUES,
        "limits": [*(_notes(now) if before else ()), *shown["limits"]],
        "periodic": task_of(release.manifest["parameters"])["task"]["period"] is not None,
        "when": _when(release, newest),
        "since": _since(release, newest, missing),
    }


def _when(release: Release, newest: Period) -> str:
    start, end = period_of(release.manifest)
    if start is None or end is None:
        return ""
    return f"on {newest.label}" if start == end else f"from {start} to {end}"


def _since(release: Release, newest: Period, missing: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return the periods after the newest release that ended without one, with why."""
    seconds = task_of(release.manifest["parameters"])["task"]["period"]
    later = [(number, why) for number, why in sorted(missing.items()) if number > newest.last and seconds]
    began = "%Y-%m-%d" if seconds and seconds % 86400 == 0 else "%Y-%m-%d %H:%M"
    return [(f"{datetime.fromtimestamp(number * seconds, UTC):{began}}", why) for number, why in later]


def _notes(series: PeriodSeries) -> list[str]:
    """Return what readers of a page should know of its changes; gaps are shown, and advice is for the publisher."""
    skipped = ["No data", "Changes are judged"]
    if series.kind == "text":  # they are selected, and the page says so
        skipped.append("The estimates were post-processed")
    return [
        f"A change is called sure where its interval leaves out zero at a level at which all {len(series.cells):,} "
        f"comparisons together hold in {100 * series.level:g} of 100 cases.",
        *([] if series.same_devices else ["Devices repeat their answers; changes are judged as if they drew anew."]),
        *(note for note in series.notes if not note.startswith(tuple(skipped))),
    ]


# ---- the newest period, and what changed -----------------------------------------------------------------------------


def _largest(series: PeriodSeries, most: int) -> list[str]:
    """Return the cells of the newest period, the largest first; ranges of numbers stay in their order."""
    rows = released(series.present[-1]).tables["estimates"].to_pylist()
    listed = {row["value"]: row["estimate"] for row in rows}
    ordered = sorted(listed, key=lambda cell: (cell == OTHERS, -listed[cell]))[:most]
    return [cell for cell in listed if cell in set(ordered)] if series.kind == "number" else ordered


def _ranked(series: PeriodSeries, changes: Mapping[str, Change], most: int) -> dict[str, Any]:
    several, cells = len(series.present) > 1, _largest(series, most)
    texts = {row["value"]: row for row in results(released(series.present[-1]))["rows"]}
    numbers = {cell: series.values(cell) for cell in cells}
    top = max((points[-1].high for points in numbers.values() if points[-1]), default=1.0) or 1.0
    rows = []
    for cell, points in numbers.items():
        line = tuple(None if point is None else point.estimate for point in points)
        newest, change = points[-1] or Point(0.0, 0.0, 0.0), changes.get(cell)
        row = table_row(
            Row((cell,), newest.low, newest.high, line, None if change is None else _changed(change), None),
            "share",
            top,
        )
        close = cell in texts and texts[cell]["close"]
        rows.append({**row, "new": several and change is None, "cell": cell, "close": close})
    by = "place" if series.kind == "number" else "value"
    return {"rows": rows, "numbered": True, "several": several, "by": by, "close": any(row["close"] for row in rows)}


def _changed(change: Change) -> Changed:
    significant = not change.noise
    return Changed(change.cell, (), change.difference, change.stderr, change.low, change.high, significant)


def _mean(series: PeriodSeries, change: Change | None) -> dict[str, Any]:
    (point,) = (series.values(cell)[-1] or Point(0.0, 0.0, 0.0) for cell in series.cells[:1])
    said = change and {
        "noise": change.noise,
        "up": change.difference > 0,
        **{name: _signed(getattr(change, name)) for name in ("difference", "low", "high")},
    }
    return {"value": point.estimate, "low": point.low, "high": point.high, "change": said}


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + amount(value, "mean")


def _gone(series: PeriodSeries) -> list[tuple[str, str]]:
    """Return the texts that were found before and not in the newest period, with when they were found last."""
    found = []
    for cell in series.cells if series.kind == "text" else ():
        points = series.values(cell)
        if points[-1] is None:
            last = max(place for place, point in enumerate(points) if point is not None)
            found.append((cell, series.periods[last].label))
    return found


# ---- over time -------------------------------------------------------------------------------------------------------


def _history(series: PeriodSeries, missing: Mapping[int, str], *, newest: bool) -> dict[str, Any]:
    """Return the charts of a series, and its numbers as a table."""
    cells = _largest(series, _CHARTS) if newest else list(series.cells[:_CHARTS])
    cells += [cell for cell in series.cells if cell not in cells][: _CHARTS - len(cells)]
    values = {cell: series.values(cell) for cell in cells}
    ends = [end for points in values.values() for point in points if point for end in point]
    axis = Axis(min(ends), max(ends)) if series.measure == "mean" else Axis.over(max(0.0, end) for end in ends)
    tall = len(cells) == 1
    strips = series.kind == "number" and series.measure == "share"
    return {
        "newest": newest,
        "first": series.periods[0].label,
        "last": series.present[-1].label,
        "begins": series.begins,
        "measure": series.measure,
        "kind": series.kind,
        "charts": [
            {"cell": cell, **_chart(series, cell, points, axis, _TALL if tall else _SMALL)}
            for cell, points in values.items()
        ]
        if not strips
        else [],
        "strips": _strips(series, values) if strips else None,
        "all": len(series.cells),
        "gaps": _gaps(series, missing),
        "cells": cells,
        "rows": [
            {"label": period.label, "missing": period.missing, "points": [points[place] for points in values.values()]}
            for place, period in enumerate(series.periods)
        ][::-1],
    }


def _chart(series: PeriodSeries, cell: str, points: Sequence[Point | None], axis: Axis, height: int) -> dict[str, Any]:
    """Place the points of a cell; x is in per cent of the width, so that it fits any screen."""
    bottom, wide = height - _DAYS, 100 / len(points)

    def x(place: float) -> str:
        return f"{(place + 0.5) * wide:.2f}"

    def y(value: float) -> str:
        return f"{bottom - (bottom - _ROOM) * min(100.0, max(0.0, float(axis.at(value)))) / 100:.1f}"

    marks = [(place, point) for place, point in enumerate(points) if point is not None]
    every = -(-len(points) // _LABELS)
    labels = [
        (place, period.label) for place, period in enumerate(series.periods) if not (len(points) - 1 - place) % every
    ]
    return {
        "height": height,
        "bottom": bottom,
        "top": amount(axis.most, series.measure),
        "least": amount(axis.least, series.measure) if series.measure == "mean" else "",
        "marks": [
            {"x": x(i), "y": y(point.estimate), "low": y(point.low), "high": y(point.high)} for i, point in marks
        ],
        "lines": [
            {"x1": x(i), "y1": y(one.estimate), "x2": x(j), "y2": y(other.estimate)}
            for (i, one), (j, other) in pairwise(marks)
            if j == i + 1
        ],
        "absent": [x(i) for i, period in enumerate(series.periods) if _looked_for(period, cell) and points[i] is None],
        "gaps": [
            {"x": f"{i * wide:.2f}", "width": f"{wide:.2f}"}
            for i, period in enumerate(series.periods)
            if period.missing
        ],
        "days": [
            {"x": x(i), "name": label[-5:], "anchor": "end" if i == len(points) - 1 > 5 else "middle"}
            for i, label in labels
        ],
    }


def _looked_for(period: Period, cell: str) -> bool:
    if period.release is None or "candidates" not in period.release.tables:
        return False
    return cell in period.release.tables["candidates"]["text"].to_pylist()


def _strips(series: PeriodSeries, values: Mapping[str, Sequence[Point | None]]) -> dict[str, Any]:
    """Return a strip for each range: a cell for each period, the darker the larger its share."""
    most = max((point.estimate for points in values.values() for point in points if point), default=1.0) or 1.0
    wide = 100 / len(series.periods)
    every = -(-len(series.periods) // _LABELS)
    return {
        "width": f"{wide:.2f}",
        "rows": [
            {
                "cell": cell,
                "value": (points[-1] or Point(0.0, 0.0, 0.0)).estimate,
                "boxes": [
                    {
                        "x": f"{i * wide:.2f}",
                        "shade": "" if point is None else f"{max(0.0, min(1.0, point.estimate / most)):.2f}",
                    }
                    for i, point in enumerate(points)
                ],
            }
            for cell, points in values.items()
        ],
        "days": [
            {"x": f"{(i + 0.5) * wide:.2f}", "name": period.label[-5:]}
            for i, period in enumerate(series.periods)
            if not (len(series.periods) - 1 - i) % every
        ],
        "most": most,
    }


def _gaps(series: PeriodSeries, missing: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return each missing period with why, as far as anybody knows."""
    gaps = []
    for period in series.periods:
        if period.missing:
            many = period.last - period.number + 1
            label = period.label if many == 1 else f"{many:,} periods from {period.label}"
            gaps.append((label, missing.get(period.number, "no release")))
    return gaps


# ---- two periods compared --------------------------------------------------------------------------------------------


def _choices(series: Sequence[PeriodSeries], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the periods that can be chosen, by their place; only those of one series can be compared."""
    found, place = [], 0
    for number, one in enumerate(series):
        for at, _ in enumerate(one.present):
            if len(one.present) > 1 and at >= len(one.present) - _COMPARED_PERIODS:
                found.append({"place": place, "name": names[place], "series": number})
            place += 1
    return found[::-1]


def comparisons(series: Sequence[PeriodSeries], names: Sequence[str]) -> dict[str, Any]:
    """Return what ``index.json`` says of all periods and values, and of the change between any two of a series."""
    periods: list[dict[str, Any]] = []
    changes: dict[str, list[Any]] = {}
    cells = list(dict.fromkeys(cell for one in reversed(series) for cell in _compared_cells(one)))
    values: dict[str, list[Any]] = {cell: [] for cell in cells}
    for number, one in enumerate(series):
        start, kept = len(periods), one.present[-_COMPARED_PERIODS:]
        level = one.joint_level(bonferroni=True)
        place = {period.number: start + at for at, period in enumerate(one.present)}
        for period in one.present:
            about = {"name": names[len(periods)], "number": period.number, "series": number}
            periods.append({**about, "reports": released(period).manifest["parameters"]["reports"]})
        present = [at for at, period in enumerate(one.periods) if not period.missing]
        for cell in cells:
            points = one.values(cell) if cell in one.cells else [None] * len(one.periods)
            values[cell] += [points[at] for at in present]
        for later in range(1, len(kept)):
            for earlier in range(later):
                first, last = kept[earlier].number, kept[later].number
                found = [one.change(cell, first, last, level=level) for cell in cells]
                changes[f"{place[first]}-{place[last]}"] = [
                    None if change is None else [*_rounded(change), int(change.noise)] for change in found
                ]
    listed = [{"value": cell, "numbers": numbers} for cell, numbers in values.items()]
    return {"periods": periods, "values": listed, "changes": changes}


def _compared_cells(series: PeriodSeries) -> list[str]:
    return list(series.cells) if len(series.cells) <= _COMPARED_VALUES else _largest(series, _COMPARED_VALUES)


def _rounded(change: Change) -> list[float]:
    return [float(f"{value:.6g}") for value in (change.difference, change.low, change.high)]


# ---- what it costs a device ------------------------------------------------------------------------------------------


def costs_page(releases: Sequence[Release]) -> dict[str, Any]:
    """Return what the privacy page says of the devices that reported in all releases of a task."""
    costs, parameters = device_costs(releases), releases[-1].manifest["parameters"]
    periods = {(release.manifest["parameters"]["task"], n) for release in releases for n in _periods(release)}
    said = ["never changed", "changed once", "changed twice", "changed three times"]
    rows = [(words, _spent(costs, changes)) for changes, words in enumerate(said)]
    rows = [row for place, row in enumerate(rows) if place == 0 or row[1] != rows[place - 1][1]]
    if (most := epsilon_text(float(costs.most))) != rows[-1][1]:
        rows.append(("changed as often as it could", most))
    ends = costs.answers if costs.answers < len(_same_task(releases)) else 0
    answer, lifetime = epsilon_text(float(costs.answer)), epsilon_text(float(costs.lifetime))
    return {"answer": answer, "lifetime": lifetime, "periods": len(periods), "rows": rows, "answers": ends} | {
        "each": task_of(parameters)["client"]["records_per_user"]
    }


def _same_task(releases: Sequence[Release]) -> set[int]:
    last = releases[-1].manifest["parameters"]["task"]
    return {n for r in releases if r.manifest["parameters"]["task"] == last for n in _periods(r)}


def _periods(release: Release) -> list[int]:
    found: list[int] = release.manifest["parameters"]["periods"]
    return found


def _spent(costs: DeviceCosts, changes: int) -> str:
    return epsilon_text(float(costs.after(changes)))


def served_task(release: Release) -> dict[str, Any]:
    """Return the task of a release as devices get it, with what they run: a page randomises with it."""
    parameters = release.manifest["parameters"]
    task = task_of(parameters)
    asked = [task.get("collect", {}).get("time_precision"), task["task"].get("highest", 0)]
    if not all(type(number) is int for number in asked) or (task["task"]["kind"] == "number") != (asked[1] > 0):
        raise DataError("the task of a release is incomplete", fix="Download it again")
    task["client"]["enabled"] = True  # the release's text is what the id is of, and that does not cover it
    return {"id": parameters["task"], "task": task, "configuration": json.loads(parameters["configuration_text"])}
