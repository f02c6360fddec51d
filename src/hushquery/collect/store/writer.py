"""Group commit: many uploads, one durable transaction, and each is answered only after it.

Handlers hand over what they have checked and wait. One thread takes all that has gathered, writes it in one
transaction and wakes those who wait, so that the price of a durable commit is shared. The queue is bounded: what does
not fit is refused at once. Whoever waited when the store failed is told that nothing is certain, and sends the same
bytes again.

Several processes may write to one PostgreSQL. An id is inserted if it is new, else what is there is compared: the
database decides which of two equals came first. Rows are written in the order of their random ids, so that no two
processes wait for each other in a circle, and the rows of a group do not tell in which order or with whom they came.
The epoch's row is held for reading until the commit, so that an epoch does not close over a report that is being
written.

SQLite's write-ahead log keeps one group after the other, so it is emptied every fifth of a second in which something
was written.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hushquery.collect.epochs.epochs import PHASES, REPORTS_OPEN, holds_reports
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.deadlines import within
from hushquery.collect.store.schema import COUNTER, EPOCH, KNOWN, reports_table
from hushquery.collect.store.store import Store, StoreFull
from hushquery.errors import HushqueryError, Unavailable

__all__ = ["ACCEPTED", "NO_TASK", "REPEATED", "Arrival", "Writer", "add_counts", "counts", "write_reports"]

#: The outcome of a report that is new and now durable.
ACCEPTED = "accepted"

#: The outcome of a report that was there already, with the same bytes.
REPEATED = "repeated"

#: The number under which is counted what belongs to no task; tasks are numbered from 1.
NO_TASK = 0

# The most reports in one transaction: enough to make its price small, few enough to answer soon.
_MOST_AT_ONCE = 2000
# How often counters are written when no reports come.
_FLUSH_SECONDS = 1.0
# How often SQLite's write-ahead log is emptied while something is written.
_SHORTEN_SECONDS = 0.2
# How often the size of a PostgreSQL store is looked at.
_SIZE_SECONDS = 5.0
_SLOTS = 16
# The phases that come before reports are taken.
_EARLY = PHASES[: PHASES.index(REPORTS_OPEN)]


_INSERT_ONE = 'INSERT INTO "{}" (id, data) VALUES (?, ?) ON CONFLICT DO NOTHING'
_INSERT_MANY = (
    'INSERT INTO "{}" (id, data) SELECT * FROM unnest(%s::bytea[], %s::bytea[]) ON CONFLICT DO NOTHING RETURNING id'
)
_PHASE = (
    sa.select(EPOCH.c.phase, EPOCH.c.moving, EPOCH.c.scrubbed)
    .where(EPOCH.c.task == sa.bindparam("of_task"), EPOCH.c.number == sa.bindparam("of_number"))
    .with_for_update(read=True)
)


def _add_to_counter(insert: Any) -> Any:
    statement = insert(COUNTER)
    return statement.on_conflict_do_update(
        index_elements=["task", "reason", "slot"], set_={"count": COUNTER.c.count + statement.excluded.count}
    )


_ADD = {"sqlite": _add_to_counter(sqlite.insert), "postgresql": _add_to_counter(postgresql.insert)}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A report that was checked and may be written.

    Args:
        task: The task's number in the store.
        epoch: The period it belongs to.
        id: Its id.
        data: Its bytes.
    """

    task: int
    epoch: int
    id: bytes
    data: bytes

    @property
    def key(self) -> tuple[int, int, bytes]:
        """What two arrivals of one report have in common; its time, and so its epoch, is in its bytes."""
        return self.task, self.epoch, self.id


@dataclass(slots=True, eq=False)
class _Waiting:
    arrivals: Sequence[Arrival]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[str]]


