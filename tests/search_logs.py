"""Small search logs for tests: tables, strategies, and what the engine keeps of them."""

from __future__ import annotations

import ibis
import pyarrow as pa
from hypothesis import strategies as st

from hushquery.engine import execute

TYPES = {"user": pa.string(), "time": pa.int64(), "query": pa.string(), "url": pa.string()}


def log(*rows):
    """Give rows (user, time, query, url) as the table that a release would read."""
    columns = zip(*rows, strict=True) if rows else [()] * 4
    arrays = {name: pa.array(values, kind) for (name, kind), values in zip(TYPES.items(), columns, strict=True)}
    return ibis.memtable(pa.table(arrays).select(["user", "query", "time", "url"]))


def kept(expression):
    """Run an expression and give its rows, sorted."""
    return sorted(tuple(row.values()) for row in execute(expression).to_pylist())


def counted(expression):
    """Run an expression with a column ``n`` and give it as a mapping from key to count."""
    rows = execute(expression).to_pylist()
    return {tuple(v for name, v in row.items() if name != "n"): row["n"] for row in rows}


def rows_of(users, most):
    """Rows of some users: few times, so that there are ties, and few queries, so that users share them.

    A query is missing where reading the log left it out.
    """
    return st.lists(
        st.tuples(
            st.sampled_from(users),
            st.none() | st.integers(0, 6).map(lambda minutes: minutes * 60_000_000),
            st.sampled_from(["ant", "bee", "cow", "dog", "elk", "fox é", None]),
            st.none() | st.sampled_from(["https://x.example/", "https://y.example/"]),
        ),
        max_size=most,
    )


#: Everybody else, and one user more.
OTHERS = rows_of(["ann", "bob", "cem", "dan"], 14)
ZOE = rows_of(["zoe"], 14).filter(lambda rows: any(query for _, _, query, _ in rows))
