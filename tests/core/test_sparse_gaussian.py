"""The Gaussian sparse histogram against enumeration of its outputs, under both relations and beside other steps.

A brute force here lists, for each key, what comes out in the two worlds: nothing, or the noisy count. Keys are
independent, so worlds are products. Integer noise is a rounding of the continuous noise that the curve is for: the
truth lies below the claim, and the wider the noise the less is lost (``CLOSE``).
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.budget import Relation, round_up, working
from hushquery.core.calibration import SparseGaussian, agd, calibrate_sparse_gaussian
from hushquery.core.loss import Loss
from hushquery.errors import UsageError
from statistical import number, within

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
NEARLY = 1e-12
CLOSE = 0.93  # of the claim, at sigma = 8


def key(count, sigma, threshold, top):
    """What comes out of one key: hidden, or each noisy count from the threshold to the top (the rest at the top)."""
    values = np.arange(threshold, top + 1)
    if count == 0:  # nobody holds it: it is not in the support
        return np.concatenate(([1.0], np.zeros(len(values))))
    edges = norm.sf((np.append(values, np.inf) - 0.5 - count) / sigma)
    return np.concatenate(([norm.cdf((threshold - 0.5 - count) / sigma)], edges[:-1] - edges[1:]))


def joint(laws):
    out = np.ones(1)
    for law in laws:
        out = np.outer(out, law).ravel()
    return out


def hockey(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def worst(pairs, epsilon):
    return max(max(hockey(p, q, epsilon), hockey(q, p, epsilon)) for p, q in pairs)


def add_remove_worlds(d, sigma, threshold, others):
    """One user more, who holds d keys that so many others hold."""
    for counts in itertools.combinations_with_replacement(others, d):
        top = max(counts) + round(6 * sigma) + threshold
        yield (
            joint(key(c + 1, sigma, threshold, top) for c in counts),
            joint(key(c, sigma, threshold, top) for c in counts),
        )


def replace_one_worlds(d, sigma, threshold, others):
    """One user who leaves d keys for d others."""
    for left, came in itertools.product(itertools.combinations_with_replacement(others, d), repeat=2):
        top = max(*left, *came) + round(4.5 * sigma) + threshold
        laws = [(c + 1, c) for c in left] + [(c, c + 1) for c in came]
        yield (
            joint(key(a, sigma, threshold, top) for a, _ in laws),
            joint(key(b, sigma, threshold, top) for _, b in laws),
        )


# ---- golden values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "sigma", "tau", "threshold"),
    [
        (1, "1.7589", "7.502", 10),
        (5, "3.9331", "18.137", 20),
        (10, "5.5622", "26.440", 28),
        (20, "7.8662", "38.479", 40),
        (40, "11.1244", "55.915", 58),
    ],
)
def test_golden_calibration(d, sigma, tau, threshold):
    """At (ln 10, 1e-5), as stated; delta at R is 9.905e-6 for all of them."""
    found = calibrate_sparse_gaussian(d, "ln 10", 1e-5)
    assert f"{float(found.sigma):.4f}" == sigma
    assert formula(d, float(found.sigma), float(tau) + 1.5, math.log(10)) == pytest.approx(1e-5, rel=2e-3)
    assert found.threshold == threshold == math.ceil(1 + float(tau) + 0.5)
    assert f"{found.delta('ln 10'):.3e}" == "9.905e-06"


@pytest.mark.parametrize(("fraction", "times"), [(0.51, 1.03), (0.75, 1.9), (0.99, 3.6)])
def test_a_real_tau_against_integer_noise_is_wrong(fraction, times):
    """'v > 1 + tau' with a real tau lets a new key through more often than the curve counts."""
    sigma, tau = 1.7589, 7 + fraction
    released = norm.sf((math.floor(1 + tau) + 1 - 0.5 - 1) / sigma)
    assert released / norm.sf(tau / sigma) == pytest.approx(times, rel=0.02)
    threshold = math.ceil(1 + tau + 0.5)
    assert norm.sf((threshold - 0.5 - 1) / sigma) <= norm.sf(tau / sigma)


def curve(e, m):
    """The analytic Gaussian delta in doubles."""
    return max(0.0, -math.expm1(e)) if m == 0 else norm.cdf(m / 2 - e / m) - math.exp(e) * norm.cdf(-m / 2 - e / m)


def formula(d, sigma, threshold, epsilon, mu_squared=0.0, keep=0.0):
    """The curve of H1 and H6.5 for thresholds that fail in one world only, in doubles."""
    log_hidden = math.log1p(-norm.sf((threshold - 1.5) / sigma))
    best = 0.0
    for j in range(d + 1):
        g, m = (d - j) * log_hidden + keep, math.sqrt(j / sigma**2 + mu_squared)
        best = max(best, -math.expm1(g) + math.exp(g) * curve(epsilon - g, m), curve(epsilon + g, m))
    return best


@pytest.mark.parametrize("d", [1, 2, 5, 20])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, math.log(10)])
def test_curve_is_the_stated_formula(d, epsilon):
    step = SparseGaussian(d, Fraction(3), 12, ADD)
    assert step.delta(epsilon) == pytest.approx(formula(d, 3.0, 12, epsilon), rel=1e-9, abs=1e-14)
    assert step.threshold_delta() == pytest.approx(1 - norm.cdf(10.5 / 3) ** d, rel=1e-9)


def replaced(x, y, shared, sigma, threshold, epsilon):
    """The replace-one formula of H1 for one split: x keys new in D only, y in D' only, and the shared ones."""
    log_hidden = math.log1p(-norm.sf((threshold - 1.5) / sigma))
    g, h = x * log_hidden, y * log_hidden
    return -math.expm1(g) + math.exp(g) * curve(epsilon - g + h, math.sqrt(shared) / sigma)


