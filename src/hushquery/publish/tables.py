"""The tables of a release as arrays and as a graph, with clear words where one is missing.

Noisy counts may be below zero. They are shown as released; wherever a count is used as a *weight* (a rank, a step of a
walk) it is clipped at zero first, because nobody can click a negative number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushquery.errors import DataError, UsageError
from hushquery.publish.text import fold

if TYPE_CHECKING:
    import pyarrow as pa

    from hushquery.release import Release

__all__ = ["ClickGraph", "Counts", "Queries", "checked_limit", "click_graph", "need_table", "queries_of", "row_counts"]

_MADE_BY = {
    "queries": "Every release of `hushquery release` has it",
    "clicks": "Make a release from a log that has URLs, with --clicks-per-user",
    "reformulations": "Make a release with --reformulations-per-user",
}


@dataclass(frozen=True)
class Counts:
    """The noisy numbers of some rows, in the order of the rows."""

    count: npt.NDArray[np.float64]
    stderr: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @property
    def weight(self) -> npt.NDArray[np.float64]:
        """The counts clipped at zero, for ranking."""
        return np.maximum(self.count, 0.0)


@dataclass(frozen=True)
class Queries:
    """The released queries, with counts unless only the list was released."""

    names: list[str]
    counts: Counts | None

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
        """The counts clipped at zero; all alike where no counts were released."""
        return self.counts.weight if self.counts is not None else np.ones(len(self.names))

    def numbers(self, index: int) -> tuple[int | None, float | None, float | None]:
        """Give the count of one query and its interval, as released."""
        if self.counts is None:
            return None, None, None
        return int(self.counts.count[index]), float(self.counts.low[index]), float(self.counts.high[index])

    def where(self, text: str) -> int | None:
        """Find a query: as it was released, else the most frequent one that differs in case, accents or blanks."""
        exact = self.by_name.get(text)
        if exact is not None:
            return exact
        same = self.by_folded.get(fold(text))
        return max(same, key=lambda index: self.weight[index]) if same else None


@dataclass(frozen=True)
class ClickGraph:
    """Queries on one side, URLs on the other; an edge weighs the noisy clicks, clipped at zero.

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
    return Queries(table["query"].to_pylist(), row_counts(table) if "count" in table.column_names else None)


def click_graph(release: Release, purpose: str) -> ClickGraph:
    """Give the clicks of a release as a graph.

    Args:
        release: The release.
        purpose: What can't be done without clicks, for the message.
    """
    table = need_table(release, "clicks", purpose)
    known = release.tables["queries"]["query"].to_pylist() if "queries" in release.tables else []
    queries, rows = _numbered(table["query"].to_pylist(), known)
    urls, columns = _numbered(table["url"].to_pylist(), ())
    weight = row_counts(table).weight
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


def row_counts(table: pa.Table) -> Counts:
    """Give the numbers of a table's rows."""
    return Counts(
        *(np.asarray(table[name].to_numpy(), dtype=np.float64) for name in ("count", "stderr", "low", "high"))
    )


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
