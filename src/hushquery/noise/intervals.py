"""Intervals of counts with noise: what a reader may say of the count behind a noisy one.

A count that was published because it passed a threshold is known to have passed: the plain interval ``v +- w`` then
misses far too often (with threshold 40 and sigma 8 a true count of 15 is never inside). The interval here inverts the
test of "the capped count is c" given that the key was released, so it covers at its level whatever the count is. No
estimator can undo the bias itself: with Laplace noise, a count below the threshold that is released looks the same
whatever it was. So the noisy count is published as it is, beside its interval.

Proof: docs/proofs/intervals.md. Tests: tests/curator/test_intervals.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from hushquery.noise.law import DiscreteLaplace, RoundedGaussian

__all__ = ["LEVEL", "given_release", "most_unreleased", "on_public_keys"]

#: The coverage of every interval of a release.
LEVEL = 0.95

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def given_release(
    noisy: IntArray,
    threshold: int,
    law: DiscreteLaplace | RoundedGaussian,
    level: float = LEVEL,
    *,
    least: int = 1,
) -> tuple[IntArray, IntArray]:
    """Return the lowest and highest count for which such a noisy count, once released, is not surprising.

    Args:
        noisy: Released counts, all at least ``threshold``.
        threshold: R.
        law: The noise.
        level: The coverage, given release. At least this, because counts are whole.
        least: The smallest count there can be: one where only keys that somebody holds can be released, zero where
            empty keys get noise too.

    >>> from fractions import Fraction
    >>> low, high = given_release(np.array([40, 60, 300]), 40, RoundedGaussian(Fraction(8)))
    >>> low.tolist(), high.tolist()
    ([1, 43, 284], [50, 76, 316])
    """
    distinct, back = np.unique(noisy, return_inverse=True)
    tail = (1 - level) / 2
    log_tail = _log_tail(law)
    floor = np.full_like(distinct, least)

    def at_least(c: IntArray, v: IntArray) -> FloatArray:
        """Ln Pr[V >= v | V >= R] for a true count c; grows with c."""
        return log_tail(v - c) - log_tail(threshold - c)

    far = 1 + int(law.half_width(1 - tail / 4))  # beyond this the threshold makes no difference
    low = _first(lambda c: at_least(c, distinct) >= np.log(tail), floor, distinct + 1)
    high = _first(lambda c: at_least(c, distinct + 1) > np.log1p(-tail), floor, distinct + 2 * far) - 1
    return low[back], np.maximum(high, low)[back]


def on_public_keys(
    noisy: IntArray, law: DiscreteLaplace | RoundedGaussian, level: float = LEVEL
) -> tuple[IntArray, IntArray]:
    """Return the interval of counts that are published for every public key: ``v +- w``.

    >>> from fractions import Fraction
    >>> on_public_keys(np.array([5]), DiscreteLaplace(Fraction(2)))
    (array([-1]), array([11]))
    """
    width = law.half_width(level)
    return noisy - width, noisy + width


def most_unreleased(threshold: int, law: DiscreteLaplace | RoundedGaussian, level: float = LEVEL) -> int:
    """Return the highest count that stays below a threshold with a chance of at least ``1 - level``.

    >>> from fractions import Fraction
    >>> most_unreleased(40, RoundedGaussian(Fraction(8)))
    52
    """
    log_tail = _log_tail(law)
    least = np.zeros(1, dtype=np.int64)
    first = _first(lambda c: log_tail(threshold - c) > np.log(level), least, least + 2 * threshold)
    return max(0, int(first[0]) - 1)


def _first(holds: Callable[[IntArray], npt.NDArray[np.bool_]], low: IntArray, high: IntArray) -> IntArray:
    """Return, position by position, the smallest whole number from ``low`` on where a growing condition holds."""
    low, high = low.copy(), np.maximum(high, low)
    while not (reached := holds(high)).all():
        high = np.where(reached, high, 2 * high + 1)
    while (low < high).any():
        middle = (low + high) // 2
        yes = holds(middle)
        low, high = np.where(yes, low, np.minimum(middle + 1, high)), np.where(yes, middle, high)
    return high


def _log_tail(law: DiscreteLaplace | RoundedGaussian) -> Callable[[IntArray], FloatArray]:
    """Return ln P[Z >= k] as a function of k."""
    if isinstance(law, RoundedGaussian):
        sigma = float(law.sigma)
        return lambda k: np.asarray(log_ndtr(-(k - 0.5) / sigma), dtype=np.float64)
    inverse = 1 / float(law.b)
    normaliser = np.log1p(np.exp(-inverse))

    def laplace(k: IntArray) -> FloatArray:
        # Each half is right on its own side; on the other it may be the logarithm of zero.
        with np.errstate(divide="ignore"):
            below = np.log1p(-np.exp(np.minimum(0.0, (k - 1.0) * inverse) - normaliser))
        return np.asarray(np.where(k >= 0, -k * inverse - normaliser, below), dtype=np.float64)

    return laplace
