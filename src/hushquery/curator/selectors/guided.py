"""The ``guided`` selector: a noisy sketch shows users which of their queries are worth their weight.

The sketch sums users' weights in 2^22 public buckets, empty ones included, with Gaussian noise. Each user drops queries
whose bucket looks empty and gives popular ones less weight; sums of weights are released at a threshold that holds for
unequal weights. Both Gaussian steps compose: mu^2 adds (docs/proofs/guided.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.calibration import WEIGHT_GRID, mu_for, sigma_for
from hushquery.core.loss import GaussianHistogram, GaussianWeights, Loss
from hushquery.core.registry import SUPPRESSED, Kind, Law, Pair
from hushquery.curator import audit
from hushquery.curator.audit import Key, LogMechanism, Rows
from hushquery.curator.counting import (
    QUERY,
    Bound,
    count_first,
    first_rows,
    law_of,
    noisy_on_public_keys,
    released_placeholder,
    released_table,
    with_intervals,
)
from hushquery.curator.selectors import PlannedStep, Selector
from hushquery.curator.selectors.weighted import equal_weights, reaching
from hushquery.engine import dialect, execute, materialize, md5
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import Bits, IntArray, add_noise

if TYPE_CHECKING:
    import pyarrow as pa

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
    def threshold(self) -> float:
        """R in weights of users."""
        return (self.selection.threshold or 0) / WEIGHT_GRID

    def rare_chance(self) -> float:
        """Return the worst user's, over all weights."""
        return float(self.selection.threshold_delta())

    def detail(self) -> str:
        """Describe the selection."""
        return f"weights guided by the sketch with Gaussian noise, {reaching(self.threshold)}"

    def steps(self) -> list[PlannedStep]:
        """Return the sketch, the selection, and the counts."""
        detail = f"a sketch of {self.buckets:,} buckets with Gaussian noise"
        return [PlannedStep("sketch", detail, self.sketch, "queries", final=False), *super().steps()]

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Sum the guided weights per query; which buckets do not look empty is a stand-in."""
        import ibis

        promising = ibis.table({"bucket": "int64", "share": "float64"}, name="promising_buckets")
        return self.sums_per_query(self.each(table, bound), promising)

    def expressions(self, table: Any, bound: Bound) -> Mapping[str, Any]:
        """Return the sketch, the guided sums, and the counts; what each asks of the log is computed once for all."""
        each = self.each(table, bound)
        out = {"sketch": self.sums_per_bucket(each), "selection": self.to_select(table, bound)}
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

    def each(self, table: Any, bound: Bound) -> Any:
        """Return each user's distinct queries with their bucket and their order: all that the three steps ask for."""
        each = bound.each(table, QUERY)
        return each.mutate(bucket=bucket(each["query"], self.buckets))

    def exact_sketch(self, each: Any) -> IntArray:
        """Sum the users' weights per bucket, of the queries that :meth:`each` gave."""
        sums = execute(self.sums_per_bucket(each))
        out = np.zeros(self.buckets, dtype=np.int64)
        out[sums["bucket"].to_numpy()] = sums["n"].to_numpy()
        return out

    def noisy_sketch(self, exact: IntArray, bits: Bits) -> IntArray:
        """Add noise to every bucket, empty or not."""
        return add_noise(exact, law_of(self.sketch), bits)

    def guided_sums(self, each: Any, noisy: IntArray) -> Any:
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
    """Return the public bucket of a query: the first six hexadecimal digits of its md5, modulo ``buckets``."""
    import ibis

    digits = md5(query).substr(0, 6)
    if dialect(query) == "duckdb":
        return ((ibis.literal("0x") + digits).cast("int64") % buckets).cast("int64")
    value = ibis.literal(0, "int64")
    for i in range(6):
        value = value * 16 + ibis.literal("0123456789abcdef").find(digits.substr(i, 1)).cast("int64")
    return (value % buckets).cast("int64")


# ---- what the audit knows of it --------------------------------------------------------------------------------------

# One bucket makes the noisy sketch a number whose law can be listed. Its share cancels, so only whether it looks empty
# matters; tests/curator/test_audit.py covers unequal shares.

# On how many copies of a dataset the whole selector is run.
_COPIES = 400


@dataclass(frozen=True)
class _Sketching(LogMechanism):
    """What both have: a bucket with the users' weights, and noise."""

    guided: Guided
    bound: Bound = field(default=Bound())

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Sum the weights per bucket."""
        return tuple(self.guided.exact_sketch(self.guided.each(audit.log_of(dataset), self.bound)).tolist())

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Each user's whole weight is in the one bucket."""
        return (WEIGHT_GRID * len({user for user, *_ in dataset}),)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Add noise to the bucket, ``n`` times."""
        return self.guided.noisy_sketch(np.tile(np.array(self.counts(dataset)), n), bits).reshape(n, 1)

    def law(self, dataset: Rows) -> Law:
        """Enumerate the noisy sum; the edges lie so far out that one user's weight does not reach them either."""
        return noisy_law(self.exact(dataset)[0], law_of(self.guided.sketch), beyond=2 * WEIGHT_GRID)


