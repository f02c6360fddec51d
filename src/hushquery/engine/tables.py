"""Tables in memory and in engines as Ibis tables, without a look at their rows. Files are read by hushquery.log."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hushquery.engine.duckdb import count_in_memory_here
from hushquery.errors import DataError, UsageError

__all__ = ["as_table", "engine_table", "is_text", "no_such_column"]

_PER_UNIT = {"s": 10**6, "ms": 10**3}
# Of files that DuckDB finds.
_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz", ".zst", ".txt")


def as_table(data: Any) -> Any:
    """Return rows in memory as an Ibis table: a pandas, Polars, Arrow or Ibis table, or a mapping of columns.

    Reads no rows of an Ibis table.

    >>> as_table({"user": [1, 2]}).columns
    ('user',)
    """
    import ibis
    import ibis.expr.operations as ops

    if isinstance(data, ibis.Table):
        if data._find_backends()[0]:
            return data
        count_in_memory_here()
        held = data.op()
        if not isinstance(held, ops.InMemoryTable):
            return data
        rows = held.data.to_pyarrow(held.schema)
        readable = _readable(rows)
        return data if readable is rows else ibis.memtable(readable)
    count_in_memory_here()
    try:
        import pyarrow as pa

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
    """Return an Arrow table in which what DuckDB can't read is missing: text that is no UTF-8, times too far away.

    Timestamps of it count microseconds. DuckDB would fail on such a value while it reads the table, and one row would
    decide whether there is a result; after text that is none it answers nothing more.
    """
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
        elif is_text(kind) and not _is_valid(column):
            texts = [None if value is None else _decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]
            table = table.set_column(place, field.with_type(pa.large_string()), pa.array(texts, pa.large_string()))
    return table


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type holds text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_valid(column: Any) -> bool:
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def engine_table(name: str, engine: Any) -> Any:
    """Give a table that an engine knows by name (``searches``, ``schema.searches``); on Spark also a Parquet file.

    Spark reads a path ending in ``.parquet``, which all its machines must see, or an address such as ``hdfs://...``.
    """
    from hushquery.engine import spark

    if engine.name == "duckdb" and name.lower().endswith(_ENDINGS):
        # DuckDB would take it for a file, and guess the types of its columns from the rows.
        raise UsageError(
            f"{name!r} is the name of a file, and a table is asked for",
            fix="Give a file without an engine, or the name of a table",
        )
    try:
        if engine.name == "pyspark" and ("://" in name or name.lower().endswith(".parquet")):
            return spark.read_parquet(engine, [name if "://" in name else spark.literally(Path(name))])
        *place, last = name.split(".")
        return engine.table(last, database=tuple(place) if len(place) > 1 else place[0] if place else None)
    except Exception as error:
        # An engine's message may quote what it found.
        raise DataError(
            f"the engine {engine.name} has no table {name!r} that can be read",
            why=type(error).__name__,
            fix="Check the name (table, schema.table; for Spark also PATH.parquet), and that this user may read it",
        ) from None


def no_such_column(name: str, columns: Iterable[str], why: str = "") -> DataError:
    """Word the refusal of a missing column; what a file has in place of a header may be a row, so it is not listed."""
    near = difflib.get_close_matches(name, [str(column) for column in columns], n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]!r}?" if near else "Check the name, and that a file has a header line"
    return DataError(f"the table has no column {name!r}", why=why, fix=hint)
