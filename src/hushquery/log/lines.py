"""Lines of text files, each on its own: no line can change how another one is read.

DuckDB reads them with quoting switched off and every option fixed. A line ends at a line feed, a carriage return or
both. Bad UTF-8 or more than :data:`LONGEST_LINE` bytes cost the line they are in and no other.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushquery.errors import DataError, UsageError
from hushquery.log.files import blocks

__all__ = [
    "LONGEST_LINE",
    "EncodedLines",
    "cells_sql",
    "checked_encoding",
    "line_batches",
    "lines_sql",
    "literally",
    "named",
    "quoted",
]

#: A line of more bytes is malformed.
LONGEST_LINE = 2_000_000

# Code points that Unicode guarantees to be no characters: as separator and as "null" they never occur.
_NO_SEPARATOR = "\U0010ffff"
_NO_NULL = "\U0010fffe"
# In UTF-8 no line is this.
_NO_TEXT = b"\xff"
_FIXED = (
    "quote='', escape='', comment='', header=false, auto_detect=false, ignore_errors=true, strict_mode=false, "
    f"nullstr='{_NO_NULL}', new_line='\\n', max_line_size={LONGEST_LINE}"
)
# Encodings in which the byte 0x0A is not always the end of a line, or in which one line changes how the next is read.
_NOT_LINE_BY_LINE = ("utf-16", "utf-32", "utf-7", "iso2022", "hz", "idna", "punycode", "unicode", "raw", "undefined")


def quoted(text: str) -> str:
    """Write text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def named(text: str) -> str:
    """Write text as the name of a column in SQL."""
    return '"' + text.replace('"', '""') + '"'


def lines_sql(plain: list[Path], compressed: list[Path]) -> str:
    """Write the query that reads files as one column ``line``."""
    return _scan(plain, compressed, "{'line': 'VARCHAR'}", f"delim='{_NO_SEPARATOR}'")


def cells_sql(plain: list[Path], compressed: list[Path], count: int, separator: str = "\t") -> str:
    """Write the query that reads separated files as ``c0``, ``c1``, ..., and one column more for what is too much.

    An empty cell is empty text, a cell that is not there is missing. Quotes mean nothing.
    """
    columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(count + 1))
    return _scan(plain, compressed, f"{{{columns}}}", f"delim='{separator}', null_padding=true")


def _scan(plain: list[Path], compressed: list[Path], columns: str, options: str) -> str:
    parts = [
        # Every path is quoted by the functions below.
        f"SELECT * FROM read_csv([{', '.join(quoted(literally(path)) for path in paths)}], "  # noqa: S608
        f"columns={columns}, {options}, {_FIXED}, compression='{kind}')"
        for paths, kind in ((plain, "none"), (compressed, "gzip"))
        if paths
    ]
    return " UNION ALL ".join(parts)


def literally(path: Path) -> str:
    """Write a path so that the engine does not take it for a pattern of other files' names."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path.absolute()))


def checked_encoding(encoding: str) -> str:
    """Give the canonical name of an encoding that can be read line by line; refuse others."""
    try:
        known = codecs.lookup(encoding).name
        fits = "\n".encode(known) == b"\n" and not known.startswith(_NOT_LINE_BY_LINE)
    except (LookupError, ValueError, TypeError):
        raise UsageError(f"the encoding {encoding!r} is not known", fix="Use a name such as utf-8 or gb18030") from None
    if not fits:
        raise UsageError(
            f"files in {known} can't be read line by line", fix="Convert them: iconv -f FROM -t UTF-8 IN > OUT"
        )
    return "utf-8" if known == "utf-8-sig" else known


@dataclass(frozen=True)
class EncodedLines:
    """Lines of files in an encoding other than UTF-8, as Arrow's stream interface gives them to DuckDB.

    A file is read when the engine reads, each time anew, and not when a query about it is written: a plan reads no row.

    Attributes:
        paths: The files.
        encoding: What they are in.
    """

    paths: tuple[Path, ...]
    encoding: str

    def sql(self, engine: Any) -> str:
        """Write the query that reads them as one column ``line``, malformed ones left out."""
        import ibis

        name = ibis.util.gen_name("hushquery_lines")
        engine.con.register(name, self)
        return f"SELECT line FROM {name}"  # noqa: S608

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream of the lines, as the method of this name of Arrow's own tables does."""
        import pyarrow as pa

        schema = pa.schema({"line": pa.large_string()})
        return pa.RecordBatchReader.from_batches(schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for path in self.paths:
            with suppress(DataError):  # of a damaged archive an engine reads what it can, too
                for table in line_batches(path, self.encoding):
                    line = table["line"].chunk(0)
                    good = pc.and_(pc.less_equal(pc.binary_length(line), LONGEST_LINE), pc.not_equal(line, _NO_TEXT))
                    yield pa.record_batch({"line": line.filter(good).view(pa.large_string())})


def _in_utf8(lines: bytes, encoding: str) -> bytes:
    """Write lines in UTF-8; one that is not of the encoding becomes one that is no UTF-8 either."""
    try:
        return lines.decode(encoding).encode()
    except UnicodeError:
        ends = lines.splitlines(keepends=True)
        return _NO_TEXT + b"\n" if len(ends) == 1 else b"".join(_in_utf8(line, encoding) for line in ends)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Give a file in blocks that end where a line ends; of a line that is too long only the fact is kept."""
    rest = b""
    for block in blocks(path):
        joined = rest + block if len(rest) <= LONGEST_LINE else rest[: LONGEST_LINE + 1] + block
        # A carriage return at the very end may be half of a line's end.
        cut = max(joined.rfind(b"\n"), joined.rfind(b"\r", 0, len(joined) - 1)) + 1
        if cut:
            yield joined[:cut]
        rest = joined[cut:]
    if rest:
        yield rest


def line_batches(path: Path, encoding: str = "utf-8") -> Iterator[Any]:
    """Give a file's lines as Arrow tables, a block at a time: ``number`` from 1, ``line`` as bytes.

    The private report reads a file in this way: it needs the numbers, and the lines that the engine leaves out. And so
    is a file read in an encoding that the engine does not know.
    """
    import numpy as np
    import pyarrow as pa

    first = 1
    for block in _whole_lines(path):
        data = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if encoding != "utf-8":
            data = _in_utf8(data, encoding)
        if first == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        if not data.endswith(b"\n"):
            data += b"\n"
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0x0A)
        count = len(ends)
        offsets = np.concatenate(([0], ends - np.arange(count))).astype(np.int64)
        held = [None, pa.py_buffer(offsets), pa.py_buffer(data.replace(b"\n", b""))]
        lines = pa.Array.from_buffers(pa.large_binary(), count, held)
        yield pa.table({"number": np.arange(first, first + count), "line": lines})
        first += count
