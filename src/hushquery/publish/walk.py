"""The absorbing random walk on the click graph, from which keywords and classes come.

A walker at a query steps to a URL with probability proportional to the clicks on it, and from a URL to a query in the
same way. Before each step the walk is lost with probability alpha. It stops for good at a seed. The probability of a
node is that of a walk from there to end at a seed::

    P(q) = (1 - alpha) sum_u w(q, u) / W(q) P(u)
    P(u) = (1 - alpha) sum_q w(q, u) / W(u) P(q)        P(seed) = 1

Being lost makes seeds that are far away, or reached through busy nodes that belong to everybody, count for little.

References:
    A. Fuxman, P. Tsaparas, K. Achan, R. Agrawal, Using the wisdom of the crowds for keyword generation, WWW 2008.
    A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas, Releasing search queries and clicks privately, WWW 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushquery.errors import UsageError
from hushquery.publish.tables import ClickGraph

__all__ = ["ALPHA", "absorbing_walk", "checked_share", "find_seeds"]

#: The probability of being lost before a step, where nobody says otherwise.
ALPHA = 0.1

# Below this the walk takes too many steps to be worth waiting for.
_LEAST_ALPHA = 0.001
# How far a probability may be from the exact one.
_TOLERANCE = 1e-9


def absorbing_walk(
    graph: ClickGraph,
    queries: Mapping[int, int],
    urls: Mapping[int, int],
    alpha: float = ALPHA,
    *,
    classes: int = 1,
) -> npt.NDArray[np.float64]:
    """Give for every query the probability that a walk from it ends at a seed of each class.

    The two equations are repeated until no probability can be further than 1e-9 from the solution: two steps shrink
    any error by (1 - alpha)^2.

    Args:
        graph: The click graph.
        queries: The seeds among the queries, with their class.
        urls: The seeds among the URLs, with their class.
        alpha: The probability of being lost before a step.
        classes: How many classes there are.

    Returns:
        One row per query, one column per class.
    """
    alpha = checked_share(alpha, "alpha")
    if not _LEAST_ALPHA <= alpha < 1:
        raise UsageError("alpha is too close to 0 or 1", fix=f"Give a number from {_LEAST_ALPHA} to 0.999")
    to_urls = _steps(graph.weights) * (1 - alpha)
    to_queries = _steps(graph.weights.T.tocsr()) * (1 - alpha)
    shrinks = (1 - alpha) ** 2
    query_seeds, fixed_queries = _fixed(queries, classes)
    url_seeds, fixed_urls = _fixed(urls, classes)
    at_queries: npt.NDArray[np.float64] = np.zeros((len(graph.queries), classes))
    at_queries[query_seeds] = fixed_queries
    while True:
        at_urls = to_queries @ at_queries
        at_urls[url_seeds] = fixed_urls
        new: npt.NDArray[np.float64] = to_urls @ at_urls
        new[query_seeds] = fixed_queries
        change = float(np.max(np.abs(new - at_queries), initial=0.0))
        at_queries = new
        if change * shrinks <= _TOLERANCE * (1 - shrinks):
            return at_queries


def find_seeds(graph: ClickGraph, item: str) -> tuple[int | None, int | None]:
    """Find an item among the queries and among the URLs; it may be both (people search for addresses)."""
    return graph.query(item), graph.url(item)


def checked_share(value: float, name: str) -> float:
    """Refuse what is no number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 1:
        raise UsageError(f"{name} must be a number from 0 to 1", fix=f"Give for example {name}=0.1")
    return float(value)


def _steps(weights: sparse.csr_array) -> sparse.csr_array:
    """Turn weights into probabilities, row by row; a row without weight stays empty: the walk is lost there."""
    totals = np.asarray(weights.sum(axis=1)).ravel()
    scale = np.divide(1.0, totals, out=np.zeros_like(totals, dtype=np.float64), where=totals > 0)
    return sparse.csr_array(sparse.diags_array(scale) @ weights)


def _fixed(seeds: Mapping[int, int], classes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    places = np.fromiter(seeds, dtype=np.int64, count=len(seeds))
    values = np.zeros((len(seeds), classes))
    values[np.arange(len(seeds)), np.fromiter(seeds.values(), dtype=np.int64, count=len(seeds))] = 1.0
    return places, values
