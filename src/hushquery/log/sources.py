"""Read the rows of files and tables, of logs and of statistics, before any rule is applied to them.

Nothing is guessed from rows: a type or a quote that reaches beyond its line would let one person's row change how
everybody's is read, and no bound on contributions would hold (docs/decisions/0008-nothing-guessed-from-rows.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hushquery.engine import as_table, connect, is_text, on_unreadable, postgres, spark
from hushquery.errors import DataError, UsageError
from hushquery.log import files, formats
from hushquery.log.formats import ColumnNames, Format, describe_columns, list_names, quote_name
from hushquery.log.normalise import micros, stripped
from hushquery.log.report import Defects, defects_of_files, defects_of_table
from hushquery.log.time_format import TimeOptions

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
# So many first lines without a time that can be read are no accident.
_ENOUGH_LINES = 10
_CONVERT = {
    "UTF-16 text": "Convert it: iconv -f UTF-16 -t UTF-8 IN > OUT",
    "a zip archive": "Unpack it; a workbook (.xlsx) has to be saved as CSV UTF-8",
    "an old Office document": "Save it as CSV UTF-8",
}
_REWRITE = {
    "parquet": "Check that it is complete",
    "jsonl": "Write one JSON object per line, in UTF-8; a JSON array becomes that with: jq -c '.[]' IN > OUT",
}


@dataclass(frozen=True)
class Source:
    """Rows under our column names, not yet in their final form."""

    rows: Any  # the Ibis table
    dialect: str  # the engine's name
    steps: tuple[str, ...]  # what is read and which column is which, in words that may be published
    count_defects: Callable[[], Defects]  # counts the source's defects
    check_files: Callable[[], None] = lambda: None  #: raises if a file is damaged
    in_micros: bool = False  # whether ``time`` is in microseconds already
    coded: bool = False  # whether queries are numbers that stand for words, in which no pattern of text means anything
    paths: tuple[Path, ...] = ()  # the files, which the ledger notes in its private part


def table_source(table: Any, names: ColumnNames, engine: Any, options: TimeOptions, step: str) -> Source:
    """Return the rows of a table in an engine."""
    columns = list(table.columns)
    matched = names.match(columns, list_names(columns))
    types = table.schema()
    for ours, theirs in matched.items():
        if types[theirs].is_nested() or types[theirs].is_binary() or types[theirs].is_geospatial():
            raise DataError(f"the column for {ours} holds neither text nor numbers", fix="Convert it to text")
    rows = table.select(**{ours: table[theirs] for ours, theirs in matched.items()})
    backends = table._find_backends()[0]
    if not backends and engine is not None and engine.name != "duckdb":
        raise UsageError(
            "a table in memory is not in that engine",
            fix="Leave engine out (DuckDB reads it here), or load the table into the engine and give its name",
        )
    dialect = backends[0].name if backends else "duckdb"
    if dialect == "postgres":
        postgres.prepare(backends[0])
        postgres.check_ids(rows, "user")
        rows = postgres.in_byte_order(rows, {ours: ours in ("user", "query", "url") for ours in matched})
    origins = {ours: f"the column {quote_name(theirs)}" for ours, theirs in matched.items()}
    steps = (step, describe_columns(origins, options.form.format if options.form else ""))
    return Source(rows, dialect, steps, partial(defects_of_table, rows, dialect, options))


def files_source(
    data: Any, kind: str | None, names: ColumnNames, engine: Any, encoding: str, options: TimeOptions
) -> Source:
    """Return the rows of files."""
    paths = files.find_files(data)
    if kind is not None and kind not in formats.FORMATS:
        raise UsageError(f"the format {kind!r} is not known", fix=f"Use one of {', '.join(formats.FORMATS)}")
    kind = kind or _format_by_ending(paths)
    heads = [files.read_head(path) for path in paths]
    engine = engine if engine is not None else connect()
    if kind == "parquet":
        return _parquet_source(heads, names, engine, options)
    if engine.name != "duckdb":
        raise UsageError(
            f"the engine {engine.name} does not read {kind} files line by line",
            fix="Leave engine out (DuckDB reads them), or load the log into a table of that engine and give the table",
        )
    encoding = files.checked_encoding(encoding)
    forms = [_format_of(kind, head, names, encoding) for head in heads]
    form = forms[0]
    if any(other != form for other in forms):
        raise DataError(
            "the files differ in their header line", fix="Give them one by one, or write the columns in the same order"
        )
    if form.raw_time and options.form is not None:
        raise UsageError(f"the format {kind} has times of its own form", fix="Leave the time format out")
    _refuse_other_encodings(heads, form, encoding)
    _refuse_other_keys(heads, form, encoding, names)
    _refuse_unreadable_times(heads, form, encoding, options, names)
    plain, compressed = ([head.path for head in heads if head.gzip is packed] for packed in (False, True))
    utf8 = encoding == "utf-8"
    lines = files.lines_sql(plain, compressed) if utf8 else files.EncodedLines(tuple(paths), encoding).sql(engine)
    if kind == "yandex":
        sql = formats.yandex_rows(lines)
    else:
        sql = form.rows_of_files(plain, compressed) if utf8 else form.rows(form.of_lines(lines))
    rows = _view(engine, sql)
    return Source(
        rows=rows.select(*(column for column in rows.columns if column in form.origins)),
        dialect="duckdb",
        steps=(
            f"read as {kind}: {form.description}; each line on its own, malformed ones left out",
            describe_columns(form.origins, options.form.format if options.form else ""),
        ),
        count_defects=partial(defects_of_files, paths, form, options, encoding),
        check_files=partial(files.check_compressed, paths),
        in_micros=bool(form.raw_time),
        coded=kind == "yandex",
    )


def _format_by_ending(paths: Sequence[Path]) -> str:
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


def _format_of(kind: str, head: files.FileHead, names: ColumnNames, encoding: str) -> Format:
    """Return the format of a text file; refuse a file that shows nothing of it."""
    lines = head.lines(encoding)
    if not lines:
        raise DataError(
            f"the file {head.path} is not {kind}",
            why=f"It is {head.type}" if head.type else "It has no line end where a log's first lines would be",
            fix=_CONVERT.get(head.type, "Check the file"),
        )
    if kind in formats.FIXED or kind == "jsonl":
        if not any(formats.has_shape(kind, line) for line in lines):
            raise _not_of_format(head, kind, encoding)
        if kind == "jsonl":
            return formats.jsonl(names.check_distinct(names.names))
        form = formats.FIXED[kind]
        origins = names.of_format(kind, form.origins)
        return replace(form, origins=origins, fields={o: sql for o, sql in form.fields.items() if o in origins})
    separator = formats.separator_of(kind, lines[0])
    header, *below = (formats.header_cells(line, separator) for line in lines)
    if head.type or len(header) < 2:
        raise _not_of_format(head, kind, encoding)
    cells = [cell.strip() for cell in header]
    looks = formats.looks_like(lines)
    hint = f"Its first line must name its {len(header)} columns, and none of them is called so"
    matched = names.match(cells, hint if not looks or looks.startswith(kind) else f"It looks like {looks}")
    if below and len(header) not in map(len, below):
        raise _not_of_format(head, kind, encoding)
    if any(cells.count(theirs) > 1 for theirs in matched.values()):
        raise DataError("the header line has a needed column twice", fix="Rename one of them")
    places = {ours: cells.index(theirs) for ours, theirs in matched.items()}
    return formats.with_header(kind, header, places, separator)


def _not_of_format(head: files.FileHead, kind: str, encoding: str) -> DataError:
    looks = head.type or formats.looks_like(head.lines(encoding)) or ("binary data" if b"\0" in head.data else "")
    return DataError(
        f"the file {head.path} is not {kind} ({formats.FORMATS[kind]})",
        why=f"It looks like {looks}" if looks else "None of its first lines has that shape",
        fix=_CONVERT.get(looks) or "Name the format it has: --format or format= " + "|".join(formats.FORMATS),
    )


# What follows refuses logs of which nothing could be used, at full price. It looks at the first lines of all files and
# asks whether any of them is good: a single person's lines refuse a log only where they are all that is looked at.


def _refuse_other_encodings(heads: Sequence[files.FileHead], form: Format, encoding: str) -> None:
    """Refuse files of whose first lines none can be read: all their rows would be left out."""
    readable = [good for head in heads for good in head.decodes(encoding, skip=int(form.with_header))]
    if readable and not any(readable):
        raise DataError(
            f"the text in {_listed(heads)} is not {encoding}",
            why="None of its first lines can be read, and lines that can't be read are left out",
            fix="Name the encoding it has: --encoding cp1252, or encoding='cp1252'; gb18030, shift_jis, ...",
        )


def _refuse_other_keys(heads: Sequence[files.FileHead], form: Format, encoding: str, names: ColumnNames) -> None:
    """Refuse JSON lines of which none of the first has the needed keys: their rows would all be without a user."""
    if form.name != "jsonl":
        return
    lines = [line for head in heads for line in head.lines(encoding) if formats.has_shape("jsonl", line)]
    needed = {names.names[ours] for ours in names.required}
    if len(lines) >= _ENOUGH_LINES and not any(needed <= json.loads(line).keys() for line in lines):
        raise DataError(
            f"no line of the first in {_listed(heads)} has the keys {' and '.join(map(repr, sorted(needed)))}",
            why="Keys of JSON lines are taken as they are written, capitals too",
            fix="Say which they are: --columns user=KEY,query=KEY, or columns={'user': 'KEY', 'query': 'KEY'}",
        )


def _refuse_unreadable_times(
    heads: Sequence[files.FileHead], form: Format, encoding: str, options: TimeOptions, names: ColumnNames
) -> None:
    """Refuse files of whose first lines none has a time that can be read: "first by time" would mean nothing."""
    lines = [line for head in heads for line in head.lines(encoding)[form.with_header :]]
    if "time" not in form.fields or form.raw_time or len(lines) < _ENOUGH_LINES:
        return
    read, unreadable = _count_times(lines, form, options)
    if not read and unreadable >= _ENOUGH_LINES:
        shape = "neither ISO nor numbers" if options.form is None else f"not written like {options.form.format!r}"
        raise DataError(
            f"the times in {_listed(heads)} can't be read",
            why=f"The times in its first {len(lines)} lines are {shape}",
            fix="Say how they are written: --time-format '%d.%m.%Y %H:%M', or time_format='%m/%d/%Y %I:%M %p'. "
            f"Or write them like 2026-10-03 14:05:00. Or do without: {names.without('time')}",
        )


def _count_times(lines: Sequence[str], form: Format, options: TimeOptions) -> tuple[int, int]:
    """Count the times that can and that can't be read in a few lines, before a file is read."""
    import pyarrow as pa

    engine = connect()
    try:
        text = pa.array([line.encode() for line in lines], pa.large_binary())
        engine.con.register("batch", pa.table({"number": range(len(lines)), "line": text}))
        rows = engine.sql(form.checked_rows("batch"), dialect="duckdb")
        rows = rows.filter(rows.problem.isnull()).select(time=micros(rows.time, "duckdb", options), raw="raw_time")
        given = stripped(rows.raw.fill_null(""), "duckdb") != ""
        counts = rows.agg(read=rows.time.count(), unreadable=(rows.time.isnull() & given).sum())
        [(read, unreadable)] = engine.con.execute(engine.compile(counts)).fetchall()
    finally:
        engine.disconnect()
    return read, unreadable or 0


