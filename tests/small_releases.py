"""Small releases for tests, made the way a curator makes them; nobody's data."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import pyarrow as pa

from hushquery.core.budget import Unit
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.local_loss import LocalChannel
from hushquery.core.loss import LaplaceHistogram, Loss
from hushquery.curator.counting import with_intervals
from hushquery.publish import example
from hushquery.publish.example import CLICKS, QUERIES
from hushquery.release import Release

MEANINGS = {
    "queries": "users who searched for the query",
    "clicks": "users who clicked on the URL",
    "reformulations": "users who went on to the next query",
}

REFORMULATIONS = {**example.REFORMULATIONS, ("weather", "news"): -4}

# Estimates by query and URL (empty: a search without a click): opt-in users, clients, the blend, and its standard
# error. The opt-in users like football more than the clients do.
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


def release_of(queries, clicks=None, reformulations=None, *, stderr=5.0, test_noise=False, parameters=None):
    """Make a release from counts by key; a list of queries without counts makes what --select-only makes."""
    tables = {}
    if isinstance(queries, dict):
        tables["queries"] = _table(("query",), {(query,): count for query, count in queries.items()}, stderr)
    elif queries is not None:
        tables["queries"] = pa.table({"query": pa.array(list(queries), pa.string())})
    if clicks is not None:
        tables["clicks"] = _table(("query", "url"), clicks, stderr)
    if reformulations is not None:
        tables["reformulations"] = _table(("query", "next_query"), reformulations, stderr)
    step = Step("discrete-laplace", "counts with noise of scale 2", Loss(pure=("1/2",)))
    promise = Guarantee.of(
        "readers of example.org", "curator", Unit("user", "add-remove"), [step], test_noise=test_noise
    )
    return Release.make(
        tables,
        [promise],
        kind="curator",
        parameters={"epsilon": "1/2", "queries_per_user": 1, **(parameters or {})},
        steps=[{"parameters": {"scale": 2}}],
        meanings={name: MEANINGS[name] for name in tables},
        created=date(2026, 11, 15),
    )


def thresholded(queries, step, clicks=None):
    """Make a release whose counts passed the threshold of a step, with the intervals that a curator gives them."""
    counts = {"queries": (("query",), {(query,): count for query, count in queries.items()})}
    if clicks is not None:
        counts["clicks"] = (("query", "url"), clicks)
    tables = {}
    for name, (keys, rows) in counts.items():
        columns = {key: pa.array([row[place] for row in rows], pa.string()) for place, key in enumerate(keys)}
        tables[name] = with_intervals(pa.table({**columns, "noisy": pa.array(rows.values(), pa.int64())}), step)
    steps = [Step("counts", f"counts of {name} with noise", step.loss) for name in tables]
    return Release.make(
        tables,
        [Guarantee.of("readers", "curator", Unit("user", "add-remove"), steps, delta=0.05)],
        kind="curator",
        parameters={"queries_per_user": step.keys_per_user},
        steps=[{"parameters": step.to_json() | {"table": name}} for name in tables],
        meanings={name: MEANINGS[name] for name in tables},
    )


def whole_release(**options):
    return release_of(QUERIES, CLICKS, REFORMULATIONS, **options)


def shares_of(queries, clicks=None, *, stderr=0.001, parameters=None, of=""):
    """Make a release of shares, as opt-in users and clients make one; a client's report costs ln 3."""
    tables = {"queries": _shares(("query",), {(query,): share for query, share in queries.items()}, stderr)}
    if clicks is not None:
        tables["clicks"] = _shares(("query", "url"), clicks, stderr)
    unit = Unit("user", "replace-one")
    head = LaplaceHistogram(1, Fraction(1), 15, relation=unit.relation)
    channel = LocalChannel({"name": "oue", "k": 1 + len(queries), "lie": 2**51})
    steps = [Step("discrete-laplace", "the head list", head.loss), Step("oue", "a report", channel.loss)]
    return Release.make(
        tables,
        [
            Guarantee.of(f"opt-in readers{of}", "curator", unit, steps[:1], delta=1e-5),
            Guarantee.of(f"other readers{of}", "local", Unit("client", "replace-one"), steps[1:]),
        ],
        kind="hybrid",
        parameters={"records_per_user": 1, "rest": max(0.0, 1 - sum(queries.values())), **(parameters or {})},
        steps=[{"parameters": ran.to_json()} for ran in (head, channel)],
        meanings={name: f"the share of all records, by {name}" for name in tables},
        created=date(2026, 11, 15),
    )


