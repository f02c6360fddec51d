"""The selectors that select first and count the released queries again, as the registry knows them.

A release has two random parts: which queries come out, and their counts with fresh noise. Where the cap is applied
again to the released queries, the engine is asked once for every set of queries that can come out.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of
from hushquery.curator.mechanisms import (
    QUERIES,
    Key,
    LogMechanism,
    Rows,
    Thresholded,
    crowd,
    exact_counts,
    log_of,
    numbered,
    passing_bit,
    passing_runs,
    query_keys,
    query_pairs,
    searcher,
    selector_for,
)
from hushquery.curator.select import QUERY, Korolova, Optimal, Selector, count_released
from hushquery.curator.weighted import Weighted
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import add_noise, noisy_law, product_law
from hushquery.noise.sampler import IntArray, sampler
from hushquery.privacy.loss import Loss
from hushquery.privacy.registry import SUPPRESSED, Pair

__all__ = ["KorolovaSelector", "OptimalSelector", "WeightedSelector"]

BoolArray = npt.NDArray[np.bool_]
S = TypeVar("S", bound=Selector)


@dataclass(frozen=True)
class _Counting(LogMechanism):
    """Select, then count what was released with fresh noise; 1 for each released query where there are no counts."""

    selector: Selector
    keys: tuple[Key, ...] = query_keys(*QUERIES)
    bound: Bound = field(default=Bound())

    @property
    def loss(self) -> Loss:
        """What both steps cost."""
        total = Loss()
        for step in self.selector.steps():
            total += step.parameters.loss
        return total

    @abstractmethod
    def chosen(self, world: Rows, n: int, bits: Bits) -> BoolArray:
        """Select ``n`` times; a row per time, a column per query."""

    @abstractmethod
    def chances(self, world: Rows) -> Sequence[float]:
        """Give the chance of each query to be selected."""

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count, or weigh, for the selection."""
        asked = self.selector.expressions(log_of(world), self.bound)
        return exact_counts(next(iter(asked.values())), self.keys, QUERY)

    def recount(self, world: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """Count users per released query, the cap applied to released queries only."""
        queries = numbered([query for (query,) in released])
        most = self.selector.queries_per_user
        return exact_counts(count_released(log_of(world), self.bound, queries, most), released, QUERY)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Select and count, ``n`` times."""
        chosen = self.chosen(world, n, bits)
        out = np.where(chosen, np.int64(1), np.int64(SUPPRESSED))
        if self.selector.counts is None:
            return out
        which = chosen @ (1 << np.arange(len(self.keys)))
        for pattern in np.unique(which[which > 0]).tolist():
            rows = np.flatnonzero(which == pattern)
            columns = np.flatnonzero([pattern >> i & 1 for i in range(len(self.keys))])
            counts = _recounted(self, world, tuple(self.keys[i] for i in columns))
            out[np.ix_(rows, columns)] = add_noise(counts, len(rows), law_of(self.selector.counts), bits)
        return out

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate what is released."""
        out: dict[tuple[int, ...], float] = {}
        chances = self.chances(world)
        for pattern in itertools.product((False, True), repeat=len(self.keys)):
            chance = float(np.prod([p if yes else 1 - p for p, yes in zip(chances, pattern, strict=True)]))
            if chance:
                for outcome, p in product_law(self._given(world, pattern)).items():
                    out[outcome] = chance * p
        return out

    def _given(self, world: Rows, pattern: Sequence[bool]) -> list[dict[tuple[int, ...], float]]:
        """Give the law of each column once it is known which queries come out."""
        noise = self.selector.counts
        released = tuple(key for key, yes in zip(self.keys, pattern, strict=True) if yes)
        counts = iter(_recounted(self, world, released) if noise and released else ())
        out: list[dict[tuple[int, ...], float]] = []
        for yes in pattern:
            if not yes:
                out.append({(SUPPRESSED,): 1.0})
            else:
                out.append(noisy_law(next(counts), law_of(noise)) if noise else {(1,): 1.0})
        return out

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared with a crowd about the threshold, or more than the cap."""
        around = int(self.selector.threshold)
        return query_pairs(around, around)


@lru_cache(maxsize=1024)
def _recounted(mechanism: _Counting, world: Rows, released: tuple[Key, ...]) -> tuple[int, ...]:
    return mechanism.recount(world, released)


class _Passing(_Counting):
    """A selection by noisy counts, or sums of weights, and a threshold."""

    @property
    @abstractmethod
    def threshold_step(self) -> Thresholded:
        """The noise and the threshold of the selection."""

    def chosen(self, world: Rows, n: int, bits: Bits) -> BoolArray:
        """Draw noise for every query that somebody holds."""
        passed: BoolArray = passing_runs(self.counts(world), self.threshold_step, n, bits) != SUPPRESSED
        return passed

    def chances(self, world: Rows) -> Sequence[float]:
        """The chance that noise lifts a count to the threshold; none for what nobody holds."""
        return [passing_bit(count, self.threshold_step).get((1,), 0.0) for count in self.counts(world)]


@dataclass(frozen=True)
class KorolovaSelector(_Passing):
    """Algorithm 1 of Korolova et al. 2009 on two searches per user, counts with their own noise.

    **Guarantee:** epsilon_alg and the larger of delta_alg and the exact delta, for one user, add-remove
    (docs/proofs/korolova2009.md).
    **Estimator:** the count of a released query is unbiased given its release, because its noise is fresh; which
    queries are released depends on their counts.

    >>> f"{KorolovaSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.2f}"
    '32.30'
    """

    name: ClassVar[str] = "korolova2009"
    summary: ClassVar[str] = "Algorithm 1 of Korolova et al. 2009 on the queries of a log"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> KorolovaSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("korolova2009", epsilon, delta))

    @property
    def threshold_step(self) -> Thresholded:
        """The selection of Theorem 1."""
        return _own(self.selector, Korolova).theorem.step()

    def recount(self, world: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """Algorithm 1 publishes the counts that it selected with."""
        return tuple(count for key, count in zip(self.keys, self.counts(world), strict=True) if key in released)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Also a user who poses one new query as often as the cap allows, and oftener."""
        others = crowd(int(self.selector.threshold), "ant")
        # Two clicks on a search repeat its row; it stays one search.
        often = (*searcher("zoe", "bee", "bee"), *searcher("zoe", "bee", "bee", "bee", "ant"))
        return [
            Pair("a user who poses one query again and again", others, others + often),
            *super().pairs(),
        ]


@dataclass(frozen=True)
class OptimalSelector(_Counting):
    """The best possible coin per query at (epsilon/d, delta/d), two queries per user, then counts with Laplace noise.

    **Guarantee:** the selection is (d epsilon', d delta') for one user, add-remove, and the counts pure d/b; the sum is
    within the budget (docs/proofs/optimal.md).
    **Estimator:** the count of a released query is unbiased for the capped count given what is released.
    **Reference:** Desfontaines, Voss, Gipson and Mandayam 2022.

    >>> OptimalSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold
    31.0
    """

    name: ClassVar[str] = "optimal"
    summary: ClassVar[str] = "queries of a log by the best possible coin, then counts with Laplace noise"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> OptimalSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("optimal", epsilon, delta))

    def chosen(self, world: Rows, n: int, bits: Bits) -> BoolArray:
        """Toss each query's coin."""
        out = np.zeros((n, len(self.keys)), dtype=np.bool_)
        for column, count in enumerate(self.counts(world)):
            coin = _own(self.selector, Optimal).coin(count)
            out[:, column] = coin.sf(0) == 1 if coin.certain else sampler(coin).draw(n, bits) == 1
        return out

    def chances(self, world: Rows) -> Sequence[float]:
        """The coins' chances."""
        return [float(_own(self.selector, Optimal).coin(count).sf(0)) for count in self.counts(world)]

    def pairs(self) -> Sequence[Pair[Rows]]:
        """The crowd is where the coin's chance still grows by its largest factor."""
        around = int(self.selector.threshold)
        return query_pairs(around, max(1, around - 2))


