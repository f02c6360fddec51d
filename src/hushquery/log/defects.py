"""Count the lines that reading leaves out, by kind, for the steward; refuse a log of which nothing could be used.

Decision 8 allows this and nothing more before a budget is spent: at most the first 1,000 lines of the files are parsed,
the log is refused if none of them can be used for what it is said to be, or if more than half can't be read, and only
the steward sees it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushquery.engine import connect, fetch
from hushquery.errors import DataError
from hushquery.log import files
from hushquery.log.columns import ColumnNames
from hushquery.log.formats import FIXED, SHAPES, Format, has_shape
from hushquery.log.normalise import has_text, micros, stripped
from hushquery.log.time_format import TimeOptions

#: Every kind of defect, in the order a report lists them.
KINDS = (
    *("too few columns", "too many columns", "unclosed quote", "bad JSON", "bad encoding", "line too long"),
    *("no user", "no query", "unreadable time", "damaged file"),
)

#: How many line numbers a report lists per kind.
LINES_SHOWN = 20

#: How many first lines of a log may be parsed before the spend.
FIRST_LINES = 1000
# So many first lines without a time that can be read are no accident.
_ENOUGH_LINES = 10
# Lines for a sample that is spread over the files, and how much of a file is one part of it.
_SAMPLE, _PART = 20_000, 2**17
_ISO = TimeOptions()


@dataclass(frozen=True)
class Defect:
    """One kind of defect: how often, and its first places as (file, line number), none where there are no lines."""

    kind: str
    count: int
    lines: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        files: dict[str, list[str]] = {}
        for file, line in self.lines:
            files.setdefault(file, []).append(str(line))
        places = "; ".join(f"{file}: {', '.join(lines)}" for file, lines in files.items())
        return f"{self.kind}: {self.count}" + (f" ({places})" if places else "")

    def to_json(self) -> dict[str, Any]:
        """Return the defect as plain data."""
        first = [{"file": file, "line": line} for file, line in self.lines]
        return {"kind": self.kind, "count": self.count, "first": first}


@dataclass(frozen=True)
class Defects:
    """Everything wrong with a log. True if there is anything. Not for publication: its counts are exact.

    >>> print(Defects.gather([Defect("no user", 2, (("log.csv", 7),)), Defect("no user", 1, (("log.csv", 9),))]))
    PRIVATE: defects of the log, exact counts, not for publication
      no user: 3 (log.csv: 7, 9)
    """

    kinds: tuple[Defect, ...] = ()
    lines: int = 0  # how many lines or rows were looked at

    @classmethod
    def gather(cls, parts: Iterable[Defect]) -> Defects:
        """Add up the defects of the parts of a log, in the order of its lines."""
        counts: dict[str, int] = {}
        lines: dict[str, list[tuple[str, int]]] = {}
        for part in parts:
            counts[part.kind] = counts.get(part.kind, 0) + part.count
            lines.setdefault(part.kind, []).extend(part.lines)
        return cls(
            tuple(Defect(kind, counts[kind], tuple(lines[kind][:LINES_SHOWN])) for kind in KINDS if kind in counts),
            sum(counts.values()) - counts.get("damaged file", 0),
        )

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def in_short(self) -> str:
        """Return kinds and counts in one line."""
        return ", ".join(f"{defect.kind}: {defect.count}" for defect in self.kinds) or "none"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, for the file that ``--private-report`` writes."""
        defects = [defect.to_json() for defect in self.kinds]
        return {"private": "exact counts of a secret log; not for publication", "defects": defects}

    def __str__(self) -> str:
        if not self.kinds:
            return "PRIVATE: the log has no defects"
        rows = [f"  {defect}" for defect in self.kinds]
        return "\n".join(["PRIVATE: defects of the log, exact counts, not for publication", *rows])


def defects_of_files(
    paths: Sequence[Path],
    form: Format,
    options: TimeOptions | None,
    encoding: str = "utf-8",
    tell: Callable[[int], None] = lambda _: None,
) -> Defects:
    """Count the defects of text files; without ``options``, of tables other than logs, only those of lines.

    ``tell`` is called with the number of bytes that were read since.
    """
    return Defects.gather(part for path in paths for part in _of_file(path, form, options, encoding, tell))


