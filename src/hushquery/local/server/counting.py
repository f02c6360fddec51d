"""Reading and counting reports: each is checked, counted once and forgotten; only integers remain.

Reports of one configuration have one length, so they become rows of bytes whose headers are compared as columns. What
does not pass is counted by its kind of error; nothing of it is kept or shown. By default one period is counted, as
several would reveal more about a client; until it is known which has the most reports, they wait in a temporary file.
Files come from anybody, and a small one can unpack to any size, so little is in memory at a time.
"""

from __future__ import annotations

import gzip
import mmap
import secrets
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from hushquery.errors import DataError, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.intervals import IntArray
from hushquery.local.report import (
    HEADER_BYTES,
    MOST_PAYLOAD,
    MOST_TEXT,
    VERSION,
    Report,
    ReportError,
    ReportMalformed,
    ReportOfAnotherPeriod,
    ReportOutOfDomain,
    from_base64url,
)

#: Rows of bytes, one per report.
ByteRows = npt.NDArray[np.uint8]

#: How a second report with the id of another one is counted.
CONFLICT = "ReportIdUsedTwice"

#: Which periods are counted: the one with this number, that of most reports, or all of them.
Periods = int | Literal["most", "all"]

_ANOTHER_PERIOD = ReportOfAnotherPeriod.__name__

# So many bytes of waiting reports stay in memory; more go to a temporary file, which is read in blocks of so many rows.
_IN_MEMORY = 1 << 26
_WAITING_ROWS = 1 << 16

_ID, _TASK, _CONFIGURATION = slice(1, 17), slice(17, 49), slice(49, 81)
_TIME, _LENGTH = slice(81, 89), slice(89, 91)
_MOST_TIME = 2**53 - 1

#: A file (lines of base64url or JSON, also gzipped; or Parquet), a list of such paths, or the reports themselves.
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
    """Some reports: rows of the right length, bytes (or their beginning) of other lengths, and other errors by name."""

    rows: ByteRows
    others: list[bytes] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """How many reports it came from."""
        return len(self.rows) + len(self.others) + self.refused.total()


