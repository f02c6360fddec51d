"""Reports in the store: written in groups, mixed while they wait, and erased once they are counted.

One thread writes all that has gathered in one transaction, so that the cost of a durable commit is shared. Rows are
written in the order of their random ids, so that processes don't deadlock and a group doesn't reveal its order. The
epoch's row is share-locked until the commit: an epoch can't close over a report that is being written.

Pages, transactions and SQLite's write-ahead log reveal what came together, and when. So the log is emptied every fifth
of a second, the table of an open epoch is rewritten now and then, and a counted one is emptied as a whole: deleted rows
would remain in PostgreSQL's files.
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

from hushquery.collect.epochs.epochs import PHASES, REPORTS_OPEN, Epoch, holds_reports
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.databases import within
from hushquery.collect.store.schema import COUNTER, EPOCH, KNOWN, reports_table
from hushquery.collect.store.store import Store, StoreFull
from hushquery.errors import HushqueryError, Unavailable

ACCEPTED = "accepted"  #: The outcome of a report that is new and now durable.
REPEATED = "repeated"  #: The outcome of a report that was stored already, with the same bytes.
NO_TASK = 0  #: The row under which things that belong to no task are counted; rows of tasks begin at 1.
_GROUP = 2000  # the most reports in one transaction: enough to make its cost small, few enough to answer soon
_FLUSH_SECONDS = 1.0  # how often counters are written when no reports come
_SHORTEN_SECONDS = 0.2  # how often SQLite's write-ahead log is emptied while something is written
_SIZE_SECONDS = 5.0  # how often the size of a PostgreSQL store is checked
_SLOTS = 16
_EARLY = PHASES[: PHASES.index(REPORTS_OPEN)]  # the phases that come before reports are taken
_BLOCK = 2000  # SQLite's rows are moved or deleted in transactions of so many; each frees more room than it takes
_NEW_SHARE = 8  # a table is rewritten when one in so many of its reports is new
_MOST_MIXED = 100_000  # larger tables are not: uploads wait meanwhile

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
    """A report that was checked and may be written, with its task's row and its epoch's number."""

    task_row: int
    epoch: int
    id: bytes
    data: bytes

    @property
    def key(self) -> tuple[int, int, bytes]:
        """What two arrivals of the same report share."""
        return self.task_row, self.epoch, self.id


@dataclass(slots=True, eq=False)
class _Waiting:
    arrivals: Sequence[Arrival]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[str]]


class Writer:
    """The thread of a process that writes reports: at most ``most_waiting`` wait, each at most so many seconds."""

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
        """How many reports are waiting."""
        return self._waiting

    async def write(self, arrivals: Sequence[Arrival]) -> list[str]:
        """Write reports durably and return the outcome of each; an error, as of a full queue, promises nothing."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        with self._changed:
            if self._closing:
                raise Unavailable("the collector is being shut down", fix="Send it again later")
            if self._waiting + len(arrivals) > self._most_waiting:
                raise refuse("busy")
            self._waiting += len(arrivals)
            entry = _Waiting(arrivals, loop, future)
            self._queue.append(entry)
            self._changed.notify()
        try:
            return await asyncio.wait_for(future, self._seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._give_up(entry)
            if isinstance(error, TimeoutError):
                raise Unavailable("the store does not answer in time", fix="Send it again later") from None
            raise

    def _give_up(self, entry: _Waiting) -> None:
        with self._changed, suppress(ValueError):  # the thread has taken it
            self._queue.remove(entry)
            self._waiting -= len(entry.arrivals)

    def count(self, task_row: int, reasons: Iterable[str]) -> None:
        """Count outcomes of what is not stored; the counts are written with the next group."""
        with self._changed:
            self._refused.update((task_row, reason) for reason in reasons)

    def close(self) -> None:
        """Write all that waits, then stop; a call into the store that hangs is abandoned."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(2 * self._seconds)

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
        """Empty SQLite's log now and then; where it is being read or the store is away, the next time will do."""
        if self._log_grew and time.monotonic() - self._shortened >= _SHORTEN_SECONDS:
            with suppress(Exception):  # this thread must never end
                self._log_grew = not self._store.shorten_log()
            self._shortened = time.monotonic()

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._queue and (not group or size + len(self._queue[0].arrivals) <= _GROUP):
            group.append(self._queue.popleft())
            size += len(group[-1].arrivals)
        return group

    def _write_group(self, group: list[_Waiting], refused: Counter[tuple[int, str]]) -> None:
        arrivals = [arrival for waiting in group for arrival in waiting.arrivals]
        answer: list[str] | HushqueryError
        try:
            with within(self._seconds):
                self._check_size()
                with self._store.write() as connection:
                    answer = write_reports(connection, arrivals)
                    total = refused + Counter(zip((one.task_row for one in arrivals), answer, strict=True))
                    add_counts(connection, total, self._slot)
        except HushqueryError as error:
            answer = error
        except Exception:  # whatever it was, nobody may wait for ever or be told that it is written
            answer = Unavailable("the store can't be written")
        if not isinstance(answer, HushqueryError) and ACCEPTED in answer:
            self._store.failures.accepted()
        with self._changed:
            self._waiting -= len(arrivals)
            if isinstance(answer, HushqueryError):
                self._refused.update(refused)
        _wake(group, answer)

    def _check_size(self) -> None:
        """Refuse to fill a PostgreSQL store beyond its limit; SQLite enforces its own."""
        if self._store.most_bytes is None or self._store.path is not None:
            return
        if time.monotonic() - self._measured > _SIZE_SECONDS:
            self._full = self._store.size() >= self._store.most_bytes
            self._measured = time.monotonic()
        if self._full:
            self._store.failures.failed(full=True)
            raise StoreFull(f"the store {self._store.name} has reached its size limit")


def _wake(group: list[_Waiting], answer: list[str] | HushqueryError) -> None:
    """Answer all that waited, with one call into each event loop."""
    answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[list[str]], Any]]] = {}
    at = 0
    for waiting in group:
        part = answer if isinstance(answer, HushqueryError) else answer[at : at + len(waiting.arrivals)]
        at += len(waiting.arrivals)
        answers.setdefault(waiting.loop, []).append((waiting.future, part))
    for loop, pairs in answers.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, pairs)


