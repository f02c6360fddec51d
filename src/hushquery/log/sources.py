"""Read the rows of files and tables, of logs and of statistics, before any rule is applied to them.

Nothing is guessed from rows: a type or a quote that reaches beyond its line would let one person's row change how
everybody's is read, and no bound on contributions would hold (docs/decisions/0008-nothing-guessed-from-rows.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hushquery.engine import connect, is_text, on_unreadable, postgres, spark
from hushquery.errors import DataError, UsageError
from hushquery.log import defects, files, formats
from hushquery.log.columns import (
    ColumnNames,
    describe_columns,
    list_names,
    looks_like_data,
    published_origin,
    quote_name,
)
from hushquery.log.defects import Defects, defects_of_files, defects_of_table, looks_like
from hushquery.log.formats import ENDINGS, Format
from hushquery.log.time_format import TimeOptions

#: What the names of files end in, among others; a table of an engine can't have such a name.
FILE_ENDINGS = frozenset({*ENDINGS, ".gz", ".txt"})
_WORKBOOKS = {".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"}
_EXPORT = "Save each sheet as CSV UTF-8: in Excel File, Save As, CSV UTF-8; in LibreOffice Text CSV, Unicode (UTF-8)"
_CONVERT = {
    "UTF-16 text": "Say so: --encoding utf-16 (without a mark in front utf-16-le), or encoding='utf-16'",
    "a zip archive": f"Unpack it; a workbook (.xlsx) has to be saved as text. {_EXPORT}",
    "an old Office document": _EXPORT,
}


@dataclass(frozen=True)
class Source:
    """Rows under our column names, not yet in their final form."""

    rows: Any  # the Ibis table
    dialect: str  # the engine's name
    steps: tuple[str, ...]  # what is read and which column is which, in words that may be published
    columns: str  # which column is which, with names, in words for the steward: a name may be somebody's row
    count_defects: Callable[..., Defects]  # counts the source's defects; ``tell`` is called with bytes read
    check_files: Callable[[], None] = lambda: None  #: raises if a file is damaged
    check_head: Callable[[], None] = lambda: None  #: raises if most of the first lines can't be read
    sample: Callable[[], dict[str, int]] = dict  #: counts lines by kind of defect, "" for none, in a sample
    in_micros: bool = False  # whether ``time`` is in microseconds already
    coded: bool = False  # whether queries are numbers that stand for words, in which no pattern of text means anything
    paths: tuple[Path, ...] = ()  # the files, which the ledger notes in its private part


def table_source(table: Any, names: ColumnNames, engine: Any, options: TimeOptions, step: str) -> Source:
    """Return the rows of a table in an engine."""
    columns = list(table.columns)
    places = names.match(columns, list_names(columns))
    matched = {ours: columns[place] for ours, place in places.items()}
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
    written = options.form.format if options.form else ""
    origins = {ours: f"the column {quote_name(theirs)}" for ours, theirs in matched.items()}
    published = {ours: published_origin(ours, theirs) for ours, theirs in matched.items()}
    steps = (step, describe_columns(published, written))
    return Source(
        rows, dialect, steps, describe_columns(origins, written), partial(defects_of_table, rows, dialect, options)
    )


@dataclass(frozen=True)
class Layout:
    """What the steward says about text files."""

    kind: str | None = None  # the format; by default their ending decides
    encoding: str = "utf-8"
    header: bool | None = None  # whether the first line names the columns; by default yes, unless it looks like a row
    separator: str | None = None  # what is between cells; by default the header line of a csv file decides

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in formats.FORMATS:
            raise UsageError(f"the format {self.kind!r} is not known", fix=f"Use one of {', '.join(formats.FORMATS)}")
        if self.separator is not None and self.separator not in formats.SEPARATORS:
            known = ", ".join(f"{name} ({sign!r})" for sign, name in formats.SEPARATORS.items())
            raise UsageError(f"cells can't be separated by {self.separator!r}", fix=f"Use one of {known}")

    def of(self, paths: Sequence[Path]) -> str:
        """Return the format of files; refuse what does not fit it."""
        kind = self.kind or format_by_ending(paths, self.separator)
        if self.header is False and kind in ("parquet", "jsonl"):
            raise UsageError(f"{kind} files name their columns", fix="Leave out --no-header, or header=False")
        if self.separator is not None and (kind not in ("csv", "tsv") or (kind == "tsv") != (self.separator == "\t")):
            if kind == "csv":
                return kind  # tabs, with quotes
            raise UsageError(f"the format {kind} has its own separator", fix="Use --format csv, or leave it out")
        return kind


def files_source(data: Any, layout: Layout, names: ColumnNames, engine: Any, options: TimeOptions) -> Source:
    """Return the rows of files."""
    paths = files.find_files(data)
    kind, encoding = layout.of(paths), files.checked_encoding(layout.encoding)
    heads = [files.read_head(path, "utf-8" if kind == "parquet" else encoding) for path in paths]
    engine = engine if engine is not None else connect()
    if kind == "parquet":
        return _parquet_source(heads, names, engine, options)
    if engine.name != "duckdb":
        raise UsageError(
            f"the engine {engine.name} does not read {kind} files line by line",
            fix="Leave engine out (DuckDB reads them), or load the log into a table of that engine and give the table",
        )
    forms = [_format_of(kind, head, names, replace(layout, encoding=encoding)) for head in heads]
    form = forms[0]
    if any(other != form for other in forms):
        raise DataError(
            "the files differ in their header line", fix="Give them one by one, or write the columns in the same order"
        )
    if form.raw_time and options.form is not None:
        raise UsageError(f"the format {kind} has times of its own form", fix="Leave the time format out")
    defects.refuse_other_encodings(heads, form, encoding)
    defects.refuse_other_keys(heads, form, encoding, names)
    defects.refuse_unreadable_times(heads, form, encoding, options, names)
    rows = rows_view(form, heads, encoding, engine)
    written = options.form.format if options.form else ""
    return Source(
        rows=rows.select(*(column for column in rows.columns if column in form.origins)),
        dialect="duckdb",
        steps=(
            f"read as {kind}: {form.description}; each line on its own, malformed ones left out",
            describe_columns(form.published or form.origins, written),
        ),
        columns=describe_columns(form.origins, written),
        count_defects=partial(defects_of_files, paths, form, options, encoding),
        check_files=partial(files.check_compressed, paths),
        check_head=partial(defects.refuse_unreadable_lines, paths, form, encoding),
        sample=partial(defects.sample_defects, paths, form, encoding),
        in_micros=bool(form.raw_time),
        coded=kind == "yandex",
    )


def format_by_ending(paths: Sequence[Path], separator: str | None = None) -> str:
    """Return the format that the names of files tell, else a separator; refuse names that tell none, or several."""
    endings = {path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix for path in paths}
    if _WORKBOOKS & {ending.lower() for ending in endings}:
        raise UsageError("a workbook can't be read", why="It is not a log of lines", fix=_EXPORT)
    kinds = {ENDINGS.get(ending.lower()) for ending in endings}
    kind = kinds.pop()
    if kind is None and not kinds and separator is not None:
        return "tsv" if separator == "\t" else "csv"
    if kind is None or kinds:
        raise UsageError(
            "the files' ending does not tell one format",
            fix="`hushquery look FILE` says which it is. "
            f"Name it: --format or format= {'|'.join(formats.FORMATS)}; or use one of {', '.join(ENDINGS)}",
        )
    return kind


def _format_of(kind: str, head: files.FileHead, names: ColumnNames, layout: Layout) -> Format:
    """Return the format of a text file; refuse a file that shows nothing of it."""
    lines = head.lines(layout.encoding)
    if not lines:
        raise DataError(
            f"the file {head.path} is not {kind}",
            why=f"It is {head.type}" if head.type else "It has no line end where a log's first lines would be",
            fix=_CONVERT.get(head.type, "Check the file"),
        )
    if kind in formats.FIXED or kind == "jsonl":
        if not any(formats.has_shape(kind, line) for line in lines):
            raise _not_of_format(head, kind, layout.encoding)
        if kind == "jsonl":
            return formats.jsonl(names.keys())
        form = formats.FIXED[kind]
        origins = names.of_format(kind, form.origins)
        return replace(form, origins=origins, fields={o: sql for o, sql in form.fields.items() if o in origins})
    if layout.header is False:
        separator = layout.separator or ("\t" if kind == "tsv" else ",")
        places = names.positions()
        widths = [len(formats.header_cells(line, separator, kind)) for line in lines]
        if head.type or max(widths) <= max(places.values()):
            raise _not_of_format(
                head, kind, layout.encoding, f"No line of its first has {max(places.values()) + 1} cells"
            )
        return formats.without_header(kind, places, separator)
    separator = layout.separator or formats.separator_of(kind, lines[0])
    header, *below = (formats.header_cells(line, separator, kind) for line in lines)
    if head.type or len(header) < 2:
        raise _not_of_format(head, kind, layout.encoding)
    cells = [cell.strip() for cell in header]
    if layout.header is None and looks_like_data(cells, below):
        raise like_a_row(head)
    looks = looks_like(lines)
    hint = f"Its first line must name its {len(header)} columns, and none of them is called so"
    places = names.match(cells, hint if not looks or looks.startswith(kind) else f"It looks like {looks}")
    needed = max(places[ours] for ours in ("user", "query"))
    if below and max(map(len, below)) <= needed:
        raise _not_of_format(head, kind, layout.encoding)
    return formats.with_header(kind, header, places, separator)


def like_a_row(head: files.FileHead) -> DataError:
    """Return the error for a first line that looks like a row; it shows none of it."""
    return DataError(
        f"the first line of {head.path} looks like a row, not like names of columns",
        why="A person's row would become names of columns",
        fix="If it is a row, say which column is which, counted from 1: --no-header --columns user=1,query=2, or "
        "header=False, columns={'user': 1, 'query': 2}. `hushquery look FILE` shows what is where. "
        "If it does name columns: --header, or header=True",
    )


def _not_of_format(head: files.FileHead, kind: str, encoding: str, why: str = "") -> DataError:
    looks = head.type or looks_like(head.lines(encoding)) or ("binary data" if b"\0" in head.data else "")
    return DataError(
        f"the file {head.path} is not {kind} ({formats.FORMATS[kind]})",
        why=why or (f"It looks like {looks}" if looks else "None of its first lines has that shape"),
        fix=_CONVERT.get(looks)
        or "`hushquery look FILE` says what it is. Name the format it has: --format or format= "
        + "|".join(formats.FORMATS),
    )


def rows_view(form: Format, heads: Sequence[files.FileHead], encoding: str, engine: Any) -> Any:
    """Return the good rows of files as a table of the engine."""
    plain, compressed = ([head.path for head in heads if head.gzip is packed] for packed in (False, True))
    utf8 = encoding == "utf-8"
    every = tuple(head.path for head in heads)
    lines = files.lines_sql(plain, compressed) if utf8 else files.EncodedLines(every, encoding).sql(engine)
    if form.name == "yandex":
        return view(engine, formats.yandex_rows(lines))
    return view(engine, form.rows_of_files(plain, compressed) if utf8 else form.rows(form.of_lines(lines)))


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


def _parquet_source(heads: Sequence[files.FileHead], names: ColumnNames, engine: Any, options: TimeOptions) -> Source:
    for head in heads:
        if head.type != "a Parquet file" or head.gzip:
            raise _not_of_format(head, "parquet", "utf-8")
    paths = [head.path for head in heads]
    table = parquet_table(engine, paths)
    types = _types_of_columns(paths)
    for ours, place in names.match(table.columns, list_names(table.columns)).items():
        of_files = [one.get(table.columns[place].lower()) for one in types]
        if ours in ("user", "query", "url") and any(one not in (of_files[0], "null") for one in of_files):
            raise DataError(
                f"the Parquet files differ in the type of the column for {ours}",
                why="An engine would read all as the first one, and make two people's values one or fail",
                fix="Write the column with one type in all files, such as text",
            )
    source = table_source(table, names, engine, options, "read as parquet")
    return replace(source, check_head=partial(defects.refuse_unusable_rows, source.rows, source.dialect, options))


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


def parquet_table(engine: Any, paths: Sequence[Path]) -> Any:
    """Return Parquet files as a table of an engine, without a look at their rows."""
    try:
        if engine.name == "duckdb":
            listed = ", ".join(files.sql_text(files.escape_path(path)) for path in paths)
            table = view(engine, f"SELECT * FROM read_parquet([{listed}], hive_partitioning=false)")  # noqa: S608
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
