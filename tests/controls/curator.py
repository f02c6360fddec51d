"""Negative controls of noise, statistics and the curator.

The second half breaks the curator: the expressions that bound and count a log, and what is done with their counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hushquery.core.calibration import laplace_scale, laplace_threshold
from hushquery.core.loss import LaplaceHistogram, Loss
from hushquery.core.registry import SUPPRESSED, Mechanism, Pair
from hushquery.curator.audit import Key, Rows, crowd, first_keys, passing_bit, query_keys, searcher, totals
from hushquery.curator.clicks import PAIR, Clicks, SelectedClicks
from hushquery.curator.counting import Bound, first_rows, law_of, tally
from hushquery.curator.reformulations import ReformulationPairs, Reformulations, lifted_law, lifted_rows
from hushquery.curator.selectors.guided import Guided, Sketch
from hushquery.curator.selectors.korolova2009 import Korolova, KorolovaSelector, Theorem1, calibrate_korolova
from hushquery.curator.selectors.thresholded import LaplaceSelector, ThresholdedCounts
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.mechanisms import (
    GaussianCounts,
    LaplaceCounts,
    noisy_law,
    product_law,
)
from hushquery.noise.sampler import Bits, IntArray, add_noise, sampler
from hushquery.statistics.mechanisms import CappedRowCount
from hushquery.statistics.queries import CountRows

__all__ = ["CURATOR_CONTROLS", "Broken"]

Counts = tuple[int, ...]


@dataclass(frozen=True)
class Broken(Mechanism[Any]):
    """A mechanism that runs one thing and claims another."""

    runs: Mechanism[Any]
    claims: Loss
    name: ClassVar[str] = "broken"
    summary: ClassVar[str] = "a negative control"
    neighbours: tuple[Pair[Any], ...] = ()

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Broken:
        """Not by name: a negative control is built by its entry in :data:`controls.CONTROLS`."""
        raise TypeError(epsilon, delta)

    @property
    def loss(self) -> Loss:
        """The false claim."""
        return self.claims

    def pairs(self) -> Sequence[Pair[Any]]:
        """The pairs on which the defect shows; by default those of what runs."""
        return self.neighbours or self.runs.pairs()

    def run(self, dataset: Any, n: int, bits: Bits) -> IntArray:
        """Run it."""
        return self.runs.run(dataset, n, bits)

    def law(self, dataset: Any) -> Mapping[tuple[int, ...], float] | None:
        """The law of what runs."""
        return self.runs.law(dataset)


@dataclass(frozen=True)
class _LastBare(LaplaceCounts):
    """Noise on every count but the last."""

    def pairs(self) -> Sequence[Pair[Counts]]:
        return [Pair("counts with one user more", (10, 10), (10, 11))]

    def run(self, dataset: Counts, n: int, bits: Bits) -> IntArray:
        out = super().run(dataset, n, bits)
        out[:, -1] = dataset[-1]
        return out

    def law(self, dataset: Counts) -> Mapping[Counts, float]:
        return {(value, dataset[-1]): p for (value,), p in super().law(dataset[:-1]).items()}


@dataclass(frozen=True)
class _CutTail(LaplaceCounts):
    """Noise redrawn until it lies within 4 scales: outputs just beyond are possible in one dataset only."""

    def _cut(self) -> int:
        return math.ceil(4 * self.law_of_noise.b)

    def run(self, dataset: Counts, n: int, bits: Bits) -> IntArray:
        noise = sampler(self.law_of_noise).draw(n * len(dataset), bits)
        while (beyond := np.flatnonzero(np.abs(noise) > self._cut())).size:
            noise[beyond] = sampler(self.law_of_noise).draw(len(beyond), bits)
        return noise.reshape(n, len(dataset)) + np.array(dataset, dtype=np.int64)

    def law(self, dataset: Counts) -> Mapping[Counts, float]:
        inside = {z: self.law_of_noise.pmf(z) for z in range(-self._cut(), self._cut() + 1)}
        total = math.fsum(inside.values())
        return {(dataset[0] + z,): p / total for z, p in inside.items()}


def _halved_laplace(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta)
    return Broken(replace(honest, law_of_noise=DiscreteLaplace(honest.law_of_noise.b / 2)), honest.loss)


def _halved_gaussian(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = GaussianCounts.calibrate(epsilon, delta)
    return Broken(replace(honest, law_of_noise=RoundedGaussian(honest.law_of_noise.sigma / 2)), honest.loss)


class _Shared(LaplaceCounts):
    """One draw for both of two counts: their difference is bare, though each of them, and their sum, is not."""

    def pairs(self) -> Sequence[Pair[Counts]]:
        return [Pair("a user moved from one count to the other", (11, 10), (10, 11))]

    def run(self, dataset: Counts, n: int, bits: Bits) -> IntArray:
        noise = add_noise(np.zeros(n, dtype=np.int64), self.law_of_noise, bits)
        return noise[:, None] + np.array(dataset, dtype=np.int64)

    def law(self, dataset: Counts) -> Mapping[Counts, float]:
        first, second = dataset
        return {(value, value + second - first): p for (value,), p in noisy_law(first, self.law_of_noise).items()}


def _shared_draw(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta, sensitivity=2)
    return Broken(_Shared(honest.sensitivity, honest.law_of_noise), honest.loss)


def _step(epsilon: Fraction, delta: Fraction, most: int) -> LaplaceHistogram:
    scale = laplace_scale(most, epsilon)
    return LaplaceHistogram(most, scale, laplace_threshold(scale, most, delta))


def _threshold(step: LaplaceHistogram, claims: Loss) -> Broken:
    """Select by one step and claim something else."""
    return Broken(
        LaplaceSelector(ThresholdedCounts("laplace", step), query_keys("ant", "bee")), claims, neighbours=_ALONE
    )


def _lowered_threshold(epsilon: Fraction, delta: Fraction) -> Broken:
    step = _step(epsilon, delta, 2)
    return _threshold(replace(step, threshold=(step.threshold or 0) - 2 * math.ceil(step.scale)), step.loss)


def _off_by_one(epsilon: Fraction, delta: Fraction) -> Broken:
    """Release counts equal to the threshold while delta is computed for greater ones, at the worst epsilon for it."""
    step = _step(epsilon, delta, 1)
    return _threshold(replace(step, threshold=(step.threshold or 0) - 1), step.loss)


def _real_threshold(epsilon: Fraction, delta: Fraction) -> Broken:
    """Compare integer noise with the real K = 1 + b ln(1/(2 delta)) of continuous noise, at its worst fraction."""
    b = laplace_scale(1, epsilon)
    steps = math.ceil(float(b) * math.log(1 / (2 * float(delta))))
    claimed = Fraction(0.5 * math.exp(-steps / float(b)) * (1 + 1e-9))
    # noisy > K with K - 1 just below the whole number `steps` means noisy >= 1 + steps.
    return _threshold(LaplaceHistogram(1, b, 1 + steps), Loss(pure=(1 / b,), threshold_delta=claimed))


class _AllRows(CappedRowCount):
    """Rows counted without a cap."""

    def exact(self, dataset: tuple[tuple[str, int], ...]) -> Counts:
        return (len(dataset),)


def _no_cap(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = CappedRowCount.calibrate(epsilon, delta)
    return Broken(_AllRows(CountRows(10**9), honest.noise, honest.unit), honest.loss)


def _last_bare(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta)
    return Broken(_LastBare(honest.sensitivity, honest.law_of_noise), honest.loss)


def _cut_tail(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta)
    return Broken(_CutTail(honest.sensitivity, honest.law_of_noise), honest.loss)


# ---- the curator ----------------------------------------------------------------------------------------------------


class _Looser(Bound):
    """More keys of a user are kept than the noise is for."""

    def rows(self, table: Any, columns: list[str], most: int) -> Any:
        return super().rows(table, columns, most + int(self.key))


class _Loose(LaplaceSelector):
    """A list of queries, without counts, under such a bound."""

    def kept(self, dataset: Rows, among: Sequence[Key]) -> list[list[Key]]:
        rows = ((user, time, (query,)) for user, time, query, _ in dataset if (query,) in among)
        return first_keys(rows, self.selector.queries_per_user + int(self.bound.key))


def _badly_bounded(too_many: int) -> Callable[[Fraction, Fraction], Broken]:
    def build(epsilon: Fraction, delta: Fraction) -> Broken:
        """Make the defect large enough to see: a list of six queries is published."""
        honest = LaplaceSelector.calibrate(epsilon, delta)
        queries = ("ant", "bee", "cow", "dog", "elk", "fox")
        bound = _Looser("first", str(too_many))
        broken = _Loose(replace(honest.selector, with_counts=False), query_keys(*queries), bound)
        return Broken(broken, honest.loss, neighbours=(Pair("a user with six queries", (), searcher("zoe", *queries)),))

    return build


class _PerQuery(Guided):
    """A sketch to which a user's two queries in one bucket add twice."""

    def sums_per_bucket(self, each: Any) -> Any:
        import ibis

        rows = first_rows(each, ["query"], self.sketch.keys_per_user).select("user", "bucket")
        rows = rows.mutate(t=rows.bucket.nunique().over(ibis.window(group_by="user")))
        rows = rows.mutate(weight=(64 / rows.t.cast("float64").sqrt()).floor().cast("int64"))
        return rows.group_by("bucket").agg(n=rows.weight.sum())


