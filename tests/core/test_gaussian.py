"""The Gaussian curve and its calibration against dp-accounting, against integration, and against golden values."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.calibration import agd, mu_for, normal_sf, sigma_for
from hushquery.core.loss import Loss
from hushquery.errors import UsageError
from statistical import number, within

EPSILONS = st.floats(0, 20)
MUS = st.floats(1e-3, 20)


def integrated(epsilon, mu):
    """The hockey-stick divergence by integrating the two densities where they cross."""
    with mpmath.workdps(40):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        crossing = e / m + m / 2

        def excess(x):
            return mpmath.npdf(x, m, 1) - mpmath.exp(e) * mpmath.npdf(x, 0, 1)

        points = [crossing + i for i in (0, 1, 2, 4, 8, 16, 40)]
        return float(mpmath.quad(excess, points) + mpmath.ncdf(-(crossing + 40 - m)))


# ---- the curve -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, math.log(10), 8.0])
@pytest.mark.parametrize("mu", [0.05, 0.5688118676, 1.0, 3.0])
def test_curve_is_the_integral_of_the_densities(epsilon, mu):
    assert agd(epsilon, mu) == pytest.approx(integrated(epsilon, mu), rel=1e-9, abs=1e-40)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, math.log(10), 8.0])
@pytest.mark.parametrize("mu", [0.1, 0.5688118676, 1.0, 3.0])
def test_curve_is_dp_accountings(epsilon, mu):
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    theirs = GaussianPrivacyLoss(1 / mu).get_delta_for_epsilon(epsilon)
    assert agd(epsilon, mu) == pytest.approx(theirs, rel=1e-6, abs=1e-13)


@seed(number("agd"))
@settings(max_examples=100, deadline=None, database=None)
@given(EPSILONS, MUS)
def test_curve_in_doubles_and_never_below_the_truth(epsilon, mu):
    ours = agd(epsilon, mu)
    doubles = norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)
    assert ours == pytest.approx(doubles, rel=1e-6, abs=1e-12)
    with mpmath.workdps(200):
        e, m = mpmath.mpf(repr(epsilon)), mpmath.mpf(repr(mu))
        true = mpmath.erfc((e / m - m / 2) / mpmath.sqrt(2)) / 2 - mpmath.exp(e) * (
            mpmath.erfc((e / m + m / 2) / mpmath.sqrt(2)) / 2
        )
        assert mpmath.mpf(ours) >= true
        assert mpmath.mpf(ours) <= true * (1 + mpmath.mpf(2) ** -50) + mpmath.mpf(2) ** -1000


@seed(number("agd monotone"))
@settings(max_examples=60, deadline=None, database=None)
@given(EPSILONS, MUS, st.floats(0, 3))
def test_curve_falls_with_epsilon_and_rises_with_mu(epsilon, mu, more):
    assert agd(epsilon + more, mu) <= agd(epsilon, mu)
    assert agd(epsilon, mu + more) >= agd(epsilon, mu)
    assert 0 <= agd(epsilon, mu) <= 1


def test_no_noise_needed_and_negative_epsilons():
    assert agd(1, 0) == 0.0
    assert agd(0, 0) == 0.0
    assert agd(-1, 0) == pytest.approx(1 - math.exp(-1))
    for mu in (0.3, 2.0):  # H(P||Q) at -e from H(Q||P) at e: the curve of every symmetric pair
        for e in (0.2, 1.5):
            assert agd(-e, mu) == pytest.approx(1 - math.exp(-e) + math.exp(-e) * agd(e, mu), rel=1e-12)


def test_composition_adds_squares():
    """Two Gaussians seen together are one: enumerate the pair on a fine grid."""
    mu, step = 0.8, 0.02
    x = np.arange(-9, 10, step)
    single = [norm.pdf(x - m) * step for m in (mu, 0.0)]
    both = [np.outer(p, p) for p in single]
    for epsilon in (0.3, 1.0):
        true = np.maximum(both[0] - math.exp(epsilon) * both[1], 0).sum()
        assert true == pytest.approx(agd(epsilon, mu * math.sqrt(2)), rel=1e-3)
        assert Loss(mu_squared=2 * Fraction("0.64")).delta(epsilon) == agd(
            epsilon, Loss(mu_squared="1.28").mu_squared ** 0.5
        )


def test_tails_of_the_normal_law():
    for x in (-8.0, -1.0, 0.0, 0.5, 7.0, 30.0):
        assert float(normal_sf(mpmath.mpf(x))) == pytest.approx(norm.sf(x), rel=1e-12)


@pytest.mark.parametrize("r", [0.1, 0.7])
@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_a_pure_step_beside_gaussian_ones_is_the_formula_of_h6(r, mu, epsilon):
    """e^r/(1+e^r) agd(epsilon - r, mu) + 1/(1+e^r) agd(epsilon + r, mu)."""
    up = 1 / (1 + math.exp(-r))
    expected = up * agd(epsilon - r, mu) + (1 - up) * agd(epsilon + r, mu)
    loss = Loss(mu_squared=Fraction(repr(mu)) ** 2, pure=(r,))
    assert loss.delta(epsilon) == pytest.approx(expected, rel=1e-9)


# ---- calibration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "mu"), [("1e-5", ".5688118676"), ("0.9e-5", ".5656901396"), ("1e-6", ".5097794006")])
def test_golden_mu(delta, mu):
    assert f"{float(mu_for('ln 10', delta)):.10f}"[1:] == mu


def test_golden_sigma():
    """At (ln 10, 1e-5), unit L2 sensitivity, and for histograms of d keys."""
    mu_squared = mu_for("ln 10", 1e-5) ** 2
    assert float(sigma_for(1, mu_squared)) == pytest.approx(1.758, abs=5e-4)
    for d, sigma in ((1, 1.7589), (5, 3.9331), (10, 5.5622), (20, 7.8662), (40, 11.1244)):
        assert float(sigma_for(d, mu_squared)) * 1.0005 == pytest.approx(sigma, abs=6e-5)


@seed(number("mu_for"))
@settings(max_examples=60, deadline=None, database=None)
@given(st.floats(0, 12), st.floats(1e-14, 0.9))
def test_mu_is_the_largest_that_fits(epsilon, delta):
    mu = mu_for(epsilon, delta)
    target = Fraction(repr(delta))
    assert Fraction(agd(epsilon, mu)) <= target * (1 + Fraction(1, 10**15))
    assert Loss(mu_squared=mu**2).fits(epsilon, delta)
    above = mu * (1 + Fraction(1, 10**12))
    assert Fraction(agd(epsilon, above)) > target
    assert mu_for(epsilon, delta / 2) <= mu <= mu_for(epsilon + 0.1, delta)


@seed(number("sigma_for"))
@settings(max_examples=100, deadline=None, database=None)
@given(st.fractions(Fraction(1, 1000), 10**6), st.fractions(Fraction(1, 10**9), 100))
def test_sigma_never_loses_more_than_mu_in_exact_arithmetic(squared, mu_squared):
    sigma = sigma_for(squared, mu_squared)
    assert squared <= mu_squared * sigma**2
    assert mu_squared * (sigma * (1 - Fraction(1, 2**30))) ** 2 < squared


def test_calibration_agrees_with_dp_accounting():
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_mechanism import AdditiveNoisePrivacyLoss, GaussianPrivacyLoss

    assert issubclass(GaussianPrivacyLoss, AdditiveNoisePrivacyLoss)
    for epsilon, delta in ((1.0, 1e-5), (math.log(10), 1e-5), (0.3, 1e-7)):
        theirs = GaussianPrivacyLoss.from_privacy_guarantee(DifferentialPrivacyParameters(epsilon, delta), 1.0)
        assert float(sigma_for(1, mu_for(epsilon, delta) ** 2)) == pytest.approx(theirs._standard_deviation, rel=1e-3)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: mu_for(-1, 1e-5),
        lambda: mu_for(1, 0),
        lambda: mu_for(1, 1),
        lambda: mu_for(1, -1),
        lambda: mu_for(math.nan, 1e-5),
        lambda: mu_for(1, math.nan),
        lambda: mu_for(math.inf, 1e-5),
        lambda: mu_for("many", 1e-5),
        lambda: mu_for(True, 1e-5),
        lambda: sigma_for(0, 1),
        lambda: sigma_for(-1, 1),
        lambda: sigma_for(1, 0),
        lambda: sigma_for(1, math.nan),
        lambda: agd(math.nan, 1),
        lambda: agd(1, math.inf),
    ],
)
def test_impossible_parameters_are_refused(ask):
    with within(5), pytest.raises(UsageError):
        ask()


def test_extreme_parameters_are_answered_in_time():
    with within(10):
        assert 0 < float(mu_for("1e-6", "1e-30")) < 1e-4
        assert float(mu_for(1000, "1e-5")) == pytest.approx(40.6, abs=0.1)
        assert 0 < agd(1, "1e-30") <= 2.0**-1000
        assert agd(1, 10**6) == pytest.approx(1)
        assert float(sigma_for(10**12, "1e-12")) == pytest.approx(1e12)


# ---- found here ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "mu"), [(100_000, 447), (40_000, 300), (32_000, 251)])
def test_curve_of_very_little_noise_is_not_understated(epsilon, mu):
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        true = mpmath.ncdf(m / 2 - e / m)  # minus a term that is smaller
        below = true - mpmath.npdf(e / m - m / 2) / (e / m + m / 2)
    assert float(below) * (1 - 1e-9) <= agd(epsilon, mu)


def test_epsilon_of_very_little_noise_is_not_understated():
    assert Loss(mu_squared=200_000).epsilon(1e-5) == pytest.approx(100_000 + 4.26 * 447, rel=1e-3)


def test_curve_of_overwhelming_noise_is_not_zero():
    assert agd(0, "1e-70") >= 3.98e-71


def test_mu_is_rounded_down_at_the_smallest_delta():
    assert float(mu_for(0, "1e-59")) <= 1e-59 * math.sqrt(2 * math.pi)


def test_a_delta_next_to_one_has_an_answer():
    with within(20):
        assert 10 < mu_for(1, 1 - Fraction(1, 10**80)) < 40


def test_a_negative_mu_is_refused():
    with pytest.raises(UsageError):
        agd(1, -1)


def test_a_delta_is_never_above_one():
    assert agd(1, 10**6) <= 1.0
