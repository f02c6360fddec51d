"""Reformulations: what people search next, among the released queries.

Per user: pairs of consecutive searches of one session (consecutive in the user's whole log, before anything is filtered
away), different from each other, both released; distinct pairs, at most d_r. The released queries are public, so all
ordered pairs of them are a public domain: every pair gets noise, and those that reach T are published. Noise is not
drawn for the many pairs that nobody made: how many of them reach T is one binomial draw, which ones a uniform choice
(Cormode, Procopiuc, Srivastava and Tran 2012). T is computed from the size of the public domain, never from the number
of empty pairs, which is secret. So some published pairs are pure noise: their expected number is part of the release.
docs/proofs/reformulations.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushquery.core.budget import exact, smallest_whole
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram
from hushquery.curator.bound import Bound
from hushquery.curator.count import law_of, tally
from hushquery.curator.intervals import with_intervals
from hushquery.curator.select import PlannedStep, released_placeholder
from hushquery.engine import execute
from hushquery.errors import UsageError
from hushquery.noise.bits import Bits, below
from hushquery.noise.law import Binomial, TailCoin
from hushquery.noise.sampler import IntArray, add_noise, sampler
from hushquery.noise.survivors import conditional_noise

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Reformulations", "empty_cells"]

STEP = ["query", "next_query"]


@dataclass(frozen=True)
class Reformulations:
    """How the table ``reformulations`` is made.

    Args:
        step: The noise; pairs of released queries are public, so there is no threshold that costs anything.
        session_gap: Seconds after which a new session begins.
        false_edges: How many pairs of pure noise are expected among those published, at most.
    """

    step: LaplaceHistogram | GaussianHistogram
    session_gap: float = 1800.0
    false_edges: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.session_gap < 1e9 or not 0 < self.false_edges <= 1e6:
            raise UsageError(
                "a session gap is some seconds above zero, and expected false edges are above zero",
                fix="Give, say, --session-gap 1800 --false-edges 1, or session_gap=1800, false_edges=1",
            )

    @property
    def reformulations_per_user(self) -> int:
        """d_r."""
        return self.step.keys_per_user

    def planned(self) -> PlannedStep:
        """Say the step."""
        laplace = isinstance(self.step, LaplaceHistogram)
        noise = "discrete Laplace" if laplace else "Gaussian"
        detail = (
            f"users per pair of consecutive released queries with {noise} noise; all pairs are public, "
            f"at most {self.false_edges:g} of pure noise expected"
        )
        return PlannedStep("reformulations", detail, self.step, "reformulations")

    def publish_from(self, released: int) -> int:
        """Give T: the smallest whole number from 1 on at which ``|Q|(|Q| - 1)`` empty pairs give at most the false
        edges.
        """
        pairs, law, allowed = released * (released - 1), law_of(self.step), exact(self.false_edges)
        found = smallest_whole(lambda least: bool(pairs * law.tail(least) <= allowed))
        if found is None:
            raise UsageError("no noisy count is rare enough", fix="Allow more: --false-edges, or false_edges=")
        return found

    def expected_false(self, released: int) -> float:
        """Give F: the expected number of published pairs of pure noise, if all pairs were empty."""
        return float(released * (released - 1) * law_of(self.step).tail(self.publish_from(released)))

    def expression(self, table: Any, bound: Bound, released: Any = None) -> Any:
        """Count users per pair."""
        import ibis

        queries = released_placeholder() if released is None else released
        # Several clicks repeat the row of one search.
        timed = table.filter(table.time.notnull() & table["query"].notnull()).select("user", "time", "query").distinct()
        walk = ibis.window(group_by="user", order_by=[timed.time, timed.query])
        steps = timed.mutate(next_query=timed["query"].lead().over(walk), gap=timed.time.lead().over(walk) - timed.time)
        same_session = steps.filter(
            steps.next_query.notnull()
            & (steps.gap <= int(self.session_gap * 1_000_000))
            & (steps.next_query != steps["query"])
        )
        inside = same_session.semi_join(queries, "query")
        named = queries.select(next_query=queries["query"])
        inside = inside.semi_join(named, "next_query")
        return tally(bound.rows(inside, STEP, self.reformulations_per_user), STEP)

    def run(self, table: Any, bound: Bound, released: pa.Table, bits: Bits) -> pa.Table:
        """Count pairs, add noise to all of Q x Q, publish those from T on."""
        import ibis
        import pyarrow as pa

        queries = np.array(sorted(released["query"].to_pylist()), dtype=object)
        size = len(queries)
        if size < 2:
            return with_intervals(_table(pa, [], [], np.empty(0, dtype=np.int64)), self.step)
        least = self.publish_from(size)
        made = execute(self.expression(table, bound, ibis.memtable(released.select(["query"]))).order_by(STEP))
        position = {query: i for i, query in enumerate(queries)}
        first = np.array([position[q] for q in made["query"].to_pylist()], dtype=np.int64)
        second = np.array([position[q] for q in made["next_query"].to_pylist()], dtype=np.int64)
        _, cells, noisy = self.lift(first * size + second, made["n"].to_numpy(), size, bits)
        table_out = _table(pa, queries[cells // size].tolist(), queries[cells % size].tolist(), noisy)
        # All pairs of the domain had noise, so a pair is there because it reached T, not because somebody made it.
        return with_intervals(table_out, replace(self.step, threshold=least), support_is_public=True)

    def lift(
        self, cells: IntArray, counts: IntArray, size: int, bits: Bits, times: int = 1
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Add noise to all ordered pairs of ``size`` released queries, and give those that reach T.

        Args:
            cells: The pairs that somebody made, each once: ``size`` times the first query's place plus the second's.
            counts: How many users made each.
            size: ``|Q|``.
            bits: Where the noise comes from.
            times: How often, each time anew; a release does it once.

        Returns:
            In which of the times, which pair, and its noisy count.
        """
        law, least = law_of(self.step), self.publish_from(size)
        noisy = add_noise(np.tile(counts, times), law, bits)
        kept = noisy >= least
        found = [(np.repeat(np.arange(times), len(cells))[kept], np.tile(cells, times)[kept], noisy[kept])]
        # Empty pairs that noise alone lifts to T: how many, which, and how high.
        filled = set(cells.tolist())
        empty = size * (size - 1) - len(filled)
        lifted = sampler(Binomial(empty, TailCoin(law, least))).draw(times, bits) if empty else np.zeros(times, int)
        for time in np.flatnonzero(lifted).tolist():
            chosen = empty_cells(int(lifted[time]), size, filled, bits)
            found.append((np.full(len(chosen), time), chosen, conditional_noise(law, least, len(chosen), bits)))
        when, which, values = (np.concatenate(parts).astype(np.int64) for parts in zip(*found, strict=True))
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