@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.5])
@pytest.mark.parametrize(("sigma", "threshold"), [(3, 12), (6, 8), (8, 12)])
def test_replace_one_curve_is_the_worst_split_of_the_stated_formula(d, epsilon, sigma, threshold):
    best = max(replaced(x, y, 2 * d - x - y, sigma, threshold, epsilon) for x in range(d + 1) for y in range(d + 1))
    ours = SparseGaussian(d, Fraction(sigma), threshold, REPLACE).delta(epsilon)
    assert ours == pytest.approx(best, rel=1e-9, abs=1e-13)


# ---- brute force ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize(("sigma", "threshold"), [(8, 24), (8, 12), (3, 5)])
def test_add_remove_against_every_integer_output(d, epsilon, sigma, threshold):
    step = SparseGaussian(d, Fraction(sigma), threshold, ADD)
    others = [0, 1, threshold - 1, threshold + 2, threshold + 12 * sigma]
    true, claimed = worst(add_remove_worlds(d, sigma, threshold, others), epsilon), step.delta(epsilon)
    assert true <= claimed + NEARLY
    if sigma >= 8:
        assert true >= CLOSE * claimed


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("sigma", "threshold"), [(8, 24), (8, 12), (3, 5)])
def test_replace_one_against_every_integer_output_with_one_key(epsilon, sigma, threshold):
    step = SparseGaussian(1, Fraction(sigma), threshold, REPLACE)
    others = [0, 1, threshold, threshold + 12 * sigma]
    true, claimed = worst(replace_one_worlds(1, sigma, threshold, others), epsilon), step.delta(epsilon)
    assert true <= claimed + NEARLY
    if sigma >= 8:
        assert true >= CLOSE * claimed


@pytest.mark.parametrize("epsilon", [0.2, 0.8])
@pytest.mark.parametrize(("sigma", "threshold"), [(3, 8), (4, 5)])
def test_replace_one_against_every_integer_output_with_two_keys(epsilon, sigma, threshold):
    """At the lower threshold the worst user has a new key in both worlds and moves on a shared one."""
    step = SparseGaussian(2, Fraction(sigma), threshold, REPLACE)
    # Four keys at once: ones that nobody else holds, and ones whose count nearly never stays hidden.
    true = worst(replace_one_worlds(2, sigma, threshold, [0, threshold + 3 * sigma]), epsilon)
    claimed = step.delta(epsilon)
    assert true <= claimed + NEARLY
    assert true >= 0.85 * claimed


