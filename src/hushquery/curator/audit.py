"""What the curator's audited mechanisms share: small logs, many copies of them, and exact laws.

Laws are computed from the rows by definition, without the engine, so that a cap that does not cap contradicts them.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hushquery.core.calibration import WEIGHT_GRID
from hushquery.core.loss import Loss
from hushquery.core.registry import SUPPRESSED, Kind, Law, Mechanism, Pair
from hushquery.curator.counting import (
    QUERY,
    Bound,
    Noisy,
    beneath,
    count_released,
    law_of,
    noisy_on_public_keys,
    released_from,
    released_table,
)
from hushquery.curator.selectors import Selector
from hushquery.engine import as_table, execute
from hushquery.log import Log, read_log
from hushquery.noise.law import Noise
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import Bits, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

#: What a log is to an audit: rows of a user, a time in microseconds, a query, and a clicked URL or None.
Rows = tuple[tuple[str, int, str, str | None], ...]
#: A key of a table: a query, or a query and what belongs to it.
Key = tuple[str, ...]

#: The queries of the audited logs. In the order of their letters, which is not the order in which all users pose them.
QUERIES: tuple[str, ...] = ("ant", "bee", "cow")
#: At most so many queries, clicks or reformulations of a user count.
PER_USER = 2
#: On how many copies of a dataset the whole step of a release is run; so few that noise is drawn key by key.
COPIES = 3_000

_SECOND = 1_000_000
_DIGITS = 6


# ---- datasets --------------------------------------------------------------------------------------------------------


def searcher(name: str, *queries: str, apart: int = 1, url: str | None = None) -> Rows:
    """Return the rows of one user with these queries, ``apart`` seconds apart; 0 means all at the same time."""
    return tuple((name, i * apart * _SECOND, query, url) for i, query in enumerate(queries))


def crowd(size: int, *queries: str, url: str | None = None) -> Rows:
    """Return the rows of so many users who all pose the same queries."""
    return tuple(row for i in range(size) for row in searcher(f"user {i}", *queries, url=url))


def query_keys(*queries: str) -> tuple[Key, ...]:
    """Return the keys of a table of queries."""
    return tuple((query,) for query in queries)


def query_pairs(around: int, shared: int, hidden: int = 0) -> list[Pair[Rows]]:
    """Return neighbouring logs that cost a selector of two queries per user most, near a count of ``around`` users.
    What is new to the table is a query that as many as ``hidden`` others posed: those that a floor takes off.
    """
    one, two, few = crowd(around - 1, "ant"), crowd(shared, "ant", "bee"), crowd(hidden, "ant", "bee")
    one += tuple((f"other {i}", 0, "bee", None) for i in range(hidden))
    # All at once, so that ties decide; and one of them again, which comes no later for that.
    greedy = (*searcher("zoe", *(("cow", "bee", "ant") * 20), apart=0), ("zoe", _SECOND, "ant", None))
    return [
        Pair("a user alone with two queries", few, few + searcher("zoe", "bee", "ant")),
        Pair("a user with one shared query and one new", one, one + searcher("zoe", "bee", "ant")),
        Pair("a user with three queries at the same time, twenty times each", one, one + greedy),
        Pair("a user with two shared queries", two, two + searcher("zoe", "bee", "ant")),
    ]


def arrow_of(dataset: Rows) -> pa.Table:
    """Return a dataset as a table in memory."""
    import pyarrow as pa

    columns = zip(*dataset, strict=True) if dataset else ((),) * 4
    kinds = {"user": pa.string(), "time": pa.int64(), "query": pa.string(), "url": pa.string()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in zip(kinds, columns, strict=True)})


def log_of(dataset: Rows) -> Any:
    """Return a dataset as the table that a release would read."""
    return as_table(arrow_of(dataset))


def read_dataset(rows: pa.Table) -> Log:
    """Return a dataset, or many, as the log that a release reads; of an empty query only the user is left."""
    import pyarrow as pa

    timed = rows.set_column(rows.column_names.index("time"), "time", rows["time"].cast(pa.timestamp("us")))
    return read_log(timed, normalise=False, patterns=False)


def named_copies(names: Sequence[str], copies: int) -> list[str]:
    """Return the names of queries or users in :func:`many_logs`."""
    return [f"{copy:0{_DIGITS}} {name}" for copy in range(copies) for name in names]


def many_logs(dataset: Rows, n: int) -> pa.Table:
    """Return a log of many copies of a dataset, each with users and queries of its own; an empty query stays empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    one = arrow_of(dataset)
    numbers = pa.array([f"{copy:0{_DIGITS}}" for copy in range(n)], pa.string())
    prefix = numbers.take(pa.array(np.repeat(np.arange(n), one.num_rows)))
    many = one.take(np.tile(np.arange(one.num_rows), n))
    for column in ("user", "query"):
        given = many[column].combine_chunks()
        named = pc.if_else(pc.equal(given, ""), "", pc.binary_join_element_wise(prefix, given, " "))
        many = many.set_column(many.column_names.index(column), column, named)
    return many


