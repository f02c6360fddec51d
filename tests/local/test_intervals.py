"""Intervals of randomised counts. Coverage is summed over the exact law of the count: nothing here is left to chance,
but the simulation of two-stage reports, whose seed is fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import statistical
from hushquery.core.estimates import difference
from hushquery.local.configuration import Configuration, choose_oracle
from hushquery.local.intervals import clustered_interval, rate_interval, selected_interval, share_interval
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import Oracle
from hushquery.local.server.estimate import estimate
from hushquery.task import Task
from setting_reports import SETTING, made

SHARES = (0.0, 0.0005, 0.002, 0.01, 0.05, 0.2, 0.5, 0.9)


def covered(law: np.ndarray, low: np.ndarray, high: np.ndarray, truth: float) -> float:
    return float(law[(low <= truth) & (truth <= high)].sum())


def normal_interval(oracle: Oracle, n: int) -> tuple[np.ndarray, np.ndarray]:
    """What was shown before: the estimate and 1.96 of its standard errors."""
    values, errors = oracle.frequencies(np.arange(n + 1), n)
    return values - 1.959964 * errors, values + 1.959964 * errors


# ---- one record of each client -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [50, 300, 2000])
@pytest.mark.parametrize("mean", [0.01, 0.1, 0.3, 0.7, 1, 2, 3.01, 5, 9, 17, 40])
def test_small_counts_cover_at_least_what_is_promised(n: int, mean: float) -> None:
    rate = mean / n
    counts = np.arange(n + 1)
    low, high = rate_interval(counts, n, 0.95)
    law = stats.binom.pmf(counts, n, rate)
    assert covered(law, low, high, rate) >= 0.95 - 1e-9
    assert covered(law[::-1], low, high, 1 - rate) >= 0.95 - 1e-9
    wide = rate_interval(counts, n, 0.99)
    assert (wide[0] <= low).all()
    assert (wide[1] >= high).all()


@pytest.mark.parametrize("mean", [150, 400, 1700])
def test_large_counts_cover_what_is_promised(mean: float) -> None:
    counts = np.arange(5001)
    low, high = rate_interval(counts, 5000, 0.95)
    assert covered(stats.binom.pmf(counts, 5000, mean / 5000), low, high, mean / 5000) == pytest.approx(0.95, abs=0.008)


def test_exact_intervals_are_inside_those_of_clopper_and_pearson() -> None:
    for count, n in ((0, 10), (1, 30), (7, 1000), (60, 90), (10, 10)):
        known = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
        low, high = rate_interval([count], n, 0.95)
        assert known.low - 1e-12 <= low[0] <= count / n <= high[0] <= known.high + 1e-12


def test_counts_of_different_sizes_can_be_given_together() -> None:
    low, high = rate_interval([0, 3, 700], [10, 500, 1000], 0.95)
    alone = [rate_interval([count], n, 0.95) for count, n in ((0, 10), (3, 500), (700, 1000))]
    assert low.tolist() == [float(one[0][0]) for one in alone]
    assert high.tolist() == [float(one[1][0]) for one in alone]


@pytest.mark.parametrize(("k", "epsilon", "n"), [(1000, 6, 1000), (50, 8, 300), (4, 1, 400)])
def test_every_cell_is_covered_also_where_it_has_no_support(k: int, epsilon: int, n: int) -> None:
    oracle = choose_oracle(k, epsilon).oracle
    counts = np.arange(n + 1)
    low, high = oracle.interval(counts, n, 0.95)
    before, p, q = normal_interval(oracle, n), float(oracle.p), float(oracle.q)
    worst = 1.0
    for share in SHARES:
        law = stats.binom.pmf(counts, n, q + share * (p - q))
        assert covered(law, low, high, share) >= 0.945
        worst = min(worst, covered(law, *before, share))
    if epsilon > 1:
        assert worst < 0.8  # a cell without support was said to be known exactly


def test_a_cell_without_support_has_a_standard_error() -> None:
    oracle = KRR.calibrate(50, 8)
    table = oracle.table(np.array([300] + [0] * 49), 300, 0.95, [str(i) for i in range(50)])
    for row in table:
        assert row.stderr > 0
        assert row.low <= row.value <= row.high
        assert row.low < row.high
    assert table.rows[1].low < 0 < table.rows[1].high


def test_averages_and_histograms_have_exact_intervals_too() -> None:
    mean = OneBitMean.calibrate(100, 5)
    for average in (0.0, 1.5, 50.0, 99.0):
        rate = (mean.low + mean.unit * average) / 2**53
        tables = [mean.table(np.array([200 - ones, ones]), 200, 0.95, []).rows[0] for ones in range(201)]
        law = stats.binom.pmf(np.arange(201), 200, rate)
        ends = (np.array([getattr(row, end) for row in tables]) for end in ("low", "high"))
        assert covered(law, *ends, average) >= 0.95 - 1e-9
    flip = DBitFlip.calibrate(4, 2, 4)
    table = flip.table(np.array([0, 7, 7, 6, 0, 0, 7, 3]), 10, 0.95, flip.ranges())
    assert (table.rows[0].value, table.rows[0].low, table.rows[0].high) == (0.0, 0.0, 1.0)  # nobody was asked
    assert all(row.low < row.high and row.stderr > 0 for row in table)


# ---- several records of each client --------------------------------------------------------------------------


def law_of_equal_records(oracle: Oracle, clients: int, records: int, share: float) -> np.ndarray:
    """Sum over how many clients hold the cell: each of their records speaks for it with chance p, others' with q."""
    law = np.zeros(clients * records + 1)
    for holders, chance in enumerate(stats.binom.pmf(np.arange(clients + 1), clients, share)):
        if chance > 1e-9:
            mine = stats.binom.pmf(np.arange(records * holders + 1), records * holders, float(oracle.p))
            rest = records * (clients - holders)
            law += chance * np.convolve(mine, stats.binom.pmf(np.arange(rest + 1), rest, float(oracle.q)))
    return law


