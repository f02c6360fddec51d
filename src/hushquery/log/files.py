"""Find the files of a log and read their lines, so that no line changes how another is read.

The first bytes may make us refuse a file, never read it differently; a malformed line costs that line alone.
"""

from __future__ import annotations

import codecs
import glob
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hushquery.errors import DataError, UsageError

#: A line of more bytes is malformed.
LONGEST_LINE = 2_000_000

_HEAD = 2**16  # bytes of a file that are looked at before it is read
_LONGEST_FIRST = 2**24
_BLOCK = 2**22
_GZIP = b"\x1f\x8b"
_TYPES = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"\xfd7zXZ": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"\xd0\xcf\x11\xe0": "an old Office document",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
# Code points that Unicode guarantees to be no characters: as separator and as "null" they never occur.
_NO_SEPARATOR = "\U0010ffff"
_NO_NULL = "\U0010fffe"
# In UTF-8 no line is this.
_NO_TEXT = b"\xff"
_READ_CSV = (
    "quote='', escape='', comment='', header=false, auto_detect=false, ignore_errors=true, strict_mode=false, "
    f"nullstr='{_NO_NULL}', new_line='\\n', max_line_size={LONGEST_LINE}"
)
# Encodings in which the byte 0x0A is not always the end of a line, or in which one line changes how the next is read.
_NOT_LINE_BY_LINE = ("utf-32", "utf-7", "iso2022", "hz", "idna", "punycode", "unicode", "raw", "undefined")


def find_files(data: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that a name, a pattern or a list of them stands for."""
    if isinstance(data, str | Path):
        return _matching(data)
    paths = [path for name in data for path in _matching(name)]
    if not paths:
        raise UsageError("the list of files is empty", fix="Name at least one file")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is named twice, so its rows would count twice", fix="Name each file once")
    return paths


def _matching(name: str | Path) -> list[Path]:
    text = str(name)
    if "\0" in text:
        raise UsageError("a file's name can't hold a null byte", fix="Check the name")
    path = Path(text)
    if path.is_dir():
        # A name that begins with a dot or an underscore is of no log: a lock, a mark that a job has ended.
        inside = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith((".", "_"))]
        if not inside:
            raise DataError(f"the folder {path} has no files", fix=f"Name files, for example '{path}/**/*.gz'")
        return inside
    if path.is_file():
        return [path]
    if path.exists():
        raise DataError(f"{path} is not a regular file", why="A log is read more than once", fix="Save it to a file")
    if not glob.has_magic(text):
        if "=" in text:
            quotes = 'Names with blanks need quotes: --columns "user=Customer ID,query=Search term"'
            raise DataError(f"there is no file {path}", why="It looks like a part of --columns", fix=quotes)
        raise DataError(f"there is no file {path}", fix="Check the name")
    paths = [match for match in map(Path, sorted(glob.glob(text, recursive=True))) if match.is_file()]  # noqa: PTH207
    if not paths:
        raise DataError(f"no file matches {path}", fix="Check the pattern")
    return paths


@dataclass(frozen=True)
class FileHead:
    """The beginning of a file."""

    path: Path  # the file
    gzip: bool  # whether it is compressed; its first bytes say so, whatever its name
    data: bytes  # its first bytes, decompressed; UTF-16 that is named so in UTF-8
    complete: bool  # whether that is all of it

    @property
    def type(self) -> str:
        """What the first bytes are known to begin, in words; empty if they are not known."""
        known = next((name for magic, name in _TYPES.items() if self.data.startswith(magic)), "")
        halves = [self.data[start:2000:2].count(0) for start in (0, 1)]
        # Without a mark in front, every second byte of most languages' UTF-16 is null.
        wide = max(halves) > 20 * (min(halves) + 1) / 2 and 4 * max(halves) > len(self.data[:2000])
        return known or ("UTF-16 text" if wide else "")

    def lines(self, encoding: str) -> list[str]:
        """Return the first hundred complete lines that are not empty."""
        text = self.data.decode(in_lines(encoding), errors="replace").removeprefix("\ufeff")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return [line for line in lines[: None if self.complete else -1] if line][:100]

    def decodes(self, encoding: str, skip: int) -> list[bool]:
        """Return of each of the first complete lines, after so many, whether it is text of the encoding."""
        lines = [line for line in self.data.replace(b"\r", b"\n").split(b"\n")[: None if self.complete else -1] if line]
        return [decodes(line, in_lines(encoding)) for line in lines[skip : skip + 100]]


def decodes(line: bytes, encoding: str = "utf-8") -> bool:
    """Return whether bytes are text of an encoding."""
    try:
        line.decode(encoding)
    except UnicodeError:
        return False
    return True


def read_head(path: Path, encoding: str = "utf-8", *, may_be_blank: bool = False) -> FileHead:
    """Read the first bytes of a file, beyond an overlong first line (one person's row); refuse an empty file."""
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP)) == _GZIP
        following = read_text(path, encoding, _HEAD)
        last = next(following, b"")
        parts = [last]
        while last and b"\n" not in last and b"\r" not in last and len(parts) * _HEAD < _LONGEST_FIRST:
            last = next(following, b"")
            parts.append(last)
        if len(parts) > 1:
            parts.append(next(following, b""))
        complete = False
        with suppress(DataError):  # damaged further on, which `check_compressed` reports
            complete = next(following, None) is None
    except OSError as error:
        raise DataError(
            f"the file {path} can't be opened", why=type(error).__name__, fix="Check its permissions"
        ) from None
    data = b"".join(parts)
    if not (data if may_be_blank else data.strip()):
        raise DataError(f"the file {path} is empty", fix="Give a file with rows")
    return FileHead(path, compressed, data, complete)


