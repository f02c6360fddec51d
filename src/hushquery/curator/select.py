"""Select: which queries may be published, and with what counts.

A selector is calibrated for a budget without looking at data, states its randomised steps, and turns a log into the
table ``queries`` of a release. Here are those that need one look at the log: ``laplace`` and ``gaussian`` publish the
counts they selected with, ``korolova2009`` and ``optimal`` select first and count the released queries again.
``weighted`` and ``guided`` are in their own files.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.budget import in_full
from hushquery.core.rounding import smallest_whole
from hushquery.core.step_loss import GaussianHistogram, LaplaceHistogram, OptimalSelection, StepParameters
from hushquery.curator.bound import Bound, first_rows, searches
from hushquery.curator.count import keys_at, law_of, noisy_on_public_keys, passing, tally
from hushquery.curator.intervals import with_intervals
from hushquery.curator.selectors.korolova import Theorem1
from hushquery.engine import execute, materialize
from hushquery.noise.bits import Bits
from hushquery.noise.law import Binomial, SelectionCoin
from hushquery.noise.sampler import sampler
from hushquery.noise.survivors import WORTH_A_BINOMIAL, uniform_subset

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "QUERY",
    "Korolova",
    "Optimal",
    "PlannedStep",
    "Reused",
    "Selector",
    "count_first",
    "count_released",
    "finish_by_counting",
    "released_placeholder",
    "released_table",
]

#: The key of the table ``queries``.
QUERY = ["query"]


@dataclass(frozen=True)
class PlannedStep:
    """One randomised step of a plan.

    Args:
        name: The mechanism, by its registered name.
        detail: What it does, in a clause.
        parameters: The numbers it runs with, from which its cost is computed.
        table: The table of the release whose rows it selects or counts.
        final: Whether its noisy values are what that table publishes.
    """

    name: str
    detail: str
    parameters: StepParameters
    table: str
    final: bool = True


class Selector(ABC):
    """How the table ``queries`` is made."""

    name: ClassVar[str]
    #: What is counted per query.
    counts_what: ClassVar[str] = "users who searched it"
    queries_per_user: int
    #: The step whose noise is in the published counts; None for a list without counts.
    counts: LaplaceHistogram | GaussianHistogram | None

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The threshold in the units of a count: users, or searches."""

    @abstractmethod
    def rare_chance(self) -> float:
        """Bound the expected number of queries of one user alone that come out."""

    @abstractmethod
    def steps(self) -> list[PlannedStep]:
        """Give the randomised steps in order."""

    @abstractmethod
    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Give what the engine will be asked, by name; later ones stand on a placeholder for what was released."""

    @abstractmethod
    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Read the log and give the released queries: ``query``, and with counts ``count, stderr, low, high``."""

    @abstractmethod
    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Draw on the counts (or sums of weights) ``n`` of all queries, evaluated once, and give those that come out.

        What :meth:`run` selects with, and what an audit runs: in a column ``noisy`` the counts, where the noise that
        selected them is published.
        """


def released_placeholder() -> Any:
    """Give a stand-in for the released queries, for showing SQL before there are any."""
    import ibis

    return ibis.table({"query": "string", "number": "int64"}, name="released_queries")


def released_table(released: pa.Table) -> Any:
    """Give released queries to an engine, numbered in their order: rows are then bounded and counted by number.

    An engine groups and sorts numbers at a fraction of what texts cost, and numbers break ties as the texts would.
    """
    import ibis
    import pyarrow as pa

    queries = released.select(QUERY).sort_by("query")
    return ibis.memtable(queries.append_column("number", pa.array(range(queries.num_rows), pa.int64())))


def count_released(table: Any, bound: Bound, released: Any, most: int) -> Any:
    """Count users per released query, each in at most ``most`` of them: the cap applies to released queries only.

    Args:
        table: Rows with ``user``, ``query``, and ``time`` where there is any.
        bound: Which of a user's queries are kept.
        released: The queries with their ``number`` (:func:`released_table`).
        most: d.
    """
    return count_first(bound.each(table.inner_join(released, "query").drop("query"), ["number"]), released, most)


def count_first(each: Any, released: Any, most: int) -> Any:
    """Count users per released query, given each user's distinct released queries by ``number``, with their order."""
    counted = tally(first_rows(each, ["number"], most), ["number"])
    return counted.inner_join(released, "number").select("query", "n")


