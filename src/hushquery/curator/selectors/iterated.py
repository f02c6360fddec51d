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
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.budget import in_full
from hushquery.core.calibration import mu_for
from hushquery.core.iterated import IteratedSelection, Shape, calibrate_rounds
from hushquery.core.loss import GaussianHistogram
from hushquery.core.registry import Pair
from hushquery.curator import audit
from hushquery.curator.audit import CountedAgain, Key, Rows
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
from hushquery.curator.selectors.thresholded import gaussian_step
from hushquery.engine import call, dialect, execute, materialize, md5
from hushquery.noise.law import RoundedGaussian
from hushquery.noise.sampler import Bits, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

# A share is a whole number of these parts, so that squares add up without rounding in any order.
_WHOLE = 2**20
# The hexadecimal digits of a digest that are whole octets and fit a signed 64-bit number.
_DIGITS = 14
#: The label of a query: digits of its digest, and its place among the queries that share them.
LABEL = ["digest", "nth"]


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
        each = kept.select("user", "digest", nth=ibis.literal(0, "int64"))
        alive = ibis.table({"digest": "int64", "nth": "int64", "share": "int64"}, name="alive_queries")
        out = {"kept": kept, "first round": self.first_sums(each), "later rounds": self.later_sums(each, alive)}
        if self.counts is not None:
            out["counts"] = count_released(table, bound, released_placeholder(), self.counts.keys_per_user)
        return out

    def to_select(self, table: Any, bound: Bound) -> Any:
        """Sum the weights of the first round per query."""
        return self.first_sums(self.kept(table, bound), QUERY)

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

    def first_sums(self, each: Any, columns: Sequence[str] = LABEL) -> Any:
        """Sum the weights per query where each user spreads them equally."""
        import ibis

        counted = each.mutate(t=each.count().over(ibis.window(group_by="user")))
        # Doubles are exact enough: 256/sqrt(t) is whole only where sqrt(t) is, and else far from a whole number.
        counted = counted.mutate(weight=(self.selection.grid / counted.t.cast("float64").sqrt()).floor().cast("int64"))
        return self._summed(counted, columns)

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
        kept = kept.mutate(weight=kept.weight + ibis.ifelse(over, -1, ibis.ifelse(under, 1, 0)))
        return self._summed(kept, LABEL)

    def _summed(self, weighed: Any, columns: Sequence[str]) -> Any:
        """Add up the weights of users who pass the integer test: whole weights of 0 to grid, with squares up to grid^2.

        All do by construction, and the test looks at one user's own rows.
        """
        import ibis

        grid, by_user = self.selection.grid, ibis.window(group_by="user")
        sound = weighed.weight.between(0, grid).fill_null(False)
        weighed = weighed.mutate(square=ibis.ifelse(sound, weighed.weight * weighed.weight, grid * grid + 1))
        weighed = weighed.mutate(squares=weighed.square.sum().over(by_user))
        weighed = weighed.filter(weighed.squares <= grid * grid)
        return weighed.group_by(list(columns)).agg(n=weighed.weight.sum().cast("int64"))

    def in_words(self, labels: pa.Table, strings: Any) -> pa.Table:
        """Return the queries behind labels."""
        found = strings.semi_join(_in_memory(labels), LABEL).select(QUERY)
        return execute(found).sort_by("query")


def digits_of(query: Any) -> Any:
    """Return the first 14 hexadecimal digits of a query's md5 as a number, alike on every engine."""
    import ibis

    engine = dialect(query)
    if engine == "postgres":
        octets = call("decode", md5(query), "hex", returns="binary")
        place, value = _DIGITS // 2, ibis.literal(0, "int64")
        for i in range(place):
            value = value + call("get_byte", octets, i, returns="int32").cast("int64") * 256 ** (place - 1 - i)
        return value
    digits = md5(query).substr(0, _DIGITS)
    if engine == "pyspark":
        return call("conv", digits, 16, 10, returns="string").cast("int64")
    return (ibis.literal("0x") + digits).cast("int64")


@contextmanager
def _labelled(kept: Any) -> Iterator[tuple[Any, Any]]:
    """Label kept rows: store each user's labels, and the query behind each label, for the block.

    A query is another than the first only where two share 56 bits of md5, so the table of such queries is nearly
    always empty.
    """
    import ibis

    distinct = kept.select("digest", "query").distinct()
    nth = ibis.row_number().over(ibis.window(group_by="digest", order_by="query"))
    with materialize(distinct.mutate(nth=nth.cast("int64"))) as strings:
        later = strings.filter(strings.nth > 0).select("digest", "query", later="nth")
        with materialize(later) as shared:
            joined = kept.left_join(shared, ["digest", "query"])
            each = joined.select("user", digest=kept.digest, nth=shared.later.fill_null(0))
            with materialize(each) as labels:
                yield labels, strings


