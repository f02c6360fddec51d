"""Small releases for tests, made the way a curator makes them; nobody's data."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import pyarrow as pa

from hushquery.core.budget import Unit
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import LaplaceHistogram, LocalChannel, Loss
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


def shares_of(queries, clicks=None, *, stderr=0.001, parameters=None):
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
            Guarantee.of("opt-in readers", "curator", unit, steps[:1], delta=1e-5),
            Guarantee.of("other readers", "local", Unit("client", "replace-one"), steps[1:]),
        ],
        kind="hybrid",
        parameters={"records_per_user": 1, "rest": max(0.0, 1 - sum(queries.values())), **(parameters or {})},
        steps=[{"parameters": ran.to_json()} for ran in (head, channel)],
        meanings={name: f"the share of all records, by {name}" for name in tables},
        created=date(2026, 11, 15),
    )


def private_hybrid():
    """Give the tiny hybrid release with the promises that two real steps make; (4, 1e-5) and ln 54."""
    made = example.tiny_hybrid_release()
    unit = Unit("user", "replace-one")
    cells = len(example.RECORDS) + 1
    head = LaplaceHistogram(1, Fraction(1, 2), 7, relation=unit.relation)
    channel = LocalChannel({"name": "krr", "k": cells, "lie": 2**53 // 64})
    listed = Step("discrete-laplace", "records with noise of scale 1/2, listed from 7 on", head.loss)
    reported = Step("krr", f"one report over {cells} cells", channel.loss)
    return Release.make(
        made.tables,
        [
            Guarantee.of("opt-in readers of example.org", "curator", unit, [listed], delta=1e-5),
            Guarantee.of("other readers of example.org", "local", Unit("client", "replace-one"), [reported]),
        ],
        kind="hybrid",
        parameters=made.manifest["parameters"],
        steps=[{"parameters": ran.to_json()} for ran in (head, channel)],
        meanings={
            "queries": "the share of all records that have the query, blended from both groups",
            "clicks": "the share of all records that are this query and this page, blended from both groups",
            "records": "what each group alone says of a record, and how the two were weighed",
        },
        created=date(2026, 11, 15),
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
