"""The sketch and the guided selector as the registry knows them, with a sketch of a single bucket.

One bucket makes the noisy sketch a number whose law can be listed. All queries then have the same share, which cancels
when weights are scaled to norm one, so what a user adds depends on the sketch only through whether the bucket looks
empty. Unequal shares are held by tests/curator/test_audit.py, for any sketch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hushquery.core.calibration import WEIGHT_GRID, mu_for, sigma_for
from hushquery.core.loss import GaussianWeights, Loss
from hushquery.core.registry import SUPPRESSED, Kind, Law, Pair
from hushquery.curator.audited.counted import weighted_totals
from hushquery.curator.audited.selectors import (
    QUERIES,
    Key,
    LogMechanism,
    Rows,
    copies_of,
    crowd,
    exact_counts,
    first_keys,
    log_of,
    many_logs,
    passing_bit,
    query_keys,
    query_pairs,
    rows_of,
    searcher,
    seen_in,
    selector_for,
    totals,
)
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of
from hushquery.curator.select import QUERY
from hushquery.curator.selectors.guided import BUCKETS, LOOKS_EMPTY, SKETCHED_QUERIES, Guided
from hushquery.noise.bits import Bits
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import IntArray

__all__ = ["GuidedSelector", "Sketch"]

# On how many copies of a world the whole selector is run.
_COPIES = 400


@dataclass(frozen=True)
class Sketch(LogMechanism):
    """Sums of users' weights per bucket, each user with L2 norm at most one, with rounded Gaussian noise; one bucket.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 for one user, add-remove (docs/proofs/guided.md).
    **Estimator:** the noisy sum, unbiased; variance sigma^2 + 1/12 in steps of 1/64.

    >>> Sketch.calibrate(Fraction(1), Fraction(1, 10**5)).loss.epsilon(1e-5) <= 1
    True
    """

    guided: Guided
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "sketch"
    summary: ClassVar[str] = "the noisy sketch of the guided selector"
    kind: ClassVar[Kind] = "mechanism"
    audit_runs: ClassVar[int] = 300_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Sketch:
        """Give the whole budget to the sketch."""
        sketch = GaussianWeights(SKETCHED_QUERIES, sigma_for(WEIGHT_GRID**2, mu_for(epsilon, delta) ** 2))
        return cls(Guided(sketch, GaussianWeights(2, sketch.sigma, 1), None, buckets=1))

    @property
    def loss(self) -> Loss:
        """mu^2."""
        return self.guided.sketch.loss

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Sum the weights per bucket."""
        return tuple(self.guided.exact_sketch(self.guided.each(log_of(world), self.bound)).tolist())

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each user's whole weight is in the one bucket."""
        return (WEIGHT_GRID * len({user for user, *_ in world}),)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Add noise to the bucket, ``n`` times."""
        return _noisy(self, n, bits, world)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate the noisy sum."""
        return product_law([_noisy_sum(total, self.guided) for total in self.exact(world)])

    def truth(self, world: Rows) -> Sequence[float]:
        """The sum itself."""
        return self.exact(world)

    def variance(self, world: Rows) -> Sequence[float]:
        """The variance of the noise."""
        del world
        return [law_of(self.guided.sketch).variance]

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries all fall into one bucket; which may have been empty before."""
        others = crowd(3, "ant", "bee")
        flood = searcher("zoe", *(f"query {i}" for i in range(SKETCHED_QUERIES + 50)))
        return [
            Pair("a user with two queries in one bucket", others, others + searcher("zoe", "ant", "bee")),
            Pair("a user with more queries than are sketched", others, others + flood),
            Pair("a user in an empty bucket", (), searcher("zoe", "ant")),
        ]


@dataclass(frozen=True)
class GuidedSelector(LogMechanism):
    """The guided selector without counts: the noisy sketch, and what is selected given it; two queries per user.

    The first column is the bucket, which is not published in a release and costs as if it were.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 of the sketch and of the selection together, beside the threshold's
    delta, for one user, add-remove (docs/proofs/guided.md).
    **Estimator:** none: what is published is which queries pass.

    >>> f"{GuidedSelector.calibrate(Fraction(1), Fraction(1, 10**5)).guided.threshold:.1f}"
    '23.5'
    """

    guided: Guided
    keys: tuple[Key, ...] = query_keys(*QUERIES)
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "guided"
    summary: ClassVar[str] = "queries of a log by weights that a noisy sketch guides"
    # Of the second step's noisy sums only one bit each is published.
    tight: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> GuidedSelector:
        """Calibrate as a release of a list of queries would, with one bucket."""
        made = selector_for("guided", epsilon, delta, select_only=True)
        if not isinstance(made, Guided):
            raise TypeError(made)
        return cls(replace(made, buckets=1))

    @property
    def loss(self) -> Loss:
        """What both steps cost."""
        return self.guided.sketch.loss + self.guided.selection.loss

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Sum the weights per bucket."""
        return tuple(self.guided.exact_sketch(self.guided.each(log_of(world), self.bound)).tolist())

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each user's whole weight is in the one bucket."""
        return (WEIGHT_GRID * len({user for user, *_ in world}),)

    def alive_from(self) -> int:
        """Give the smallest noisy sum of a bucket that does not look empty."""
        return math.floor(LOOKS_EMPTY * float(self.guided.sketch.sigma)) + 1

    def weigh(self, world: Rows, noisy: int) -> tuple[int, ...]:
        """Sum the guided weights per query, given the noisy sketch."""
        each = self.guided.each(log_of(world), self.bound)
        expression = self.guided.guided_sums(each, np.array([noisy], dtype=np.int64))
        return exact_counts(expression, self.keys, QUERY)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Sketch and select, ``n`` times."""
        sketched = _noisy(self, n, bits, world)
        alive = sketched[:, :1] >= self.alive_from()
        empty, full = (np.array(_weighed(self, world, noisy)) for noisy in (0, self.alive_from()))
        found = self.guided.select(copies_of(np.where(alive, full, empty)), bits)
        return np.hstack([sketched, rows_of(found, (n, len(self.keys)))])

    def end_to_end(self, world: Rows, bits: Bits) -> tuple[IntArray, Law] | None:
        """Run the whole selector with all its buckets, where each user has one query and so one weight."""
        import ibis

        rows, sigma = [(user, time, (query,)) for user, time, query, _ in world], float(self.guided.sketch.sigma)
        kept = first_keys(rows, len(rows))
        if not all(len(mine) == 1 for mine in kept):
            return None
        found = replace(self.guided, buckets=BUCKETS).run(ibis.memtable(many_logs(world, _COPIES)), self.bound, bits)
        singles: list[dict[tuple[int, ...], float]] = []
        noise = law_of(self.guided.sketch)
        for users in totals(kept, self.keys):
            full = float(noise.tail(math.floor(LOOKS_EMPTY * sigma) + 1 - WEIGHT_GRID * users))
            chance = full * passing_bit(WEIGHT_GRID * users, self.guided.selection).get((1,), 0.0)
            singles.append({(1,): chance, (SUPPRESSED,): 1 - chance})
        # Two copies' queries in one of so many buckets would disturb each other; of these none are.
        return seen_in(found, self.keys, QUERY, _COPIES), product_law(singles)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate the sketch with what is selected given it."""
        rows = ((user, time, (query,)) for user, time, query, _ in world)
        sums = weighted_totals(first_keys(rows, self.guided.queries_per_user), self.keys)
        given = [product_law([passing_bit(alive * total, self.guided.selection) for total in sums]) for alive in (0, 1)]
        out: dict[tuple[int, ...], float] = {}
        for (noisy,), chance in _noisy_sum(self.exact(world)[0], self.guided).items():
            for outcome, probability in given[noisy >= self.alive_from()].items():
                out[(noisy, *outcome)] = chance * probability
        return out

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared with a crowd about the threshold, or more than the cap."""
        around = int(self.guided.threshold)
        others = crowd(around // 2, "ant")
        return [
            Pair("a user with one shared query", others, others + searcher("zoe", "ant")),
            Pair("a user with one new query", others, others + searcher("zoe", "bee")),
            *query_pairs(around, around)[2:],
        ]


def _noisy(mechanism: Sketch | GuidedSelector, n: int, bits: Bits, world: Rows) -> IntArray:
    tiled = np.tile(np.array(mechanism.counts(world), dtype=np.int64), n)
    return mechanism.guided.noisy_sketch(tiled, bits).reshape(n, mechanism.guided.buckets)


def _noisy_sum(total: int, guided: Guided) -> dict[tuple[int, ...], float]:
    """Enumerate a noisy sum; the edges lie so far out that one user's weight does not reach them either."""
    reach, tail, likely = _noise_of(law_of(guided.sketch))
    out: dict[tuple[int, ...], float] = {(total + z,): p for z, p in zip(range(-reach, reach + 1), likely, strict=True)}
    out[total - reach,] += tail
    out[total + reach,] += tail
    return out


@lru_cache(maxsize=16)
def _noise_of(law: DiscreteLaplace | RoundedGaussian) -> tuple[int, float, list[float]]:
    reach = law.half_width(1 - 1e-14) + 2 * WEIGHT_GRID
    above = [law.pmf(z) for z in range(1, reach + 1)]
    return reach, float(law.sf(reach)), [*reversed(above), law.pmf(0), *above]


@lru_cache(maxsize=256)
def _weighed(mechanism: GuidedSelector, world: Rows, noisy: int) -> tuple[int, ...]:
    return mechanism.weigh(world, noisy)
