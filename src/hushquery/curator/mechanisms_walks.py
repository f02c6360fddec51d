"""The table of reformulations as the registry knows it: noise on all pairs of released queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations
from typing import ClassVar

import numpy as np

from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of
from hushquery.curator.mechanisms import QUERIES, LogMechanism, Rows, crowd, exact_counts, log_of, searcher
from hushquery.curator.reformulations import STEP, Reformulations, empty_cells
from hushquery.engine import as_table
from hushquery.noise.bits import Bits
from hushquery.noise.law import Binomial, TailCoin
from hushquery.noise.mechanisms import add_noise, product_law
from hushquery.noise.sampler import IntArray, sampler
from hushquery.noise.survivors import conditional_noise
from hushquery.privacy.loss import Loss
from hushquery.privacy.registry import SUPPRESSED, Pair
from hushquery.privacy.step_loss import LaplaceHistogram
from hushquery.privacy.thresholds import laplace_scale

__all__ = ["ReformulationPairs"]

_PER_USER = 2
# Values are looked at up to so much above the lowest published one; six columns of all values can't be listed.
_SEEN = 2


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

    def least(self, world: Rows) -> int:
        """Give T, which depends on how many queries are released and on nothing else of the world."""
        del world
        return self.walks.publish_from(len(QUERIES))

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count users per pair."""
        released = as_table({"query": list(QUERIES)})
        expression = self.walks.expression(log_of(world), self.bound, released)
        return exact_counts(expression, tuple(permutations(QUERIES, 2)), STEP)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Publish ``n`` times."""
        counts, law, least = np.array(self.counts(world)), law_of(self.walks.step), self.least(world)
        made = np.flatnonzero(counts)
        out = np.full((n, len(counts)), SUPPRESSED, dtype=np.int64)
        out[:, made] = add_noise(tuple(counts[made].tolist()), n, law, bits)
        size = len(QUERIES)
        cells = [i * size + j for i, j in permutations(range(size), 2)]
        column = {cell: i for i, cell in enumerate(cells)}
        filled = {cells[i] for i in made}
        empty = len(counts) - len(made)
        lifted = sampler(Binomial(empty, TailCoin(law, least))).draw(n, bits) if empty else np.zeros(n, dtype=np.int64)
        for row in np.flatnonzero(lifted):
            which = empty_cells(int(lifted[row]), size, filled, bits)
            out[row, [column[cell] for cell in which.tolist()]] = conditional_noise(law, least, len(which), bits)
        return np.where(out < least, SUPPRESSED, np.minimum(out, least + _SEEN))

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate: independent noise on every pair."""
        law, least, singles = law_of(self.walks.step), self.least(world), []
        for count in self.counts(world):
            single: dict[tuple[int, ...], float] = {(least + i,): law.pmf(least + i - count) for i in range(_SEEN)}
            single[least + _SEEN,] = float(law.tail(least + _SEEN - count))
            single[SUPPRESSED,] = float(law.cdf(least - 1 - count))
            singles.append(single)
        return product_law(singles)

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more: on pairs that nobody made, on both kinds, and on more pairs than the cap."""
        others = crowd(self.least(()), "ant", "bee")
        return [
            Pair("a user with two pairs that nobody made", others, others + searcher("zoe", "cow", "bee", "ant")),
            Pair("a user with one shared pair and one new", others, others + searcher("zoe", "ant", "bee", "cow")),
            Pair("a user who walks in circles", others, others + searcher("zoe", *(("cow", "bee", "ant") * 20))),
            Pair(
                "a user with a query that is not released in between, and searches at the same time",
                others,
                others + searcher("zoe", "cow", "dog", "bee", "ant") + searcher("zoe", "ant", "bee", "cow", apart=0),
            ),
        ]
