"""Which files a log is in, and a look at their first bytes: it may refuse a file, never change how it is read."""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hushquery.errors import DataError, UsageError

__all__ = ["PEEK", "Peek", "blocks", "check_compressed", "find_files", "look"]

#: How many bytes of a file are looked at before it is read.
PEEK = 2**16

_LONGEST_FIRST = 2**24
_BLOCK = 2**22
_GZIP = b"\x1f\x8b"
_MAGIC = {
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


@dataclass(frozen=True)
class Peek:
    """The beginning of a file.

    Attributes:
        path: The file.
        gzip: Whether it is compressed; its first bytes say so, whatever its name.
        head: Its first bytes, decompressed.
        whole: Whether that is all of it.
    """

    path: Path
    gzip: bool
    head: bytes
    whole: bool

    @property
    def magic(self) -> str:
        """Say what the first bytes are known to begin, or nothing."""
        return next((name for magic, name in _MAGIC.items() if self.head.startswith(magic)), "")

    def lines(self, encoding: str, most: int = 100) -> list[str]:
        """Give the first complete lines that are not empty."""
        text = self.head.decode(encoding, errors="replace").removeprefix("\ufeff")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if not self.whole:
            lines.pop()
        return [line for line in lines if line][:most]

    def decodes(self, encoding: str, below: int = 0) -> list[bool]:
        """Say of each of the first complete lines below the header whether it is text of the encoding."""
        lines = [line for line in self.head.replace(b"\r", b"\n").split(b"\n")[: None if self.whole else -1] if line]
        return [_decodes(line, encoding) for line in lines[below : below + 100]]


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeError:
        return False
    return True


def find_files(data: str | Path | Iterable[str | Path]) -> list[Path]:
    """Give the files that a name, a pattern or a list of them stands for."""
    if isinstance(data, str | Path):
        return _matching(data)
    paths = list(data)
    if not paths:
        raise UsageError("the list of files is empty", fix="Name at least one file")
    found = [path for one in paths for path in _matching(one)]
    if len({path.resolve() for path in found}) < len(found):
        raise UsageError("a file is named twice, so its rows would count twice", fix="Name each file once")
    return found


def _matching(name: str | Path) -> list[Path]:
    text = str(name)
    if "\0" in text:
        raise UsageError("a file's name can't hold a null byte", fix="Check the name")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path} is a folder", fix=f"Name its files, for example '{path}/*.gz'")
    if path.is_file():
        return [path]
    if path.exists():
        raise DataError(f"{path} is not a regular file", why="A log is read more than once", fix="Save it to a file")
    if not glob.has_magic(text):
        if "=" in text:
            quotes = 'Names with blanks need quotes: --columns "user=Customer ID,query=Search term"'
            raise DataError(f"there is no file {path}", why="It looks like a part of --columns", fix=quotes)
        raise DataError(f"there is no file {path}", fix="Check the name")
    found = [match for match in map(Path, sorted(glob.glob(text, recursive=True))) if match.is_file()]  # noqa: PTH207
    if not found:
        raise DataError(f"no file matches {path}", fix="Check the pattern")
    return found


def look(path: Path, *, may_be_blank: bool = False) -> Peek:
    """Read the first bytes of a file, and the end of its first line; refuse one that is empty or can't be opened.

    A first line that is too long is one person's row in a format without a header, so what follows it is looked at too.

    Args:
        path: The file.
        may_be_blank: Whether it may hold nothing but blanks and ends of lines, as JSON lines of nobody do.
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP)) == _GZIP
        following = blocks(path, PEEK)
        last = next(following, b"")
        parts = [last]
        while last and b"\n" not in last and b"\r" not in last and len(parts) * PEEK < _LONGEST_FIRST:
            last = next(following, b"")
            parts.append(last)
        if len(parts) > 1:
            parts.append(next(following, b""))
        head = b"".join(parts)
        whole = _ends(following)
    except OSError as error:
        raise DataError(
            f"the file {path} can't be opened", why=type(error).__name__, fix="Check its permissions"
        ) from None
    if not (head if may_be_blank else head.strip()):
        raise DataError(f"the file {path} is empty", fix="Give a file with rows")
    return Peek(path, compressed, head, whole)


def _ends(following: Iterator[bytes]) -> bool:
    try:
        return next(following, None) is None
    except DataError:  # damaged further on, which is for the check of whole files to say
        return False


def blocks(path: Path, size: int = _BLOCK) -> Iterator[bytes]:
    """Give a file's bytes, decompressed, a block at a time.

    Raises:
        DataError: The compressed data ends early or is damaged; what came before was given.
    """
    with path.open("rb") as file:
        block = file.read(size)
        if not block.startswith(_GZIP):
            while block:
                yield block
                block = file.read(size)
            return
        yield from _decompressed(file, block, path, size)


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


def check_compressed(paths: Iterable[Path]) -> None:
    """Raise if a compressed file is cut off or damaged; several files are read at the same time.

    Every byte is decompressed and held against the checksums: nothing less tells a damaged file, and an engine reads
    what it can and says nothing.
    """
    compressed = [path for path in paths if look(path).gzip]
    if len(compressed) < 2:
        for path in compressed:
            _read_to_the_end(path)
        return
    # zlib lets other threads run while it works.
    with ThreadPoolExecutor(min(len(compressed), os.cpu_count() or 1)) as pool:
        list(pool.map(_read_to_the_end, compressed))


def _read_to_the_end(path: Path) -> None:
    for _ in blocks(path):
        pass


def _damaged(path: Path) -> DataError:
    return DataError(
        f"the file {path} is damaged",
        why="Its gzip data ends early or does not decompress",
        fix="Fetch it again; `gzip -t` checks it",
    )
