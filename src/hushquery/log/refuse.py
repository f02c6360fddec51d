"""Refuse logs of which nothing could be used, before a budget is spent on nothing.

Decision 8 allows this and nothing more: at most the first 1,000 lines of the files are parsed, the log is refused if
none of them can be used for what it is said to be, or if more than half can't be read, and only the steward sees it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hushquery.engine import connect
from hushquery.errors import DataError
from hushquery.log import files, formats
from hushquery.log.columns import ColumnNames
from hushquery.log.formats import Format
from hushquery.log.normalise import micros, stripped
from hushquery.log.report import count_kinds, defects_of_table
from hushquery.log.time_format import TimeOptions

#: How many first lines of a log may be parsed before the spend.
FIRST_LINES = 1000
# So many first lines without a time that can be read are no accident.
_ENOUGH_LINES = 10
# Lines for a sample that is spread over the files, and how much of a file is one part of it.
_SAMPLE, _PART = 20_000, 2**17
_ISO = TimeOptions()


def other_encodings(heads: Sequence[files.FileHead], form: Format, encoding: str) -> None:
    """Refuse files of whose first lines none can be read: all their rows would be left out."""
    readable = [good for head in heads for good in head.decodes(encoding, skip=int(form.with_header))]
    if readable and not any(readable):
        raise DataError(
            f"the text in {_listed(heads)} is not {encoding}",
            why="None of its first lines can be read, and lines that can't be read are left out",
            fix="`hushquery look` guesses it. Or name it: --encoding gb18030 (encoding='gb18030'), cp1252, ...",
        )


def other_keys(heads: Sequence[files.FileHead], form: Format, encoding: str, names: ColumnNames) -> None:
    """Refuse JSON lines of which none of the first has the needed keys: their rows would all be without a user."""
    if form.name != "jsonl":
        return
    lines = [line for head in heads for line in head.lines(encoding) if formats.has_shape("jsonl", line)]
    needed = {str(names.names[ours]) for ours in names.required}
    if len(lines) >= _ENOUGH_LINES and not any(needed <= json.loads(line).keys() for line in lines):
        raise DataError(
            f"no line of the first in {_listed(heads)} has the keys {' and '.join(map(repr, sorted(needed)))}",
            why="Keys of JSON lines are taken as they are written, capitals too",
            fix="Say which they are: --columns user=KEY,query=KEY, or columns={'user': 'KEY', 'query': 'KEY'}",
        )


def unreadable_times(
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


def unreadable_lines(paths: Sequence[Path], form: Format, encoding: str, options: TimeOptions | None = _ISO) -> None:
    """Refuse a log of whose first 1,000 lines, over all its files, more than half are no rows; the same for all."""
    each = max(1, FIRST_LINES // len(paths))
    lines = [line for path in paths[:FIRST_LINES] for line in _first_lines(path, encoding, each)]
    _refuse_most(count_kinds(lines, form, options))


def unusable_rows(rows: Any, dialect: str, options: TimeOptions) -> None:
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