def _listed(heads: Sequence[files.FileHead]) -> str:
    return str(heads[0].path) + (f" and {len(heads) - 1} more" if len(heads) > 1 else "")


def _view(engine: Any, sql: str) -> Any:
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


def _parquet_source(heads: Sequence[files.FileHead], names: ColumnNames, engine: Any, options: TimeOptions) -> Source:
    for head in heads:
        if head.type != "a Parquet file" or head.gzip:
            raise _not_of_format(head, "parquet", "utf-8")
    paths = [head.path for head in heads]
    table = _parquet_table(engine, paths)
    types = _types_of_columns(paths)
    for ours, theirs in names.match(table.columns, list_names(table.columns)).items():
        of_files = [one.get(theirs.lower()) for one in types]
        if ours in ("user", "query", "url") and any(one not in (of_files[0], "null") for one in of_files):
            raise DataError(
                f"the Parquet files differ in the type of the column for {ours}",
                why="An engine would read all as the first one, and make two people's values one or fail",
                fix="Write the column with one type in all files, such as text",
            )
    return table_source(table, names, engine, options, "read as parquet")


def _types_of_columns(paths: Sequence[Path]) -> list[dict[str, str]]:
    """Return the types of each file's columns, from its footer; one file agrees with itself."""
    if len(paths) < 2:
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    def kind(type_: Any) -> str:
        return "text" if is_text(type_) else str(type_.value_type if pa.types.is_dictionary(type_) else type_)

    # Engines find columns whatever their case.
    return [{one.name.lower(): kind(one.type) for one in pq.read_schema(path)} for path in paths]


