"""Run DuckDB in this process: its memory, threads and disk space, tables in memory, and unreadable values.

What does not fit into memory goes to a private folder: DuckDB's own, ``.tmp``, others could read.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hushquery.errors import DataError, UsageError

#: Environment variable: how much memory the engine may use before it writes to disk, such as ``2GB``.
MEMORY = "HUSHQUERY_MEMORY"
#: Environment variable: how many threads the engine may use; by default one per core.
THREADS = "HUSHQUERY_THREADS"
#: Environment variable: where the engine may put its temporary folder; by default the system's temporary directory.
TEMP = "HUSHQUERY_TEMP"

# By identity: Ibis considers connections with the same settings equal.
_OPEN: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_SIZE = re.compile(r"[0-9]+(?:[.][0-9]+)? ?(?:[KMGT]i?B)", re.IGNORECASE)
_PER_UNIT = {"s": 10**6, "ms": 10**3}


def connect_duckdb() -> Any:
    """Open an engine in this process, with the limits that the environment sets."""
    import ibis

    limits = _limits()
    folder = _temporary_folder()
    engine = ibis.duckdb.connect(temp_directory=folder, **limits)
    weakref.finalize(engine, shutil.rmtree, folder, ignore_errors=True)
    _OPEN[id(engine)] = engine
    return engine


def interrupt() -> None:
    """Interrupt every engine that this module opened; safe to call from any thread."""
    for engine in list(_OPEN.values()):
        with suppress(Exception):  # it may be closed
            engine.con.interrupt()


def _limits() -> dict[str, Any]:
    settings: dict[str, Any] = {}
    memory, threads = os.environ.get(MEMORY, "").strip(), os.environ.get(THREADS, "").strip()
    if memory:
        if not _SIZE.fullmatch(memory):
            raise UsageError(f"{MEMORY} is no amount of memory", fix=f"Write it like {MEMORY}=2GB")
        settings["memory_limit"] = memory
    if threads:
        if not threads.isdecimal() or not 1 <= int(threads) <= 1024:
            raise UsageError(f"{THREADS} is no number of threads", fix=f"Write it like {THREADS}=2")
        settings["threads"] = int(threads)
    return settings


def _temporary_folder() -> str:
    where = os.environ.get(TEMP, "").strip() or None
    try:
        return tempfile.mkdtemp(prefix="hushquery-", dir=None if where is None else Path(where).expanduser())
    except OSError as error:
        raise UsageError(
            "there is no place for what does not fit into memory",
            why=type(error).__name__,
            fix=f"Name a folder that exists and that you may write to: {TEMP}=FOLDER",
        ) from None


def on_unreadable(engine: Any, change: Callable[[Any], None]) -> None:
    """Register ``change``, called once if DuckDB's reader fails on a value: a slower reader with equal results."""
    engine.__dict__.setdefault("hushquery_changes", []).append(change)


def run(expression: Any, evaluate: Callable[[], Any]) -> Any:
    """Evaluate; if DuckDB fails on a value, switch to the slower reader and retry: no noise depends on the first."""
    import duckdb

    try:
        return evaluate()
    except (duckdb.InvalidInputException, duckdb.ConversionException):
        changes = [(engine, vars(engine).pop("hushquery_changes", [])) for engine in expression._find_backends()[0]]
        if not any(waiting for _, waiting in changes):
            raise
        for engine, waiting in changes:
            for change in waiting:
                change(engine)
        return evaluate()


def as_table(data: Any) -> Any:
    """Return rows in memory as an Ibis table: a pandas, Polars, Arrow or Ibis table (not read), or a mapping.

    >>> as_table({"user": [1, 2]}).columns
    ('user',)
    """
    import ibis
    import ibis.expr.operations as ops
    import pyarrow as pa

    if isinstance(data, ibis.Table) and data._find_backends()[0]:
        return data
    if ibis.options.default_backend is None:  # the one Ibis would make writes to disk in the current directory
        ibis.options.default_backend = connect_duckdb()
    if isinstance(data, ibis.Table):
        operation = data.op()
        if not isinstance(operation, ops.InMemoryTable):
            return data
        rows = operation.data.to_pyarrow(operation.schema)
        readable = _readable(rows)
        return data if readable is rows else ibis.memtable(readable)
    try:
        table = pa.table(dict(data)) if isinstance(data, Mapping) else pa.table(data)
        if len(set(table.column_names)) != table.num_columns:
            raise ValueError
        return ibis.memtable(_readable(table))
    except Exception as error:
        # The message may quote a value.
        raise DataError(
            f"a {type(data).__name__} can't be read as a table",
            why=type(error).__name__,
            fix="Give a file name, a mapping of columns, or a pandas, Polars, Arrow or Ibis table with distinct names",
        ) from None


def _readable(table: Any) -> Any:
    """Make missing what DuckDB fails on (invalid UTF-8, times too far away): no row may decide whether it runs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        column, kind = table.column(place), field.type
        if pa.types.is_timestamp(kind) and kind.unit in _PER_UNIT:
            farthest = (2**63 - 1) // _PER_UNIT[kind.unit] - 1
            count = column.cast(pa.int64())
            near = pc.and_(pc.greater(count, -farthest), pc.less(count, farthest))
            kind = pa.timestamp("us", kind.tz)
            table = table.set_column(place, field.with_type(kind), pc.if_else(near, column, None).cast(kind))
        elif is_text(kind):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                texts = [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]
                table = table.set_column(place, field.with_type(pa.large_string()), pa.array(texts, pa.large_string()))
    return table


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type holds text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
