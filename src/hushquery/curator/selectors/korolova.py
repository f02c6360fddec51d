"""Theorem 1 of Korolova, Kenthapadi, Mishra and Ntoulas 2009, in both directions, with the exact delta beside it.

Algorithm 1 keeps the first d searches of each user, releases the queries with ``M + Lap(b) > K``, and publishes their
counts with fresh noise Lap(b_q) and their clicks with Lap(b_c). The theorem (docs/proofs/korolova2009.md)::

    alpha = max(e^(1/b), 1 + 1/(2 e^((K-1)/b) - 1))
    epsilon_alg = d ln(alpha) + d/b_q + d_c/b_c          delta_alg = (d/2) e^((d-K)/b)

is correct and its delta is not tight. Noise here is discrete, so what runs is the integer threshold ``floor(K) + 1``,
and the exact delta of that law is computed too; the ledger is charged the larger of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import mpmath

from hushquery.core.budget import Number, exact, grid_up, rational_mpf, round_up, working
from hushquery.core.calibration import laplace_delta, laplace_scale, laplace_threshold
from hushquery.core.loss import LaplaceHistogram
from hushquery.errors import CalibrationError

__all__ = ["Theorem1", "calibrate_korolova"]

_LARGEST = 2**40


@dataclass(frozen=True)
class Theorem1:
    """The parameters of Algorithm 1 and what they promise.

    Args:
        queries_per_user: d.
        threshold: K.
        scale: b.
        count_scale: b_q; None when no counts are published.
        clicks_per_user: d_c.
        click_scale: b_c; None when no clicks are published.

    >>> t = Theorem1(20, Fraction(140), Fraction("8.685889638065"))
    >>> f"{t.epsilon_alg:.5f} {t.delta_alg:.3e} {t.delta_exact:.3e}"
    '2.30259 1.000e-05 1.058e-06'
    """

    queries_per_user: int
    threshold: Fraction
    scale: Fraction
    count_scale: Fraction | None = None
    clicks_per_user: int = 0
    click_scale: Fraction | None = None

    def __post_init__(self) -> None:
        scales = [s for s in (self.scale, self.count_scale, self.click_scale) if s is not None]
        if self.queries_per_user < 1 or self.clicks_per_user < 0 or min(scales) <= 0:
            raise CalibrationError("Theorem 1 needs d >= 1 and positive noise scales", fix="Check --scale and d")
        if max(*scales, self.threshold) > _LARGEST:
            raise CalibrationError("a threshold or a scale is beyond all counts", fix="Give numbers below 2^40")
        if self.threshold < self.queries_per_user:
            raise CalibrationError(
                "Theorem 1 needs a threshold K of at least d", fix="Raise --threshold or lower --queries-per-user"
            )

    @property
    def release_at(self) -> int:
        """R: on integers, noisy > K is noisy >= floor(K) + 1."""
        return int(self.threshold // 1) + 1

    @property
    def epsilon_alg(self) -> float:
        """The theorem's epsilon, rounded up."""
        with working():
            counts = 0 if self.count_scale is None else self.queries_per_user / rational_mpf(self.count_scale)
            clicks = 0 if self.click_scale is None else self.clicks_per_user / rational_mpf(self.click_scale)
            return round_up(self.queries_per_user * self._log_alpha() + counts + clicks)

    @property
    def delta_alg(self) -> float:
        """The theorem's delta, rounded up."""
        with working():
            over = (self.queries_per_user - rational_mpf(self.threshold)) / rational_mpf(self.scale)
            return round_up(self.queries_per_user * mpmath.exp(over) / 2)

    @property
    def delta_exact(self) -> float:
        """The exact delta of the integer noise and threshold that run, over the worst split of d searches."""
        return laplace_delta(self.scale, self.queries_per_user, self.release_at, row_counts=True)

    @property
    def delta_naive(self) -> float:
        """What adding the d searches one by one would give: delta_1 (alpha^d - 1)/(alpha - 1); the slides' warning."""
        with working():
            log_alpha = self._log_alpha()
            grown = mpmath.expm1(self.queries_per_user * log_alpha) / mpmath.expm1(log_alpha)
            return round_up(self._single() * grown)

    def step(self) -> LaplaceHistogram:
        """Give the selection as a step, charged with the larger of the two deltas."""
        return LaplaceHistogram(
            self.queries_per_user, self.scale, self.release_at, row_counts=True, least_delta=exact(self.delta_alg)
        )

    def _single(self) -> mpmath.mpf:
        """delta_1 = e^((1-K)/b)/2, the chance of a query posed once."""
        return mpmath.exp((1 - rational_mpf(self.threshold)) / rational_mpf(self.scale)) / 2

    def _log_alpha(self) -> mpmath.mpf:
        return max(1 / rational_mpf(self.scale), -mpmath.log1p(-self._single()))


def calibrate_korolova(queries_per_user: int, epsilon: Number, delta: Number) -> Theorem1:
    """Give the optimal b = d/epsilon and K = d(1 - ln(2 delta/d)/epsilon) when all of epsilon goes to the selection.

    Where the integer threshold of the law that runs would need more than delta, K is raised to it.

    >>> t = calibrate_korolova(20, "ln 10", 1e-5)
    >>> f"{float(t.threshold):.2f} {float(t.scale):.2f}"
    '140.00 8.69'
    """
    e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
    if e <= 0 or not 0 < d < 1 or queries_per_user < 1:
        raise CalibrationError(
            "Algorithm 1 needs epsilon > 0, 0 < delta < 1 and at least one query per user",
            fix="Give, say, epsilon 1, delta 1e-6 and 20 queries per user",
        )
    scale = laplace_scale(queries_per_user, e)
    with working():
        lift = -mpmath.log(rational_mpf(2 * d / queries_per_user)) / rational_mpf(e)
        paper = grid_up(queries_per_user * (1 + lift)) if lift > -1 else Fraction(queries_per_user)
    least = laplace_threshold(scale, queries_per_user, d, row_counts=True)
    found = Theorem1(queries_per_user, max(paper, Fraction(least - 1), Fraction(queries_per_user)), scale)
    step = scale / 2**50
    while exact(found.delta_alg) > d:  # by the last digit of a double, where K is large
        found = replace(found, threshold=found.threshold + step)
        step *= 2
    return found
