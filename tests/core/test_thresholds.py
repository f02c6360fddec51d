"""Thresholds on integers against enumeration, against the recursion they solve, and against golden values."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.budget import exact, round_down, working
from hushquery.core.calibration import (
    WEIGHT_GRID,
    knapsack_delta,
    knapsack_threshold,
    laplace_delta,
    laplace_scale,
    laplace_threshold,
    mu_for,
    optimal_selection_mpf,
    weighted_rho,
)
from hushquery.core.loss import LaplaceHistogram
from hushquery.curator.audit import query_keys, searcher
from hushquery.curator.selectors.thresholded import LaplaceSelector, ThresholdedCounts
from hushquery.errors import UsageError
from statistical import bits, number, rate, within

NEARLY = 1e-12


def lift(b, k):
    """P[Z >= k] for discrete Laplace noise, by its two-sided sum."""
    a = math.exp(-1 / b)
    return a**k / (1 + a) if k >= 0 else 1 - a ** (1 - k) / (1 + a)


def key(count, threshold, b, reach=60):
    """The law of one key: hidden, or its noisy count; a count of zero is not in the support."""
    top = threshold + math.ceil(reach * b)
    if count == 0:
        return np.concatenate(([1.0], np.zeros(top - threshold + 1)))
    values = np.arange(threshold, top + 1)
    a = math.exp(-1 / b)
    p = (1 - a) / (1 + a) * a ** np.abs(values - count)
    return np.concatenate(([1 - lift(b, threshold - count)], p))


def joint(laws):
    out = np.ones(1)
    for law in laws:
        out = np.outer(out, law).ravel()
    return out


def hockey(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def splits(total, largest=None):
    """Every way to write at most ``total`` as a sum of positive integers."""
    yield ()
    for first in range(min(total, largest or total), 0, -1):
        for rest in splits(total - first, first):
            yield (first, *rest)


# ---- discrete Laplace ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", range(1, 8))
@pytest.mark.parametrize("epsilon", ["1/2", "ln 10", "4"])
def test_delta_of_row_counts_is_the_worst_of_all_splits_of_a_users_rows(d, epsilon):
    b = laplace_scale(d, epsilon)
    for delta in (1e-2, 1e-5):
        threshold = laplace_threshold(b, d, delta, row_counts=True)
        true = max(
            1 - math.prod(1 - lift(float(b), threshold - rows) for rows in split) for split in splits(d) if split
        )
        assert laplace_delta(b, d, threshold, row_counts=True) == pytest.approx(true, rel=1e-9)
        assert true <= delta


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("b", [0.7, 1.5])
def test_row_counts_with_their_noisy_values_against_the_whole_hockey_stick(d, b):
    """Every split of at most d rows over keys that nobody, few or many others hold, values published, both directions.

    At epsilon = d/b the divergence is exactly laplace_delta: the claim for Algorithm 1 with its noise reused.
    """
    threshold = laplace_threshold(str(b), d, 0.05, row_counts=True)
    worst = 0.0
    for split in splits(d):
        for others in itertools.product((0, 1, threshold), repeat=len(split)):
            without = joint([key(c, threshold, b, 12) for c in others])
            with_user = joint([key(c + m, threshold, b, 12) for c, m in zip(others, split, strict=True)])
            for p, q in ((with_user, without), (without, with_user)):
                # A hair above d/b: there the rounding of doubles is no loss of its own.
                worst = max(worst, hockey(p, q, d / b * (1 + 1e-9)))
    claimed = laplace_delta(str(b), d, threshold, row_counts=True)
    assert worst <= claimed + NEARLY
    assert worst == pytest.approx(claimed, rel=1e-3)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("b", [0.7, 1.5])
def test_replace_one_costs_twice_the_epsilon_and_the_same_delta(d, b):
    threshold = laplace_threshold(str(b), d, 0.05)
    worst = 0.0
    for kinds in itertools.product((0, 1, threshold), repeat=2 * d):
        before = joint([key(c + (i < d), threshold, b, 8) for i, c in enumerate(kinds)])
        after = joint([key(c + (i >= d), threshold, b, 8) for i, c in enumerate(kinds)])
        worst = max(worst, hockey(before, after, 2 * d / b * (1 + 1e-9)))
    assert worst <= laplace_delta(str(b), d, threshold) + 1e-5  # values beyond 8 scales are left out
    assert worst >= 0.99 * laplace_delta(str(b), d, threshold)


def test_a_real_threshold_against_integer_noise_is_wrong():
    """floor(K) + 1 of the continuous mechanism, at d = 1, e^epsilon = 5 and delta = 1e-5, has a delta of 1.07e-5."""
    epsilon, delta = math.log(5), 1e-5
    b = laplace_scale(1, "ln 5")
    k = 1 + float(b) * math.log(1 / (2 * delta))
    assert f"{laplace_delta(b, 1, math.floor(k) + 1):.2e}" == "1.07e-05"
    ours = laplace_threshold(b, 1, delta)
    assert ours == math.floor(k) + 2
    assert laplace_delta(b, 1, ours) <= delta
    # ... and up to 2/(1+a) times delta: K just below a whole number.
    a = math.exp(-epsilon)
    steps = 6
    claimed = 0.5 * a**steps
    assert laplace_delta(b, 1, 1 + steps) / claimed == pytest.approx(2 / (1 + a), rel=1e-9)


@pytest.mark.parametrize(
    ("d", "rows", "distinct"), [(1, 6, 6), (5, 29, 29), (10, 59, 59), (20, 122, 122), (40, 254, 254), (160, 1106, 1106)]
)
def test_thresholds_at_e_to_the_epsilon_ten(d, rows, distinct):
    """The formulas of H1, evaluated here in doubles, at e^epsilon = 10 and delta = 1e-5."""
    b = laplace_scale(d, "ln 10")
    wide = d / math.log(10)
    room = 1e-5 * (1 + math.exp(-1 / wide))
    apart = 1 + math.ceil(wide * math.log(d / room))
    together = d + math.ceil(wide * math.log(1 / room))
    assert (laplace_threshold(b, d, 1e-5, row_counts=True), laplace_threshold(b, d, 1e-5)) == (rows, distinct)
    assert (max(apart, together), apart) == (rows, distinct)


@seed(number("laplace_threshold"))
@settings(max_examples=150, deadline=None, database=None)
@given(
    st.fractions(Fraction(1, 20), 60, max_denominator=100),
    st.integers(1, 60),
    st.floats(1e-12, 0.9),
    st.booleans(),
)
def test_thresholds_keep_their_delta_are_the_smallest_and_allow_a_missing_key(b, d, delta, row_counts):
    threshold = laplace_threshold(b, d, delta, row_counts=row_counts)
    assert laplace_delta(b, d, threshold, row_counts=row_counts) <= Fraction(repr(delta))
    missing = lift(float(b), threshold - 1)
    assert missing <= -math.expm1(-1 / float(b)) * (1 + NEARLY)
    if row_counts:  # a user who had all rows on one key, and is missing now
        together = lift(float(b), threshold - d)
        assert together <= -math.expm1(-d / float(b)) * (1 + NEARLY)
    if threshold > (d if row_counts else 1):
        below = lift(float(b), threshold - 2)
        too_much = d * below > delta * (1 - NEARLY) or (row_counts and lift(float(b), threshold - 1 - d) > delta)
        assert too_much or below > -math.expm1(-1 / float(b)) * (1 - NEARLY)


@seed(number("laplace monotone"))
@settings(max_examples=80, deadline=None, database=None)
@given(
    st.fractions(Fraction(1, 10), 30, max_denominator=50), st.integers(1, 40), st.floats(1e-10, 0.5), st.floats(1, 10)
)
def test_thresholds_and_deltas_move_the_right_way(b, d, delta, less):
    threshold = laplace_threshold(b, d, delta)
    assert laplace_threshold(b, d, delta / less) >= threshold
    assert laplace_threshold(b, d + 1, delta) >= threshold
    assert laplace_threshold(b, d, delta, row_counts=True) >= threshold
    assert laplace_delta(b, d, threshold + 1) < laplace_delta(b, d, threshold)
    assert laplace_delta(b, d + 1, threshold) > laplace_delta(b, d, threshold)


def test_a_threshold_that_ignores_the_missing_key_would_cost_delta():
    """Why laplace_threshold may go above what delta asks: wide noise, a generous delta, and a key that is missing."""
    b, delta = 5.0, 0.4
    careless = 1 + math.ceil(b * math.log(1 / (delta * (1 + math.exp(-1 / b)))))
    careful = laplace_threshold("5", 1, delta)
    assert careful > careless
    epsilon = 1 / b * (1 + 1e-9)

    def missing(threshold):
        return hockey(key(0, threshold, b), key(1, threshold, b), epsilon)

    assert missing(careless) > 0.01
    assert missing(careful) <= NEARLY


# ---- OpenDP's threshold and ours -----------------------------------------------------------------------------------


def test_opendp_computes_delta_for_greater_but_releases_equal_values():
    """OpenDP 0.16 (opendp #2922): scale 1, threshold 5, one key of one user."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    theirs = dp.m.make_laplace_threshold(
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int)),
        dp.l01inf_distance(dp.absolute_distance(T=int)),
        scale=1.0,
        threshold=5,
    )
    reported = theirs.map((1, 1, 1))[1]
    released = theirs({str(i): 1 for i in range(20_000)})
    assert f"{reported:.3e}" == "4.926e-03"
    assert min(released.values()) == 5  # a value equal to the threshold came out
    true = hockey(key(1, 5, 1.0), key(0, 5, 1.0), 1.0)
    assert f"{true:.3e}" == "1.339e-02"
    assert reported == pytest.approx(lift(1.0, 5))  # delta for strictly greater
    rate(len(released), 20_000, true)


