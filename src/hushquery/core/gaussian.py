"""The Gaussian mechanism's exact privacy curve, and its calibration.

``agd(epsilon, mu)`` is the hockey-stick divergence between N(0, 1) and N(mu, 1): the smallest delta for which a
Gaussian mechanism with L2 sensitivity over sigma equal to mu is (epsilon, delta)-DP. It rises with mu and falls with
epsilon, and mu composes exactly: the squares add.

Reference: Balle and Wang 2018 (Theorem 8); Dong, Roth and Su 2019 (Corollary 1) for the composition.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath

from hushquery.core.rounding import DIGITS, Number, exact, grid_up, rational_mpf, round_down, round_up, working
from hushquery.errors import CalibrationError, UsageError

__all__ = ["agd", "agd_mpf", "mu_for", "normal_sf", "sigma_for"]

# Beyond this mpmath's erfc may overflow; the tail is far below the bound given in its place.
_FAR = 10**8
# Digits that must be left after the subtraction, and where looking for more is given up for an upper bound.
_KEPT = 50
_MOST_DIGITS = 1000
_FAR_TAIL = mpmath.ldexp(1, -(10**15))


def normal_sf(x: Any) -> mpmath.mpf:
    """Give P[N(0,1) > x] to full relative precision in both tails; an upper bound beyond x = 10^8."""
    if x < 0:
        # mpmath's erfc of large negative numbers takes a slow series; its other side does not.
        return 1 - normal_sf(-x)
    return _FAR_TAIL if x > _FAR else mpmath.erfc(x / mpmath.sqrt(2)) / 2


def agd_mpf(epsilon: Any, mu: Any) -> mpmath.mpf:
    """Evaluate the analytic Gaussian delta at the precision in force, for any real epsilon and mu >= 0."""
    if mu <= 0:
        return max(mpmath.mpf(0), -mpmath.expm1(epsilon))
    digits = mpmath.mp.dps
    while True:
        # The two terms may agree in nearly all digits (overwhelming noise); then look at more digits.
        with mpmath.workdps(digits):
            ratio = epsilon / mu
            first, beyond = normal_sf(ratio - mu / 2), ratio + mu / 2
            # What is subtracted must not be overstated, so beyond the range of normal_sf nothing is.
            delta = first if beyond > _FAR else first - mpmath.exp(epsilon) * normal_sf(beyond)
            if delta > first * mpmath.mpf(10) ** (_KEPT - digits):
                return delta
            if digits > _MOST_DIGITS:
                return first * mpmath.mpf(10) ** (_KEPT - digits)
        digits *= 2


def agd(epsilon: Number, mu: Number) -> float:
    """Give the exact delta of a mu-GDP mechanism at ``epsilon``, rounded up.

    **Guarantee:** any mechanism that is mu-GDP is (epsilon, agd(epsilon, mu))-DP, and the Gaussian mechanism is no
    better.
    **Reference:** Balle and Wang 2018, Theorem 8.

    >>> f"{agd('2.302585092994045684', '0.5688118676'):.3e}"
    '1.000e-05'
    """
    distance = exact(mu, "mu")
    if distance < 0:
        raise UsageError("mu is negative", why="it is a distance in standard deviations", fix="Give mu >= 0")
    with working():
        return min(1.0, round_up(agd_mpf(rational_mpf(exact(epsilon, "epsilon")), rational_mpf(distance))))


@lru_cache(maxsize=1024)
def _mu_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    # A delta next to one needs as many more digits to be told from it.
    with working(), mpmath.workdps(DIGITS + len(str(int(1 / (1 - delta))))):
        e, target = rational_mpf(epsilon), rational_mpf(delta)
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while high < _FAR and agd_mpf(e, high) <= target:
            low, high = high, high * 2
        while high - low > high * mpmath.mpf(2) ** -100:
            middle = (low + high) / 2
            low, high = (middle, high) if agd_mpf(e, middle) <= target else (low, middle)
        return Fraction(round_down(low))


def mu_for(epsilon: Number, delta: Number) -> Fraction:
    """Give the largest mu with ``agd(epsilon, mu) <= delta``, rounded down to a double.

    >>> f"{float(mu_for('ln 10', 1e-5)):.10f}"
    '0.5688118676'
    """
    e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
    if e < 0 or not 0 < d < 1:
        raise CalibrationError(
            "a Gaussian mechanism needs epsilon >= 0 and 0 < delta < 1",
            why="its tails are never bounded by a ratio alone",
            fix="Give a delta, or use Laplace noise",
        )
    return _mu_for(e, d)


def sigma_for(sensitivity_squared: Number, mu_squared: Number) -> Fraction:
    """Give the noise scale for an L2 sensitivity and a share of mu^2, rounded up to a short rational.

    The result satisfies ``sensitivity^2 / sigma^2 <= mu^2`` in exact arithmetic.

    >>> sigma = sigma_for(20, mu_for("ln 10", 1e-5) ** 2)
    >>> f"{float(sigma):.4f}", 20 / sigma**2 <= mu_for("ln 10", 1e-5) ** 2
    ('7.8622', True)
    """
    s2, m2 = exact(sensitivity_squared, "the sensitivity"), exact(mu_squared, "mu^2")
    if s2 <= 0 or m2 <= 0:
        raise CalibrationError(
            "the sensitivity and mu must be positive", fix="Check the bounds and the shares of the budget"
        )
    with working():
        sigma = grid_up(mpmath.sqrt(rational_mpf(s2 / m2)))
    while s2 > m2 * sigma**2:  # pragma: no cover - grid_up already rounds up
        sigma += Fraction(1, 2**40)
    return sigma
