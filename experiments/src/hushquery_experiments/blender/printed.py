"""Theorem 5 of BLENDER (Avent et al. 2017) exactly as printed. It is wrong, and kept only to show that it is.

Its last term uses E[XY] of one report where a covariance belongs: E[X]E[Y] is not subtracted and n not divided by. So
it can be negative, and a blend weighted by it ignores the clients. docs/proofs/blend.md has the correction; nothing but
the mode ``printed`` of an experiment uses it.
"""

from __future__ import annotations

import numpy as np

from hushquery.hybrid.clients import TwoStageShares
from hushquery.local.intervals import FloatArray, IntArray
from hushquery.local.oracles.two_stage import TwoStage

__all__ = ["printed_variances", "printed_weights"]


def printed_variances(oracle: TwoStage, support: IntArray, n: int) -> FloatArray:
    """Return each cell's variance by the printed formula, negative as it may be.

    >>> oracle = TwoStage.calibrate([1] * 10, 4)
    >>> support = np.full(21, 1000)
    >>> float(printed_variances(oracle, support, 21_000)[0].round(2))
    -0.68
    >>> float((oracle.frequencies(support, 21_000)[1][0] ** 2).round(6))
    2.6e-05
    """
    if not oracle.urls:
        return np.zeros(1)
    a, inside, outside, d = oracle.channel()
    k, t, seen = oracle.queries, oracle.t, support / n
    of_query = np.repeat(np.add.reduceat(seen, oracle.starts), oracle.sizes)
    rest, c = max(n - 1, 1), outside - inside
    query_variance = of_query * (1 - of_query) / (rest * a**2)
    last = 2 * n / rest * c * (k - 2 + t) / (k * t - 1) * seen
    out: FloatArray = (seen * (1 - seen) / rest + c**2 * query_variance + last) / d**2
    return out


def printed_weights(clients: TwoStageShares, optin_variance: FloatArray) -> FloatArray:
    """Return the opt-in weights that follow from the printed variances, cut to 0..1."""
    wrong = printed_variances(clients.oracle, clients.support, clients.n)[clients.cells.record_cells]
    total = optin_variance + wrong
    safe = np.where((total == 0) | np.isinf(total), 1.0, total)
    return np.clip(np.where(total == 0, 1.0, np.where(np.isinf(total), 0.0, wrong / safe)), 0.0, 1.0)
