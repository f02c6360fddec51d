"""Pooled variances: how much each side's share of a record varies, judged at what both sides together say.

A side's own estimate is a bad place to evaluate its variance: where the estimate happens to be low the variance seems
low too, and a blend weighted by it is biased downwards (docs/proofs/blend.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hushquery.errors import DataError
from hushquery.local.intervals import FloatArray

__all__ = [
    "LEAST_SHARE",
    "LEAST_VARIANCE",
    "ROUNDS",
    "Pooled",
    "Shares",
    "clipped",
    "multinomial_variance_of_sum",
    "plug_in_weights",
    "pool",
]

#: Variances are never evaluated at a smaller share than this.
LEAST_SHARE = 1e-6
#: No variance is taken to be smaller than this.
LEAST_VARIANCE = 1e-30
#: How often variances are evaluated anew at the blended shares.
ROUNDS = 3


class Shares(Protocol):
    """One side's raw shares of the head records, before any post-processing."""

    @property
    def values(self) -> FloatArray:
        """The share of each head record."""
        ...

    @property
    def n(self) -> int:
        """The number of people (records) behind it."""
        ...

    @property
    def records_per_user(self) -> int:
        """How many of the records are of one person at most; nobody can tell which."""
        ...

    def variance_at(self, p: FloatArray) -> FloatArray:
        """Give each share's variance if the true shares were ``p``."""
        ...


@dataclass(frozen=True, eq=False)
class Pooled:
    """Both sides' variances at the blended shares, and what follows from them.

    Args:
        p: The blended shares, clipped to where variances are evaluated.
        optin_variance: The variance of each opt-in share.
        client_variance: The variance of each client share.
        weight: The weight of the opt-in share with the smallest variance, client/(opt-in + client).
    """

    p: FloatArray
    optin_variance: FloatArray
    client_variance: FloatArray
    weight: FloatArray


def pool(optin: Shares, clients: Shares) -> Pooled:
    """Evaluate both variances at the blended shares, a few times over.

    Before the first blend they are evaluated at the opt-in shares: in a head list made from them these are never far
    off, whereas a client's share at a small epsilon may be noise altogether.
    """
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
    return Pooled(last, optin_variance, client_variance, weight)


def plug_in_weights(optin_variance: FloatArray, client_variance: FloatArray) -> FloatArray:
    """Give Theorem 6's weights, client/(opt-in + client), from each side's own unbiased estimate of its variance.

    Such an estimate may be below zero: Theorem 4's is where noise made a count negative. It is then taken to be nearly
    zero, so the weight is 1 and that negative count is taken in full. The paper does not say what it does.
    """
    left, right = (np.maximum(variance, LEAST_VARIANCE) for variance in (optin_variance, client_variance))
    # Nobody alone has a variance: such a side's is infinite.
    weight: FloatArray = np.where(np.isinf(left), 0.0, right / (np.where(np.isinf(left), 1.0, left) + right))
    return weight


def multinomial_variance_of_sum(shares: Shares, weights: FloatArray, p: FloatArray) -> float:
    """Give the variance of the sum of weight times share, for counts of n records with independent noise on each.

    Two counts of n independent records have covariance -p_i p_j/n; noise that is drawn once per record adds none. Of m
    records of one user the sum varies most if all m count alike: m times as much as if they were independent.
    """
    p = np.clip(p, 0.0, 1.0)
    p = p / max(1.0, float(p.sum()))
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
