"""Weights: whole numbers of 1/64 with L2 norm at most one, through the expressions that the engine runs."""

from __future__ import annotations

import math
from fractions import Fraction

import ibis
import numpy as np
import pyarrow as pa
import pytest

from hushquery.core.calibration import WEIGHT_GRID, knapsack_threshold
from hushquery.core.loss import GaussianWeights, equal_weight
from hushquery.curator.counting import Bound, law_of
from hushquery.curator.selectors.guided import Guided, bucket
from hushquery.curator.selectors.weighted import Weighted, equal_weights, weighted_threshold
from hushquery.engine import execute
from search_logs import counted, log
from statistical import number

SIGMA = Fraction(140)


def test_equal_weights_of_the_engine_are_the_exact_ones():
    sizes = [*range(1, 301), 1023, 1024, 1025, 4095, 4096, 4097, 10_000]
    users = np.repeat([f"user {t}" for t in sizes], sizes)
    rows = execute(equal_weights(ibis.memtable(pa.table({"user": users}))).distinct()).to_pylist()
    found = {row["t"]: row["weight"] for row in rows}
    assert found == {t: equal_weight(t) for t in sizes}
    assert all(t * weight**2 <= WEIGHT_GRID**2 < t * (weight + 1) ** 2 for t, weight in found.items())


# ---- guided --------------------------------------------------------------------------------------------------------


def shares_of_users():
    """Shares of many users: as the selector makes them, anywhere, and where 64 times the share is nearly whole."""
    rng = np.random.default_rng(number("shares"))
    users = [np.clip(rng.lognormal(-1, 1.5, rng.integers(1, 41)), 0.02, 1.0) for _ in range(250)]
    users += [rng.random(rng.integers(1, 41)) + 1e-9 for _ in range(100)]
    users += [np.full(t, share) for t in (1, 2, 3, 4, 9, 16, 25, 36) for share in (1.0, 0.02, 1 / 3, 0.1, 1e-100)]
    # Whole vectors of norm 64, scaled so that shares, squares and roots all round, upwards and downwards.
    whole = [[64], [32] * 4, [16] * 16, [48, 32, 24, 16, 8, 8, *[4] * 4], [62, 14, 6, 4, 2], [63, 11, 2, 1, 1]]
    whole = [v for v in whole if sum(k * k for k in v) <= WEIGHT_GRID**2]
    for vector in whole:
        for scale in rng.random(40):
            users.append(np.array(vector) * scale / 64)
            users.append(np.nextafter(np.array(vector) * scale / 64, rng.integers(0, 2, len(vector)) * 2.0))
    return users


def test_guided_weights_have_norm_at_most_one_whatever_the_shares():
    users = shares_of_users()
    rows = [(f"user {u}", i, f"query {u} {i}", None) for u, shares in enumerate(users) for i in range(len(shares))]
    share = {f"query {u} {i}": float(s) for u, shares in enumerate(users) for i, s in enumerate(shares)}
    table = log(*rows)
    guided = Guided(GaussianWeights(100, SIGMA), GaussianWeights(40, SIGMA, 900), None, buckets=2**24)
    placed = execute(table.mutate(bucket=bucket(table["query"], guided.buckets)).select("query", "bucket")).to_pydict()
    of_bucket = dict(zip(placed["bucket"], (share[q] for q in placed["query"]), strict=True))
    promising = ibis.memtable(pa.table({"bucket": list(of_bucket), "share": list(of_bucket.values())}))
    weights = counted(guided.sums_per_query(guided.each(table, Bound()), promising))
    alone = {q for q, b in zip(placed["query"], placed["bucket"], strict=True) if of_bucket[b] == share[q]}
    seen = 0
    for u, shares in enumerate(users):
        names = [f"query {u} {i}" for i in range(len(shares))]
        mine = [weights.get((name,), 0) for name in names]
        assert sum(w * w for w in mine) <= WEIGHT_GRID**2
        assert min(mine) >= 0
        if set(names) <= alone:  # no bucket shared by chance: what each weight must be is known
            exact = [Fraction(float(s)) for s in shares]
            total = sum(s * s for s in exact)
            for weight, s in zip(mine, exact, strict=True):
                ratio = math.sqrt(float(WEIGHT_GRID**2 * s * s / total))
                assert abs(weight - ratio) < 1 + 1e-9
                assert weight in (math.floor(ratio * (1 - 1e-12)), math.floor(ratio * (1 + 1e-12)))
            seen += 1
    assert seen > 0.95 * len(users)


