"""Tight composition through privacy loss distributions, as dp-accounting computes them.

A rule that knows of a release only its (epsilon, delta) has to assume the worst mechanism with these numbers.
A privacy loss distribution keeps the whole law of the loss, so Laplace noise is charged for what it is.
dp-accounting puts the losses on a grid so that every delta can only grow ("pessimistic", by connecting the
dots of the exact delta curve) and convolves with the fast Fourier transform. What it does not cover is the
rounding of that transform, so we add

    2^-50 * steps * log2(points) * sqrt(points)

to delta: each of log2(points) butterflies errs by at most 8 units of 2^-53 per step composed, and a sum over
all points is at most sqrt(points) times the error's length. A relative 1e-9 covers the grid's own arithmetic.

References: Koskela, Jalko and Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022 (connect the
dots).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import mpmath

from hushquery.core.budget import Budget
from hushquery.core.loss import Loss
from hushquery.core.rounding import Number, exact, rational_mpf, round_down, round_up, working
from hushquery.errors import CalibrationError, UsageError

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = [
    "ApproximateStep",
    "GaussianStep",
    "LaplaceStep",
    "PldStep",
    "ResponseStep",
    "pld_delta",
    "pld_epsilon",
]

_MOST_POINTS = 2**23
_RELATIVE = 1e-9


@dataclass(frozen=True)
class LaplaceStep:
    """An integer with discrete Laplace noise.

    Args:
        sensitivity: The most one unit can change the integer by.
        scale: b, where noise z has probability proportional to ``e^(-|z|/b)``.
    """

    sensitivity: int
    scale: Fraction

    def __init__(self, sensitivity: int, scale: Number) -> None:
        width = exact(scale, "the scale")
        if sensitivity < 1 or width <= 0:
            what = "Laplace noise needs a sensitivity of at least 1 and a scale above 0"
            raise UsageError(what, fix="Give for example a sensitivity of 1 and a scale of 1/epsilon")
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "scale", width)

    @property
    def loss(self) -> Loss:
        """What it costs when nothing but its epsilon is known."""
        return Loss(pure=(self.sensitivity / self.scale,))


@dataclass(frozen=True)
class GaussianStep:
    """Gaussian noise, or anything that is mu-GDP.

    Args:
        mu: The L2 sensitivity over sigma.
    """

    mu: Fraction

    def __init__(self, mu: Number) -> None:
        value = exact(mu, "mu")
        if value < 0:
            what = "mu is negative"
            raise UsageError(what, fix="Give the L2 sensitivity over sigma")
        object.__setattr__(self, "mu", value)

    @property
    def loss(self) -> Loss:
        """What it costs."""
        return Loss(mu_squared=self.mu**2)


@dataclass(frozen=True)
class ResponseStep:
    """A randomised response, which is the worst of all epsilon-DP releases.

    Args:
        epsilon: The log of its odds.
    """

    epsilon: Fraction

    def __init__(self, epsilon: Number) -> None:
        object.__setattr__(self, "epsilon", Budget(epsilon).epsilon)

    @property
    def loss(self) -> Loss:
        """What it costs."""
        return Loss(pure=(self.epsilon,))


@dataclass(frozen=True)
class ApproximateStep:
    """Any (epsilon, delta)-DP release; the worst tells all with probability delta, else responds at random.

    Args:
        epsilon: Its epsilon.
        delta: Its delta.
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number) -> None:
        budget = Budget(epsilon, delta)
        object.__setattr__(self, "epsilon", budget.epsilon)
        object.__setattr__(self, "delta", budget.delta)

    @property
    def loss(self) -> Loss:
        """What it costs."""
        return Loss(pure=(self.epsilon,), threshold_delta=self.delta)


_Other = LaplaceStep | ResponseStep | ApproximateStep
#: One step as PLD composes it.
PldStep = GaussianStep | _Other


