"""Each rule against an independent value: enumeration, chains of neighbours, dp-accounting, published numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.budget import round_up
from hushquery.core.calibration import agd, mu_for
from hushquery.core.composition import advanced, compose, gdp_of_pure, group, kov, zcdp_to_epsilon
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


def sequential(*steps, delta):
    return compose(steps, delta).alternatives["sequential"]


pure_steps = st.lists(
    st.builds(
        lambda epsilon, delta: Loss(pure=(epsilon,), threshold_delta=delta),
        st.fractions(0, 5, max_denominator=1000),
        st.fractions(0, Fraction(1, 100), max_denominator=10**6),
    ),
    max_size=6,
)


@given(pure_steps)
def test_sequential_adds_epsilons_and_deltas_exactly(steps):
    total, delta = sum(sum(s.pure) for s in steps), sum((s.threshold_delta for s in steps), Fraction(0))
    assert sequential(*steps, delta=delta) == round_up(Fraction(total))
    if delta:
        with pytest.raises(UsageError, match="no epsilon holds"):
            sequential(*steps, delta=delta * Fraction(999, 1000))


def test_sequential_holds_for_two_mechanisms_that_add_up_to_exactly_that():
    both = folded(*worst_pair(0.3, 0.01), 2)
    assert hockey(*both, sequential(*[Loss(pure=("0.3",), threshold_delta="0.01")] * 2, delta="0.02")) <= 0.02
    assert hockey(*folded(*worst_pair(0.3), 2), 0.6 - 1e-6) > 0  # and without delta no smaller epsilon is true


# ---- advanced ------------------------------------------------------------------------------------------------------


def test_advanced_is_its_formula():
    expected = 0.1 * math.sqrt(100 * math.log(1e6)) + 5 * math.expm1(0.1)
    assert advanced(0.1, 50, 1e-6) == pytest.approx(expected, rel=1e-14)


@QUICK
@given(st.floats(0.01, 1.5), st.integers(1, 30), st.floats(1e-9, 0.1))
def test_advanced_is_never_below_the_optimal_rule(epsilon, times, slack):
    grown = advanced(epsilon, times, slack)
    assert Loss(pure=(epsilon,) * times).delta(grown) <= slack
    assert kov(epsilon, times, slack) <= max(grown, 0) + 2 * epsilon  # the theorem's epsilons are 2 epsilon apart


# ---- KOV -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "times"), [(0.4, 5), (0.1, 4), (1.3, 3), (0.25, 5)])
def test_kov_against_the_enumeration_of_all_outcomes(epsilon, times):
    pair = folded(*worst_pair(epsilon), times)
    for target in (0.02, 0.05, 0.2):
        found = kov(epsilon, times, target)
        assert hockey(*pair, found) <= target + 1e-12
        smaller = found - 2 * epsilon
        assert smaller < -1e-9 or hockey(*pair, smaller) > target


def test_kov_is_the_formula_of_its_theorem_at_k_10():
    """Evaluated here a second time with plain floats."""
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
    assert kov(0.1, 1, 1e-6) == 0.1
    assert kov(0, 5, 0) == 0.0


@QUICK
@given(st.floats(0.01, 1), st.integers(1, 25), st.floats(1e-9, 0.2))
def test_kov_between_the_exact_epsilon_and_the_sum(epsilon, times, target):
    found = kov(epsilon, times, target)
    assert Loss(pure=(epsilon,) * times).epsilon(target) <= found * (1 + 1e-12)
    assert found <= times * epsilon * (1 + 1e-12)
    assert kov(epsilon, times, min(0.9, 2 * target)) <= found
    assert kov(epsilon, times + 2, target) >= found
    assert kov(epsilon * 1.5, times, target) >= found


# ---- zCDP ----------------------------------------------------------------------------------------------------------


def test_noise_for_ln_10_and_1e_5_is_a_little_more_by_zcdp_than_by_the_exact_curve():
    low, high = 1.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if zcdp_to_epsilon(0.5 / middle**2, 1e-5) <= LN10 else (middle, high)
    assert [f"{x:.3f}" for x in (high, float(1 / mu_for("ln 10", 1e-5)))] == ["1.893", "1.758"]


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
    rho = Fraction(repr(mu)) ** 2 / 2
    tight = zcdp_to_epsilon(rho, delta)
    assert agd(Fraction(tight), mu) <= delta
    textbook = float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / delta))  # Bun and Steinke 2016, Proposition 1.3
    assert tight <= textbook * (1 + 1e-12)
    assert zcdp_to_epsilon(rho * 2, delta) >= tight
    assert zcdp_to_epsilon(rho, delta / 2) >= tight


@QUICK
@given(st.floats(0.01, 4), st.floats(1.01, 50))
def test_half_epsilon_squared_bounds_every_renyi_divergence_of_randomised_response(epsilon, order):
    p, q = (x[1:3] for x in worst_pair(epsilon))
    renyi = math.log(float(np.sum(p**order * q ** (1 - order)))) / (order - 1)
    assert renyi <= epsilon**2 / 2 * order * (1 + 1e-9)


def test_zcdp_of_nothing_is_nothing():
    assert zcdp_to_epsilon(0, 1e-6) == 0.0


# ---- GDP -----------------------------------------------------------------------------------------------------------


def gdp(mus, delta):
    return compose([Loss(mu_squared=Fraction(str(mu)) ** 2) for mu in mus], delta).alternatives["GDP"]


@pytest.mark.parametrize(("delta", "mu"), [("1e-5", ".5688118676"), (".9e-5", ".5656901396"), ("1e-6", ".5097794006")])
def test_gdp_returns_to_ln_10_at_the_mus_that_were_calibrated_for_it(delta, mu):
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
    assert 2 * norm.isf(1 / (1 + math.exp(epsilon))) == pytest.approx(gdp_of_pure(epsilon), rel=1e-9)


# ---- groups -------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.floats(0, 1.5))
def test_any_chain_of_datasets_is_within_the_bound(seed, people, epsilon):
    rng = np.random.default_rng(seed)
    start = rng.dirichlet(np.ones(6))
    datasets = [start]
    for _ in range(people):
        step = datasets[-1] * np.exp(rng.uniform(-1, 1, 6))
        datasets.append(step / step.sum())
    pairs = list(itertools.pairwise(datasets))
    one = max(max(hockey(p, q, epsilon), hockey(q, p, epsilon)) for p, q in pairs)
    together, lost = group(epsilon, min(one, 0.99), people)
    assert hockey(datasets[0], datasets[-1], together) <= lost + 1e-12
    assert hockey(datasets[-1], datasets[0], together) <= lost + 1e-12


def test_some_mechanism_needs_nearly_all_of_it():
    """Each neighbour moves e^epsilon more mass and delta beyond it, so the bound is met with equality."""
    epsilon, delta, people = 0.3, 0.001, 3
    mass = [0.0]
    for _ in range(people):
        mass.append(math.exp(epsilon) * mass[-1] + delta)
    far = np.array([mass[-1], 1 - mass[-1]])
    none = np.array([0.0, 1.0])
    together, lost = group(epsilon, delta, people)
    assert hockey(far, none, together) == pytest.approx(lost)


def test_groups_of_two_and_three_with_any_noise_and_with_gaussian_noise():
    mu = mu_for(0.5, 1e-6)
    for people, gaussian, general in [(2, 2.56e-6, 2.65e-6), (3, 4.88e-6, 5.37e-6)]:
        epsilon, delta = group(0.5, 1e-6, people)
        own = agd(epsilon, people * mu)
        assert epsilon == 0.5 * people
        assert delta == pytest.approx(general, abs=0.005e-6)
        assert own == pytest.approx(gaussian, abs=0.006e-6)
        assert own <= delta


@settings(deadline=None)
@given(
    st.fractions(0, 3, max_denominator=100), st.fractions(0, Fraction(1, 100), max_denominator=10**5), st.integers(1, 9)
)
def test_exact_at_the_edges_and_monotone(epsilon, delta, people):
    together, lost = group(epsilon, delta, people)
    assert Fraction(together) >= people * epsilon
    assert Fraction(lost) >= min(1, people * delta)
    assert lost <= 1.0
    assert group(epsilon, delta, people + 1) >= (together, lost)
    assert group(epsilon, 0, people)[1] == 0.0
    assert group(0, delta, people) == (0.0, pytest.approx(float(min(1, people * delta))))
    if people == 1:
        assert (together, lost) == pytest.approx((float(epsilon), float(delta)))


def test_delta_stops_at_one_where_nothing_is_promised():
    assert group(1000, 0.5, 50) == (50000.0, 1.0)
    assert group(0, 0.5, 3) == (0.0, 1.0)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 2), st.integers(2, 6))
def test_gaussian_noise_is_exact_and_within_the_general_bound(epsilon, people):
    mu = mu_for(epsilon, 1e-6)
    together, lost = group(epsilon, 1e-6, people)
    assert agd(Fraction(together), people * mu) <= lost


def test_with_a_threshold_mu_alone_forgets_the_key_that_all_of_them_share():
    """One key per user: a key of four passes a thousand times as often as a key of one."""
    sigma, bar, people = 1.7589, 10, 4
    alone, shared = norm.sf((bar - 0.5 - 1) / sigma), norm.sf((bar - 0.5 - people) / sigma)
    assert shared > 1000 * alone  # so not even k times the threshold's delta would do
    epsilon, delta = group("ln 10", 1e-5, people)
    assert shared < delta  # the converted budget covers it
    assert epsilon == pytest.approx(people * math.log(10))


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: advanced(-1, 5, 1e-6),
        lambda: advanced(float("nan"), 5, 1e-6),
        lambda: kov(0.1, 5, 1),
        lambda: zcdp_to_epsilon(float("inf"), 1e-6),
        lambda: zcdp_to_epsilon(1, 2),
        lambda: gdp_of_pure(-1),
        lambda: group(1, 0, 0),
        lambda: group(1, 0, True),
        lambda: group(-1, 0, 2),
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
