"""Neighbouring logs: what one user more changes, exactly; and that whole steps follow the laws that conformance checks.

``tests/conformance`` runs whole steps on logs of so many copies of a dataset that noise is drawn key by key; here are
enough of them for noise that is drawn for many keys at once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from hushquery.core.budget import Budget
from hushquery.core.calibration import WEIGHT_GRID
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram
from hushquery.curator.audit import crowd, many_logs, numbered, searcher, seen_in
from hushquery.curator.clicks import Clicks, SelectedClicks
from hushquery.curator.counting import Bound, count_released, law_of, searches, tally
from hushquery.curator.plan import ReleaseSpec, calibrate
from hushquery.curator.reformulations import ReformulationPairs, Reformulations
from hushquery.curator.selectors.guided import Guided, GuidedSelector
from hushquery.curator.selectors.korolova2009 import KorolovaSelector
from hushquery.curator.selectors.optimal import OptimalSelector
from hushquery.curator.selectors.thresholded import GaussianSelector, LaplaceSelector
from hushquery.curator.selectors.weighted import WeightedSelector, equal_weights
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.survivors import WORTH_A_BINOMIAL
from search_logs import OTHERS, ZOE, counted, log
from statistical import bits, every_position, fit, number

QUERY, PAIR, STEP = ["query"], ["query", "url"], ["query", "next_query"]
RELEASED = ("ant", "bee", "cow", "dog")


# ---- one user more -------------------------------------------------------------------------------------------------


def released():
    return numbered(RELEASED)


def change(expression, others, zoe):
    """Give what one user more adds to each key; it is never negative."""
    before, after = (counted(expression(log(*rows))) for rows in (others, others + zoe))
    added = {key: after.get(key, 0) - before.get(key, 0) for key in {*before, *after}}
    assert min(added.values(), default=0) >= 0
    return [n for n in added.values() if n]


BOUNDS = st.builds(Bound, st.sampled_from(["first", "random"]), st.just("key"))
JOINS = seed(number("joins"))
FEW = settings(max_examples=20, deadline=None, database=None)


@JOINS
@FEW
@given(OTHERS, ZOE, BOUNDS, st.integers(1, 3))
def test_one_user_more_adds_one_to_at_most_d_queries(others, zoe, bound, d):
    added = change(lambda t: tally(bound.rows(t, QUERY, d), QUERY), others, zoe)
    assert set(added) == {1}
    assert len(added) == min(d, len({row[2] for row in zoe} - {None}))
    # The cap on released queries is applied to these.
    again = change(lambda t: count_released(t, bound, released(), d), others, zoe)
    assert set(again) <= {1}
    assert len(again) == min(d, len({row[2] for row in zoe} & set(RELEASED)))


@JOINS
@FEW
@given(OTHERS, ZOE, BOUNDS, st.integers(1, 3))
def test_one_user_more_adds_at_most_d_searches(others, zoe, bound, d):
    added = change(lambda t: tally(searches(t, bound, d), QUERY), others, zoe)
    assert sum(added) == min(d, len({row[1:3] for row in zoe if row[2]}))


@JOINS
@FEW
@given(OTHERS, ZOE, BOUNDS, st.integers(1, 3), st.booleans())
def test_one_user_more_adds_one_to_at_most_d_clicked_pairs(others, zoe, bound, d, listed):
    results = ibis.memtable(pa.table({"query": ["ant", "bee"], "url": ["https://x.example/"] * 2})) if listed else None
    clicks = Clicks(LaplaceHistogram(d, Fraction(1)), results)
    added = change(lambda t: clicks.expression(t, bound, released()), others, zoe)
    allowed = {("ant", "https://x.example/"), ("bee", "https://x.example/")}
    mine = {row[2:] for row in zoe if row[3] and row[2] in RELEASED and (not listed or row[2:] in allowed)}
    assert set(added) <= {1}
    assert len(added) == min(d, len(mine))


@JOINS
@FEW
@given(OTHERS, ZOE, BOUNDS, st.integers(1, 3))
def test_one_user_more_adds_one_to_at_most_d_reformulations(others, zoe, bound, d):
    walks = Reformulations(LaplaceHistogram(d, Fraction(1)), session_gap=180.0)
    added = change(lambda t: walks.expression(t, bound, released()), others, zoe)
    path = sorted({(time, query) for _, time, query, _ in zoe if query and time is not None})
    mine = {
        (a, b)
        for (start, a), (end, b) in itertools.pairwise(path)
        if a != b and end - start <= 180_000_000 and {a, b} <= set(RELEASED)
    }
    assert set(added) <= {1}
    assert len(added) == min(d, len(mine))


@JOINS
@FEW
@given(OTHERS, ZOE, BOUNDS, st.integers(1, 4), st.sampled_from([1, 2, 3, 64]))
def test_one_user_more_moves_a_sketch_by_norm_one(others, zoe, bound, d, buckets):
    guided = Guided(GaussianWeights(d, Fraction(140)), GaussianWeights(2, Fraction(140), 900), None, buckets)
    before, after = (guided.exact_sketch(guided.each(log(*rows), bound)) for rows in (others, others + zoe))
    moved = after - before
    assert 0 < (moved**2).sum() <= WEIGHT_GRID**2
    assert moved.min() >= 0
    weighed = change(
        lambda t: (w := equal_weights(bound.rows(t, QUERY, d))).group_by("query").agg(n=w.weight.sum()), others, zoe
    )
    assert sum(n * n for n in weighed) <= WEIGHT_GRID**2
    assert len(set(weighed)) == 1


@JOINS
@FEW
@given(OTHERS, ZOE, BOUNDS, st.integers(1, 3), st.lists(st.integers(-400, 9_000), min_size=5, max_size=5))
def test_one_user_more_moves_guided_sums_by_norm_one_whatever_the_sketch_says(others, zoe, bound, d, noisy):
    guided = Guided(GaussianWeights(4, Fraction(140)), GaussianWeights(d, Fraction(140), 900), None, buckets=5)
    added = change(lambda t: guided.guided_sums(guided.each(t, bound), np.array(noisy)), others, zoe)
    assert len(added) <= d
    assert sum(n * n for n in added) <= WEIGHT_GRID**2


def test_a_sketch_of_one_bucket_guides_all_shares_alike():
    """What the registered guided selector rests on: with one bucket only "looks empty" matters, not the share."""
    guided = GuidedSelector.calibrate(Fraction(3), Fraction(1, 1000))
    dataset = crowd(3, "ant", "bee") + searcher("zoe", "cow", "bee", "ant") + searcher("yan", "cow")
    alive = guided.alive_from()
    rng = np.random.default_rng(number("one bucket"))
    sums = {guided.weigh(dataset, int(noisy)) for noisy in [alive, 10**6, *rng.integers(alive, 40 * alive, 8)]}
    assert sums == {(3 * 45, 4 * 45, 64 + 45)}
    assert guided.weigh(dataset, alive - 1) == (0, 0, 0)


# ---- what runs, against the laws -----------------------------------------------------------------------------------

#: Keys of equal count from which on noise is drawn for all of them at once.
IN_BULK = WORTH_A_BINOMIAL + 1_000
LISTED = 5_000
LOOSE = Fraction(3), Fraction(1, 20)


def follows(rows, law):
    seen = Counter(map(tuple, rows.tolist()))
    every_position(seen, law)
    fit(seen, law)


SELECTORS = {
    # Two of three queries at the same time are kept; for `weighted` the third, which only others hold in the selection,
    # is counted again when it is released and another one is not.
    LaplaceSelector: searcher("zoe", *(("cow", "bee", "ant") * 2), apart=0),
    GaussianSelector: searcher("zoe", *(("cow", "bee", "ant") * 2), apart=0),
    KorolovaSelector: searcher("zoe", *(("cow", "bee", "ant") * 2), apart=0),
    OptimalSelector: searcher("zoe", *(("cow", "bee", "ant") * 2), apart=0),
    WeightedSelector: searcher("zoe", "cow", "bee", "ant"),
}


@pytest.mark.parametrize("cls", SELECTORS, ids=lambda cls: cls.name)
def test_selectors_follow_their_laws_on_many_logs_at_once(cls):
    mechanism, dataset = cls.calibrate(*LOOSE), crowd(2, "ant") + SELECTORS[cls]
    found = mechanism.selector.run(ibis.memtable(many_logs(dataset, IN_BULK)), Bound(), bits("copies", cls.name))
    follows(seen_in(found, mechanism.keys, QUERY, IN_BULK), mechanism.law(dataset))


def test_clicks_follow_their_law_on_many_logs_at_once():
    mechanism = SelectedClicks.calibrate(*LOOSE)
    greedy = [row for row in mechanism.pairs()[-1].right if row[0] == "zoe"]
    dataset = (*crowd(2, "ant", url="https://x.example/"), *greedy)
    many = many_logs(dataset, IN_BULK)
    named = [query for query in set(many["query"].to_pylist()) if not query.endswith("dog")]
    found = mechanism.clicks.run(ibis.memtable(many), Bound(), pa.table({"query": named}), bits("clicks"))
    follows(seen_in(found, mechanism.keys, PAIR, IN_BULK), mechanism.law(dataset))


def test_listed_clicks_all_get_noise_and_nothing_else_does():
    """A public list: every pair of it, zeros included, on many logs at once."""
    step = LaplaceHistogram(2, Fraction(1))
    dataset = (
        *crowd(2, "ant", url="x"),
        *(("zoe", i, q, u) for i, (q, u) in enumerate([("ant", "z"), ("ant", "x")] * 2)),
    )
    many = many_logs(dataset, LISTED)
    named = sorted(set(many["query"].to_pylist()))
    results = ibis.memtable(pa.table({"query": [q for q in named for _ in "xy"], "url": ["x", "y"] * len(named)}))
    clicks = Clicks(step, results)
    found = clicks.run(ibis.memtable(many), Bound(), pa.table({"query": named}), bits("listed"))
    law = product_law([noisy_law(count, law_of(step)) for count in (3, 0)])
    follows(seen_in(found, [("ant", "x"), ("ant", "y")], PAIR, LISTED), law)


@pytest.mark.parametrize("gaussian", [False, True])
def test_reformulations_follow_their_law(gaussian):
    """With many false pairs, and with the noise that the registered mechanism does not have."""
    step = GaussianHistogram(2, Fraction(2)) if gaussian else LaplaceHistogram(2, Fraction(2))
    mechanism = ReformulationPairs(Reformulations(step, expected_false_pairs=0.5))
    dataset = crowd(4, "ant", "bee") + searcher("zoe", "cow", "bee", "ant")
    follows(mechanism.run(dataset, 3_000, bits("walks", gaussian)), mechanism.law(dataset))
    follows(*mechanism.end_to_end(dataset, bits("walks", gaussian)))


# ---- whatever the engine's order -----------------------------------------------------------------------------------


def random_log(rng):
    users = np.char.add("user ", rng.integers(0, 120, 1_500).astype(str))
    queries = np.char.add("query ", np.minimum(rng.zipf(1.3, 1_500), 400).astype(str))
    urls = np.char.add("https://example.com/", rng.integers(0, 3, 1_500).astype(str))
    times = rng.integers(0, 50, 1_500) * 60_000_000
    return pa.table({"user": users, "query": queries, "time": times, "url": urls})


@pytest.mark.parametrize("selector", ["laplace", "gaussian", "korolova2009", "optimal", "weighted", "guided"])
def test_the_same_bits_release_the_same_whatever_the_order_of_rows(selector):
    rng = np.random.default_rng(number("order"))
    rows = random_log(rng)
    plan = calibrate(
        ReleaseSpec(Budget(8, Fraction(1, 100)), 3, clicks_per_user=2, reformulations_per_user=2, selector=selector)
    )
    made = plan.selector if selector != "guided" else replace(plan.selector, buckets=512)
    found = []
    for order in (np.arange(rows.num_rows), rng.permutation(rows.num_rows), np.arange(rows.num_rows)[::-1]):
        table, source = ibis.memtable(rows.take(order)), bits("order", selector)
        queries = made.run(table, Bound(), source)
        clicks = plan.clicks.run(table, Bound(), queries, source)
        found.append((queries, clicks, plan.reformulations.run(table, Bound(), queries, source)))
    assert found[0][0].num_rows > 2
    for again in found[1:]:
        for one, other in zip(found[0], again, strict=True):
            assert one.equals(other)
