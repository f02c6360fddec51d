"""A tiny made-up release, for examples and first steps. No person stands behind it; it promises nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hushquery.release import Release

#: Users by query.
QUERIES = {
    "weather leeds": 900,
    "leeds united": 700,
    "weather": 650,
    "news": 600,
    "weather london": 400,
    "fear of flying": 90,
    "leeds united tickets": 80,
    "fear of heights": 70,
    "waether leeds": 30,
}
#: Users by query and URL; one is negative, as noise can make it.
CLICKS = {
    ("weather leeds", "https://weather.example.org/leeds"): 500,
    ("weather leeds", "https://weather.example.org/"): 100,
    ("waether leeds", "https://weather.example.org/leeds"): 2,
    ("weather", "https://weather.example.org/"): 400,
    ("weather london", "https://weather.example.org/"): 150,
    ("weather london", "https://news.example.org/"): -3,
    ("leeds united", "https://football.example.org/leeds"): 350,
    ("leeds united tickets", "https://football.example.org/leeds"): 40,
    ("news", "https://news.example.org/"): 420,
}
#: Users by query and next query.
REFORMULATIONS = {
    ("waether leeds", "weather leeds"): 20,
    ("weather", "weather leeds"): 120,
    ("leeds united", "leeds united tickets"): 60,
}


def tiny_release() -> Release:
    """Return a release of nine queries with clicks and reformulations, whose counts all have a standard error of 5."""
    queries = {(query,): count for query, count in QUERIES.items()}
    tables = {"queries": _table(("query",), queries), "clicks": _table(("query", "url"), CLICKS)}
    tables["reformulations"] = _table(("query", "next_query"), REFORMULATIONS)
    return Release(tables, (), {})


def _table(names: tuple[str, ...], counts: Mapping[Any, int]) -> pa.Table:
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    keys = [dict(zip(names, key, strict=True)) for key, _ in rows]
    numbers = [{"count": n, "stderr": 5.0, "low": n - 10.0, "high": n + 10.0} for _, n in rows]
    return pa.Table.from_pylist([key | number for key, number in zip(keys, numbers, strict=True)])
