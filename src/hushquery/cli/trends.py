"""``hushquery trends``: the most frequent queries, and what changed between releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery.cli.common import JsonFlag, emit
from hushquery.cli.listing import Limit, listing, number, open_release, take_note
from hushquery.cli.measure import amount, between, measured_rows, percent

if TYPE_CHECKING:
    from hushquery.publish.trends import Change, Listed, Trends

__all__ = ["trends"]


def trends(
    folders: Annotated[
        list[str], typer.Argument(metavar="DIR", help="The folder of a release; of several, the oldest first.")
    ],
    limit: Limit = 20,
    level: Annotated[float, typer.Option(metavar="P", help="The coverage of the interval of a change.")] = 0.95,
    bonferroni: Annotated[
        bool, typer.Option("--bonferroni", help="Make the level hold for all queries at once, not for each.")
    ] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also draw it, as .html, .svg or .png (needs the extra plot).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Show the most frequent queries of a release, and what changed since older ones.

    hushquery trends release-may/ release-june/ --bonferroni --plot changes.html

    Releases of counts and releases of shares (hybrid) are not compared with each other.
    """
    from hushquery import publish

    releases = [open_release(folder) for folder in folders]
    found = publish.trends(releases, limit, level=level, bonferroni=bonferroni)
    names = [Path(folder).name or folder for folder in folders]
    if plot is not None:
        from hushquery.plot import save
        from hushquery.publish.trends import trend_chart

        save(trend_chart(found, names), plot)
    take_note(found.notes, as_json=as_json)
    data = {
        "releases": folders,
        **{name: measured_rows(getattr(found, name)) for name in ("top", "changes", "appeared", "gone")},
        "compared": found.compared,
        "most_missing": list(found.most_missing),
        "level": found.level,
        "notes": list(found.notes),
    }
    emit(data, _text(found, names), as_json=as_json)


def _text(found: Trends, names: list[str]) -> str:
    parts = []
    if len(names) == 1:
        rows = [
            (number(row.rank), row.query, amount(row.count, row.share), between(row.low, row.high, row.share))
            for row in found.top
        ]
        right = (found.measure, "interval")
        parts.append(listing(("rank", "query", *right), rows, ("rank", *right)) if rows else "")
    if found.changes:
        change = "change" if found.measure == "count" else "change in points"
        heads = ("query", *_heads(names), change, "interval", "")
        changed = [
            (
                row.query,
                *_series(row, found),
                _signed(row, found.measure),
                between(row.low, row.high, row.change if row.shares else None),
                "changed" if row.significant else "other pages listed" if row.relisted else "",
            )
            for row in found.changes
        ]
        parts.append(listing(heads, changed, heads[1:-1]))
    for title, listed in (("appeared", found.appeared), ("gone", found.gone)):
        if listed:
            parts.append(f"{title}:\n{_listed(listed, names, found)}")
    return "\n\n".join(part for part in parts if part) or "nothing found: there is no query to show"


def _listed(rows: tuple[Listed, ...], names: list[str], found: Trends) -> str:
    heads = ("query", *_heads(names))
    return listing(heads, [(row.query, *_series(row, found)) for row in rows], heads[1:])


def _heads(names: list[str]) -> list[str]:
    """Tell releases apart also when their folders have the same name."""
    return names if len(set(names)) == len(names) else [f"{i}. {name}" for i, name in enumerate(names, 1)]


def _series(row: Change | Listed, found: Trends) -> list[str]:
    if found.measure == "share":
        return ["not listed" if share is None else percent(share) for share in row.shares]
    return [
        number(count) if count is not None else "below the threshold" if most is None else f"at most {number(most)}"
        for count, most in zip(row.counts, found.most_missing, strict=True)
    ]


def _signed(row: Change, measure: str) -> str:
    if measure == "count":
        return f"{row.change:+,}"
    said = percent(row.change)
    return said if said.startswith("-") else f"+{said}"
