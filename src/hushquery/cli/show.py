"""``hushquery show``: what is in a release, or what it says of one query."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit
from hushquery.cli.listing import Folder, Limit, interval, joined, listing, number, open_release

if TYPE_CHECKING:
    from hushquery.publish.lookup import Measured
    from hushquery.release import Release

__all__ = ["show"]


def show(
    folder: Folder,
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Show one query: its count, its pages, what came next.")
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
    parts += [str(note) for note in data["notes"]]
    for name, rows in first.items():
        title = f"{name}: {number(tables[name].num_rows)} rows" + (f", {meanings[name]}" if meanings.get(name) else "")
        keys = [column for column in tables[name].column_names if tables[name].schema.field(column).type == "string"]
        counted = "count" in tables[name].column_names
        heads = [*keys, "count", "interval"] if counted else keys
        cells = [
            [
                *(row[key] for key in keys),
                *([number(row["count"]), interval(row["low"], row["high"])] if counted else []),
            ]
            for row in rows
        ]
        parts.append(f"{title}\n\n{listing(heads, cells, ('count', 'interval'))}" if cells else title)
    emit(data, "\n\n".join(part for part in parts if part), as_json=as_json)


def _show_query(release: Release, query: str, limit: int, as_json: bool) -> None:
    from hushquery.publish import look_up

    about = look_up(release, query, limit)
    if about is None:
        nothing = "nothing found: this query is not in the release. `hushquery search` finds queries near to a text"
        emit({"text": query, "query": None}, nothing, as_json=as_json)
        return
    head = listing(
        ("query", "count", "interval"),
        [(about.query, number(about.count), interval(about.low, about.high))],
        ("count", "interval"),
    )
    parts = [
        head,
        _measured("page", about.urls, "clicks"),
        _measured("next query", about.next_queries, "reformulations"),
    ]
    emit({"text": query, **asdict(about)}, "\n\n".join(parts), as_json=as_json)


def _measured(head: str, rows: tuple[Measured, ...] | None, table: str) -> str:
    if rows is None:
        return f"this release has no {table}"
    if not rows:
        return f"no {table} of this query were released"
    cells = [(row.name, number(row.count), interval(row.low, row.high)) for row in rows]
    return listing((head, "count", "interval"), cells, ("count", "interval"))
