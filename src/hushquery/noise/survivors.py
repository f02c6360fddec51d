"""Which counts pass a threshold, and with what noise, without drawing noise for those that do not.

Adding noise to every key of a long tail in order to drop nearly all of them is a waste. Keys with equal counts are
exchangeable: how many of them pass is one binomial draw, which of them is a uniform subset, and the noise of those that
pass is drawn from its law given that it carried them over. The joint law is exactly that of noise on every key
(docs/proofs/bulk.md); ``tests/noise/test_survivors.py`` compares the two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery.noise.bits import Bits, below
from hushquery.noise.law import Binomial, DiscreteLaplace, Geometric, Law, RoundedGaussian, TailCoin, Truncated
from hushquery.noise.sampler import IntArray, sampler

__all__ = ["WORTH_A_BINOMIAL", "conditional_noise", "lifted_keys", "passing_keys", "uniform_subset"]

#: Building a binomial's table costs about as much as this many single draws.
WORTH_A_BINOMIAL = 20_000


def passing_keys(
    counts: npt.NDArray[np.integer], threshold: int, law: DiscreteLaplace | RoundedGaussian, bits: Bits
) -> tuple[IntArray, IntArray]:
    """Give the positions of the keys whose noisy count is at least ``threshold``, ascending, and those noisy counts.

    Same law as ``noisy = counts + noise; positions = where(noisy >= threshold)`` with one independent draw per key, and
    drawn once: the selection and the value are the same noise.

    >>> from fractions import Fraction
    >>> from hushquery.noise.bits import SeededBits
    >>> counts = np.array([1, 90, 1, 2, 100])
    >>> positions, noisy = passing_keys(counts, 40, DiscreteLaplace(Fraction(2)), SeededBits(3))
    >>> positions.tolist(), bool((noisy >= 40).all())
    ([1, 4], True)
    """
    given = np.asarray(counts)
    if given.ndim != 1 or not (np.can_cast(given.dtype, np.int64) and np.issubdtype(given.dtype, np.integer)):
        raise UsageError("counts must be a one-dimensional array of integers of at most 64 signed bits")
    values = given.astype(np.int64)
    order, distinct, sizes = _by_value(np.minimum(values, threshold))  # what is at the threshold is drawn singly anyway
    starts = np.cumsum(sizes) - sizes
    in_bulk = (distinct < threshold) & (sizes >= WORTH_A_BINOMIAL)

    singly = order[~np.repeat(in_bulk, sizes)]
    each = values[singly] + sampler(law).draw(len(singly), bits)
    positions, noisy = [singly[each >= threshold]], [each[each >= threshold]]
    for count, start, size in zip(*(a[in_bulk].tolist() for a in (distinct, starts, sizes)), strict=True):
        lifted, values_of_lifted = lifted_keys(size, count, threshold, law, bits)
        positions.append(order[start : start + size][lifted])
        noisy.append(values_of_lifted)
    where, values_out = np.concatenate(positions), np.concatenate(noisy)
    by_position = np.argsort(where, kind="stable")
    return where[by_position].astype(np.int64), values_out[by_position]


def lifted_keys(
    size: int, count: int, threshold: int, law: DiscreteLaplace | RoundedGaussian, bits: Bits
) -> tuple[IntArray, IntArray]:
    """Say which of ``size`` keys with the same count below the threshold pass it, and with what noisy counts.

    How many pass is one binomial draw, which ones a uniform subset, and their noise is drawn given that they pass.
    """
    lifts = sampler(Binomial(size, TailCoin(law, threshold - count))).draw_one(bits)
    return uniform_subset(size, lifts, bits), count + conditional_noise(law, threshold - count, lifts, bits)


def _by_value(values: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Give an order that sorts the values, the distinct values, and how often each occurs."""
    lowest = int(values.min()) if len(values) else 0
    if len(values) and int(values.max()) - lowest < 2**16:
        compact = (values - lowest).astype(np.uint16)  # sorts by radix, much faster than by comparison
        tallies = np.bincount(compact)
        present = np.flatnonzero(tallies)
        return np.argsort(compact, kind="stable"), present + lowest, tallies[present]
    distinct, sizes = np.unique(values, return_counts=True)
    return np.argsort(values, kind="stable"), distinct, sizes


def conditional_noise(law: DiscreteLaplace | RoundedGaussian, k: int, n: int, bits: Bits) -> IntArray:
    """Draw ``n`` values of the noise given that each is at least ``k``.

    Discrete Laplace above any k >= 0 is k plus a geometric draw. A Gaussian above k > 0 is drawn by inverse CDF from
    its
    truncated law. Where at least half of the law lies above k, unconditional draws below k are thrown away.
    """
    if k > 0 or (k == 0 and isinstance(law, DiscreteLaplace)):
        above: Law = Geometric(law.b) if isinstance(law, DiscreteLaplace) else Truncated(law, k)
        return sampler(above).draw(n, bits) + (k if isinstance(law, DiscreteLaplace) else 0)
    out = np.empty(n, dtype=np.int64)
    filled = 0
    while filled < n:
        draws = sampler(law).draw(2 * (n - filled), bits)
        good = draws[draws >= k][: n - filled]
        out[filled : filled + len(good)] = good
        filled += len(good)
    return out


def uniform_subset(n: int, size: int, bits: Bits) -> IntArray:
    """Choose ``size`` of 0..n-1, every subset equally likely; ascending.

    >>> from hushquery.noise.bits import SeededBits
    >>> uniform_subset(5, 5, SeededBits(1)).tolist()
    [0, 1, 2, 3, 4]
    """
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
