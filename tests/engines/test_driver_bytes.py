"""What leaves the engine does not grow with the tail of a log where the mathematics allows it, and is bounded."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hushquery.curator.plan import SelectorName, plan_release
from hushquery.engine import as_table, execute
from hushquery.log import read_log
from meter import Meter, metered
from statistical import bits

HEAD, HOLDERS = 40, 100
# Everything of a release passes through its `fetch`. By name: the package has a function `execute` too.
ENGINE = sys.modules["hushquery.engine.execute"]


def log_with_tail(tail: int) -> pa.Table:
    """Return a log of 40 queries that 100 users each have, and of so many that one user has each."""
    queries = np.concatenate([np.repeat(np.arange(HEAD), HOLDERS), np.arange(HEAD, HEAD + tail)])
    users = np.arange(len(queries)) % (len(queries) // 2)
    texts = pa.array([f"query {number:07}" for number in queries.tolist()], pa.string())
    return pa.table({"user": pa.array(users).cast(pa.string()), "query": texts})


def came_out(selector: SelectorName, tail: int, folder: Path) -> tuple[Meter, int]:
    """Make a release; return what left the engine for it, and how many queries it has."""
    log = read_log(log_with_tail(tail), patterns=False)
    plan = plan_release(log, epsilon=2, delta="1e-6", queries_per_user=4, selector=selector, population="readers")
    with metered(ENGINE) as meter:
        release = plan.run(folder / f"{selector} {tail}.db", bits=bits("driver bytes", selector))
    return meter, release.tables["queries"].num_rows


@pytest.mark.parametrize("selector", ["laplace", "gaussian"])
def test_the_tail_stays_in_the_engine(selector: SelectorName, tmp_path: Path) -> None:
    short, released = came_out(selector, 25_000, tmp_path)
    long, too = came_out(selector, 100_000, tmp_path)
    assert released == too == HEAD
    assert long.bytes <= short.bytes + 64
    assert long.rows < 2 * HEAD + 20


@pytest.mark.parametrize("selector", ["korolova2009", "optimal", "weighted"])
def test_other_selectors_fetch_at_most_every_query_once(selector: SelectorName, tmp_path: Path) -> None:
    # Equal counts are drawn for at once from 20,000 on; sums of weights that differ are fewer of each.
    meter, released = came_out(selector, 25_000, tmp_path)
    assert released == HEAD
    assert meter.rows <= 25_000 + 4 * HEAD + 1_000


def test_a_meter_counts_what_is_executed_and_nothing_else() -> None:
    table = as_table({"n": list(range(1000)), "text": ["a"] * 1000})
    with metered(ENGINE) as outer:
        execute(table.aggregate(total=table.n.sum()))
        with metered(ENGINE) as inner:
            execute(table.filter(table.n < 10).select("n"))
    execute(table)
    assert (len(outer.tables), outer.rows) == (2, 11)
    assert (len(inner.tables), inner.rows) == (1, 10)
    assert 80 <= inner.bytes < outer.bytes < 200
