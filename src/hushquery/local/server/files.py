"""Reports as they arrive, in blocks: from a text file, a Parquet file, or anything in Python that gives them.

All reports of a configuration have one length, so those that have it become rows of bytes; what has another length
can't be one of them, and is handed on for its error to be named. Nothing here looks at what a report says.

Files come from anybody, and a small one can unpack to any size. So little of one is in memory at a time: a line that is
longer than any report is skipped and not held, and of a Parquet file so many rows are unpacked at once as the headers
of its pages allow; lengths are looked at before a value is copied.
"""

from __future__ import annotations

import gzip
import mmap
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from hushquery.errors import DataError, UsageError
from hushquery.local.report import (
    HEADER_BYTES,
    MOST_PAYLOAD,
    MOST_TEXT,
    Report,
    ReportError,
    ReportMalformed,
    from_base64url,
)

__all__ = ["COLUMN", "LONGER_THAN_ANY", "Block", "Reports", "blocks_of_column", "check_column", "read_blocks"]

#: What reports can be given as: the path of a file, a list of :class:`~pathlib.Path` of files, or the reports
#: themselves, as bytes, text, JSON or :class:`~hushquery.local.report.Report`.
Reports = str | PathLike[str] | Sequence[PathLike[str]] | Iterable[Report | bytes | str | Mapping[str, Any]]

#: The column of a Parquet file that holds reports.
COLUMN = "report"

# Blocks are about so large, so that the arrays made of them stay small.
_BLOCK_BYTES = 1 << 24
_MOST_ROWS = 1 << 16
# So many bytes of bad reports wait for their error to be named.
_OTHER_BYTES = 1 << 20
# So much of a Parquet file is unpacked at once, where a bad one could make more of it.
_UNPACKED_BYTES = 1 << 24
#: A report that is cut off here has the same error as the whole: there are bytes behind its end.
LONGER_THAN_ANY = HEADER_BYTES + MOST_PAYLOAD + 1


@dataclass
class Block:
    """Some reports.

    Args:
        rows: Those of the right length, a row of bytes each, in their order.
        others: The bytes of those of another length; of one that is longer than any report, the beginning.
        refused: How many were no bytes of a report at all, by the name of their error.
    """

    rows: npt.NDArray[np.uint8]
    others: list[bytes] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """How many reports it came from."""
        return len(self.rows) + len(self.others) + self.refused.total()


def read_blocks(reports: Reports, length: int) -> Iterator[Block]:
    """Give reports in blocks.

    Args:
        reports: The path of a file with a report on each line (base64url or JSON, also gzipped), the path of a Parquet
            file with a binary column ``report``, a list of several such paths (as :class:`~pathlib.Path`: a text in a
            list is a report), or an iterable of reports.
        length: How long the reports of the configuration are.
    """
    size = _block_size(length)
    if isinstance(reports, str | PathLike):
        yield from _read_file(Path(fspath(reports)), length, size)
    elif isinstance(reports, list | tuple) and reports and all(isinstance(path, PathLike) for path in reports):
        for path in reports:
            yield from _read_file(Path(fspath(path)), length, size)
    elif isinstance(reports, bytes | bytearray | Mapping | Report) or not isinstance(reports, Iterable):
        raise UsageError("reports are given as a path or as an iterable", fix="Put a single report into a list")
    else:
        yield from _listed(reports, length, size)


def blocks_of_column(columns: Iterable[Any], length: int) -> Iterator[Block]:
    """Give the reports in the pieces of one binary Arrow column in blocks, in their order."""
    for column in _gathered(columns, _block_size(length)):
        yield from _values(column, length)


def check_column(schema: Any, name: str) -> None:
    """Refuse a Parquet file without a binary column of reports.

    Args:
        schema: The file's Arrow schema.
        name: What to call the file.
    """
    import pyarrow as pa

    kind = schema.field(COLUMN).type if schema.names.count(COLUMN) == 1 else None
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    if kind is None or not any(is_kind(kind) for is_kind in binary):
        raise DataError(
            f"{name} has no binary column {COLUMN!r}", fix="Write the bytes of each report into that column"
        )


