"""The table of reformulations as the registry knows it: noise on all pairs of released queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, permutations
from typing import ClassVar

import numpy as np

from hushquery.core.calibration import laplace_scale
from hushquery.core.loss import LaplaceHistogram, Loss
from hushquery.core.registry import SUPPRESSED, Law, Pair
from hushquery.curator.audited.selectors import (
    QUERIES,
    Key,
    LogMechanism,
    Rows,
    crowd,
    exact_counts,
    first_keys,
    log_of,
    many_logs,
    searcher,
    seen_in,
    totals,
)
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of
from hushquery.curator.reformulations import STEP, Reformulations
from hushquery.engine import as_table
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import IntArray

__all__ = ["ReformulationPairs", "exact_walks", "lifted_law", "lifted_rows"]

_PER_USER = 2
# Values are looked at up to so much above the lowest published one; six columns of all values can't be listed.
_SEEN = 2
# On how many copies of a world the whole step is run; all pairs of all their queries get noise.
_COPIES = 400


@dataclass(frozen=True)
class ReformulationPairs(LogMechanism):
    """Users per pair of consecutive queries, two pairs per user, noise on all pairs of three released queries.

    Pairs that nobody made get their noise all at once: how many of them reach T, which ones, and how high. An audit
    looks at values up to T + 2, which is a post-processing of what is published.

    **Guarantee:** pure epsilon = d_r/b for one user, add-remove, for whichever queries are released
    (docs/proofs/reformulations.md).
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough.
    **Reference:** Cormode, Procopiuc, Srivastava and Tran 2012, with T from the public number of pairs.

    >>> ReformulationPairs.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    walks: Reformulations
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "reformulations"
    summary: ClassVar[str] = "consecutive released queries with discrete Laplace noise on all pairs"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> ReformulationPairs:
        """Give the whole epsilon to the pairs; delta is not needed and not used."""
        del delta
        step = LaplaceHistogram(_PER_USER, laplace_scale(_PER_USER, epsilon))
        return cls(Reformulations(step, false_edges=0.01))

    @property
    def loss(self) -> Loss:
        """Pure d_r/b."""
        return self.walks.step.loss

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count users per pair."""
        released = as_table({"query": list(QUERIES)})
        expression = self.walks.expression(log_of(world), self.bound, released)
        return exact_counts(expression, _ALL, STEP)

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each user once per pair, in their first two pairs."""
        return exact_walks(self.walks, world, QUERIES)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the table's own step, ``n`` times on the same counts."""
        return lifted_rows(self.walks, self.counts(world), len(QUERIES), n, bits)

    def end_to_end(self, world: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run the whole table on a log of many copies of the world, as many more false pairs allowed as there are."""
        import ibis
        import pyarrow as pa

        released = [f"{copy:06} {query}" for copy in range(_COPIES) for query in QUERIES]
        least, size = self.walks.publish_from(len(QUERIES)), len(released)
        allowed = size * (size - 1) * float(law_of(self.walks.step).tail(least)) * (1 + 1e-9)
        walks = replace(self.walks, false_edges=allowed)
        table = ibis.memtable(many_logs(world, _COPIES))
        found = seen_in(walks.run(table, self.bound, pa.table({"query": released}), bits), _ALL, STEP, _COPIES)
        return np.minimum(found, least + _SEEN), lifted_law(self.walks, self.exact(world), len(QUERIES))

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate: independent noise on every pair."""
        return lifted_law(self.walks, self.exact(world), len(QUERIES))

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more: on pairs that nobody made, on both kinds, and on more pairs than the cap."""
        others = crowd(self.walks.publish_from(len(QUERIES)), "ant", "bee")
        return [
            Pair("a user with two pairs that nobody made", others, others + searcher("zoe", "cow", "bee", "ant")),
            Pair("a user with one shared pair and one new", others, others + searcher("zoe", "ant", "bee", "cow")),
            Pair("a user who walks in circles", others, others + searcher("zoe", "cow", *(("cow", "bee", "ant") * 20))),
            Pair(
                "a user with a query that is not released in between, and searches at the same time",
                others,
                others + searcher("zoe", "cow", "dog", "bee", "ant") + searcher("zoe", "ant", "bee", "cow", apart=0),
            ),
        ]


_ALL = tuple(permutations(QUERIES, 2))


def exact_walks(walks: Reformulations, world: Rows, released: Sequence[str]) -> tuple[int, ...]:
    """Count users per ordered pair of released queries by the definition, without an engine."""
    steps: list[tuple[str, int, Key]] = []
    for name in {user for user, *_ in world}:
        path = sorted({(time, query) for user, time, query, _ in world if user == name})
        for (start, query), (end, following) in pairwise(path):
            near = end - start <= walks.session_gap * 1_000_000
            if near and query != following and {query, following} <= set(released):
                steps.append((name, start, (query, following)))
    return totals(first_keys(steps, walks.reformulations_per_user), tuple(permutations(released, 2)))


def lifted_rows(walks: Reformulations, counts: Sequence[int], size: int, n: int, bits: Bits) -> IntArray:
    """Lift the pairs of ``size`` queries ``n`` times, as the table does once; a row per time, a column per pair."""
    cells = np.array([i * size + j for i, j in permutations(range(size), 2)], dtype=np.int64)
    exact = np.array(counts, dtype=np.int64)
    made = np.flatnonzero(exact)
    when, which, noisy = walks.lift(cells[made], exact[made], size, bits, n)
    out = np.full((n, len(cells)), SUPPRESSED, dtype=np.int64)
    out[when, np.searchsorted(cells, which)] = np.minimum(noisy, walks.publish_from(size) + _SEEN)
    return out


def lifted_law(walks: Reformulations, counts: Sequence[int], size: int) -> dict[tuple[int, ...], float]:
    """Enumerate what is published of all pairs of ``size`` queries: each gets noise, and is seen from T on."""
    law, least, singles = law_of(walks.step), walks.publish_from(size), []
    for count in counts:
        single: dict[tuple[int, ...], float] = {(least + i,): law.pmf(least + i - count) for i in range(_SEEN)}
        single[least + _SEEN,] = float(law.tail(least + _SEEN - count))
        single[SUPPRESSED,] = float(law.cdf(least - 1 - count))
        singles.append(single)
    return product_law(singles)
