"""The test for population shift: right without shift, also for counts near the threshold, and awake with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hushquery.errors import UsageError
from hushquery.hybrid.clients import TwoStageCells, TwoStageShares
from hushquery.hybrid.inference import agreement, pool
from hushquery.local.configuration import oracle_named
from hybrid_sides import drawn_clients, drawn_optin, head, noisy_counts, optin_shares
from statistical import number, rate_at_most

# (opt-in users, clients, epsilon, threshold, largest head list, oracle): head lists that their own counts selected.
SELECTED = {
    "clients as precise as opt-in": (26_000, 494_000, 4, 7, 500, "krr"),
    "cut to a size": (26_000, 494_000, 4, 7, 30, "krr"),
    "noisy clients": (26_000, 494_000, 1, 24, 500, "oue"),
    "far more clients": (5_000, 5_000_000, 4, 7, 50, "krr"),
    "counts of four": (2_000, 20_000_000, 8, 4, 50, "krr"),
}
LAW = np.sort(np.multiply.outer(0.0267 / np.arange(1, 201), [0.60, 0.18, 0.09, 0.06, 0.04, 0.03]).ravel())[::-1]


def selected_sides(rng, name, shift=None):
    """A head list of the records whose noisy counts pass, and both sides' shares of it."""
    n, clients, epsilon, threshold, most, oracle = SELECTED[name]
    counts, noise = noisy_counts(rng, LAW if shift is None else shift * LAW, n, epsilon)
    kept = np.flatnonzero(counts >= threshold)
    cut = len(kept) > most
    kept = kept[np.argsort(-counts[kept], kind="stable")][:most]
    records = [(f"query {i}", "https://a.example/") for i in kept]
    optin = optin_shares(records, counts[kept] / n, n, noise)
    least = None if cut else threshold / n
    return optin, drawn_clients(rng, oracle_named(oracle, len(kept) + 1, epsilon), LAW[kept], clients), least, kept


def judge_false_alarms(name, runs, alpha=0.05):
    rng = np.random.default_rng(number("alarms", name))
    alarms = overall = single = naive = tested = far = 0
    for _ in range(runs):
        optin, clients, least, _ = selected_sides(rng, name)
        made = agreement(optin, clients, alpha=alpha, least=least)
        alarms += not made.agrees
        single += bool((made.p_value <= alpha).any())
        overall += made.overall <= alpha
        z = pool(optin, clients).z
        naive += stats.chi2.sf((z**2).sum(), len(z)) <= alpha
        seen = made.z[np.isfinite(made.z)]
        tested += len(seen)
        far += int((np.abs(seen) > 1.96).sum())
    rate_at_most(alarms, runs, alpha, f"{name}: any alarm")
    rate_at_most(single, runs, alpha, f"{name}: records")
    rate_at_most(overall, runs, alpha, f"{name}: overall")
    rate_at_most(far, tested, 0.05, f"{name}: single z")
    assert far > 0.4 * 0.05 * tested  # nor is the test asleep
    return naive / runs


@pytest.mark.parametrize("name", SELECTED)
def test_selection_and_small_counts_raise_no_false_alarms(name):
    naive = judge_false_alarms(name, 150)
    if name in ("far more clients", "counts of four"):
        assert naive > 0.2  # what the correction is for


@pytest.mark.prove
@pytest.mark.parametrize("name", SELECTED)
def test_false_alarms_in_long_runs(name):
    judge_false_alarms(name, 1_500)
    judge_false_alarms(name, 1_500, alpha=0.01)


@pytest.mark.parametrize("name", ["clients as precise as opt-in", "cut to a size", "far more clients"])
def test_a_shift_is_found(name):
    rng = np.random.default_rng(number("found", name))
    found = 0
    for _ in range(20):
        shift = np.ones(len(LAW))
        shift[:6] = [1, 3, 0.3, 1, 1, 1]
        optin, clients, least, kept = selected_sides(rng, name, shift)
        made = agreement(optin, clients, least=least)
        found += (not made.agrees) and bool(made.shifted[kept == 1].all())
        assert "do not agree" in made.summary() or made.agrees
    assert found >= 19


