"""The ``iterated`` selector: rounds of noisy evidence, each of which shows users where their weight is worth most.

Each user keeps up to 200 queries, the same in all rounds, and spreads a weight of L2 norm one over those that are still
alive, less on those that have enough evidence already. Engines move whole numbers only: a query is labelled by digits
of its digest, and by its place among queries with the same digits, which no other query has (docs/proofs/iterated.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.budget import in_full
from hushquery.core.iterated import calibrate_rounds, lone_strings
from hushquery.core.loss import GaussianHistogram, IteratedSelection, Loss
from hushquery.core.registry import SUPPRESSED, Kind, Law, Pair
from hushquery.curator import audit
from hushquery.curator.audit import Key, Rows
from hushquery.curator.counting import (
    QUERY,
    Bound,
    count_released,
    first_rows,
    noisy_counts,
    noisy_on_public_keys,
    reaching,
    released_placeholder,
    released_table,
    with_intervals,
)
from hushquery.curator.selectors import Selector
from hushquery.engine import dialect, execute, materialize, md5
from hushquery.noise.law import RoundedGaussian
from hushquery.noise.sampler import Bits, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

# A share is a whole number of these parts, so that squares add up without rounding in any order.
_WHOLE = 2**20
# The hexadecimal digits of a digest that fit a signed 64-bit number.
_DIGITS = 15
#: The label of a query: digits of its digest, and its place among the queries that share them.
LABEL = ["digest", "place"]


@dataclass(frozen=True)
class Iterated(Selector):
    """Select in rounds, then count the released queries."""

    name: ClassVar[str] = "iterated"

    selection: IteratedSelection
    counts: GaussianHistogram | None

    @property
    def queries_per_user(self) -> int:
        """The bound d of the counts; without counts the most queries that get weight."""
        return (self.counts or self.selection).keys_per_user

    @property
    def threshold(self) -> float:
        """The threshold in weights of users: how many users with one query each reach it."""
        return self.selection.threshold / (sum(self.selection.evidence) * self.selection.grid)

    def rare_chance(self) -> float:
        """Return the certified number."""
        return float(self.selection.union_delta)

    def detail(self) -> str:
        """Describe the selection."""
        rounds = len(self.selection.sigmas)
        return (
            f"{rounds} rounds of weights with Gaussian noise, released at a noisy sum of {in_full(self.threshold, 3)} "
            "users' weights or more"
        )

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Return the kept queries, the sums of the first and of a later round, and the counts."""
        import ibis

        kept = self.kept(table, bound)
        each = kept.select("user", "digest", place=ibis.literal(0, "int64"))
        alive = ibis.table({"digest": "int64", "place": "int64", "share": "int64"}, name="alive_queries")
        out = {"kept": kept, "first round": self.first_sums(each), "later rounds": self.later_sums(each, alive)}
        if self.counts is not None:
            out["counts"] = count_released(table, bound, released_placeholder(), self.counts.keys_per_user)
        return out

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Return the kept queries: what everything else is computed from."""
        return self.kept(table, bound)

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Select, then count."""
        with materialize(self.kept(table, bound)) as kept, _labelled(kept) as (each, strings):
            chosen = self.in_words(self.rounds(each, bits), strings)
        if self.counts is None:
            return chosen
        counted = count_released(table, bound, released_table(chosen), self.counts.keys_per_user)
        return with_intervals(noisy_on_public_keys(counted, chosen, QUERY, self.counts, bits), self.counts)

    def kept(self, table: Any, bound: Bound) -> Any:
        """Return the queries that each user keeps, in all rounds alike, with digits of their digests."""
        kept = first_rows(bound.each(table, QUERY), QUERY, self.selection.keys_per_user)
        return kept.select("user", "query", digest=digits_of(kept["query"]))

    def rounds(self, each: Any, bits: Bits) -> pa.Table:
        """Run all rounds on labelled rows, and return the labels that come out."""
        import pyarrow as pa

        step = self.selection
        laws = [RoundedGaussian(sigma) for sigma in step.sigmas]
        with materialize(self.first_sums(each)) as sums:
            # z >= c exactly if the noisy sum reaches c / evidence, rounded up.
            alive = reaching(sums, LABEL, laws[0], -(-step.cuts[0] // step.evidence[0]), bits)
        alive = alive.sort_by([(name, "ascending") for name in LABEL])
        evidence = step.evidence[0] * alive["noisy"].to_numpy()
        for r in range(1, len(laws)):
            shares = self.shares(evidence, r)
            given = alive.select(LABEL).append_column("share", pa.array(shares, pa.int64()))
            # Every query that is alive gets noise, also where nobody gives it weight.
            noisy = noisy_counts(self.later_sums(each, _in_memory(given)), given, LABEL, laws[r], bits)
            evidence = evidence + step.evidence[r] * noisy["noisy"].to_numpy()
            passes = evidence >= (*step.cuts, step.threshold)[r]
            alive, evidence = given.select(LABEL).filter(pa.array(passes)), evidence[passes]
        return alive

    def shares(self, evidence: IntArray, r: int) -> IntArray:
        """Return the public share of each query that is alive before round r, counted from 0, in parts of 2^20."""
        step = self.selection
        so_far = float(step.enough) * step.threshold * sum(step.evidence[:r]) / sum(step.evidence)
        share = np.clip((so_far / evidence) ** float(step.power), float(step.least), 1.0)
        return np.floor(share * _WHOLE).astype(np.int64)

    def first_sums(self, each: Any) -> Any:
        """Sum the weights per query where each user spreads them equally."""
        import ibis

        counted = each.mutate(t=each.count().over(ibis.window(group_by="user")))
        # Doubles are exact enough: 256/sqrt(t) is whole only where sqrt(t) is, and else far from a whole number.
        counted = counted.mutate(weight=(self.selection.grid / counted.t.cast("float64").sqrt()).floor().cast("int64"))
        return self._summed(counted)

    def later_sums(self, each: Any, alive: Any) -> Any:
        """Sum the weights per query that is alive, given its share."""
        import ibis

        grid, by_user = self.selection.grid, ibis.window(group_by="user")
        kept = each.inner_join(alive, LABEL)
        kept = kept.mutate(norm=(kept.share * kept.share).sum().over(by_user).cast("int64"))
        kept = kept.mutate(weight=(grid * kept.share / kept.norm.cast("float64").sqrt()).floor().cast("int64"))
        # The whole part of the true root, whatever the engine's doubles do: w^2 norm <= (grid share)^2 < (w+1)^2 norm.
        square = grid * grid * kept.share * kept.share
        over = kept.weight * kept.weight * kept.norm > square
        under = (kept.weight + 1) * (kept.weight + 1) * kept.norm <= square
        kept = kept.mutate(weight=kept.weight - over.cast("int64") + under.cast("int64"))
        return self._summed(kept)

    def _summed(self, weighed: Any) -> Any:
        """Add up the weights of users who pass the integer test: whole weights of 0 to grid, with squares up to grid^2.

        All do by construction, and the test looks at one user's own rows.
        """
        import ibis

        grid, by_user = self.selection.grid, ibis.window(group_by="user")
        sound = weighed.weight.between(0, grid).fill_null(False)
        weighed = weighed.mutate(square=ibis.ifelse(sound, weighed.weight * weighed.weight, grid * grid + 1))
        weighed = weighed.mutate(squares=weighed.square.sum().over(by_user))
        weighed = weighed.filter(weighed.squares <= grid * grid)
        return weighed.group_by(LABEL).agg(n=weighed.weight.sum().cast("int64"))

    def in_words(self, labels: pa.Table, strings: Any) -> pa.Table:
        """Return the queries behind labels."""
        found = strings.semi_join(_in_memory(labels), LABEL).select(QUERY)
        return execute(found).sort_by("query")


def digits_of(query: Any) -> Any:
    """Return the first 15 hexadecimal digits of a query's md5 as a number."""
    import ibis

    digits = md5(query).substr(0, _DIGITS)
    if dialect(query) == "duckdb":
        return (ibis.literal("0x") + digits).cast("int64")
    value = ibis.literal(0, "int64")
    for i in range(_DIGITS):
        value = value * 16 + ibis.literal("0123456789abcdef").find(digits.substr(i, 1)).cast("int64")
    return value.cast("int64")


@contextmanager
def _labelled(kept: Any) -> Iterator[tuple[Any, Any]]:
    """Label kept rows: store each user's labels, and the query behind each label, for the block.

    A place is above 0 only where two queries share 60 bits of md5, so the table of such places is nearly always empty.
    """
    import ibis

    distinct = kept.select("digest", "query").distinct()
    place = ibis.row_number().over(ibis.window(group_by="digest", order_by="query"))
    with materialize(distinct.mutate(place=place.cast("int64"))) as strings:
        later = strings.filter(strings.place > 0).select("digest", "query", later="place")
        with materialize(later) as shared:
            joined = kept.left_join(shared, ["digest", "query"])
            each = joined.select("user", digest=kept.digest, place=shared.later.fill_null(0))
            with materialize(each) as labels:
                yield labels, strings


def _in_memory(table: pa.Table) -> Any:
    import ibis

    return ibis.memtable(table)