@dataclass
class ReportCount:
    """What was read and what it adds up to; counts of shards add up if no report is in two of them.

    With ``most``, everything waits until :meth:`close` chooses the period of most good reports, of equals the latest.
    """

    configuration: Configuration
    asked: Periods = "all"
    read: int = 0
    n: int = 0
    repeated: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    periods: Counter[int] = field(default_factory=Counter)
    support: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.support = np.zeros(self.configuration.channel.length, dtype=np.int64)
        self._seen = _Seen()
        # Where a task has no periods, all reports are of the one there is.
        chosen = self.configuration.task.task.period is None or self.asked != "most"
        # Closed by __exit__.
        self._waiting = None if chosen else tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115

    def __enter__(self) -> ReportCount:
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting is not None:
            self._waiting.close()

    @property
    def length(self) -> int:
        """How long a report is."""
        return HEADER_BYTES + self.configuration.channel.report_bytes

    def add(self, block: Block) -> None:
        """Check and count a block of reports."""
        self.read += block.read
        self.refused.update(block.refused)
        for data in block.others:
            self._refuse(data)
        rows = block.rows
        good = self._headers(rows)
        for row in rows[~good]:
            self._refuse(row.tobytes())
        rows, answers = self._unpacked(self._of_period(rows[good]))
        fresh, same, other = self._seen.add(rows)
        self.repeated += same
        if other:
            self.refused[CONFLICT] += other
        if self._waiting is not None:
            self._waiting.write(rows[fresh].tobytes())
            self.periods.update(self._counted(rows[fresh]))
        elif len(fresh):
            self._count(rows[fresh], answers[fresh])

    def close(self, chosen: int | None = None) -> None:
        """Count what has waited: the reports of the chosen period, by default the one that most are from."""
        if self._waiting is None:
            return
        fullest = max(self.periods, key=lambda number: (self.periods[number], number), default=0)
        period = fullest if chosen is None else chosen
        waited = self.periods.total()
        self.periods.clear()
        for rows in self._blocks(self._waiting):
            mine = rows[self._numbers(rows) == period]
            if len(mine):
                self._count(mine, self.configuration.channel.unpack_many(mine[:, HEADER_BYTES:]))
        if waited > self.n:
            self.refused[_ANOTHER_PERIOD] += waited - self.n
        self._waiting.close()
        self._waiting = None

    def _blocks(self, file: IO[bytes]) -> Iterator[ByteRows]:
        file.seek(0)
        while data := file.read(_WAITING_ROWS * self.length):
            yield np.frombuffer(data, dtype=np.uint8).reshape(-1, self.length)

    def _count(self, rows: ByteRows, answers: npt.NDArray[Any]) -> None:
        self.support += self.configuration.channel.support(answers)
        self.n += len(rows)
        self.periods.update(self._counted(rows))

    def _headers(self, rows: ByteRows) -> npt.NDArray[np.bool_]:
        """Return which rows have the header of this configuration."""
        task, payload = self.configuration.task, self.configuration.channel.report_bytes
        times = _times(rows)
        good: npt.NDArray[np.bool_] = rows[:, 0] == VERSION
        for place, wanted in (
            (_TASK, task.digest),
            (_CONFIGURATION, self.configuration.digest),
            (_LENGTH, payload.to_bytes(2, "big")),
        ):
            good &= (rows[:, place] == np.frombuffer(wanted, dtype=np.uint8)).all(axis=1)
        good &= (times <= np.uint64(_MOST_TIME)) & (times % np.uint64(task.collect.time_precision) == 0)
        return good

    def _of_period(self, rows: ByteRows) -> ByteRows:
        """Return the rows of the period that was asked for; the others are refused."""
        if isinstance(self.asked, str):
            return rows
        mine: npt.NDArray[np.bool_] = self._numbers(rows) == self.asked
        if not mine.all():
            self.refused[_ANOTHER_PERIOD] += int((~mine).sum())
        return rows[mine]

    def _unpacked(self, rows: ByteRows) -> tuple[ByteRows, npt.NDArray[Any]]:
        """Return the rows whose payload the mechanism can have made, and what they say."""
        channel = self.configuration.channel
        try:
            return rows, channel.unpack_many(rows[:, HEADER_BYTES:])
        except DataError:  # one of them is bad, and only a look at each tells which
            good = np.ones(len(rows), dtype=np.bool_)
        for place, row in enumerate(rows):
            try:
                channel.unpack(row[HEADER_BYTES:].tobytes())
            except DataError:
                good[place] = False
        self.refused[ReportOutOfDomain.__name__] += int((~good).sum())
        return rows[good], channel.unpack_many(rows[good, HEADER_BYTES:])

    def _refuse(self, data: bytes) -> None:
        try:
            Report.from_bytes(data).open(self.configuration)
        except ReportError as error:
            self.refused[type(error).__name__] += 1
        else:
            raise AssertionError("a good report did not pass the check of many")

    def _counted(self, rows: ByteRows) -> dict[int, int]:
        numbers, counts = np.unique(self._numbers(rows), return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def _numbers(self, rows: ByteRows) -> npt.NDArray[np.uint64]:
        """Number the period of each row; a task without periods has one, 0."""
        period = self.configuration.task.task.period
        return np.zeros(len(rows), dtype=np.uint64) if period is None else _times(rows) // np.uint64(period)


def _times(rows: ByteRows) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, _TIME]).view(">u8").astype(np.uint64).reshape(len(rows))


