"""The reformulations table: what people search next, among the released queries.

Pairs are consecutive in a user's whole log, before any filter. All ordered pairs of released queries are a public
domain: every pair gets noise and is published if it reaches T, so some are pure noise. T depends on the size of that
domain, never on the secret number of empty pairs (docs/proofs/reformulations.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.budget import exact, smallest_whole
from hushquery.core.calibration import laplace_scale
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, Loss
from hushquery.core.registry import SUPPRESSED, Law, Pair
from hushquery.curator import audit
from hushquery.curator.audit import Key, LogMechanism, Rows
from hushquery.curator.counting import Bound, law_of, noise_in_words, released_placeholder, tally, with_intervals
from hushquery.curator.selectors import PlannedStep
from hushquery.engine import execute
from hushquery.errors import UsageError
from hushquery.noise.law import Binomial, TailCoin
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import Bits, IntArray, add_noise, below, sampler
from hushquery.noise.survivors import conditional_noise

if TYPE_CHECKING:
    import pyarrow as pa

#: The key of the table ``reformulations``.
STEP = ["query", "next_query"]


@dataclass(frozen=True)
class Reformulations:
    """Make the table ``reformulations``; at most ``expected_false_pairs`` of it are expected to be pure noise."""

    step: LaplaceHistogram | GaussianHistogram
    session_gap: float = 1800.0
    expected_false_pairs: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.session_gap < 1e9 or not 0 < self.expected_false_pairs <= 1e6:
            raise UsageError(
                "a session gap and the number of expected false pairs must be above zero",
                fix="Give, say, --session-gap 1800 --false-edges 1, or session_gap=1800, expected_false_pairs=1",
            )

    def planned(self) -> PlannedStep:
        """Describe the step."""
        detail = (
            f"users per pair of consecutive released queries with {noise_in_words(self.step)} noise; all pairs are "
            f"public, at most {self.expected_false_pairs:g} of pure noise expected"
        )
        return PlannedStep("reformulations", detail, self.step, "reformulations")

    def publish_from(self, released: int) -> int:
        """Return T: the smallest positive whole number that ``|Q|(|Q| - 1)`` empty pairs reach rarely enough."""
        pairs, law, allowed = released * (released - 1), law_of(self.step), exact(self.expected_false_pairs)
        least = smallest_whole(lambda least: bool(pairs * law.tail(least) <= allowed))
        if least is None:
            raise UsageError("no noisy count is rare enough", fix="Allow more: --false-edges, or expected_false_pairs=")
        return least

    def expected_false(self, released: int) -> float:
        """Return F: the expected number of published pairs of pure noise, if all pairs were empty."""
        return float(released * (released - 1) * law_of(self.step).tail(self.publish_from(released)))

    def expression(self, table: Any, bound: Bound, released: Any = None) -> Any:
        """Count users per pair."""
        import ibis

        queries = released_placeholder() if released is None else released
        # Several clicks repeat the row of one search.
        timed = table.filter(table.time.notnull() & table["query"].notnull()).select("user", "time", "query").distinct()
        order = ibis.window(group_by="user", order_by=[timed.time, timed.query])
        steps = timed.mutate(
            next_query=timed["query"].lead().over(order), gap=timed.time.lead().over(order) - timed.time
        )
        same_session = steps.filter(
            steps.next_query.notnull()
            & (steps.gap <= int(self.session_gap * 1_000_000))
            & (steps.next_query != steps["query"])
        )
        inside = same_session.semi_join(queries, "query")
        named = queries.select(next_query=queries["query"])
        inside = inside.semi_join(named, "next_query")
        return tally(bound.rows(inside, STEP, self.step.keys_per_user), STEP)

    def run(self, table: Any, bound: Bound, released: pa.Table, bits: Bits) -> pa.Table:
        """Count pairs, add noise to all of Q x Q, publish those from T on."""
        import ibis
        import pyarrow as pa

        queries = np.array(sorted(released["query"].to_pylist()), dtype=object)
        size = len(queries)
        if size < 2:
            return with_intervals(_table(pa, [], [], np.empty(0, dtype=np.int64)), self.step)
        least = self.publish_from(size)
        counted = execute(self.expression(table, bound, ibis.memtable(released.select(["query"]))).order_by(STEP))
        position = {query: i for i, query in enumerate(queries)}
        first = np.array([position[q] for q in counted["query"].to_pylist()], dtype=np.int64)
        second = np.array([position[q] for q in counted["next_query"].to_pylist()], dtype=np.int64)
        _, cells, noisy = self.lift(first * size + second, counted["n"].to_numpy(), size, bits)
        table_out = _table(pa, queries[cells // size].tolist(), queries[cells % size].tolist(), noisy)
        # All pairs of the domain had noise, so a pair is there because it reached T, not because somebody made it.
        return with_intervals(table_out, replace(self.step, threshold=least), support_is_public=True)

    def lift(
        self, cells: IntArray, counts: IntArray, size: int, bits: Bits, times: int = 1
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Add noise to all ordered pairs of ``size`` queries; return run, cell and noisy count of those that reach T.

        A cell is a pair: ``size`` times the first query's place plus the second's. Audits do this many ``times``.
        """
        law, least = law_of(self.step), self.publish_from(size)
        noisy = add_noise(np.tile(counts, times), law, bits)
        kept = noisy >= least
        published = [(np.repeat(np.arange(times), len(cells))[kept], np.tile(cells, times)[kept], noisy[kept])]
        # Empty pairs that noise alone lifts to T: how many, which, and how high.
        filled = set(cells.tolist())
        empty = size * (size - 1) - len(filled)
        lifted = sampler(Binomial(empty, TailCoin(law, least))).draw(times, bits) if empty else np.zeros(times, int)
        for time in np.flatnonzero(lifted).tolist():
            chosen = empty_cells(int(lifted[time]), size, filled, bits)
            published.append((np.full(len(chosen), time), chosen, conditional_noise(law, least, len(chosen), bits)))
        when, which, values = (np.concatenate(parts).astype(np.int64) for parts in zip(*published, strict=True))
        return when, which, values


