"""Where rows come from, before any rule is applied to them: tables and files under our column names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hushquery.engine import connect, engine_table, postgres
from hushquery.errors import DataError, UsageError
from hushquery.log import formats
from hushquery.log import formats as yandex
from hushquery.log.files import EncodedLines, Peek, check_compressed, checked_encoding, find_files, lines_sql, look
from hushquery.log.formats import Wanted, in_words, its_columns, shown
from hushquery.log.normalise import Written
from hushquery.log.report import Defects, defects_of_files, defects_of_table, times_of_lines
from hushquery.log.sources import format_by_ending, parquet_table, view

__all__ = ["Source", "files_source", "named_source", "table_source"]

# So many first lines without a time that can be read are no accident.
_ENOUGH_LINES = 10
_CONVERT = {
    "UTF-16 text": "Convert it: iconv -f UTF-16 -t UTF-8 IN > OUT",
    "a zip archive": "Unpack it; a workbook (.xlsx) has to be saved as CSV UTF-8",
    "an old Office document": "Save it as CSV UTF-8",
}
_WITHOUT_HEADER = {"aol": formats.aol, "sogou": formats.sogou, "excite": formats.excite, "yandex": yandex.yandex}


def _nothing_to_check() -> None:
    """Do nothing: a table in memory or in an engine has no files."""


@dataclass(frozen=True)
class Source:
    """Rows under our column names, not yet in their final form.

    Attributes:
        rows: The Ibis table.
        dialect: The engine's name.
        words: What is read and which column is which, in words that may be published.
        reads_time: Whether ``time`` is in microseconds already.
        coded: Whether queries are numbers that stand for words, in which no pattern of text means anything.
        count_defects: Counts the source's defects.
        check_files: Raises if a file is damaged.
    """

    rows: Any
    dialect: str
    words: tuple[str, ...]
    reads_time: bool
    coded: bool
    count_defects: Callable[[], Defects] = field(repr=False)
    check_files: Callable[[], None] = field(repr=False, default=_nothing_to_check)


def table_source(table: Any, wanted: Wanted, engine: Any, written: Written, words: str) -> Source:
    """Give the rows of a table in an engine."""
    columns = list(table.columns)
    names = wanted.found_in(columns, its_columns(columns))
    kinds = table.schema()
    for ours, theirs in names.items():
        if kinds[theirs].is_nested() or kinds[theirs].is_binary() or kinds[theirs].is_geospatial():
            raise DataError(f"the column for {ours} holds neither text nor numbers", fix="Convert it to text")
    rows = table.select(**{ours: table[theirs] for ours, theirs in names.items()})
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
        rows = postgres.in_byte_order(rows, {ours: ours in ("user", "query", "url") for ours in names})
    told = (words, in_words({ours: f"the column {shown(theirs)}" for ours, theirs in names.items()}, written.words))
    return Source(rows, dialect, told, False, False, partial(defects_of_table, rows, dialect, written))


def named_source(name: str, wanted: Wanted, engine: Any, written: Written) -> Source:
    """Give the rows of a table that an engine knows by name, or of Parquet files that Spark itself finds."""
    words = "read as parquet" if "://" in name else f"read from a table of {engine.name}"
    return table_source(engine_table(name, engine), wanted, engine, written, words)


def files_source(data: Any, kind: str | None, wanted: Wanted, engine: Any, encoding: str, written: Written) -> Source:
    """Give the rows of files."""
    paths = find_files(data)
    kind = _checked_format(kind) if kind is not None else format_by_ending(paths)
    peeks = [look(path) for path in paths]
    engine = engine if engine is not None else connect()
    if kind == "parquet":
        return _parquet_source(peeks, wanted, engine, written)
    if engine.name != "duckdb":
        raise UsageError(
            f"the engine {engine.name} does not read {kind} files line by line",
            fix="Leave engine out (DuckDB reads them), or load the log into a table of that engine and give the table",
        )
    encoding = checked_encoding(encoding)
    form = _agreed_format(kind, peeks, wanted, encoding)
    if form.reads_time and written.form is not None:
        raise UsageError(f"the format {kind} has times of its own form", fix="Leave the time format out")
    _refuse_other_encodings(peeks, form, encoding)
    _refuse_other_keys(peeks, form, encoding, wanted)
    _refuse_unreadable_times(peeks, form, encoding, written, wanted)
    plain, compressed = ([peek.path for peek in peeks if peek.gzip is packed] for packed in (False, True))
    known = encoding == "utf-8"
    lines = lines_sql(plain, compressed) if known else EncodedLines(tuple(paths), encoding).sql(engine)
    if kind == "yandex":
        sql = yandex.yandex_rows(lines)
    else:
        sql = form.rows_of_files(plain, compressed) if known else form.rows(form.of_lines(lines))
    rows = view(engine, sql)
    return Source(
        rows=rows.select(*(column for column in rows.columns if column in form.origins)),
        dialect="duckdb",
        words=(
            f"read as {kind}: {form.words}; each line on its own, malformed ones left out",
            in_words(form.origins, written.words),
        ),
        reads_time=form.reads_time,
        coded=kind == "yandex",
        count_defects=partial(defects_of_files, paths, form, written, encoding),
        check_files=partial(check_compressed, paths),
    )


def _parquet_source(peeks: Sequence[Peek], wanted: Wanted, engine: Any, written: Written) -> Source:
    for peek in peeks:
        if peek.magic != "a Parquet file" or peek.gzip:
            raise _not_of_format(peek, "parquet", "utf-8")
    paths = [peek.path for peek in peeks]
    table = parquet_table(engine, paths)
    kinds = _kinds_of_columns(paths)
    for ours, theirs in wanted.found_in(table.columns, its_columns(table.columns)).items():
        found = [one.get(theirs.lower()) for one in kinds]
        if ours in ("user", "query", "url") and any(kind not in (found[0], "null") for kind in found):
            raise DataError(
                f"the Parquet files differ in the type of the column for {ours}",
                why="An engine would read all as the first one, and make two people's values one or fail",
                fix="Write the column with one type in all files, such as text",
            )
    return table_source(table, wanted, engine, written, "read as parquet")


def _kinds_of_columns(paths: Sequence[Path]) -> list[dict[str, str]]:
    """Give the types of each file's columns, from its footer; one file agrees with itself."""
    if len(paths) < 2:
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    def kind(type_: Any) -> str:
        name = str(type_.value_type if pa.types.is_dictionary(type_) else type_)
        return "text" if name in ("string", "large_string", "string_view") else name

    # Engines find columns whatever their capitals.
    return [{one.name.lower(): kind(one.type) for one in pq.read_schema(path)} for path in paths]