class _TwiceInBucket(Sketch):
    """The law of that."""

    def exact(self, dataset: Rows) -> Counts:
        mine = first_keys(
            ((user, time, (query,)) for user, time, query, _ in dataset), self.guided.sketch.keys_per_user
        )
        return (64 * sum(map(len, mine)),)


def _buckets_twice(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = Sketch.calibrate(epsilon, delta)
    broken = _PerQuery(honest.guided.sketch, honest.guided.selection, None, buckets=1)
    return Broken(_TwiceInBucket(broken), honest.loss, neighbours=(honest.pairs()[0],))


class _EveryClick(Clicks):
    """Clicks counted with multiplicity, under a bound on pairs that are counted once."""

    def expression(self, table: Any, bound: Bound, released: Any = None) -> Any:
        import ibis

        del bound  # it would count each pair once
        clicked = table.filter(table.url.notnull()).semi_join(released, "query")
        first = ibis.window(group_by="user", order_by=[clicked.time, *(clicked[c] for c in PAIR)])
        placed = clicked.mutate(place=ibis.row_number().over(first))
        return tally(placed.filter(placed.place < self.step.keys_per_user), PAIR)


class _ClickedTwice(SelectedClicks):
    """The law of that."""

    def exact(self, dataset: Rows) -> Counts:
        mine: dict[str, list[tuple[int, Key]]] = {}
        for user, time, query, url in dataset:
            if url and query in self.released:
                mine.setdefault(user, []).append((time, (query, url)))
        most = self.clicks.step.keys_per_user
        return totals(([key for _, key in sorted(clicked)[:most]] for clicked in mine.values()), self.keys)


def _clicks_twice(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = SelectedClicks.calibrate(epsilon, delta)
    others = crowd(int(honest.clicks.step.threshold or 0) + 9, "ant", url="https://x.example/")
    twice = searcher("zoe", "ant", "ant", url="https://x.example/")
    return Broken(
        _ClickedTwice(_EveryClick(honest.clicks.step)),
        honest.loss,
        neighbours=(Pair("a user who clicks one URL twice", others, others + twice),),
    )


class _BareClicks(SelectedClicks):
    """Noise on every pair that somebody clicked: that a pair is there at all tells of whoever clicked it."""

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        counts = np.tile(np.array(self.counts(dataset)), (n, 1))
        noisy = add_noise(counts.ravel(), law_of(self.clicks.step), bits).reshape(counts.shape)
        return np.where(counts > 0, noisy, SUPPRESSED)

    def law(self, dataset: Rows) -> Mapping[Counts, float]:
        noise = law_of(self.clicks.step)
        return product_law([noisy_law(c, noise) if c else {(SUPPRESSED,): 1.0} for c in self.exact(dataset)])


def _keys_from_the_log(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = SelectedClicks.calibrate(epsilon, delta)
    return Broken(_BareClicks(honest.clicks), honest.loss, neighbours=(honest.pairs()[0],))


class _SecretThreshold(ReformulationPairs):
    """The lowest published value computed from the number of pairs that nobody made, which is secret."""

    def secret(self, dataset: Rows) -> Reformulations:
        empty, law, least = self.exact(dataset).count(0), law_of(self.table.step), 1
        while empty * law.tail(least) > self.table.expected_false_pairs:
            least += 1
        return replace(self.table, expected_false_pairs=6 * float(law.tail(least)) * (1 + 1e-9))

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        return lifted_rows(self.secret(dataset), self.counts(dataset), 3, n, bits)

    def law(self, dataset: Rows) -> Mapping[Counts, float]:
        return lifted_law(self.secret(dataset), self.exact(dataset), 3)


def _secret_threshold(epsilon: Fraction, delta: Fraction) -> Broken:
    """Allow just as many false edges as five empty pairs give, so that a sixth empty pair raises the threshold."""
    honest = ReformulationPairs.calibrate(epsilon, delta)
    allowed = 5.5 * float(law_of(honest.table.step).tail(12))
    broken = _SecretThreshold(Reformulations(honest.table.step, expected_false_pairs=allowed))
    pair = Pair("a user with a pair that nobody made", (), searcher("zoe", "ant", "bee"))
    return Broken(broken, honest.loss, neighbours=(pair,))


class _DrawnTwice(LaplaceSelector):
    """Selected by one draw and published with another, at the price of one."""

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        selected = super().run(dataset, n, bits)
        again = add_noise(np.tile(np.array(self.counts(dataset)), n), self._noise, bits).reshape(selected.shape)
        return np.where(selected == SUPPRESSED, SUPPRESSED, again)

    def law(self, dataset: Rows) -> Mapping[Counts, float]:
        singles = []
        for count in self.exact(dataset):
            bit = passing_bit(count, self.selector.selection)
            single = {value: p * bit[1,] for value, p in noisy_law(count, self._noise).items()} if count else {}
            singles.append(single | {(SUPPRESSED,): bit[SUPPRESSED,]})
        return product_law(singles)

    @property
    def _noise(self) -> DiscreteLaplace | RoundedGaussian:
        return law_of(self.selector.selection)


def _drawn_twice(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceSelector.calibrate(epsilon, delta)
    others = crowd(int(honest.selector.threshold) - 1, "ant", "bee")
    pair = Pair("a user with two shared queries", others, others + searcher("zoe", "ant", "bee"))
    return Broken(_DrawnTwice(honest.selector, query_keys("ant", "bee")), honest.loss, neighbours=(pair,))


class _Filter(ThresholdedCounts):
    """Queries of at least five users, nothing taken off their counts: one of five is there at once with all five."""

    def to_select(self, table: Any, bound: Bound) -> Any:
        counted = super().to_select(table, bound)
        return counted.filter(counted.n >= 5)


class _Filtered(LaplaceSelector):
    """The law of that."""

    def exact(self, dataset: Rows) -> Counts:
        return tuple(count if count >= 5 else 0 for count in super().exact(dataset))


def _floor_as_a_filter(epsilon: Fraction, delta: Fraction) -> Broken:
    honest, others = LaplaceSelector.calibrate(epsilon, delta).selector, crowd(4, "ant", "bee")
    broken = _Filtered(_Filter("laplace", honest.selection), query_keys("ant", "bee"))
    pair = Pair("the fifth user of two queries", others, others + searcher("zoe", "ant", "bee"))
    return Broken(broken, honest.selection.loss, neighbours=(pair,))


class _AtLeast(Theorem1):
    """Released from floor(K) on, where the theorem says above K."""

    @property
    def release_at(self) -> int:
        return super().release_at - 1


def _at_least(epsilon: Fraction, delta: Fraction) -> Broken:
    theorem = calibrate_korolova(1, epsilon, delta)
    broken = Korolova(_AtLeast(1, theorem.threshold, theorem.scale), None)
    pair = Pair("a user with a query that nobody else has", (), searcher("zoe", "ant"))
    return Broken(KorolovaSelector(broken), theorem.step().loss, neighbours=(pair,))


_ALONE = (Pair("a user with queries that nobody else has", (), searcher("zoe", "ant", "bee")),)

#: These negative controls: name, and how to build it for an honest mechanism's (epsilon, delta).
CURATOR_CONTROLS: dict[str, Callable[[Fraction, Fraction], Mechanism[Any]]] = {
    "laplace noise halved": _halved_laplace,
    "gaussian noise halved": _halved_gaussian,
    "threshold lowered": _lowered_threshold,
    "threshold off by one": _off_by_one,
    "real threshold on integer noise": _real_threshold,
    "per-user cap removed": _no_cap,
    "last element left bare": _last_bare,
    "two counts with one draw of noise": _shared_draw,
    "tail of the noise cut": _cut_tail,
    "queries per user uncapped": _badly_bounded(10**9),
    "one query per user too many": _badly_bounded(1),
    "sketch counts a bucket twice": _buckets_twice,
    "clicks counted with multiplicity": _clicks_twice,
    "clicks without a threshold": _keys_from_the_log,
    "threshold from the secret number of empty pairs": _secret_threshold,
    "counts drawn afresh and not paid": _drawn_twice,
    "at least K in place of above K": _at_least,
    "floor as a filter": _floor_as_a_filter,
}