def _settle(pairs: list[tuple[asyncio.Future[list[str]], Any]]) -> None:
    for future, answer in pairs:
        if future.done():  # the client went away
            continue
        if isinstance(answer, HushqueryError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def write_reports(connection: sa.Connection, arrivals: Sequence[Arrival]) -> list[str]:
    """Write new reports and return the outcome of each, in their order."""
    first: dict[tuple[int, int, bytes], Arrival] = {}
    for one in arrivals:
        first.setdefault(one.key, one)
    places: dict[tuple[int, int], tuple[str, bool]] = {}
    new: set[tuple[int, int, bytes]] = set()
    known: dict[tuple[int, int, bytes], bytes | None] = {}
    # All epochs first, then their reports: erasing takes its locks in the same order.
    for key in sorted({(one.task_row, one.epoch) for one in arrivals}):
        places[key] = _place(connection, *key)
    for key, (reason, holds) in places.items():
        mine = sorted((one for one in first.values() if (one.task_row, one.epoch) == key), key=lambda one: one.id)
        table = reports_table(*key)
        inserted = _insert(connection, table, mine) if reason == ACCEPTED else set()
        new |= {(*key, report_id) for report_id in inserted}
        others = [one.id for one in mine if one.id not in inserted]
        stored = _stored(connection, key, table if holds else None, others)
        known |= {(*key, report_id): data for report_id, data in stored.items()}
    outcomes = []
    for one in arrivals:
        if one.key in new and first[one.key] is one:
            outcomes.append(ACCEPTED)
        elif one.key in new or one.key in known:
            data = first[one.key].data if one.key in new else known[one.key]
            # Of a report that was counted and erased only the id is known.
            outcomes.append(REPEATED if data in (None, one.data) else "other-bytes")
        else:
            # Neither inserted nor stored: its epoch takes none.
            reason, _ = places[one.task_row, one.epoch]
            outcomes.append(reason if reason != ACCEPTED else "unavailable")
    return outcomes


def _place(connection: sa.Connection, task_row: int, epoch: int) -> tuple[str, bool]:
    """Return the outcome of new reports of an epoch, and whether it has a table of them, until the commit."""
    row = connection.execute(_PHASE, {"of_task": task_row, "of_number": epoch}).one_or_none()
    if row is None:
        return "phase-over", False
    holds = holds_reports(row.phase, scrubbed=row.scrubbed)
    if row.phase == REPORTS_OPEN and row.moving is None:
        return ACCEPTED, holds
    return "too-early" if row.phase in _EARLY else "phase-over", holds


def _insert(connection: sa.Connection, table: sa.Table, arrivals: Sequence[Arrival]) -> set[bytes]:
    """Insert the reports whose ids are new, and return these ids; uses the drivers directly, for throughput."""
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


def _stored(
    connection: sa.Connection, key: tuple[int, int], table: sa.Table | None, ids: Sequence[bytes]
) -> dict[bytes, bytes | None]:
    """Return the reports that an epoch has under some ids, None where one was counted and erased."""
    stored: dict[bytes, bytes | None] = {}
    if ids and table is not None:
        for report_id, data in connection.execute(sa.select(table).where(table.c.id.in_(ids))):
            stored[bytes(report_id)] = bytes(data)
    if rest := [one for one in ids if one not in stored]:
        counted = sa.select(KNOWN.c.id).where(KNOWN.c.task == key[0], KNOWN.c.epoch == key[1], KNOWN.c.id.in_(rest))
        stored |= dict.fromkeys(map(bytes, connection.execute(counted).scalars()))
    return stored


def add_counts(connection: sa.Connection, counted: Mapping[tuple[int, str], int], slot: int) -> None:
    """Add to the counters of tasks and reasons."""
    if not counted:
        return
    rows = [
        {"task": task_row, "reason": reason, "slot": slot, "count": count}
        for (task_row, reason), count in sorted(counted.items())
    ]
    connection.execute(_ADD[connection.dialect.name], rows)


def counts(store: Store) -> dict[tuple[int, str], int]:
    """Return how many uploads of each task (by row) ended how."""
    columns = (COUNTER.c.task, COUNTER.c.reason)
    query = sa.select(*columns, sa.func.sum(COUNTER.c.count)).group_by(*columns)
    with store.read() as connection:
        return {(task_row, reason): int(count) for task_row, reason, count in connection.execute(query)}


def make_reports(connection: sa.Connection, task_row: int, epoch: int) -> None:
    """Create the table of an epoch that opens, in the same transaction, replacing what a restored backup left."""
    table = reports_table(task_row, epoch)
    table.drop(connection, checkfirst=True)
    table.create(connection)


def mix(store: Store, epoch: Epoch) -> None:
    """Rewrite the reports of an open epoch in the order of their ids, if an eighth of them are new.

    Until then a request written alone can be recognised by its transaction. Tables of over 100,000 rows stay.
    """
    table, here = reports_table(epoch.task_row, epoch.number), row_of(epoch)
    accepted = sa.select(sa.func.coalesce(sa.func.sum(COUNTER.c.count), 0)).where(
        COUNTER.c.task == epoch.task_row, COUNTER.c.reason == "accepted"
    )
    query = sa.select(EPOCH.c.mixed, accepted.scalar_subquery().label("accepted")).where(*here)
    with store.read() as connection:
        before = connection.execute(query).one()
        new = int(before.accepted) - (before.mixed or 0)
        if not new:
            return
        rows = int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
    if not 1 < rows <= min(_MOST_MIXED, _NEW_SHARE * new):
        return
    with store.write() as connection:
        _wait_briefly(connection)
        now = connection.execute(sa.select(EPOCH.c.mixed, EPOCH.c.phase, EPOCH.c.moving).where(*here).with_for_update())
        row = now.one()
        if (row.mixed, row.phase, row.moving) != (before.mixed, epoch.phase, None):
            return  # another server has rewritten or is closing it
        _rewrite(connection, table)
        connection.execute(sa.update(EPOCH).where(*here).values(mixed=int(before.accepted)))
    store.shorten_log()
    store.vacuum(table)


def keep_ids(store: Store, epoch: Epoch) -> None:
    """Erase the reports of a closed epoch except for their ids; may be called any number of times."""
    try:
        _move_ids(store, epoch)
    except StoreFull:
        if store.path is not None:
            raise
        _erase_first(store, epoch)


def _erase_first(store: Store, epoch: Epoch) -> None:
    """Erase on a full PostgreSQL, whose disk has no room for the ids before the reports are gone.

    A crash in between loses ids: no report is counted twice, but a client that resends one is told the epoch is over.
    """
    table = reports_table(epoch.task_row, epoch.number)
    with store.write(frees=True) as connection:
        _wait_briefly(connection)
        connection.exec_driver_sql(f'LOCK TABLE "{table.name}" IN ACCESS EXCLUSIVE MODE')
        ids = connection.execute(sa.select(table.c.id).order_by(table.c.id)).scalars().all()
        connection.exec_driver_sql(f'TRUNCATE "{table.name}"')
    for at in range(0, len(ids), _BLOCK):
        rows = [{"task": epoch.task_row, "epoch": epoch.number, "id": one} for one in ids[at : at + _BLOCK]]
        with store.write(frees=True) as connection:
            connection.execute(sa.insert(KNOWN), rows)


def _move_ids(store: Store, epoch: Epoch) -> None:
    table = reports_table(epoch.task_row, epoch.number)
    columns = [sa.literal(epoch.task_row), sa.literal(epoch.number), table.c.id]
    while True:
        with store.write(frees=True) as connection:
            chosen = sa.select(*columns).order_by(table.c.id)
            _wait_briefly(connection)
            if store.path is None:
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # nobody waits for this
                connection.exec_driver_sql(f'LOCK TABLE "{table.name}" IN ACCESS EXCLUSIVE MODE')
                connection.execute(sa.insert(KNOWN).from_select(KNOWN.c.keys(), chosen))
                connection.exec_driver_sql(f'TRUNCATE "{table.name}"')
                return
            rows = connection.execute(chosen.limit(_BLOCK)).all()
            if rows:
                connection.execute(sa.delete(table).where(table.c.id <= rows[-1].id))
                connection.execute(sa.insert(KNOWN), [dict(zip(KNOWN.c.keys(), row, strict=True)) for row in rows])
            if len(rows) < _BLOCK:
                # Remnants in its last page go with the page.
                table.drop(connection)
                table.create(connection)
                return
        store.shorten_log()  # the next block needs no more room than this one


def drop_reports(store: Store, epoch: Epoch) -> None:
    """Drop the table of an epoch whose reports are erased, and record that they are."""
    with store.write(frees=True) as connection:
        _wait_briefly(connection)
        # The epoch first, as in write_reports.
        connection.execute(sa.update(EPOCH).where(*row_of(epoch)).values(scrubbed=True))
        reports_table(epoch.task_row, epoch.number).drop(connection)


def forget_ids(store: Store, epoch: Epoch) -> None:
    """Delete the ids of an epoch, in short transactions."""
    mine = (KNOWN.c.task == epoch.task_row, KNOWN.c.epoch == epoch.number)
    while True:
        with store.write(frees=True) as connection:
            ids = connection.execute(sa.select(KNOWN.c.id).where(*mine).limit(_BLOCK)).scalars().all()
            connection.execute(sa.delete(KNOWN).where(*mine, KNOWN.c.id.in_(ids)))
        if len(ids) < _BLOCK:
            return


def _wait_briefly(connection: sa.Connection) -> None:
    """Give up soon where the reports are being read, as by a backup: uploads would queue behind this."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")


def row_of(epoch: Epoch) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the condition that selects the row of an epoch."""
    return EPOCH.c.task == epoch.task_row, EPOCH.c.number == epoch.number


def _rewrite(connection: sa.Connection, table: sa.Table) -> None:
    name = table.name
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f'CREATE TEMPORARY TABLE mixing ON COMMIT DROP AS TABLE "{name}"')
        # TRUNCATE would leave nothing of the old rows, but show an empty table to a pg_dump that began before it.
        connection.exec_driver_sql(f'DELETE FROM "{name}"')  # noqa: S608
        connection.exec_driver_sql(f'INSERT INTO "{name}" SELECT * FROM mixing ORDER BY id')  # noqa: S608
        return
    old = f"{name}_old"
    connection.exec_driver_sql(f'ALTER TABLE "{name}" RENAME TO "{old}"')
    table.create(connection)
    connection.exec_driver_sql(f'INSERT INTO "{name}" SELECT * FROM "{old}" ORDER BY id')  # noqa: S608
    connection.exec_driver_sql(f'DROP TABLE "{old}"')