class _Seen:
    """The ids of counted reports in sorted runs, 24 bytes each: the id's two halves, and a mark of the whole report."""

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []
        # The mark is a hash with a secret key: nobody can make two reports that share it.
        self._key = np.empty(0, dtype=np.uint64)

    def add(self, rows: ByteRows) -> tuple[npt.NDArray[np.intp], int, int]:
        """Return which rows have a new id, how many repeat a known report, and how many use a known id for another."""
        entries = self._entries(rows)
        order = np.lexsort((entries[1], entries[0]))  # stable: of equal ids the first to come is the first here
        ordered = entries[:, order]
        first = np.ones(len(rows), dtype=np.bool_)
        first[1:] = (ordered[:2, 1:] != ordered[:2, :-1]).any(axis=0)
        ids = ordered[:, first]
        known = np.zeros(ids.shape[1], dtype=np.bool_)
        for run in self._runs:
            known |= _look_up(run, ids)
        # By now `ids` holds, for every id of the block, the mark of the report that has it.
        fresh = first.copy()
        fresh[first] = ~known
        same = ~fresh & (ordered[2] == ids[2][np.cumsum(first) - 1])
        self._keep(ids[:, ~known])
        return np.sort(order[fresh]), int(same.sum()), int((~fresh & ~same).sum())

    def _keep(self, run: npt.NDArray[np.uint64]) -> None:
        while self._runs and self._runs[-1].shape[1] <= 2 * run.shape[1]:
            run = np.concatenate([self._runs.pop(), run], axis=1)
            run = run[:, np.lexsort((run[1], run[0]))]
        self._runs.append(run)

    def _entries(self, rows: ByteRows) -> npt.NDArray[np.uint64]:
        halves = np.ascontiguousarray(rows[:, _ID]).view(">u8").astype(np.uint64).reshape(len(rows), 2)
        words = np.zeros((len(rows), -(-rows.shape[1] // 4) * 4), dtype=np.uint8)
        words[:, : rows.shape[1]] = rows
        numbers = words.view("<u4").astype(np.uint64)
        if not len(self._key):
            self._key = np.frombuffer(secrets.token_bytes(8 * numbers.shape[1]), dtype=np.uint64)
        # Multilinear hashing: the upper half of the sum of products collides with chance 2^-32, whatever the words are.
        marks = (numbers * self._key).sum(axis=1, dtype=np.uint64) >> np.uint64(32)
        return np.stack([halves[:, 0], halves[:, 1], marks])


def _look_up(run: npt.NDArray[np.uint64], ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return which ids are in a sorted run, and take over the mark that they have there."""
    start = np.searchsorted(run[0], ids[0], side="left")
    end = np.searchsorted(run[0], ids[0], side="right")
    known = np.zeros(ids.shape[1], dtype=np.bool_)
    for i in np.flatnonzero(end > start):  # only ids that were seen, or were made to look like one
        place = start[i] + np.searchsorted(run[1, start[i] : end[i]], ids[1, i])
        if place < end[i] and run[1, place] == ids[1, i]:
            known[i], ids[2, i] = True, run[2, place]
    return known


# ---- reading ---------------------------------------------------------------------------------------------------


def read_blocks(reports: Reports, length: int) -> Iterator[Block]:
    """Read reports in blocks; those of the configuration are ``length`` bytes long. A text in a list is a report."""
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
    """Read the reports in the pieces of one binary Arrow column in blocks, in their order."""
    for column in _gathered(columns, _block_size(length)):
        yield from _values(column, length)


def check_column(schema: Any, name: str) -> None:
    """Refuse a Parquet file, by its Arrow schema, without a binary column of reports."""
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
    """Read the words of a text file, without blanks around them; None for a line that is too long for a report."""
    while line := file.readline(MOST_TEXT + 2):
        if len(line) > MOST_TEXT + 1 and not line.endswith(b"\n"):
            while (rest := file.readline(MOST_TEXT)) and not rest.endswith(b"\n"):
                pass
            yield None
        elif word := line.strip():
            yield word.decode("utf-8", "replace")  # what is no UTF-8 is no report either


def _listed(reports: Iterable[Any], length: int, size: int) -> Iterator[Block]:
    good: list[bytes] = []
    block, size_of_others = Block(_rows([], length)), 0
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
            size_of_others += len(block.others[-1])
        if len(good) + len(block.others) >= size or size_of_others > _OTHER_BYTES:
            block.rows = _rows(good, length)
            yield block
            good, block, size_of_others = [], Block(_rows([], length)), 0
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


def _rows(reports: list[bytes], length: int) -> ByteRows:
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


def _gathered(columns: Iterable[Any], most_rows: int) -> Iterator[Any]:
    """Put small batches together, as far as they stay small."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = size = 0
    for column in columns:
        waiting.append(column)
        rows, size = rows + len(column), size + column.nbytes
        if rows >= most_rows or size >= _UNPACKED_BYTES // 2:
            yield waiting[0] if len(waiting) == 1 else pa.concat_arrays(waiting)
            waiting, rows, size = [], 0, 0
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
    size = 0
    for place in np.flatnonzero(pc.and_(pc.invert(good), column.is_valid()).to_numpy(zero_copy_only=False)).tolist():
        others.append(column[place].as_buffer()[:LONGER_THAN_ANY].to_pybytes())
        size += len(others[-1])
        if size > _OTHER_BYTES:
            yield Block(_rows([], length), others)
            others, size = [], 0
    if others:
        yield Block(_rows([], length), others)


def _matrix(column: Any, length: int) -> ByteRows:
    """Return a column of byte strings of one length as rows of bytes, without making an object of each."""
    if not len(column):
        return _rows([], length)
    _, offsets, data = column.buffers()
    first = int(np.frombuffer(offsets, dtype=np.int64)[column.offset])
    flat = np.frombuffer(data, dtype=np.uint8)[first : first + len(column) * length]
    return flat.reshape(len(column), length)