def _block_size(length: int) -> int:
    return max(64, min(_MOST_ROWS, _BLOCK_BYTES // (16 * length)))


def _read_file(path: Path, length: int, size: int) -> Iterator[Block]:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            if magic == b"PAR1":
                yield from _read_parquet(path, length, size)
            elif magic[:2] == b"\x1f\x8b":
                with gzip.open(file) as lines:
                    yield from _listed(_lines(cast("IO[bytes]", lines)), length, size)
            else:
                yield from _listed(_lines(file), length, size)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path.name} is damaged or cut off", why="it can't be unpacked", fix="Get it again") from None
    except OSError as error:
        raise DataError(
            f"the reports in {path.name} can't be read", why=error.strerror or "", fix="Check the path"
        ) from None


def _lines(file: IO[bytes]) -> Iterator[str | None]:
    """Give the words of a text file, without blanks around them; None for a line that is too long for a report."""
    while line := file.readline(MOST_TEXT + 2):
        if len(line) > MOST_TEXT + 1 and not line.endswith(b"\n"):
            while (rest := file.readline(MOST_TEXT)) and not rest.endswith(b"\n"):
                pass
            yield None
        elif word := line.strip():
            yield word.decode("utf-8", "replace")  # what is no UTF-8 is no report either


def _listed(reports: Iterable[Any], length: int, size: int) -> Iterator[Block]:
    """Make blocks of single reports."""
    good: list[bytes] = []
    block, held = Block(_rows([], length)), 0
    for report in reports:
        try:
            data = _bytes_of(report)
        except ReportError as error:
            block.refused[type(error).__name__] += 1
            continue
        if len(data) == length:
            good.append(data)
        else:
            block.others.append(data[:LONGER_THAN_ANY])
            held += len(block.others[-1])
        if len(good) + len(block.others) >= size or held > _OTHER_BYTES:
            block.rows = _rows(good, length)
            yield block
            good, block, held = [], Block(_rows([], length)), 0
    block.rows = _rows(good, length)
    yield block


def _bytes_of(report: Any) -> bytes:
    if isinstance(report, Report):
        return report.to_bytes()
    if isinstance(report, Mapping):
        return Report.from_json(report).to_bytes()
    if isinstance(report, str):
        report = report.strip()
        return Report.from_json(report).to_bytes() if report.startswith("{") else from_base64url(report)
    if isinstance(report, bytes | bytearray | memoryview):
        return bytes(report)
    if report is None:
        raise ReportMalformed("this is not a report of format v1", why="it is too long, or missing")
    raise UsageError(
        "a report to be counted is bytes, text, a JSON object or a Report", fix="Give them as clients send them"
    )


def _rows(reports: list[bytes], length: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(len(reports), length)


def _read_parquet(path: Path, length: int, size: int) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hushquery.local.server.parquet_pages import PageError, rows_that_fit

    try:
        with (
            path.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole,
            pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file,
        ):
            check_column(file.schema_arrow, path.name)
            for group, fit in enumerate(rows_that_fit(whole, file.schema.names.index(COLUMN), _UNPACKED_BYTES)):
                batches = file.iter_batches(batch_size=min(fit, size), row_groups=[group], columns=[COLUMN])
                yield from blocks_of_column((batch.column(0) for batch in batches), length)
    except (pa.ArrowException, PageError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, PageError) else type(error).__name__
        raise DataError(f"{path.name} can't be read as Parquet", why=why, fix="Get it again, written plainly") from None


def _gathered(columns: Iterable[Any], size: int) -> Iterator[Any]:
    """Put small batches together, as far as they stay small."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = held = 0
    for column in columns:
        waiting.append(column)
        rows, held = rows + len(column), held + column.nbytes
        if rows >= size or held >= _UNPACKED_BYTES // 2:
            yield waiting[0] if len(waiting) == 1 else pa.concat_arrays(waiting)
            waiting, rows, held = [], 0, 0
    if waiting:
        yield pa.concat_arrays(waiting)


def _values(column: Any, length: int) -> Iterator[Block]:
    """Make blocks of a column: what has the right length is copied, of the rest only enough to name its error."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = Counter({ReportMalformed.__name__: column.null_count} if column.null_count else {})
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    good = pc.fill_null(pc.equal(pc.binary_length(column), length), False)
    yield Block(_matrix(column.filter(good).cast(pa.large_binary()), length), refused=missing)
    others: list[bytes] = []
    held = 0
    for place in np.flatnonzero(pc.and_(pc.invert(good), column.is_valid()).to_numpy(zero_copy_only=False)).tolist():
        others.append(column[place].as_buffer()[:LONGER_THAN_ANY].to_pybytes())
        held += len(others[-1])
        if held > _OTHER_BYTES:
            yield Block(_rows([], length), others)
            others, held = [], 0
    if others:
        yield Block(_rows([], length), others)


def _matrix(column: Any, length: int) -> npt.NDArray[np.uint8]:
    """Give a column of byte strings of one length as rows of bytes, without making an object of each."""
    if not len(column):
        return _rows([], length)
    _, offsets, data = column.buffers()
    first = int(np.frombuffer(offsets, dtype=np.int64)[column.offset])
    flat = np.frombuffer(data, dtype=np.uint8)[first : first + len(column) * length]
    return flat.reshape(len(column), length)