def seen_in(published: pa.Table, keys: Sequence[Key], columns: Sequence[str], n: int) -> IntArray:
    """Return what a whole step published of :func:`many_logs`, a row per copy."""
    place = {key: i for i, key in enumerate(keys)}
    out = np.full((n, len(keys)), SUPPRESSED, dtype=np.int64)
    values = published["count"].to_pylist() if "count" in published.column_names else [1] * published.num_rows
    for value, *key in zip(values, *(published[c].to_pylist() for c in columns), strict=True):
        copies, names = zip(*(_unnamed(part) for part in key), strict=True)
        copy = {int(number) for number in copies if number}
        if len(copy) == 1:  # a pair of queries of two copies belongs to neither
            out[copy.pop(), place[names]] = value
    return out


def _unnamed(name: str) -> tuple[str, str]:
    """Take apart what :func:`many_logs` put together; a URL has no number."""
    return (name[:_DIGITS], name[_DIGITS + 1 :]) if name[:_DIGITS].isdigit() else ("", name)


# ---- counts ----------------------------------------------------------------------------------------------------------


def exact_counts(expression: Any, keys: Sequence[Key], columns: Sequence[str]) -> tuple[int, ...]:
    """Ask the engine for the counts of some keys, zeros included."""
    rows = execute(expression).to_pydict()
    counts = dict(zip(zip(*(rows[c] for c in columns), strict=True), rows["n"], strict=True))
    strange = set(counts) - set(keys)
    if strange:  # a key without a column would be published unseen
        raise KeyError(*strange)
    return tuple(counts.get(key, 0) for key in keys)


@lru_cache(maxsize=2048)
def once(ask: Callable[..., tuple[int, ...]], *given: Any) -> tuple[int, ...]:
    """Ask the engine the first time, and remember."""
    return ask(*given)


def copies_of(counts: IntArray) -> Any:
    """Pass rows of counts to the engine, without zeros; the key in ``query`` is the place of a count among all."""
    import ibis
    import pyarrow as pa

    flat = np.asarray(counts, dtype=np.int64).ravel()
    some = np.flatnonzero(flat)
    return ibis.memtable(pa.table({"query": pa.array(some, pa.int64()), "n": pa.array(flat[some], pa.int64())}))


def rows_of(published: pa.Table, shape: tuple[int, int]) -> IntArray:
    """Return what a step published of :func:`copies_of`, a row per copy: noisy counts, or 1 where there are none."""
    out = np.full(shape[0] * shape[1], SUPPRESSED, dtype=np.int64)
    places = published["query"].to_numpy()
    if len(np.unique(places)) != len(places):
        raise ValueError("a key was published twice")
    out[places] = published["noisy"].to_numpy() if "noisy" in published.column_names else 1
    return out.reshape(shape)


def numbered(queries: Sequence[str]) -> Any:
    """Return some queries as if they had been released."""
    import pyarrow as pa

    return released_table(pa.table({"query": pa.array(queries, pa.string())}))


def posed(dataset: Rows) -> list[tuple[str, int, Key]]:
    """Return who posed which query, and when."""
    return [(user, time, (query,)) for user, time, query, _ in dataset]


def first_keys(rows: Iterable[tuple[str, int, Key]], most: int) -> list[list[Key]]:
    """Return each user's first distinct keys by time, ties by key: the bound by definition, without an engine."""
    first: dict[str, dict[Key, int]] = {}
    for user, time, key in rows:
        mine = first.setdefault(user, {})
        mine[key] = min(time, mine.get(key, time))
    return [sorted(mine, key=lambda key: (mine[key], key))[:most] for mine in first.values()]


