"""A whole release as the registry knows it: queries, their clicks and their reformulations, from one budget."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy import stats

from hushquery.core.budget import Budget
from hushquery.core.loss import Loss
from hushquery.core.registry import SUPPRESSED, Law, Pair
from hushquery.curator.audited.reformulations import exact_walks, lifted_law, lifted_rows
from hushquery.curator.audited.selectors import (
    Key,
    LogMechanism,
    Rows,
    Thresholded,
    copies_of,
    crowd,
    exact_counts,
    first_keys,
    log_of,
    many_logs,
    numbered,
    passing_law,
    query_keys,
    read_world,
    rows_of,
    searcher,
    seen_in,
    totals,
)
from hushquery.curator.bound import Bound
from hushquery.curator.calibrate import Calibrated, Request, calibrate
from hushquery.curator.clicks import PAIR, Clicks
from hushquery.curator.count import law_of, passing
from hushquery.curator.draw import draw_tables
from hushquery.curator.reformulations import STEP, Reformulations
from hushquery.curator.select import QUERY, Reused
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import IntArray

__all__ = ["WholeRelease"]

_QUERIES = ("ant", "bee")
_URL = "https://x.example/"
_CLICKED: tuple[Key, ...] = tuple((query, _URL) for query in _QUERIES)
_WALKED: tuple[Key, ...] = tuple(itertools.permutations(_QUERIES, 2))
# Counts are looked at up to so much above the lowest published one; six columns of all values can't be listed.
_SEEN = 2
_COPIES = 800


@dataclass(frozen=True)
class WholeRelease(LogMechanism):
    """A release of two queries of each user, one click and one reformulation, with discrete Laplace noise.

    What is released of the queries decides whose clicks are counted, and which reformulations there can be. An audit
    looks at counts up to two above the lowest that is published, which is a post-processing of a release.

    **Guarantee:** pure d/b + d_c/b_c + d_r/b_r beside the deltas of both thresholds, for one user, add-remove: what the
    ledger is charged (docs/proofs/clicks.md, docs/proofs/reformulations.md).
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough
    (docs/proofs/intervals.md).

    >>> WholeRelease.calibrate(Fraction(1), Fraction(1, 10**5)).loss.fits(1, Fraction(1, 10**5))
    True
    """

    made: Calibrated
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "release"
    summary: ClassVar[str] = "a whole release: queries, clicks and reformulations with discrete Laplace noise"
    # No user is the worst for all three tables at once.
    tight: ClassVar[bool] = False
    audit_runs: ClassVar[int] = 1_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> WholeRelease:
        """Calibrate as a release of three tables would."""
        request = Request(Budget(epsilon, delta), 2, 1, 1, selector="laplace")
        return cls(calibrate(request, false_edges=0.02))

    def __hash__(self) -> int:
        return hash((self.selector, self.clicks.step, self.walks))

    @property
    def selector(self) -> Reused:
        """The step of the queries."""
        return self.made.selector  # type: ignore[return-value]

    @property
    def clicks(self) -> Clicks:
        """The step of the clicks."""
        return self.made.clicks  # type: ignore[return-value]

    @property
    def walks(self) -> Reformulations:
        """The step of the reformulations."""
        return self.made.reformulations  # type: ignore[return-value]

    @property
    def loss(self) -> Loss:
        """What all steps cost together."""
        return self.made.loss

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count users per query."""
        return exact_counts(
            self.selector.expressions(log_of(world), self.bound)["queries"], query_keys(*_QUERIES), QUERY
        )

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each user once per query."""
        rows = ((user, time, (query,)) for user, time, query, _ in world)
        return totals(first_keys(rows, self.selector.queries_per_user), query_keys(*_QUERIES))

    def ask_clicks(self, world: Rows, released: Sequence[str]) -> tuple[int, ...]:
        """Count users per clicked pair of the released queries."""
        return exact_counts(self.clicks.expression(log_of(world), self.bound, numbered(released)), _CLICKED, PAIR)

    def exact_clicks(self, world: Rows, released: Sequence[str]) -> tuple[int, ...]:
        """The same by the definition."""
        rows = ((user, time, (query, url)) for user, time, query, url in world if url and query in released)
        return totals(first_keys(rows, self.clicks.clicks_per_user), _CLICKED)

    def ask_walks(self, world: Rows) -> tuple[int, ...]:
        """Count users per pair of consecutive queries, both being released."""
        expression = self.walks.expression(log_of(world), self.bound, numbered(_QUERIES))
        return exact_counts(expression, _WALKED, STEP)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the three steps, each on ``n`` copies of its counts, given what was released before."""
        queries = rows_of(self.selector.select(self.copies(world, n), bits), (n, 2))
        chosen = queries != SUPPRESSED
        counts, both = np.zeros_like(queries), chosen.all(axis=1)
        for pattern in np.unique(chosen, axis=0):
            released = tuple(itertools.compress(_QUERIES, pattern))
            if released:
                counts[(chosen == pattern).all(axis=1)] = _asked_clicks(self, world, released)
        clicks = rows_of(passing(copies_of(counts), QUERY, self.clicks.step, bits), (n, 2))
        walks = np.full((n, 2), SUPPRESSED, dtype=np.int64)
        walks[both] = lifted_rows(self.walks, _asked_walks(self, world), 2, int(both.sum()), bits)
        return self._shown(queries, clicks, walks)

    def end_to_end(self, world: Rows, bits: Bits) -> tuple[IntArray, Law] | None:
        """Draw all tables of a release from a log of many copies of the world.

        From how many on reformulations are published depends on how many queries all copies together release. So many
        false pairs are allowed that it is what one copy alone would have, for every number that is likely; where no
        such number of false pairs exists, the world is left out.
        """
        law, least = law_of(self.walks.step), self.walks.publish_from(2)
        laws = [passing_law(count, self.selector.step) for count in self.exact(world)]
        passed = [1 - single.get((SUPPRESSED,), 0.0) for single in laws]
        few, many = (sum(int(stats.binom.ppf(q, _COPIES, p)) for p in passed) for q in (1e-12, 1 - 1e-12))
        allowed = many * (many - 1) * float(law.tail(least)) * (1 + 1e-9)
        if not 0 < allowed < few * (few - 1) * float(law.tail(least - 1)):
            return None
        made = replace(self.made, reformulations=replace(self.walks, false_edges=allowed))
        tables = draw_tables(made, read_world(many_logs(world, _COPIES)), "first", bits)
        columns = {
            "queries": (query_keys(*_QUERIES), QUERY),
            "clicks": (_CLICKED, PAIR),
            "reformulations": (_WALKED, STEP),
        }
        seen = [seen_in(tables[name], *of, _COPIES) for name, of in columns.items()]
        return self._shown(*seen), self.law(world)

    def _shown(self, *tables: IntArray) -> IntArray:
        """Cut counts off where an audit stops looking."""
        levels = self.selector.step.threshold, self.clicks.step.threshold, self.walks.publish_from(2)
        cut = [np.minimum(table, (level or 0) + _SEEN) for table, level in zip(tables, levels, strict=True)]
        return np.hstack(cut)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate the queries, and given those that come out, clicks and reformulations."""
        queries = product_law([_cut(count, self.selector.step) for count in self.exact(world)])
        walked = lifted_law(self.walks, exact_walks(self.walks, world, _QUERIES), 2)
        out: dict[tuple[int, ...], float] = {}
        for pattern in itertools.product((False, True), repeat=2):
            counts = self.exact_clicks(world, tuple(itertools.compress(_QUERIES, pattern)))
            after = product_law(
                [
                    product_law([_cut(count, self.clicks.step) for count in counts]),
                    walked if all(pattern) else {(SUPPRESSED, SUPPRESSED): 1.0},
                ]
            )
            for first, p in queries.items():
                if tuple(value != SUPPRESSED for value in first) == pattern:
                    out |= {first + then: p * q for then, q in after.items()}
        return out

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more: new to all tables, shared in all of them, and one whose query decides what else is counted."""
        around, clicking = int(self.selector.threshold), int(self.clicks.step.threshold or 0)
        # About as many search for both and click as it takes for each table to show something or not.
        searching = (searcher(f"other {i}", *_QUERIES) for i in range(around + 1 - clicking))
        others = crowd(clicking, *_QUERIES, url=_URL) + tuple(itertools.chain(*searching))
        half = crowd(around + 1, "ant", url=_URL) + tuple((f"b {i}", 0, "bee", _URL) for i in range(around - 1))
        zoe = (("zoe", 0, "bee", _URL), ("zoe", 1_000_000, "ant", _URL))
        busy = (*zoe, ("zoe", 2_000_000, "bee", _URL), ("zoe", 2_000_000, "ant", None), ("zoe", 3_000_000, "bee", None))
        return [
            Pair("a user alone in all tables", (), zoe),
            Pair("a user who shares in all tables", others, others + zoe),
            Pair("a user who does all of it several times", others, others + busy),
            Pair("a user whose query lets clicks of others be counted", half, half + zoe),
        ]


def _cut(count: int, step: Thresholded) -> dict[tuple[int, ...], float]:
    """Enumerate what is seen of one key: not published, or its noisy count, cut off."""
    if count == 0:
        return {(SUPPRESSED,): 1.0}
    law, least = law_of(step), step.threshold or 0
    out: dict[tuple[int, ...], float] = {(least + i,): law.pmf(least + i - count) for i in range(_SEEN)}
    return out | {
        (least + _SEEN,): float(law.tail(least + _SEEN - count)),
        (SUPPRESSED,): float(law.cdf(least - 1 - count)),
    }


@lru_cache(maxsize=256)
def _asked_clicks(mechanism: WholeRelease, world: Rows, released: tuple[str, ...]) -> tuple[int, ...]:
    return mechanism.ask_clicks(world, released)


@lru_cache(maxsize=256)
def _asked_walks(mechanism: WholeRelease, world: Rows) -> tuple[int, ...]:
    return mechanism.ask_walks(world)
