"""``hushquery show``: what is in a release, or what it says of one query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit, sizes_in_words
from hushquery.cli.listing import Folder, Limit, joined, listing, open_release
from hushquery.cli.measure import amount, between, measured_rows, percent

if TYPE_CHECKING:
    from hushquery.publish.search import Measured
    from hushquery.release import Release

__all__ = ["show"]


def show(
    folder: Folder,
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Show one query: its count or share, its pages, what came next.")
    ] = None,
    limit: Limit = 10,
    as_json: JsonFlag = False,
) -> None:
    r"""Show what is in a release: its guarantee, its tables and their first rows; or one query.

    hushquery show release/ --query "weather leeds"
    """
    release = open_release(folder)
    if query is None:
        _show_release(release, limit, as_json)
    else:
        _show_query(release, joined([query]), limit, as_json)


def _show_release(release: Release, limit: int, as_json: bool) -> None:
    from hushquery.release.page import false_pairs

    tables = release.tables
    first = {name: table.slice(0, limit).to_pylist() for name, table in tables.items()}
    meanings = release.manifest.get("meanings", {})
    data: dict[str, Any] = {
        "kind": release.manifest.get("kind"),
        "created": release.manifest.get("created"),
        "guarantees": [guarantee.to_json() for guarantee in release.guarantees],
        "parameters": release.manifest.get("parameters", {}),
        "tables": {
            name: {"rows": table.num_rows, "columns": table.column_names, "meaning": meanings.get(name, "")}
            for name, table in tables.items()
        },
        "first_rows": first,
        "notes": release.manifest.get("notes", []),
    }
    parts = ["\n".join(guarantee.summary() for guarantee in release.guarantees)]
    if "rest" in data["parameters"]:
        parts.append(f"shares are of all records; {percent(data['parameters']['rest'])} of them are not listed")
    parts += [str(note) for note in data["notes"]]
    for name, rows in first.items():
        title = f"{name}: {sizes_in_words({'rows': tables[name].num_rows})}"
        title += f", {meanings[name]}" if meanings.get(name) else ""
        keys = [column for column in tables[name].column_names if tables[name].schema.field(column).type == "string"]
        numbers = _numbers(tables[name].column_names)
        cells = [[*(row[key] for key in keys), *_cells(row)] for row in rows]
        heads: list[str] = [*keys, *numbers]
        if name == "reformulations":
            title += f"\n{false_pairs(release.manifest)}" if rows and false_pairs(release.manifest) else ""
            heads, cells = _with_doubt(heads, cells, [row["low"] for row in rows])
        parts.append(f"{title}\n\n{listing(heads, cells, numbers)}" if cells else title)
    emit(data, "\n\n".join(part for part in parts if part), as_json=as_json)


def _with_doubt(
    heads: Sequence[str], cells: Sequence[Sequence[str]], lows: Sequence[float]
) -> tuple[list[str], list[list[str]]]:
    """Mark rows that may be noise alone, in a column of their own where there are any."""
    if all(low > 0 for low in lows):
        return list(heads), [list(row) for row in cells]
    marked = [[*row, "may be noise alone" if low <= 0 else ""] for row, low in zip(cells, lows, strict=True)]
    return [*heads, ""], marked


def _numbers(columns: list[str]) -> list[str]:
    """Give the heads of a table's numbers as a person reads them."""
    if "optin" in columns:
        return ["opt-in", "clients", "weight", "shift z"]
    return [measure for measure in ("count", "share") if measure in columns] + (
        ["interval"] if "low" in columns else []
    )


def _cells(row: dict[str, Any]) -> list[str]:
    if "optin" in row:
        groups = [f"{percent(row[name])} ± {percent(row[f'{name}_stderr'])}" for name in ("optin", "client")]
        shift = "" if row["shift_z"] is None else f"{row['shift_z']:+.1f}"
        return [*groups, f"{row['weight']:.2f}", shift]
    if "low" not in row:
        return []
    share = row.get("share")
    return [amount(row.get("count"), share), between(row["low"], row["high"], share)]


def _show_query(release: Release, query: str, limit: int, as_json: bool) -> None:
    from hushquery.publish import look_up

    about = look_up(release, query, limit)
    if about is None:
        nothing = "nothing found: this query is not in the release. `hushquery search` finds queries near to a text"
        emit({"text": query, "query": None}, nothing, as_json=as_json)
        return
    right = ("count" if about.share is None else "share", "interval")
    head = listing(
        ("query", *right),
        [(about.query, amount(about.count, about.share), between(about.low, about.high, about.share))],
        right,
    )
    parts = [
        head,
        _measured("page", about.urls, "clicks"),
        *([_measured("searches without a click", (about.unclicked,), "clicks")] if about.unclicked else []),
        _measured("next query", about.next_queries, "reformulations"),
    ]
    data = {"text": query, **measured_rows([about])[0]}
    for name in ("urls", "next_queries"):
        rows = getattr(about, name)
        data[name] = None if rows is None else measured_rows(rows)
    data.pop("unclicked")
    if about.unclicked:
        data["unclicked"] = measured_rows([about.unclicked])[0]
    emit(data, "\n\n".join(parts), as_json=as_json)


def _measured(head: str, rows: tuple[Measured, ...] | None, table: str) -> str:
    if rows is None:
        return f"this release has no {table}"
    if not rows:
        return f"no {table} of this query were released"
    cells = [[row.name, amount(row.count, row.share), between(row.low, row.high, row.share)] for row in rows]
    right = ("count" if rows[0].share is None else "share", "interval")
    heads = [head, *right]
    if table == "reformulations":
        heads, cells = _with_doubt(heads, cells, [row.low for row in rows])
    return listing(heads, cells, right)
