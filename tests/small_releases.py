"""Small releases for tests, made the way a curator makes them; nobody's data."""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from hushquery.privacy.guarantee import Guarantee, Step
from hushquery.privacy.loss import Loss
from hushquery.privacy.unit import Unit
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


def whole_release(**options):
    return release_of(QUERIES, CLICKS, REFORMULATIONS, **options)


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
