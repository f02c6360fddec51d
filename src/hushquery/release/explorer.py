"""Embed every table of a release in its page, with the script that lists, searches, opens and downloads them.

The page is one file that works offline and from a disk, so the data are part of it, column by column. The script shows
fifty rows at a time: twenty thousand queries make no more elements than fifty. The Parquet files lie beside the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hushquery.release.tables import SHARE_SCALE, measure_of
from hushquery.templates import asset, bundled

# The rows of a table that a page holds at most: some ten megabytes. Whoever wants more has the Parquet files.
_MOST = 100_000

# What is shown of a query when it is opened.
_OPENED = {"clicks": "the pages people clicked on", "reformulations": "what they searched for next"}

#: The script of the list; a script in a page can't be given a module of another file.
SCRIPT = bundled(*map(asset, ("matching.mjs", "pages.mjs", "explorer.mjs")))

#: The name by which a content security policy lets this script run, and no other.
SCRIPT_HASH = f"sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}"


def explorer(tables: Mapping[str, pa.Table]) -> dict[str, Any] | None:
    """Return what the macro ``explorer`` shows; None for a release without queries."""
    queries = tables.get("queries")
    if queries is None or not queries.num_rows:
        return None
    measure = measure_of(queries)
    places = {query: place for place, query in enumerate(queries["query"].slice(0, _MOST).to_pylist())}
    data = {name: _columns(name, table.slice(0, _MOST), places) for name, table in tables.items()}
    return {
        "data": {"measure": measure, "per": SHARE_SCALE if measure == "share" else 1, "tables": data},
        "rows": {name: table.num_rows for name, table in tables.items()},
        "cut": [name for name, table in tables.items() if table.num_rows > _MOST],
        "most": _MOST,
        "opens": [words for name, words in _OPENED.items() if name in tables],
        "script": SCRIPT,
        "hash": SCRIPT_HASH,
    }


def _columns(name: str, table: pa.Table, places: Mapping[str, int]) -> dict[str, Any]:
    """Return a table by column: queries of other tables as their places, and a number that never changes once."""
    columns: dict[str, Any] = {}
    for column in table.column_names:
        values: list[Any] = table[column].to_pylist()
        if column in ("query", "next_query"):
            columns[column] = values if name == "queries" else [places.get(query, query) for query in values]
        elif column == "url":
            columns[column] = values
        else:
            shorter = [int(value) if value is not None and value == int(value) else value for value in values]
            columns[column] = shorter[0] if values and len(set(shorter)) == 1 else shorter
    return columns
