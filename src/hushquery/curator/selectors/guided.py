"""Guided: a noisy sketch tells users which of their queries are worth their weight. New here (docs/proofs/guided.md).

1. Every query falls into one of 2^22 public buckets. Each user spreads a weight of L2 norm one over the buckets of up
   to 100 of their queries; all bucket sums are published with Gaussian noise, empty ones too.
2. Each user drops the queries whose bucket looks empty, keeps at most d of the others, and gives less weight to those
   that are popular enough anyway; weights are scaled to L2 norm one and rounded down to multiples of 1/64.
3. Sums of weights get Gaussian noise and are released where they reach a threshold that holds for *unequal* weights.

The sketch is public once noised, so step 2 is a function of one user's rows and of public numbers, and the two Gaussian
steps compose: mu^2 adds. All constants below are fixed before any log is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import in_full
from hushquery.core.step_loss import GaussianHistogram, GaussianWeights
from hushquery.core.thresholds import WEIGHT_GRID
from hushquery.curator.bound import Bound, first_rows
from hushquery.curator.count import law_of, noisy_on_public_keys, passing
from hushquery.curator.intervals import with_intervals
from hushquery.curator.select import (
    QUERY,
    PlannedStep,
    Selector,
    count_first,
    released_placeholder,
    released_table,
)
from hushquery.curator.selectors.weighted import equal_weights
from hushquery.engine import dialect, execute, materialize, md5
from hushquery.noise.bits import Bits
from hushquery.noise.sampler import add_noise

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BUCKETS", "ENOUGH", "LEAST_SHARE", "LOOKS_EMPTY", "SKETCHED_QUERIES", "Guided"]

#: How many buckets the sketch has: a public constant, never derived from the log.
BUCKETS = 2**22
#: The most queries a user puts into the sketch.
SKETCHED_QUERIES = 100
#: A bucket below this many standard deviations of the sketch's noise counts as empty.
LOOKS_EMPTY = 1.5
#: A query estimated at more than this many thresholds needs less weight from each user ...
ENOUGH = 1.5
#: ... but never less than this share.
LEAST_SHARE = 0.02


@dataclass(frozen=True)
class Guided(Selector):
    """Sketch, select by guided weights, then count the released queries."""

    name: ClassVar[str] = "guided"

    sketch: GaussianWeights
    selection: GaussianWeights
    counts: GaussianHistogram | None
    buckets: int = BUCKETS

    @property
    def queries_per_user(self) -> int:  # type: ignore[override]
        """The bound d: how many distinct queries of a user count."""
        return self.selection.keys_per_user

    @property
    def threshold(self) -> float:
        """R in weights of users."""
        return (self.selection.threshold or 0) / WEIGHT_GRID

    def rare_chance(self) -> float:
        """The worst user's, over all weights."""
        return float(self.selection.threshold_delta())

    def steps(self) -> list[PlannedStep]:
        """The sketch, the selection, and the counts."""
        steps = [
            PlannedStep(
                "sketch",
                f"a sketch of {self.buckets:,} buckets with Gaussian noise",
                self.sketch,
                "queries",
                final=False,
            ),
            PlannedStep(
                self.name,
                f"weights guided by the sketch with Gaussian noise, released from {in_full(self.threshold)} on",
                self.selection,
                "queries",
                final=False,
            ),
        ]
        if self.counts is not None:
            detail = "users per released query, counted again, with Gaussian noise"
            steps.append(PlannedStep("gaussian", detail, self.counts, "queries"))
        return steps

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """The sketch, the guided sums, and the counts; what each asks of the log is computed once for all of them."""
        import ibis

        promising = ibis.table({"bucket": "int64", "share": "float64"}, name="promising_buckets")
        each = self.each(table, bound)
        out = {"sketch": self.sums_per_bucket(each), "selection": self.sums_per_query(each, promising)}
        if self.counts is not None:
            released = released_placeholder()
            out["counts"] = count_first(each.inner_join(released, "query"), released, self.counts.keys_per_user)
        return out

    def run(self, table: Any, bound: Bound, bits: Bits) -> pa.Table:
        """Sketch, weigh, draw, count."""
        with materialize(self.each(table, bound)) as each:
            noisy = self.noisy_sketch(self.exact_sketch(each), bits)
            with materialize(self.guided_sums(each, noisy)) as weighed:
                chosen = self.select(weighed, bits)
            if self.counts is None:
                return chosen
            released = released_table(chosen)
            counted = count_first(each.inner_join(released, "query"), released, self.counts.keys_per_user)
            return with_intervals(noisy_on_public_keys(counted, chosen, QUERY, self.counts, bits), self.counts)

    def select(self, counted: Any, bits: Bits) -> pa.Table:
        """Draw once per query; what is published is which queries pass."""
        return passing(counted, QUERY, self.selection, bits).select(QUERY)

    def each(self, table: Any, bound: Bound) -> Any:
        """Give each user's distinct queries with their bucket and their order: all that the three steps ask for."""
        each = bound.each(table, QUERY)
        return each.mutate(bucket=bucket(each["query"], self.buckets))

    def exact_sketch(self, each: Any) -> npt.NDArray[np.int64]:
        """Sum the users' weights per bucket, of the queries that :meth:`each` gave."""
        sums = execute(self.sums_per_bucket(each))
        out = np.zeros(self.buckets, dtype=np.int64)
        out[sums["bucket"].to_numpy()] = sums["n"].to_numpy()
        return out

    def noisy_sketch(self, exact: npt.NDArray[np.int64], bits: Bits) -> npt.NDArray[np.int64]:
        """Add noise to every bucket, empty or not."""
        return add_noise(exact, law_of(self.sketch), bits)

    def guided_sums(self, each: Any, noisy: npt.NDArray[np.int64]) -> Any:
        """Sum the guided weights per query, given a noisy sketch."""
        import ibis
        import pyarrow as pa

        alive = np.flatnonzero(noisy > LOOKS_EMPTY * float(self.sketch.sigma))
        share = np.clip(ENOUGH * (self.selection.threshold or 0) / noisy[alive], LEAST_SHARE, 1.0)
        # Squares of such shares add up without rounding, in whatever order an engine adds them.
        share = np.floor(share * 2**20) / 2**20
        promising = pa.table({"bucket": pa.array(alive, pa.int64()), "share": pa.array(share, pa.float64())})
        return self.sums_per_query(each, ibis.memtable(promising))

    def sums_per_bucket(self, each: Any) -> Any:
        """Sum the users' weights per bucket, as an expression."""
        rows = first_rows(each, QUERY, self.sketch.keys_per_user)
        # Distinct: two queries of one user in the same bucket must not add up to more than L2 norm one.
        rows = equal_weights(rows.select("user", "bucket").distinct())
        return rows.group_by("bucket").agg(n=rows.weight.sum())

    def sums_per_query(self, each: Any, promising: Any) -> Any:
        """Sum the guided weights per query, given the buckets that do not look empty, with a share each."""
        import ibis

        kept = first_rows(each.inner_join(promising, "bucket"), QUERY, self.queries_per_user)
        by_user = ibis.window(group_by="user")
        kept = kept.mutate(norm=(kept.share * kept.share).sum().over(by_user).sqrt())
        kept = kept.mutate(weight=(WEIGHT_GRID * kept.share / kept.norm).floor().cast("int64"))
        # True by construction (docs/proofs/guided.md), and an integer test of one user's own rows all the same.
        kept = kept.mutate(squares=(kept.weight * kept.weight).sum().over(by_user))
        kept = kept.filter((kept.squares <= WEIGHT_GRID**2) & (kept.weight > 0))
        return kept.group_by("query").agg(n=kept.weight.sum())


def bucket(query: Any, buckets: int) -> Any:
    """Give the public bucket of a query: the first six hexadecimal digits of its md5, modulo the number of buckets."""
    import ibis

    digits = md5(query).substr(0, 6)
    if dialect(query) == "duckdb":
        return ((ibis.literal("0x") + digits).cast("int64") % buckets).cast("int64")
    value = ibis.literal(0, "int64")
    for i in range(6):
        value = value * 16 + ibis.literal("0123456789abcdef").find(digits.substr(i, 1)).cast("int64")
    return (value % buckets).cast("int64")
