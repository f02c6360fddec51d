"""Intervals from randomised counts: which true rates make such a count unsurprising.

A report supports a cell with a chance linear in its share, so every interval is one of a binomial rate, mapped
linearly. Small counts invert the binomial law itself (Blaker 2000): a normal law would claim that the share of a cell
without support is known exactly. Larger ones take Wilson's score interval (docs/proofs/local-intervals.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

#: Whole numbers, one row per report or one per cell.
IntArray = npt.NDArray[np.int64]
#: Estimates and standard errors, one per cell.
FloatArray = npt.NDArray[np.float64]

#: By how much the variance of a count exceeds a binomial one's, by its rate.
Widths = Callable[[FloatArray], FloatArray]

# Up to so many reports for (or against) a cell the binomial law itself is inverted.
_EXACT = 100
# The end of an exact interval is looked for in so many steps between two bounds of it, and rounded outwards.
_STEPS = 24
_HALVINGS = 50


def rate_interval(
    counts: npt.ArrayLike, n: npt.ArrayLike, level: float, wider: Widths | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of an interval for the rate of each count, of ``n`` reports.

    Where reports depend on each other, ``wider`` is by how much more than binomial a count varies at a rate.

    >>> low, high = rate_interval([0, 50], 100, 0.95)
    >>> [round(float(end), 3) for end in (*low, *high)]
    [0.0, 0.399, 0.036, 0.601]
    """
    given = np.asarray(counts, dtype=np.int64)
    whole = np.broadcast_to(np.asarray(n, dtype=np.int64), given.shape)
    if wider is not None:
        return _effective(given, whole, level, wider)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = given / whole, z * z / whole
    middle = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    low, high = middle - half, middle + half
    for place in np.flatnonzero(np.minimum(given, whole - given) <= _EXACT).tolist():
        low[place], high[place] = _exact(int(given[place]), int(whole[place]), level)
    return low, high


