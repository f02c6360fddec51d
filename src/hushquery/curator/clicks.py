"""The clicks table: which URLs the released queries led to.

Pairs are on a public list and all get noise, zeros included, or need a threshold: one person's rare click must not
create a key. Each user counts once per pair, in at most d_c pairs of released queries (docs/proofs/clicks.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from hushquery.core.calibration import calibrate_sparse_gaussian
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, Loss
from hushquery.core.registry import Law, Pair
from hushquery.curator import audit
from hushquery.curator.audit import Key, LogMechanism, Rows
from hushquery.curator.counting import (
    QUERY,
    Bound,
    beneath,
    floor_in_words,
    noise_in_words,
    noisy_on_public_keys,
    passing,
    released_from,
    released_placeholder,
    released_table,
    tally,
    with_intervals,
)
from hushquery.curator.selectors import PlannedStep
from hushquery.engine import as_table, execute, fetch, materialize, no_such_column
from hushquery.errors import DataError
from hushquery.log import Log
from hushquery.log.normalise import normal_query, normal_url
from hushquery.log.tables import read_table
from hushquery.noise.mechanisms import product_law
from hushquery.noise.sampler import Bits, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

    from hushquery.log import Log

#: The key of the table ``clicks``.
PAIR = ["query", "url"]
_NUMBERED = ["number", "url"]


@dataclass(frozen=True)
class Clicks:
    """Make the table ``clicks``: of ``public_pairs`` with noise on all, or of secret pairs that reach a threshold."""

    step: LaplaceHistogram | GaussianHistogram
    public_pairs: Any = None

    def planned(self) -> PlannedStep:
        """Describe the step."""
        laplace, noise = isinstance(self.step, LaplaceHistogram), noise_in_words(self.step)
        if self.public_pairs is not None:
            detail = f"users per listed query and URL with {noise} noise, zeros included"
            return PlannedStep("discrete-laplace" if laplace else "gaussian", detail, self.step, "clicks")
        released = f"released at a noisy count of {released_from(self.step)} or more{floor_in_words(self.step)}"
        detail = f"users per query and clicked URL with {noise} noise, {released}"
        return PlannedStep("laplace" if laplace else "gaussian-selector", detail, self.step, "clicks")

    def expression(self, table: Any, bound: Bound, released: Any = None) -> Any:
        """Count users per pair, pairs of released queries (and listed ones) only."""
        queries = released_placeholder() if released is None else released
        return self._by_number(table, bound, queries).inner_join(queries, "number").select(*PAIR, "n")

    def _by_number(self, table: Any, bound: Bound, queries: Any) -> Any:
        # Rows without a URL are dropped by the bound, after everything an engine could be tempted to do to all rows.
        pairs = table if "number" in table.columns else table.inner_join(queries, "query")
        pairs = pairs.select(*(name for name in ("user", "time", "number", "url") if name in pairs.columns))
        if self.public_pairs is not None:
            pairs = pairs.semi_join(self.public_pairs.inner_join(queries, "query").select(*_NUMBERED), _NUMBERED)
        return tally(bound.rows(pairs, _NUMBERED, self.step.keys_per_user), _NUMBERED, beneath(self.step))

    def run(self, table: Any, bound: Bound, released: pa.Table, bits: Bits) -> pa.Table:
        """Count the pairs of the released queries, and publish."""
        queries = released_table(released)
        if self.public_pairs is None:
            with materialize(self._by_number(table, bound, queries)) as counted:
                passed = passing(counted, _NUMBERED, self.step, bits)
            names = released.sort_by("query")["query"].take(passed["number"])
            return with_intervals(passed.set_column(0, "query", names), self.step)
        with materialize(self.expression(table, bound, queries)) as counted:
            listed = execute(self.public_pairs.select(*PAIR).distinct().semi_join(queries, "query"))
            return with_intervals(noisy_on_public_keys(counted, listed, PAIR, self.step, bits), self.step)


def read_public_pairs(public_pairs: Any, log: Log) -> Any:
    """Read the public list of pairs into memory (engines join their own tables only), in the log's normal form."""
    import ibis

    table = read_table(public_pairs, types={"query": "string", "url": "string"}, public=True)
    for column in ("query", "url"):
        if column not in table.columns:
            raise no_such_column(column, table.columns, "a public list of results has the columns query and url")
    listed = as_table(fetch(table.select("query", "url")))
    if log.normalises:
        listed = listed.mutate(query=normal_query(listed["query"], "duckdb"), url=normal_url(listed.url, "duckdb"))
    pairs = fetch(listed)
    if pairs["query"].null_count or pairs["url"].null_count:
        raise DataError("a row of the public list has no query or no url", fix="Fill it in, or delete the row")
    return ibis.memtable(pairs)


