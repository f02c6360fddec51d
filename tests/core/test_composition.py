"""Each rule against an independent value: enumeration, dp-accounting's other accountants, published numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.core.budget import Budget
from hushquery.core.composition import (
    advanced,
    gdp,
    gdp_of_pure,
    kov,
    parallel,
    sequential,
    zcdp_of_gaussian,
    zcdp_of_pure,
    zcdp_to_epsilon,
    zcdp_to_epsilon_simple,
)
from hushquery.core.gaussian import agd, mu_for
from hushquery.core.loss import Loss
from hushquery.errors import UsageError

QUICK = settings(max_examples=20, deadline=None)
LN10 = math.log(10)


def hockey(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def folded(p, q, times):
    a, b = np.ones(1), np.ones(1)
    for _ in range(times):
        a, b = np.outer(a, p).ravel(), np.outer(b, q).ravel()
    return a, b


def worst_pair(epsilon, delta=0.0):
    """Tell all with probability delta, else respond at random: no (epsilon, delta)-DP mechanism is worse."""
    yes = (1 - delta) / (1 + math.exp(-epsilon))
    no = (1 - delta) / (1 + math.exp(epsilon))
    return np.array([delta, yes, no, 0.0]), np.array([0.0, no, yes, delta])


# ---- adding up -----------------------------------------------------------------------------------------------------

budgets = st.lists(
    st.builds(
        Budget, st.fractions(0, 5, max_denominator=1000), st.fractions(0, Fraction(1, 100), max_denominator=10**6)
    ),
    max_size=6,
)


@given(budgets)
def test_sequential_is_exact_and_parallel_is_the_largest(parts):
    total, largest = sequential(parts), parallel(parts)
    assert total.epsilon == sum(b.epsilon for b in parts)
    assert total.delta == sum(b.delta for b in parts)
    assert largest.epsilon == max([b.epsilon for b in parts], default=0)
    assert largest.epsilon <= total.epsilon
    assert largest.delta <= total.delta


def test_sequential_holds_for_two_mechanisms_that_add_up_to_exactly_that():
    pair = worst_pair(0.3, 0.01)
    both = folded(*pair, 2)
    total = sequential([Budget(0.3, 0.01)] * 2)
    assert hockey(*both, float(total.epsilon)) <= total.delta
    assert hockey(*folded(*worst_pair(0.3), 2), 0.6 - 1e-6) > 0  # and without delta no smaller epsilon is true


def test_parallel_fails_for_a_person_who_moves_between_the_parts():
    """Two counts with Laplace noise of scale 2; the person leaves the first part and arrives in the second."""
    z = np.arange(-80, 81)
    noise = np.exp(-np.abs(z) / 2.0)
    stays, moved = np.outer(noise[1:-1], noise[1:-1]), np.outer(noise[2:], noise[:-2])
    ratio = np.abs(np.log(stays / moved)).max()
    assert ratio == pytest.approx(1.0)
    assert ratio > parallel([Budget(0.5), Budget(0.5)]).epsilon
    assert ratio == pytest.approx(float(sequential([Budget(0.5), Budget(0.5)]).epsilon))


# ---- advanced ------------------------------------------------------------------------------------------------------


def test_advanced_is_its_formula():
    epsilon, delta = advanced(0.1, 1e-9, 50, 1e-6)
    assert epsilon == pytest.approx(0.1 * math.sqrt(100 * math.log(1e6)) + 5 * math.expm1(0.1), rel=1e-14)
    assert delta == pytest.approx(50e-9 + 1e-6, rel=1e-14)
    assert Fraction(delta) >= Fraction(105, 10**8)


@QUICK
@given(st.floats(0.01, 1.5), st.integers(1, 30), st.floats(1e-9, 0.1))
def test_advanced_is_never_below_the_optimal_rule(epsilon, times, slack):
    grown, delta = advanced(epsilon, 0, times, slack)
    assert Loss(pure=(epsilon,) * times).delta(grown) <= slack
    assert kov(epsilon, times, slack) <= max(grown, 0) + 2 * epsilon  # the theorem's epsilons are 2 epsilon apart
    assert delta >= slack


# ---- KOV -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.003])
@pytest.mark.parametrize(("epsilon", "times"), [(0.4, 5), (0.1, 4), (1.3, 3), (0.25, 5)])
def test_kov_against_the_enumeration_of_all_outcomes(epsilon, times, delta):
    pair = folded(*worst_pair(epsilon, delta), times)
    for target in (0.02, 0.05, 0.2):
        found = kov(epsilon, times, target, delta)
        assert hockey(*pair, found) <= target + 1e-12
        smaller = found - 2 * epsilon
        assert smaller < -1e-9 or hockey(*pair, smaller) > target


def test_kov_h5_formula_at_k_10():
    """ALGORITHMS H5, evaluated here a second time with plain floats."""
    e, k = 0.3, 10
    for i in range(1, k // 2 + 1):
        delta = (
            sum(math.comb(k, j) * (math.exp((k - j) * e) - math.exp((k - 2 * i + j) * e)) for j in range(i))
            / (1 + math.exp(e)) ** k
        )
        assert kov(e, k, delta * (1 + 1e-9)) == pytest.approx((k - 2 * i) * e)
        assert kov(e, k, delta * (1 - 1e-9)) == pytest.approx((k - 2 * i + 2) * e)


def test_kov_at_its_edges():
    assert kov(0.1, 7, 0) == pytest.approx(0.7)
    assert kov(0.1, 1, 1e-6, 1e-6) == 0.1  # a release fits into a budget equal to its own
    assert math.isinf(kov(0.1, 2, 1e-6, 1e-6))
    assert kov(0, 5, 0) == 0.0


@QUICK
@given(st.floats(0.01, 1), st.integers(1, 25), st.floats(1e-9, 0.2))
def test_kov_between_the_exact_epsilon_and_the_sum(epsilon, times, target):
    found = kov(epsilon, times, target)
    assert Loss(pure=(epsilon,) * times).epsilon(target) <= found * (1 + 1e-12)
    assert found <= float(sequential([Budget(epsilon)] * times).epsilon) * (1 + 1e-12)
    assert kov(epsilon, times, min(0.9, 2 * target)) <= found
    assert kov(epsilon, times + 2, target) >= found
    assert kov(epsilon * 1.5, times, target) >= found


# ---- zCDP ----------------------------------------------------------------------------------------------------------


def sigma_for(rule):
    low, high = 1.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if rule(middle) <= LN10 else (middle, high)
    return high


def test_noise_for_ln_10_and_1e_5_by_three_rules_is_as_algorithms_e_prints_it():
    simple = sigma_for(lambda s: zcdp_to_epsilon_simple(zcdp_of_gaussian(1 / s**2), 1e-5))
    tight = sigma_for(lambda s: zcdp_to_epsilon(zcdp_of_gaussian(1 / s**2), 1e-5))
    assert [f"{x:.3f}" for x in (simple, tight, float(1 / mu_for("ln 10", 1e-5)))] == ["2.183", "1.893", "1.758"]


@pytest.mark.parametrize("rho", [0.005, 0.1, 2.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_zcdp_against_dp_accountings_renyi_accountant(rho, delta):
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    centre = 1 + math.sqrt(math.log(1 / delta) / rho)
    orders = [1 + (centre - 1) * x for x in np.linspace(0.2, 3, 4001)]
    theirs, _ = rdp.compute_epsilon(orders, [rho * a for a in orders], delta)
    assert zcdp_to_epsilon(rho, delta) == pytest.approx(theirs, rel=1e-5)
    assert zcdp_to_epsilon(rho, delta) <= theirs * (1 + 1e-12)


def test_zcdp_minimum_is_a_minimum_in_60_digits():
    rho, delta = Fraction(1, 8), Fraction(1, 10**6)
    with mpmath.workdps(40):
        values = [
            a * mpmath.mpf(1) / 8 + (a * mpmath.log(1 - 1 / a) - mpmath.log(a - 1) + mpmath.log(10**6)) / (a - 1)
            for a in (mpmath.mpf(x) / 1000 for x in range(5000, 20000))
        ]
        assert zcdp_to_epsilon(rho, delta) <= float(min(values))
        assert zcdp_to_epsilon(rho, delta) == pytest.approx(float(min(values)), rel=1e-7)


@QUICK
@given(st.floats(0.01, 2), st.floats(1e-10, 0.1))
def test_zcdp_is_never_below_the_exact_gaussian_and_never_above_the_textbook(mu, delta):
    rho = zcdp_of_gaussian(Fraction(repr(mu)) ** 2)
    tight = zcdp_to_epsilon(rho, delta)
    assert agd(Fraction(tight), mu) <= delta
    assert tight <= zcdp_to_epsilon_simple(rho, delta)
    assert zcdp_to_epsilon(rho * 2, delta) >= tight
    assert zcdp_to_epsilon(rho, delta / 2) >= tight


@QUICK
@given(st.floats(0.01, 4), st.floats(1.01, 50))
def test_half_epsilon_squared_bounds_every_renyi_divergence_of_randomised_response(epsilon, order):
    p, q = (x[1:3] for x in worst_pair(epsilon))
    renyi = math.log(float(np.sum(p**order * q ** (1 - order)))) / (order - 1)
    assert renyi <= float(zcdp_of_pure(epsilon)) * order * (1 + 1e-9)


def test_zcdp_of_nothing_is_nothing():
    assert zcdp_to_epsilon(0, 1e-6) == 0.0


# ---- GDP -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "mu"), [("1e-5", ".5688118676"), (".9e-5", ".5656901396"), ("1e-6", ".5097794006")])
def test_gdp_returns_to_ln_10_at_the_mus_of_h6(delta, mu):
    assert gdp([mu], delta) == pytest.approx(LN10, abs=1e-8)


@pytest.mark.parametrize(("mus", "delta"), [([0.5], 1e-6), ([0.3] * 9, 1e-5), ([0.1, 0.7, 1.2], 1e-9)])
def test_gdp_against_dp_accountings_gaussian(mus, delta):
    from dp_accounting import gaussian_mechanism

    sigma = 1 / math.sqrt(sum(mu**2 for mu in mus))
    assert gdp(mus, delta) == pytest.approx(gaussian_mechanism.get_epsilon_gaussian(sigma, delta), rel=1e-6)


@QUICK
@given(st.floats(0.001, 6), st.floats(-3, 6))
def test_every_pure_release_is_hidden_by_its_gaussian(epsilon, at):
    p, q = worst_pair(epsilon)
    assert hockey(p, q, at) <= max(agd(at, Fraction(gdp_of_pure(epsilon))), 1 - math.exp(at)) + 1e-12


@QUICK
@given(st.floats(0.01, 3))
def test_no_weaker_gaussian_hides_a_randomised_response(epsilon):
    """At the corner of its trade-off curve: error rates 1/(1+e^epsilon) both; a Gaussian reaches them at mu only."""
    from scipy.stats import norm

    assert 2 * norm.isf(1 / (1 + math.exp(epsilon))) == pytest.approx(gdp_of_pure(epsilon), rel=1e-9)


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: advanced(0.1, 0, 0, 1e-6),
        lambda: advanced(0.1, 0, 5, 0),
        lambda: advanced(-1, 0, 5, 1e-6),
        lambda: advanced(float("nan"), 0, 5, 1e-6),
        lambda: kov(0.1, 0, 1e-6),
        lambda: kov(0.1, True, 1e-6),
        lambda: kov(0.1, 5, 1),
        lambda: zcdp_of_gaussian(-1),
        lambda: zcdp_to_epsilon(-1, 1e-6),
        lambda: zcdp_to_epsilon(1, 0),
        lambda: zcdp_to_epsilon_simple(1, 2),
        lambda: gdp([-1], 1e-6),
        lambda: gdp([1], 0),
        lambda: gdp_of_pure(-1),
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
