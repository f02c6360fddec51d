"""The formulas: noise scales and integer thresholds for a budget, and the exact delta of thresholded counts.

Noise is integer, so the threshold R is too: comparing integer noise with a real threshold has up to 2/(1+a) times the
delta claimed. Proofs and references: docs/proofs/thresholds.md, weights.md, gaussian-threshold.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import (
    DIGITS,
    Number,
    Relation,
    exact,
    grid_up,
    rational_mpf,
    round_down,
    round_up,
    smallest_whole,
    working,
)
from hushquery.errors import CalibrationError, UsageError

#: Weights of users are multiples of 1/WEIGHT_GRID, rounded down, so that noise on them stays integer.
WEIGHT_GRID = 64

_FAR = 10**8  # beyond this mpmath's erfc may overflow; the tail is far below the bound given in its place
_FAR_TAIL = mpmath.ldexp(1, -(10**15))
_KEPT = 50  # digits that must be left after a subtraction
_MOST_DIGITS = 1000  # where looking for more is given up for an upper bound
_SIGMA_SLACK = Fraction(10005, 10000)  # sigma above its least possible value, so that a finite threshold exists
_FEW = 24  # up to so many splits are all evaluated in full precision


def normal_sf(x: Any) -> mpmath.mpf:
    """Return P[N(0,1) > x] to full relative precision in both tails; an upper bound beyond x = 10^8."""
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
    """Return the exact delta of a mu-GDP mechanism at ``epsilon``, rounded up; the squares of mu add in composition.

    **Guarantee:** a mu-GDP mechanism is (epsilon, agd(epsilon, mu))-DP; for the Gaussian mechanism this is exact.
    **Reference:** Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2019.

    >>> f"{agd('2.302585092994045684', '0.5688118676'):.3e}"
    '1.000e-05'
    """
    distance = exact(mu, "mu")
    if distance < 0:
        raise UsageError("mu is negative", why="it is a distance in standard deviations", fix="Use mu >= 0")
    with working():
        return min(1.0, round_up(agd_mpf(rational_mpf(exact(epsilon, "epsilon")), rational_mpf(distance))))


@lru_cache(maxsize=1024)
def _mu_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    # A delta close to one needs more digits to differ from it.
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
    """Return the largest mu with ``agd(epsilon, mu) <= delta``, rounded down to a double."""
    e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
    if e < 0 or not 0 < d < 1:
        raise CalibrationError(
            "a Gaussian mechanism needs epsilon >= 0 and 0 < delta < 1",
            why="its tails are never bounded by a ratio alone",
            fix="Use a delta, or use Laplace noise",
        )
    return _mu_for(e, d)


def sigma_for(sensitivity_squared: Number, mu_squared: Number) -> Fraction:
    """Return the scale for an L2 sensitivity and a share of mu^2, rounded up: ``sensitivity^2 / sigma^2 <= mu^2``."""
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


@dataclass(frozen=True)
class SparseGaussian:
    """A Gaussian sparse histogram: a user adds 1 to at most d keys, and keys whose noisy count reaches R are released.

    **Guarantee:** (epsilon, :meth:`delta`) for one user under ``relation``, with the noisy counts released too. The
    curve is that of the worst split of d keys into own and shared ones, at the threshold of integer noise, R - 1/2.
    **Reference:** Wilkins et al. 2024; docs/proofs/gaussian-threshold.md.
    """

    keys_per_user: int  # d, the most keys one user adds 1 to
    sigma: Fraction  # the exact scale of the rounded Gaussian noise
    threshold: int  # R; a key is released iff its noisy count is at least R
    relation: Relation

    def __post_init__(self) -> None:
        if self.keys_per_user < 1 or self.sigma <= 0:
            raise CalibrationError(
                "a sparse histogram needs at least one key per user and sigma > 0", fix="Calibrate it"
            )

    @property
    def mu_squared(self) -> Fraction:
        """The squared GDP parameter of the counts alone: d/sigma^2, twice that under replace-one."""
        changed = self.keys_per_user * (1 if self.relation is Relation.ADD_REMOVE else 2)
        return changed / self.sigma**2

    def log_all_hidden(self) -> mpmath.mpf:
        """Return ln L: the log-probability that one key of a single user stays hidden."""
        x = (self.threshold - mpmath.mpf(3) / 2) / rational_mpf(self.sigma)
        return mpmath.log(normal_sf(-x)) if x < 0 else mpmath.log1p(-normal_sf(x))

    def threshold_delta(self) -> float:
        """Return the probability that any of one user's own d keys is released: 1 - L^d, rounded up."""
        with working():
            return min(1.0, round_up(-mpmath.expm1(self.keys_per_user * self.log_all_hidden())))

    def delta_mpf(self, epsilon: Any, mu_squared: Any = 0, log_keep: Any = 0) -> mpmath.mpf:
        """Return the exact delta at ``epsilon`` beside other steps: their mu^2, and ln of the chance none fails."""
        # Their failures count on both sides: the delta of an (epsilon, delta) step may be spent in either dataset.
        hidden, per_key = self.log_all_hidden(), 1 / rational_mpf(self.sigma) ** 2

        def at(x: int, y: int, shared: int) -> mpmath.mpf:
            here, there = x * hidden + log_keep, y * hidden + log_keep
            beside = agd_mpf(epsilon - here + there, mpmath.sqrt(shared * per_key + mu_squared))
            # expm1: a delta below the digits in force must not vanish.
            return -mpmath.expm1(here) + mpmath.exp(here) * beside

        splits = self._splits()
        if len(splits) > _FEW:
            low, high = self._in_doubles(splits, float(epsilon), float(mu_squared), float(log_keep))
            splits = splits[high >= low.max()]
        return max(at(*split) for split in splits.tolist())

    def within(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Whether the mechanism alone is (epsilon, delta)-DP; most answers are clear in double precision already."""
        low, high = self._in_doubles(self._splits(), float(epsilon))
        if low.max() > delta or high.max() < delta:
            return bool(high.max() < delta)
        with working():
            return bool(self.delta_mpf(rational_mpf(epsilon)) <= rational_mpf(delta))

    def _in_doubles(
        self, splits: npt.NDArray[np.int64], epsilon: float, mu_squared: float = 0.0, log_keep: float = 0.0
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Bound the delta of each split from below and above in double precision, with room for its rounding."""
        from scipy.special import log_ndtr, ndtr

        with working():
            hidden = float(self.log_all_hidden())
        here, there = splits[:, 0] * hidden + log_keep, splits[:, 1] * hidden + log_keep
        mu = np.sqrt(np.maximum(splits[:, 2] / float(self.sigma) ** 2 + mu_squared, 1e-300))
        shifted = epsilon - here + there
        with np.errstate(over="ignore", under="ignore"):
            first = ndtr(mu / 2 - shifted / mu)
            beside = np.maximum(0.0, first - np.exp(shifted + log_ndtr(-mu / 2 - shifted / mu)))
            value = -np.expm1(here) + np.exp(here) * beside
        error = 1e-9 * (first + np.abs(np.expm1(here))) + 1e-290
        return value - error, value + error

    def _splits(self) -> npt.NDArray[np.int64]:
        """List (keys only D has, keys only D' has, keys both have with counts one apart) over all splits of d keys."""
        d = self.keys_per_user
        if self.relation is Relation.ADD_REMOVE:
            return np.array([(d - j, 0, j) for j in range(d + 1)] + [(0, d - j, j) for j in range(d + 1)])
        x, y = np.divmod(np.arange((d + 1) ** 2), d + 1)
        return np.column_stack([x, y, 2 * d - x - y])

    def delta(self, epsilon: Number) -> float:
        """Return the exact delta of this mechanism alone at ``epsilon``, rounded up."""
        with working():
            return min(1.0, round_up(self.delta_mpf(rational_mpf(exact(epsilon, "epsilon")))))


def calibrate_sparse_gaussian(
    keys_per_user: int,
    epsilon: Number,
    delta: Number,
    relation: Relation = Relation.ADD_REMOVE,
    *,
    sigma: Fraction | None = None,
) -> SparseGaussian:
    """Find the smallest integer threshold for (epsilon, delta), at ``sigma`` or by default 1.0005 times the smallest.

    >>> m = calibrate_sparse_gaussian(20, "ln 10", 1e-5)
    >>> f"{float(m.sigma):.4f}", m.threshold, f"{m.delta('ln 10'):.3e}"
    ('7.8662', 40, '9.905e-06')
    """
    if keys_per_user < 1 or not 0 < exact(delta, "delta") < 1 or (sigma is not None and sigma <= 0):
        raise CalibrationError(
            "a sparse histogram needs d >= 1, 0 < delta < 1 and sigma > 0", fix="Check the parameters"
        )
    changed = keys_per_user * (1 if relation is Relation.ADD_REMOVE else 2)
    if sigma is None:
        sigma = grid_up(sigma_for(changed, mu_for(epsilon, delta) ** 2) * _SIGMA_SLACK)
    e, target = exact(epsilon, "epsilon"), exact(delta, "delta")

    def fits(threshold: int) -> bool:
        return SparseGaussian(keys_per_user, sigma, threshold, relation).within(e, target)

    threshold = smallest_whole(fits)
    if threshold is None:
        raise CalibrationError(
            "no threshold makes this noise private enough",
            why="the noise alone already exceeds delta",
            fix="Leave sigma out, or raise it",
        )
    return SparseGaussian(keys_per_user, sigma, threshold, relation)


def laplace_scale(sensitivity: int, epsilon: Number) -> Fraction:
    """Return the exact scale b = sensitivity/epsilon of discrete Laplace noise on integers."""
    e = exact(epsilon, "epsilon")
    if sensitivity < 1 or e <= 0:
        raise CalibrationError(
            "Laplace noise needs a sensitivity of at least 1 and epsilon > 0", fix="Check the bounds and the budget"
        )
    return sensitivity / e


def _lift(b: Fraction, k: int) -> mpmath.mpf:
    """Return P[Z >= k] for discrete Laplace noise: a^k/(1+a) for k >= 0, and 1 - a^(1-k)/(1+a) below."""
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
        raise CalibrationError("a user must be allowed at least one key", fix="Use d >= 1")


def laplace_delta(b: Number, keys_per_user: int, threshold: int, *, row_counts: bool = False) -> float:
    """Return the exact probability that some key of one user alone passes, rounded up. A user adds 1 to at most
    d = ``keys_per_user`` keys; with ``row_counts`` all d rows may be on one key (Korolova et al. 2009).

    **Guarantee:** with the noisy counts published, (d/b, this) for one user, add-remove; (2d/b, this) replace-one.
    """
    scale = _positive_scale(b, "b")
    _at_least_one_key(keys_per_user)
    with working():
        singles = -mpmath.expm1(keys_per_user * mpmath.log1p(-_lift(scale, threshold - 1)))
        at_once = _lift(scale, threshold - keys_per_user) if row_counts else mpmath.mpf(0)
        return min(1.0, round_up(max(singles, at_once)))


def laplace_threshold(b: Number, keys_per_user: int, delta: Number, *, row_counts: bool = False) -> int:
    """Return the integer threshold R for discrete Laplace noise of scale b at ``delta``. It also satisfies
    a^(R-1)/(1+a) <= 1 - a: then the other direction (a missing key) costs at most e^(1/b) and needs no delta.
    """
    scale, target = _positive_scale(b, "b"), exact(delta, "delta")
    if not 0 < target < 1 or keys_per_user < 1:
        raise CalibrationError(
            "a threshold on secret keys needs 0 < delta < 1 and at least one key per user",
            why="a key that only one person has may always come out with some probability",
            fix="Use a delta such as 1e-6, or name the keys publicly",
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


def optimal_selection_mpf(count: int, epsilon: Fraction, delta: Fraction) -> mpmath.mpf:
    """Return the largest possible chance to publish a key that ``count`` users hold, at (epsilon, delta) per key. For d
    keys per user pass epsilon/d and delta/d; no count may be published. Reference: Desfontaines et al. 2022, Theorem 1.
    """
    e, dd = rational_mpf(epsilon), rational_mpf(delta)
    growth = mpmath.expm1(e)
    # ln((e^eps + 2 delta - 1)/((e^eps + 1) delta))/eps without subtracting what is nearly equal
    turn = 1 + int(mpmath.floor(mpmath.log1p((1 - dd) * growth / ((mpmath.exp(e) + 1) * dd)) / e))
    if count <= turn:
        return min(mpmath.mpf(1), dd * mpmath.expm1(count * e) / growth)
    left = mpmath.exp(-(count - turn) * e)
    first = dd * mpmath.expm1(turn * e) / growth
    return min(mpmath.mpf(1), (1 - left) * (1 + dd / growth) + left * first)


def weighted_rho(sigma: Number, most_keys: int, delta: Number) -> float:
    """Return the real threshold for users who spread weight 1/sqrt(t) equally over t <= d keys, rounded up:
    max over t of 1/sqrt(t) + sigma Phi^-1((1-delta)^(1/t)). For unequal weights use :func:`knapsack_threshold`.
    """
    scale, target = _positive_scale(sigma, "sigma"), exact(delta, "delta")
    _at_least_one_key(most_keys)
    if not 0 < target < 1:
        raise CalibrationError("a threshold on secret keys needs 0 < delta < 1", fix="Use a delta such as 1e-6")
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
    """Bound the chance that a key of one user alone reaches a real ``threshold``, over all weights of L2 norm <= 1."""
    # The worst user solves a knapsack: at most d weights j/grid, sum of j^2 <= grid^2; 1e-9 is added against rounding.
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
    """Return the smallest integer R, in steps of 1/grid, with ``knapsack_delta`` of ``(R - 1/2)/grid`` <= delta."""
    s, target = float(exact(sigma, "sigma")), round_down(exact(delta, "delta"))
    if s <= 0 or not 0 < target < 1 or most_keys < 1:
        raise CalibrationError("a threshold on weights needs sigma > 0, 0 < delta < 1 and at least one key per user")

    def fits(threshold: int) -> bool:
        return knapsack_delta((threshold - 0.5) / grid, s, most_keys, grid=grid) <= target

    smallest = smallest_whole(fits, grid * max(2, math.ceil(8 * s)))
    if smallest is None:
        raise CalibrationError("no threshold makes this noise private enough", fix="Raise delta")
    return smallest
