"""How sums of cells vary under local hashing.

The hash (a x + b) mod P is independent on two cells, so each cell's variance is exact; on three it is not, and with
cells 0, 1, 2, ... far from it: the sum of 50 cells can vary twice as much as independence would say. So the variance
of a sum is averaged over a fixed lattice of seeds: good to about one per cent for a query's cells, ten for a list's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hushquery.local.intervals import FloatArray, IntArray
from hushquery.local.oracles.olh import OLH

__all__ = ["variance_of_one_report"]

# At most so many seeds, and so many entries of the tables made for them.
_SEEDS = 1 << 14
_ENTRIES = 1 << 23
# The steps of a lattice that fills the unit square evenly: 1/x and 1/x^2 for x^3 = x + 1 (Roberts 2018, R2).
_STEPS = (0.7548776662466927, 0.5698402909980532)


def variance_of_one_report(oracle: OLH, weights: FloatArray, shares: FloatArray) -> float:
    """Give the variance of the sum of the weights of the cells that one report speaks for.

    Args:
        oracle: The oracle.
        weights: A weight for each of the k cells.
        shares: The share of clients with each cell.
    """
    buckets, rates = _tables(oracle, shares.tobytes())
    seeds, some = len(buckets), np.flatnonzero(weights)
    chosen = buckets[:, some].ravel()
    spoken = float(oracle.q) + float(oracle.p - oracle.q) * shares
    sums = np.bincount(chosen, np.tile(weights[some], seeds), len(rates)) - weights @ spoken
    squares = np.bincount(chosen, np.tile(weights[some] ** 2, seeds), len(rates))
    # What is known exactly, that of single cells, takes the place of what the lattice says of it.
    return max(0.0, float(rates @ (sums**2 - squares) / seeds + weights**2 @ spoken))


@lru_cache(maxsize=2)
def _tables(oracle: OLH, packed_shares: bytes) -> tuple[IntArray, FloatArray]:
    """Give each cell's place among all seeds' buckets, and the chance of each bucket to be reported under its seed."""
    shares, p = np.frombuffer(packed_shares, dtype=np.float64), float(oracle.p)
    lie = (1 - p) / (oracle.g - 1)
    seeds = max(16, min(_SEEDS, _ENTRIES // (oracle.k + oracle.g)))
    spots = [np.floor(oracle.prime * ((np.arange(seeds) + 0.5) * step % 1)).astype(np.int64) for step in _STEPS]
    slope, begin = (np.minimum(spot, oracle.prime - 1)[:, None] for spot in spots)
    hashes = (slope * np.arange(oracle.k) + begin) % oracle.prime
    buckets: IntArray = hashes * oracle.g // oracle.prime + np.arange(seeds)[:, None] * oracle.g
    inside: FloatArray = np.bincount(buckets.ravel(), np.tile(shares, seeds), seeds * oracle.g).astype(np.float64)
    return buckets, lie + (p - lie) * inside