def _parquet_table(engine: Any, paths: Sequence[Path]) -> Any:
    """Return Parquet files as a table of an engine, without a look at their rows."""
    try:
        if engine.name == "duckdb":
            listed = ", ".join(files.sql_text(files.escape_path(path)) for path in paths)
            table = _view(engine, f"SELECT * FROM read_parquet([{listed}], hive_partitioning=false)")  # noqa: S608
            on_unreadable(engine, partial(_read_by_arrow, name=table.get_name(), paths=paths))
            return table
        if engine.name == "pyspark":
            return spark.read_parquet(engine, [spark.escape_path(path) for path in paths])
        return engine.read_parquet([str(path.absolute()) for path in paths])
    except Exception as error:
        # An engine's message may quote what it found.
        raise DataError(
            "the Parquet files can't be read",
            why=type(error).__name__,
            fix="Check that they are complete, have the same columns, and that every machine of the engine sees them",
        ) from None


def _read_by_arrow(engine: Any, name: str, paths: Sequence[Path]) -> None:
    """Have Arrow read Parquet files: slower, but invalid UTF-8 and times out of range are missing and no failure."""
    import ibis
    import pyarrow as pa
    import pyarrow.dataset as ds

    types = {column: kind for column, kind, *_ in engine.con.execute(f"DESCRIBE {name}").fetchall()}
    parts = []
    for path in paths:
        fields = {field.name.lower(): field for field in ds.dataset(str(path), format="parquet").schema}
        read = {column: _careful(fields[column.lower()].type, kind) for column, kind in types.items()}
        schema = pa.schema(fields[column.lower()].with_type(type_) for column, (type_, _) in read.items())
        part = ibis.util.gen_name("hushquery_files")
        engine.con.register(part, ds.dataset(str(path), schema=schema, format="parquet"))
        quoted = {column: postgres.quote_name(column) for column in types}
        cells = (f"TRY_CAST({read[c][1].format(quoted[c])} AS {kind}) AS {quoted[c]}" for c, kind in types.items())
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


