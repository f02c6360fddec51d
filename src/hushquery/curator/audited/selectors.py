"""The curator's one-look selectors as the registry knows them: neighbouring logs, and the exact law of a release.

A world is a small log. What runs is what a release runs: its rows are bounded and counted by the expressions and the
engine of a release, once; the selector's own step then draws on many copies of these counts at once, each copy with
keys of its own. And the whole step of a release is run on a log of many copies of the world. The laws are computed from
the rows by the definition, without the engine, so that a cap that does not cap contradicts them. An output has a column
for each key that any of the worlds can hold; what was not published is
:data:`~hushquery.core.registry.SUPPRESSED` there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushquery.core.budget import Budget
from hushquery.core.calibration import calibrate_sparse_gaussian
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss
from hushquery.core.registry import SUPPRESSED, Kind, Law, Mechanism, Pair
from hushquery.curator.bound import Bound
from hushquery.curator.calibrate import Request, SelectorName, calibrate
from hushquery.curator.clicks import PAIR, Clicks
from hushquery.curator.count import law_of, passing
from hushquery.curator.select import QUERY, Reused, Selector, released_table
from hushquery.engine import as_table, execute
from hushquery.log import Log, read_log
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COPIES",
    "QUERIES",
    "GaussianSelector",
    "Key",
    "LaplaceSelector",
    "LogMechanism",
    "QueryMechanism",
    "Rows",
    "SelectedClicks",
    "Thresholded",
    "arrow_of",
    "copies_of",
    "crowd",
    "exact_counts",
    "first_keys",
    "log_of",
    "many_logs",
    "numbered",
    "passing_bit",
    "passing_law",
    "query_keys",
    "query_pairs",
    "read_world",
    "rows_of",
    "searcher",
    "seen_in",
    "selector_for",
    "totals",
]

#: What a log is to an audit: rows of a user, a time in microseconds, a query, and a clicked URL or None.
Rows = tuple[tuple[str, int, str, str | None], ...]
#: A key of a table: a query, or a query and what belongs to it.
Key = tuple[str, ...]

#: The queries of the audited logs. In the order of their letters, which is not the order in which all users pose them.
QUERIES: tuple[str, ...] = ("ant", "bee", "cow")
#: On how many copies of a world the whole step of a release is run; so few that noise is drawn key by key.
COPIES = 3_000

_PER_USER = 2
_SECOND = 1_000_000
_DIGITS = 6


# ---- worlds ----------------------------------------------------------------------------------------------------------


def searcher(name: str, *queries: str, apart: int = 1, url: str | None = None) -> Rows:
    """Give the rows of a user who poses some queries, so many seconds apart; 0 for all at the same time.

    >>> searcher("zoe", "ant", "bee")
    (('zoe', 0, 'ant', None), ('zoe', 1000000, 'bee', None))
    """
    return tuple((name, i * apart * _SECOND, query, url) for i, query in enumerate(queries))


def crowd(size: int, *queries: str, url: str | None = None) -> Rows:
    """Give the rows of so many users who all pose the same queries."""
    return tuple(row for i in range(size) for row in searcher(f"user {i}", *queries, url=url))


def query_keys(*queries: str) -> tuple[Key, ...]:
    """Give the keys of a table of queries."""
    return tuple((query,) for query in queries)


def log_of(world: Rows) -> Any:
    """Give a world as the table that a release would read."""
    return as_table(arrow_of(world))


def many_logs(world: Rows, n: int) -> pa.Table:
    """Give a log of many copies of a world, each with users and queries of its own; an empty query stays empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    one = arrow_of(world)
    numbers = pa.array([f"{copy:0{_DIGITS}}" for copy in range(n)], pa.string())
    prefix = numbers.take(pa.array(np.repeat(np.arange(n), one.num_rows)))
    many = one.take(np.tile(np.arange(one.num_rows), n))
    for column in ("user", "query"):
        given = many[column].combine_chunks()
        named = pc.if_else(pc.equal(given, ""), "", pc.binary_join_element_wise(prefix, given, " "))
        many = many.set_column(many.column_names.index(column), column, named)
    return many


def read_world(rows: pa.Table) -> Log:
    """Give a world, or many, as the log that a release reads; of an empty query only the user is left."""
    import pyarrow as pa

    timed = rows.set_column(rows.column_names.index("time"), "time", rows["time"].cast(pa.timestamp("us")))
    return read_log(timed, normalise=False, patterns=False)


def arrow_of(world: Rows) -> pa.Table:
    """Give a world as a table in memory."""
    import pyarrow as pa

    columns = zip(*world, strict=True) if world else ((),) * 4
    kinds = {"user": pa.string(), "time": pa.int64(), "query": pa.string(), "url": pa.string()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in zip(kinds, columns, strict=True)})


