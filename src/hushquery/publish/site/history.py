"""Write what all releases of a series say of each query, in files that a page loads one at a time.

A page per query would be twenty thousand files for twenty thousand queries, all alike but for a few numbers, and all
new with each release. Instead there is one page, ``query.html``, that has the queries behind the ``#`` of its address,
and the numbers lie in shards of some fifty kilobytes: a query's shard follows from a hash of its text. Shards are
scripts, because a page that was opened as a file can run a script beside it but fetch nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hushquery.publish.tables import queries_of
from hushquery.release.intervals import published

if TYPE_CHECKING:
    from hushquery.release import Release

# The entries of a shard: each query has one per release, and some for what is known of it besides.
_ENTRIES, _BESIDES = 4000, 4
# The pages and next queries of a query that are shown.
_EACH = 5


def history(releases: Sequence[Release]) -> list[list[list[Any]]]:
    """Return the shards: rows of query, series, pages and next queries, those two of the last release.

    An entry of the series is ``[value, low, high]``, empty where a list without numbers names the query, and None where
    a release does not list it.
    """
    tables = [queries_of(release) for release in releases]
    names = list(dict.fromkeys(name for table in reversed(tables) for name in table.names))
    pages, after = (_related(releases[-1], *which) for which in (("clicks", "url"), ("reformulations", "next_query")))
    shards: list[list[list[Any]]] = [[] for _ in range(_shards(len(names), len(releases)))]
    for name in names:
        series: list[list[float] | None] = []
        for table in tables:
            place = table.by_name.get(name)
            if place is None:
                series.append(None)
            elif table.measured is None:
                series.append([])
            else:
                numbers = table.measured
                series.append([_short(column[place]) for column in (numbers.value, numbers.low, numbers.high)])
        shards[shard(name, len(shards))].append([name, series, pages.get(name, []), after.get(name, [])])
    return shards


def shard(query: str, shards: int) -> int:
    """Return the shard of a query: FNV-1a over its UTF-8 bytes, which a page computes as well.

    >>> shard("weather", 1000), shard("", 7)
    (291, 2)
    """
    number = 0x811C9DC5
    for byte in query.encode("utf-8", "replace"):
        number = ((number ^ byte) * 0x01000193) & 0xFFFFFFFF
    return number % shards


def as_script(name: str, data: object) -> bytes:
    """Write data as a script that puts it under its own name."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Parsed as JSON, so that no key has a meaning of its own; escaped twice, it can't end the text that it stands in.
    quoted = json.dumps(text, ensure_ascii=False)
    return f"(globalThis.hushquery ??= {{}})[{json.dumps(name)}] = JSON.parse({quoted});\n".encode("utf-8", "replace")


def _shards(queries: int, releases: int) -> int:
    return max(1, math.ceil(queries * (releases + _BESIDES) / _ENTRIES))


def _related(release: Release, name: str, key: str) -> dict[str, list[list[Any]]]:
    table = release.tables.get(name)
    found: dict[str, list[list[Any]]] = {}
    if table is not None:
        values = published(table).value.tolist()
        for query, other, value in zip(table["query"].to_pylist(), table[key].to_pylist(), values, strict=True):
            rows = found.setdefault(query, [])
            if len(rows) < _EACH and value > 0:
                rows.append([other, _short(value)])
    return found


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(float(value), 7)
