"""Estimate the clients' shares of the head records from their reports, with variances and covariances.

``best`` mode has M + 1 cells, the head records and one wildcard; ``paper`` mode has the cells of two-stage response.
Variances are those of n clients drawn at random (docs/proofs/blend.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hushquery.core.budget import Number
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.intervals import FloatArray, IntArray
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import Oracle

#: A (query, URL) pair of a head list.
Record = tuple[str, str]


class TwoStageCells:
    """The cells of head records in ``paper`` mode: query by query, ``<q, *>`` after q's URLs, ``<*, *>`` last.

    >>> cells = TwoStageCells([("cat", "a.example"), ("dog", "c.example"), ("cat", "b.example")])
    >>> cells.k, cells.queries, cells.urls, cells.record_cells.tolist(), cells.other_cells.tolist()
    (6, ('cat', 'dog'), (2, 1), [0, 3, 1], [2, 4])
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = tuple((query, url) for query, url in records)
        if len(set(self.records)) != len(self.records):
            raise UsageError("the head list names a record twice", fix="Keep one of the two")
        self.queries = tuple(dict.fromkeys(query for query, _ in self.records))
        number = {query: i for i, query in enumerate(self.queries)}
        #: The number of each record's query.
        self.query_of: IntArray = np.array([number[query] for query, _ in self.records], dtype=np.int64)
        self.urls = tuple(np.bincount(self.query_of, minlength=len(self.queries)).tolist())
        self.k = len(self.records) + len(self.queries) + 1
        starts = np.concatenate([[0], np.cumsum(np.array(self.urls, dtype=np.int64) + 1)]).astype(np.int64)
        following = starts[:-1].copy()
        #: The cell of each record, and that of each query's ``<q, *>``.
        self.record_cells: IntArray = np.zeros(len(self.records), dtype=np.int64)
        self.other_cells: IntArray = starts[1:] - 1
        for place, query in enumerate(self.query_of.tolist()):
            self.record_cells[place] = following[query]
            following[query] += 1

    def randomizer(self, epsilon: Number, query_share: Number = "0.85") -> TwoStage:
        """Calibrate two-stage response over these cells; ``query_share`` is f_C."""
        return TwoStage.calibrate(self.urls, epsilon, query_share=query_share)


class ClientShares(ABC):
    """The clients' raw, unbiased shares of the head records (``values``) from ``n`` reports, and how they vary.

    **Guarantee:** post-processing of reports, each epsilon-DP under replace-one for its client; costs nothing more.
    """

    n: int
    values: FloatArray
    records_per_user: int

    @property
    @abstractmethod
    def variances(self) -> FloatArray:
        """The unbiased estimate of each share's variance, from the reports alone; for the paper's weights."""

    @abstractmethod
    def variance_at(self, p: FloatArray) -> FloatArray:
        """Return each share's variance if the true shares of the head records were ``p``."""

    @abstractmethod
    def variance_of_sum(self, weights: FloatArray, p: FloatArray) -> float:
        """Return the variance of the sum of weight times share, with every covariance."""

    @abstractmethod
    def covariance_at(self, p: FloatArray, rows: slice) -> FloatArray | None:
        """Return the covariances of some shares (rows) with all shares (columns); None where they are not known."""

    # At worst a client's m records are equal: sampling then varies m times as much, and randomisation no more.

    def _equal_records(self, p: FloatArray) -> FloatArray:
        p = np.clip(p, 0.0, 1.0)
        return (self.records_per_user - 1) / self.n * p * (1 - p)

    def _equal_records_in_sum(self, weights: FloatArray, p: FloatArray) -> float:
        return (self.records_per_user - 1) / self.n * max(0.0, float(weights**2 @ p - (weights @ p) ** 2))


