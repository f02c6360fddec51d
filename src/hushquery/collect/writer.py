"""Group commit: many uploads, one durable transaction, and each is answered only after it.

Handlers hand over what they have checked and wait. One thread takes all that has gathered, writes it in one
transaction and wakes those who wait, so that the price of a durable commit is shared. The queue is bounded: what does
not fit is refused at once. Whoever waited when the store failed is told that nothing is certain, and sends the same
bytes again.

Several processes may write to one PostgreSQL. An id is inserted if it is new, else what is there is compared: the
database decides which of two equals came first. Rows are written in the order of their keys, so that no two
processes wait for each other in a circle. The epoch's row is held for reading until the commit, so that an epoch does
not close over a report that is being written.
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

from hushquery.collect.deadlines import within
from hushquery.collect.epochs import PHASES, REPORTS_OPEN
from hushquery.collect.problems import refuse
from hushquery.collect.schema import COUNTER, EPOCH, REPORT
from hushquery.collect.store import Store, StoreFull
from hushquery.errors import HushqueryError, Unavailable

__all__ = ["ACCEPTED", "REPEATED", "Arrival", "Writer", "add_counts", "counts", "write_reports"]

#: The outcome of a report that is new and now durable.
ACCEPTED = "accepted"

#: The outcome of a report that was there already, with the same bytes.
REPEATED = "repeated"

# The most reports in one transaction: enough to make its price small, few enough to answer soon.
_MOST_AT_ONCE = 2000
# How often counters are written when no reports come.
_FLUSH_SECONDS = 1.0
# How often the size of a PostgreSQL store is looked at.
_SIZE_SECONDS = 5.0
_SLOTS = 16
# The phases that come before reports are taken.
_EARLY = PHASES[: PHASES.index(REPORTS_OPEN)]


_INTO = f"INSERT INTO {REPORT.name} (task, id, epoch, sha256, data, received)"
_INSERT_ONE = f"{_INTO} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_ARRAYS = "%s::int[], %s::bytea[], %s::bigint[], %s::bytea[], %s::bytea[], %s::bigint[]"
_INSERT_MANY = f"{_INTO} SELECT * FROM unnest({_ARRAYS}) ON CONFLICT DO NOTHING RETURNING task, id"  # noqa: S608 -- names of ours
_PHASE = (
    sa.select(EPOCH.c.phase, EPOCH.c.moving)
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
        sha256: The hash of its bytes.
        data: Its bytes.
        received: When it came, as coarse as the task's times.
    """

    task: int
    epoch: int
    id: bytes
    sha256: bytes
    data: bytes
    received: int


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
                    self._changed.wait(_FLUSH_SECONDS)
                group = self._take()
                refused, self._refused = self._refused, Counter()
                ending = self._closing and not self._queue
            if group or refused:
                self._write_group(group, refused)
            if ending:
                return

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
    if not arrivals:
        return []
    phases = _phases(connection, {(one.task, one.epoch) for one in arrivals})
    first: dict[tuple[int, bytes], Arrival] = {}
    for one in arrivals:
        first.setdefault((one.task, one.id), one)
    fitting = sorted(
        (one for one in first.values() if phases.get((one.task, one.epoch)) == ACCEPTED),
        key=lambda one: (one.task, one.id),
    )
    new = _insert(connection, fitting)
    known = _known(connection, [key for key in first if key not in new])
    outcomes = []
    for one in arrivals:
        key = (one.task, one.id)
        if key in new and first[key] is one:
            outcomes.append(ACCEPTED)
        elif key in new or key in known:
            there = first[key].sha256 if key in new else known[key]
            outcomes.append(REPEATED if there == one.sha256 else "other-bytes")
        else:
            # Neither inserted nor there: its epoch takes none, and that is the reason.
            reason = phases.get((one.task, one.epoch), "phase-over")
            outcomes.append(reason if reason != ACCEPTED else "unavailable")
    return outcomes


def _phases(connection: sa.Connection, keys: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Say of each epoch what becomes of its new reports, and keep the epochs from moving until the commit."""
    found = {}
    for task, number in sorted(keys):
        row = connection.execute(_PHASE, {"of_task": task, "of_number": number}).one_or_none()
        if row is None:
            continue
        if row.phase == REPORTS_OPEN and row.moving is None:
            found[task, number] = ACCEPTED
        else:
            found[task, number] = "too-early" if row.phase in _EARLY else "phase-over"
    return found


def _insert(connection: sa.Connection, arrivals: Sequence[Arrival]) -> set[tuple[int, bytes]]:
    """Insert the reports whose ids are new, and give their keys.

    This is the one place where speed decides how many reports a collector takes, so it speaks to the drivers.
    """
    if not arrivals:
        return set()
    rows = [(one.task, one.id, one.epoch, one.sha256, one.data, one.received) for one in arrivals]
    if connection.dialect.name == "sqlite":
        cursor: sqlite3.Cursor = connection.connection.cursor()  # type: ignore[assignment]
        try:
            return {(row[0], row[1]) for row in rows if cursor.execute(_INSERT_ONE, row).rowcount == 1}
        finally:
            cursor.close()
    # A column of each becomes an array, so that one short statement inserts them all.
    inserted = connection.exec_driver_sql(_INSERT_MANY, tuple(list(column) for column in zip(*rows, strict=True)))
    return {(task, bytes(report_id)) for task, report_id in inserted}


def _known(connection: sa.Connection, keys: Sequence[tuple[int, bytes]]) -> dict[tuple[int, bytes], bytes]:
    found = {}
    for task in sorted({task for task, _ in keys}):
        ids = [report_id for number, report_id in keys if number == task]
        query = sa.select(REPORT.c.id, REPORT.c.sha256).where(REPORT.c.task == task, REPORT.c.id.in_(ids))
        for report_id, digest in connection.execute(query):
            found[task, bytes(report_id)] = bytes(digest)
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