def test_ours_at_the_same_scale_and_threshold_is_right():
    ours = LaplaceSelector(ThresholdedCounts("laplace", LaplaceHistogram(1, Fraction(1), 5)), query_keys("ant"))
    true = hockey(key(1, 5, 1.0), key(0, 5, 1.0), 1.0)
    assert ours.loss.delta(1) == pytest.approx(true, rel=1e-9)
    assert f"{laplace_delta(1, 1, 5):.3e}" == "1.339e-02"
    released = ours.run(searcher("zoe", "ant"), 200_000, bits("opendp threshold"))
    shown = released[released[:, 0] >= 0]
    assert shown.min() == 5
    rate(len(shown), 200_000, true)


# ---- optimal selection ---------------------------------------------------------------------------------------------


def recursion(counts, epsilon, delta):
    """Row 2: the largest chance at each count that both directions allow."""
    chances = [0.0]
    for _ in range(counts):
        p = chances[-1]
        chances.append(min(math.exp(epsilon) * p + delta, 1 - math.exp(-epsilon) * (1 - p - delta), 1.0))
    return chances


def chosen(count, epsilon, delta):
    with working():
        return round_down(optimal_selection_mpf(count, exact(epsilon), exact(delta)))


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, math.log(10), 6.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.3, 0.9])
def test_optimal_selection_is_the_solution_of_its_recursion(epsilon, delta):
    chances = recursion(80, epsilon, delta)
    for count, chance in enumerate(chances):
        ours = chosen(count, epsilon, delta)
        assert ours == pytest.approx(chance, rel=1e-9, abs=1e-13)
        assert ours <= chance + 1e-13