@dataclass(frozen=True)
class Reused(Selector):
    """Publish the very counts that passed the threshold: one draw selects and counts.

    The counts themselves cost nothing more: off the event that a key of one user alone passes, the output is a function
    of the noisy counts (docs/proofs/thresholds.md).
    """

    name: str  # type: ignore[misc]
    step: LaplaceHistogram | GaussianHistogram
    with_counts: bool = True

    @property
    def queries_per_user(self) -> int:  # type: ignore[override]
        """The bound d: how many distinct queries of a user count."""
        return self.step.keys_per_user

    @property
    def counts(self) -> LaplaceHistogram | GaussianHistogram | None:  # type: ignore[override]
        """The same step."""
        return self.step if self.with_counts else None

    @property
    def threshold(self) -> float:
        """The threshold R: a noisy count from here on is released."""
        return float(self.step.threshold or 0)

    def rare_chance(self) -> float:
        """D times the chance that a count of one passes."""
        return self.queries_per_user * float(law_of(self.step).tail(int(self.threshold) - 1))

    def steps(self) -> list[PlannedStep]:
        """One step."""
        noise = "discrete Laplace" if isinstance(self.step, LaplaceHistogram) else "Gaussian"
        detail = (
            f"users per query with {noise} noise, released from {in_full(self.threshold)} on, with that noisy count"
        )
        registered = "laplace" if isinstance(self.step, LaplaceHistogram) else "gaussian-selector"
        return [PlannedStep(registered, detail, self.step, "queries")]

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Count users per query."""
        return {"queries": tally(bound.rows(table, QUERY, self.queries_per_user), QUERY)}

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Count once, draw once."""
        with materialize(self.expressions(table, bound)["queries"]) as counted:
            chosen = self.select(counted, bits)
        return with_intervals(chosen, self.step) if self.with_counts else chosen

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """One draw selects and counts."""
        chosen = passing(counted, QUERY, self.step, bits)
        return chosen if self.with_counts else chosen.select(QUERY)


