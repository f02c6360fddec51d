"""Read a release's tables as arrays and as a click graph, and show the rows of results.

A *weight* (a rank, a step of a walk) is a count clipped at zero, or a share as if 100,000 records had been counted, so
that both rank alike. An empty URL is a search without a click: no page is ever found through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from hushquery.errors import DataError, UsageError
from hushquery.publish.text import fold
from hushquery.release.export import Tabular
from hushquery.release.intervals import Published, published

if TYPE_CHECKING:
    from hushquery.release import Release

_MADE_BY = {
    "queries": "Every release of `hushquery release` has it",
    "clicks": "Make a release from a log that has URLs, with --clicks-per-user",
    "reformulations": "Make a release with --reformulations-per-user",
}
_SHOWN = 20

Row = TypeVar("Row")


class Rows(tuple[Row, ...], Tabular):
    """The rows of a result, the best first: a tuple that becomes a data frame, and a table in a notebook."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; columns that no row has are left out."""
        return pa.Table.from_pylist(_plain(self))

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {type(self[0]).__name__}>" if self else "<no rows>"

    def _repr_html_(self) -> str:
        return _notebook({"rows": self})


class Shown:
    """A result that shows itself in a notebook: its numbers, the first of its rows, and its notes."""

    def _repr_html_(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        facts = [f"{name} {value}" for name, value in values.items() if isinstance(value, str | int | float)]
        rows = {name: value for name, value in values.items() if isinstance(value, Rows)}
        return _notebook(rows, ", ".join(facts).replace("_", " "), values.get("notes", ()))


def _plain(rows: Iterable[Any]) -> list[dict[str, Any]]:
    dicts = [asdict(row) for row in rows]
    empty = {name for name in (dicts[0] if dicts else ()) if all(row[name] in (None, ()) for row in dicts)}
    return [{name: value for name, value in row.items() if name not in empty} for row in dicts]


def _notebook(tables: Mapping[str, Rows[Any]], title: str = "", notes: Sequence[str] = ()) -> str:
    from hushquery.templates import render

    shown = []
    for name, rows in tables.items():
        first = _plain(rows[:_SHOWN])
        columns = list(first[0]) if first else []
        shown.append({"name": name.replace("_", " "), "columns": columns, "rows": first, "all": len(rows)})
    return render("notebook/tables.html", warnings=(), promises=filter(None, [title]), tables=shown, notes=notes)


@dataclass(frozen=True)
class Queries:
    """The released queries, with numbers unless only the list was released."""

    names: list[str]
    measured: Published | None

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
        places: dict[str, list[int]] = {}
        for index, folded in enumerate(self.folded):
            places.setdefault(folded, []).append(index)
        return places

    @cached_property
    def ranked(self) -> list[int]:
        """The places of the queries, the most frequent first; in their own order where no numbers were released."""
        order, measured = range(len(self.names)), self.measured
        return list(order) if measured is None else sorted(order, key=lambda i: (-measured.value[i], self.names[i]))

    @cached_property
    def weight(self) -> npt.NDArray[np.float64]:
        """What ranks weigh a query by; all alike where no numbers were released."""
        return self.measured.weight if self.measured is not None else np.ones(len(self.names))

    @property
    def measure(self) -> Literal["count", "share"] | None:
        """What the numbers are; None where only the list was released."""
        return None if self.measured is None else self.measured.measure

    def numbers(self, index: int) -> tuple[int | None, float | None, float | None]:
        """Return the count of one query (None for a share) and its interval, as released."""
        return (None, None, None) if self.measured is None else self.measured.row(index)

    def share(self, index: int) -> float | None:
        """Return the share of one query; None where no shares were released."""
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
    """The released queries, then those that have clicks only, by clicked URLs; weights are clicks, never below 0."""

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
        exact = self.by_query.get(text)
        return exact if exact is not None else self.by_query.get(fold(text))

    def url(self, text: str) -> int | None:
        """Find a URL, with or without its scheme and its last slash."""
        bare = text.strip()
        for form in (bare, f"https://{bare}", f"http://{bare}"):
            for ending in (form, f"{form}/", form.rstrip("/")):
                if ending in self.by_url:
                    return self.by_url[ending]
        return None


def queries_of(release: Release) -> Queries:
    """Return the queries of a release."""
    table = need_table(release, "queries", "nothing can be looked up")
    numbers = published(table, "queries", release.manifest) if table.num_columns > 1 else None
    return Queries(table["query"].to_pylist(), numbers)


def click_graph(release: Release, purpose: str) -> ClickGraph:
    """Return the clicks of a release as a graph; ``purpose`` is what can't be done without clicks, for the message."""
    table = with_pages(need_table(release, "clicks", purpose))
    known = release.tables["queries"]["query"].to_pylist() if "queries" in release.tables else []
    queries, rows = _numbered(table["query"].to_pylist(), known)
    urls, columns = _numbered(table["url"].to_pylist(), ())
    weight = published(table).weight
    positive = weight > 0
    edges = (weight[positive], (rows[positive], columns[positive]))
    return ClickGraph(queries, urls, sparse.csr_array(edges, shape=(len(queries), len(urls))))


def need_table(release: Release, name: str, purpose: str) -> pa.Table:
    """Return a table of a release, or refuse with what its absence means and what to do."""
    if "estimates" in release.tables:
        raise DataError(
            f"this release holds estimates from clients' reports, and no {name}",
            why=f"without them {purpose}",
            fix="Look at its report.html, or use `hushquery show` and `hushquery export`",
        )
    if name not in release.tables:
        raise DataError(
            f"this release has no table of {name}",
            why=f"without it {purpose}; it has: {', '.join(sorted(release.tables)) or 'no tables'}",
            fix=_MADE_BY.get(name, ""),
        )
    return release.tables[name]


def weighted_rows(release: Release, name: str, key: str) -> list[tuple[str, str, float]]:
    """Return query, other key and weight of each row of a table; none where the release has no such table."""
    if name not in release.tables:
        return []
    table = with_pages(release.tables[name]) if name == "clicks" else release.tables[name]
    columns = (table["query"].to_pylist(), table[key].to_pylist(), published(table).weight.tolist())
    return list(zip(*columns, strict=True))


def with_pages(clicks: pa.Table) -> pa.Table:
    """Leave out the searches without a click."""
    return clicks.filter(pc.not_equal(clicks["url"], ""))


def checked_limit(limit: int) -> int:
    """Refuse a number of results that makes no sense."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise UsageError("the number of results must be at least 1", fix="Use a value such as 10")
    return limit


def _numbered(names: Sequence[str], known: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Number names in order of appearance, after those known already."""
    places: dict[str, int] = {name: index for index, name in enumerate(known)}
    numbers = np.fromiter((places.setdefault(name, len(places)) for name in names), dtype=np.int64, count=len(names))
    return list(places), numbers


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}