def defects_of_table(
    rows: Any, dialect: str, options: TimeOptions, tell: Callable[[int], None] = lambda _: None
) -> Defects:
    """Count the defects of a table; it has no lines to number."""
    raw_time = rows.time if "time" in rows.columns else None
    kinds = rows.select(kind=_kind(rows, raw_time, dialect, options))
    counts = fetch(kinds.group_by("kind").agg(n=lambda t: t.count()))
    tell(0)
    return Defects.gather(Defect(row["kind"] or "", row["n"]) for row in counts.to_pylist())


def count_kinds(lines: Sequence[bytes], form: Format, options: TimeOptions | None) -> dict[str, int]:
    """Count a few lines by their defect, "" for none; headers are no lines."""
    with _batch(lines) as engine:
        sql = f"SELECT coalesce(kind, ''), count(*) FROM ({_kinds_sql(engine, form, options)}) GROUP BY ALL"  # noqa: S608
        return dict(engine.con.execute(sql).fetchall()) if lines else {}


@contextmanager
def _batch(lines: Sequence[bytes]) -> Iterator[Any]:
    """Open an engine that has a few lines as its table ``batch``."""
    import pyarrow as pa

    engine = connect()
    try:
        batch = pa.table({"number": range(len(lines)), "line": pa.array(lines, pa.large_binary())})
        engine.con.register("batch", batch)
        yield engine
    finally:
        engine.disconnect()


def _of_file(
    path: Path, form: Format, options: TimeOptions | None, encoding: str, tell: Callable[[int], None]
) -> Iterator[Defect]:
    engine, sql = connect(), ""
    try:
        for batch in files.line_batches(path, encoding):
            engine.con.register("batch", batch)
            # The query is written once; the name in it then means each batch in turn.
            sql = sql or _summary_sql(engine, form, options)
            for kind, count, numbers in engine.con.execute(sql).fetchall():
                yield Defect(kind, count, tuple((str(path), number) for number in numbers))
            tell(batch.nbytes)
    except DataError:
        yield Defect("damaged file", 1, ((str(path), 0),))
    finally:
        engine.disconnect()


def _summary_sql(engine: Any, form: Format, options: TimeOptions | None) -> str:
    return (
        f"SELECT coalesce(kind, '') AS kind, count(*), min(number, {LINES_SHOWN}) "  # noqa: S608
        f"FROM ({_kinds_sql(engine, form, options)}) GROUP BY ALL ORDER BY ALL"
    )


def _kinds_sql(engine: Any, form: Format, options: TimeOptions | None) -> str:
    rows = engine.sql(form.checked_rows("batch"), dialect="duckdb")
    kind = rows.problem
    if options is not None:
        kind = kind.coalesce(_kind(rows, rows.raw_time, "duckdb", options, in_micros=bool(form.raw_time)))
    return str(engine.compile(rows.select("number", kind=kind)))


def _kind(rows: Any, raw_time: Any, dialect: str, options: TimeOptions, *, in_micros: bool = False) -> Any:
    """Name what is wrong with a well-formed row; null if nothing."""
    import ibis

    rules = [
        (stripped(rows.user.cast("string").fill_null(""), dialect) == "", "no user"),
        (~has_text(rows.query.cast("string").fill_null(""), dialect), "no query"),
    ]
    if raw_time is not None and "time" in rows.columns:
        time = rows.time if in_micros else micros(rows.time, dialect, options)
        is_text = raw_time.type().is_string()
        given = stripped(raw_time.fill_null(""), dialect) != "" if is_text else raw_time.notnull()
        rules.append((time.isnull() & given, "unreadable time"))
    return ibis.cases(*rules, else_=ibis.null("string"))


def refuse_other_encodings(heads: Sequence[files.FileHead], form: Format, encoding: str) -> None:
    """Refuse files of whose first lines none can be read: all their rows would be left out."""
    readable = [good for head in heads for good in head.decodes(encoding, skip=int(form.with_header))]
    if readable and not any(readable):
        raise DataError(
            f"the text in {_listed(heads)} is not {encoding}",
            why="None of its first lines can be read, and lines that can't be read are left out",
            fix="`hushquery look` guesses it. Or name it: --encoding gb18030 (encoding='gb18030'), cp1252, ...",
        )