def empty_cells(n: int, size: int, filled: set[int], bits: Bits) -> IntArray:
    """Choose ``n`` of the ordered pairs that nobody made, every set of them equally likely."""
    chosen: dict[int, None] = {}
    while len(chosen) < n:
        for cell in below(bits, size * size, n - len(chosen)).tolist():
            if cell // size != cell % size and cell not in filled and len(chosen) < n:
                chosen.setdefault(cell)
    return np.array(list(chosen), dtype=np.int64)


def _table(pa: Any, queries: list[str], following: list[str], noisy: IntArray) -> Any:
    return pa.table(
        {
            "query": pa.array(queries, pa.string()),
            "next_query": pa.array(following, pa.string()),
            "noisy": pa.array(noisy, pa.int64()),
        }
    )


# ---- what the audit knows of it --------------------------------------------------------------------------------------

# Values are looked at up to so much above the lowest published one; six columns of all values can't be listed.
_SEEN = 2
# On how many copies of a dataset the whole step is run; all pairs of all their queries get noise.
_COPIES = 400
_ALL = tuple(permutations(audit.QUERIES, 2))


@dataclass(frozen=True)
class ReformulationPairs(LogMechanism):
    """Users per pair of consecutive queries, two pairs per user, noise on all pairs; values above T + 2 are cut off.

    **Guarantee:** pure epsilon = d_r/b for one user, add-remove, for any released queries.
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough.
    **Reference:** Cormode, Procopiuc, Srivastava and Tran 2012, with T from the public number of pairs.

    >>> ReformulationPairs.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    table: Reformulations
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "reformulations"
    summary: ClassVar[str] = "consecutive released queries with discrete Laplace noise on all pairs"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> ReformulationPairs:
        """Spend the whole epsilon on the pairs; delta is not needed and not used."""
        del delta
        step = LaplaceHistogram(audit.PER_USER, laplace_scale(audit.PER_USER, epsilon))
        return cls(Reformulations(step, expected_false_pairs=0.01))

    @property
    def loss(self) -> Loss:
        """Pure d_r/b."""
        return self.table.step.loss

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Count users per pair."""
        return audit.exact_counts(
            self.table.expression(audit.log_of(dataset), self.bound, audit.numbered(audit.QUERIES)), _ALL, STEP
        )

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Count each user once per pair, in their first two pairs."""
        return exact_reformulations(self.table, dataset, audit.QUERIES)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the table's own step, ``n`` times on the same counts."""
        return lifted_rows(self.table, self.counts(dataset), len(audit.QUERIES), n, bits)

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run the whole table on a log of many copies of the dataset, as many more false pairs allowed as there are."""
        import ibis
        import pyarrow as pa

        released = audit.named_copies(audit.QUERIES, _COPIES)
        least, size = self.table.publish_from(len(audit.QUERIES)), len(released)
        allowed = size * (size - 1) * float(law_of(self.table.step).tail(least)) * (1 + 1e-9)
        table = replace(self.table, expected_false_pairs=allowed)
        rows, queries = ibis.memtable(audit.many_logs(dataset, _COPIES)), pa.table({"query": released})
        seen = audit.seen_in(table.run(rows, self.bound, queries, bits), _ALL, STEP, _COPIES)
        return np.minimum(seen, least + _SEEN), lifted_law(self.table, self.exact(dataset), len(audit.QUERIES))

    def law(self, dataset: Rows) -> Law:
        """Enumerate: independent noise on every pair."""
        return lifted_law(self.table, self.exact(dataset), len(audit.QUERIES))

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more: on pairs that nobody made, on both kinds, and on more pairs than the cap."""
        others = audit.crowd(self.table.publish_from(len(audit.QUERIES)), "ant", "bee")
        return [
            Pair("a user with two pairs that nobody made", others, others + audit.searcher("zoe", "cow", "bee", "ant")),
            Pair(
                "a user with one shared pair and one new", others, others + audit.searcher("zoe", "ant", "bee", "cow")
            ),
            Pair(
                "a user who walks in circles",
                others,
                others + audit.searcher("zoe", "cow", *(("cow", "bee", "ant") * 20)),
            ),
            Pair(
                "a user with a query that is not released in between, and searches at the same time",
                others,
                others
                + audit.searcher("zoe", "cow", "dog", "bee", "ant")
                + audit.searcher("zoe", "ant", "bee", "cow", apart=0),
            ),
        ]


