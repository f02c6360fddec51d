"""Privacy loss distributions against enumeration, dp-accounting's optimistic estimate and the exact loss."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.core.gaussian import agd, mu_for
from hushquery.core.loss import Loss
from hushquery.core.pld import ApproximateStep, GaussianStep, LaplaceStep, ResponseStep, pld_delta, pld_epsilon
from hushquery.errors import CalibrationError, UsageError

QUICK = settings(max_examples=10, deadline=None)


def laplace_pair(sensitivity, scale):
    """Discrete Laplace noise around 0 and around the sensitivity; beyond them the ratio no longer changes."""
    a = math.exp(-1 / scale)
    inner = np.arange(1, sensitivity)
    law = (1 - a) / (1 + a)
    p = np.concatenate(([1 / (1 + a)], law * a**inner, [a**sensitivity / (1 + a)]))
    return p, p[::-1]


def response_pair(epsilon, delta=0.0):
    yes, no = (1 - delta) / (1 + math.exp(-epsilon)), (1 - delta) / (1 + math.exp(epsilon))
    return np.array([delta, yes, no, 0.0]), np.array([0.0, no, yes, delta])


def truth(pairs, epsilon):
    p, q = np.ones(1), np.ones(1)
    for a, b in pairs:
        p, q = np.outer(p, a).ravel(), np.outer(q, b).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


CASES = [
    ([LaplaceStep(1, 2)] * 4, [laplace_pair(1, 2.0)] * 4),
    ([LaplaceStep(3, 5)] * 4 + [LaplaceStep(2, 7)] * 3, [laplace_pair(3, 5.0)] * 4 + [laplace_pair(2, 7.0)] * 3),
    ([ResponseStep("1/7")] * 5 + [ResponseStep(0.4)], [response_pair(1 / 7)] * 5 + [response_pair(0.4)]),
    ([ApproximateStep(0.3, 1e-3)] * 3 + [LaplaceStep(4, 9)], [response_pair(0.3, 1e-3)] * 3 + [laplace_pair(4, 9.0)]),
]


@pytest.mark.parametrize(("steps", "pairs"), CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.31, 0.8])
def test_delta_is_never_below_the_enumeration_and_close_to_it(steps, pairs, epsilon):
    true, ours = truth(pairs, epsilon), pld_delta(steps, epsilon)
    assert true - 1e-15 <= ours <= true * 1.001 + 1e-9


@pytest.mark.parametrize(("steps", "pairs"), CASES)
def test_epsilon_is_valid_and_nearly_the_smallest(steps, pairs):
    epsilon = pld_epsilon(steps, 0.01)
    assert truth(pairs, epsilon) <= 0.01
    assert truth(pairs, epsilon - 1e-4) > 0.01


def test_single_steps_equal_their_closed_forms():
    assert pld_delta([GaussianStep(0.5)], 1) == pytest.approx(agd(1, 0.5), rel=1e-8)
    assert pld_delta([GaussianStep(0.5)], 1) >= agd(1, 0.5)
    assert pld_delta([ApproximateStep(1, 1e-4)], 1) == pytest.approx(1e-4, rel=1e-6)
    assert pld_epsilon([LaplaceStep(3, 2)], 0) == 1.5
    assert pld_epsilon([], 1e-6) == 0.0
    assert pld_delta([ResponseStep(0.5)] * 2, 1) == 0.0
    assert math.isinf(pld_epsilon([GaussianStep(1)], 0))
    assert math.isinf(pld_epsilon([ApproximateStep(1, 1e-3)], 1e-4))


def test_gaussians_are_joined_before_they_are_put_on_the_grid():
    many = pld_epsilon([GaussianStep("1/20")] * 100, 1e-6)
    assert many == pld_epsilon([GaussianStep("1/2")], 1e-6)
    assert many == pytest.approx(Loss(mu_squared="1/4").epsilon(1e-6), rel=1e-5)


@QUICK
@given(
    st.lists(st.sampled_from(["0.05", "1/7", "0.33"]), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.03, 0.2, 0.6]),
    st.floats(1e-7, 0.01),
)
def test_never_below_the_exact_loss_and_close_above_it(pure, mu, delta):
    steps = [ResponseStep(r) for r in pure] + [GaussianStep(mu)]
    exact = Loss(mu_squared=Fraction(repr(mu)) ** 2, pure=tuple(pure)).epsilon(delta)
    ours = pld_epsilon(steps, delta)
    assert exact * (1 - 1e-12) <= ours <= exact + 2e-3


def test_laplace_with_sensitivity_one_is_a_randomised_response_and_else_is_better():
    count, response = pld_epsilon([LaplaceStep(1, 10)] * 50, 1e-6), pld_epsilon([ResponseStep(0.1)] * 50, 1e-6)
    assert count == pytest.approx(response, rel=1e-7)
    assert pld_epsilon([LaplaceStep(10, 100)] * 50, 1e-6) < 0.99 * count


def test_dp_accountings_estimate_is_pessimistic_and_its_optimistic_one_below():
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = pld.from_discrete_laplace_mechanism(0.1, 3, pessimistic_estimate=False, value_discretization_interval=1e-4)
    low = step.self_compose(20)
    steps = [LaplaceStep(3, 10)] * 20
    for epsilon in (0.5, 1.5, 2.5):
        below, ours = low.get_delta_for_epsilon(epsilon), pld_delta(steps, epsilon)
        assert below <= ours <= below * 1.2 + 1e-9


def test_a_finer_grid_is_tighter_and_a_coarser_one_still_valid():
    steps = [ResponseStep("1/7")] * 30
    exact = Loss(pure=("1/7",) * 30).epsilon(1e-6)
    coarse, middle, fine = (pld_epsilon(steps, 1e-6, interval=h) for h in (0.05, 0.01, 0.001))
    assert exact <= fine <= middle <= coarse


@QUICK
@given(st.integers(1, 5), st.integers(2, 12), st.integers(1, 8), st.floats(1e-6, 1e-2))
def test_monotone(sensitivity, scale, times, delta):
    steps = [LaplaceStep(sensitivity, scale * sensitivity)] * times
    epsilon = pld_epsilon(steps, delta)
    assert epsilon <= times / scale * (1 + 1e-12)
    assert pld_epsilon([*steps, ResponseStep(0.1)], delta) >= epsilon
    assert pld_epsilon(steps, delta / 2) >= epsilon
    assert pld_delta(steps, epsilon) <= delta * (1 + 1e-6)


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
def test_noise_for_a_sparse_histogram_as_algorithms_e_prints_it(d, basic, laplace, gaussian, discrete):
    """Standard deviation at (ln 10, 1e-5). The printed PLD column is for *continuous* Laplace noise.

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
    scale = smallest_scale(d, lambda b: pld_epsilon([LaplaceStep(1, b)] * d, 1e-5))
    a = math.exp(-1 / scale)
    assert math.sqrt(2 * a) / (1 - a) == pytest.approx(discrete, abs=digits * 1.5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: LaplaceStep(0, 1),
        lambda: LaplaceStep(1, 0),
        lambda: GaussianStep(-1),
        lambda: ResponseStep(-1),
        lambda: ApproximateStep(1, 1),
        lambda: pld_epsilon([ResponseStep(1)], 1),
        lambda: pld_epsilon([ResponseStep(1)], 1e-6, interval=0),
        lambda: pld_delta([ResponseStep(1)], -1),
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()


def test_a_grid_that_would_not_fit_into_memory_is_refused():
    with pytest.raises(CalibrationError, match="larger interval"):
        pld_epsilon([ResponseStep(50)] * 100, 1e-6, interval=1e-4)