def _in_memory(table: pa.Table) -> Any:
    import ibis

    return ibis.memtable(table)


# ---- what the audit knows of it --------------------------------------------------------------------------------------

# Two rounds on a grid so coarse that all they publish can be listed.
_SMALL = Shape(kept=2, grid=6, evidence=(1, 2), shares=(Fraction(1, 2), Fraction(1, 2)), cuts=(1.0,))
_SELECTION = Fraction(7, 10)
# Noise beyond so many standard deviations is left out of the enumeration, which the last digit of no sum notices.
_FAR = 9


@dataclass(frozen=True)
class IteratedSelector(CountedAgain):
    """The iterated selector with counts, in two rounds on a small grid: two queries, at most two of each user.

    **Guarantee:** mu-GDP with mu^2 = grid^2/sigma^2 of each round and d/sigma_c^2 of the counts, plus the certified
    ``union_delta``, for one user, add-remove (docs/proofs/iterated.md).
    **Estimator:** the count of a released query is unbiased for the capped count given what is released.

    >>> f"{IteratedSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold:.1f}"
    '23.3'
    """

    selector: Iterated
    keys: tuple[Key, ...] = audit.query_keys("ant", "bee")

    name: ClassVar[str] = "iterated"
    summary: ClassVar[str] = "queries of a log by rounds of noisy evidence, then counts"
    # Of the noisy sums only one bit each is published.
    tight: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, *, counted: bool = True) -> IteratedSelector:
        """Calibrate as a release would, with other constants."""
        squared = mu_for(epsilon, delta / 2) ** 2
        part = squared * _SELECTION if counted else squared
        step = IteratedSelection.certified(calibrate_rounds(part, delta / 2, _SMALL))
        return cls(Iterated(step, gaussian_step(_SMALL.kept, squared - part, None) if counted else None))

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Add up floor(grid/sqrt(t)) for each of a user's t queries."""
        return audit.weighted_totals(self.kept(dataset, self.keys), self.keys, self.selector.selection.grid)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Run the whole selector on ``n`` copies of the log."""
        import ibis

        published = self.selector.run(ibis.memtable(audit.many_logs(dataset, n)), self.bound, bits)
        return audit.seen_in(published, self.keys, QUERY, n)

    def lists(self, dataset: Rows) -> dict[tuple[bool, ...], float]:
        """Enumerate the noise of the first round, and what it does to the weights of the second, by definition."""
        step, users = self.selector.selection, self.kept(dataset, self.keys)
        first, last = (RoundedGaussian(sigma) for sigma in step.sigmas)
        held = [any(key in mine for mine in users) for key in self.keys]
        seen: list[list[tuple[int | None, float]]] = []  # of each key its evidence, None if it is not alive
        for total, there in zip(self.exact(dataset), held, strict=True):
            least, reach = -(-step.cuts[0] // step.evidence[0]), int(_FAR * step.sigmas[0])
            alive = [(step.evidence[0] * y, first.pmf(y - total)) for y in range(least, max(least, total + reach))]
            alive = alive if there else []
            seen.append([(None, 1 - math.fsum(p for _, p in alive)), *alive])
        tail = lru_cache(maxsize=None)(lambda lift: float(last.tail(lift)))
        out: dict[tuple[bool, ...], float] = dict.fromkeys(itertools.product((False, True), repeat=2), 0.0)
        for (one, p), (two, q) in itertools.product(*seen):
            sums = self._second_sums(users, one, two)
            passes = [
                0.0 if z is None else tail(-((z - step.threshold) // step.evidence[1]) - added)
                for z, added in zip((one, two), sums, strict=True)
            ]
            for pattern in out:
                out[pattern] += p * q * math.prod(c if yes else 1 - c for c, yes in zip(passes, pattern, strict=True))
        return out

    def _second_sums(self, users: Sequence[Sequence[Key]], *evidence: int | None) -> list[int]:
        """Add up the weights of the second round by definition."""
        step, sums = self.selector.selection, [0, 0]
        shares = {
            key: int(self.selector.shares(np.array([z]), 1)[0])
            for key, z in zip(self.keys, evidence, strict=True)
            if z is not None
        }
        for mine in users:
            given = {key: shares[key] for key in mine if key in shares}
            norm = sum(share**2 for share in given.values())
            for key, share in given.items():
                sums[self.keys.index(key)] += math.isqrt(step.grid**2 * share**2 // norm)
        return sums

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared, or one of each; so few others that the lists vary."""
        around = max(1, int(self.selector.threshold) // 2)
        one, two = audit.crowd(around, "ant"), audit.crowd(around, "ant", "bee")
        zoe = audit.searcher("zoe", "bee", "ant")
        return [
            Pair("a user alone with two queries", (), zoe),
            Pair("a user with one shared query and one new", one, one + zoe),
            Pair("a user with two shared queries", two, two + zoe),
        ]
