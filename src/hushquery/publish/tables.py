"""The tables of a release as arrays and as a graph, with clear words where one is missing.

A release holds counts, or shares of all records. Both are shown as released. Wherever one is used as a *weight* (a
rank, a step of a walk) there is one notion of it: a count clipped at zero, because nobody can click a negative number
of times; a share as if 100,000 records had been counted, so that both rank alike.

A record with an empty URL is a search without a click: it is no page, and no page is ever found through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from scipy import sparse

from hushquery.errors import DataError, UsageError
from hushquery.publish.text import fold
from hushquery.release.intervals import Published, published

if TYPE_CHECKING:
    import pyarrow as pa

    from hushquery.release import Release

__all__ = [
    "PER",
    "ClickGraph",
    "Numbers",
    "Queries",
    "checked_limit",
    "click_graph",
    "need_table",
    "queries_of",
    "row_numbers",
    "with_pages",
]

#: A share weighs as much as its count among so many records.
PER = 100_000

_MADE_BY = {
    "queries": "Every release of `hushquery release` has it",
    "clicks": "Make a release from a log that has URLs, with --clicks-per-user",
    "reformulations": "Make a release with --reformulations-per-user",
}


@dataclass(frozen=True)
class Numbers:
    """The noisy numbers of some rows, in the order of the rows: counts or shares, with errors and intervals.

    ``published`` gives the intervals at other levels, where the rows are compared.
    """

    measure: Literal["count", "share"]
    value: npt.NDArray[np.float64]
    stderr: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    published: Published | None = None

    @property
    def weight(self) -> npt.NDArray[np.float64]:
        """What ranks and walks weigh a row by; never below zero."""
        return np.maximum(self.value, 0.0) * (PER if self.measure == "share" else 1.0)

    def count(self, index: int) -> int | None:
        """Give the count of a row; None where shares were released."""
        return int(self.value[index]) if self.measure == "count" else None

    def share(self, index: int) -> float | None:
        """Give the share of a row; None where counts were released."""
        return float(self.value[index]) if self.measure == "share" else None

    def told(self, index: int) -> tuple[int | None, float, float]:
        """Give the count of a row (None for a share) and its interval, as released."""
        return self.count(index), float(self.low[index]), float(self.high[index])


@dataclass(frozen=True)
class Queries:
    """The released queries, with numbers unless only the list was released."""

    names: list[str]
    measured: Numbers | None

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Where each query stands."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def folded(self) -> list[str]:
        """The queries in the form in which texts are compared."""
        return [fold(name) for name in self.names]

    @cached_property
    def by_folded(self) -> dict[str, list[int]]:
        """Where the queries with a folded form stand."""
        found: dict[str, list[int]] = {}
        for index, folded in enumerate(self.folded):
            found.setdefault(folded, []).append(index)
        return found

    @cached_property
    def weight(self) -> npt.NDArray[np.float64]:
        """What ranks weigh a query by; all alike where no numbers were released."""
        return self.measured.weight if self.measured is not None else np.ones(len(self.names))

    @property
    def measure(self) -> Literal["count", "share"] | None:
        """What the numbers are; None where only the list was released."""
        return None if self.measured is None else self.measured.measure

    def numbers(self, index: int) -> tuple[int | None, float | None, float | None]:
        """Give the count of one query (None for a share) and its interval, as released."""
        return (None, None, None) if self.measured is None else self.measured.told(index)

    def share(self, index: int) -> float | None:
        """Give the share of one query; None where no shares were released."""
        return None if self.measured is None else self.measured.share(index)

    def where(self, text: str) -> int | None:
        """Find a query: as it was released, else the most frequent one that differs in case, accents or blanks."""
        exact = self.by_name.get(text)
        if exact is not None:
            return exact
        same = self.by_folded.get(fold(text))
        return max(same, key=lambda index: self.weight[index]) if same else None


@dataclass(frozen=True)
class ClickGraph:
    """Queries on one side, URLs on the other; an edge weighs the noisy clicks, never below zero.

    Attributes:
        queries: The released queries, then those that have clicks only.
        urls: The clicked URLs.
        weights: Queries by URLs.
    """

    queries: list[str]
    urls: list[str]
    weights: sparse.csr_array

    @cached_property
    def by_query(self) -> dict[str, int]:
        """Where each query stands, by its released and by its folded form."""
        return {**{fold(name): i for i, name in reversed(list(enumerate(self.queries)))}, **_places(self.queries)}

    @cached_property
    def by_url(self) -> dict[str, int]:
        """Where each URL stands."""
        return _places(self.urls)

    def query(self, text: str) -> int | None:
        """Find a query by its released form, else by its folded form."""
        found = self.by_query.get(text)
        return found if found is not None else self.by_query.get(fold(text))

    def url(self, text: str) -> int | None:
        """Find a URL, with or without its scheme and its last slash."""
        bare = text.strip()
        for form in (bare, f"https://{bare}", f"http://{bare}"):
            for ending in (form, f"{form}/", form.rstrip("/")):
                if ending in self.by_url:
                    return self.by_url[ending]
        return None


def queries_of(release: Release) -> Queries:
    """Give the queries of a release."""
    table = need_table(release, "queries", "nothing can be looked up")
    if table.num_columns == 1:
        return Queries(table["query"].to_pylist(), None)
    numbers = row_numbers(table)
    return Queries(
        table["query"].to_pylist(), replace(numbers, published=published(table, "queries", release.manifest))
    )


def click_graph(release: Release, purpose: str) -> ClickGraph:
    """Give the clicks of a release as a graph.

    Args:
        release: The release.
        purpose: What can't be done without clicks, for the message.
    """
    table = with_pages(need_table(release, "clicks", purpose))
    known = release.tables["queries"]["query"].to_pylist() if "queries" in release.tables else []
    queries, rows = _numbered(table["query"].to_pylist(), known)
    urls, columns = _numbered(table["url"].to_pylist(), ())
    weight = row_numbers(table).weight
    kept = weight > 0
    shape = (len(queries), len(urls))
    return ClickGraph(queries, urls, sparse.csr_array((weight[kept], (rows[kept], columns[kept])), shape=shape))


def need_table(release: Release, name: str, purpose: str) -> pa.Table:
    """Give a table of a release, or say what its absence means and what to do."""
    if name not in release.tables:
        raise DataError(
            f"this release has no table of {name}",
            why=f"without it {purpose}; it has: {', '.join(sorted(release.tables)) or 'no tables'}",
            fix=_MADE_BY.get(name, ""),
        )
    return release.tables[name]


def row_numbers(table: pa.Table) -> Numbers:
    """Give the numbers of a table's rows."""
    measure: Literal["count", "share"] = "share" if "share" in table.column_names else "count"
    columns = (measure, "stderr", "low", "high")
    value, stderr, low, high = (np.asarray(table[name].to_numpy(), dtype=np.float64) for name in columns)
    return Numbers(measure, value, stderr, low, high)


def with_pages(clicks: pa.Table) -> pa.Table:
    """Leave out the searches without a click."""
    return clicks.filter(pc.not_equal(clicks["url"], ""))


def checked_limit(limit: int) -> int:
    """Refuse a number of results that makes no sense."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise UsageError("the number of results must be at least 1", fix="Give for example 10")
    return limit


def _numbered(names: Sequence[str], known: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Number names in order of appearance, after those known already."""
    places: dict[str, int] = {name: index for index, name in enumerate(known)}
    numbers = np.fromiter((places.setdefault(name, len(places)) for name in names), dtype=np.int64, count=len(names))
    return list(places), numbers


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}