def _checked_format(kind: str) -> str:
    if kind not in formats.FORMATS:
        raise UsageError(f"the format {kind!r} is not known", fix=f"Use one of {', '.join(formats.FORMATS)}")
    return kind


def _agreed_format(kind: str, peeks: Sequence[Peek], wanted: Wanted, encoding: str) -> formats.Format:
    """Give the format of text files; refuse a file that shows nothing of it, and files that differ in their header."""
    forms = [_format_of(kind, peek, wanted, encoding) for peek in peeks]
    if any(form != forms[0] for form in forms):
        raise DataError(
            "the files differ in their header line", fix="Give them one by one, or write the columns in the same order"
        )
    return forms[0]


def _format_of(kind: str, peek: Peek, wanted: Wanted, encoding: str) -> formats.Format:
    lines = peek.lines(encoding)
    if not lines:
        raise DataError(
            f"the file {peek.path} is not {kind}",
            why=f"It is {peek.magic}" if peek.magic else "It has no line end where a log's first lines would be",
            fix=_CONVERT.get(peek.magic, "Check the file"),
        )
    if kind in _WITHOUT_HEADER or kind == "jsonl":
        if not formats.has_shape(kind, lines):
            raise _not_of_format(peek, kind, encoding)
        if kind == "jsonl":
            return formats.jsonl(wanted.each_once(wanted.names))
        form = _WITHOUT_HEADER[kind]()
        origins = wanted.of_format(kind, form.origins)
        return replace(form, origins=origins, fields={o: sql for o, sql in form.fields.items() if o in origins})
    separator = formats.separator_of(kind, lines[0])
    header = formats.header_cells(lines[0], separator)
    names = [cell.strip() for cell in header]
    looks = formats.looks_like(lines)
    hint = f"Its first line must name its {len(header)} columns, and none of them is called so"
    if looks and not looks.startswith(kind):
        hint = f"It looks like {looks}"
    if peek.magic or len(header) < 2:
        raise _not_of_format(peek, kind, encoding)
    found = wanted.found_in(names, hint)
    if not formats.has_shape(kind, lines):
        raise _not_of_format(peek, kind, encoding)
    if any(names.count(theirs) > 1 for theirs in found.values()):
        raise DataError("the header line has a needed column twice", fix="Rename one of them")
    places = {ours: names.index(theirs) for ours, theirs in found.items()}
    return formats.tsv(header, places) if kind == "tsv" else formats.csv(header, places, separator)