@pytest.mark.parametrize(("k", "epsilon"), [(4, 1), (10, 3), (50, 8)])
def test_four_equal_records_are_covered(k: int, epsilon: int) -> None:
    oracle, clients, records = choose_oracle(k, epsilon).oracle, 120, 4
    n, p, q = clients * records, float(oracle.p), float(oracle.q)
    counts = np.arange(n + 1)
    low, high = oracle.interval(counts, n, 0.95, records=records)
    alone = oracle.interval(counts, n, 0.95)
    worst = 1.0
    for share in (0.0, 0.01, 0.05, 0.2, 0.5):
        equal = law_of_equal_records(oracle, clients, records, share)
        assert covered(equal, low, high, share) >= 0.945
        worst = min(worst, covered(equal, *alone, share))
        assert covered(stats.binom.pmf(counts, n, q + share * (p - q)), low, high, share) >= 0.945
    if epsilon > 1:
        assert worst < 0.85  # as if they were of four clients


def test_answers_that_are_repeated_in_several_periods_tell_nothing_new() -> None:
    oracle, clients, periods = choose_oracle(10, 2).oracle, 300, 5
    counts = np.arange(clients + 1)
    low, high = oracle.interval(periods * counts, periods * clients, 0.95, repeats=periods)
    for share in (0.0, 0.05, 0.4):
        law = stats.binom.pmf(counts, clients, float(oracle.q) + share * float(oracle.p - oracle.q))
        assert 0.945 <= covered(law, low, high, share) <= 0.98


def test_two_stage_cells_are_covered() -> None:
    oracle = TwoStage.calibrate([3] * 4, 4, mode="tight")
    rng, bits = np.random.default_rng(14), statistical.bits("two-stage intervals")
    truth = rng.dirichlet(np.full(oracle.k, 0.5))
    truth[::4] = 0
    truth /= truth.sum()
    for records in (1, 3):
        hits = []
        for _ in range(120):
            values = np.repeat(rng.choice(oracle.k, 300, p=truth), records)
            support = oracle.support(oracle.randomize_many(values, bits))
            low, high = oracle.interval(support, len(values), 0.95, records=records)
            hits.append((low <= truth) & (truth <= high))
        assert 0.94 <= np.mean(hits) <= 0.98


def test_clusters_widen_by_the_variance_that_they_add() -> None:
    value, low, high = np.array([0.3]), np.array([0.25]), np.array([0.36])
    assert clustered_interval(value, low, high, 0.95, 0.0) == (low, high)
    wide = clustered_interval(value, low, high, 0.95, 0.001)
    z = 1.959964
    for end, before in ((wide[0][0], 0.25), (wide[1][0], 0.36)):
        assert (end - 0.3) ** 2 == pytest.approx((before - 0.3) ** 2 + 0.001 * z**2 * end * (1 - end), rel=1e-6)


def test_an_estimate_says_that_records_of_a_client_may_be_alike() -> None:
    several = Task.loads(SETTING.replace("epsilon = 2\n", "epsilon = 4\nrecords_per_user = 2\n"))
    fixed = Configuration.of(several)
    found = estimate(several, made(fixed, ["dark"] * 300 + ["light"] * 100))
    assert any("2 records" in note and "all equal" in note for note in found.notes)
    low, high = share_interval(found.support, 400, 0.95, float(fixed.oracle.q), float(fixed.oracle.p - fixed.oracle.q))
    assert found.table.rows[0].low < low[0]
    assert found.table.rows[0].high > high[0]


def test_other_levels_and_derived_numbers_use_the_same_law() -> None:
    table = KRR.calibrate(3, 4).table(np.array([0, 40, 960]), 1000, 0.95, ["a", "b", "c"])
    assert table.at_level(0.99).at_level(0.95).rows == table.rows
    low, high = KRR.calibrate(3, 4).interval(np.array([0, 40, 960]), 1000, 0.975)
    gap = difference(table, "c", "a")
    assert (gap.low, gap.high) == (low[2] - high[0], high[2] - low[0])


# ---- numbers that are seen because they are large ------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 1.0, 2.5, 3.4, 4.5, 6.0, 9.0])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_selected_numbers_cover_exactly(mean: float, level: float) -> None:
    bar = 3.4
    seen = np.linspace(bar, mean + 12, 40_001)[1:]
    low, high = selected_interval(seen, np.ones_like(seen), np.full_like(seen, bar), level)
    assert ((low <= seen) & (seen <= high)).all()
    density = stats.norm.pdf(seen - mean)
    inside = (low <= mean) & (mean <= high)
    assert density[inside].sum() / density.sum() == pytest.approx(level, abs=0.003)
    usual = np.abs(seen - mean) <= -stats.norm.ppf((1 - level) / 2)
    if mean < 2:
        assert density[usual].sum() / density.sum() < 0.1  # what hardly ever holds without it


def test_selection_does_not_matter_far_above_the_bar() -> None:
    low, high = selected_interval(np.array([30.0]), np.array([2.0]), np.array([6.0]), 0.95)
    assert math.isclose(float(low[0]), 30 - 2 * 1.959964, rel_tol=1e-4)
    assert math.isclose(float(high[0]), 30 + 2 * 1.959964, rel_tol=1e-4)