@dataclass(frozen=True, eq=False)
class FlatShares(ClientShares):
    """Shares from a frequency oracle over M + 1 cells: (c/n - q)/(p - q).

    Variance r(1-r)/(n(p-q)^2), r = q + share (p - q), plus at most (m-1) share (1-share)/n for m reports per client.
    Covariances are exact, except for olh, where sums are averaged over seeds.
    """

    oracle: Oracle
    support: IntArray  #: how many reports speak for each of the M + 1 cells
    n: int  #: the number of reports
    records_per_user: int = 1  #: m, how many of them are of one client

    def __post_init__(self) -> None:
        _checked_support(self.support, self.n, self.oracle.k)
        if self.oracle.p <= self.oracle.q:
            raise CalibrationError(
                "these chances tell nothing about the record",
                why="the truth is no likelier than any other answer",
                fix="Use a client epsilon above 0",
            )

    @cached_property
    def values(self) -> FloatArray:  # type: ignore[override]
        """The share of each head record."""
        return self.oracle.frequencies(self.support, self.n)[0][:-1]

    @property
    def variances(self) -> FloatArray:
        """r(1-r)/((n-1)(p-q)^2) at the shares r of reports that were seen."""
        r = self.support[:-1] / self.n
        return r * (1 - r) / (max(self.n - 1, 1) * self._chances[1] ** 2)

    def variance_at(self, p: FloatArray) -> FloatArray:
        """r(1-r)/(n(p-q)^2) + (m-1) p(1-p)/n."""
        r, gap = self._rates(p)
        return r * (1 - r) / (self.n * gap**2) + self._equal_records(p)

    def variance_of_sum(self, weights: FloatArray, p: FloatArray) -> float:
        """The quadratic form of the exact covariances, in time linear in M."""
        p = at_most_one(p)
        r, gap = self._rates(p)
        if isinstance(self.oracle, OLH):
            every = np.append(p, max(0.0, 1 - p.sum()))
            of_one = _hashed_variance(self.oracle, np.append(weights, 0.0), every)
            return of_one / (self.n * gap**2) + self._equal_records_in_sum(weights, p)
        own, other = joint_chances(self.oracle)
        total = float(weights.sum())
        crossed = other * total**2 + 2 * (own - other) * float(weights @ p) * total - float(weights @ r) ** 2
        # The diagonal of that is not a variance: put the right one in its place.
        diagonal = r * (1 - r) - (other + 2 * (own - other) * p - r**2)
        independent = max(0.0, (crossed + float(weights**2 @ diagonal)) / (self.n * gap**2))
        return independent + self._equal_records_in_sum(weights, p)

    def covariance_at(self, p: FloatArray, rows: slice) -> FloatArray | None:
        """Off the diagonal other + (own - other)(p_i + p_j) - r_i r_j, over n(p-q)^2."""
        if isinstance(self.oracle, OLH) or self.records_per_user > 1:
            return None
        p = at_most_one(p)
        r, gap = self._rates(p)
        own, other = joint_chances(self.oracle)
        out: FloatArray = other + (own - other) * np.add.outer(p[rows], p) - np.multiply.outer(r[rows], r)
        some = np.arange(len(p))[rows]
        out[np.arange(len(some)), some] = r[some] * (1 - r[some])
        return out / (self.n * gap**2)

    def _rates(self, p: FloatArray) -> tuple[FloatArray, float]:
        least, gap = self._chances
        return least + np.clip(p, 0.0, 1.0) * gap, gap

    @cached_property
    def _chances(self) -> tuple[float, float]:
        """Both q and p - q: the exact fractions are slow, and intervals ask many times."""
        return float(self.oracle.q), float(self.oracle.p - self.oracle.q)


def joint_chances(oracle: Oracle) -> tuple[float, float]:
    """Return the chances that a report supports two given cells: one of them the client's own, and neither."""
    p, q = float(oracle.p), float(oracle.q)
    if isinstance(oracle, KRR):
        return 0.0, 0.0
    if isinstance(oracle, OUE | Hadamard):  # independent bits; rows of a Hadamard matrix agree in half of the places
        return p * q, q * q
    if isinstance(oracle, SubsetSelection):
        k, size = oracle.k, oracle.omega
        own = p * (size - 1) / (k - 1)
        pairs = (p * (size - 1) * (size - 2) + (1 - p) * size * (size - 1)) / ((k - 1) * (k - 2)) if k > 2 else 0.0
        return own, pairs
    raise UsageError(
        f"two cells of {oracle.name} reports have no such chances",
        why="they are not the same for all cells",
        fix="Ask for the variance of a sum",
    )


