"""What the search page searches in: the released queries with their pages, as one JSON file."""

from __future__ import annotations

import json
from typing import Any

from hushquery.publish.tables import PER, queries_of, row_numbers
from hushquery.release import Release

__all__ = ["search_data"]


def search_data(release: Release, most: int) -> bytes:
    """Return what the search knows: ``[query, value, low, high, [[url, value], ...]]``, the most frequent first.

    Args:
        release: The release.
        most: How many queries at most.
    """
    queries = queries_of(release)
    pages = _pages(release)
    rows = []
    for place, name in enumerate(queries.names[:most]):
        count, low, high = queries.numbers(place)
        rows.append([name, count if count is not None else queries.share(place), low, high, pages.get(name, [])])
    data: dict[str, Any] = {
        "format": "hushquery-index",
        "version": 1,
        "created": release.manifest["created"],
        "measure": queries.measure,
        "per": PER if queries.measure == "share" else 1,
        "all": len(queries.names),
        "queries": rows,
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _pages(release: Release) -> dict[str, list[list[Any]]]:
    table = release.tables.get("clicks")
    found: dict[str, list[list[Any]]] = {}
    if table is not None:
        numbers = row_numbers(table)
        whole = numbers.measure == "count"
        keys = zip(table["query"].to_pylist(), table["url"].to_pylist(), numbers.value.tolist(), strict=True)
        for query, url, value in keys:
            found.setdefault(query, []).append([url, int(value) if whole else value])
    return found
