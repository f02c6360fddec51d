"""Counting reports: each is checked, counted once, and forgotten; what is left are integers.

Reports of one configuration have one length, so headers are compared as columns of many reports at once. Whatever does
not pass is looked at alone, for its kind of error, and counted by that; nothing of it is kept or shown.

A client answers in each period of a task, so answers of several periods tell more about it than those of one. By
default one period is counted: the one that is asked for, or the one that most good reports are from. The choice is
known only at the end, so until then the good reports wait in a temporary file.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from hushquery.errors import DataError
from hushquery.local.configuration import Configuration
from hushquery.local.oracles.oracle import IntArray
from hushquery.local.report import (
    HEADER_BYTES,
    VERSION,
    Report,
    ReportError,
    ReportOfAnotherPeriod,
    ReportOutOfDomain,
)
from hushquery.local.server.files import Block

__all__ = ["CONFLICT", "Periods", "ReportCount"]

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


@dataclass
class ReportCount:
    """What was read and what it adds up to. Counts of shards add up if no report is in two of them.

    Args:
        configuration: Which reports are good.
        asked: Which periods are counted. With ``most`` everything waits until :meth:`close` has chosen: the period that
            most good reports are from; of equally many, the latest.
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
        """Count what has waited: the reports of the period that most are from. The others are refused.

        Args:
            chosen: Where this is a shard of a larger count: the period that most reports of all shards are from.
        """
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

    def _blocks(self, file: IO[bytes]) -> Iterator[npt.NDArray[np.uint8]]:
        file.seek(0)
        while data := file.read(_WAITING_ROWS * self.length):
            yield np.frombuffer(data, dtype=np.uint8).reshape(-1, self.length)

    def _count(self, rows: npt.NDArray[np.uint8], answers: npt.NDArray[Any]) -> None:
        self.support += self.configuration.channel.support(answers)
        self.n += len(rows)
        self.periods.update(self._counted(rows))

    def _headers(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Say which rows have the header of this configuration."""
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

    def _of_period(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Give the rows of the period that was asked for; the others are refused."""
        if isinstance(self.asked, str):
            return rows
        mine: npt.NDArray[np.bool_] = self._numbers(rows) == self.asked
        if not mine.all():
            self.refused[_ANOTHER_PERIOD] += int((~mine).sum())
        found: npt.NDArray[np.uint8] = rows[mine]
        return found

    def _unpacked(self, rows: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
        """Give the rows whose payload the mechanism can have made, and what they say."""
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
        """Count a bad report by its kind of error."""
        try:
            Report.from_bytes(data).open(self.configuration)
        except ReportError as error:
            self.refused[type(error).__name__] += 1
        else:
            raise AssertionError("a good report did not pass the check of many")

    def _counted(self, rows: npt.NDArray[np.uint8]) -> dict[int, int]:
        """Say how many rows are of each period."""
        numbers, counts = np.unique(self._numbers(rows), return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def _numbers(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
        """Number the period of each row; a task without periods has one, 0."""
        period = self.configuration.task.task.period
        return np.zeros(len(rows), dtype=np.uint64) if period is None else _times(rows) // np.uint64(period)


def _times(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, _TIME]).view(">u8").astype(np.uint64).reshape(len(rows))


class _Seen:
    """The ids of the reports that were counted, in 24 bytes each: the id's two halves, and a mark of the whole report.

    Sorted runs of falling sizes, so that looking up and adding take few steps however many there are.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []
        # The mark is a hash with a secret key: nobody can make two reports that share it.
        self._key = np.empty(0, dtype=np.uint64)

    def add(self, rows: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.intp], int, int]:
        """Say which rows have a new id, how many are a known report again, and how many use a known id for another."""
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

    def _entries(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
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
    """Say which ids are in a sorted run, and take over the mark that they have there."""
    start = np.searchsorted(run[0], ids[0], side="left")
    end = np.searchsorted(run[0], ids[0], side="right")
    found = np.zeros(ids.shape[1], dtype=np.bool_)
    for i in np.flatnonzero(end > start):  # only ids that were seen, or were made to look like one
        place = start[i] + np.searchsorted(run[1, start[i] : end[i]], ids[1, i])
        if place < end[i] and run[1, place] == ids[1, i]:
            found[i], ids[2, i] = True, run[2, place]
    return found