def totals(kept: Iterable[Iterable[Key]], keys: Sequence[Key]) -> tuple[int, ...]:
    """Count how often each key was kept."""
    counts = Counter(key for mine in kept for key in mine)
    return tuple(counts[key] for key in keys)


def weighted_totals(kept: Sequence[Sequence[Key]], keys: Sequence[Key], grid: int = WEIGHT_GRID) -> tuple[int, ...]:
    """Add up the weights floor(grid/sqrt(t)) of users who keep t keys each."""
    sizes = {len(mine) for mine in kept if mine}
    parts = {t: totals([mine for mine in kept if len(mine) == t], keys) for t in sizes}
    return tuple(sum(math.isqrt(grid**2 // t) * part[i] for t, part in parts.items()) for i in range(len(keys)))


# ---- laws ------------------------------------------------------------------------------------------------------------


def published_law(count: int, law: Noise, least: int, most: int) -> dict[tuple[int, ...], float]:
    """Enumerate a noisy count that is published from ``least`` on, and looked at up to ``most``: larger ones are it."""
    out: dict[tuple[int, ...], float] = {(value,): law.pmf(value - count) for value in range(least, most)}
    out[most,] = float(law.tail(most - count))
    out[SUPPRESSED,] = float(law.cdf(least - 1 - count))
    return out


def passing_law(count: int, step: Noisy, most: int | None = None) -> dict[tuple[int, ...], float]:
    """Enumerate what is published of one key, of its noisy count up to ``most``; nothing of a key that nobody has."""
    if count < beneath(step) + 1:
        return {(SUPPRESSED,): 1.0}
    least = released_from(step)
    if most is not None:
        return published_law(count, law_of(step), least, most)
    out: dict[tuple[int, ...], float] = {}
    for (value,), probability in noisy_law(count, law_of(step)).items():
        key = (value if value >= least else SUPPRESSED,)
        out[key] = out.get(key, 0.0) + probability
    return out


def passing_bit(count: int, step: Noisy) -> dict[tuple[int, ...], float]:
    """Enumerate whether one key is published: 1, or not."""
    if count < beneath(step) + 1:
        return {(SUPPRESSED,): 1.0}
    law, lift = law_of(step), released_from(step) - count
    return {(1,): float(law.tail(lift)), (SUPPRESSED,): float(law.cdf(lift - 1))}


# ---- mechanisms ------------------------------------------------------------------------------------------------------


class LogMechanism(Mechanism[Rows]):
    """What the curator's mechanisms share: datasets that are logs, counted by the engine and, for the law, without."""

    kind: ClassVar[Kind] = "selector"
    audit_runs: ClassVar[int] = 8_000_000

    @abstractmethod
    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Bound and count a dataset in the engine, as a release does."""

    @abstractmethod
    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Bound and count a dataset by the definition."""

    def counts(self, dataset: Rows) -> tuple[int, ...]:
        """Return the bounded counts of a dataset, from the engine the first time."""
        return once(self.ask, dataset)

    def copies(self, dataset: Rows, n: int) -> Any:
        """Return ``n`` copies of the engine's counts."""
        return copies_of(np.tile(np.array(self.counts(dataset), dtype=np.int64), (n, 1)))


def selector_for(name: Any, epsilon: Fraction, delta: Fraction, **spec: Any) -> Selector:
    """Calibrate a selector of two queries per user, as a release would."""
    from hushquery.core.budget import Budget
    from hushquery.curator.plan import ReleaseSpec, calibrate

    return calibrate(ReleaseSpec(Budget(epsilon, delta), PER_USER, selector=name, **spec)).selector


@dataclass(frozen=True)
class QueryMechanism(LogMechanism):
    """A selector of queries: what it runs, whatever it is."""

    selector: Selector
    keys: tuple[Key, ...] = query_keys(*QUERIES)
    bound: Bound = field(default=Bound())

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Self:
        """Calibrate as a release of two queries per user would."""
        return cls(selector_for(cls.name.removesuffix("-selector"), epsilon, delta))

    @property
    def loss(self) -> Loss:
        """What its steps cost."""
        return sum((step.parameters.loss for step in self.selector.steps()), Loss())

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Count, or weigh, for the selection."""
        return exact_counts(self.selector.to_select(log_of(dataset), self.bound), self.keys, QUERY)

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Count each user once per query, in their first d queries."""
        return totals(self.kept(dataset, self.keys), self.keys)

    def kept(self, dataset: Rows, among: Sequence[Key]) -> list[list[Key]]:
        """Return the queries of each user that count, of those that can count."""
        rows = (row for row in posed(dataset) if row[2] in among)
        return first_keys(rows, self.selector.queries_per_user)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the selector's step on ``n`` copies of the counts."""
        return rows_of(self.selector.select(self.copies(dataset, n), bits), (n, len(self.keys)))

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run the whole selector on a log of many copies of the dataset."""
        import ibis

        published = self.selector.run(ibis.memtable(many_logs(dataset, COPIES)), self.bound, bits)
        return seen_in(published, self.keys, QUERY, COPIES), self.law(dataset)

    @abstractmethod
    def law(self, dataset: Rows) -> Law:
        """Enumerate what is released."""


class CountedAgain(QueryMechanism):
    """Select, then count what was released with fresh noise; 1 for each released query where there are no counts."""

    @abstractmethod
    def lists(self, dataset: Rows) -> dict[tuple[bool, ...], float]:
        """Return the chance of every list: for each key, whether it is on it."""

    def ask_again(self, dataset: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """Count users per released query in the engine, the cap applied to released queries only."""
        queries = numbered([query for (query,) in released])
        most = self.selector.queries_per_user
        return exact_counts(count_released(log_of(dataset), self.bound, queries, most), released, QUERY)

    def exact_again(self, dataset: Rows, released: Sequence[Key]) -> tuple[int, ...]:
        """Count them by the definition."""
        return totals(self.kept(dataset, released), released)

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Select on ``n`` copies of the counts, then count what came out of each."""
        import pyarrow as pa

        out = super().run(dataset, n, bits)
        if self.selector.counts is None:
            return out
        chosen = out != SUPPRESSED
        counts, which = np.zeros_like(out), chosen @ (1 << np.arange(len(self.keys)))
        for pattern in np.unique(which[which > 0]).tolist():
            columns = np.flatnonzero([pattern >> i & 1 for i in range(len(self.keys))])
            again = once(self.ask_again, dataset, tuple(self.keys[i] for i in columns))
            counts[np.ix_(which == pattern, columns)] = again
        public = pa.table({"query": pa.array(np.flatnonzero(chosen.ravel()), pa.int64())})
        return rows_of(noisy_on_public_keys(copies_of(counts), public, QUERY, self.selector.counts, bits), out.shape)

    def law(self, dataset: Rows) -> Law:
        """Enumerate what is released, and given that, the counts."""
        out: dict[tuple[int, ...], float] = {}
        noise = self.selector.counts
        for pattern, chance in self.lists(dataset).items():
            if chance:
                counts = iter(self.exact_again(dataset, list(itertools.compress(self.keys, pattern))))
                given: list[Law] = [
                    {(SUPPRESSED,): 1.0}
                    if not yes
                    else noisy_law(next(counts), law_of(noise))
                    if noise
                    else {(1,): 1.0}
                    for yes in pattern
                ]
                out |= {outcome: chance * p for outcome, p in product_law(given).items()}
        return out

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more, whose queries are new, shared with a crowd about the threshold, or more than the cap."""
        around = int(self.selector.threshold)
        return query_pairs(around, around)


class SelectedOneByOne(CountedAgain):
    """A selector that decides about each query by that query's count alone."""

    @abstractmethod
    def chance(self, count: int) -> float:
        """Return the chance that a query of some count, or sum of weights, is selected."""

    def lists(self, dataset: Rows) -> dict[tuple[bool, ...], float]:
        """Multiply the chances of the queries."""
        chances = [self.chance(count) if count else 0.0 for count in self.exact(dataset)]
        return {
            pattern: math.prod(p if yes else 1 - p for p, yes in zip(chances, pattern, strict=True))
            for pattern in itertools.product((False, True), repeat=len(self.keys))
        }
