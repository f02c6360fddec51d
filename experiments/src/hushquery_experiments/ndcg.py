"""How good a list of frequent records is: NDCG, its generalisation to lists of lists, L1, hit rate. Not publishable.

The measures of BLENDER (Avent et al. 2017, section 4). What its text leaves open is read as follows:

* **Relevance** is the true share, rel = n_i / sum n_j, and the gain 2^rel - 1. The sum runs over the ideal list, so
  that relevances add up to 1 there: the paper's "discard the wildcards and rescale". The wildcard is never listed.
* **The ideal list** is the true top k of the full data, not the best order of what was listed: a list that misses a
  frequent record is punished for it. k is the length of the list, of queries or of one query's URLs.
* **A query's relevance** counts all its searches, those for unlisted URLs too; it is ranked by the sum of its listed
  records' estimates, unless a direct estimate is given.
* **L1** is the sum of ``|estimate - truth|`` over the listed records, both as shares of all users, as the paper's
  formula says. ``l1_rescaled`` has both divided by the listed records' sum first, should "rescale" be meant for L1 too.
* **Truth** is the share among all users at hand, opt-in and clients together, one record each (the paper's column 2).

Qin et al. 2016 score by rank instead: an item counts the less, the further its estimated rank is from its true one,
however near its frequency. BLENDER's text says no more than that, and their own paper was not at hand; here
``rel = log2(1 + k - |rank - true rank|)``, nothing if they are k or more apart, over its own ideal, with the same
discount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery_experiments.unpublishable import NotPublishable

__all__ = [
    "ListScores",
    "Truth",
    "discounted_gain",
    "list_scores",
    "ndcg",
    "ndcg_of_lists",
    "query_scores",
    "rank_based_ndcg",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """The true counts of records; secret where the log is.

    Args:
        query: The number of each record's query.
        count: How many users hold the record.
        users: How many users there are, whatever they hold.
    """

    query: IntArray
    count: IntArray
    users: int

    def __post_init__(self) -> None:
        if self.query.shape != self.count.shape or self.query.ndim != 1 or self.users < 1:
            raise UsageError(
                "true counts need a query for each record and at least one user", fix="Count the log again"
            )

    def __repr__(self) -> str:
        return "Truth(counts are secret)"

    @property
    def queries(self) -> IntArray:
        """How many users searched for each query."""
        return np.bincount(self.query, weights=self.count).astype(np.int64)


@dataclass(frozen=True, repr=False)
class ListScores(NotPublishable):
    """How good a list is.

    Attributes:
        ndcg: The paper's NDCG of a list of queries, each with a list of URLs.
        ndcg_queries: NDCG of the list of queries alone.
        ndcg_records: NDCG of the records as one list.
        ndcg_rank_based: The list of queries, scored by rank.
        l1: The distance of estimated from true shares, over the listed records.
        l1_rescaled: The same after both are rescaled to sum to 1 over the list.
        hit_rate: The share of searches that the list answers: those for one of its records.
        records: How many records are listed.
        queries: How many queries they belong to.
    """

    ndcg: float
    ndcg_queries: float
    ndcg_records: float
    ndcg_rank_based: float
    l1: float
    l1_rescaled: float
    hit_rate: float
    records: int
    queries: int


def discounted_gain(relevance: npt.ArrayLike) -> float:
    """Return DCG: the sum of (2^rel - 1)/log2(i + 1) over positions i = 1, 2, ...

    >>> discounted_gain([1.0, 0.0, 1.0])
    1.5
    """
    return _discounted(np.exp2(np.asarray(relevance, dtype=np.float64)) - 1)


def ndcg(listed: npt.ArrayLike, ideal: npt.ArrayLike) -> float:
    """Return the NDCG of one list; 0 where nothing of the ideal list occurs at all.

    Args:
        listed: The true frequencies of the listed items, in the estimated order.
        ideal: The true frequencies of the best items there are, in any order; the first k of them count, in order.

    >>> ndcg([5, 3], [5, 3, 1]), round(ndcg([3, 5], [5, 3, 1]), 3)
    (1.0, 0.876)
    """
    got = _frequencies(listed)
    best = np.sort(_frequencies(ideal))[::-1][: len(got)]
    total = best.sum()
    if not total:
        return 0.0
    return discounted_gain(got / total) / discounted_gain(best / total)


def ndcg_of_lists(
    listed: npt.ArrayLike,
    ideal: npt.ArrayLike,
    urls: Sequence[npt.ArrayLike],
    ideal_urls: Sequence[npt.ArrayLike],
) -> float:
    """Return NDCG^Q of a list of queries with a list of URLs each: a query gains as much as the NDCG of its URLs.

    Args:
        listed: The true frequencies of the listed queries, in the estimated order.
        ideal: The true frequencies of the best queries there are.
        urls: For each listed query the true frequencies of its listed URLs, in the estimated order.
        ideal_urls: For each listed query the true frequencies of the best URLs it has.

    >>> round(ndcg_of_lists([5, 3], [5, 3, 1], [[3, 2], [1, 2]], [[3, 2], [2, 1]]), 3)
    0.959
    """
    got = _frequencies(listed)
    if not len(urls) == len(ideal_urls) == len(got):
        raise UsageError("every listed query needs its list of URLs", fix="Give one list per query")
    best = np.sort(_frequencies(ideal))[::-1][: len(got)]
    total = best.sum()
    if not total:
        return 0.0
    inner = np.array([ndcg(own, top) for own, top in zip(urls, ideal_urls, strict=True)])
    return _discounted((np.exp2(got / total) - 1) * inner) / discounted_gain(best / total)


def rank_based_ndcg(true_ranks: npt.ArrayLike) -> float:
    """Return the NDCG of a list by the distance between ranks, after Qin et al.

    Args:
        true_ranks: The true rank (1, 2, ...) of each listed item, in the estimated order.

    >>> rank_based_ndcg([1, 2, 3]), rank_based_ndcg([40, 50, 60])
    (1.0, 0.0)
    """
    given = _frequencies(true_ranks)
    k = len(given)
    if not k:
        return 0.0
    apart = np.abs(given - np.arange(1, k + 1))
    return _discounted(np.log2(1 + np.maximum(k - apart, 0))) / _discounted(np.full(k, np.log2(1 + k)))


def query_scores(listed: IntArray, counts: IntArray) -> tuple[float, float]:
    """Return NDCG and rank-based NDCG of a list of queries.

    Args:
        listed: The numbers of the listed queries, in the estimated order.
        counts: How many users searched for each query.
    """
    top = _largest(counts, len(listed))
    return ndcg(counts[listed], counts[top]), rank_based_ndcg(_ranks(counts, listed))


def list_scores(
    truth: Truth, records: IntArray, shares: FloatArray, query_shares: FloatArray | None = None
) -> ListScores:
    """Compare a list of estimated records with the truth. The answer must not be published.

    Args:
        truth: The true counts.
        records: The numbers of the listed records among the true ones, in any order, the wildcard left out.
        shares: Their estimated shares of all users.
        query_shares: A direct estimate for each query number; by default the sum of its records' shares.
    """
    if records.shape != shares.shape or len(set(records.tolist())) != len(records):
        raise UsageError("a list needs different records and a share for each", fix="List each record once")
    counts, actual = truth.queries, truth.count[records] / truth.users
    order = np.argsort(-shares, kind="stable")
    of_query = truth.query[records]
    summed = np.bincount(of_query, weights=shares, minlength=len(counts)).astype(np.float64)
    queries = np.unique(of_query)
    queries = queries[np.argsort(-(summed if query_shares is None else query_shares)[queries], kind="stable")]
    plain, by_rank = query_scores(queries, counts)
    # The records of each query, to find the best URLs there are.
    by_query = np.argsort(truth.query, kind="stable")
    starts = np.searchsorted(truth.query[by_query], queries)
    ends = np.searchsorted(truth.query[by_query], queries, side="right")
    urls = [truth.count[records[order[of_query[order] == query]]] for query in queries]
    best_urls = [truth.count[by_query[start:end]] for start, end in zip(starts, ends, strict=True)]
    top = _largest(counts, len(queries))
    return ListScores(
        ndcg=ndcg_of_lists(counts[queries], counts[top], urls, best_urls),
        ndcg_queries=plain,
        ndcg_records=ndcg(truth.count[records[order]], truth.count[_largest(truth.count, len(records))]),
        ndcg_rank_based=by_rank,
        l1=float(np.abs(shares - actual).sum()),
        l1_rescaled=float(np.abs(_rescaled(shares) - _rescaled(actual)).sum()),
        hit_rate=float(actual.sum()),
        records=len(records),
        queries=len(queries),
    )


def _discounted(gains: FloatArray) -> float:
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


def _frequencies(given: npt.ArrayLike) -> FloatArray:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise UsageError("true frequencies and ranks are numbers from 0 on", fix="Give one list of them")
    return values


def _largest(counts: IntArray, k: int) -> IntArray:
    """Return the places of the k largest counts, in any order."""
    if not 0 < k < len(counts):
        return np.arange(min(k, len(counts)))
    return np.argpartition(counts, len(counts) - k)[len(counts) - k :]


def _ranks(counts: IntArray, listed: IntArray) -> IntArray:
    """Return true ranks; of equally frequent items the one with the smaller number comes first."""
    places = np.empty(len(counts), dtype=np.int64)
    places[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
    return places[listed]


def _rescaled(shares: FloatArray) -> FloatArray:
    total = shares.sum()
    scaled: FloatArray = shares / total if total > 0 else np.zeros_like(shares)
    return scaled
