"""The Gaussian sparse histogram: release a key with its noisy count iff ``count + noise >= R``.

One user adds 1 to at most d keys. Keys that only this user holds reveal it if they come out; keys shared with others
hide it in Gaussian noise. The exact privacy curve is the worst split of the d keys between the two, evaluated here at
the threshold that integer noise really has: ``R - 1/2`` on the continuous scale (:class:`SparseGaussian`).

References: Wilkins, Kifer, Zhang and Karrer 2024 for the add-remove curve; the replace-one curve, the integer
threshold and the composition with other steps are proved in docs/proofs/gaussian-threshold.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.gaussian import agd_mpf, mu_for, normal_sf, sigma_for
from hushquery.core.rounding import Number, exact, grid_up, rational_mpf, round_up, smallest_whole, working
from hushquery.core.unit import Relation
from hushquery.errors import CalibrationError

__all__ = ["SparseGaussian", "calibrate_sparse_gaussian", "sparse_gaussian_tau"]

# sigma above its least possible value, so that a finite threshold exists (ALGORITHMS H1, row 4 recipe).
_SIGMA_SLACK = Fraction(10005, 10000)

# Up to so many splits are all evaluated in full precision.
_FEW = 24


@dataclass(frozen=True)
class SparseGaussian:
    """The integers and rationals a Gaussian sparse histogram runs with, and what they cost.

    Args:
        keys_per_user: d, the most keys one user adds 1 to.
        sigma: The exact scale of the rounded Gaussian noise.
        threshold: R; a key is released iff its noisy count is at least R.
        relation: The neighbouring relation the cost is stated for.

    **Guarantee:** (epsilon, :meth:`delta`) for one user under ``relation``, with the noisy counts released too.
    """

    keys_per_user: int
    sigma: Fraction
    threshold: int
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
        """Give ln L: the log-probability that one key of a single user stays hidden."""
        x = (self.threshold - mpmath.mpf(3) / 2) / rational_mpf(self.sigma)
        return mpmath.log(normal_sf(-x)) if x < 0 else mpmath.log1p(-normal_sf(x))

    def threshold_delta(self) -> float:
        """Give the probability that any of one user's own d keys is released: 1 - L^d, rounded up."""
        with working():
            return min(1.0, round_up(-mpmath.expm1(self.keys_per_user * self.log_all_hidden())))

    def delta_mpf(self, epsilon: Any, mu_squared: Any = 0, log_keep: Any = 0) -> mpmath.mpf:
        """Give the exact delta at ``epsilon`` beside other steps: their mu^2, and ln of the chance that none fails.

        Their failures count on both sides: a threshold fails in the larger world only, but the delta of an
        (epsilon, delta) step may be spent in either.
        """
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
        """Give the exact delta of this mechanism alone at ``epsilon``, rounded up."""
        with working():
            return min(1.0, round_up(self.delta_mpf(rational_mpf(exact(epsilon, "epsilon")))))


def sparse_gaussian_tau(keys_per_user: int, sigma: Fraction, epsilon: Number, delta: Number) -> float:
    """Give the smallest real tau for which releasing iff count + N(0, sigma^2) > 1 + tau is private (add-remove)."""
    with working():
        e, target = rational_mpf(exact(epsilon)), rational_mpf(exact(delta))
        low, high = mpmath.mpf(0), rational_mpf(sigma) * 60
        if _RealThreshold(keys_per_user, sigma, high).delta_mpf(e) > target:
            raise CalibrationError("no threshold makes this noise private enough", fix="Raise sigma or delta")
        while high - low > mpmath.mpf(10) ** -15:
            middle = (low + high) / 2
            # A threshold of tau + 3/2 is what SparseGaussian reads as tau.
            trial = _RealThreshold(keys_per_user, sigma, middle)
            low, high = (low, middle) if trial.delta_mpf(e) <= target else (middle, high)
        return round_up(high)


class _RealThreshold(SparseGaussian):
    """The same curve at a real tau; only the search for the smallest one needs it."""

    def __init__(self, keys_per_user: int, sigma: Fraction, tau: mpmath.mpf) -> None:
        super().__init__(keys_per_user, sigma, 0, Relation.ADD_REMOVE)
        object.__setattr__(self, "tau", tau)

    tau: mpmath.mpf

    def log_all_hidden(self) -> mpmath.mpf:
        return mpmath.log1p(-normal_sf(self.tau / rational_mpf(self.sigma)))


def calibrate_sparse_gaussian(
    keys_per_user: int,
    epsilon: Number,
    delta: Number,
    relation: Relation = Relation.ADD_REMOVE,
    *,
    sigma: Fraction | None = None,
) -> SparseGaussian:
    """Find the smallest noise and the smallest integer threshold for (epsilon, delta).

    Args:
        keys_per_user: d, the most keys one user adds 1 to.
        epsilon: The loss allowed.
        delta: The failure probability allowed.
        relation: The neighbouring relation.
        sigma: A noise scale already chosen (at least the smallest one); by default 1.0005 times the smallest.

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
