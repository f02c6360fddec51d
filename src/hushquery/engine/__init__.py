"""Engines: where counting happens. DuckDB inside the process by default, anything Ibis reaches where the data lives."""

from __future__ import annotations

from hushquery.engine.execute import (
    as_table,
    call,
    check,
    connect,
    dialect,
    engine_table,
    execute,
    fetch,
    is_text,
    materialize,
    md5,
    no_such_column,
    on_unreadable,
    or_null,
)

__all__ = ["as_table", "call", "check", "connect", "dialect", "engine_table", "execute", "fetch", "is_text"]
__all__ += ["materialize", "md5", "no_such_column", "on_unreadable", "or_null"]
