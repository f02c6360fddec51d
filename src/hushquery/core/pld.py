"""Tight composition through privacy loss distributions, as dp-accounting computes them (extra ``accounting``).

A privacy loss distribution keeps the whole law of the loss, so Laplace noise is charged for what it is. dp-accounting
puts losses on a grid so that delta can only grow, and convolves with the fast Fourier transform. It does not cover that
transform's rounding, so we add ``2^-50 steps log2(points) sqrt(points)`` to delta: each of log2(points) butterflies
errs by at most 8 units of 2^-53 per step, and a sum over all points is at most sqrt(points) times the error's length. A
relative 1e-9 covers the grid's own arithmetic. References: Koskela, Jalko and Honkela 2020; Doroshenko et al. 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import mpmath

from hushquery.core.budget import Number, exact, rational_mpf, round_down, round_up, working
from hushquery.core.loss import Loss
from hushquery.errors import CalibrationError, Unavailable, UsageError, install

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_MOST_POINTS = 2**23
_RELATIVE = 1e-9


@dataclass(frozen=True)
class LaplaceStep:
    """An integer that one unit changes by at most ``sensitivity``, with discrete Laplace noise of scale b."""

    sensitivity: int
    scale: Fraction

    def __init__(self, sensitivity: int, scale: Number) -> None:
        width = exact(scale, "the scale")
        if sensitivity < 1 or width <= 0:
            raise UsageError(
                "Laplace noise needs a sensitivity of at least 1 and a scale above 0",
                fix="Use for example a sensitivity of 1 and a scale of 1/epsilon",
            )
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "scale", width)

    @property
    def loss(self) -> Loss:
        """What it costs when nothing but its epsilon is known."""
        return Loss(pure=(self.sensitivity / self.scale,))


def pld_epsilon(
    laplace: Sequence[LaplaceStep], pure: Sequence[Fraction], mu_squared: Fraction, delta: Fraction
) -> float:
    """Return the epsilon of all steps together at ``delta``, tight up to the grid and never understated; infinite if
    none holds or doubles can't resolve delta. Other pure steps count as randomised responses, the worst of them.

    **Guarantee:** the steps, in any order and each chosen after seeing the ones before, are (epsilon, delta)-DP.
    **Reference:** the module's head.

    >>> [f"{pld_epsilon([LaplaceStep(s, 10 * s)] * 100, [], Fraction(0), Fraction(1, 10**6)):.3f}" for s in (1, 9)]
    ['4.775', '4.694']
    """
    pure_sum = sum((step.sensitivity / step.scale for step in laplace), sum(pure, Fraction(0)))
    largest = math.inf if mu_squared else round_up(pure_sum)
    if largest == 0:
        return 0.0
    composed, allowance = _compose(Counter([*laplace, *pure]), mu_squared)
    goal = round_down(delta)
    if goal <= allowance:
        return largest

    def within(epsilon: float) -> bool:
        return float(composed.get_delta_for_epsilon(epsilon)) * (1 + _RELATIVE) + allowance <= goal

    if within(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not within(high):
        low, high = high, high * 2
        if high > 2**14:
            return largest
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return min(high, largest)


def _compose(
    steps: Mapping[LaplaceStep | Fraction, int], mu_squared: Fraction
) -> tuple[PrivacyLossDistribution, float]:
    """Compose, and return the allowance for the transform's rounding with the result."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise Unavailable(
            "privacy loss distributions need the package dp-accounting",
            why="it is not installed",
            fix=install("accounting"),
        ) from None
    sizes = {step: float(step if isinstance(step, Fraction) else step.sensitivity / step.scale) for step in steps}
    mu = math.sqrt(mu_squared)
    # The losses are a hundredth of the smallest step's epsilon or mu apart.
    interval = min(1e-3, max(1e-5, min((size for size in [*sizes.values(), mu] if size), default=0.0) / 100))
    count = sum(steps.values())
    reach = sum(times * sizes[step] for step, times in steps.items())
    points = 2 * reach / interval + 24 * mu / interval + 4 * count + 16  # of the grid, at most
    if points > _MOST_POINTS:
        raise CalibrationError(
            f"the losses need {points:,.0f} points at an interval of {interval:g}",
            why=f"{_MOST_POINTS:,} are allowed",
            fix="Compose fewer steps, or by another rule",
        )
    options = {"pessimistic_estimate": True, "value_discretization_interval": interval, "use_connect_dots": True}
    composed = privacy_loss_distribution.identity(value_discretization_interval=interval)
    if mu_squared:  # all Gaussians together are one
        with working():
            sigma = round_down(1 / mpmath.sqrt(rational_mpf(mu_squared)))
        composed = composed.compose(privacy_loss_distribution.from_gaussian_mechanism(sigma, **options))
    for step, times in steps.items():
        single = (
            _response(step, interval)
            if isinstance(step, Fraction)
            else privacy_loss_distribution.from_discrete_laplace_mechanism(
                round_up(1 / step.scale), step.sensitivity, **options
            )
        )
        composed = composed.compose(single.self_compose(times) if times > 1 else single)
    return composed, 2.0**-50 * (count + 1) * math.log2(points) * math.sqrt(points)


def _response(epsilon: Fraction, interval: float) -> Any:
    """Put the two losses +-epsilon of a randomised response on the grid by connecting the dots around them."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    below, above = epsilon // Fraction(interval), -(-epsilon // Fraction(interval))
    points = sorted({-above, -below, below, above})
    with working():
        yes = 1 / (1 + mpmath.exp(-rational_mpf(epsilon)))
        curve = []
        for point in points:
            factor = mpmath.exp(rational_mpf(point * Fraction(interval)))
            lost = mpmath.mpf(0)
            if point * Fraction(interval) < epsilon:
                lost = yes - factor * (1 - yes) + max(mpmath.mpf(0), 1 - yes - factor * yes)
            curve.append(min(1.0, round_up(lost)))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, curve)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