@dataclass(frozen=True)
class Sketch(_Sketching):
    """Sums of users' weights per bucket, each user with L2 norm at most one, with rounded Gaussian noise; one bucket.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 for one user, add-remove (docs/proofs/guided.md).
    **Estimator:** the noisy sum, unbiased; variance sigma^2 + 1/12 in steps of 1/64.

    >>> Sketch.calibrate(Fraction(1), Fraction(1, 10**5)).loss.epsilon(1e-5) <= 1
    True
    """

    name: ClassVar[str] = "sketch"
    summary: ClassVar[str] = "the noisy sketch of the guided selector"
    kind: ClassVar[Kind] = "mechanism"
    audit_runs: ClassVar[int] = 300_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Sketch:
        """Spend the whole budget on the sketch."""
        sketch = GaussianWeights(SKETCHED_QUERIES, sigma_for(WEIGHT_GRID**2, mu_for(epsilon, delta) ** 2))
        return cls(Guided(sketch, GaussianWeights(2, sketch.sigma, 1), None, buckets=1))

    @property
    def loss(self) -> Loss:
        """mu^2."""
        return self.guided.sketch.loss

    def truth(self, dataset: Rows) -> Sequence[float]:
        """Return the sum itself."""
        return self.exact(dataset)

    def variance(self, dataset: Rows) -> Sequence[float]:
        """Return the variance of the noise."""
        del dataset
        return [law_of(self.guided.sketch).variance]

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries all fall into one bucket; which may have been empty before."""
        others = audit.crowd(3, "ant", "bee")
        flood = audit.searcher("zoe", *(f"query {i}" for i in range(SKETCHED_QUERIES + 50)))
        return [
            Pair("a user with two queries in one bucket", others, others + audit.searcher("zoe", "ant", "bee")),
            Pair("a user with more queries than are sketched", others, others + flood),
            Pair("a user in an empty bucket", (), audit.searcher("zoe", "ant")),
        ]


@dataclass(frozen=True)
class GuidedSelector(_Sketching):
    """The guided selector without counts: the noisy sketch (charged as if published) and what it selects.

    **Guarantee:** mu-GDP with mu^2 = 64^2/sigma^2 of the sketch and of the selection together, plus the threshold's
    delta, for one user, add-remove (docs/proofs/guided.md).
    **Estimator:** none: what is published is which queries pass.

    >>> f"{GuidedSelector.calibrate(Fraction(1), Fraction(1, 10**5)).guided.threshold:.1f}"
    '23.5'
    """

    keys: tuple[Key, ...] = audit.query_keys(*audit.QUERIES)

    name: ClassVar[str] = "guided"
    summary: ClassVar[str] = "queries of a log by weights that a noisy sketch guides"
    # Of the second step's noisy sums only one bit each is published.
    tight: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> GuidedSelector:
        """Calibrate as a release of a list of queries would, with one bucket."""
        selector = audit.selector_for("guided", epsilon, delta, select_only=True)
        if not isinstance(selector, Guided):
            raise TypeError(selector)
        return cls(replace(selector, buckets=1))

    @property
    def loss(self) -> Loss:
        """What both steps cost."""
        return self.guided.sketch.loss + self.guided.selection.loss

    def alive_from(self) -> int:
        """Return the smallest noisy sum of a bucket that does not look empty."""
        return math.floor(LOOKS_EMPTY * float(self.guided.sketch.sigma)) + 1

    def weigh(self, dataset: Rows, noisy: int) -> tuple[int, ...]:
        """Sum the guided weights per query, given the noisy sketch."""
        each = self.guided.each(audit.log_of(dataset), self.bound)
        expression = self.guided.guided_sums(each, np.array([noisy], dtype=np.int64))
        return audit.exact_counts(expression, self.keys, QUERY)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Sketch and select, ``n`` times."""
        sketched = super().run(dataset, n, bits)
        empty, full = (np.array(audit.once(self.weigh, dataset, noisy)) for noisy in (0, self.alive_from()))
        weights = np.where(sketched >= self.alive_from(), full, empty)
        return np.hstack([sketched, audit.rows_of(self.guided.select(audit.copies_of(weights), bits), weights.shape)])

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law] | None:
        """Run the whole selector with all its buckets, where each user has one query and so one weight."""
        import ibis

        kept = audit.first_keys(audit.posed(dataset), len(dataset))
        if not all(len(mine) == 1 for mine in kept):
            return None
        whole = replace(self.guided, buckets=BUCKETS)
        published = whole.run(ibis.memtable(audit.many_logs(dataset, _COPIES)), self.bound, bits)
        singles: list[dict[tuple[int, ...], float]] = []
        for users in audit.totals(kept, self.keys):
            alive = float(law_of(self.guided.sketch).tail(self.alive_from() - WEIGHT_GRID * users))
            chance = alive * audit.passing_bit(WEIGHT_GRID * users, self.guided.selection).get((1,), 0.0)
            singles.append({(1,): chance, (SUPPRESSED,): 1 - chance})
        # Two copies' queries in one of so many buckets would disturb each other; of these none are.
        return audit.seen_in(published, self.keys, QUERY, _COPIES), product_law(singles)

    def law(self, dataset: Rows) -> Law:
        """Enumerate the sketch with what is selected given it."""
        kept = audit.first_keys(audit.posed(dataset), self.guided.queries_per_user)
        sums = audit.weighted_totals(kept, self.keys)
        given = [
            product_law([audit.passing_bit(alive * total, self.guided.selection) for total in sums]) for alive in (0, 1)
        ]
        out: dict[tuple[int, ...], float] = {}
        for (noisy,), chance in super().law(dataset).items():
            for outcome, probability in given[noisy >= self.alive_from()].items():
                out[(noisy, *outcome)] = chance * probability
        return out

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared with a crowd about the threshold, or more than the cap."""
        around = int(self.guided.threshold)
        others = audit.crowd(around // 2, "ant")
        return [
            Pair("a user with one shared query", others, others + audit.searcher("zoe", "ant")),
            Pair("a user with one new query", others, others + audit.searcher("zoe", "bee")),
            *audit.query_pairs(around, around)[2:],
        ]