def read_table(data: Any, *, types: Mapping[str, str] | None = None, public: bool = False) -> Any:
    """Return any table as an Ibis table: the name of a file, or what :func:`hushquery.engine.as_table` takes.

    Of a file only the header or schema is looked at; JSON lines have neither, so ``types`` must name every column. In
    text files, cells not of their type (``float64``, ``int64`` or ``string``) are missing, and malformed lines are left
    out, or refused with their numbers where all rows are ``public``, which reads the file.
    """
    if not isinstance(data, str | Path):
        return as_table(data)
    types = types or {}
    for kind in types.values():
        if kind not in _SQL_TYPES:
            raise UsageError(f"the type {kind!r} is not known", fix=f"Use one of {', '.join(_SQL_TYPES)}")
    path = Path(data)
    kind = _format_by_ending([path])
    if "\0" in str(path) or not path.is_file():
        raise DataError(f"there is no file {path}".replace("\0", "?"), fix="Check the name")
    head = files.read_head(path, may_be_blank=kind == "jsonl")
    if head.gzip:
        raise DataError(f"the file {path} is compressed", fix="Unpack it: gunzip FILE")
    engine = connect()
    if kind == "parquet":
        if head.type != "a Parquet file":
            raise _unreadable(path, kind)
        return _parquet_table(engine, [path])
    form, names = _all_columns(head, kind, types)
    if public and (defects := defects_of_files([path], form, None)):
        raise DataError(
            "lines of a public list are malformed", why="; ".join(map(str, defects.kinds)), fix="Correct or delete them"
        )
    # In a line of cells an empty one has no value.
    values = {name: column if kind == "jsonl" else f"nullif({column}, '')" for column, name in names.items()}
    typed = {name: f"TRY_CAST({sql} AS {_SQL_TYPES[types.get(name, 'string')]})" for name, sql in values.items()}
    picked = ", ".join(f"{sql} AS {postgres.quote_name(name)}" for name, sql in typed.items())
    return _view(engine, f"SELECT {picked} FROM ({form.rows_of_files([path], [])})")  # noqa: S608


def _all_columns(head: files.FileHead, kind: str, types: Mapping[str, str]) -> tuple[Format, dict[str, str]]:
    """Return how lines become rows, and the source's name for each of its columns, which we number."""
    lines = head.lines("utf-8")
    if kind == "jsonl":
        if lines and not any(formats.has_shape(kind, line) for line in lines):
            raise _unreadable(head.path, kind)
        names = {f"v{place}": name for place, name in enumerate(types)}
        return formats.jsonl(names), names
    first = head.data.split(b"\n", 1)[0]
    separator = formats.separator_of(kind, lines[0]) if lines else ","
    header = formats.header_cells(lines[0], separator) if lines else []
    bare = [name.strip() for name in header]
    alike = {name.lower() for name in bare}  # to an engine capitals are no difference
    if not all(bare) or len(alike) < len(bare) or not bare or head.type or b"\0" in first or not files.decodes(first):
        raise _unreadable(head.path, kind)
    places = {f"v{place}": place for place in range(len(bare))}
    names = {f"v{place}": name for place, name in enumerate(bare)}
    return formats.with_header(kind, header, places, separator), names


def _unreadable(path: Path, kind: str) -> DataError:
    return DataError(
        f"the file {path} can't be read as {kind}",
        why=f"It should be: {formats.FORMATS[kind]}",
        fix=_REWRITE.get(kind, "Check that it is what its ending says, in UTF-8, with a header line of distinct names"),
    )