@dataclass(frozen=True)
class WeightedSelector(_Passing):
    """Weights 1/sqrt(t) with rounded Gaussian noise and a threshold, then counts; at most two queries per user.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 + d/sigma_c^2, beside the threshold's delta, for one user, add-remove
    (docs/proofs/weights.md).
    **Estimator:** the count of a released query is unbiased for the capped count given what is released.
    **Reference:** Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020.

    >>> f"{WeightedSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.1f}"
    '22.7'
    """

    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "queries of a log by weights with rounded Gaussian noise, then counts"
    # Of the noisy sums only one bit each is published, so less is lost than two Gaussian steps would.
    tight: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> WeightedSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("weighted", epsilon, delta))

    @property
    def threshold_step(self) -> Thresholded:
        """The noisy sums of weights."""
        return _own(self.selector, Weighted).selection

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Also a user with a single query, whose whole weight is on it."""
        others = crowd(int(self.selector.threshold) // 2, "ant")
        return [
            Pair("a user alone with one query", (), searcher("zoe", "ant")),
            Pair("a user with one shared query", others, others + searcher("zoe", "ant")),
            *super().pairs(),
        ]


def _own(selector: Selector, kind: type[S]) -> S:
    if not isinstance(selector, kind):
        raise TypeError(selector)
    return selector
