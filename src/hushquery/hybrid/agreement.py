"""Do opt-in users search like everybody else? A test of agreement between the two estimates, per record and overall.

Opt-in counts are published because they were large, so chance has pushed those near the threshold upwards. The test
allows for that: it asks how surprising a difference is among differences that would have been published
(docs/proofs/blend.md). It looks only at shares that are public already, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery.hybrid.clients import ClientShares
from hushquery.hybrid.pooled import Pooled, Shares, pool
from hushquery.local.intervals import FloatArray

__all__ = ["ALPHA", "Agreement", "agreement", "raw_z"]

#: The chance of a false alarm that a test may have if it is not told otherwise.
ALPHA = 0.01

# Covariances are looked at in blocks of so many records.
_ROWS = 256
# No chance is taken to be smaller than this, so that every z is finite.
_LEAST_CHANCE = 1e-300
# Less skewed laws are taken to be normal.
_LEAST_SKEWNESS = 0.01


@dataclass(frozen=True, eq=False)
class Agreement:
    """What the test says.

    Args:
        z: For each record the difference in standard errors; a standard normal number if there is no shift. NaN where
            nothing can be said (the smallest published count, see :func:`agreement`).
        p_value: For each record the chance of such a difference without shift, corrected for the number of records
            (Holm); 1 where nothing can be said.
        shifted: Which records differ at level alpha/2, the other half being for the whole.
        statistic: The sum of the squares of z.
        degrees: The degrees of freedom of the chi-square law that ``scale`` times it has without shift.
        scale: What the statistic is multiplied by; 1 if the records' differences were uncorrelated.
        overall: The chance of such a statistic without shift; where the correlations are not known (olh, or
            several records of one user), the smallest of ``p_value``, which needs none.
        alpha: The level.
    """

    z: FloatArray
    p_value: FloatArray
    shifted: npt.NDArray[np.bool_]
    statistic: float
    degrees: float
    scale: float
    overall: float
    alpha: float

    @property
    def agrees(self) -> bool:
        """Whether neither the whole nor any record shows a shift; the chance of a false alarm is at most alpha."""
        return self.overall > self.alpha / 2 and not self.shifted.any()

    def summary(self) -> str:
        """Say it in a sentence."""
        tested = int(np.isfinite(self.z).sum())
        if not tested:
            return "No record can be compared between opt-in users and clients."
        found = int(self.shifted.sum())
        words = "agree" if self.agrees else "do not agree"
        return (
            f"Opt-in users and clients {words}: overall p = {self.overall:.3g}; "
            f"{found} of {tested} records differ (false alarms: {self.alpha:g} in all)."
        )


def raw_z(optin: Shares, clients: Shares, pooled: Pooled) -> FloatArray:
    """Give (opt-in - client)/sqrt(var_O + var_C) at the pooled shares, not corrected for selection."""
    z: FloatArray = (optin.values - clients.values) / np.sqrt(pooled.optin_variance + pooled.client_variance)
    return z


def agreement(
    optin: Shares,
    clients: ClientShares,
    pooled: Pooled | None = None,
    *,
    alpha: float = ALPHA,
    least: float | None = None,
) -> Agreement:
    """Test whether both sides estimate the same shares.

    Args:
        optin: The opt-in side; counts of ``n`` records with noise, divided by n.
        clients: The clients' side.
        pooled: The pooled variances, if they are known already.
        alpha: The chance of a false alarm.
        least: The smallest opt-in share that would have been published, where that was fixed beforehand (a threshold,
            and no other cut; minus infinity if these shares decided nothing). By default nothing is known of the cut
            but that the smallest share passed it: that record is not tested, the others are judged as those above it.
    """
    if not 0 < alpha < 1:
        raise UsageError("the chance of a false alarm lies between 0 and 1", fix="Give for example 0.01")
    from scipy import stats

    pooled = pool(optin, clients) if pooled is None else pooled
    values, half = np.asarray(optin.values, dtype=np.float64), 0.5 / optin.n
    if not len(values):
        none = np.zeros(0)
        return Agreement(none, none, none.astype(np.bool_), 0.0, 0.0, 1.0, 1.0, alpha)
    spread = np.sqrt(pooled.optin_variance + pooled.client_variance)
    z = raw_z(optin, clients, pooled)
    # Counts are whole, so a cut lies half a count below the smallest that passes.
    cut = values.min() + half if least is None else min(least, float(values.min())) - half
    tested = values > cut
    bound = _bound(values, clients.values, pooled, cut)
    # A count is skewed to the right, and the clients' noise on top of it makes it less so.
    third = np.maximum(pooled.p * (1 - pooled.p) * (1 - 2 * pooled.p), 0.0) / optin.n**2
    lower, upper = _tails(z, bound, third / spread**3)
    corrected = np.where(upper < lower, stats.norm.isf(np.minimum(upper, 0.5)), stats.norm.ppf(np.minimum(lower, 0.5)))
    corrected[~tested] = np.nan
    chances = np.where(tested, np.minimum(1.0, 2 * np.minimum(upper, lower)), 1.0)
    adjusted = _holm(chances, int(tested.sum()))
    statistic, m = float((corrected[tested] ** 2).sum()), int(tested.sum())
    together = _sum_of_squared_correlations(optin, clients, pooled, tested)
    if together is None:
        scale, overall = 1.0, float(adjusted.min())
    else:
        scale = m / together if m else 1.0
        overall = float(stats.chi2.sf(statistic * scale, m * scale)) if m else 1.0
    return Agreement(corrected, adjusted, adjusted <= alpha / 2, statistic, m * scale, scale, overall, alpha)


def _bound(left: FloatArray, right: FloatArray, pooled: Pooled, cut: float) -> FloatArray:
    """Give the standard errors above which a difference had to be for its opt-in share to be above ``cut``.

    Opt-in = blended + (1 - weight) difference. Blended share and difference are independent, but for this bound.
    """
    spread = np.sqrt(pooled.optin_variance + pooled.client_variance)
    blended = pooled.weight * left + (1 - pooled.weight) * right
    # 1 - weight, with all its digits
    rest = pooled.optin_variance / spread**2
    bound: FloatArray = (cut - blended) / (rest * spread)
    return bound


def _tails(z: FloatArray, bound: FloatArray, skewness: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Give the chances to be below and above z for what is above ``bound``, in standard errors.

    The law is a gamma law of this skewness, with mean 0 and variance 1, or the normal one where there is hardly any.
    """
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
    spread = np.sqrt(pooled.optin_variance + pooled.client_variance)
    for start in range(0, len(p), _ROWS):
        rows = slice(start, start + _ROWS)
        some = np.arange(len(p))[rows]
        of_clients = clients.covariance_at(p, rows)
        if of_clients is None:
            return None
        covariance = of_clients - np.multiply.outer(p[rows], p) / optin.n
        correlation = np.clip(covariance / np.multiply.outer(spread[rows], spread), -1.0, 1.0)
        correlation[np.arange(len(some)), some] = 1.0
        total += float((correlation[tested[rows]][:, tested] ** 2).sum())
    return total
