"""Lines of text files, each on its own: no line can change how another one is read.

DuckDB reads them with quoting switched off and every option fixed. A line ends at a line feed, a carriage return or
both. Bad UTF-8 or more than :data:`LONGEST_LINE` bytes cost the line they are in and no other.
"""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hushquery.errors import UsageError
from hushquery.log.files import blocks

__all__ = [
    "LONGEST_LINE",
    "cells_sql",
    "checked_encoding",
    "line_batches",
    "lines_sql",
    "literally",
    "named",
    "quoted",
    "transcoded",
]

#: A line of more bytes is malformed.
LONGEST_LINE = 2_000_000

# Code points that Unicode guarantees to be no characters: as separator and as "null" they never occur.
_NO_SEPARATOR = "\U0010ffff"
_NO_NULL = "\U0010fffe"
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


def transcoded(path: Path, encoding: str, folder: Path) -> Path:
    """Write a file once more, in UTF-8, into a private folder, and give the copy.

    A line that is not of the encoding becomes one that is no UTF-8 either, so that the engine leaves it out too.
    """
    handle, copy = tempfile.mkstemp(suffix=".txt", dir=folder)
    with os.fdopen(handle, "wb") as out:
        for block in _whole_lines(path):
            try:
                out.write(block.decode(encoding).encode())
            except UnicodeError:
                out.writelines(_line_in_utf8(line, encoding) for line in block.splitlines(keepends=True))
    return Path(copy)


def _line_in_utf8(line: bytes, encoding: str) -> bytes:
    try:
        return line.decode(encoding).encode()
    except UnicodeError:
        return b"\xff\n"


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


def line_batches(path: Path) -> Iterator[Any]:
    """Give a file's lines as Arrow tables, a block at a time: ``number`` from 1, ``line`` as bytes with its line feed.

    Only the private report reads a file in this way: it needs the numbers, and the lines that the engine leaves out.
    """
    import numpy as np
    import pyarrow as pa

    first = 1
    for block in _whole_lines(path):
        data = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if first == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        if not data.endswith(b"\n"):
            data += b"\n"
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0x0A)
        count = len(ends)
        offsets = np.concatenate(([0], ends + 1)).astype(np.int64)
        lines = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        yield pa.table({"number": np.arange(first, first + count), "line": lines})
        first += count
