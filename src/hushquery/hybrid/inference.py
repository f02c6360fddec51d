"""Compare and pool both estimates of a head list: variances, intervals given publication, test of agreement.

Variances are evaluated at the blended shares: at a side's own estimate, a low estimate seems precise and biases the
blend downwards. Opt-in counts were published for being large, so intervals and the test condition on publication;
ignoring it misses up to one time in five at a nominal one in twenty (docs/proofs/blend.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hushquery.errors import DataError, UsageError
from hushquery.hybrid.clients import ClientShares, at_most_one
from hushquery.hybrid.headlist import OptInShares
from hushquery.local.intervals import FloatArray

#: One side's raw shares of the head records, before any post-processing.
Shares = OptInShares | ClientShares

#: Variances are never evaluated at a smaller share than this.
LEAST_SHARE = 1e-6
#: No variance is taken to be smaller than this.
LEAST_VARIANCE = 1e-30
#: How often variances are evaluated anew at the blended shares.
ROUNDS = 3
#: The default chance of a false alarm in the test of agreement.
ALPHA = 0.01


# ---- pooled variances ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pooled:
    """Both sides' variances at the blended shares, and what follows from them."""

    p: FloatArray  #: the blended shares, clipped to where variances are evaluated
    optin_variance: FloatArray  #: of each opt-in share
    client_variance: FloatArray  #: of each client share
    weight: FloatArray  #: of the opt-in share with the smallest variance, client/(opt-in + client)
    difference: FloatArray  #: opt-in minus client share

    @cached_property
    def spread(self) -> FloatArray:
        """The standard error of each difference of the two shares."""
        return np.sqrt(self.optin_variance + self.client_variance)

    @property
    def z(self) -> FloatArray:
        """The differences in standard errors, not corrected for selection."""
        return self.difference / self.spread


def pool(optin: Shares, clients: Shares) -> Pooled:
    """Evaluate both variances at the blended shares a few times; first at the opt-in ones, which are less noisy."""
    left, right = _checked(optin, "opt-in"), _checked(clients, "client")
    if left.shape != right.shape:
        raise DataError(
            f"the opt-in side has {len(left)} records and the clients have {len(right)}",
            fix="Use one head list for both",
        )
    p = clipped(left)
    weight = np.ones_like(p)
    for _ in range(ROUNDS + 1):
        optin_variance = np.maximum(optin.variance_at(p), LEAST_VARIANCE)
        client_variance = np.maximum(clients.variance_at(p), LEAST_VARIANCE)
        weight = client_variance / (optin_variance + client_variance)
        last, p = p, clipped(weight * left + (1 - weight) * right)
    return Pooled(last, optin_variance, client_variance, weight, left - right)


def plug_in_weights(optin_variance: FloatArray, client_variance: FloatArray) -> FloatArray:
    """Return Theorem 6's weights from unbiased variances; a negative one (not in the paper) counts as nearly zero."""
    left, right = (np.maximum(variance, LEAST_VARIANCE) for variance in (optin_variance, client_variance))
    # Nobody alone has a variance: such a side's is infinite.
    weight: FloatArray = np.where(np.isinf(left), 0.0, right / (np.where(np.isinf(left), 1.0, left) + right))
    return weight


def multinomial_variance_of_sum(shares: Shares, weights: FloatArray, p: FloatArray) -> float:
    """Return the variance of the sum of weight times share, for counts of n records with independent noise on each.

    The m records of one user may all count alike, so the sampling part is m times that of independent records.
    """
    p = at_most_one(p)
    drawn = max(0.0, float(weights**2 @ p - (weights @ p) ** 2)) / shares.n
    noise = np.maximum(shares.variance_at(p) - p * (1 - p) / shares.n, 0.0)
    return float(weights**2 @ noise) + shares.records_per_user * drawn


def clipped(p: FloatArray) -> FloatArray:
    """Bring shares to where variances are evaluated."""
    return np.clip(p, LEAST_SHARE, 1 - LEAST_SHARE)


