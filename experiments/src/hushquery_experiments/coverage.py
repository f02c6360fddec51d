"""Coverage: how much of a log a release holds, by distinct queries and by searches. Not publishable.

This is the first thing Korolova et al. 2009 measure. Few distinct queries can ever be released, because most were
searched by one person; the few that can are searched so often that their share of the search volume is far larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushquery.engine import execute, materialize, no_such_column
from hushquery.errors import DataError, UsageError
from hushquery.log import Log, read_log
from hushquery.release import Release
from hushquery_experiments.unpublishable import NotPublishable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Coverage", "SearchVolume", "coverage", "rows_of", "search_volume", "searches_of"]


@dataclass(frozen=True, repr=False)
class Coverage(NotPublishable):
    """How much of a log some queries cover.

    Attributes:
        queries: How many queries were released.
        distinct_share: How many of the log's distinct queries they are.
        volume_share: How many of the log's searches are for them.
    """

    queries: int
    distinct_share: float
    volume_share: float


def coverage(log: Any, released: Any) -> Coverage:
    """Compare released queries with the log they came from. The answer must not be published.

    Args:
        log: The true log: what :func:`hushquery.log.read_log` gives, its table, or anything it reads.
        released: A release, a table with a column ``query``, or the queries themselves.

    >>> log = {"user": ["a", "b", "b", "b"], "time": [1, 1, 2, 3], "query": ["news", "news", "news", "my rash"]}
    >>> coverage(log, ["news"])
    Coverage(queries=1, distinct_share=0.5, volume_share=0.75; NOT PUBLISHABLE: computed against the true log)
    """
    with search_volume(log) as volume:
        return volume.coverage(released)


@dataclass(frozen=True)
class SearchVolume:
    """How often each query of a log was searched, materialized in the engine for several queries."""

    table: Any
    distinct: int
    searches: int

    def coverage(self, released: Any) -> Coverage:
        """Compare released queries with the log, as :func:`coverage` does."""
        import ibis

        queries = _released_queries(released)
        found = self.table.semi_join(ibis.memtable(queries), "query")
        covered = execute(found.agg(distinct=found.count(), searches=found.n.sum().fill_null(0))).to_pylist()[0]
        return Coverage(queries.num_rows, covered["distinct"] / self.distinct, covered["searches"] / self.searches)


@contextmanager
def search_volume(log: Any) -> Iterator[SearchVolume]:
    """Count the searches for each query of a log once, for as long as the block runs."""
    searches = searches_of(rows_of(log))
    with materialize(searches.group_by("query").agg(n=searches.count())) as volume:
        total = execute(volume.agg(distinct=volume.count(), searches=volume.n.sum().fill_null(0))).to_pylist()[0]
        if not total["searches"]:
            raise DataError("the log has no searches", why="there is nothing to cover", fix="Give a log with rows")
        yield SearchVolume(volume, total["distinct"], total["searches"])


def rows_of(log: Any) -> Any:
    """Give the secret rows of a log as an Ibis table.

    An Ibis table is taken as it is, with the columns that :attr:`~hushquery.log.read.Log.table` has; anything else
    is read.
    """
    import ibis

    if not isinstance(log, ibis.Table):
        return (log if isinstance(log, Log) else read_log(log)).table
    for column in ("user", "query"):
        if column not in log.columns:
            raise no_such_column(column, log.columns, "a log has the columns user and query")
    return log


def searches_of(rows: Any) -> Any:
    """Give the searches of some rows: one with several clicks repeats its row and is still one search.

    Without times repeated searches can't be told from repeated clicks, and each user's query counts once.
    """
    return rows.select("user", *(["time"] if "time" in rows.columns else []), "query").distinct()


def _released_queries(released: Any) -> pa.Table:
    """Give distinct released queries as a table of one column."""
    import pyarrow as pa

    table = released.tables.get("queries") if isinstance(released, Release) else released
    if isinstance(table, pa.Table):
        if "query" not in table.column_names:
            raise UsageError("a table of released queries needs the column query", fix="Give a release")
        queries = table["query"].to_pylist()
    elif isinstance(table, Iterable) and not isinstance(table, str):
        queries = list(table)
    else:
        raise UsageError("released queries can't be read", fix="Give a release, a table, or a list of queries")
    if not all(isinstance(query, str) for query in queries):
        raise UsageError("released queries must be text", fix="Give a release, a table, or a list of queries")
    return pa.table({"query": pa.array(sorted(set(queries)), pa.string())})