class Writer:
    """The one thread of a process that writes reports.

    Args:
        store: The store.
        most_waiting: How many reports may wait.
        seconds: How long each may wait to be written.
    """

    def __init__(self, store: Store, most_waiting: int = 20_000, seconds: float = 6.0) -> None:
        self._store = store
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._waiting = 0
        self._refused: Counter[tuple[int, str]] = Counter()
        self._closing = False
        self._slot = secrets.randbelow(_SLOTS)
        self._measured, self._full = 0.0, False
        self._shortened, self._log_grew = 0.0, False
        self._thread = threading.Thread(target=self._run, name="hushquery-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many reports wait now."""
        return self._waiting

    async def write(self, arrivals: Sequence[Arrival]) -> list[str]:
        """Write reports durably; gives the outcome of each, or raises and then promises nothing.

        Raises:
            Refusal: The queue is full.
            Unavailable: The store can't be written, or not in time.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        with self._changed:
            if self._closing:
                raise Unavailable("the collector is being shut down", fix="Send it again later")
            if self._waiting + len(arrivals) > self._most_waiting:
                raise refuse("busy")
            self._waiting += len(arrivals)
            mine = _Waiting(arrivals, loop, future)
            self._queue.append(mine)
            self._changed.notify()
        try:
            return await asyncio.wait_for(future, self._seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._give_up(mine)
            if isinstance(error, TimeoutError):
                raise Unavailable("the store does not answer in time", fix="Send it again later") from None
            raise

    def _give_up(self, mine: _Waiting) -> None:
        """Take out of the queue what nobody waits for any more, because it was too late or the client went away."""
        with self._changed, suppress(ValueError):  # the thread has it, or had
            self._queue.remove(mine)
            self._waiting -= len(mine.arrivals)

    def count(self, task: int, reasons: Iterable[str]) -> None:
        """Count outcomes that need no writing; the counts are written with what comes next."""
        with self._changed:
            self._refused.update((task, reason) for reason in reasons)

    def close(self) -> None:
        """Write all that waits, then stop; a call that does not come back is left behind."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(2 * self._seconds)

    # ---- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._closing:
                    self._changed.wait(_SHORTEN_SECONDS if self._log_grew else _FLUSH_SECONDS)
                group = self._take()
                refused, self._refused = self._refused, Counter()
                ending = self._closing and not self._queue
            if group or refused:
                self._write_group(group, refused)
                self._log_grew = self._store.path is not None
            self._shorten_log()
            if ending:
                return

    def _shorten_log(self) -> None:
        """Empty SQLite's log now and then; where somebody reads in it, or the store is away, the next time will do."""
        if self._log_grew and time.monotonic() - self._shortened >= _SHORTEN_SECONDS:
            with suppress(Exception):  # whatever it is, nobody may wait for ever because this thread ended
                self._log_grew = not self._store.shorten_log()
            self._shortened = time.monotonic()

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        number = 0
        while self._queue and (not group or number + len(self._queue[0].arrivals) <= _MOST_AT_ONCE):
            group.append(self._queue.popleft())
            number += len(group[-1].arrivals)
        return group

    def _write_group(self, group: list[_Waiting], refused: Counter[tuple[int, str]]) -> None:
        arrivals = [arrival for waiting in group for arrival in waiting.arrivals]
        answer: list[str] | HushqueryError
        try:
            with within(self._seconds):
                self._check_size()
                with self._store.write() as connection:
                    answer = write_reports(connection, arrivals)
                    total = refused + Counter(zip((one.task for one in arrivals), answer, strict=True))
                    add_counts(connection, total, self._slot)
        except HushqueryError as error:
            answer = error
        except Exception:  # whatever it was, nobody may wait for ever, and nobody may be told that it is written
            answer = Unavailable("the store can't be written")
        if not isinstance(answer, HushqueryError) and ACCEPTED in answer:
            self._store.tally.took()
        with self._changed:
            self._waiting -= len(arrivals)
            if isinstance(answer, HushqueryError):
                self._refused.update(refused)
        _wake(group, answer)

    def _check_size(self) -> None:
        """Refuse to fill a PostgreSQL store beyond its limit; SQLite watches its own."""
        if self._store.most_bytes is None or self._store.path is not None:
            return
        if time.monotonic() - self._measured > _SIZE_SECONDS:
            self._full = self._store.size() >= self._store.most_bytes
            self._measured = time.monotonic()
        if self._full:
            self._store.tally.failed(full=True)
            raise StoreFull(f"the store {self._store.name} has reached its size limit")


def _wake(group: list[_Waiting], answer: list[str] | HushqueryError) -> None:
    """Answer all who waited, with one call into each event loop."""
    answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[list[str]], Any]]] = {}
    at = 0
    for waiting in group:
        mine = answer if isinstance(answer, HushqueryError) else answer[at : at + len(waiting.arrivals)]
        at += len(waiting.arrivals)
        answers.setdefault(waiting.loop, []).append((waiting.future, mine))
    for loop, pairs in answers.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, pairs)


