"""Engines: where counting happens. DuckDB inside the process by default, anything Ibis reaches where the data lives."""

from __future__ import annotations

from hushquery.engine.connect import connect
from hushquery.engine.execute import (
    call,
    check,
    dialect,
    execute,
    fetch,
    java,
    materialize,
    md5,
    or_null,
    read_otherwise,
)
from hushquery.engine.tables import as_table, engine_table, is_text, no_such_column

__all__ = [
    "as_table",
    "call",
    "check",
    "connect",
    "dialect",
    "engine_table",
    "execute",
    "fetch",
    "materialize",
    "is_text",
    "java",
    "md5",
    "no_such_column",
    "read_otherwise",
    "or_null",
]