def refuse_other_keys(heads: Sequence[files.FileHead], form: Format, encoding: str, names: ColumnNames) -> None:
    """Refuse JSON lines of which none of the first has the needed keys: their rows would all be without a user."""
    if form.name != "jsonl":
        return
    lines = [line for head in heads for line in head.lines(encoding) if has_shape("jsonl", line)]
    needed = {str(names.names[ours]) for ours in names.required}
    if len(lines) >= _ENOUGH_LINES and not any(needed <= json.loads(line).keys() for line in lines):
        raise DataError(
            f"no line of the first in {_listed(heads)} has the keys {' and '.join(map(repr, sorted(needed)))}",
            why="Keys of JSON lines are taken as they are written, capitals too",
            fix="Say which they are: --columns user=KEY,query=KEY, or columns={'user': 'KEY', 'query': 'KEY'}",
        )


def refuse_unreadable_times(
    heads: Sequence[files.FileHead], form: Format, encoding: str, options: TimeOptions, names: ColumnNames
) -> None:
    """Refuse files of whose first lines none has a time that can be read: "first by time" would mean nothing."""
    lines = [line for head in heads for line in head.lines(encoding)[form.with_header :]]
    if "time" not in form.fields or form.raw_time or len(lines) < _ENOUGH_LINES:
        return
    read, unreadable = _count_times(lines, form, options)
    if read or unreadable < _ENOUGH_LINES:
        return
    shape = "neither ISO nor numbers" if options.form is None else f"not written like {options.form.format!r}"
    raise DataError(
        f"the times in {_listed(heads)} can't be read",
        why=f"The times in its first {len(lines)} lines are {shape}",
        fix="Say how they are written: --time-format '%d.%m.%Y %H:%M', or time_format='%m/%d/%Y %I:%M %p'. "
        f"Or write them like 2026-10-03 14:05:00. Or do without: {names.without('time')}",
    )


def _count_times(lines: Sequence[str], form: Format, options: TimeOptions) -> tuple[int, int]:
    """Count the times that can and that can't be read in a few lines, before a file is read."""
    with _batch([line.encode() for line in lines]) as engine:
        rows = engine.sql(form.checked_rows("batch"), dialect="duckdb")
        rows = rows.filter(rows.problem.isnull()).select(time=micros(rows.time, "duckdb", options), raw="raw_time")
        given = stripped(rows.raw.fill_null(""), "duckdb") != ""
        counts = rows.agg(read=rows.time.count(), unreadable=(rows.time.isnull() & given).sum())
        [(read, unreadable)] = engine.con.execute(engine.compile(counts)).fetchall()
    return read, unreadable or 0


