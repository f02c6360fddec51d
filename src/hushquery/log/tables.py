"""Files as tables of an engine: one reader, for logs and for every other table, in which a line is a row.

What has names (a header, a Parquet schema) gives its columns; their type is text unless the question asked names
another one, and a value that is not of it is missing. A type, a separator or a quote that reaches beyond its line would
let one person's row change how everybody's is read, and no bound on what a person contributes would hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hushquery.engine import as_table, connect, is_text, read_otherwise, spark
from hushquery.errors import DataError, UsageError
from hushquery.log import formats
from hushquery.log.files import Peek, literally, look, named, quoted
from hushquery.log.report import defects_of_files

__all__ = ["FILE_ENDINGS", "format_by_ending", "parquet_table", "read_table", "view"]

_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
#: What the names of files end in, among others; a table of an engine can't have such a name.
FILE_ENDINGS = frozenset({*_ENDINGS, ".gz", ".txt"})
_WORKBOOKS = {".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"}
_SQL_TYPES = {"float64": "DOUBLE", "int64": "BIGINT", "string": "VARCHAR"}


def read_table(data: Any, *, types: Mapping[str, str] | None = None, public: bool = False) -> Any:
    """Return any table as an Ibis table: the name of a file, or what :func:`hushquery.engine.as_table` takes.

    Of a file only its beginning is looked at: the header, or the schema. JSON lines have neither: of them, ``types``
    must name every column that is to be there. Text files are read as :func:`hushquery.log.read_log` reads them: each
    line is a row on its own, and a malformed one is left out.

    Args:
        data: The table.
        types: For text files: ``float64``, ``int64`` or ``string`` by column; a cell of another type is missing.
        public: Whether no row is secret: then malformed lines are refused, with their numbers. Reads the file.

    >>> read_table({"user": [1, 2]}).columns
    ('user',)
    """
    if not isinstance(data, str | Path):
        return as_table(data)
    types = types or {}
    for kind in types.values():
        if kind not in _SQL_TYPES:
            raise UsageError(f"the type {kind!r} is not known", fix=f"Use one of {', '.join(_SQL_TYPES)}")
    path = Path(data)
    kind = format_by_ending([path])
    if "\0" in str(path) or not path.is_file():
        raise DataError(f"there is no file {path}".replace("\0", "?"), fix="Check the name")
    peek = look(path, may_be_blank=kind == "jsonl")
    if peek.gzip:
        raise DataError(f"the file {path} is compressed", fix="Unpack it: gunzip FILE")
    engine = connect()
    if kind == "parquet":
        if peek.magic != "a Parquet file":
            raise _unreadable(path, kind)
        return parquet_table(engine, [path])
    form, names = _all_columns(peek, kind, types)
    if public and (found := defects_of_files([path], form, None)):
        raise DataError(
            "lines of a public list are malformed",
            why="; ".join(map(str, found.found)),
            fix="Correct or delete them",
        )
    picked = ", ".join(f"{_typed(column, kind, types.get(name))} AS {named(name)}" for column, name in names.items())
    return view(engine, f"SELECT {picked} FROM ({form.rows_of_files([path], [])})")  # noqa: S608


def _all_columns(peek: Peek, kind: str, types: Mapping[str, str]) -> tuple[formats.Format, dict[str, str]]:
    """Return how lines become rows, and the source's name for each of its columns, which we number."""
    lines = peek.lines("utf-8")
    if kind == "jsonl":
        if lines and not formats.has_shape(kind, lines):
            raise _unreadable(peek.path, kind)
        names = {f"v{place}": name for place, name in enumerate(types)}
        return formats.jsonl(names), names
    first = peek.head.split(b"\n", 1)[0]
    header = formats.header_cells(lines[0], formats.separator_of(kind, lines[0])) if lines else []
    bare = [name.strip() for name in header]
    alike = {name.lower() for name in bare}  # to an engine capitals are no difference
    if not all(bare) or len(alike) < len(bare) or not bare or peek.magic or b"\0" in first or not _is_text(first):
        raise _unreadable(peek.path, kind)
    places = {f"v{place}": place for place in range(len(bare))}
    names = {f"v{place}": name for place, name in enumerate(bare)}
    if kind == "tsv":
        return formats.tsv(header, places), names
    return formats.csv(header, places, formats.separator_of(kind, lines[0])), names


