"""Two tiny made-up releases, for examples and first steps. No person stands behind them; they promise nothing."""

from __future__ import annotations

import pyarrow as pa

from hushquery.release import Release
from hushquery.release.tables import REST, checked_table

__all__ = ["CLICKS", "QUERIES", "RECORDS", "REFORMULATIONS", "tiny_hybrid_release", "tiny_release"]

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

#: Estimates by query and URL (empty: a search without a click): opt-in users, clients, the blend, and its standard
#: error. The opt-in users like football more than the clients do.
RECORDS = {
    ("weather leeds", "https://weather.example.org/leeds"): (0.094, 0.0905, 0.0912, 0.0021),
    ("news", "https://news.example.org/"): (0.071, 0.0718, 0.0716, 0.0020),
    ("weather", "https://weather.example.org/"): (0.0662, 0.0641, 0.0645, 0.0020),
    ("leeds united", "https://football.example.org/leeds"): (0.083, 0.0536, 0.0593, 0.0019),
    ("weather leeds", "https://weather.example.org/"): (0.0218, 0.0196, 0.02, 0.0016),
    ("weather london", "https://weather.example.org/"): (0.0204, 0.0178, 0.0183, 0.0016),
    ("fear of flying", ""): (0.0121, 0.0133, 0.0131, 0.0015),
    ("leeds united tickets", "https://football.example.org/leeds"): (0.0107, 0.0089, 0.0092, 0.0015),
    ("fear of heights", ""): (0.0081, 0.0061, 0.0065, 0.0014),
    ("waether leeds", "https://weather.example.org/leeds"): (0.0058, 0.0021, 0.0028, 0.0014),
}


def tiny_release() -> Release:
    """Give a release of nine queries with clicks and reformulations, whose counts all have a standard error of 5.

    >>> tiny_release().tables["queries"].num_rows
    9
    """
    tables = {
        "queries": _table(("query",), [((query,), count) for query, count in QUERIES.items()]),
        "clicks": _table(("query", "url"), list(CLICKS.items())),
        "reformulations": _table(("query", "next_query"), list(REFORMULATIONS.items())),
    }
    return Release(tables, (), {})


def _table(keys: tuple[str, ...], rows: list[tuple[tuple[str, ...], int]]) -> pa.Table:
    ordered = sorted(rows, key=lambda row: (-row[1], row[0]))
    counts = [count for _, count in ordered]
    return pa.table(
        {
            **{name: [key[place] for key, _ in ordered] for place, name in enumerate(keys)},
            "count": pa.array(counts, pa.int64()),
            "stderr": [5.0] * len(counts),
            "low": [count - 10.0 for count in counts],
            "high": [count + 10.0 for count in counts],
        }
    )


def tiny_hybrid_release() -> Release:
    """Give a release of shares, as opt-in users and clients make one together: ten records of nine queries.

    >>> release = tiny_hybrid_release()
    >>> release.queries["query"][0].as_py(), round(release.queries["share"][0].as_py(), 4)
    ('weather leeds', 0.1112)
    >>> release.records.column_names[2:]
    ['optin', 'optin_stderr', 'client', 'client_stderr', 'weight', 'shift_z']
    """
    tables = {"queries": _query_shares(), "clicks": _click_shares(), "records": _estimates()}
    ordered = {name: checked_table(name, table) for name, table in tables.items()}
    rest = 1 - sum(share for _, _, share, _ in RECORDS.values())
    return Release(ordered, (), {"kind": "hybrid", "parameters": {"mode": "best", "records_per_user": 1, REST: rest}})


def _click_shares() -> pa.Table:
    keys = {"query": [query for query, _ in RECORDS], "url": [url for _, url in RECORDS]}
    return pa.table({**keys, **_shares([row[2] for row in RECORDS.values()], [row[3] for row in RECORDS.values()])})


def _query_shares() -> pa.Table:
    sums: dict[str, tuple[float, float]] = {}
    for (query, _), (_, _, share, stderr) in RECORDS.items():
        before, squared = sums.get(query, (0.0, 0.0))
        sums[query] = (before + share, squared + stderr**2)
    totals = list(sums.values())
    return pa.table({"query": list(sums), **_shares([t for t, _ in totals], [s**0.5 for _, s in totals])})


def _shares(shares: list[float], errors: list[float]) -> dict[str, list[float]]:
    pairs = list(zip(shares, errors, strict=True))
    lows, highs = [max(0.0, s - 2 * e) for s, e in pairs], [min(1.0, s + 2 * e) for s, e in pairs]
    return {"share": shares, "stderr": errors, "low": lows, "high": highs}


def _estimates() -> pa.Table:
    found: dict[str, list[str] | list[float]] = {
        "query": [query for query, _ in RECORDS],
        "url": [url for _, url in RECORDS],
        "optin": [optin for optin, _, _, _ in RECORDS.values()],
        "client": [client for _, client, _, _ in RECORDS.values()],
        "optin_stderr": [0.005] * len(RECORDS),
        "client_stderr": [0.0025] * len(RECORDS),
        "weight": [0.2] * len(RECORDS),
    }
    spread = (0.005**2 + 0.0025**2) ** 0.5
    found["shift_z"] = [(optin - client) / spread for optin, client, _, _ in RECORDS.values()]
    return pa.table(found)