def private_hybrid():
    """Make a release of shares as a blend makes one: ten records, and the promises of two real steps."""
    unit = Unit("user", "replace-one")
    cells = len(RECORDS) + 1
    head = LaplaceHistogram(1, Fraction(1, 2), 7, relation=unit.relation)
    channel = LocalChannel({"name": "krr", "k": cells, "lie": 2**53 // 64})
    listed = Step("discrete-laplace", "records with noise of scale 1/2, listed from 7 on", head.loss)
    reported = Step("krr", f"one report over {cells} cells", channel.loss)
    return Release.make(
        {"queries": _blended_queries(), "clicks": _blended_clicks(), "records": _blended_records()},
        [
            Guarantee.of("opt-in readers of example.org", "curator", unit, [listed], delta=1e-5),
            Guarantee.of("other readers of example.org", "local", Unit("client", "replace-one"), [reported]),
        ],
        kind="hybrid",
        parameters={"mode": "best", "records_per_user": 1, "rest": 1 - sum(row[2] for row in RECORDS.values())},
        steps=[{"parameters": ran.to_json()} for ran in (head, channel)],
        meanings={
            "queries": "the share of all records that have the query, blended from both groups",
            "clicks": "the share of all records that are this query and this page, blended from both groups",
            "records": "what each group alone says of a record, and how the two were weighed",
        },
        created=date(2026, 11, 15),
    )


def _blended_clicks():
    keys = {"query": [query for query, _ in RECORDS], "url": [url for _, url in RECORDS]}
    return pa.table({**keys, **_blended([row[2] for row in RECORDS.values()], [row[3] for row in RECORDS.values()])})


def _blended_queries():
    sums = {}
    for (query, _), (_, _, share, stderr) in RECORDS.items():
        before, squared = sums.get(query, (0.0, 0.0))
        sums[query] = (before + share, squared + stderr**2)
    totals = list(sums.values())
    return pa.table({"query": list(sums), **_blended([t for t, _ in totals], [s**0.5 for _, s in totals])})


def _blended(shares, errors):
    pairs = list(zip(shares, errors, strict=True))
    lows, highs = [max(0.0, s - 2 * e) for s, e in pairs], [min(1.0, s + 2 * e) for s, e in pairs]
    return {"share": shares, "stderr": errors, "low": lows, "high": highs}


def _blended_records():
    spread = (0.005**2 + 0.0025**2) ** 0.5
    return pa.table(
        {
            "query": [query for query, _ in RECORDS],
            "url": [url for _, url in RECORDS],
            "optin": [optin for optin, _, _, _ in RECORDS.values()],
            "client": [client for _, client, _, _ in RECORDS.values()],
            "optin_stderr": [0.005] * len(RECORDS),
            "client_stderr": [0.0025] * len(RECORDS),
            "weight": [0.2] * len(RECORDS),
            "shift_z": [(optin - client) / spread for optin, client, _, _ in RECORDS.values()],
        }
    )


def _shares(keys, rows, stderr):
    shares = list(rows.values())
    return pa.table(
        {
            **{name: pa.array([key[place] for key in rows], pa.string()) for place, name in enumerate(keys)},
            "share": pa.array(shares, pa.float64()),
            "stderr": pa.array([stderr] * len(shares), pa.float64()),
            "low": pa.array([share - 2 * stderr for share in shares], pa.float64()),
            "high": pa.array([share + 2 * stderr for share in shares], pa.float64()),
        }
    )


def _table(keys, rows, stderr):
    counts = list(rows.values())
    return pa.table(
        {
            **{name: pa.array([key[place] for key in rows], pa.string()) for place, name in enumerate(keys)},
            "count": pa.array(counts, pa.int64()),
            "stderr": pa.array([stderr] * len(counts), pa.float64()),
            "low": pa.array([count - 2 * stderr for count in counts], pa.float64()),
            "high": pa.array([count + 2 * stderr for count in counts], pa.float64()),
        }
    )