def exact_reformulations(table: Reformulations, dataset: Rows, released: Sequence[str]) -> tuple[int, ...]:
    """Count users per ordered pair of released queries by the definition, without an engine."""
    steps: list[tuple[str, int, Key]] = []
    for name in {user for user, *_ in dataset}:
        path = sorted({(time, query) for user, time, query, _ in dataset if user == name})
        for (start, query), (end, following) in pairwise(path):
            near = end - start <= table.session_gap * 1_000_000
            if near and query != following and {query, following} <= set(released):
                steps.append((name, start, (query, following)))
    return audit.totals(audit.first_keys(steps, table.step.keys_per_user), tuple(permutations(released, 2)))


def lifted_rows(table: Reformulations, counts: Sequence[int], size: int, n: int, bits: Bits) -> IntArray:
    """Lift the pairs of ``size`` queries ``n`` times, as the table does once; a row per time, a column per pair."""
    cells = np.array([i * size + j for i, j in permutations(range(size), 2)], dtype=np.int64)
    exact = np.array(counts, dtype=np.int64)
    some = np.flatnonzero(exact)
    when, which, noisy = table.lift(cells[some], exact[some], size, bits, n)
    out = np.full((n, len(cells)), SUPPRESSED, dtype=np.int64)
    out[when, np.searchsorted(cells, which)] = np.minimum(noisy, table.publish_from(size) + _SEEN)
    return out


def lifted_law(table: Reformulations, counts: Sequence[int], size: int) -> dict[tuple[int, ...], float]:
    """Enumerate what is published of all pairs of ``size`` queries: each gets noise, and is seen from T on."""
    law, least = law_of(table.step), table.publish_from(size)
    return product_law([audit.published_law(count, law, least, least + _SEEN) for count in counts])