def read_blocks(path: Path, size: int = _BLOCK) -> Iterator[bytes]:
    """Yield a file's bytes, decompressed, a block at a time; raise where compressed data is damaged."""
    with path.open("rb") as file:
        block = file.read(size)
        if block.startswith(_GZIP):
            yield from _decompressed(file, block, path, size)
            return
        while block:
            yield block
            block = file.read(size)


def read_text(path: Path, encoding: str, size: int = _BLOCK) -> Iterator[bytes]:
    """Yield a file's bytes as :func:`read_blocks` does, of UTF-16 in UTF-8, half characters as bytes that are not.

    Two bytes are a unit wherever they are, so a line that an export wrote can't shift the next.
    """
    if not _wide(encoding):
        yield from read_blocks(path, size)
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    for block in read_blocks(path, size):
        if out := decoder.decode(block).encode("utf-8", "surrogatepass"):
            yield out


def _wide(encoding: str) -> bool:
    return encoding.startswith("utf-16")


def in_lines(encoding: str) -> str:
    """Return the encoding of lines once :func:`read_text` has read them."""
    return "utf-8" if _wide(encoding) else encoding


def _decompressed(file: BinaryIO, block: bytes, path: Path, size: int) -> Iterator[bytes]:
    engine = zlib.decompressobj(31)
    while True:
        try:
            out = engine.decompress(block, size)
        except zlib.error:
            raise _damaged(path) from None
        if out:
            yield out
        if engine.eof:
            block = engine.unused_data or file.read(size)
            if not block:
                return
            engine = zlib.decompressobj(31)  # several archives, one behind the other, are one file
            continue
        block = engine.unconsumed_tail or file.read(size)
        if not block and not out:
            raise _damaged(path)


def _damaged(path: Path) -> DataError:
    return DataError(
        f"the file {path} is damaged",
        why="Its gzip data ends early or does not decompress",
        fix="Fetch it again; `gzip -t` checks it",
    )


def check_compressed(paths: Iterable[Path]) -> None:
    """Raise if a compressed file is damaged: read every byte, because an engine reads what it can without a message."""
    compressed = [path for path in paths if read_head(path).gzip]
    # zlib lets other threads run while it works.
    with ThreadPoolExecutor(min(len(compressed), os.cpu_count() or 1) or 1) as pool:
        list(pool.map(lambda path: deque(read_blocks(path), maxlen=0), compressed))