def _checked(shares: Shares, side: str) -> FloatArray:
    values = np.asarray(shares.values, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise DataError(f"the {side} shares are not a list of finite numbers", fix="Estimate them again")
    if shares.n < 1:
        raise DataError(f"the {side} shares come from nobody", fix="Blend only where both sides have data")
    return values


# ---- intervals given publication -----------------------------------------------------------------------------------

# Relative model error of a predicted overshoot: counts that found the list, and counts that only cut it to its size.
_MODEL_ERROR = {"reuse": 1 / 3, "split": 2 / 3}
# Beyond so many standard deviations of a count above the cut, hardly any chance is cut off.
_NEAR = 5.0
# The law of counts is looked at up to so many above and below the cut, in at most so many steps.
_FAR = 16.0
_STEPS = 400
# Where publication is less likely than this, what is seen above the cut is noise alone.
_LEAST_PUBLICATION = 1e-200
_HALVINGS = 18


@dataclass(frozen=True, eq=False)
class Overshoot:
    """How much too high a list's opt-in counts are, published for being large (docs/proofs/blend.md)."""

    optin: OptInShares
    least: float | None  #: as for :func:`agreement`

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
        return 1 / (1 + len(self.optin.values)) + _MODEL_ERROR[self.optin.method] ** 2


@dataclass(frozen=True, eq=False)
class Selected:
    """The law of the blend ``weight (N + Z)/n + (1 - weight) C`` given N + Z >= cut, as a function of the true share.

    N is binomial, C normal, Z discrete Laplace; for Gaussian noise, with its shorter tails, that errs on the wide side.
    """

    optin: Shares
    clients: ClientShares
    weight: FloatArray  #: the opt-in side's weights
    cut: int  #: the smallest count that would have been published

    def near(self, raw: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which blends are so close to the cut that publication says something about them."""
        return raw * self.optin.n < self.cut + _NEAR * self._deviation

    def interval(self, raw: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """Return the smallest and largest true share for which a published blend is not surprising; NaN if not near.

        Given publication it covers with probability at least ``level``, but for the normal law of the clients' side.
        """
        tail = (1 - level) / 2
        low = self._first(raw, lambda p: self._chance(raw, p, above=True) >= tail)
        high = self._first(raw, lambda p: self._chance(raw, p, above=False) < tail)
        return low, np.maximum(low, high)

    def bias(self, raw: FloatArray) -> FloatArray:
        """Return how far each blend near the cut is above the median-unbiased share.

        For standard errors only, never subtracted: no estimate of it is unbiased, and this one is larger on average.
        """
        median = self._first(raw, lambda p: self._chance(raw, p, above=True, extra=0.0) >= 0.5)
        return np.nan_to_num(np.maximum(raw - median, 0.0))

    def _chance(self, raw: FloatArray, p: FloatArray, *, above: bool, extra: float = 0.5) -> FloatArray:
        """Return the chance of a blend at least (at most) as large; ``extra`` 1/2 counts the one seen in full."""
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
        """Return for each blend near the cut the smallest share where a condition holds that goes on holding above."""
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
        """Return the counts above the cut, and the chance of each given publication, by true share."""
        true, seen, noise = self._grid
        n = self.optin.n
        inside = np.clip(p, LEAST_SHARE, 1 - LEAST_SHARE)[:, None]
        log_chance = self._log_binomials + true * np.log(inside) + (n - true) * np.log1p(-inside)
        law = np.exp(log_chance) * self._step @ noise
        total = law.sum(axis=1, keepdims=True)
        far = np.exp((seen - self.cut) * math.log(self._decay)) if self._decay else (seen == seen[0]).astype(np.float64)
        # Above the grid nothing is near the cut: all of it is at its end.
        beyond = np.where(inside * n > self.cut, (seen == seen[-1]).astype(np.float64), far / far.sum())
        return seen, np.where(total > _LEAST_PUBLICATION, law / np.maximum(total, _LEAST_PUBLICATION), beyond)

    @cached_property
    def _grid(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the true counts, the counts that may be seen, and the chances of noise from one to the other."""
        true = np.arange(float(self._start), min(self._end, self.optin.n) + 1, self._step)
        seen = np.arange(float(self.cut), self._end + 1, self._step)
        edges = np.append(seen, seen[-1] + self._step) - (self._step - 1) // 2
        noise = _tail(np.subtract.outer(edges, true), self._decay)
        return true, seen, (noise[:-1] - noise[1:]).T

    @cached_property
    def _log_binomials(self) -> FloatArray:
        from scipy.special import gammaln

        true, n = self._grid[0], self.optin.n
        logarithms: FloatArray = gammaln(n + 1.0) - gammaln(true + 1.0) - gammaln(n - true + 1.0)
        return logarithms

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
    """Return P[Z >= k] of discrete Laplace noise with P[Z = z] in proportion to a^|z|."""
    above = np.power(a, np.maximum(k, 0.0)) / (1 + a)
    below = 1 - np.power(a, np.maximum(1 - k, 0.0)) / (1 + a)
    return np.where(k > 0, above, below)


# ---- do opt-in users search like everybody else? -------------------------------------------------------------------

_ROWS = 256
# No chance is taken to be smaller than this, so that every z is finite.
_LEAST_CHANCE = 1e-300
_LEAST_SKEWNESS = 0.01


@dataclass(frozen=True, eq=False)
class Agreement:
    """The result of the test for population shift.

    ``z`` is standard normal without shift, NaN where not tested; ``p_value`` is Holm-corrected. Where correlations are
    unknown (olh, several records per user), ``overall`` is the smallest p-value.
    """

    z: FloatArray
    p_value: FloatArray
    shifted: npt.NDArray[np.bool_]  #: which records differ at level alpha/2, the other half being for the whole
    statistic: float  #: the sum of the squares of z
    scale: float  #: times this the statistic is chi-square, scale times the tested records degrees of freedom
    overall: float  #: the chance of such a statistic without shift
    alpha: float  #: the level

    @property
    def agrees(self) -> bool:
        """Whether neither the whole nor any record shows a shift; the chance of a false alarm is at most alpha."""
        return self.overall > self.alpha / 2 and not self.shifted.any()

    def summary(self) -> str:
        """Return the result in a sentence."""
        tested = int(np.isfinite(self.z).sum())
        if not tested:
            return "No record can be compared between opt-in users and clients."
        words = "agree" if self.agrees else "do not agree"
        return (
            f"Opt-in users and clients {words}: overall p = {self.overall:.3g}; "
            f"{int(self.shifted.sum())} of {tested} records differ (false alarms: {self.alpha:g} in all)."
        )


def agreement(
    optin: Shares,
    clients: ClientShares,
    pooled: Pooled | None = None,
    *,
    alpha: float = ALPHA,
    least: float | None = None,
) -> Agreement:
    """Test whether both sides estimate the same shares, with a chance ``alpha`` of a false alarm.

    ``least`` is the smallest publishable opt-in share if fixed beforehand; minus infinity if these shares decided
    nothing. By default the smallest share seen is the cut, and that record is not tested.
    """
    if not 0 < alpha < 1:
        raise UsageError("the chance of a false alarm lies between 0 and 1", fix="Use, say, 0.01")
    from scipy import stats

    pooled = pool(optin, clients) if pooled is None else pooled
    values, half = np.asarray(optin.values, dtype=np.float64), 0.5 / optin.n
    if not len(values):
        none = np.zeros(0)
        return Agreement(none, none, none.astype(np.bool_), 0.0, 1.0, 1.0, alpha)
    # Counts are whole, so a cut lies half a count below the smallest that passes.
    cut = values.min() + half if least is None else min(least, float(values.min())) - half
    tested = values > cut
    # How large a difference had to be for its opt-in share to pass the cut: opt-in = blended + (1 - weight) difference,
    # and these two are independent. 1 - weight with all its digits:
    rest = pooled.optin_variance / pooled.spread**2
    blended = pooled.weight * values + (1 - pooled.weight) * clients.values
    bound = (cut - blended) / (rest * pooled.spread)
    # A count is skewed to the right, and the clients' noise on top of it makes it less so.
    third = np.maximum(pooled.p * (1 - pooled.p) * (1 - 2 * pooled.p), 0.0) / optin.n**2
    lower, upper = _tails(pooled.z, bound, third / pooled.spread**3)
    corrected = np.where(upper < lower, stats.norm.isf(np.minimum(upper, 0.5)), stats.norm.ppf(np.minimum(lower, 0.5)))
    corrected[~tested] = np.nan
    chances = np.where(tested, np.minimum(1.0, 2 * np.minimum(upper, lower)), 1.0)
    statistic, m = float((corrected[tested] ** 2).sum()), int(tested.sum())
    adjusted = _holm(chances, m)
    together = _sum_of_squared_correlations(optin, clients, pooled, tested)
    if together is None:
        scale, overall = 1.0, float(adjusted.min())
    else:
        scale = m / together if m else 1.0
        overall = float(stats.chi2.sf(statistic * scale, m * scale)) if m else 1.0
    return Agreement(corrected, adjusted, adjusted <= alpha / 2, statistic, scale, overall, alpha)


def _tails(z: FloatArray, bound: FloatArray, skewness: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the chances to be below and above z given more than ``bound``: of a gamma law, or normal if not skewed."""
    from scipy import stats

    bound = np.minimum(bound, z)
    beyond = np.minimum(stats.norm.logsf(z) - stats.norm.logsf(bound), 0.0)
    lower, upper = -np.expm1(beyond), np.exp(beyond)
    skewed = skewness > _LEAST_SKEWNESS
    if skewed.any():
        shape = 4 / skewness[skewed] ** 2
        root = np.sqrt(shape)
        low, high = (stats.gamma.cdf(shape + x[skewed] * root, shape) for x in (bound, z))
        rest, above = (stats.gamma.sf(shape + x[skewed] * root, shape) for x in (bound, z))
        known = rest > _LEAST_CHANCE  # else so far out that the normal law has to do
        safe = np.where(known, rest, 1.0)
        lower[skewed] = np.where(known, (high - low) / safe, lower[skewed])
        upper[skewed] = np.where(known, above / safe, upper[skewed])
    return np.clip(lower, _LEAST_CHANCE, 1.0), np.clip(upper, _LEAST_CHANCE, 1.0)


def _holm(chances: FloatArray, m: int) -> FloatArray:
    order = np.argsort(chances, kind="stable")
    factors = np.maximum(m - np.arange(len(chances)), 1)
    out = np.empty_like(chances)
    out[order] = np.minimum(1.0, np.maximum.accumulate(chances[order] * factors))
    return out


def _sum_of_squared_correlations(
    optin: Shares, clients: ClientShares, pooled: Pooled, tested: npt.NDArray[np.bool_]
) -> float | None:
    """Sum the squared correlations of all pairs of differences: m for uncorrelated ones, at most m^2; None: unknown."""
    if optin.records_per_user > 1:
        return None  # how records of one user go together is not known
    p, total = pooled.p, 0.0
    for start in range(0, len(p), _ROWS):
        rows = slice(start, start + _ROWS)
        some = np.arange(len(p))[rows]
        of_clients = clients.covariance_at(p, rows)
        if of_clients is None:
            return None
        covariance = of_clients - np.multiply.outer(p[rows], p) / optin.n
        correlation = np.clip(covariance / np.multiply.outer(pooled.spread[rows], pooled.spread), -1.0, 1.0)
        correlation[np.arange(len(some)), some] = 1.0
        total += float((correlation[tested[rows]][:, tested] ** 2).sum())
    return total