@pytest.mark.parametrize("epsilon", [0.5, math.log(10)])
@pytest.mark.parametrize("delta", [1e-5, 0.01])
def test_optimal_selection_is_private_between_all_neighbouring_counts(epsilon, delta):
    chances = [chosen(n, epsilon, delta) for n in range(60)]
    for p, q in itertools.pairwise(chances):
        for left, right in (((p, 1 - p), (q, 1 - q)), ((q, 1 - q), (p, 1 - p))):
            assert hockey(np.array(left), np.array(right), epsilon) <= delta + 1e-15
    assert max(hockey(np.array((q, 1 - q)), np.array((p, 1 - p)), epsilon) for p, q in itertools.pairwise(chances)) == (
        pytest.approx(delta, rel=1e-9)
    )


# ---- weights -------------------------------------------------------------------------------------------------------

SIGMA_B = 1 / (math.sqrt(0.65) * float(mu_for("ln 10", "0.9e-5")))


def real_threshold(d, delta=1e-6):
    low, high = 5.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if knapsack_delta(middle, SIGMA_B, d) <= delta else (middle, high)
    return high


@pytest.mark.parametrize(("d", "rho"), [(1, 11.4225), (5, 11.5796), (20, 11.9030), (40, 12.1106)])
def test_golden_thresholds_of_the_knapsack(d, rho):
    assert f"{SIGMA_B:.3f}" == "2.193"
    assert real_threshold(d) == pytest.approx(rho, abs=6e-5)


def test_the_threshold_for_equal_weights_is_not_enough_for_unequal_ones():
    rho = weighted_rho(SIGMA_B, 5, 1e-6)
    assert rho == pytest.approx(11.5615, abs=6e-5)
    assert knapsack_delta(rho, SIGMA_B, 5) == pytest.approx(1.043e-6, rel=1e-3)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_knapsack_is_the_worst_of_all_weights(d):
    """On a coarse grid every choice of weights can be listed."""
    grid, sigma, threshold = 8, 1.3, 4.0
    best = max(
        sum(norm.sf((threshold - j / grid) / sigma) for j in weights)
        for weights in itertools.combinations_with_replacement(range(grid + 1), d)
        if sum(j * j for j in weights) <= grid * grid
    )
    ours = knapsack_delta(threshold, sigma, d, grid=grid)
    assert best <= ours <= best * (1 + 1e-8)


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("sigma", ["1/2", "2.193"])
def test_integer_thresholds_on_weights_are_the_smallest(d, sigma):
    for delta in (1e-3, 1e-6):
        threshold = knapsack_threshold(sigma, d, delta)
        s = float(Fraction(sigma))
        assert knapsack_delta((threshold - 0.5) / WEIGHT_GRID, s, d) <= delta
        assert knapsack_delta((threshold - 1.5) / WEIGHT_GRID, s, d) > delta


