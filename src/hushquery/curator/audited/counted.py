"""The selectors that select first and count the released queries again, as the registry knows them.

A release has two random parts: which queries come out, and their counts with fresh noise. Where the cap is applied
again to the released queries, the engine is asked once for every set of queries that can come out.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hushquery.core.calibration import WEIGHT_GRID
from hushquery.core.registry import SUPPRESSED, Pair
from hushquery.curator.audited.selectors import (
    Key,
    QueryMechanism,
    Rows,
    copies_of,
    crowd,
    exact_counts,
    log_of,
    numbered,
    passing_bit,
    query_pairs,
    rows_of,
    searcher,
    selector_for,
    totals,
)
from hushquery.curator.count import law_of, noisy_on_public_keys
from hushquery.curator.select import QUERY, Korolova, Optimal, count_released
from hushquery.curator.selectors.weighted import Weighted
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import IntArray

__all__ = ["KorolovaSelector", "OptimalSelector", "WeightedSelector"]


class _Counting(QueryMechanism):
    """Select, then count what was released with fresh noise; 1 for each released query where there are no counts."""

    @abstractmethod
    def chance(self, count: int) -> float:
        """Give the chance that a query of some count, or sum of weights, is selected."""

    def ask_again(self, world: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """Count users per released query in the engine, the cap applied to released queries only."""
        queries = numbered([query for (query,) in released])
        most = self.selector.queries_per_user
        return exact_counts(count_released(log_of(world), self.bound, queries, most), released, QUERY)

    def exact_again(self, world: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """The same by the definition."""
        return totals(self.kept(world, released), released)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Select on ``n`` copies of the counts, then count what came out of each."""
        import pyarrow as pa

        out = super().run(world, n, bits)
        if self.selector.counts is None:
            return out
        chosen = out != SUPPRESSED
        counts, which = np.zeros_like(out), chosen @ (1 << np.arange(len(self.keys)))
        for pattern in np.unique(which[which > 0]).tolist():
            columns = np.flatnonzero([pattern >> i & 1 for i in range(len(self.keys))])
            again = _asked_again(self, world, tuple(self.keys[i] for i in columns))
            counts[np.ix_(which == pattern, columns)] = again
        public = pa.table({"query": pa.array(np.flatnonzero(chosen.ravel()), pa.int64())})
        found = noisy_on_public_keys(copies_of(counts), public, QUERY, self.selector.counts, bits)
        return rows_of(found, out.shape)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate what is released."""
        out: dict[tuple[int, ...], float] = {}
        chances = [self.chance(count) if count else 0.0 for count in self.exact(world)]
        for pattern in itertools.product((False, True), repeat=len(self.keys)):
            chance = math.prod(p if yes else 1 - p for p, yes in zip(chances, pattern, strict=True))
            if chance:
                for outcome, p in product_law(self._given(world, pattern)).items():
                    out[outcome] = chance * p
        return out

    def _given(self, world: Rows, pattern: Sequence[bool]) -> list[dict[tuple[int, ...], float]]:
        """Give the law of each column once it is known which queries come out."""
        noise = self.selector.counts
        counts = iter(self.exact_again(world, [key for key, yes in zip(self.keys, pattern, strict=True) if yes]))
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
def _asked_again(mechanism: _Counting, world: Rows, released: tuple[Key, ...]) -> tuple[int, ...]:
    return mechanism.ask_again(world, released)


@dataclass(frozen=True)
class KorolovaSelector(_Counting):
    """Algorithm 1 of Korolova et al. 2009 on two searches per user, counts with their own noise.

    **Guarantee:** epsilon_alg and the larger of delta_alg and the exact delta, for one user, add-remove
    (docs/proofs/korolova2009.md).
    **Estimator:** the count of a released query is unbiased given its release, because its noise is fresh; which
    queries are released depends on their counts.

    >>> f"{KorolovaSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.2f}"
    '32.30'
    """

    selector: Korolova

    name: ClassVar[str] = "korolova2009"
    summary: ClassVar[str] = "Algorithm 1 of Korolova et al. 2009 on the queries of a log"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> KorolovaSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("korolova2009", epsilon, delta))  # type: ignore[arg-type]

    def chance(self, count: int) -> float:
        """The chance that noise lifts a count above K."""
        return passing_bit(count, self.selector.theorem.step())[1,]

    def kept(self, world: Rows, among: Sequence[Key]) -> list[list[Key]]:
        """Give each user's first searches; the same query at another time is another search."""
        mine: dict[str, set[tuple[int, Key]]] = {}
        for user, time, query, _ in world:
            mine.setdefault(user, set()).add((time, (query,)))
        most = self.selector.queries_per_user
        return [[key for _, key in sorted(searches)[:most] if key in among] for searches in mine.values()]

    def ask_again(self, world: Rows, released: Sequence[Key]) -> tuple[int, ...]:
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

    selector: Optimal

    name: ClassVar[str] = "optimal"
    summary: ClassVar[str] = "queries of a log by the best possible coin, then counts with Laplace noise"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> OptimalSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("optimal", epsilon, delta))  # type: ignore[arg-type]

    def chance(self, count: int) -> float:
        """The largest chance that keeps (epsilon', delta') against one user less and more, from none for no user."""
        epsilon, delta = float(self.selector.selection.epsilon), float(self.selector.selection.delta)
        chance = 0.0
        for _ in range(count):
            grown = math.exp(epsilon) * chance + delta
            chance = min(grown, 1 - math.exp(-epsilon) * (1 - chance - delta), 1.0)
        return chance

    def pairs(self) -> Sequence[Pair[Rows]]:
        """The crowd is where the coin's chance still grows by its largest factor."""
        around = int(self.selector.threshold)
        return query_pairs(around, max(1, around - 2))


@dataclass(frozen=True)
class WeightedSelector(_Counting):
    """Weights 1/sqrt(t) with rounded Gaussian noise and a threshold, then counts; at most two queries per user.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 + d/sigma_c^2, beside the threshold's delta, for one user, add-remove
    (docs/proofs/weights.md).
    **Estimator:** the count of a released query is unbiased for the capped count given what is released.
    **Reference:** Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020.

    >>> f"{WeightedSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.1f}"
    '22.7'
    """

    selector: Weighted

    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "queries of a log by weights with rounded Gaussian noise, then counts"
    # Of the noisy sums only one bit each is published, so less is lost than two Gaussian steps would.
    tight: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> WeightedSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("weighted", epsilon, delta))  # type: ignore[arg-type]

    def chance(self, count: int) -> float:
        """The chance that noise lifts a sum of weights to the threshold."""
        return passing_bit(count, self.selector.selection)[1,]

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each of a user's t queries gets floor(64/sqrt(t))."""
        return weighted_totals(self.kept(world, self.keys), self.keys)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """Also a user with a single query, whose whole weight is on it."""
        others = crowd(int(self.selector.threshold) // 2, "ant")
        return [
            Pair("a user alone with one query", (), searcher("zoe", "ant")),
            Pair("a user with one shared query", others, others + searcher("zoe", "ant")),
            *super().pairs(),
        ]


def weighted_totals(kept: Sequence[Sequence[Key]], keys: Sequence[Key]) -> tuple[int, ...]:
    """Add up the weights floor(64/sqrt(t)) of users who keep t keys each."""
    sizes = {len(mine) for mine in kept if mine}
    parts = {t: totals([mine for mine in kept if len(mine) == t], keys) for t in sizes}
    return tuple(sum(math.isqrt(WEIGHT_GRID**2 // t) * part[i] for t, part in parts.items()) for i in range(len(keys)))