def pld_epsilon(steps: Sequence[PldStep], delta: Number, *, interval: float | None = None) -> float:
    """Give the epsilon of all steps together at ``delta``, tight up to the grid and never understated.

    **Guarantee:** the steps, in any order and each chosen after seeing the ones before, are (epsilon,
    delta)-DP.
    **Reference:** the module's head.

    Args:
        steps: What was released.
        delta: The failure probability allowed.
        interval: The distance between losses on the grid, by default a hundredth of the smallest step's
            epsilon or mu (from 1e-5 to 1e-3). Halve it to see how much the grid costs.

    Returns:
        The epsilon; infinite when none will do, or when delta is below what doubles can resolve.

    A single count's discrete Laplace noise is a randomised response, loss by loss; a sum's is better than
    that.

    >>> [f"{pld_epsilon([LaplaceStep(s, 10 * s)] * 100, 1e-6):.3f}" for s in (1, 9)]
    ['4.775', '4.694']
    """
    target = Budget(0, delta).delta
    pure_sum = math.inf
    if all(step.loss.is_pure for step in steps):
        pure_sum = round_up(sum((sum(step.loss.pure, Fraction(0)) for step in steps), Fraction(0)))
    if pure_sum == 0:
        return 0.0
    found, allowance = _compose(steps, interval)
    goal = round_down(target)
    if goal <= allowance:
        return pure_sum

    def within(epsilon: float) -> bool:
        return _safe(found, epsilon, allowance) <= goal

    if within(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not within(high):
        low, high = high, high * 2
        if high > 2**14:
            return pure_sum
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return min(high, pure_sum)


def pld_delta(steps: Sequence[PldStep], epsilon: Number, *, interval: float | None = None) -> float:
    """Give the delta of all steps together at ``epsilon``, tight up to the grid and never understated.

    **Guarantee:** as :func:`pld_epsilon`.
    **Reference:** the module's head.

    >>> f"{pld_delta([GaussianStep(1)], 1):.5f}"
    '0.12694'
    """
    budget = Budget(epsilon)
    if all(step.loss.is_pure for step in steps):
        total = sum((sum(step.loss.pure, Fraction(0)) for step in steps), Fraction(0))
        if total <= budget.epsilon:
            return 0.0
    found, allowance = _compose(steps, interval)
    return min(1.0, _safe(found, round_down(budget.epsilon), allowance))


def _safe(found: PrivacyLossDistribution, epsilon: float, allowance: float) -> float:
    return float(found.get_delta_for_epsilon(epsilon)) * (1 + _RELATIVE) + allowance


def _compose(steps: Sequence[PldStep], interval: float | None) -> tuple[PrivacyLossDistribution, float]:
    """Compose, and give the allowance for the transform's rounding with the result."""
    from dp_accounting.pld import privacy_loss_distribution

    kinds = Counter(step for step in steps if not isinstance(step, GaussianStep))
    mu_squared = sum((step.mu**2 for step in steps if isinstance(step, GaussianStep)), Fraction(0))
    if interval is None:
        sizes = [float(sum(step.loss.pure, Fraction(0))) for step in kinds] + [math.sqrt(mu_squared)]
        interval = min(1e-3, max(1e-5, min((size for size in sizes if size), default=0.0) / 100))
    if not (math.isfinite(interval) and interval > 0):
        what = "the interval between losses must be positive"
        raise UsageError(what, fix="Give for example 1e-4")
    points = _points(kinds, mu_squared, interval)
    if points > _MOST_POINTS:
        what = f"the losses need {points:,.0f} points at an interval of {interval:g}"
        raise CalibrationError(what, why=f"{_MOST_POINTS:,} are allowed", fix="Give a larger interval")
    found = privacy_loss_distribution.identity(value_discretization_interval=interval)
    if mu_squared:
        found = found.compose(_gaussian(mu_squared, interval))
    for step, times in kinds.items():
        single = _single(step, interval)
        found = found.compose(single.self_compose(times) if times > 1 else single)
    composed = sum(kinds.values()) + 1
    return found, 2.0**-50 * composed * math.log2(points) * math.sqrt(points)


def _points(kinds: Counter[_Other], mu_squared: Fraction, interval: float) -> float:
    """Bound how many points of the grid the composed loss can take."""
    reach = sum(times * float(sum(step.loss.pure, Fraction(0))) for step, times in kinds.items())
    return 2 * reach / interval + 24 * math.sqrt(float(mu_squared)) / interval + 4 * sum(kinds.values()) + 16


def _gaussian(mu_squared: Fraction, interval: float) -> PrivacyLossDistribution:
    """Give the one Gaussian that all Gaussians together are."""
    from dp_accounting.pld import privacy_loss_distribution

    with working():
        sigma = round_down(1 / mpmath.sqrt(rational_mpf(mu_squared)))
    return privacy_loss_distribution.from_gaussian_mechanism(
        sigma, pessimistic_estimate=True, value_discretization_interval=interval, use_connect_dots=True
    )


def _single(step: _Other, interval: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution

    if isinstance(step, LaplaceStep):
        return privacy_loss_distribution.from_discrete_laplace_mechanism(
            round_up(1 / step.scale),
            step.sensitivity,
            pessimistic_estimate=True,
            value_discretization_interval=interval,
            use_connect_dots=True,
        )
    delta = step.delta if isinstance(step, ApproximateStep) else Fraction(0)
    return _response(step.epsilon, delta, interval)


def _response(epsilon: Fraction, delta: Fraction, interval: float) -> PrivacyLossDistribution:
    """Put the two losses +-epsilon on the grid by connecting the dots around them."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    below = epsilon // Fraction(interval)
    above = -(-epsilon // Fraction(interval))
    points = sorted({-above, -below, below, above})
    with working():
        e, d = rational_mpf(epsilon), rational_mpf(delta)
        yes = 1 / (1 + mpmath.exp(-e))
        curve = []
        for point in points:
            x = point * Fraction(interval)
            factor = mpmath.exp(rational_mpf(x))
            lost = mpmath.mpf(0)
            if x < epsilon:
                lost = yes - factor * (1 - yes) + max(mpmath.mpf(0), 1 - yes - factor * yes)
            curve.append(min(1.0, round_up(d + (1 - d) * lost)))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, curve)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
