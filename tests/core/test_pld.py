"""Privacy loss distributions against enumeration, dp-accounting's optimistic estimate and the exact loss."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.core.calibration import mu_for
from hushquery.core.composition import compose
from hushquery.core.loss import Loss
from hushquery.core.pld import LaplaceStep, pld_epsilon
from hushquery.errors import CalibrationError, Unavailable, UsageError

QUICK = settings(max_examples=10, deadline=None)


def epsilon_of(laplace=(), pure=(), mu=0, delta="1e-6"):
    return pld_epsilon(laplace, [Fraction(r) for r in pure], Fraction(str(mu)) ** 2, Fraction(str(delta)))


def laplace_pair(sensitivity, scale):
    """Discrete Laplace noise around 0 and around the sensitivity; beyond them the ratio no longer changes."""
    a = math.exp(-1 / scale)
    inner = np.arange(1, sensitivity)
    law = (1 - a) / (1 + a)
    p = np.concatenate(([1 / (1 + a)], law * a**inner, [a**sensitivity / (1 + a)]))
    return p, p[::-1]


def response_pair(epsilon):
    yes = 1 / (1 + math.exp(-epsilon))
    return np.array([yes, 1 - yes]), np.array([1 - yes, yes])


def truth(pairs, epsilon):
    p, q = np.ones(1), np.ones(1)
    for a, b in pairs:
        p, q = np.outer(p, a).ravel(), np.outer(q, b).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


CASES = [
    ([LaplaceStep(1, 2)] * 4, [], [laplace_pair(1, 2.0)] * 4),
    ([LaplaceStep(3, 5)] * 4 + [LaplaceStep(2, 7)] * 3, [], [laplace_pair(3, 5.0)] * 4 + [laplace_pair(2, 7.0)] * 3),
    ([], ["1/7"] * 5 + ["0.4"], [response_pair(1 / 7)] * 5 + [response_pair(0.4)]),
    ([LaplaceStep(4, 9)], ["0.3"] * 3, [response_pair(0.3)] * 3 + [laplace_pair(4, 9.0)]),
]


@pytest.mark.parametrize(("laplace", "pure", "pairs"), CASES)
@pytest.mark.parametrize("delta", [0.15, 0.01, 1e-4])
def test_epsilon_is_valid_and_nearly_the_smallest(laplace, pure, pairs, delta):
    epsilon = epsilon_of(laplace, pure, delta=delta)
    assert truth(pairs, epsilon) <= delta
    assert epsilon == 0 or truth(pairs, epsilon - 1e-3) > delta


def test_single_steps_equal_their_closed_forms():
    exact = Loss(mu_squared="1/4").epsilon(1e-6)
    assert exact <= epsilon_of(mu="0.5") == pytest.approx(exact, rel=1e-5)
    assert epsilon_of([LaplaceStep(3, 2)], delta=0) == 1.5
    assert epsilon_of() == 0.0
    assert epsilon_of(pure=["1/2"] * 2, delta="1e-30") == 1.0
    assert math.isinf(epsilon_of(mu=1, delta=0))


@QUICK
@given(
    st.lists(st.sampled_from(["0.05", "1/7", "0.33"]), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.03, 0.2, 0.6]),
    st.floats(1e-7, 0.01),
)
def test_never_below_the_exact_loss_and_close_above_it(pure, mu, delta):
    exact = Loss(mu_squared=Fraction(repr(mu)) ** 2, pure=tuple(pure)).epsilon(delta)
    ours = epsilon_of(pure=pure, mu=mu, delta=delta)
    assert exact * (1 - 1e-12) <= ours <= exact + 2e-3


def test_laplace_with_sensitivity_one_is_a_randomised_response_and_else_is_better():
    count, response = epsilon_of([LaplaceStep(1, 10)] * 50), epsilon_of(pure=["0.1"] * 50)
    assert count == pytest.approx(response, rel=1e-7)
    assert epsilon_of([LaplaceStep(10, 100)] * 50) < 0.99 * count


def test_dp_accountings_estimate_is_pessimistic_and_its_optimistic_one_below():
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = pld.from_discrete_laplace_mechanism(0.1, 3, pessimistic_estimate=False, value_discretization_interval=1e-4)
    low = step.self_compose(20)
    for delta in (1e-2, 1e-4, 1e-6):
        ours = epsilon_of([LaplaceStep(3, 10)] * 20, delta=delta)
        assert low.get_delta_for_epsilon(ours) <= delta <= low.get_delta_for_epsilon(ours) * 1.2


@QUICK
@given(st.integers(1, 5), st.integers(2, 12), st.integers(1, 8), st.floats(1e-6, 1e-2))
def test_monotone(sensitivity, scale, times, delta):
    steps = [LaplaceStep(sensitivity, scale * sensitivity)] * times
    epsilon = epsilon_of(steps, delta=delta)
    assert epsilon <= times / scale * (1 + 1e-12)
    assert epsilon_of(steps, ["0.1"], delta=delta) >= epsilon
    assert epsilon_of(steps, delta=delta / 2) >= epsilon


def smallest_scale(d, epsilon_of):
    low, high = d / math.log(10) / 3, d / math.log(10) * 1.001
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_of(middle) <= math.log(10) else (middle, high)
    return high


@pytest.mark.parametrize(
    ("d", "basic", "laplace", "gaussian", "discrete"),
    [
        (1, 0.61, 0.61, 1.76, 0.50),
        (5, 3.07, 3.07, 3.93, 3.05),
        (10, 6.14, 6.12, 5.56, 6.12),
        (20, 12.3, 10.1, 7.9, 10.4),
        (40, 24.6, 15.0, 11.1, 15.2),
    ],
)
def test_noise_for_a_sparse_histogram_follows_the_rule_of_its_law(d, basic, laplace, gaussian, discrete):
    """Standard deviation at (ln 10, 1e-5). The column `laplace` is for *continuous* Laplace noise.

    Ours is discrete, where a count's loss is that of a randomised response, the worst there is: it needs 2.7% more at
    d = 20 and 1.8% more at d = 40 (and less at d = 1, where the noise is mostly 0).
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    def continuous(scale):
        one = pld.from_laplace_mechanism(scale, value_discretization_interval=1e-3)
        return (one.self_compose(d) if d > 1 else one).get_epsilon_for_delta(1e-5)

    digits = 0.05 if basic > 10 else 0.005
    assert math.sqrt(2) * d / math.log(10) == pytest.approx(basic, abs=digits)
    assert math.sqrt(2) * smallest_scale(d, continuous) == pytest.approx(laplace, abs=digits * 1.2)
    assert math.sqrt(d) / float(mu_for("ln 10", 1e-5)) == pytest.approx(gaussian, abs=digits)
    scale = smallest_scale(d, lambda b: epsilon_of([LaplaceStep(1, b)] * d, delta=1e-5))
    a = math.exp(-1 / scale)
    assert math.sqrt(2 * a) / (1 - a) == pytest.approx(discrete, abs=digits * 1.5)


@pytest.mark.parametrize(("sensitivity", "scale"), [(0, 1), (1, 0), (1, "nan")])
def test_numbers_that_mean_nothing_are_refused(sensitivity, scale):
    with pytest.raises(UsageError):
        LaplaceStep(sensitivity, scale)


def test_a_grid_that_would_not_fit_into_memory_is_refused():
    with pytest.raises(CalibrationError, match="8,388,608 are allowed"):
        epsilon_of(pure=["50"] * 200)


def test_without_dp_accounting_the_extra_is_named_and_the_other_rules_hold(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(Unavailable, match=r"pip install 'hushquery\[accounting\]'"):
        epsilon_of(pure=["1/2"])
    composed = compose([Loss(pure=("1/10",))] * 10, 1e-6)
    assert composed.rule == "mixed"
    assert "pip install 'hushquery[accounting]'" in composed.explain()