@dataclass(frozen=True)
class SelectedClicks(LogMechanism):
    """Users per clicked pair of released queries, two pairs per user, with rounded Gaussian noise and a threshold.

    **Guarantee:** the sparse histogram's exact curve for one user, add-remove, with counts (docs/proofs/clicks.md).
    **Estimator:** none is unbiased: a count is seen only when its noise was high enough (docs/proofs/intervals.md).

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
        """Spend the whole budget on the clicks."""
        alone = calibrate_sparse_gaussian(audit.PER_USER, epsilon, delta)
        return cls(Clicks(GaussianHistogram(audit.PER_USER, alone.sigma, alone.threshold)))

    @property
    def loss(self) -> Loss:
        """What the step costs."""
        return self.clicks.step.loss

    def ask(self, dataset: Rows) -> tuple[int, ...]:
        """Count users per pair of a released query."""
        expression = self.clicks.expression(audit.log_of(dataset), self.bound, audit.numbered(self.released))
        return audit.exact_counts(expression, self.keys, PAIR)

    def exact(self, dataset: Rows) -> tuple[int, ...]:
        """Count each user once per clicked pair, in their first two pairs of released queries."""
        return audit.totals(
            audit.first_keys(clicked(dataset, self.released), self.clicks.step.keys_per_user), self.keys
        )

    def run(self, dataset: Rows, n: int, bits: Bits) -> IntArray:
        """Draw the step of the clicks on ``n`` copies of the counts."""
        return audit.rows_of(passing(self.copies(dataset, n), QUERY, self.clicks.step, bits), (n, len(self.keys)))

    def end_to_end(self, dataset: Rows, bits: Bits) -> tuple[IntArray, Law]:
        """Run the whole table of clicks on a log of many copies of the dataset."""
        import ibis
        import pyarrow as pa

        released = pa.table({"query": audit.named_copies(self.released, audit.COPIES)})
        published = self.clicks.run(ibis.memtable(audit.many_logs(dataset, audit.COPIES)), self.bound, released, bits)
        return audit.seen_in(published, self.keys, PAIR, audit.COPIES), self.law(dataset)

    def law(self, dataset: Rows) -> Law:
        """Enumerate what is released."""
        return product_law([audit.passing_law(count, self.clicks.step) for count in self.exact(dataset)])

    def pairs(self) -> Sequence[Pair[Rows]]:
        """One user more: alone, with many clicks on one search, with more pairs than the cap, on unreleased queries."""
        x, y = "https://x.example/", "https://y.example/"
        around, few = released_from(self.clicks.step), range(beneath(self.clicks.step))
        others = audit.crowd(around + 3, "ant", url=x) + audit.crowd(around + 3, "bee", url=x)
        others += tuple((f"other {i}", 0, "ant", y) for i in few)
        alike = tuple((f"other {i}", 0, "ant", url) for i in few for url in (x, y))
        alone = (("zoe", 5, "ant", x), ("zoe", 5, "ant", y))
        often = (*((("zoe", 1, "ant", x),) * 5), ("zoe", 2, "bee", x), ("zoe", 3, "ant", x))
        many = (("zoe", 0, "dog", x), ("zoe", 1, "dog", y), ("zoe", 2, "ant", None), ("zoe", 5, "bee", x), *alone)
        return [
            Pair("a user alone with two pairs, or with as few as the floor hides", alike, alike + alone),
            Pair("a user with one shared pair and one new", others, others + alone),
            Pair("a user with several clicks on one search", others, others + often),
            Pair("a user with more pairs than the cap and unreleased queries", others, others + many),
        ]


def clicked(dataset: Rows, released: Sequence[str]) -> list[tuple[str, int, Key]]:
    """Return who clicked which pair of the released queries, and when."""
    return [(user, time, (query, url)) for user, time, query, url in dataset if url and query in released]
