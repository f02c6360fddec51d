"""Audit a whole release as one registered mechanism: queries, clicks and reformulations from one budget."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy import stats

from hushquery.core.budget import Budget
from hushquery.core.loss import Loss
from hushquery.core.registry import SUPPRESSED, Law, Pair
from hushquery.curator import audit
from hushquery.curator.audit import Key, LogMechanism, Rows
from hushquery.curator.clicks import PAIR, Clicks, clicked
from hushquery.curator.counting import QUERY, Bound, law_of, passing
from hushquery.curator.plan import ReleaseSpec, ReleaseSteps, calibrate, draw_tables
from hushquery.curator.reformulations import STEP, Reformulations, exact_reformulations, lifted_law, lifted_rows
from hushquery.curator.selectors.thresholded import ThresholdedCounts
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import Bits, IntArray

_QUERIES = ("ant", "bee")
_URL = "https://x.example/"
_CLICKED: tuple[Key, ...] = tuple((query, _URL) for query in _QUERIES)
_REFORMULATED: tuple[Key, ...] = tuple(itertools.permutations(_QUERIES, 2))
# Counts are looked at up to so much above the lowest published one; six columns of all values can't be listed.
_SEEN = 2
_COPIES = 800


@dataclass(frozen=True)
class WholeRelease(LogMechanism):
    """A release of two queries, one click and one reformulation per user; counts above the threshold + 2 are cut off.

    **Guarantee:** pure d/b + d_c/b_c + d_r/b_r plus the deltas of both thresholds, for one user, add-remove: what the
    ledger is charged (docs/proofs/clicks.md, docs/proofs/reformulations.md).
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough (docs/proofs/intervals.md).

    >>> WholeRelease.calibrate(Fraction(1), Fraction(1, 10**5)).loss.fits(1, Fraction(1, 10**5))
    True
    """

    steps: ReleaseSteps
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "release"
    summary: ClassVar[str] = "a whole release: queries, clicks and reformulations with discrete Laplace noise"
    # No user is the worst for all three tables at once.
    tight: ClassVar[bool] = False
    audit_runs: ClassVar[int] = 1_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> WholeRelease:
        """Calibrate as a release of three tables would."""
        spec = ReleaseSpec(Budget(epsilon, delta), 2, 1, 1, selector="laplace")
        return cls(calibrate(spec, expected_false_pairs=0.02))

    @property
    def selector(self) -> ThresholdedCounts:
        """The step of the queries."""
        return self.steps.selector  # type: ignore[return-value]

    @property
    def clicks(self) -> Clicks:
        """The step of the clicks."""
        return self.steps.clicks  # type: ignore[return-value]

    @property
    def reformulations(self) -> Reformulations:
        """The step of the reformulations."""
        return self.steps.reformulations  # type: ignore[return-value]

    @property
    def loss(self) -> Loss:
        """What all steps cost together."""
        return self.steps.loss

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Count users per query."""
        return audit.exact_counts(
            self.selector.to_select(audit.log_of(dataset), self.bound), audit.query_keys(*_QUERIES), QUERY
        )

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Count each user once per query."""
        kept = audit.first_keys(audit.posed(dataset), self.selector.queries_per_user)
        return audit.totals(kept, audit.query_keys(*_QUERIES))

    def ask_clicks(self, dataset: Rows, released: Sequence[str]) -> tuple[int, ...]:
        """Count users per clicked pair of the released queries."""
        return audit.exact_counts(
            self.clicks.expression(audit.log_of(dataset), self.bound, audit.numbered(released)), _CLICKED, PAIR
        )

    def exact_clicks(self, dataset: Rows, released: Sequence[str]) -> tuple[int, ...]:
        """Count them by the definition."""
        return audit.totals(audit.first_keys(clicked(dataset, released), self.clicks.step.keys_per_user), _CLICKED)

    def ask_reformulations(self, dataset: Rows) -> tuple[int, ...]:
        """Count users per pair of consecutive queries, both being released."""
        expression = self.reformulations.expression(audit.log_of(dataset), self.bound, audit.numbered(_QUERIES))
        return audit.exact_counts(expression, _REFORMULATED, STEP)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the three steps, each on ``n`` copies of its counts, given what was released before."""
        queries = audit.rows_of(self.selector.select(self.copies(dataset, n), bits), (n, 2))
        chosen = queries != SUPPRESSED
        counts, both = np.zeros_like(queries), chosen.all(axis=1)
        for pattern in np.unique(chosen, axis=0):
            released = tuple(itertools.compress(_QUERIES, pattern))
            if released:
                counts[(chosen == pattern).all(axis=1)] = audit.once(self.ask_clicks, dataset, released)
        clicks = audit.rows_of(passing(audit.copies_of(counts), QUERY, self.clicks.step, bits), (n, 2))
        reformulated = np.full((n, 2), SUPPRESSED, dtype=np.int64)
        pairs = audit.once(self.ask_reformulations, dataset)
        reformulated[both] = lifted_rows(self.reformulations, pairs, 2, int(both.sum()), bits)
        return self._shown(queries, clicks, reformulated)

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law] | None:
        """Draw a release of many copies, allowing false pairs so that T is that of one copy; None where it can't be."""
        law, least = law_of(self.reformulations.step), self.reformulations.publish_from(2)
        laws = [audit.passing_law(count, self.selector.selection) for count in self.exact(dataset)]
        passed = [1 - single.get((SUPPRESSED,), 0.0) for single in laws]
        few, many = (sum(int(stats.binom.ppf(q, _COPIES, p)) for p in passed) for q in (1e-12, 1 - 1e-12))
        allowed = many * (many - 1) * float(law.tail(least)) * (1 + 1e-9)
        if not 0 < allowed < few * (few - 1) * float(law.tail(least - 1)):
            return None
        steps = replace(self.steps, reformulations=replace(self.reformulations, expected_false_pairs=allowed))
        tables = draw_tables(steps, audit.read_dataset(audit.many_logs(dataset, _COPIES)), "first", bits)
        columns = {
            "queries": (audit.query_keys(*_QUERIES), QUERY),
            "clicks": (_CLICKED, PAIR),
            "reformulations": (_REFORMULATED, STEP),
        }
        seen = [audit.seen_in(tables[name], *of, _COPIES) for name, of in columns.items()]
        return self._shown(*seen), self.law(dataset)

    def _most(self) -> list[int]:
        """Return the largest count that is looked at, by table."""
        levels = self.selector.selection.threshold, self.clicks.step.threshold, self.reformulations.publish_from(2)
        return [(level or 0) + _SEEN for level in levels]

    def _shown(self, *tables: IntArray) -> IntArray:
        """Cut counts off where an audit stops looking."""
        return np.hstack([np.minimum(table, most) for table, most in zip(tables, self._most(), strict=True)])

    def law(self, dataset: Rows) -> Law:
        """Enumerate the queries, and given those that come out, clicks and reformulations."""
        shown = self._most()
        queries = product_law(
            [audit.passing_law(count, self.selector.selection, shown[0]) for count in self.exact(dataset)]
        )
        pairs = exact_reformulations(self.reformulations, dataset, _QUERIES)
        reformulated = lifted_law(self.reformulations, pairs, 2)
        out: dict[tuple[int, ...], float] = {}
        for pattern in itertools.product((False, True), repeat=2):
            counts = self.exact_clicks(dataset, tuple(itertools.compress(_QUERIES, pattern)))
            after = product_law(
                [
                    product_law([audit.passing_law(count, self.clicks.step, shown[1]) for count in counts]),
                    reformulated if all(pattern) else {(SUPPRESSED, SUPPRESSED): 1.0},
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
        searching = (audit.searcher(f"other {i}", *_QUERIES) for i in range(around + 1 - clicking))
        others = audit.crowd(clicking, *_QUERIES, url=_URL) + tuple(itertools.chain(*searching))
        half = audit.crowd(around + 1, "ant", url=_URL) + tuple((f"b {i}", 0, "bee", _URL) for i in range(around - 1))
        zoe = (("zoe", 0, "bee", _URL), ("zoe", 1_000_000, "ant", _URL))
        busy = (*zoe, ("zoe", 2_000_000, "bee", _URL), ("zoe", 2_000_000, "ant", None), ("zoe", 3_000_000, "bee", None))
        return [
            Pair("a user alone in all tables", (), zoe),
            Pair("a user who shares in all tables", others, others + zoe),
            Pair("a user who does all of it several times", others, others + busy),
            Pair("a user whose query lets clicks of others be counted", half, half + zoe),
        ]