# ---- what runs -------------------------------------------------------------------------------------------------------


def exact_counts(expression: Any, keys: Sequence[Key], columns: Sequence[str]) -> tuple[int, ...]:
    """Run an expression and give its ``n`` for each key, 0 where the engine has none."""
    rows = execute(expression).to_pydict()
    found = dict(zip(zip(*(rows[c] for c in columns), strict=True), rows["n"], strict=True))
    strange = set(found) - set(keys)
    if strange:  # a key without a column would be published unseen
        raise KeyError(*strange)
    return tuple(found.get(key, 0) for key in keys)


def copies_of(counts: IntArray) -> Any:
    """Give rows of counts, a row per copy and a column per key, to the engine, as a step finds them: without zeros.

    The key of a count is its place among all, in the column ``query``.
    """
    import ibis
    import pyarrow as pa

    flat = np.asarray(counts, dtype=np.int64).ravel()
    held = np.flatnonzero(flat)
    return ibis.memtable(pa.table({"query": pa.array(held, pa.int64()), "n": pa.array(flat[held], pa.int64())}))


def rows_of(found: pa.Table, shape: tuple[int, int]) -> IntArray:
    """Give what a step published of :func:`copies_of`, a row per copy: noisy counts, or 1 where there are none."""
    out = np.full(shape[0] * shape[1], SUPPRESSED, dtype=np.int64)
    places = found["query"].to_numpy()
    if len(np.unique(places)) != len(places):
        raise ValueError("a key was published twice")
    out[places] = found["noisy"].to_numpy() if "noisy" in found.column_names else 1
    return out.reshape(shape)


def seen_in(found: pa.Table, keys: Sequence[Key], columns: Sequence[str], n: int) -> IntArray:
    """Give what a whole step published of :func:`many_logs` as a row per copy."""
    place = {key: i for i, key in enumerate(keys)}
    out = np.full((n, len(keys)), SUPPRESSED, dtype=np.int64)
    values = found["count"].to_pylist() if "count" in found.column_names else [1] * found.num_rows
    for value, *key in zip(values, *(found[c].to_pylist() for c in columns), strict=True):
        copies, names = zip(*(_unnamed(part) for part in key), strict=True)
        copy = {int(number) for number in copies if number}
        if len(copy) == 1:  # a pair of queries of two copies belongs to neither
            out[copy.pop(), place[names]] = value
    return out


def _unnamed(name: str) -> tuple[str, str]:
    """Take apart what :func:`many_logs` put together; a URL has no number."""
    return (name[:_DIGITS], name[_DIGITS + 1 :]) if name[:_DIGITS].isdigit() else ("", name)


# ---- laws ------------------------------------------------------------------------------------------------------------


def first_keys(rows: Iterable[tuple[str, int, Key]], most: int) -> list[list[Key]]:
    """Give each user's first distinct keys by time, ties by the key: what a bound keeps, said without an engine.

    >>> first_keys([("zoe", 2, ("ant",)), ("zoe", 1, ("cow",)), ("zoe", 1, ("bee",)), ("zoe", 0, ("cow",))], 2)
    [[('cow',), ('bee',)]]
    """
    first: dict[str, dict[Key, int]] = {}
    for user, time, key in rows:
        mine = first.setdefault(user, {})
        mine[key] = min(time, mine.get(key, time))
    return [sorted(mine, key=lambda key: (mine[key], key))[:most] for mine in first.values()]


def totals(kept: Iterable[Iterable[Key]], keys: Sequence[Key]) -> tuple[int, ...]:
    """Count how often each key was kept."""
    found = Counter(key for mine in kept for key in mine)
    return tuple(found[key] for key in keys)


#: A step whose noise meets a threshold.
Thresholded = LaplaceHistogram | GaussianHistogram | GaussianWeights


def passing_law(count: int, step: Thresholded) -> dict[tuple[int, ...], float]:
    """Enumerate what is published of one key."""
    if count == 0:
        return {(SUPPRESSED,): 1.0}
    out: dict[tuple[int, ...], float] = {}
    for (value,), probability in noisy_law(count, law_of(step)).items():
        key = (value if value >= (step.threshold or 0) else SUPPRESSED,)
        out[key] = out.get(key, 0.0) + probability
    return out


def passing_bit(count: int, step: Thresholded) -> dict[tuple[int, ...], float]:
    """Enumerate whether one key is published: 1, or not."""
    if count == 0:
        return {(SUPPRESSED,): 1.0}
    law, lift = law_of(step), (step.threshold or 0) - count
    return {(1,): float(law.tail(lift)), (SUPPRESSED,): float(law.cdf(lift - 1))}


