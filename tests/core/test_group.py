"""Group privacy against chains of neighbouring worlds whose divergences are computed outright."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.gaussian import agd, mu_for
from hushquery.core.group import group, group_gaussian
from hushquery.errors import UsageError


def hockey(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.floats(0, 1.5))
def test_any_chain_of_worlds_is_within_the_bound(seed, people, epsilon):
    rng = np.random.default_rng(seed)
    start = rng.dirichlet(np.ones(6))
    worlds = [start]
    for _ in range(people):
        step = worlds[-1] * np.exp(rng.uniform(-1, 1, 6))
        worlds.append(step / step.sum())
    pairs = list(itertools.pairwise(worlds))
    one = max(max(hockey(p, q, epsilon), hockey(q, p, epsilon)) for p, q in pairs)
    together, lost = group(epsilon, min(one, 0.99), people)
    assert hockey(worlds[0], worlds[-1], together) <= lost + 1e-12
    assert hockey(worlds[-1], worlds[0], together) <= lost + 1e-12


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


def test_the_numbers_of_algorithms_e():
    mu = mu_for(0.5, 1e-6)
    for people, gaussian, general in [(2, 2.56e-6, 2.65e-6), (3, 4.88e-6, 5.37e-6)]:
        epsilon, delta = group(0.5, 1e-6, people)
        own = agd(epsilon, group_gaussian(mu, people))
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
    assert agd(Fraction(together), group_gaussian(mu, people)) <= lost


def test_with_a_threshold_mu_alone_forgets_the_key_that_all_of_them_share():
    """The histogram of ALGORITHMS H1 at d = 1: a key of four passes a thousand times as often as a key of one."""
    sigma, bar, people = 1.7589, 10, 4
    alone, shared = norm.sf((bar - 0.5 - 1) / sigma), norm.sf((bar - 0.5 - people) / sigma)
    assert shared > 1000 * alone  # so not even k times the threshold's delta would do
    epsilon, delta = group("ln 10", 1e-5, people)
    assert shared < delta  # the converted budget covers it
    assert epsilon == pytest.approx(people * math.log(10))


@pytest.mark.parametrize("wrong", [lambda: group(1, 0, 0), lambda: group(-1, 0, 2), lambda: group_gaussian(-1, 2)])
def test_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