# What follows refuses logs of which nothing could be used, at full price. It looks at the first lines of all files and
# asks whether any of them is good: a single person's lines refuse a log only where they are all that is looked at.


def _refuse_other_encodings(peeks: Sequence[Peek], form: formats.Format, encoding: str) -> None:
    """Refuse files of whose first lines none can be read: all their rows would be left out."""
    readable = [good for peek in peeks for good in peek.decodes(encoding, below=int(form.with_header))]
    if readable and not any(readable):
        raise DataError(
            f"the text in {_named(peeks)} is not {encoding}",
            why="None of its first lines can be read, and lines that can't be read are left out",
            fix="Name the encoding it has: --encoding cp1252, or encoding='cp1252'; gb18030, shift_jis, ...",
        )


def _refuse_other_keys(peeks: Sequence[Peek], form: formats.Format, encoding: str, wanted: Wanted) -> None:
    """Refuse JSON lines of which none of the first has the needed keys: their rows would all be without a user."""
    if form.name != "jsonl":
        return
    lines = [line for peek in peeks for line in peek.lines(encoding) if formats.has_shape("jsonl", [line])]
    needed = {wanted.names[ours] for ours in wanted.needed}
    if len(lines) >= _ENOUGH_LINES and not any(needed <= json.loads(line).keys() for line in lines):
        raise DataError(
            f"no line of the first in {_named(peeks)} has the keys {' and '.join(map(repr, sorted(needed)))}",
            why="Keys of JSON lines are taken as they are written, capitals too",
            fix="Say which they are: --columns user=KEY,query=KEY, or columns={'user': 'KEY', 'query': 'KEY'}",
        )


def _refuse_unreadable_times(
    peeks: Sequence[Peek], form: formats.Format, encoding: str, written: Written, wanted: Wanted
) -> None:
    """Refuse files of whose first lines none has a time that can be read: "first by time" would mean nothing."""
    lines = [line for peek in peeks for line in peek.lines(encoding)[form.with_header :]]
    if "time" not in form.fields or form.reads_time or len(lines) < _ENOUGH_LINES:
        return
    read, unreadable = times_of_lines(lines, form, written)
    if not read and unreadable >= _ENOUGH_LINES:
        shape = "neither ISO nor numbers" if written.form is None else f"not written like {written.words!r}"
        raise DataError(
            f"the times in {_named(peeks)} can't be read",
            why=f"The times in its first {len(lines)} lines are {shape}",
            fix="Say how they are written: --time-format '%d.%m.%Y %H:%M', or time_format='%m/%d/%Y %I:%M %p'. "
            f"Or write them like 2026-10-03 14:05:00. Or do without: {wanted.without('time')}",
        )


def _named(peeks: Sequence[Peek]) -> str:
    return str(peeks[0].path) + (f" and {len(peeks) - 1} more" if len(peeks) > 1 else "")


def _not_of_format(peek: Peek, kind: str, encoding: str) -> DataError:
    looks = peek.magic or formats.looks_like(peek.lines(encoding)) or ("binary data" if b"\0" in peek.head else "")
    return DataError(
        f"the file {peek.path} is not {kind} ({formats.FORMATS[kind]})",
        why=f"It looks like {looks}" if looks else "None of its first lines has that shape",
        fix=_CONVERT.get(looks) or "Name the format it has: --format or format= " + "|".join(formats.FORMATS),
    )
