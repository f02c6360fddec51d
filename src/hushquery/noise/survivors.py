"""Which counts pass a threshold, and with what noise, without drawing noise for those that do not.

Keys with equal counts are exchangeable: how many pass is one binomial draw, which ones a uniform subset, and their
noise is drawn given that they pass. The joint law is exactly that of noise on every key (docs/proofs/bulk.md).
"""

from __future__ import annotations

import numpy as np

from hushquery.errors import UsageError
from hushquery.noise.law import Binomial, DiscreteLaplace, Geometric, Noise, TailCoin, Truncated
from hushquery.noise.sampler import Bits, IntArray, below, sampler

__all__ = ["WORTH_A_BINOMIAL", "conditional_noise", "lifted_keys", "uniform_subset"]

#: Building a binomial's table costs about as much as this many single draws.
WORTH_A_BINOMIAL = 20_000
# Beyond this tail too few of the 64-bit words are left for a quick draw.
_FAR = 2.0**-40


def lifted_keys(size: int, count: int, threshold: int, law: Noise, bits: Bits) -> tuple[IntArray, IntArray]:
    """Draw which of ``size`` keys with the same count below the threshold pass it, and with what noisy counts."""
    lifts = sampler(Binomial(size, TailCoin(law, threshold - count))).draw_one(bits)
    return uniform_subset(size, lifts, bits), count + conditional_noise(law, threshold - count, lifts, bits)


def conditional_noise(law: Noise, k: int, n: int, bits: Bits) -> IntArray:
    """Draw ``n`` values of the noise given that each is at least ``k``."""
    # Discrete Laplace above any k >= 0 is k plus a geometric draw. A Gaussian above k > 0 is drawn by inverse CDF, far
    # out from its truncated law, else from words that lie above k. Where at least half of the law lies above k,
    # unconditional draws below k are thrown away.
    if k >= 0 and isinstance(law, DiscreteLaplace):
        return sampler(Geometric(law.b)).draw(n, bits) + k
    if k > 0 and n:
        far = law.tail(k) < _FAR
        return sampler(Truncated(law, k)).draw(n, bits) if far else sampler(law).draw_at_least(k, n, bits)
    out = np.empty(n, dtype=np.int64)
    filled = 0
    while filled < n:
        draws = sampler(law).draw(2 * (n - filled), bits)
        good = draws[draws >= k][: n - filled]
        out[filled : filled + len(good)] = good
        filled += len(good)
    return out


def uniform_subset(n: int, size: int, bits: Bits) -> IntArray:
    """Choose ``size`` of 0..n-1, every subset equally likely; ascending."""
    if not 0 <= size <= n:
        raise UsageError("a subset can't be larger than the set")
    if size > n // 2:
        left_out = uniform_subset(n, n - size, bits)
        return np.setdiff1d(np.arange(n, dtype=np.int64), left_out, assume_unique=True)
    # Uniform draws, each kept unless seen before, give a uniformly random ordered subset.
    seen = np.empty(0, dtype=np.int64)
    while len(seen) < size:
        fresh = np.concatenate([seen, below(bits, n, size - len(seen))])
        _, first = np.unique(fresh, return_index=True)
        seen = fresh[np.sort(first)]
    return np.sort(seen)