@pytest.mark.parametrize(("x", "y"), [(2, 1), (1, 2), (2, 2), (1, 1), (2, 0), (0, 2)])
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_each_split_of_two_keys_against_every_integer_output(x, y, epsilon):
    """The worst split alone would hide a mistake in the others."""
    sigma, threshold = 8, 12
    left, came = [0] * x + [120] * (2 - x), [0] * y + [120] * (2 - y)
    top = 170
    laws = [(c + 1, c) for c in left] + [(c, c + 1) for c in came]
    here, there = ([key(c, sigma, threshold, top) for c in world] for world in zip(*laws, strict=True))
    # Which count a new key comes out with tells nothing more: hidden or shown is enough.
    for world in (here, there):
        for i, (a, b) in enumerate(laws):
            if min(a, b) == 0:
                world[i] = np.array([world[i][0], 1 - world[i][0]])
    true = hockey(joint(here), joint(there), epsilon)
    claimed = replaced(x, y, 4 - x - y, sigma, threshold, epsilon)
    assert true <= claimed + NEARLY
    assert true >= 0.99 * claimed - 1e-6


def test_users_with_fewer_keys_lose_less():
    for relation in (ADD, REPLACE):
        deltas = [SparseGaussian(d, Fraction(4), 14, relation).delta("1/2") for d in range(1, 6)]
        assert deltas == sorted(deltas)


# ---- beside other steps (H6.5) -------------------------------------------------------------------------------------


def gaussian_pair(mu, scale=40.0):
    """A mu-GDP step, rounded so finely that nearly nothing is lost."""
    shift = mu * scale
    edges = np.arange(round(-7 * scale), round(7 * scale + shift) + 1, 2.0)
    return tuple(np.diff(norm.cdf((np.concatenate(([-np.inf], edges, [np.inf])) - c) / scale)) for c in (shift, 0.0))


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("mu", [0.0, 0.15])
@pytest.mark.parametrize("fail", [0.0, 0.002, 0.05])
def test_composite_against_brute_force(epsilon, mu, fail):
    sigma, threshold = 8, 24
    step = SparseGaussian(1, Fraction(sigma), threshold, ADD)
    other = gaussian_pair(mu) if mu else (np.ones(1), np.ones(1))
    one_sided = (np.array([1 - fail, fail]), np.array([1.0, 0.0]))
    two_sided = (np.array([1 - fail, fail, 0.0]), np.array([1 - fail, 0.0, fail]))

    def beside(failing):
        for p, q in add_remove_worlds(1, sigma, threshold, [0, 20, 120]):
            yield joint([p, other[0], failing[0]]), joint([q, other[1], failing[1]])

    with working():
        claimed = float(step.delta_mpf(mpmath.mpf(epsilon), mpmath.mpf(mu) ** 2, mpmath.log1p(-mpmath.mpf(fail))))
    thresholds, both = worst(beside(one_sided), epsilon), worst(beside(two_sided), epsilon)
    # Thresholds of other steps fail in one world; the claim also covers steps whose delta is spent in both.
    assert thresholds <= formula(1, sigma, threshold, epsilon, mu * mu, math.log1p(-fail)) + NEARLY
    assert thresholds >= CLOSE * formula(1, sigma, threshold, epsilon, mu * mu, math.log1p(-fail))
    assert max(thresholds, both) <= claimed + NEARLY
    assert both >= CLOSE * claimed


def test_deltas_of_a_histogram_and_of_another_step_may_not_simply_be_added():
    """Row 4's delta at the full epsilon plus another step's delta at the full epsilon would spend epsilon twice."""
    epsilon, mu = 0.3, 0.15
    step = SparseGaussian(1, Fraction(8), 40, ADD)
    added = step.delta(epsilon) + agd(epsilon, mu)
    together = Loss(sparse=(step,), mu_squared=Fraction("0.15") ** 2).delta(epsilon)
    true = worst(
        (
            (joint([p, gaussian_pair(mu)[0]]), joint([q, gaussian_pair(mu)[1]]))
            for p, q in add_remove_worlds(1, 8, 40, [140])
        ),
        epsilon,
    )
    assert added < true <= together


# ---- shape ---------------------------------------------------------------------------------------------------------