@dataclass(frozen=True)
class Korolova(Selector):
    """Algorithm 1 of Korolova et al. 2009: select by one noise, publish counts with another."""

    name: ClassVar[str] = "korolova2009"
    counts_what: ClassVar[str] = "searches for it"

    theorem: Theorem1
    counts: LaplaceHistogram | None

    @property
    def queries_per_user(self) -> int:  # type: ignore[override]
        """d, in searches."""
        return self.theorem.queries_per_user

    @property
    def threshold(self) -> float:
        """K of the paper."""
        return float(self.theorem.threshold)

    def rare_chance(self) -> float:
        """The larger of d queries posed once and one query posed d times."""
        law = law_of(self.theorem.step())
        once, often = (float(law.tail(self.theorem.release_at - m)) for m in (1, self.queries_per_user))
        return max(self.queries_per_user * once, often)

    def steps(self) -> list[PlannedStep]:
        """The selection, and the counts."""
        detail = f"searches per query with discrete Laplace noise, released above {self.threshold:.2f}"
        steps = [PlannedStep(self.name, detail, self.theorem.step(), "queries", final=False)]
        if self.counts is not None:
            detail = "the same counts of the released queries with fresh discrete Laplace noise"
            steps.append(PlannedStep("discrete-laplace", detail, self.counts, "queries"))
        return steps

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Count searches per query."""
        return {"queries": tally(searches(table, bound, self.queries_per_user), QUERY)}

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Count once, draw for the selection, draw again for the counts."""
        with materialize(self.expressions(table, bound)["queries"]) as counted:
            chosen = self.select(counted, bits)
            if self.counts is None:
                return chosen
            return with_intervals(noisy_on_public_keys(counted, chosen, QUERY, self.counts, bits), self.counts)

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Draw once per query; the counts get noise of their own."""
        return passing(counted, QUERY, self.theorem.step(), bits).select(QUERY)


@dataclass(frozen=True)
class Optimal(Selector):
    """The selection with the largest possible chance for every count at (epsilon/d, delta/d) per query.

    Reference: Desfontaines, Voss, Gipson and Mandayam 2022. It publishes no counts; they cost a second step.
    """

    name: ClassVar[str] = "optimal"

    selection: OptimalSelection
    counts: LaplaceHistogram | None

    @property
    def queries_per_user(self) -> int:  # type: ignore[override]
        """The bound d: how many distinct queries of a user count."""
        return self.selection.keys_per_user

    def coin(self, count: int) -> SelectionCoin:
        """Give the coin that decides on a query which ``count`` users hold."""
        return SelectionCoin(count, self.selection.epsilon, self.selection.delta)

    @property
    def threshold(self) -> float:
        """The first count that is released with a chance of one half or more."""
        return float(smallest_whole(lambda count: bool(self.coin(count).sf(0) >= 0.5)) or math.inf)

    def rare_chance(self) -> float:
        """D delta' by construction."""
        return float(self.queries_per_user * self.selection.delta)

    def steps(self) -> list[PlannedStep]:
        """The selection, and the counts."""
        detail = f"queries released by the best possible coin; {in_full(self.threshold)} users pass half of the time"
        steps = [PlannedStep(self.name, detail, self.selection, "queries", final=False)]
        if self.counts is not None:
            detail = "users per released query, counted again, with discrete Laplace noise"
            steps.append(PlannedStep("discrete-laplace", detail, self.counts, "queries"))
        return steps

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Count users per query, and again per released query."""
        out = {"selection": tally(bound.rows(table, QUERY, self.queries_per_user), QUERY)}
        if self.counts is not None:
            out["counts"] = count_released(table, bound, released_placeholder(), self.queries_per_user)
        return out

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Toss a coin per query, then count the released ones."""
        with materialize(self.expressions(table, bound)["selection"]) as counted:
            chosen = self.select(counted, bits)
        return finish_by_counting(chosen, table, bound, self.counts, bits)

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Toss a coin per query."""
        import pyarrow as pa

        sizes = execute(counted.group_by("n").agg(keys=counted.count()).order_by("n")).to_pydict()
        chosen, singly = [], []
        for count, size in zip(sizes["n"], sizes["keys"], strict=True):
            if size < WORTH_A_BINOMIAL or self.coin(count).certain:
                singly.append(count)
                continue
            # Among keys of equal count, how many pass is binomial and which ones a uniform subset.
            passed = sampler(Binomial(size, self.coin(count))).draw_one(bits)
            if passed:
                chosen.append(keys_at(counted, QUERY, count, uniform_subset(size, passed, bits)))
        rows = execute(counted.filter(counted.n.isin(singly)).select(*QUERY, "n").order_by(QUERY))
        counts = np.asarray(rows["n"].to_numpy(), dtype=np.int64)
        kept = np.zeros(len(counts), dtype=np.bool_)
        for count in singly:
            where = np.flatnonzero(counts == count)
            coin = self.coin(count)
            kept[where] = coin.sf(0) == 1 if coin.certain else sampler(coin).draw(len(where), bits) == 1
        chosen.append(rows.select(QUERY).filter(pa.array(kept)))
        return pa.concat_tables(chosen)


def finish_by_counting(
    chosen: pa.Table, table: Any, bound: Bound, counts: LaplaceHistogram | GaussianHistogram | None, bits: Bits
) -> pa.Table:
    """Count users per released query anew, with noise on every one of them; without ``counts``, leave the list."""
    if counts is None:
        return chosen.select(QUERY)
    counted = count_released(table, bound, released_table(chosen), counts.keys_per_user)
    return with_intervals(noisy_on_public_keys(counted, chosen, QUERY, counts, bits), counts)