@pytest.mark.parametrize("t", [1, 2, 7])
def test_rho_for_equal_weights_is_the_exact_quantile(t):
    sigma, delta = 2.0, 1e-5
    rho = weighted_rho(sigma, t, delta)
    worst = max(-math.expm1(n * math.log1p(-norm.sf((rho - 1 / math.sqrt(n)) / sigma))) for n in range(1, t + 1))
    assert worst == pytest.approx(delta, rel=1e-9)


# ---- refusals ------------------------------------------------------------------------------------------------------

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    "ask",
    [
        lambda: laplace_scale(0, 1),
        lambda: laplace_scale(-1, 1),
        lambda: laplace_scale(1, 0),
        lambda: laplace_scale(1, -1),
        lambda: laplace_scale(1, NAN),
        lambda: laplace_scale(1, INF),
        lambda: laplace_threshold(1, 1, 0),
        lambda: laplace_threshold(1, 1, 1),
        lambda: laplace_threshold(1, 1, -1),
        lambda: laplace_threshold(1, 1, NAN),
        lambda: laplace_threshold(1, 0, 1e-5),
        lambda: laplace_threshold(NAN, 1, 1e-5),
        lambda: laplace_threshold(INF, 1, 1e-5),
        lambda: laplace_delta(NAN, 1, 5),
        lambda: knapsack_threshold(0, 1, 1e-5),
        lambda: knapsack_threshold(2, 0, 1e-5),
        lambda: knapsack_threshold(2, 1, 0),
        lambda: knapsack_threshold(2, 1, NAN),
        lambda: weighted_rho(NAN, 1, 1e-5),
    ],
)
def test_impossible_parameters_are_refused(ask):
    with within(5), pytest.raises(UsageError):
        ask()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: laplace_threshold(0, 1, 1e-5),
        lambda: laplace_threshold(-1, 1, 1e-5),
        lambda: laplace_delta(0, 1, 5),
        lambda: laplace_delta(-1, 1, 5),
        lambda: laplace_delta(1, 0, 5),
        lambda: laplace_delta(1, -3, 5),
        lambda: weighted_rho(0, 1, 1e-5),
        lambda: weighted_rho(-2, 1, 1e-5),
        lambda: weighted_rho(2, 0, 1e-5),
        lambda: weighted_rho(2, 1, 0),
        lambda: weighted_rho(2, 1, 1),
        lambda: knapsack_delta(5.0, 0.0, 3),
        lambda: knapsack_delta(5.0, -1.0, 3),
        lambda: knapsack_delta(NAN, 1.0, 3),
        lambda: knapsack_delta(5.0, 1.0, 0),
    ],
    ids=range(15),
)
def test_other_impossible_parameters_are_refused(ask):
    with within(20), pytest.raises(UsageError):
        ask()


@pytest.mark.parametrize(("b", "threshold"), [(10, 0), (2, 0), (10, -9)])
def test_delta_of_a_threshold_below_one(b, threshold):
    assert laplace_delta(b, 1, threshold) == pytest.approx(lift(b, threshold - 1))


@pytest.mark.parametrize("b", [10**6, 10**9])
def test_thresholds_of_very_wide_noise_are_found_in_time(b):
    with within(20):
        threshold = laplace_threshold(b, 1, 1e-5)
    assert laplace_delta(b, 1, threshold) <= -math.expm1(-1 / b) * (1 + 1e-9)


def test_rho_at_a_delta_below_sixty_digits():
    assert weighted_rho(1, 1, "1e-80") > 10


def test_the_smallest_epsilons_keep_their_digits():
    assert chosen(5, "1e-70", 1e-5) == pytest.approx(5e-5)


def test_knapsacks_of_very_many_keys_are_solved_in_time():
    with within(8):
        few, many = (knapsack_delta(12.0, 2.2, d) for d in (5000, 10**6))
    assert many == pytest.approx(few + (10**6 - 5000) * norm.sf(12 / 2.2), rel=1e-8)
