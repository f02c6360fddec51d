"""The two sides of a blend, drawn at random, for the tests of hybrid/."""

from __future__ import annotations

import numpy as np

from hushquery.hybrid.clients import FlatShares
from hushquery.hybrid.headlist import OptInShares, calibrate_head, draw_head
from hushquery.hybrid.remeasure import calibrate_split, draw_split


def head(*urls: int) -> list[tuple[str, str]]:
    """A head list with so many URLs for each of its queries."""
    return [(f"query {q}", f"https://{u}.example/") for q, count in enumerate(urls) for u in range(count)]


def create_head(log, *, bound=None, bits=None, users=None, **asked):
    """A head list of a log, with nothing spent."""
    return draw_head(log, calibrate_head(**asked), bound=bound, bits=bits, users=users)


def split_and_estimate(log, *, most, share="19/20", bound=None, bits=None, **asked):
    """A head list that some users find and the others measure, with nothing spent."""
    return draw_split(log, *calibrate_split(**asked), most=most, share=share, bound=bound, bits=bits)


def optin_shares(records, values, n, noise_variance):
    """Opt-in shares with given values."""
    values = np.asarray(values, dtype=np.float64)
    return OptInShares(list(records), values, n, noise_variance, float(1 - values.sum()), len(records), (), "reuse")


def noisy_counts(rng, shares, n, epsilon):
    """The counts of ``n`` records with discrete Laplace noise of scale 2/epsilon; and the variance of that noise."""
    a = np.exp(-epsilon / 2)
    rest = max(0.0, 1 - float(np.sum(shares)))
    counts = rng.multinomial(n, np.append(shares, rest))[:-1]
    noise = rng.geometric(1 - a, len(counts)) - rng.geometric(1 - a, len(counts))
    return counts + noise, 2 * a / (1 - a) ** 2


def drawn_optin(rng, records, shares, n, epsilon):
    """Opt-in shares of records that were not selected by their counts."""
    counts, variance = noisy_counts(rng, shares, n, epsilon)
    return optin_shares(records, counts / n, n, variance)


def drawn_clients(rng, oracle, shares, n):
    """The reports of ``n`` clients over M + 1 cells, drawn from the law of their counts given who has which cell.

    Exact for k-RR; for bits and hashes each cell's count is exact, and two cells' counts are independent.
    """
    every = np.append(shares, 1 - np.sum(shares))
    p, q = float(oracle.p), float(oracle.q)
    if oracle.name == "krr":
        rates = q + (p - q) * every
        return FlatShares(oracle, rng.multinomial(n, rates / rates.sum()), n)
    own = rng.multinomial(n, every)
    return FlatShares(oracle, rng.binomial(own, p) + rng.binomial(n - own, q), n)
