"""What only one person searched for comes out no more often than delta allows, and a broken selector is caught at it.

The private tail of the synthetic log (names, numbers, addresses) and every other query that one user alone has. Each
user's own queries come out with at most ``rare_chance`` in expectation, so the number over all runs is at most that of
independent tosses with the same mean (Hoeffding 1956), which ``statistical.rate_at_most`` judges at 1e-9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import statistical
from hushquery.core.budget import Budget
from hushquery.curator.counting import Bound
from hushquery.curator.plan import SELECTORS, ReleaseSpec, calibrate
from hushquery.curator.selectors import Selector
from hushquery.curator.selectors.guided import Guided
from hushquery.curator.selectors.iterated import Iterated
from hushquery.curator.selectors.korolova2009 import Korolova
from hushquery.curator.selectors.optimal import Optimal
from hushquery.curator.selectors.thresholded import ThresholdedCounts
from hushquery.curator.selectors.weighted import Weighted
from hushquery.log import read_log
from hushquery.log.synthetic.logs import batches, which_private

USERS = 2000
D = 10


@dataclass(frozen=True)
class Tail:
    """A log, and what in it belongs to one person alone."""

    table: Any
    alone: pa.Array
    owners: int
    private_owners: int


@pytest.fixture(scope="module")
def tail() -> Iterator[Tail]:
    engine = ibis.duckdb.connect()
    engine.create_table("log", pa.Table.from_batches(batches("aol", users=USERS, seed=5)))
    # Without the patterns, which would take most of the private tail out before it is counted.
    table = engine.create_table("read", read_log(engine.table("log"), patterns=False).table)
    held = (
        table.select("user", "query")
        .distinct()
        .group_by("query")
        .agg(holders=lambda t: t.count(), user=lambda t: t.user.min())
    )
    single = held.filter(held.holders == 1).to_pyarrow()
    private = single.filter(pa.array(which_private(single["query"])))
    assert len(private) > 200
    all_private = which_private(pc.unique(table.query.to_pyarrow()))
    assert all_private.sum() == len(private)  # nobody shares a private query
    yield Tail(
        table,
        single["query"].combine_chunks(),
        len(pc.unique(single["user"])),
        len(pc.unique(private["user"])),
    )
    engine.disconnect()


def selector_for(name: str, delta: float | str) -> Selector:
    return calibrate(ReleaseSpec(Budget("ln 10", delta), D, selector=name, select_only=True)).selector  # type: ignore[arg-type]


def broken(selector: Selector) -> Selector:
    """Lower the threshold, as a slip in a sign, a unit or a logarithm would."""
    if isinstance(selector, ThresholdedCounts):
        return replace(selector, selection=replace(selector.selection, threshold=int(selector.threshold) // 3))
    if isinstance(selector, Korolova):
        return replace(selector, theorem=replace(selector.theorem, threshold=Fraction(D)))
    if isinstance(selector, Optimal):
        return replace(selector, selection=replace(selector.selection, delta=50 * selector.selection.delta))
    assert isinstance(selector, Weighted | Guided | Iterated)
    assert selector.selection.threshold is not None
    return replace(selector, selection=replace(selector.selection, threshold=selector.selection.threshold // 3))


def come_out(selector: Selector, tail: Tail, runs: int, *name: object) -> tuple[int, int, int]:
    """Run a selection several times: how many private queries, queries of one user, and queries at all came out."""
    private = alone = everything = 0
    for run in range(runs):
        bits = statistical.bits("tail", selector.name, run, *name)
        found = selector.run(tail.table, Bound("first", f"{run}"), bits)["query"].combine_chunks()
        everything += len(found)
        alone += pc.sum(pc.is_in(found, value_set=tail.alone)).as_py() or 0
        private += int(which_private(found).sum())
    return private, alone, everything


def judge(selector: Selector, tail: Tail, runs: int, *name: object, ran: Selector | None = None) -> int:
    """Check what came out against the chance that ``selector`` promises; give how many queries came out at all."""
    private, alone, everything = come_out(ran or selector, tail, runs, *name)
    promised = selector.rare_chance()
    assert 0 < promised < 0.1
    # One toss per query a user may keep.
    statistical.rate_at_most(private, runs * tail.private_owners * D, promised / D, f"private, {selector.name}")
    statistical.rate_at_most(alone, runs * tail.owners * D, promised / D, f"of one user, {selector.name}")
    return everything


@pytest.mark.parametrize("name", SELECTORS[1:])
def test_what_one_person_searched_for_comes_out_as_rarely_as_promised(name: str, tail: Tail) -> None:
    # At a large delta some do come out, so that the bound is tried.
    everything = judge(selector_for(name, 0.02), tail, 1 if name == "guided" else 4, "loose")
    assert everything > 10  # the head does come out
    private, alone, _ = come_out(selector_for(name, 1e-9), tail, 1, "tight")
    assert private == alone == 0


@pytest.mark.parametrize("name", SELECTORS[1:])
def test_a_lowered_threshold_is_caught(name: str, tail: Tail) -> None:
    honest = selector_for(name, 0.02)
    with pytest.raises(AssertionError, match="expected"):
        judge(honest, tail, 1 if name == "guided" else 3, "broken", ran=broken(honest))


@pytest.mark.prove
@pytest.mark.parametrize("delta", [1e-5, 0.02])
@pytest.mark.parametrize("name", SELECTORS[1:])
def test_two_hundred_runs(name: str, delta: float, tail: Tail) -> None:
    assert judge(selector_for(name, delta), tail, 34, "long", delta) > 34


@pytest.mark.prove
@pytest.mark.parametrize("name", SELECTORS[1:])
def test_two_hundred_whole_releases(name: str, tail: Tail, tmp_path: Any) -> None:
    """The same for whole releases at an ordinary budget: no table of any of them shows what is private."""
    from hushquery.curator.plan import plan_release

    plan = plan_release(
        read_log(tail.table, patterns=False),
        epsilon="ln 10",
        delta=1e-5,
        queries_per_user=D,
        clicks_per_user=5,
        reformulations_per_user=5,
        selector=name,  # type: ignore[arg-type]
        population="readers",
    )
    seen = 0
    for run in range(17):
        made = replace(plan).run(tmp_path / f"{run}.db", bits=statistical.bits("whole", name, run))
        for table in made.tables.values():
            for column in {"query", "next_query"} & set(table.column_names):
                seen += int(which_private(table[column].combine_chunks()).sum())
    statistical.rate_at_most(seen, 17 * tail.private_owners * D, 3 * float(plan.spec.budget.delta) / D)