def test_everybody_a_little_different_is_found_overall():
    # No record stands out; together they do.
    rng = np.random.default_rng(number("together"))
    records, p = head(*[1] * 300), np.full(300, 0.001)
    far = 0
    for _ in range(20):
        optin = drawn_optin(rng, records, p * rng.choice([0.7, 1.3], 300), 100_000, 4)
        made = agreement(optin, drawn_clients(rng, oracle_named("krr", 301, 6), p, 10**6), least=-math.inf)
        far += made.overall < 0.001
        assert not made.agrees
    assert far == 20


def test_two_stage_records_are_correlated_and_the_overall_test_knows():
    rng = np.random.default_rng(number("two-stage"))
    records = head(*[3] * 8)
    cells = TwoStageCells(records)
    oracle = cells.randomizer(3, "0.5")
    shares = np.append(np.tile([0.03, 0.02, 0.02, 0.01], 8), 0.36)
    rates = sum(share * np.array(list(oracle.law(v).values())) for v, share in enumerate(shares))
    p = shares[cells.record_cells]
    overall, scales, squares = [], [], []
    for _ in range(400):
        clients = TwoStageShares(cells, oracle, rng.multinomial(20_000, rates / rates.sum()), 20_000)
        made = agreement(drawn_optin(rng, records, p, 20_000, 4), clients, least=-math.inf)
        overall.append(made.overall)
        scales.append(made.scale)
        squares.append(made.statistic)
    assert np.mean(scales) < 0.97
    assert np.mean(squares) == pytest.approx(24, rel=0.06)
    # Var of the sum of squares: 2 m/scale, not 2 m
    assert np.var(squares) == pytest.approx(2 * 24 / np.mean(scales), rel=0.35)
    rate_at_most(int((np.array(overall) <= 0.05).sum()), 400, 0.05)
    assert stats.kstest(overall, "uniform").pvalue > 1e-4


def test_local_hashing_uses_the_smallest_chance_of_a_record():
    rng = np.random.default_rng(number("hashing"))
    records, p = head(*[1] * 10), np.full(10, 0.03)
    clients = drawn_clients(rng, oracle_named("olh", 11, 2), p, 50_000)
    made = agreement(drawn_optin(rng, records, p, 5_000, 4), clients)
    assert made.overall == made.p_value.min()


def test_holm_by_hand():
    # z = 3.5, 2.9 and 0.1 of three records: chances times 3, 2 and 1.
    rng = np.random.default_rng(0)
    n, p = 10**9, 0.1
    clients = drawn_clients(rng, oracle_named("krr", 4, 1), np.full(3, p), 10**7)
    step = np.sqrt(clients.variance_at(np.full(3, p)) + p * (1 - p) / n)
    optin = optin_shares(head(1, 1, 1), clients.values + step * [3.5, 2.9, 0.1], n, 0.0)
    made = agreement(optin, clients, least=-math.inf)
    assert made.z == pytest.approx([3.5, 2.9, 0.1], rel=0.02)
    single = 2 * stats.norm.sf(np.abs(made.z))
    assert made.p_value == pytest.approx(single * [3, 2, 1], rel=1e-6)
    assert made.shifted.tolist() == [True, False, False]


def test_the_smallest_published_count_is_not_judged():
    optin = optin_shares(head(1, 1, 1), [0.3, 0.1, 0.1], 100, 1.0)
    clients = drawn_clients(np.random.default_rng(1), oracle_named("krr", 4, 1), np.array([0.3, 0.1, 0.1]), 1000)
    made = agreement(optin, clients)
    assert np.isnan(made.z).tolist() == [False, True, True]
    assert made.p_value[1:].tolist() == [1.0, 1.0]
    alone = agreement(
        optin_shares(head(1), [0.3], 100, 1.0),
        drawn_clients(np.random.default_rng(1), oracle_named("krr", 2, 1), np.array([0.3]), 1000),
    )
    assert alone.overall == 1
    assert alone.agrees
    assert "No record" in alone.summary()


@pytest.mark.parametrize("alpha", [0, 1, -1, math.nan])
def test_a_level_that_is_none_is_refused(alpha):
    optin = optin_shares(head(1), [0.3], 100, 1.0)
    clients = drawn_clients(np.random.default_rng(1), oracle_named("krr", 2, 1), np.array([0.3]), 1000)
    with pytest.raises(UsageError, match="false alarm"):
        agreement(optin, clients, alpha=alpha)
