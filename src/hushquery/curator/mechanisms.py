"""The curator's one-look selectors as the registry knows them: from rows of a log to what is published.

A world is a small log. Its rows are bounded and counted once, by the expressions and the engine that a release uses, so
that a cap that does not cap is found; the noise is then drawn as often as an audit asks. An output has a column for
each key that any of the worlds can hold; what was not published is
:data:`~hushquery.privacy.registry.SUPPRESSED` there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from hushquery.curator.bound import Bound
from hushquery.curator.calibrate import Request, SelectorName, calibrate
from hushquery.curator.clicks import PAIR, Clicks
from hushquery.curator.count import law_of
from hushquery.curator.select import QUERY, Reused, Selector, released_table
from hushquery.engine import as_table, execute
from hushquery.noise.bits import Bits
from hushquery.noise.mechanisms import add_noise, noisy_law, product_law
from hushquery.noise.sampler import IntArray
from hushquery.privacy.budget import Budget
from hushquery.privacy.loss import Loss
from hushquery.privacy.registry import SUPPRESSED, Kind, Mechanism, Pair
from hushquery.privacy.sparse_gaussian import calibrate_sparse_gaussian
from hushquery.privacy.step_loss import GaussianHistogram, GaussianWeights, LaplaceHistogram

__all__ = [
    "QUERIES",
    "GaussianSelector",
    "Key",
    "LaplaceSelector",
    "LogMechanism",
    "Rows",
    "SelectedClicks",
    "Thresholded",
    "crowd",
    "exact_counts",
    "log_of",
    "numbered",
    "passing_bit",
    "passing_law",
    "passing_runs",
    "query_keys",
    "query_pairs",
    "searcher",
    "selector_for",
]

#: What a log is to an audit: rows of a user, a time in microseconds, a query, and a clicked URL or None.
Rows = tuple[tuple[str, int, str, str | None], ...]
#: A key of a table: a query, or a query and what belongs to it.
Key = tuple[str, ...]

#: The queries of the audited logs. In the order of their letters, which is not the order in which all users pose them.
QUERIES: tuple[str, ...] = ("ant", "bee", "cow")

_PER_USER = 2
_SECOND = 1_000_000


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
    import pyarrow as pa

    users, times, queries, urls = zip(*world, strict=True) if world else ((), (), (), ())
    return as_table(
        pa.table(
            {
                "user": pa.array(users, pa.string()),
                "query": pa.array(queries, pa.string()),
                "time": pa.array(times, pa.int64()),
                "url": pa.array(urls, pa.string()),
            }
        )
    )


def exact_counts(expression: Any, keys: Sequence[Key], columns: Sequence[str]) -> tuple[int, ...]:
    """Run an expression and give its ``n`` for each key, 0 where the engine has none."""
    rows = execute(expression).to_pydict()
    found = dict(zip(zip(*(rows[c] for c in columns), strict=True), rows["n"], strict=True))
    strange = set(found) - set(keys)
    if strange:  # a key without a column would be published unseen
        raise KeyError(*strange)
    return tuple(found.get(key, 0) for key in keys)


#: A step whose noise meets a threshold.
Thresholded = LaplaceHistogram | GaussianHistogram | GaussianWeights


def passing_runs(counts: Sequence[int], step: Thresholded, n: int, bits: Bits) -> IntArray:
    """Draw noise for every key that somebody holds, ``n`` times, and give the noisy counts that reach the threshold."""
    out = np.full((n, len(counts)), SUPPRESSED, dtype=np.int64)
    held = [i for i, count in enumerate(counts) if count]
    noisy = add_noise(tuple(counts[i] for i in held), n, law_of(step), bits)
    out[:, held] = np.where(noisy >= int(step.threshold or 0), noisy, SUPPRESSED)
    return out


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


class LogMechanism(Mechanism[Rows]):
    """What the curator's mechanisms share: worlds that are logs, counted once by the engine."""

    kind: ClassVar[Kind] = "selector"
    audit_runs: ClassVar[int] = 8_000_000

    @abstractmethod
    def ask(self, world: Rows) -> tuple[int, ...]:
        """Bound and count a world in the engine."""

    def counts(self, world: Rows) -> tuple[int, ...]:
        """Give the bounded counts of a world, from the engine the first time."""
        return _asked(self, world)


@lru_cache(maxsize=256)
def _asked(mechanism: LogMechanism, world: Rows) -> tuple[int, ...]:
    return mechanism.ask(world)


def selector_for(name: SelectorName, epsilon: Fraction, delta: Fraction, *, select_only: bool = False) -> Selector:
    """Calibrate a selector of two queries per user, as a release would."""
    return calibrate(Request(Budget(epsilon, delta), _PER_USER, selector=name, select_only=select_only)).selector


@dataclass(frozen=True)
class _Reusing(LogMechanism):
    """Publish the very counts that passed the threshold."""

    selector: Reused
    keys: tuple[Key, ...] = query_keys(*QUERIES)
    bound: Bound = field(default=Bound())

    @property
    def loss(self) -> Loss:
        """What the step costs."""
        return self.selector.step.loss

    def ask(self, world: Rows) -> tuple[int, ...]:
        """Count users per query."""
        expression = self.selector.expressions(log_of(world), self.bound)["queries"]
        return exact_counts(expression, self.keys, QUERY)

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Release each query iff its noisy count reaches the threshold, ``n`` times."""
        out = passing_runs(self.counts(world), self.selector.step, n, bits)
        return out if self.selector.with_counts else np.where(out == SUPPRESSED, SUPPRESSED, 1)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate what is released."""
        single = passing_law if self.selector.with_counts else passing_bit
        return product_law([single(count, self.selector.step) for count in self.counts(world)])

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
    one, two = crowd(around, "ant"), crowd(shared, "ant", "bee")
    greedy = searcher("zoe", *(("cow", "bee", "ant") * 20), apart=0)
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
        return cls(_reused(selector_for("laplace", epsilon, delta)))


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
        return cls(_reused(selector_for("gaussian", epsilon, delta)))


def _reused(selector: Selector) -> Reused:
    if not isinstance(selector, Reused):
        raise TypeError(selector)
    return selector


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

    def run(self, world: Rows, n: int, bits: Bits) -> IntArray:
        """Release each pair iff its noisy count reaches the threshold, ``n`` times."""
        return passing_runs(self.counts(world), self.clicks.step, n, bits)

    def law(self, world: Rows) -> Mapping[tuple[int, ...], float]:
        """Enumerate what is released."""
        return product_law([passing_law(count, self.clicks.step) for count in self.counts(world)])

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