@seed(number("sparse"))
@settings(max_examples=40, deadline=None, database=None)
@given(
    st.integers(1, 6),
    st.fractions(Fraction(1, 2), 20, max_denominator=20),
    st.integers(2, 60),
    st.floats(0, 3),
    st.floats(0, 2),
    st.sampled_from([ADD, REPLACE]),
)
def test_curves_fall_with_epsilon_and_threshold_and_rise_with_keys(d, sigma, threshold, epsilon, more, relation):
    step = SparseGaussian(d, sigma, threshold, relation)
    here = step.delta(epsilon)
    assert 0 <= here <= 1 + 1e-15
    assert step.delta(epsilon + more) <= here
    assert SparseGaussian(d, sigma, threshold + 1, relation).delta(epsilon) <= here
    assert SparseGaussian(d + 1, sigma, threshold, relation).delta(epsilon) >= here
    assert SparseGaussian(d, sigma, threshold, REPLACE).delta(epsilon) >= SparseGaussian(
        d, sigma, threshold, ADD
    ).delta(epsilon)
    # Never better than the counts without a threshold, nor than the chance of a new key.
    changed = d if relation is ADD else 2 * d
    assert here >= agd(epsilon, math.sqrt(changed / sigma**2)) * (1 - 1e-9)
    assert here >= step.threshold_delta() * (1 - 1e-9)


@seed(number("sparse calibration"))
@settings(max_examples=15, deadline=None, database=None)
@given(st.integers(1, 8), st.floats(0.2, 5), st.floats(1e-9, 0.05), st.sampled_from([ADD, REPLACE]))
def test_calibration_keeps_its_budget_with_the_smallest_threshold(d, epsilon, delta, relation):
    found = calibrate_sparse_gaussian(d, epsilon, delta, relation)
    assert Fraction(found.delta(epsilon)) <= Fraction(repr(delta)) * (1 + Fraction(1, 10**15))
    assert Loss(sparse=(found,)).fits(epsilon, delta)
    assert found.threshold > 2
    lower = SparseGaussian(d, found.sigma, found.threshold - 1, relation)
    assert Fraction(lower.delta(epsilon)) > Fraction(repr(delta))


def test_a_noise_already_chosen_is_kept_and_one_too_small_is_refused():
    wide = calibrate_sparse_gaussian(3, 1, 1e-5, sigma=Fraction(20))
    assert wide.sigma == 20
    assert wide.delta(1) <= 1e-5
    with within(10), pytest.raises(UsageError, match="no threshold"):
        calibrate_sparse_gaussian(3, 1, 1e-5, sigma=Fraction(2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: calibrate_sparse_gaussian(0, 1, 1e-5),
        lambda: calibrate_sparse_gaussian(-1, 1, 1e-5),
        lambda: calibrate_sparse_gaussian(1, math.nan, 1e-5),
        lambda: calibrate_sparse_gaussian(1, -1, 1e-5),
        lambda: calibrate_sparse_gaussian(1, 1, 0),
        lambda: calibrate_sparse_gaussian(1, 1, 1),
        lambda: calibrate_sparse_gaussian(1, 1, math.nan),
        lambda: calibrate_sparse_gaussian(1, 1, -1e-5),
        lambda: calibrate_sparse_gaussian(1, 1, 0, sigma=Fraction(3)),
        lambda: calibrate_sparse_gaussian(1, 1, 1e-5, sigma=Fraction(-3)),
    ],
)
def test_impossible_parameters_are_refused(ask):
    with within(5), pytest.raises(UsageError):
        ask()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: calibrate_sparse_gaussian(1, 1, 2, sigma=Fraction(3)),
        lambda: calibrate_sparse_gaussian(1, 1, 1e-5, sigma=Fraction(0)),
        lambda: SparseGaussian(0, Fraction(3), 5, ADD),
        lambda: SparseGaussian(1, Fraction(0), 5, ADD),
        lambda: SparseGaussian(1, Fraction(-3), 5, ADD),
    ],
    ids=range(5),
)
def test_other_impossible_parameters_are_refused(ask):
    with within(5), pytest.raises(UsageError):
        ask()


def test_many_keys_under_replace_one_are_calibrated_in_time():
    with within(30):
        calibrate_sparse_gaussian(200, 1, 1e-5, REPLACE)


@pytest.mark.parametrize("threshold", [-100, -1000])
def test_a_threshold_that_hides_nothing_promises_nothing(threshold):
    for relation in (ADD, REPLACE):
        assert SparseGaussian(1, Fraction(3), threshold, relation).delta(1) >= 0.99


def test_what_is_not_a_number_is_never_rounded_to_a_small_delta():
    with pytest.raises(ArithmeticError):
        round_up(mpmath.nan)
