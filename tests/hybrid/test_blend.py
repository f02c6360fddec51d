"""The blend: weights, intervals, sums, edges, and what the robust rule costs and saves."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.hybrid.blend import TOLERANCE, blend_probabilities, robust_weights
from hushquery.hybrid.clients import FlatShares, TwoStageCells, TwoStageShares
from hushquery.hybrid.inference import LEAST_SHARE, multinomial_variance_of_sum, pool
from hushquery.local.configuration import ORACLES, oracle_named
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hybrid_sides import drawn_clients, drawn_optin, head, noisy_counts, optin_shares
from statistical import number


def draw(*name):
    return np.random.default_rng(number(*name))


# ---- weights -------------------------------------------------------------------------------------------------------


class Many:
    """Independent repetitions of one record, as if they were the records of a list."""

    def __init__(self, values, n, variance_at):
        self.values, self.n, self.variance_at = values, n, variance_at


def test_pooled_weights_are_nearly_as_good_as_known_ones_and_plugged_in_ones_are_not():
    # A record of 0.1%, 1300 opt-in users at epsilon 4, clients with the variance of a rare record 1e-6.
    rng, n, p, runs = draw("pooled"), 1300, 0.001, 200_000
    a = math.exp(-2)
    noise = 2 * a / (1 - a) ** 2
    left = (rng.binomial(n, p, runs) + rng.geometric(1 - a, runs) - rng.geometric(1 - a, runs)) / n
    optin = Many(left, n, lambda x: x * (1 - x) / n + noise / n**2)
    oracle = KRR.calibrate(51, 4)
    of_clients = FlatShares(oracle, np.zeros(51, dtype=np.int64), round(oracle.variance() / 1e-6)).variance_at
    right = rng.normal(p, math.sqrt(of_clients(np.array([p]))[0]), runs)

    def judged(weight):
        blended = weight * left + (1 - weight) * right
        return blended.mean() / p - 1, ((blended - p) ** 2).mean()

    pooled = pool(optin, Many(right, 10**6, of_clients))
    known = of_clients(np.array([p]))[0] / (optin.variance_at(p) + of_clients(np.array([p]))[0])
    own = left * (1 - left) / (n - 1) + noise / (n * (n - 1))
    assert (own <= 0).mean() > 0.03
    bias, error = judged(pooled.weight)
    assert abs(bias) < 0.01
    assert error < 1.1 * judged(known)[1]
    plugged_bias, plugged_error = judged(of_clients(right) / (own + of_clients(right)))
    assert plugged_bias < -0.2
    assert plugged_error > 5 * error  # near-zero denominators: its mean hardly exists


def test_weights_go_to_the_side_that_varies_less():
    rng, records, p = draw("sides"), head(1, 1), np.array([0.2, 0.05])
    few, many = (drawn_optin(rng, records, p, n, 4) for n in (1_000, 1_000_000))
    clients = drawn_clients(rng, KRR.calibrate(3, 1), p, 100_000)
    assert (blend_probabilities(records, few, clients).weight < 0.5).all()
    made = blend_probabilities(records, many, clients, least=-math.inf)
    assert (made.weight > 0.9).all()
    left, right = many.variance_at(made.blended), clients.variance_at(made.blended)
    assert made.weight == pytest.approx(right / (left + right), rel=1e-6)
    # Standard errors are those very variances, the opt-in users' a little longer where noise makes long tails.
    assert made.client_stderr == pytest.approx(np.sqrt(right), rel=1e-6)
    assert made.optin_stderr == pytest.approx(np.sqrt(left), rel=1e-3)
    assert made.blended == pytest.approx(made.weight * made.optin + (1 - made.weight) * made.client, rel=1e-12)


# ---- wild inputs ---------------------------------------------------------------------------------------------------


@st.composite
def wild(draw_):
    urls = draw_(st.lists(st.integers(1, 3), max_size=4))
    records, n = head(*urls), draw_(st.sampled_from([1, 2, 3, 50, 10**6, 10**12]))
    m = len(records)
    values = draw_(st.lists(st.floats(-2, 3), min_size=m, max_size=m))
    optin = optin_shares(records, values, draw_(st.sampled_from([1, 2, 100, 10**9])), draw_(st.floats(0, 1e4)))
    epsilon = draw_(st.sampled_from(["1/1000", "1/10", 1, 4, 12]))
    mode = draw_(st.sampled_from(["best", "paper"]))

    def counts(k, most=n):
        parts = draw_(st.lists(st.floats(0, 1), min_size=k, max_size=k))
        return np.array([math.floor(most * x) for x in parts], dtype=np.int64)

    if mode == "best" and m:
        oracle = oracle_named(draw_(st.sampled_from([*ORACLES, "auto"])), m + 1, epsilon)
        return records, optin, FlatShares(oracle, counts(m + 1), n), mode
    if mode == "best":
        return records, optin, TwoStageShares(TwoStageCells([]), TwoStage.calibrate([], 1), np.array([n]), n), mode
    cells = TwoStageCells(records)
    return records, optin, TwoStageShares(cells, cells.randomizer(epsilon), counts(cells.k, n // cells.k), n), mode


@settings(max_examples=100, deadline=None)
@given(wild(), st.booleans())
def test_whatever_comes_in_shares_and_variances_are_possible(inputs, robust):
    records, optin, clients, mode = inputs
    made = blend_probabilities(records, optin, clients, mode=mode, robust=robust)
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if isinstance(value, np.ndarray):
            assert value.shape == (len(records),)
            assert np.isfinite(value).all() or field.name == "shift_z"
    for stderr in (made.optin_stderr, made.client_stderr, made.stderr, made.queries.stderr):
        assert (stderr > 0).all()
    assert made.wildcard_stderr > 0 or not records
    assert ((made.weight >= 0) & (made.weight <= 1)).all()
    assert (made.share >= 0).all()
    assert 0 <= made.wildcard <= 1 + 1e-12
    total = made.share.sum() + made.wildcard
    assert total == pytest.approx(1, abs=1e-9)
    assert (made.low <= made.share).all()
    assert (made.share <= made.high).all()
    assert made.marks == ("projected on sum 1",)
    assert 0 <= made.agreement.overall <= 1
    assert 0 <= made.wildcard_low <= made.wildcard <= made.wildcard_high <= 1 + 1e-12
    assert math.isfinite(made.wildcard_raw)
    if mode != "best":
        assert made.wildcard_raw == pytest.approx(1 - made.blended.sum(), abs=1e-9)
    for values, sums in ((made.blended, made.queries.blended), (made.share, made.queries.share)):
        by_query = [values[[q == query for q, _ in records]].sum() for query in made.queries.queries]
        assert sums == pytest.approx(by_query, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mode", ["best", "paper"])
def test_an_empty_head_list_leaves_everything_to_the_wildcard(mode):
    cells = TwoStageCells([])
    clients = TwoStageShares(cells, TwoStage.calibrate([], 1), np.array([9]), 9)
    made = blend_probabilities([], optin_shares([], [], 5, 1.0), clients, mode=mode)
    assert made.wildcard == made.wildcard_raw == 1
    assert made.wildcard_stderr == 0
    assert made.share.shape == (0,)
    assert made.queries.queries == ()
    assert made.agreement.agrees


def test_what_can_not_be_blended_is_refused():
    records = head(2)
    optin, clients = optin_shares(records, [0.1, 0.2], 10, 1.0), FlatShares(KRR.calibrate(3, 1), np.array([1, 2, 3]), 6)
    with pytest.raises(UsageError, match="two-stage"):
        blend_probabilities(records, optin, clients, mode="paper")
    with pytest.raises(UsageError, match="called 'other'"):
        blend_probabilities(records, optin, clients, mode="other")
    with pytest.raises(UsageError, match="level"):
        blend_probabilities(records, optin, clients, level=1)
    with pytest.raises(UsageError, match="not about this head list"):
        blend_probabilities(head(3), optin, clients)
    with pytest.raises(DataError, match="one head list for both"):
        blend_probabilities(records, optin_shares(records, [0.1], 10, 1.0), clients)
    with pytest.raises(DataError, match="finite"):
        blend_probabilities(records, optin_shares(records, [0.1, np.nan], 10, 1.0), clients)
    with pytest.raises(DataError, match="nobody"):
        blend_probabilities(records, optin_shares(records, [0.1, 0.2], 0, 1.0), clients)
    cells = TwoStageCells(head(1, 1))
    other = TwoStageShares(cells, cells.randomizer(1), np.zeros(5, dtype=np.int64), 6)
    with pytest.raises(UsageError, match="not about this head list"):
        blend_probabilities(records, optin, other)


# ---- what the parts are --------------------------------------------------------------------------------------------


def test_paper_mode_leaves_what_only_clients_know_with_them():
    rng, records = draw("paper"), head(2, 1)
    cells = TwoStageCells(records)
    oracle = cells.randomizer(3)
    support = rng.multinomial(5000, np.full(6, 1 / 6))
    clients = TwoStageShares(cells, oracle, support, 5000)
    made = blend_probabilities(records, optin_shares(records, [0.3, 0.1, 0.1], 500, 0.5), clients, mode="paper")
    values, _ = oracle.frequencies(support, 5000)
    direct, _ = oracle.query_frequencies(support, 5000)
    assert made.queries.direct == pytest.approx(direct[:2])
    assert made.wildcard_raw == pytest.approx(1 - made.blended.sum())
    assert made.client == pytest.approx(values[[0, 1, 3]])


def test_paper_mode_weighs_by_theorem_6_and_nothing_else():
    rng, records, n = draw("theorem 6"), head(2, 1, 3), 1300
    cells = TwoStageCells(records)
    oracle = cells.randomizer(4)
    rates = sum(share * np.array(list(oracle.law(v).values())) for v, share in enumerate(np.full(10, 0.1)))
    clients = TwoStageShares(cells, oracle, rng.multinomial(50_000, rates), 50_000)
    values = np.array([0.02, 0.01, 0.001, -0.004, 0.0, 0.3])
    optin = optin_shares(records, values, n, 0.7)
    made = blend_probabilities(records, optin, clients, mode="paper", least=-math.inf)
    theorem_4 = values * (1 - values) / (n - 1) + 0.7 / (n * (n - 1))
    theorem_5 = oracle.frequencies(clients.support, clients.n)[1][cells.record_cells] ** 2
    known = theorem_4 > 0
    assert known.tolist() == [True, True, True, False, True, True]
    assert made.weight[known] == pytest.approx((theorem_5 / (theorem_4 + theorem_5))[known], rel=1e-9)
    assert made.weight[3] == pytest.approx(1)  # below zero, so taken to be next to nothing
    assert made.blended == pytest.approx(made.weight * values + (1 - made.weight) * clients.values)
    assert made.wildcard_raw == pytest.approx(1 - made.blended.sum())
    pooled = blend_probabilities(records, optin, clients, least=-math.inf)
    assert (made.weight != pooled.weight).all()
    # What both sides say together is the same, whichever of it is published.
    assert made.stderr == pytest.approx(np.hypot(pooled.stderr, made.blended - pooled.blended))
    assert (made.low <= pooled.low + 1e-12).all()
    assert (made.high >= pooled.high - 1e-12).all()


def test_opt_in_sums_have_the_covariance_of_counts():
    optin = optin_shares(head(3), [0.1, 0.2, 0.3], 50, 4.0)
    p, w = np.array([0.2, 0.3, 0.4]), np.array([1.0, -0.5, 2.0])
    exact = (w @ (np.diag(p) - np.outer(p, p)) @ w) / 50 + (w @ w) * 4 / 50**2
    assert multinomial_variance_of_sum(optin, w, p) == pytest.approx(exact, rel=1e-12)
    assert multinomial_variance_of_sum(optin, np.ones(3), 10 * p) >= 0


def judge_coverage(runs, oracle, n_optin, n_client, p, epsilon, *name):
    """Intervals of records that were not selected hold the truth as often as they say, and estimates are unbiased."""
    rng, records = draw("coverage", *name), head(*[2] * (len(p) // 2))
    inside, queries, wild_inside, errors, claimed = [], [], [], [], []
    of_query = p.reshape(-1, 2).sum(axis=1)
    for _ in range(runs):
        made = blend_probabilities(
            records,
            drawn_optin(rng, records, p, n_optin, epsilon),
            drawn_clients(rng, oracle, p, n_client),
            least=-math.inf,
        )
        inside.append((made.low <= p) & (p <= made.high))
        queries.append((made.queries.low <= of_query) & (of_query <= made.queries.high))
        wild_inside.append(abs(made.wildcard_raw - (1 - p.sum())) < 1.96 * made.wildcard_stderr)
        errors.append(made.blended - p)
        claimed.append(made.stderr**2)
    assert 0.93 < np.mean(inside) < 0.97
    assert 0.93 < np.mean(queries) < 0.99
    assert np.mean(wild_inside) > 0.92
    errors, claimed = np.array(errors), np.mean(claimed, axis=0)
    assert np.abs(errors.mean(axis=0) / np.sqrt(claimed / runs)).max() < 5
    assert (errors**2).mean() == pytest.approx(claimed.mean(), rel=0.05)


@pytest.mark.parametrize("name", ["krr", "oue"])
def test_intervals_hold_and_the_blend_is_unbiased(name):
    p = 0.2 / np.arange(1, 21) ** 1.2
    oracle = KRR.calibrate(21, 4) if name == "krr" else OUE.calibrate(21, 2)
    judge_coverage(300, oracle, 2_000, 20_000, p / 2, 2, name)


@pytest.mark.prove
@pytest.mark.parametrize("epsilon", [1, 2, 4])
@pytest.mark.parametrize("name", ["krr", "oue"])
def test_intervals_hold_in_long_runs(name, epsilon):
    p = 0.1 / np.arange(1, 51) ** 1.2
    judge_coverage(1_000, oracle_named(name, 51, epsilon), 10_000, 200_000, p, epsilon, name, epsilon)


def test_intervals_hold_for_counts_of_one():
    # A normal interval around such a count holds in 88 of 100 cases; one that asks at its own ends does better.
    rng, p, records = draw("ones"), np.full(100, 0.001), head(*[1] * 100)
    inside = []
    for _ in range(60):
        optin = drawn_optin(rng, records, p, 1300, 4)
        made = blend_probabilities(
            records, optin, drawn_clients(rng, OUE.calibrate(101, 4), p, 80_000), least=-math.inf
        )
        inside.append((made.low <= p) & (p <= made.high))
    assert 0.935 < np.mean(inside) < 0.975


# ---- robust --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(-1e6, 1e6))
def test_the_pull_of_the_opt_in_side_is_bounded(weight, z):
    fallen = float(robust_weights(np.array([weight]), np.array([z]))[0])
    assert fallen <= weight
    assert fallen * abs(z) <= weight * TOLERANCE * (1 + 1e-12)
    if abs(z) <= TOLERANCE:
        assert fallen == weight


def robust_errors(weight, shift, runs=200_000):
    """Mean squared errors of the plain and the robust blend over the client's variance; shift in standard errors."""
    rng = draw("robust", weight, shift)
    optin_variance = (1 - weight) / weight
    spread = math.sqrt(1 + optin_variance)
    right, left = rng.normal(size=runs), rng.normal(shift * spread, math.sqrt(optin_variance), runs)
    fallen = robust_weights(np.full(runs, weight), (left - right) / spread)
    plain = weight * left + (1 - weight) * right
    return (plain**2).mean(), ((fallen * left + (1 - fallen) * right) ** 2).mean()


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9, 0.99])
def test_robustness_costs_little_without_shift_and_bounds_the_error_with_it(weight):
    plain, robust = robust_errors(weight, 0)
    assert robust - plain < 0.01  # of the client's variance
    worst = max(robust_errors(weight, shift)[1] for shift in (1, 2, 3, 4, 5, 6))
    assert worst < 5
    plain, robust = robust_errors(weight, 20)
    assert robust < 1.2
    assert plain > 20 * weight


