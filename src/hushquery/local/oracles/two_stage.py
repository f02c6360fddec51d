"""Two-stage randomised response over (query, URL) records: first the query, then the URL given the query.

This is LocalAlg of BLENDER (Avent et al. 2017) without its delta, which buys nothing, and with the corrected variance
of docs/proofs/two-stage.md. ``<q, *>`` stands for a query's other URLs, ``<*, *>`` for all other queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, exact
from hushquery.errors import CalibrationError, UsageError
from hushquery.local.intervals import (
    FloatArray,
    IntArray,
    clustered_interval,
    largest_variance,
    linear_interval,
    rate_interval,
)
from hushquery.local.oracles.krr import CellReports, lie_chance, respond
from hushquery.local.randomizer import (
    ONE,
    Answer,
    check_reports,
    check_truth,
    checked_cells,
    checked_epsilon,
    loss_of_ratio,
)
from hushquery.noise.sampler import Bits, below

# In tight mode the URL stage's epsilon is one of so many parts of the whole.
_PARTS = 64


@dataclass(frozen=True)
class TwoStage(CellReports):
    """Two-stage k-RR. Cells are numbered query by query: its URLs, then its ``*``; ``<*, *>`` is the last.

    ``urls`` are the known URLs of each query; ``query_lie`` is the chance of each other query and ``url_lies`` that of
    each other URL, by the number of URLs (with ``*``), over 2^53.

    >>> tight = TwoStage.calibrate([1] * 50, 4, mode="tight")
    >>> tight.k, round(tight.variance(0), 3), round(float(tight.epsilon), 3)
    (101, 0.054, 4.0)
    """

    urls: tuple[int, ...]
    query_lie: int
    url_lies: tuple[tuple[int, int], ...]
    k: int = field(init=False)

    name: ClassVar[str] = "two-stage"

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", sum(self.urls) + len(self.urls) + 1)
        if [size for size, _ in self.url_lies] != sorted({count + 1 for count in self.urls if count}):
            raise UsageError(
                "url_lies has one chance for each number of URLs that a query has, in ascending order",
                fix="Calibrate the randomizer from an epsilon",
            )
        if self.urls:
            check_truth(self._query_truth, self.query_lie)
        for size, lie in self.url_lies:
            check_truth(ONE - (size - 1) * lie, lie)

    @classmethod
    def calibrate(
        cls,
        urls: Sequence[int],
        epsilon: Number,
        *,
        mode: Literal["paper", "tight"] = "paper",
        query_share: Number = "0.85",
    ) -> TwoStage:
        """Choose the chances of both stages.

        ``paper`` splits epsilon by ``query_share`` (f_C) and leaves some unused; ``tight`` uses all, at the best split.
        """
        wanted, counts = checked_epsilon(epsilon), tuple(urls)
        if not all(type(count) is int and count >= 0 for count in counts):
            raise UsageError("urls lists how many URLs each query has", fix="Use whole numbers, 0 or more")
        checked_cells(sum(counts) + len(counts) + 1, least=1)
        if not counts:
            return cls((), 0, ())
        if mode == "paper":
            share = exact(query_share, "the query's share of epsilon")
            if not 0 < share < 1:
                raise UsageError("the query's share of epsilon lies between 0 and 1", fix="Give for example 0.85")
            url_lies = _url_lies(counts, wanted * (1 - share))
            return cls(counts, lie_chance(len(counts) + 1, wanted * share), url_lies)
        if mode != "tight":
            raise UsageError(f"no mode of two-stage response is called {mode!r}", fix="Give paper or tight")
        built = []
        for part in range(1, _PARTS + 1):
            try:
                built.append(cls.tight(counts, wanted, wanted * part / _PARTS))
            except CalibrationError:  # this split leaves nothing for the query
                continue
        if not built:
            raise CalibrationError("no split of epsilon leaves something for the query", fix="Give a larger epsilon")
        return min(built, key=lambda oracle: oracle.rare_variance)

    @classmethod
    def tight(cls, counts: tuple[int, ...], epsilon: Fraction, url_epsilon: Fraction) -> TwoStage:
        """Calibrate with this much for the URL stage, and all that it leaves of epsilon for the query."""
        url_lies = _url_lies(counts, url_epsilon)
        # eps_Q = eps - ln max(k_q t_q), rounded down.
        largest = max((size * (ONE - (size - 1) * lie) for size, lie in url_lies), default=ONE)
        query_epsilon = epsilon - loss_of_ratio(max(largest, ONE), ONE)
        if query_epsilon <= 0:
            raise CalibrationError("the URL stage leaves no epsilon for the query", fix="Give it a smaller epsilon")
        lie = lie_chance(len(counts) + 1, query_epsilon)
        while (oracle := cls(counts, lie, url_lies)).epsilon > epsilon:
            lie += 1
        return oracle

    @property
    def queries(self) -> int:
        """The number of queries, with ``*``."""
        return len(self.urls) + 1

    @property
    def epsilon(self) -> Fraction:
        """max(eps_U, eps_Q + ln max_q(k_q t_q)) of the integers, rounded up: the exact loss."""
        if not self.urls:
            return Fraction(0)
        worst = Fraction(0)
        for size in set(self.sizes.tolist()):
            truth, lie = self._url_chances(size)
            likeliest = self._query_truth * truth
            # The rarest way to this cell: from another query (a uniform URL), or from another URL of its query.
            worst = max(worst, loss_of_ratio(likeliest * size, self.query_lie * ONE))
            if size > 1:
                worst = max(worst, loss_of_ratio(likeliest, self._query_truth * lie))
        return worst

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> IntArray:
        """Draw a cell for each cell: another query with a uniform URL of it, or another URL, or the truth."""
        cells = self.checked_values(values)
        if not self.urls:
            return cells.copy()
        query = np.searchsorted(self.starts, cells, side="right") - 1
        sent = respond(query, self.queries, self.query_lie, bits)
        url = cells - self.starts[query]
        for size in sorted(set(self.sizes.tolist())):
            moved = np.flatnonzero((self.sizes[sent] == size) & (sent != query))
            stayed = np.flatnonzero((self.sizes[sent] == size) & (sent == query))
            url[moved] = below(bits, size, len(moved))
            if size > 1:
                url[stayed] = respond(url[stayed], size, self._url_chances(size)[1], bits)
        return self.starts[sent] + url

    def law(self, value: int) -> Mapping[Answer, float]:
        """The chance of each cell."""
        if not self.urls:
            return {0: 1.0}
        own = int(np.searchsorted(self.starts, value, side="right")) - 1
        out: dict[Answer, float] = {}
        for query, (start, size) in enumerate(zip(self.starts.tolist(), self.sizes.tolist(), strict=True)):
            truth, lie = self._url_chances(size)
            for cell in range(start, start + size):
                if query != own:
                    out[cell] = self.query_lie / ONE / size
                else:
                    out[cell] = self._query_truth / ONE * ((truth if cell == value else lie) / ONE)
        return out

    def frequencies(self, support: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
        """Invert the channel, query by query and then URL by URL, with the corrected variance."""
        if not self.urls:
            return np.ones(1), np.zeros(1)
        share = support / n
        query_share, estimated = self._query_estimates(share)
        a, inside, outside, d = self._channel()
        values = (share - inside * estimated - outside * (1 - estimated)) / d
        variances = self._spread(share, query_share, a, outside - inside, d) / max(n - 1, 1)
        return values, np.sqrt(np.maximum(variances, 0.0))

    def interval(
        self, support: IntArray, n: int, level: float, *, records: int = 1, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return each cell's interval, from two counts of one multinomial: the cell's, and the others of its query."""
        if not self.urls:
            return np.ones(1), np.ones(1)
        a, inside, outside, d = self._channel()
        together = np.repeat(np.add.reduceat(support, self.starts), self.sizes)
        alone = np.repeat(self.sizes, self.sizes) == 1
        shared = (outside - inside) / (d * a)
        wider = None if repeats == 1 else lambda rate: np.full_like(rate, repeats)
        parts = []
        for counts, slope in ((support, 1 / d + shared), (together - support, np.where(alone, 0.0, shared))):
            low, high = rate_interval(counts, n, level, wider)
            ends = np.stack([slope * low, slope * high])
            parts.append((slope * counts / n, ends.min(axis=0), ends.max(axis=0)))
        own, rest = np.clip(support / n, 0.5 / n, 1 - 0.5 / n), np.clip((together - support) / n, 0.5 / n, 1 - 0.5 / n)
        correlation = -np.sign((1 / d + shared) * shared) * np.sqrt(own * rest / ((1 - own) * (1 - rest)))
        low, high = linear_interval(parts, np.clip(correlation, -1.0, 1.0))
        value = self.frequencies(support, n)[0]
        moved = value - (parts[0][0] + parts[1][0])
        return clustered_interval(value, low + moved, high + moved, level, repeats * (records - 1) / n)

    def query_frequencies(self, support: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
        """Estimate the unbiased frequency of each query (the last is ``*``) and its standard error."""
        if not self.urls:
            return np.ones(1), np.zeros(1)
        share, estimated = self._query_estimates(support / n)
        first = self.starts
        a = self._channel()[0]
        errors = np.sqrt(share[first] * (1 - share[first]) / max(n - 1, 1)) / a
        return estimated[first], errors

    def variance(self, cell: int, frequency: float = 0.0, query_frequency: float | None = None, n: int = 1) -> float:
        """Compute the variance of a cell's estimate from ``n`` clients drawn at random, by both true shares."""
        if not self.urls:
            return 0.0
        of_query = frequency if query_frequency is None else query_frequency
        a, inside, outside, d = self._channel()
        base = (1 - self.t) / (self.queries - 1)
        query_share = np.array([base + a * of_query])
        one = slice(cell, cell + 1)
        share = d[one] * frequency + inside[one] * of_query + outside[one] * (1 - of_query)
        return float(self._spread(share, query_share, a, outside[one] - inside[one], d[one])[0]) / n

    def expected_errors(self, reports: int) -> tuple[float, float]:
        """Compute the standard errors of a rare record and of the worst one, over the share of its query too."""
        check_reports(reports)
        # One cell for each size of a query: those of one size are alike. The last, everything else, is not rare.
        cells = dict(zip(self.sizes.tolist()[:-1], self.starts.tolist()[:-1], strict=True))
        rare = max((self.variance(cell) for cell in cells.values()), default=0.0)
        # The variance is linear in the share of the query, which is the value's or more.
        peaks = (
            largest_variance(self.variance(cell, 0.0, query), self.variance(cell, 1.0, 1.0))
            for size, cell in cells.items()
            for query in ((0.0, 1.0) if size > 1 else (0.0,))
        )
        return math.sqrt(rare / reports), math.sqrt(max(peaks, default=0.0) / reports)

    @property
    def rare_variance(self) -> Fraction:
        """Compute n times the largest variance for a rare record, exactly: all clients must choose the same split."""
        size = max(self.urls) + 1
        truth, lie = (Fraction(chance, ONE) for chance in self._url_chances(size))
        t, base = Fraction(self._query_truth, ONE), Fraction(self.query_lie, ONE)
        a, d, c = t - base, t * (truth - lie), base / size - t * lie
        rest = base * (1 - base)
        return (base / size * (1 - base / size) + (c / a) ** 2 * rest + 2 * c / a * rest / size) / d**2

    def channel(self) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Compute a, and for each cell A, B and D of docs/proofs/two-stage.md; refuses a stage that says nothing."""
        known = [self._url_chances(size) for size, _ in self.url_lies]
        if not (self.urls and self._query_truth > self.query_lie and all(truth > lie for truth, lie in known)):
            raise CalibrationError(
                "these chances tell nothing about the record",
                why="the truth is no likelier than any other answer, so the channel has no inverse",
                fix="Give each stage an epsilon above 0",
            )
        return self._channel()

    def describe(self) -> dict[str, Any]:
        """Name, domain and integers."""
        return {
            "name": self.name,
            "k": self.k,
            "urls": list(self.urls),
            "query_lie": self.query_lie,
            "url_lies": [list(pair) for pair in self.url_lies],
        }

    # ---- the channel: a, A, B, D of docs/proofs/two-stage.md -------------------------------------------------------

    @property
    def t(self) -> float:
        """The chance that the query is kept."""
        return self._query_truth / ONE

    @property
    def _query_truth(self) -> int:
        return ONE - (self.queries - 1) * self.query_lie

    @property
    def sizes(self) -> IntArray:
        """How many cells each query has, its ``*`` among them; 1 for ``<*, *>``."""
        return np.array([count + 1 for count in self.urls] + [1], dtype=np.int64)

    @property
    def starts(self) -> IntArray:
        """The first cell of each query, and that of ``<*, *>``."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def _url_chances(self, size: int) -> tuple[int, int]:
        """Return the chances of the true URL and of each other one; a query with `*` alone always tells the truth."""
        lie = dict(self.url_lies).get(size, 0)
        return ONE - (size - 1) * lie, lie

    def _channel(self) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Compute a, and for each cell A (its query, another URL), B (another query) and D (what the truth adds)."""
        t, k = self.t, self.queries
        sizes, known = np.repeat(self.sizes, self.sizes), dict(self.url_lies)
        lies = np.repeat([known.get(size, 0) / ONE for size in self.sizes.tolist()], self.sizes)
        truths = 1 - (sizes - 1) * lies
        base = (1 - t) / (k - 1)
        return t - base, t * lies, base / sizes, t * (truths - lies)

    def _query_estimates(self, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return, for each cell, the share of reports with its query and the estimate of its query's frequency."""
        of_query = np.repeat(np.add.reduceat(share, self.starts), self.sizes)
        a = self._channel()[0]
        return of_query, (of_query - (1 - self.t) / (self.queries - 1)) / a

    def _spread(self, share: FloatArray, query_share: FloatArray, a: float, c: FloatArray, d: FloatArray) -> FloatArray:
        """Compute n times the variance: of the cell's share, of its query's estimate, and twice their covariance."""
        of_query = query_share * (1 - query_share) / a**2
        spread: FloatArray = (share * (1 - share) + c**2 * of_query + 2 * c / a * share * (1 - query_share)) / d**2
        return spread


def _url_lies(counts: tuple[int, ...], epsilon: Fraction) -> tuple[tuple[int, int], ...]:
    return tuple((count + 1, lie_chance(count + 1, epsilon)) for count in sorted(set(counts)) if count > 0)
