"""``hushquery trends``: the most frequent queries, a task's estimates over time, and what changed between releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hushquery.cli.common import JsonFlag, emit, flag, option
from hushquery.cli.listing import Folders, Limit, as_rows, between, listing, measured, open_release, percent, take_note

if TYPE_CHECKING:
    from hushquery.publish.trends import Change, Listed, Trends


def trends(
    folders: Folders,
    limit: Limit = 20,
    level: Annotated[
        float | None, option("P", "The coverage of the interval of a change: 0.95, or that of the estimates.")
    ] = None,
    bonferroni: Annotated[
        bool, flag("--bonferroni", "Make the level hold for all queries or values at once, not for each.")
    ] = False,
    same_devices: Annotated[
        float,
        option("R", "For periods of a task: declare the share of devices that answer the same in the next period."),
    ] = 0.0,
    plot: Annotated[str | None, option("FILE", "Also draw it, as .html, .svg or .png (needs the extra plot).")] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Show the most frequent queries of a release, and what changed since older ones.

    hushquery trends release-may/ release-june/ --bonferroni --plot changes.html
    hushquery trends theme-week-*/ --same-devices 0.95

    Several releases are ordered by the dates of their data, or of publishing where no period is stated. The drawing
    shows all of them. Releases of counts and releases of shares (hybrid) are not compared with each other.

    Releases of a task's periods (settings, numbers, texts) are one series: it shows every value over time, which
    periods are missing, and which changes since the previous period are noise. A task that changed begins a new series.
    """
    from hushquery import publish
    from hushquery.cli.periods import as_data, as_text
    from hushquery.publish.periods import PeriodTrends
    from hushquery.release.series import order_of

    given = [open_release(folder) for folder in folders]
    places = order_of(given)
    releases, folders = [given[place] for place in places], [folders[place] for place in places]
    result = publish.trends(releases, limit, level=level, bonferroni=bonferroni, same_devices=same_devices)
    names = [Path(folder).name or folder for folder in folders]
    if plot is not None:
        from hushquery.plot import save
        from hushquery.publish.trends import trend_chart

        save(trend_chart(result, releases), plot)
    take_note(result.notes, as_json)
    if isinstance(result, PeriodTrends):
        emit(as_data(result, releases, folders, limit), as_text(result, limit), as_json)
        return
    data = {
        "releases": folders,
        **{name: as_rows(getattr(result, name)) for name in ("top", "changes", "appeared", "gone")},
        "compared": result.compared,
        "most_missing": list(result.most_missing),
        "level": result.level,
        "notes": list(result.notes),
    }
    emit(data, _text(result, names), as_json)


def _text(result: Trends, names: list[str]) -> str:
    parts = []
    if len(names) == 1:
        right = (result.measure, "interval")
        rows = [(f"{row.rank:,}", row.query, *measured(row)) for row in result.top]
        parts.append(listing(("rank", "query", *right), rows, ("rank", *right)))
    # Releases are told apart also when their folders have the same name.
    shown = names if len(set(names)) == len(names) else [f"{i}. {name}" for i, name in enumerate(names, 1)]
    if result.changes:
        change = "change" if result.measure == "count" else "change in points"
        heads = ("query", *shown, change, "interval", "")
        changed = [
            (
                row.query,
                *_series(row, result),
                _signed(row, result.measure),
                between(row.low, row.high, row.change if row.shares else None),
                "changed" if row.significant else "other pages listed" if row.relisted else "",
            )
            for row in result.changes
        ]
        parts.append(listing(heads, changed, heads[1:-1]))
    for title, listed in (("appeared", result.appeared), ("gone", result.gone)):
        if listed:
            series = [(row.query, *_series(row, result)) for row in listed]
            parts.append(f"{title}:\n{listing(('query', *shown), series, shown)}")
    return "\n\n".join(filter(None, parts)) or "nothing found: there is no query to show"


def _series(row: Change | Listed, result: Trends) -> list[str]:
    if result.measure == "share":
        return ["not listed" if share is None else percent(share) for share in row.shares]
    return [
        f"{count:,}" if count is not None else "below the threshold" if most is None else f"at most {most:,}"
        for count, most in zip(row.counts, result.most_missing, strict=True)
    ]


def _signed(row: Change, measure: str) -> str:
    if measure == "count":
        return f"{row.change:+,}"
    points = percent(row.change)
    return points if points.startswith("-") else f"+{points}"