# ---- mechanisms ------------------------------------------------------------------------------------------------------


class LogMechanism(Mechanism[Rows]):
    """What the curator's mechanisms share: worlds that are logs, counted by the engine and, for the law, without it."""

    kind: ClassVar[Kind] = "selector"
    audit_runs: ClassVar[int] = 8_000_000

    @abstractmethod
    def ask(self, world: Rows) -> tuple[int, ...]:
        """Bound and count a world in the engine, as a release does."""

    @abstractmethod
    def exact(self, world: Rows) -> tuple[int, ...]:
        """Bound and count a world by the definition."""

    def counts(self, world: Rows) -> tuple[int, ...]:
        """Give the bounded counts of a world, from the engine the first time."""
        return _asked(self, world)

    def copies(self, world: Rows, n: int) -> Any:
        """Give ``n`` copies of the engine's counts."""
        return copies_of(np.tile(np.array(self.counts(world), dtype=np.int64), (n, 1)))


@lru_cache(maxsize=256)
def _asked(mechanism: LogMechanism, world: Rows) -> tuple[int, ...]:
    return mechanism.ask(world)


def selector_for(name: SelectorName, epsilon: Fraction, delta: Fraction, *, select_only: bool = False) -> Selector:
    """Calibrate a selector of two queries per user, as a release would."""
    return calibrate(Request(Budget(epsilon, delta), _PER_USER, selector=name, select_only=select_only)).selector