def test_a_user_whose_weights_would_have_too_large_a_norm_is_left_out():
    """The integer test in the expression is there: a share whose square loses nearly all its digits fails it."""
    guided = Guided(GaussianWeights(100, SIGMA), GaussianWeights(40, SIGMA, 900), None, buckets=1)
    table = log(("zoe", 0, "ant", None))
    for share, left in ((2.7e-162, {}), (2.7e-100, {("ant",): WEIGHT_GRID})):
        promising = ibis.memtable(pa.table({"bucket": [0], "share": [share]}))
        assert counted(guided.sums_per_query(guided.each(table, Bound()), promising)) == left


def test_the_chance_of_a_user_alone_is_within_the_threshold_s_delta_for_any_weights():
    rng = np.random.default_rng(number("alone"))
    for d in (1, 2, 5, 20):
        step = GaussianWeights(d, SIGMA, knapsack_threshold(SIGMA / WEIGHT_GRID, d, Fraction(1, 1000)))
        law, charged = law_of(step), float(step.threshold_delta())
        assert charged <= 1e-3
        chance = [float(law.tail(step.threshold - j)) for j in range(WEIGHT_GRID + 1)]
        worst = 0.0
        for _ in range(400):
            direction = rng.random(rng.integers(1, d + 1)) ** rng.choice([0.2, 1, 5])
            weights = np.floor(WEIGHT_GRID * direction / np.linalg.norm(direction)).astype(int)
            worst = max(worst, sum(chance[w] for w in weights))
        assert worst <= charged
        assert worst >= 0.7 * charged


@pytest.mark.parametrize("d", [1, 2, 5, 20, 60])
def test_the_threshold_for_equal_weights_is_the_least_that_fits(d):
    step = weighted_threshold(d, SIGMA, Fraction(1, 10**4))
    law = law_of(step)

    def worst(threshold):
        hidden = [(1 - float(law.tail(threshold - equal_weight(t)))) ** t for t in range(1, d + 1)]
        return 1 - min(hidden)

    assert float(step.threshold_delta()) == pytest.approx(worst(step.threshold), rel=1e-9)
    assert worst(step.threshold) <= 1e-4 < worst(step.threshold - 1)
    assert Weighted(step, None).rare_chance() >= worst(step.threshold)


# ---- the sketch ----------------------------------------------------------------------------------------------------


def test_buckets_are_the_same_everywhere_and_fixed_beforehand():
    import hashlib

    queries = ["ant", "weather leeds", "天気", "", "a'b\"c"]
    table = log(*(("zoe", 0, query, None) for query in queries))
    found = execute(table.select("query", bucket=bucket(table["query"], 2**22))).to_pylist()
    for row in found:
        digest = hashlib.md5(row["query"].encode()).hexdigest()  # noqa: S324
        assert row["bucket"] == int(digest[:6], 16) % 2**22


def test_two_queries_of_a_user_in_one_bucket_count_once():
    guided = Guided(GaussianWeights(100, SIGMA), GaussianWeights(2, SIGMA, 900), None, buckets=1)
    table = log(*(("zoe", i, f"query {i}", None) for i in range(150)), ("bob", 0, "query 3", None))
    assert guided.exact_sketch(guided.each(table, Bound())).tolist() == [2 * WEIGHT_GRID]


def test_empty_buckets_get_noise_too():
    from hushquery.noise.sampler import SeededBits

    guided = Guided(GaussianWeights(100, SIGMA), GaussianWeights(2, SIGMA, 900), None, buckets=1000)
    exact = guided.exact_sketch(guided.each(log(("bob", 0, "ant", None)), Bound()))
    assert exact.sum() == WEIGHT_GRID
    noisy = guided.noisy_sketch(exact, SeededBits(1))
    assert len(noisy) == 1000
    assert len(set((noisy - exact).tolist())) > 200
    assert 0.8 * 140 < np.std(noisy) < 1.2 * 140
