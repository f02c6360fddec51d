"""The short form of all attacks on the collector, on both stores; `make prove` runs the long one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from attacks.collector.catalogue import ATTACKS
from attacks.collector.frame import STORES, Shared, cell, run, table
from attacks.collector.page import AFTER, BEFORE, PAGE, document

# All in one of pytest's processes, one after the other: each of them loads the machine.
pytestmark = pytest.mark.xdist_group("attacks")

#: What does not depend on the store is tried on one of them here.
ONCE = ("hostile-http", "starvation", "telemetry")


CASES = [(store, attack) for store in STORES for attack in ATTACKS if store == STORES[0] or attack not in ONCE]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with Shared() as cluster:
        yield cluster


@pytest.mark.parametrize(("store", "attack"), CASES)
def test_it_holds(store: str, attack: str, shared: Shared) -> None:
    rows = list(run({attack: ATTACKS[attack]}, store, short=True, shared=shared))
    assert rows
    assert all(row.held for row in rows), "\n" + table(row for row in rows if not row.held)


def test_the_page_is_that_of_the_kept_runs() -> None:
    assert PAGE.read_text("utf-8") == document()
    kept = json.loads((AFTER if AFTER.exists() else BEFORE).read_text("utf-8"))
    assert {row["attack"] for row in kept["rows"]} == set(ATTACKS)
    assert set(kept["runs"]) == set(STORES)
    assert all(cell(row["seen"]) in PAGE.read_text("utf-8") for row in kept["rows"])