def _settle(pairs: list[tuple[asyncio.Future[list[str]], Any]]) -> None:
    for future, answer in pairs:
        if future.done():  # the client went away
            continue
        if isinstance(answer, HushqueryError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


# ---- inside one transaction --------------------------------------------------------------------------------


def write_reports(connection: sa.Connection, arrivals: Sequence[Arrival]) -> list[str]:
    """Write what is new and give the outcome of each report, in their order."""
    first: dict[tuple[int, int, bytes], Arrival] = {}
    for one in arrivals:
        first.setdefault(one.key, one)
    places: dict[tuple[int, int], tuple[str, bool]] = {}
    new: set[tuple[int, int, bytes]] = set()
    known: dict[tuple[int, int, bytes], bytes | None] = {}
    # All epochs first, and only then their reports: whoever erases those holds the epoch as well, in the same order.
    for task, epoch in sorted({(one.task, one.epoch) for one in arrivals}):
        places[task, epoch] = _place(connection, task, epoch)
    for (task, epoch), (reason, holds) in places.items():
        mine = sorted((one for one in first.values() if (one.task, one.epoch) == (task, epoch)), key=lambda one: one.id)
        table = reports_table(task, epoch)
        inserted = _insert(connection, table, mine) if reason == ACCEPTED else set()
        new |= {(task, epoch, report_id) for report_id in inserted}
        others = [one.id for one in mine if one.id not in inserted]
        there = _known(connection, task, epoch, table if holds else None, others)
        known |= {(task, epoch, report_id): data for report_id, data in there.items()}
    outcomes = []
    for one in arrivals:
        if one.key in new and first[one.key] is one:
            outcomes.append(ACCEPTED)
        elif one.key in new or one.key in known:
            data = first[one.key].data if one.key in new else known[one.key]
            # Of what was counted and erased only the id is known.
            outcomes.append(REPEATED if data in (None, one.data) else "other-bytes")
        else:
            # Neither inserted nor there: its epoch takes none, and that is the reason.
            reason, _ = places[one.task, one.epoch]
            outcomes.append(reason if reason != ACCEPTED else "unavailable")
    return outcomes


def _place(connection: sa.Connection, task: int, epoch: int) -> tuple[str, bool]:
    """Say what becomes of an epoch's new reports, and whether it has a table of them; it stays so until the commit."""
    row = connection.execute(_PHASE, {"of_task": task, "of_number": epoch}).one_or_none()
    if row is None:
        return "phase-over", False
    holds = holds_reports(row.phase, scrubbed=row.scrubbed)
    if row.phase == REPORTS_OPEN and row.moving is None:
        return ACCEPTED, holds
    return "too-early" if row.phase in _EARLY else "phase-over", holds


def _insert(connection: sa.Connection, table: sa.Table, arrivals: Sequence[Arrival]) -> set[bytes]:
    """Insert the reports whose ids are new, and give these.

    This is the one place where speed decides how many reports a collector takes, so it speaks to the drivers.
    """
    rows = [(one.id, one.data) for one in arrivals]
    if connection.dialect.name == "sqlite":
        statement = _INSERT_ONE.format(table.name)
        cursor: sqlite3.Cursor = connection.connection.cursor()  # type: ignore[assignment]
        try:
            return {row[0] for row in rows if cursor.execute(statement, row).rowcount == 1}
        finally:
            cursor.close()
    # A column of each becomes an array, so that one short statement inserts them all.
    columns = tuple(list(column) for column in zip(*rows, strict=True))
    return {bytes(row[0]) for row in connection.exec_driver_sql(_INSERT_MANY.format(table.name), columns)}


def _known(
    connection: sa.Connection, task: int, epoch: int, table: sa.Table | None, ids: Sequence[bytes]
) -> dict[bytes, bytes | None]:
    """Give what is there under some ids: the report, or None where it was counted and erased."""
    found: dict[bytes, bytes | None] = {}
    if ids and table is not None:
        for report_id, data in connection.execute(sa.select(table).where(table.c.id.in_(ids))):
            found[bytes(report_id)] = bytes(data)
    if rest := [one for one in ids if one not in found]:
        counted = sa.select(KNOWN.c.id).where(KNOWN.c.task == task, KNOWN.c.epoch == epoch, KNOWN.c.id.in_(rest))
        found |= dict.fromkeys(map(bytes, connection.execute(counted).scalars()))
    return found


def add_counts(connection: sa.Connection, counted: Mapping[tuple[int, str], int], slot: int) -> None:
    """Add to the counters of tasks and reasons."""
    if not counted:
        return
    rows = [
        {"task": task, "reason": reason, "slot": slot, "count": number}
        for (task, reason), number in sorted(counted.items())
    ]
    connection.execute(_ADD[connection.dialect.name], rows)


def counts(store: Store) -> dict[tuple[int, str], int]:
    """Give how many uploads of each task ended how."""
    query = sa.select(COUNTER.c.task, COUNTER.c.reason, sa.func.sum(COUNTER.c.count)).group_by(
        COUNTER.c.task, COUNTER.c.reason
    )
    with store.read() as connection:
        return {(task, reason): int(number) for task, reason, number in connection.execute(query)}
