"""Tables: anything that holds rows as an Ibis table, without a look at the rows.

Text files are read without looking at their rows: the separator follows from the ending, the names from the header, and
every column is text unless the question asked names a type. A type or a separator guessed from the rows would let one
person's row change how everybody's is read, and no bound on what a person contributes would hold.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hushquery.engine.connections import connect
from hushquery.engine.inprocess import count_in_memory_here
from hushquery.errors import DataError, UsageError

__all__ = ["as_table", "engine_table", "no_such_column"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_JSON = {".json": "auto", ".jsonl": "newline_delimited", ".ndjson": "newline_delimited"}
_ENDINGS = (*_SEPARATORS, *_JSON, ".parquet")
_OTHER_ENDINGS = (".gz", ".zst", ".txt")  # of files that DuckDB finds, too
_LONGEST_HEADER = 2**20
_SQL_TYPES = {"float64": "DOUBLE", "int64": "BIGINT", "string": "VARCHAR"}


def as_table(data: Any, engine: Any = None, *, types: Mapping[str, str] | None = None) -> Any:
    """Give any table as an Ibis table: a file name, a pandas, Polars, Arrow or Ibis table, or a mapping of columns.

    Reads no rows of an Ibis table, and of a file only its header. JSON lines have none: of them, ``types`` must name
    every column that is to be there.

    Args:
        data: The table.
        engine: Where to read a file; DuckDB in this process by default.
        types: For text files: ``float64``, ``int64`` or ``string`` by column; a cell of another type is missing.

    >>> as_table({"user": [1, 2]}).columns
    ('user',)
    """
    import ibis

    if isinstance(data, ibis.Table):
        if not data._find_backends()[0]:
            count_in_memory_here()
        return data
    if isinstance(data, str | Path):
        return _read_file(Path(data), engine or connect(), types or {})
    count_in_memory_here()
    try:
        import pyarrow as pa

        table = pa.table(dict(data)) if isinstance(data, Mapping) else pa.table(data)
        if len(set(table.column_names)) != table.num_columns:
            raise ValueError
        return ibis.memtable(table)
    except Exception as error:
        # The message may quote a value.
        raise DataError(
            f"a {type(data).__name__} can't be read as a table",
            why=type(error).__name__,
            fix="Give a file name, a mapping of columns, or a pandas, Polars, Arrow or Ibis table with distinct names",
        ) from None


def engine_table(name: str, engine: Any) -> Any:
    """Give a table that an engine knows by name (``searches``, ``schema.searches``); on Spark also a Parquet file.

    Spark reads a path ending in ``.parquet``, which all its machines must see, or an address such as ``hdfs://...``.
    """
    from hushquery.engine import spark

    if engine.name == "duckdb" and name.lower().endswith((*_ENDINGS, *_OTHER_ENDINGS)):
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


def _read_file(path: Path, engine: Any, types: Mapping[str, str]) -> Any:
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise UsageError(
            f"files ending in {path.suffix or 'nothing'!r} are not known", fix=f"Use one of {', '.join(_ENDINGS)}"
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}", fix="Check the name")
    if path.stat().st_size == 0:
        raise DataError(f"the file {path} is empty", fix="Give a file with a header and rows")
    try:
        if ending == ".parquet":
            return engine.read_parquet(_literally(path))
        return engine.sql(_text_file_sql(path, ending, types), dialect="duckdb")
    except Exception as error:
        # An engine's message may quote a row.
        raise DataError(
            f"the file {path} can't be read as {ending[1:]}",
            why=type(error).__name__,
            fix="Check that it is what its ending says, in UTF-8, with a header line of distinct names",
        ) from None


def _text_file_sql(path: Path, ending: str, types: Mapping[str, str]) -> str:
    """Write the query that reads a text file with fixed separator, names and types."""
    if ending in _SEPARATORS:
        names = next(csv.reader([_first_line(path)], delimiter=_SEPARATORS[ending]))
        if len(set(names)) != len(names) or not all(names):
            raise ValueError(ending)
        options = f"delim='{_SEPARATORS[ending]}', header=true, quote='\"', escape='\"', nullstr='', auto_detect=false"
        source = "read_csv"
    else:
        # There is no header, and the names in the first line are somebody's row: only what is asked for is read.
        names = list(types)
        options, source = f"format='{_JSON[ending]}'", "read_json"
    if not names:
        raise ValueError(ending)
    columns = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in names)
    picked = ", ".join(f"TRY_CAST({_name(n)} AS {_SQL_TYPES[types.get(n, 'string')]}) AS {_name(n)}" for n in names)
    # Every name and the path are quoted by the two functions below.
    return f"SELECT {picked} FROM {source}({_quoted(_literally(path))}, columns={{{columns}}}, {options})"  # noqa: S608


def _first_line(path: Path) -> str:
    """Read the first line and nothing behind it."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    if len(line) == _LONGEST_HEADER:
        raise ValueError(len(line))
    return line.decode("utf-8-sig").strip()


def _literally(path: Path) -> str:
    """Write a path so that the engine does not take it for a pattern of other files' names."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