def test_a_shifted_record_falls_back_to_the_clients_and_others_stay():
    rng, records = draw("shifted"), head(*[1] * 20)
    p, runs = np.full(20, 0.02), 60
    held, flagged = np.zeros(2), np.zeros(20)
    for _ in range(runs):
        optin = drawn_optin(rng, records, np.where(np.arange(20) == 3, 0.06, p), 20_000, 4)
        clients = drawn_clients(rng, KRR.calibrate(21, 4), p, 200_000)
        plain, robust = (blend_probabilities(records, optin, clients, robust=r, least=-math.inf) for r in (False, True))
        assert abs(robust.blended[3] - 0.02) < abs(plain.blended[3] - 0.02) / 2
        held += [made.low[3] <= 0.02 <= made.high[3] for made in (plain, robust)]
        same = np.abs(plain.shift_z) < 2
        assert same.sum() >= 15
        assert (robust.weight[same] == plain.weight[same]).all()
        flagged += plain.agreement.shifted
    assert held[0] == 0
    assert held[1] >= 0.85 * runs
    assert flagged[3] == runs
    assert flagged.sum() <= runs + 3


def test_small_biases_of_selection_are_taken_out_of_the_wildcard():
    rng, n, threshold = draw("selection"), 5_000, 7
    p = 0.05 / np.arange(1, 201)
    errors, claimed, inside, z = [], [], [], []
    for _ in range(150):
        counts, noise = noisy_counts(rng, p, n, 4)
        kept = np.flatnonzero(counts >= threshold)
        records = [("query", f"https://{i}.example/") for i in kept]
        optin = optin_shares(records, counts[kept] / n, n, noise)
        clients = drawn_clients(rng, KRR.calibrate(len(kept) + 1, 4), p[kept], 50_000)
        made = blend_probabilities(records, optin, clients, least=threshold / n)
        errors.append(made.blended.sum() - p[kept].sum())
        claimed.append(made.wildcard_stderr)
        z.append((made.wildcard_raw - (1 - p[kept].sum())) / made.wildcard_stderr)
        inside.append((made.low <= p[kept]) & (p[kept] <= made.high))
    assert np.mean(errors) > 1.2 * np.mean(claimed)  # there is such a bias
    assert abs(np.mean(z)) < 0.5  # and the wildcard is without it
    assert 0.75 < np.std(z) < 1.15  # nor is its standard error wide for safety: it was .45 once
    assert np.mean(np.concatenate(inside)) > 0.94


def test_variances_are_never_evaluated_at_nothing():
    optin = optin_shares(head(2), [-3.0, 2.0], 10, 0.0)
    made = pool(optin, FlatShares(KRR.calibrate(3, 1), np.zeros(3, dtype=np.int64), 10**9))
    assert (made.p >= LEAST_SHARE).all()
    assert (made.p <= 1 - LEAST_SHARE).all()
    assert (made.optin_variance > 0).all()