def share_interval(
    support: npt.ArrayLike, n: npt.ArrayLike, level: float, q: float, gap: float, *, records: int = 1, repeats: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of an interval for the share of each cell, where reports support it with chance q + gap share.

    Which reports are one client's is unknown, so the worst is assumed: ``records`` of one period may be equal, which
    multiplies the sampled variance, share (1 - share) gap^2; answers are kept over ``repeats`` periods: all of it.

    >>> low, high = share_interval([0], 1000, 0.95, 0.001, 0.5)
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (-0.002, 0.0051)
    """

    def wider(rate: FloatArray) -> FloatArray:
        share = np.clip((rate - q) / gap, 0.0, 1.0)
        sampled = share * (1 - share) * gap**2 / np.maximum(rate * (1 - rate), 1e-300)
        return repeats * (1 + (records - 1) * np.minimum(sampled, 1.0))

    low, high = rate_interval(support, n, level, None if records == repeats == 1 else wider)
    return (low - q) / gap, (high - q) / gap


def linear_interval(
    parts: list[tuple[FloatArray, FloatArray, FloatArray]], correlation: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return intervals for the sum of two correlated numbers, each a value with its own ends (Zou and Donner 2008)."""
    (one, low_one, high_one), (two, low_two, high_two) = parts

    def reach(a: FloatArray, b: FloatArray) -> FloatArray:
        far: FloatArray = np.sqrt(np.maximum(a * a + b * b + 2 * correlation * a * b, 0.0))
        return far

    return one + two - reach(one - low_one, two - low_two), one + two + reach(high_one - one, high_two - two)


def clustered_interval(
    values: FloatArray, low: FloatArray, high: FloatArray, level: float, by: float
) -> tuple[FloatArray, FloatArray]:
    """Return intervals widened by the variance ``by`` share (1 - share): (r - 1)/n for r records of each client."""
    if by == 0:
        return low, high
    added = by * NormalDist().inv_cdf((1 + level) / 2) ** 2
    ends = []
    for end in (low, high):
        near, far = end, values + np.sign(end - values) * np.sqrt((end - values) ** 2 + added / 4)
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            share = np.clip(middle, 0.0, 1.0)
            inside = (middle - values) ** 2 < (end - values) ** 2 + added * share * (1 - share)
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(far)
    return ends[0], ends[1]


def selected_interval(
    values: FloatArray, errors: FloatArray, bars: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return intervals for the means of normal numbers that are seen because they exceed a bar.

    An interval holds the non-negative means under which the number is among the most likely ``level`` of the normal law
    above the bar: the coverage given selection is exactly ``level``, and the number itself is always inside. (Equal
    tails would leave out numbers just above the bar, surprisingly small for any mean that is not far below it.)

    >>> low, high = selected_interval(np.array([3.1, 9.0]), np.ones(2), np.full(2, 3.0), 0.95)
    >>> [round(float(end), 2) for end in (*low, *high)]
    [0.0, 7.04, 4.85, 10.96]
    """
    from scipy.special import ndtr, ndtri

    x, bar = values / errors, np.minimum(bars, values) / errors

    def ends(mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the most likely part of the law above the bar."""
        above = ndtr(mean - bar)
        cut = above <= 1 / (2 - level)  # the law falls so steeply that its most likely part begins at the bar
        reach = ndtri((1 + level * above) / 2)
        far = -ndtri(np.maximum((1 - level) * above, 1e-300))
        return np.where(cut, bar, mean - reach), np.where(cut, mean + far, mean + reach)

    sides = []
    for start, stop, end, sign in ((np.zeros_like(x), x, 1, 1.0), (x + 40.0, x, 0, -1.0)):
        out, inside = start, stop
        for _ in range(_HALVINGS):
            middle = (out + inside) / 2
            holds = sign * (ends(middle)[end] - x) >= 0
            out, inside = np.where(holds, out, middle), np.where(holds, middle, inside)
        sides.append(np.where(sign * (ends(start)[end] - x) >= 0, start, inside) * errors)
    return sides[0], sides[1]


def largest_variance(none: float, everybody: float) -> float:
    """Compute the largest of none + slope f - f^2, the variance of a report's estimate of a share f, over all f.

    >>> largest_variance(0.0, 0.0), largest_variance(2.0, 0.0), largest_variance(1.0, 4.0)
    (0.25, 2.0, 4.0)
    """
    slope = everybody - none + 1
    share = min(max(slope / 2, 0.0), 1.0)
    return none + slope * share - share**2


@lru_cache(maxsize=1 << 14)
def _exact(count: int, n: int, level: float) -> tuple[float, float]:
    """Return Blaker's interval, rounded outwards; it ends between Clopper and Pearson's at level and at 2 level - 1."""
    if 2 * count > n:
        low, high = _exact(n - count, n, level)
        return 1 - high, 1 - low
    return 0.0 if count == 0 else _low_end(count, n, 1 - level), 1.0 if count == n else _high_end(count, n, 1 - level)


def _low_end(count: int, n: int, alpha: float) -> float:
    from scipy.special import bdtr, betaincinv

    first, last = (float(betaincinv(count, n - count + 1, tail)) for tail in (alpha / 2, alpha))
    rates = np.linspace(first, last, _STEPS)
    below_it = bdtr(np.arange(count), n, rates[:, None])  # at most 0, 1, ... count - 1
    tail = 1 - below_it[:, -1]
    chance = tail + np.where(below_it <= tail[:, None], below_it, 0.0).max(axis=1)
    return float(rates[max(int(np.argmax(chance > alpha)) - 1, 0)])


def _high_end(count: int, n: int, alpha: float) -> float:
    from scipy.special import bdtr, betaincinv

    first, last = (float(betaincinv(count + 1, n - count, 1 - tail)) for tail in (alpha / 2, alpha))
    rates = np.linspace(first, last, _STEPS)
    most = n * float(rates[0])
    above = np.arange(count, min(n, math.ceil(most + 8 * math.sqrt(most) + 30)))
    tail, beyond = bdtr(count, n, rates), 1 - bdtr(above, n, rates[:, None])  # more than count, count + 1, ...
    chance = tail + np.where(beyond <= tail[:, None], beyond, 0.0).max(axis=1, initial=0.0)
    return float(rates[max(int(np.argmax(chance > alpha)) - 1, 0)])


def _effective(counts: IntArray, n: IntArray, level: float, wider: Widths) -> tuple[FloatArray, FloatArray]:
    """Return Clopper and Pearson's interval of as many independent reports as tell as much (Korn and Graubard 1998)."""
    from scipy.special import betainc

    pairs, inverse = np.unique(np.stack([counts, n], axis=1), axis=0, return_inverse=True)
    yes, whole = pairs[:, 0].astype(np.float64), pairs[:, 1].astype(np.float64)
    ends = []
    for more, tail in ((1.0, (1 - level) / 2), (0.0, (1 + level) / 2)):
        low, high = np.zeros(len(yes)), np.ones(len(yes))
        for _ in range(_HALVINGS):
            rate = (low + high) / 2
            by = wider(rate)
            # The chance of at least (for the upper end: of more than) so many.
            a, b = yes / by + 1 - more, (whole - yes) / by + more
            chance = np.where(
                a <= 0, 1.0, np.where(b <= 0, 0.0, betainc(np.maximum(a, 1e-300), np.maximum(b, 1e-300), rate))
            )
            low, high = np.where(chance < tail, rate, low), np.where(chance < tail, high, rate)
        ends.append((low + high)[inverse.reshape(-1)] / 2)
    return np.where(counts == 0, 0.0, ends[0]), np.where(counts == n, 1.0, ends[1])