@dataclass(frozen=True)
class QueryMechanism(LogMechanism):
    """A selector of queries: what it runs, whatever it is."""

    selector: Selector
    keys: tuple[Key, ...] = query_keys(*QUERIES)
    bound: Bound = field(default=Bound())

    @property
    def loss(self) -> Loss:
        """What its steps cost."""
        return sum((step.parameters.loss for step in self.selector.steps()), Loss())

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count, or weigh, for the selection."""
        asked = self.selector.expressions(log_of(world), self.bound)
        return exact_counts(next(iter(asked.values())), self.keys, QUERY)

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each user once per query, in their first d queries."""
        return totals(self.kept(world, self.keys), self.keys)

    def kept(self, world: Rows, among: Sequence[Key]) -> list[list[Key]]:
        """Give the queries of each user that count, of those that can count."""
        rows = ((user, time, (query,)) for user, time, query, _ in world if (query,) in among)
        return first_keys(rows, self.selector.queries_per_user)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the selector's step on ``n`` copies of the counts."""
        return rows_of(self.selector.select(self.copies(world, n), bits), (n, len(self.keys)))

    def end_to_end(self, world: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run the whole selector on a log of many copies of the world."""
        import ibis

        found = self.selector.run(ibis.memtable(many_logs(world, COPIES)), self.bound, bits)
        return seen_in(found, self.keys, QUERY, COPIES), self.law(world)

    @abstractmethod
    def law(self, world: Rows) -> Law:
        """Enumerate what is released."""


class _Reusing(QueryMechanism):
    """Publish the very counts that passed the threshold."""

    selector: Reused

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate what is released."""
        single = passing_law if self.selector.with_counts else passing_bit
        return product_law([single(count, self.selector.step) for count in self.exact(world)])

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared with a crowd about the threshold, or more than the cap."""
        around = int(self.selector.threshold)
        return query_pairs(around, around + 3)


def query_pairs(around: int, shared: int) -> list[Pair[Rows]]:
    """Give the neighbouring logs on which a selector of two queries per user loses most.

    Args:
        around: How many users it takes to pass.
        shared: By how many users a query must be held for one more to show most.
    """
    one, two = crowd(around - 1, "ant"), crowd(shared, "ant", "bee")
    # All at once, so that ties decide; and one of them again, which comes no later for that.
    greedy = (*searcher("zoe", *(("cow", "bee", "ant") * 20), apart=0), ("zoe", _SECOND, "ant", None))
    return [
        Pair("a user alone with two queries", (), searcher("zoe", "bee", "ant")),
        Pair("a user with one shared query and one new", one, one + searcher("zoe", "bee", "ant")),
        Pair("a user with three queries at the same time, twenty times each", one, one + greedy),
        Pair("a user with two shared queries", two, two + searcher("zoe", "bee", "ant")),
    ]


class LaplaceSelector(_Reusing):
    """Users per query, two queries per user, with discrete Laplace noise and an integer threshold; counts reused.

    **Guarantee:** (d/b, 1 - (1 - a^(R-1)/(1+a))^d) for one user, add-remove, counts included
    (docs/proofs/thresholds.md).
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough
    (docs/proofs/intervals.md).

    >>> LaplaceSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold
    25.0
    """

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "queries of a log with discrete Laplace noise and a threshold, counts reused"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> LaplaceSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("laplace", epsilon, delta))


class GaussianSelector(_Reusing):
    """Users per query, two queries per user, with rounded Gaussian noise and an integer threshold; counts reused.

    **Guarantee:** the exact curve of the sparse histogram for one user, add-remove, counts included
    (docs/proofs/gaussian-threshold.md).
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough
    (docs/proofs/intervals.md).

    >>> GaussianSelector.calibrate(Fraction(1), Fraction(1, 10**5)).selector.threshold
    25.0
    """

    name: ClassVar[str] = "gaussian-selector"
    summary: ClassVar[str] = "queries of a log with rounded Gaussian noise and a threshold, counts reused"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> GaussianSelector:
        """Calibrate as a release of queries would."""
        return cls(selector_for("gaussian", epsilon, delta))


def numbered(queries: Sequence[str]) -> Any:
    """Give some queries as if they had been released."""
    import pyarrow as pa

    return released_table(pa.table({"query": pa.array(queries, pa.string())}))


@dataclass(frozen=True)
class SelectedClicks(LogMechanism):
    """Users per clicked pair of released queries, two pairs per user, with rounded Gaussian noise and a threshold.

    The released queries are given: what a user adds is bounded for whichever they are (docs/proofs/clicks.md).

    **Guarantee:** the exact curve of the sparse histogram for one user, add-remove, counts included.
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough
    (docs/proofs/intervals.md).

    >>> SelectedClicks.calibrate(Fraction(1), Fraction(1, 10**5)).clicks.step.threshold
    25
    """

    clicks: Clicks
    released: tuple[str, ...] = ("ant", "bee")
    keys: tuple[Key, ...] = (
        ("ant", "https://x.example/"),
        ("ant", "https://y.example/"),
        ("bee", "https://x.example/"),
    )
    bound: Bound = field(default=Bound())

    name: ClassVar[str] = "clicks"
    summary: ClassVar[str] = "clicked URLs of released queries with rounded Gaussian noise and a threshold"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> SelectedClicks:
        """Give the whole budget to the clicks."""
        made = calibrate_sparse_gaussian(_PER_USER, epsilon, delta)
        return cls(Clicks(GaussianHistogram(_PER_USER, made.sigma, made.threshold)))

    @property
    def loss(self) -> Loss:
        """What the step costs."""
        return self.clicks.step.loss

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count users per pair of a released query."""
        released = numbered(self.released)
        return exact_counts(self.clicks.expression(log_of(world), self.bound, released), self.keys, PAIR)

    def exact(self, world: Rows) -> tuple[int, ...]:
        """Each user once per clicked pair, in their first two pairs of released queries."""
        rows = ((user, time, (query, url)) for user, time, query, url in world if url and query in self.released)
        return totals(first_keys(rows, self.clicks.clicks_per_user), self.keys)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the step of the clicks on ``n`` copies of the counts."""
        return rows_of(passing(self.copies(world, n), QUERY, self.clicks.step, bits), (n, len(self.keys)))

    def end_to_end(self, world: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run the whole table of clicks on a log of many copies of the world."""
        import ibis
        import pyarrow as pa

        released = [f"{copy:06} {query}" for copy in range(COPIES) for query in self.released]
        found = self.clicks.run(
            ibis.memtable(many_logs(world, COPIES)), self.bound, pa.table({"query": released}), bits
        )
        return seen_in(found, self.keys, PAIR, COPIES), self.law(world)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate what is released."""
        return product_law([passing_law(count, self.clicks.step) for count in self.exact(world)])

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more: alone, with many clicks on one search, with more pairs than the cap, on unreleased queries."""
        x, y = "https://x.example/", "https://y.example/"
        around = int(self.clicks.step.threshold or 0)
        others = crowd(around + 3, "ant", url=x) + crowd(around + 3, "bee", url=x)
        alone = (("zoe", 5, "ant", x), ("zoe", 5, "ant", y))
        often = (*((("zoe", 1, "ant", x),) * 5), ("zoe", 2, "bee", x), ("zoe", 3, "ant", x))
        many = (("zoe", 0, "dog", x), ("zoe", 1, "dog", y), ("zoe", 2, "ant", None), ("zoe", 5, "bee", x), *alone)
        return [
            Pair("a user alone with two pairs", (), alone),
            Pair("a user with one shared pair and one new", others, others + alone),
            Pair("a user with several clicks on one search", others, others + often),
            Pair("a user with more pairs than the cap and unreleased queries", others, others + many),
        ]