@dataclass(frozen=True, eq=False)
class TwoStageShares(ClientShares):
    """Shares from two-stage reports: linear in multinomial shares of reports, so every covariance is exact.

    Corrected Theorem 5 (docs/proofs/two-stage.md), plus (m-1) share (1-share)/n for m reports per client.
    """

    cells: TwoStageCells
    oracle: TwoStage
    support: IntArray  #: how many reports name each cell
    n: int  #: the number of reports
    records_per_user: int = 1  #: m, how many of them are of one client

    def __post_init__(self) -> None:
        if self.oracle.urls != self.cells.urls:
            raise UsageError("this randomizer is not of this head list", fix="Load the head list the clients used")
        _checked_support(self.support, self.n, self.oracle.k)
        if self.support.sum() > self.n:
            raise DataError("the cells name more reports than there are", fix="Count the reports again")
        if self.cells.records:
            self.oracle.channel()

    @cached_property
    def values(self) -> FloatArray:  # type: ignore[override]
        """The share of each head record."""
        return self.oracle.frequencies(self.support, self.n)[0][self.cells.record_cells]

    @property
    def variances(self) -> FloatArray:
        """Theorem 5, corrected (docs/proofs/two-stage.md)."""
        variances: FloatArray = self.oracle.frequencies(self.support, self.n)[1][self.cells.record_cells] ** 2
        return variances

    @cached_property
    def query_values(self) -> FloatArray:
        """The direct share of each query, from the first stage alone."""
        return self.oracle.query_frequencies(self.support, self.n)[0][: len(self.cells.queries)]

    def variance_at(self, p: FloatArray) -> FloatArray:
        """Corrected Theorem 5 for each record."""
        if not self.cells.records:
            return np.zeros(0)
        a, inside, outside, d = self.oracle.channel()
        r, c = self._report_shares(p), outside - inside
        of_query = np.repeat(np.add.reduceat(r, self.oracle.starts), self.oracle.sizes)
        spread = r * (1 - r) + c**2 * of_query * (1 - of_query) / a**2 + 2 * c / a * r * (1 - of_query)
        variances: FloatArray = np.maximum(spread, 0.0) / (self.n * d**2)
        return (variances + self._equal_records(self._cell_shares(p)))[self.cells.record_cells]

    def variance_of_sum(self, weights: FloatArray, p: FloatArray) -> float:
        """The variance of a linear function of multinomial shares, in time linear in the cells."""
        if not self.cells.records:
            return 0.0
        place, factor, shared = self._coefficients()
        slopes = np.zeros(self.oracle.k)
        slopes[place] = weights * factor
        per_query = np.bincount(self.cells.query_of, weights * shared, len(self.cells.queries) + 1)
        slopes += np.repeat(per_query, self.oracle.sizes)
        r = self._report_shares(p)
        independent = max(0.0, float(slopes**2 @ r - (slopes @ r) ** 2) / self.n)
        return independent + self._equal_records_in_sum(weights, at_most_one(p))

    def covariance_at(self, p: FloatArray, rows: slice) -> FloatArray | None:
        """Cov(p_i, p_j) = (sum over cells of g_ic g_jc r_c - m_i m_j)/n with the slopes g and means m = sum g r."""
        if self.records_per_user > 1:
            return None
        place, factor, shared = self._coefficients()
        if not self.cells.records:
            return np.zeros((0, 0))
        report_shares = self._report_shares(p)
        of_query = np.add.reduceat(report_shares, self.oracle.starts)[self.cells.query_of]
        own = report_shares[place] * factor
        mean = own + shared * of_query
        same = np.equal.outer(self.cells.query_of[rows], self.cells.query_of)
        crossed = (
            np.multiply.outer(own[rows], shared)
            + np.multiply.outer(shared[rows], own)
            + np.multiply.outer(shared[rows], shared) * of_query[rows][:, None]
        )
        out: FloatArray = np.where(same, crossed, 0.0) - np.multiply.outer(mean[rows], mean)
        some = np.arange(len(place))[rows]
        out[np.arange(len(some)), some] += own[some] * factor[some]
        return out / self.n

    def _coefficients(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return each record's cell, and the slopes of its share in the cell's reports and in all of its query's."""
        place = self.cells.record_cells
        if not len(place):
            return place, np.zeros(0), np.zeros(0)
        a, inside, outside, d = self.oracle.channel()
        return place, 1 / d[place], (outside - inside)[place] / (d[place] * a)

    def _cell_shares(self, p: FloatArray) -> FloatArray:
        """Fill in what the head records' shares leave open: a query has what clients say directly, or more."""
        queries = len(self.cells.queries)
        p = np.clip(p, 0.0, 1.0)
        of_records = np.bincount(self.cells.query_of, p, queries)
        totals = np.maximum(np.clip(self.query_values, 0.0, 1.0), of_records)
        out = np.zeros(self.oracle.k)
        out[self.cells.record_cells] = p
        out[self.cells.other_cells] = totals - of_records
        out[-1] = max(0.0, 1 - totals.sum())
        filled: FloatArray = out / out.sum()
        return filled

    def _report_shares(self, p: FloatArray) -> FloatArray:
        """Send these shares through the channel."""
        _, inside, outside, d = self.oracle.channel()
        cell_shares = self._cell_shares(p)
        of_query = np.repeat(np.add.reduceat(cell_shares, self.oracle.starts), self.oracle.sizes)
        r: FloatArray = d * cell_shares + inside * of_query + outside * (1 - of_query)
        return r


def _checked_support(support: IntArray, n: int, k: int) -> None:
    if n < 1:
        raise DataError("there are no reports", fix="Wait for the clients' reports")
    if len(support) != k or (support < 0).any() or (support > n).any():
        raise DataError("the counts do not fit the reports", fix="Count the reports again, over the cells of this list")


def at_most_one(p: FloatArray) -> FloatArray:
    """Bring shares to those of one whole: covariances of anything else would be of nothing."""
    p = np.clip(p, 0.0, 1.0)
    scaled: FloatArray = p / max(1.0, float(p.sum()))
    return scaled


# ---- sums of cells under local hashing -----------------------------------------------------------------------------

# The hash (a x + b) mod P is independent on two cells but not on three, so a sum of 50 cells can vary twice as much as
# independence implies. Average over a fixed lattice of seeds: within 1% for a query's cells, 10% for a list's.

# At most so many seeds, and so many entries of the tables made for them.
_SEEDS = 1 << 14
_ENTRIES = 1 << 23
# The steps of a lattice that fills the unit square evenly: 1/x and 1/x^2 for x^3 = x + 1 (Roberts 2018, R2).
_LATTICE = (0.7548776662466927, 0.5698402909980532)


def _hashed_variance(oracle: OLH, weights: FloatArray, shares: FloatArray) -> float:
    """Return the variance of the sum of the weights of the cells that one report speaks for; both have k cells."""
    buckets, rates = _hash_tables(oracle, shares.tobytes())
    seeds, some = len(buckets), np.flatnonzero(weights)
    chosen = buckets[:, some].ravel()
    spoken = float(oracle.q) + float(oracle.p - oracle.q) * shares
    sums = np.bincount(chosen, np.tile(weights[some], seeds), len(rates)) - weights @ spoken
    squares = np.bincount(chosen, np.tile(weights[some] ** 2, seeds), len(rates))
    # What is known exactly, that of single cells, takes the place of what the lattice says of it.
    return max(0.0, float(rates @ (sums**2 - squares) / seeds + weights**2 @ spoken))


@lru_cache(maxsize=2)
def _hash_tables(oracle: OLH, packed_shares: bytes) -> tuple[IntArray, FloatArray]:
    """Return each cell's place among all seeds' buckets, and each bucket's chance to be reported under its seed."""
    shares, p = np.frombuffer(packed_shares, dtype=np.float64), float(oracle.p)
    lie = (1 - p) / (oracle.g - 1)
    seeds = max(16, min(_SEEDS, _ENTRIES // (oracle.k + oracle.g)))
    spots = [np.floor(oracle.prime * ((np.arange(seeds) + 0.5) * step % 1)).astype(np.int64) for step in _LATTICE]
    slope, begin = (np.minimum(spot, oracle.prime - 1)[:, None] for spot in spots)
    hashes = (slope * np.arange(oracle.k) + begin) % oracle.prime
    buckets: IntArray = hashes * oracle.g // oracle.prime + np.arange(seeds)[:, None] * oracle.g
    inside: FloatArray = np.bincount(buckets.ravel(), np.tile(shares, seeds), seeds * oracle.g).astype(np.float64)
    return buckets, lie + (p - lie) * inside
