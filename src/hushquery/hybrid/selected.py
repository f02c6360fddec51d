"""Intervals of shares that were published because an opt-in count was large.

Near the cut the count that is seen was pushed up by chance, and an interval that does not know it misses up to one time
in five at a nominal one in twenty. The interval here inverts a test given publication: which true shares make such a
blend unsurprising among the blends that would have been published (docs/proofs/blend.md)?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hushquery.hybrid.clients import ClientShares
from hushquery.hybrid.optin import OptInShares
from hushquery.hybrid.pooled import LEAST_SHARE, LEAST_VARIANCE, Shares
from hushquery.local.intervals import FloatArray

__all__ = ["Overshoot", "Selected"]

# Beyond so many standard deviations of a count above the cut, hardly any chance is cut off.
_NEAR = 5.0
# The law of counts is looked at up to so many above and below the cut, in at most so many steps.
_FAR = 16.0
_STEPS = 400
# Where publication is less likely than this, what is seen above the cut is noise alone.
_LEAST_CHANCE = 1e-200
_HALVINGS = 18
# How far off a predicted overshoot is, relative to itself, beyond what the number of records explains: where the counts
# found the list, and where they only cut it to its size and rather tell how the noise falls off.
_MODEL_ERROR = {"reuse": 1 / 3, "split": 2 / 3}


@dataclass(frozen=True, eq=False)
class Overshoot:
    """How much too high the opt-in counts of a whole list are, because they were published for being large.

    Of one record nothing can be said below the cut. Of all together it can: chance carries records over the cut in
    proportion to how many there are per count at the cut, and to the variance of a count there. With so many counts
    above x as x^-a (x the count plus the noise's variance), that makes a per published record. The a is estimated from
    the counts, with Zipf's law, a = 1, as one record's worth of evidence (docs/proofs/blend.md).

    Args:
        optin: The opt-in side.
        least: The smallest share that would have been published; minus infinity if nothing was selected, None if the
            smallest of them is all that is known of it.
    """

    optin: OptInShares
    least: float | None

    @cached_property
    def of_one(self) -> float:
        """The mean overshoot of one record's share."""
        if self.least == -math.inf or not len(self.optin.values):
            return 0.0
        n, noise = self.optin.n, self.optin.noise_variance
        counts = self.optin.values * n
        cut = min(float(counts.min()), math.inf if self.least is None else self.least * n)
        above = np.log(np.maximum((counts + noise) / max(cut + noise - 0.5, 0.5), 1.0))
        return (1 + len(counts)) / (1 + float(above.sum())) / n

    @property
    def relative_variance(self) -> float:
        """The variance of the predicted overshoot over its square."""
        return 1 / (1 + len(self.optin.values)) + _MODEL_ERROR[self.optin.way] ** 2


@dataclass(frozen=True, eq=False)
class Selected:
    """The law of the blend ``weight (N + Z)/n + (1 - weight) C`` given N + Z >= cut, as a function of the true share.

    N is binomial, C normal with the clients' variance. Z is discrete Laplace noise with the variance of the opt-in
    side's noise; for Gaussian noise, whose tails are shorter, that errs on the wide side.

    Args:
        optin: The opt-in side.
        clients: The clients' side.
        weight: The opt-in side's weights.
        cut: The smallest count that would have been published.
    """

    optin: Shares
    clients: ClientShares
    weight: FloatArray
    cut: int

    def near(self, raw: FloatArray) -> npt.NDArray[np.bool_]:
        """Say which blends are so close to the cut that publication says something about them."""
        return raw * self.optin.n < self.cut + _NEAR * self._deviation

    def interval(self, raw: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """Give the smallest and the largest true share for which a published blend is not surprising at its end.

        Given publication the true share is inside with probability ``level`` at least, but for the normal law of the
        clients' side: both chances grow and fall with the share, and a blend as extreme as its own counts in full.
        Not a number where a blend is not near the cut.
        """
        tail = (1 - level) / 2
        low = self._first(raw, lambda p: self._chance(raw, p, above=True) >= tail)
        high = self._first(raw, lambda p: self._chance(raw, p, above=False) < tail)
        return low, np.maximum(low, high)

    def bias(self, raw: FloatArray) -> FloatArray:
        """Say how much too high each blend is, where it is near: what it is above the median-unbiased share.

        No estimate of the bias is unbiased: of a share below the cut, what is seen says nothing. This one is above the
        true bias as often as below, and larger on average. It goes into standard errors and is not subtracted.
        """
        median = self._first(raw, lambda p: self._chance(raw, p, above=True, extra=0.0) >= 0.5)
        return np.nan_to_num(np.maximum(raw - median, 0.0))

    def _chance(self, raw: FloatArray, p: FloatArray, *, above: bool, extra: float = 0.5) -> FloatArray:
        """Give the chance of a blend at least (or at most) as large as each, if the true shares were ``p``.

        Counts are whole, or steps of several: with ``extra`` one half the very one that was seen counts in full.
        """
        from scipy.special import ndtr

        sign, near = 1.0 if above else -1.0, self.near(raw)
        seen, law = self._law(p[near])
        w = self.weight[near]
        variance = self.clients.variance_at(np.maximum(p, LEAST_SHARE))[near]
        spread = np.maximum((1 - w) * np.sqrt(np.maximum(variance, 0.0)), math.sqrt(LEAST_VARIANCE))
        counted = (seen + sign * extra * self._step) / self.optin.n
        blend = np.multiply.outer(w, counted) + ((1 - w) * p[near] - raw[near])[:, None]
        chances = np.full_like(raw, np.nan)
        chances[near] = np.einsum("ij,ij->i", law, ndtr(sign * blend / spread[:, None]))
        return chances

    def _first(self, raw: FloatArray, holds: Callable[[FloatArray], npt.NDArray[np.bool_]]) -> FloatArray:
        """Give for each blend near the cut the smallest share where a condition holds that goes on holding above it."""
        near = self.near(raw)
        low = np.where(near, 0.0, raw)
        high = np.where(near, min(1.0, self._end / self.optin.n), raw)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            yes = holds(middle)
            low, high = np.where(yes, low, middle), np.where(yes, middle, high)
        # What holds from the smallest share on, holds at 0.
        return np.where(near, np.where(low > 0, high, 0.0), np.nan)

    def _law(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Give the counts above the cut, and the chance of each given publication, by true share."""
        held, seen, noise = self._grid
        n = self.optin.n
        inside = np.clip(p, LEAST_SHARE, 1 - LEAST_SHARE)[:, None]
        log_chance = self._ways + held * np.log(inside) + (n - held) * np.log1p(-inside)
        law = np.exp(log_chance) * self._step @ noise
        total = law.sum(axis=1, keepdims=True)
        far = np.exp((seen - self.cut) * math.log(self._decay)) if self._decay else (seen == seen[0]).astype(np.float64)
        # Above the grid nothing is near the cut: all of it is at its end.
        beyond = np.where(inside * n > self.cut, (seen == seen[-1]).astype(np.float64), far / far.sum())
        return seen, np.where(total > _LEAST_CHANCE, law / np.maximum(total, _LEAST_CHANCE), beyond)

    @cached_property
    def _grid(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Give the counts that may be held, those that may be seen, and the chances of noise from one to the other."""
        held = np.arange(float(self._start), min(self._end, self.optin.n) + 1, self._step)
        seen = np.arange(float(self.cut), self._end + 1, self._step)
        edges = np.append(seen, seen[-1] + self._step) - (self._step - 1) // 2
        noise = _tail(np.subtract.outer(edges, held), self._decay)
        return held, seen, (noise[:-1] - noise[1:]).T

    @cached_property
    def _ways(self) -> FloatArray:
        from scipy.special import gammaln

        held, n = self._grid[0], self.optin.n
        ways: FloatArray = gammaln(n + 1.0) - gammaln(held + 1.0) - gammaln(n - held + 1.0)
        return ways

    @cached_property
    def _noise_variance(self) -> float:
        none = np.zeros_like(self.weight)
        return float(np.max(self.optin.variance_at(none), initial=0.0)) * self.optin.n**2

    @property
    def _decay(self) -> float:
        """The a of discrete Laplace noise: 2a/(1-a)^2 is its variance."""
        return 1 - 2 / (1 + math.sqrt(1 + 2 * self._noise_variance))

    @property
    def _deviation(self) -> float:
        return math.sqrt(max(self.cut, 1) + self._noise_variance)

    @property
    def _start(self) -> int:
        return max(0, math.floor(self.cut - _FAR * self._deviation))

    @property
    def _end(self) -> int:
        return math.ceil(max(self.cut, 1) + _FAR * self._deviation)

    @property
    def _step(self) -> int:
        return math.ceil((self._end - min(self._start, self.cut)) / _STEPS)


def _tail(k: FloatArray, a: float) -> FloatArray:
    """Give P[Z >= k] of discrete Laplace noise with P[Z = z] in proportion to a^|z|."""
    above = np.power(a, np.maximum(k, 0.0)) / (1 + a)
    below = 1 - np.power(a, np.maximum(1 - k, 0.0)) / (1 + a)
    return np.where(k > 0, above, below)
