"""Thresholds on integers: which noisy counts may be published when the keys themselves are secret.

Noise here is integer, so thresholds are integers R and a key is released iff ``count + noise >= R``. Comparing integer
noise with a real threshold is a privacy bug: ``floor(K) + 1`` at d = 1, e^epsilon = 5, delta = 1e-5 has a delta of
1.07e-5, and up to 2/(1+a) times delta in the worst fractional part.

References: Korolova, Kenthapadi, Mishra and Ntoulas 2009 (Theorem 1) for the scheme; Desfontaines, Voss, Gipson and
Mandayam 2022 for optimal selection; Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020 for weights. Proofs:
docs/proofs/thresholds.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np

from hushquery.core.rounding import (
    DIGITS,
    Number,
    exact,
    rational_mpf,
    round_down,
    round_up,
    smallest_whole,
    working,
)
from hushquery.errors import CalibrationError

__all__ = [
    "WEIGHT_GRID",
    "knapsack_delta",
    "knapsack_threshold",
    "laplace_delta",
    "laplace_scale",
    "laplace_threshold",
    "optimal_selection",
    "optimal_selection_mpf",
    "truncated_geometric_reach",
    "weighted_rho",
]

#: Weights of users are multiples of 1/WEIGHT_GRID, rounded down, so that noise on them stays integer.
WEIGHT_GRID = 64


def laplace_scale(sensitivity: int, epsilon: Number) -> Fraction:
    """Give the exact scale b = sensitivity/epsilon of discrete Laplace noise on integers.

    >>> laplace_scale(20, "2.3")
    Fraction(200, 23)
    """
    e = exact(epsilon, "epsilon")
    if sensitivity < 1 or e <= 0:
        raise CalibrationError(
            "Laplace noise needs a sensitivity of at least 1 and epsilon > 0", fix="Check the bounds and the budget"
        )
    return sensitivity / e


def _lift(b: Fraction, k: int) -> mpmath.mpf:
    """Give P[Z >= k] for discrete Laplace noise: a^k/(1+a) for k >= 0, and 1 - a^(1-k)/(1+a) below."""
    inverse = 1 / rational_mpf(b)
    normaliser = 1 + mpmath.exp(-inverse)
    return mpmath.exp(-k * inverse) / normaliser if k >= 0 else 1 - mpmath.exp((k - 1) * inverse) / normaliser


def _positive_scale(value: Number, name: str) -> Fraction:
    scale = exact(value, name)
    if scale <= 0:
        raise CalibrationError(f"the noise scale {name} must be above zero", fix="Calibrate it from a budget")
    return scale


def _at_least_one_key(keys: int) -> None:
    if keys < 1:
        raise CalibrationError("a user must be allowed at least one key", fix="Give d >= 1")


def laplace_delta(b: Number, keys_per_user: int, threshold: int, *, row_counts: bool = False) -> float:
    """Give the exact probability that some key of one user alone passes, rounded up.

    Args:
        b: The scale of the discrete Laplace noise.
        keys_per_user: d, the most keys one user adds 1 to; with ``row_counts``, the most rows in all.
        threshold: R; released iff noisy count >= R.
        row_counts: Whether a user may put all d rows on one key (Korolova et al. count rows).

    **Guarantee:** with the noisy counts published, (d/b, this) for one user, add-remove; (2d/b, this) replace-one.

    >>> f"{laplace_delta('1/2', 1, 7):.3e}"
    '5.412e-06'
    """
    scale = _positive_scale(b, "b")
    _at_least_one_key(keys_per_user)
    with working():
        singles = -mpmath.expm1(keys_per_user * mpmath.log1p(-_lift(scale, threshold - 1)))
        at_once = _lift(scale, threshold - keys_per_user) if row_counts else mpmath.mpf(0)
        return min(1.0, round_up(max(singles, at_once)))


def laplace_threshold(b: Number, keys_per_user: int, delta: Number, *, row_counts: bool = False) -> int:
    """Give the integer threshold R for discrete Laplace noise of scale b at ``delta``.

    The condition a^(R-1)/(1+a) <= 1 - a is enforced too: it makes the other direction (a key that is missing) cost no
    more than e^(1/b), so that it needs no delta.

    >>> laplace_threshold(laplace_scale(20, "ln 10"), 20, 1e-5)
    122
    """
    scale, target = _positive_scale(b, "b"), exact(delta, "delta")
    if not 0 < target < 1 or keys_per_user < 1:
        raise CalibrationError(
            "a threshold on secret keys needs 0 < delta < 1 and at least one key per user",
            why="a key that only one person has may always come out with some probability",
            fix="Give a delta such as 1e-6, or name the keys publicly",
        )
    with working():
        wide, allowed = rational_mpf(scale), rational_mpf(target)
        room = 1 + mpmath.exp(-1 / wide)
        threshold = 1 + int(mpmath.ceil(wide * mpmath.log(keys_per_user / (allowed * room))))
        if row_counts:
            threshold = max(threshold, keys_per_user + int(mpmath.ceil(wide * mpmath.log(1 / (allowed * room)))))
        # The condition on the other direction, solved for the threshold: R - 1 >= b ln(1/(1 - a^2)).
        other_way = 1 + int(mpmath.ceil(wide * -mpmath.log(-mpmath.expm1(-2 / wide))))
        return max(threshold, other_way, keys_per_user if row_counts else 1)


def _turn(epsilon: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    """Give ln((e^eps + 2 delta - 1)/((e^eps + 1) delta))/eps without subtracting what is nearly equal."""
    return mpmath.log1p((1 - delta) * mpmath.expm1(epsilon) / ((mpmath.exp(epsilon) + 1) * delta)) / epsilon


def optimal_selection(count: int, epsilon: Number, delta: Number) -> float:
    """Give the largest possible chance to publish a key that ``count`` users hold, at (epsilon, delta) per key.

    For d keys per user hand over epsilon/d and delta/d. Rounded down. No count may be published with it.
    Reference: Desfontaines et al. 2022, Theorem 1 (closed form).

    >>> optimal_selection(0, 1, 1e-5), round(optimal_selection(12, 1, 1e-5), 6)
    (0.0, 0.760311)
    """
    e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
    if e <= 0 or not 0 < d < 1 or count < 0:
        raise CalibrationError("optimal selection needs epsilon > 0, 0 < delta < 1 and a count of at least 0")
    with working():
        return max(0.0, round_down(optimal_selection_mpf(count, e, d)))


def optimal_selection_mpf(count: int, epsilon: Fraction, delta: Fraction) -> mpmath.mpf:
    """Give the same chance at the precision in force; exactly 1 from the count on from which it is certain."""
    e, dd = rational_mpf(epsilon), rational_mpf(delta)
    growth = mpmath.expm1(e)
    turn = 1 + int(mpmath.floor(_turn(e, dd)))
    if count <= turn:
        return min(mpmath.mpf(1), dd * mpmath.expm1(count * e) / growth)
    left = mpmath.exp(-(count - turn) * e)
    first = dd * mpmath.expm1(turn * e) / growth
    return min(mpmath.mpf(1), (1 - left) * (1 + dd / growth) + left * first)


def truncated_geometric_reach(epsilon: Number, delta: Number) -> int:
    """Give k of the k-truncated symmetric geometric law: noise on -k..k, release iff count + noise > k.

    >>> truncated_geometric_reach("ln 10", 1e-5)
    5
    """
    e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
    if e <= 0 or not 0 < d < 1:
        raise CalibrationError("the truncated geometric law needs epsilon > 0 and 0 < delta < 1")
    with working():
        return int(mpmath.ceil(_turn(rational_mpf(e), rational_mpf(d))))


def weighted_rho(sigma: Number, most_keys: int, delta: Number) -> float:
    """Give the real threshold for users who spread weight 1/sqrt(t) equally over t <= d keys, rounded up.

    ``rho = max over t of 1/sqrt(t) + sigma Phi^-1((1-delta)^(1/t))``. Only valid for *equal* weights within a user;
    for unequal ones use :func:`knapsack_threshold`.
    """
    scale, target = _positive_scale(sigma, "sigma"), exact(delta, "delta")
    _at_least_one_key(most_keys)
    if not 0 < target < 1:
        raise CalibrationError("a threshold on secret keys needs 0 < delta < 1", fix="Give a delta such as 1e-6")
    with working():
        s, d = rational_mpf(scale), rational_mpf(target)
        best = mpmath.mpf(0)
        for t in range(1, most_keys + 1):
            upper = -mpmath.expm1(mpmath.log1p(-d) / t)
            # As many more digits as 1 - 2 upper needs to differ from 1.
            with mpmath.workdps(DIGITS + int(-mpmath.log10(upper)) + 1):
                best = max(best, 1 / mpmath.sqrt(t) + s * mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * upper))
        return round_up(best)


def knapsack_delta(threshold: float, sigma: float, most_keys: int, *, grid: int = WEIGHT_GRID) -> float:
    """Bound the chance that any key of one user alone reaches a real ``threshold``, over all weights of L2 norm <= 1.

    Weights are j/grid, so the worst user solves a knapsack: at most d items, sum of j^2 <= grid^2, maximise the sum of
    Q((threshold - j/grid)/sigma). Solved exactly by dynamic programming; inflated by 1e-9 against rounding.
    """
    from scipy.special import ndtr

    _at_least_one_key(most_keys)
    if not sigma > 0 or not math.isfinite(threshold):
        raise CalibrationError("a bound on weights needs sigma > 0 and a finite threshold", fix="Calibrate them")
    capacity = grid * grid
    chance = ndtr((np.arange(grid + 1) / grid - threshold) / sigma)
    best = np.zeros(capacity + 1)
    weighty = min(most_keys, capacity)  # no more keys can have any weight; the rest add what a weight of zero adds
    for _ in range(weighty):
        following = best + chance[0]
        for j in range(1, grid + 1):
            np.maximum(following[j * j :], best[: capacity + 1 - j * j] + chance[j], out=following[j * j :])
        if np.array_equal(following, best):
            break
        best = following
    return float(best[capacity] + (most_keys - weighty) * chance[0]) * (1 + 1e-9)


def knapsack_threshold(sigma: Number, most_keys: int, delta: Number, *, grid: int = WEIGHT_GRID) -> int:
    """Give the smallest integer R, in steps of 1/grid, with :func:`knapsack_delta` of ``(R - 1/2)/grid`` at most delta.

    >>> knapsack_threshold("2.193", 20, 1e-6)
    763
    """
    s, target = float(exact(sigma, "sigma")), round_down(exact(delta, "delta"))
    if s <= 0 or not 0 < target < 1 or most_keys < 1:
        raise CalibrationError("a threshold on weights needs sigma > 0, 0 < delta < 1 and at least one key per user")

    def fits(threshold: int) -> bool:
        return knapsack_delta((threshold - 0.5) / grid, s, most_keys, grid=grid) <= target

    found = smallest_whole(fits, grid * max(2, math.ceil(8 * s)))
    if found is None:
        raise CalibrationError("no threshold makes this noise private enough", fix="Raise delta")
    return found