def sql_text(text: str) -> str:
    """Write text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def escape_path(path: Path) -> str:
    """Write a path so that DuckDB does not take it for a pattern of other files' names."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path.absolute()))


def lines_sql(plain: list[Path], compressed: list[Path]) -> str:
    """Write the query that reads files as one column ``line``."""
    return _scan(plain, compressed, "{'line': 'VARCHAR'}", f"delim='{_NO_SEPARATOR}'")


def cells_sql(plain: list[Path], compressed: list[Path], count: int, separator: str = "\t") -> str:
    """Write the query that reads files as ``c0``, ``c1``, ..., and one for the excess; only absent cells are null."""
    columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(count + 1))
    return _scan(plain, compressed, f"{{{columns}}}", f"delim='{separator}', null_padding=true")


def _scan(plain: list[Path], compressed: list[Path], columns: str, options: str) -> str:
    return " UNION ALL ".join(
        f"SELECT * FROM read_csv([{', '.join(sql_text(escape_path(path)) for path in paths)}], "  # noqa: S608
        f"columns={columns}, {options}, {_READ_CSV}, compression='{kind}')"
        for paths, kind in ((plain, "none"), (compressed, "gzip"))
        if paths
    )


def checked_encoding(encoding: str) -> str:
    """Return the canonical name of an encoding that can be read line by line; refuse others."""
    try:
        known = codecs.lookup(encoding).name
        fits = _wide(known) or ("\n".encode(known) == b"\n" and not known.startswith(_NOT_LINE_BY_LINE))
    except (LookupError, ValueError, TypeError):
        raise UsageError(
            f"the encoding {encoding!r} is not known", fix="Use a name such as utf-8, utf-16 or gb18030"
        ) from None
    if not fits:
        raise UsageError(
            f"files in {known} can't be read line by line", fix="Convert them: iconv -f FROM -t UTF-8 IN > OUT"
        )
    return "utf-8" if known == "utf-8-sig" else known


@dataclass(frozen=True)
class EncodedLines:
    """Stream lines in other encodings than UTF-8 to DuckDB, anew whenever the engine reads: a plan reads no row."""

    paths: tuple[Path, ...]  # the files
    encoding: str  # what they are in

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


def line_batches(path: Path, encoding: str = "utf-8") -> Iterator[Any]:
    """Yield all lines of a file, malformed ones too, as Arrow tables: ``number`` from 1, ``line`` as bytes."""
    import numpy as np
    import pyarrow as pa

    first = 1
    for block in _whole_lines(path, encoding):
        data = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if encoding != "utf-8":
            data = _to_utf8(data, in_lines(encoding))
        if first == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        if not data.endswith(b"\n"):
            data += b"\n"
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0x0A)
        count = len(ends)
        offsets = np.concatenate(([0], ends - np.arange(count))).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data.replace(b"\n", b""))]
        lines = pa.Array.from_buffers(pa.large_binary(), count, buffers)
        yield pa.table({"number": np.arange(first, first + count), "line": lines})
        first += count


def _whole_lines(path: Path, encoding: str) -> Iterator[bytes]:
    """Yield a file in blocks that end where a line ends; of a line that is too long only its beginning."""
    rest = b""
    for block in read_text(path, encoding):
        joined = rest + block if len(rest) <= LONGEST_LINE else rest[: LONGEST_LINE + 1] + block
        # A carriage return at the very end may be half of a line's end.
        cut = max(joined.rfind(b"\n"), joined.rfind(b"\r", 0, len(joined) - 1)) + 1
        if cut:
            yield joined[:cut]
        rest = joined[cut:]
    if rest:
        yield rest


def _to_utf8(lines: bytes, encoding: str) -> bytes:
    """Write lines in UTF-8; one that is not of the encoding becomes one that is not UTF-8 either."""
    try:
        return lines.decode(encoding).encode()
    except UnicodeError:
        ends = lines.splitlines(keepends=True)
        return _NO_TEXT + b"\n" if len(ends) == 1 else b"".join(_to_utf8(line, encoding) for line in ends)