def _typed(column: str, kind: str, type_: str | None) -> str:
    """Write a column in its type; in a line of cells an empty one has no value."""
    value = column if kind == "jsonl" else f"nullif({column}, '')"
    return f"TRY_CAST({value} AS {_SQL_TYPES[type_ or 'string']})"


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unreadable(path: Path, kind: str) -> DataError:
    fix = {
        "parquet": "Check that it is complete",
        "jsonl": "Write one JSON object per line, in UTF-8; a JSON array becomes that with: jq -c '.[]' IN > OUT",
    }
    return DataError(
        f"the file {path} can't be read as {kind}",
        why=f"It should be: {formats.FORMATS[kind]}",
        fix=fix.get(kind, "Check that it is what its ending says, in UTF-8, with a header line of distinct names"),
    )


def format_by_ending(paths: Sequence[Path]) -> str:
    """Return the format that the names of files tell; refuse names that tell none, or several."""
    endings = {path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix for path in paths}
    if _WORKBOOKS & {ending.lower() for ending in endings}:
        raise UsageError(
            "a workbook can't be read", why="It is not a log of lines", fix="Open it and save it as CSV UTF-8"
        )
    kinds = {_ENDINGS.get(ending.lower()) for ending in endings}
    kind = kinds.pop()
    if kind is None or kinds:
        raise UsageError(
            "the files' ending does not tell one format",
            fix=f"Name it: --format or format= {'|'.join(formats.FORMATS)}; or use one of {', '.join(_ENDINGS)}",
        )
    return kind


def parquet_table(engine: Any, paths: Sequence[Path]) -> Any:
    """Return Parquet files as a table of an engine, without a look at their rows."""
    try:
        if engine.name == "duckdb":
            listed = ", ".join(quoted(literally(path)) for path in paths)
            table = view(engine, f"SELECT * FROM read_parquet([{listed}], hive_partitioning=false)")  # noqa: S608
            read_otherwise(engine, partial(_read_by_arrow, name=table.get_name(), paths=paths))
            return table
        if engine.name == "pyspark":
            return spark.read_parquet(engine, [spark.literally(path) for path in paths])
        return engine.read_parquet([str(path.absolute()) for path in paths])
    except Exception as error:
        # An engine's message may quote what it found.
        raise DataError(
            "the Parquet files can't be read",
            why=type(error).__name__,
            fix="Check that they are complete, have the same columns, and that every machine of the engine sees them",
        ) from None


def _read_by_arrow(engine: Any, name: str, paths: Sequence[Path]) -> None:
    """Have Arrow read the Parquet files of a view: slower, and a value that DuckDB's own reader fails on is missing.

    Such are text that is no UTF-8, and a time in milliseconds that microseconds do not count.
    """
    import ibis
    import pyarrow as pa
    import pyarrow.dataset as ds

    kinds = {column: kind for column, kind, *_ in engine.con.execute(f"DESCRIBE {name}").fetchall()}
    parts = []
    for path in paths:
        fields = {field.name.lower(): field for field in ds.dataset(str(path), format="parquet").schema}
        read = {column: _careful(fields[column.lower()].type, kind) for column, kind in kinds.items()}
        schema = pa.schema(fields[column.lower()].with_type(type_) for column, (type_, _) in read.items())
        part = ibis.util.gen_name("hushquery_files")
        engine.con.register(part, ds.dataset(str(path), schema=schema, format="parquet"))
        cells = (f"TRY_CAST({read[c][1].format(named(c))} AS {kind}) AS {named(c)}" for c, kind in kinds.items())
        parts.append(f"SELECT {', '.join(cells)} FROM {part}")  # noqa: S608
    engine.raw_sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {' UNION ALL '.join(parts)}")


def _careful(type_: Any, kind: str) -> tuple[Any, str]:
    """Return which type Arrow shall read a column in, and the SQL that fails on none of its values."""
    import pyarrow as pa

    if is_text(type_):
        return pa.large_binary(), "TRY(decode({0}))"
    if pa.types.is_timestamp(type_) and type_.unit in ("s", "ms"):
        # TRY_CAST fails here, TRY does not.
        near = "CAST({0} AS TIMESTAMP)"
        return pa.timestamp("ms"), f"TRY(timezone('UTC', {near}))" if kind.endswith("TIME ZONE") else f"TRY({near})"
    if pa.types.is_float16(type_):
        return pa.float32(), "{0}"
    return type_, "hex({0})" if kind == "UUID" and pa.types.is_fixed_size_binary(type_) else "{0}"


def view(engine: Any, sql: str) -> Any:
    """Return a query as a table with a name of its own, so that what a plan shows as SQL holds no path."""
    import ibis

    name = ibis.util.gen_name("hushquery_log")
    try:
        engine.raw_sql(f"CREATE TEMP VIEW {name} AS {sql}")
    except Exception as error:
        raise DataError(
            "the engine can't read the files", why=type(error).__name__, fix="Check that they can be opened"
        ) from None
    return engine.table(name)