def refuse_unreadable_lines(
    paths: Sequence[Path], form: Format, encoding: str, options: TimeOptions | None = _ISO
) -> None:
    """Refuse a log of whose first 1,000 lines, over all its files, more than half are no rows; the same for all."""
    each = max(1, FIRST_LINES // len(paths))
    lines = [line for path in paths[:FIRST_LINES] for line in _first_lines(path, encoding, each)]
    _refuse_most(count_kinds(lines, form, options))


def refuse_unusable_rows(rows: Any, dialect: str, options: TimeOptions) -> None:
    """Refuse Parquet files of whose first 1,000 rows more than half have no user or no query."""
    defects = defects_of_table(rows.limit(FIRST_LINES), dialect, options)
    kinds = {defect.kind: defect.count for defect in defects.kinds}
    _refuse_most({"": defects.lines - sum(kinds.values()), **kinds})


def _refuse_most(kinds: Mapping[str, int]) -> None:
    total, bad = sum(kinds.values()), left_out(kinds)
    if 2 * sum(bad.values()) > total:
        told = ", ".join(f"{kind}: {count}" for kind, count in bad.items())
        raise DataError(
            f"most of the log's first lines can't be read: {sum(bad.values())} of {total}",
            why=f"By kind, {told}. They would be left out, and the budget spent on what is left",
            fix="See what is wrong, and how to read it: hushquery look FILE, or hushquery.look(data)",
        )


def left_out(kinds: Mapping[str, int]) -> dict[str, int]:
    """Return the kinds that make a line no row, the most frequent first; a time that can't be read does not."""
    bad = {kind: count for kind, count in kinds.items() if kind not in ("", "unreadable time")}
    return dict(sorted(bad.items(), key=lambda one: -one[1]))


def sample_defects(paths: Sequence[Path], form: Format, encoding: str) -> dict[str, int]:
    """Count by kind of defect, "" for none, the lines of a sample that is spread over all files and their length."""
    return count_kinds([line for _, line in sample_lines(paths, encoding)], form, TimeOptions())


def sample_lines(paths: Sequence[Path], encoding: str) -> list[tuple[int, bytes]]:
    """Return lines from places spread over files, each with the place of its file: not one person's rows only.

    Of a compressed file the beginning alone, unless it is one of few. Lines are in UTF-8 where the file is.
    """
    step = max(1, len(paths) // 50)
    chosen = range(0, len(paths), step)
    each = max(1, _SAMPLE // len(chosen))
    return [(place, line) for place in chosen for line in _spread_lines(paths[place], encoding, each, len(chosen))]


def _spread_lines(path: Path, encoding: str, most: int, shared: int) -> list[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        parts = max(1, min(10, 50 // shared, size // (2 * _PART)))
        if packed or encoding.startswith("utf-16") or parts == 1:
            return _thinned(list(_first_lines(path, encoding, most if shared > 10 else 50 * most)), most)
        lines: list[bytes] = []
        for part in range(parts):
            file.seek(part * (size - _PART) // max(1, parts - 1))
            block = file.read(_PART).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            # The ends of a part may be halves of lines.
            inner = block[1 if part else 0 : -1]
            lines += _thinned([_utf8(line, encoding) for line in inner if line], most // parts)
    return lines


def _thinned(lines: list[bytes], most: int) -> list[bytes]:
    return lines[:: max(1, -(-len(lines) // max(1, most)))]


def _first_lines(path: Path, encoding: str, most: int) -> Iterator[bytes]:
    """Yield the first lines of a file that are not empty, in UTF-8, up to a number and to 16 MiB of them."""
    rest, count, size = b"", 0, 0
    with suppress(DataError):  # damaged further on
        for block in files.read_text(path, encoding, 2**16):
            *whole, rest = (rest + block).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            size += len(block)
            for line in whole:
                if line and line != codecs.BOM_UTF8:
                    count += 1
                    yield _utf8(line, encoding) if count > 1 else _utf8(line, encoding).removeprefix(codecs.BOM_UTF8)
                if count >= most:
                    return
            if size > 2**24:
                return
    if rest:
        yield _utf8(rest, encoding)


def _utf8(line: bytes, encoding: str) -> bytes:
    """Return a line in UTF-8; one that is not of its encoding is not UTF-8 either."""
    if encoding == "utf-8" or encoding.startswith("utf-16"):
        return line
    try:
        return line.decode(encoding).encode()
    except UnicodeError:
        return b"\xff"


def _listed(heads: Sequence[files.FileHead]) -> str:
    return str(heads[0].path) + (f" and {len(heads) - 1} more" if len(heads) > 1 else "")


def looks_like(lines: Sequence[str]) -> str:
    """Return which format most of the lines are of, in words without any of their content; empty if none.

    A format of fixed columns only if most lines then are rows with a user and a query.
    """
    for kind in (*SHAPES, "jsonl"):
        shaped = [line.encode() for line in lines if has_shape(kind, line)]
        if 2 * len(shaped) <= len(lines):
            continue
        if kind == "jsonl" or 2 * sum(left_out(count_kinds(shaped, FIXED[kind], TimeOptions())).values()) < len(shaped):
            return kind
    for kind, separator in (("tsv", "\t"), ("csv", ","), ("csv", ";"), ("csv", "|")):
        counts = [line.count(separator) + 1 for line in lines]
        common = max(set(counts), key=counts.count, default=0)
        if common > 1 and 2 * counts.count(common) > len(lines):
            return f"{kind} with {common} columns"
    return ""
