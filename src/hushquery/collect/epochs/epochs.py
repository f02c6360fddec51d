"""Tasks and epochs as the store knows them: which there are, where each stands, and the reports it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hushquery.collect.store.schema import EPOCH, TASK, reports_table
from hushquery.collect.store.store import Store
from hushquery.errors import DataError, UsageError
from hushquery.local.configuration import Configuration
from hushquery.task import Task

__all__ = [
    "CLOSED",
    "EXPIRED",
    "HEAD_PUBLISHED",
    "MOVES",
    "OPTIN_OPEN",
    "PHASES",
    "RELEASED",
    "REPORTS_OPEN",
    "Epoch",
    "count_reports",
    "epoch_row",
    "epochs_of",
    "holds_reports",
    "insert_new",
    "lock_name",
    "register",
    "registered",
    "reports_of",
    "standing",
    "tables_of_reports",
]

#: Users who opted in send records.
OPTIN_OPEN = "optin_open"
#: The head list is public; the records it was made of are gone.
HEAD_PUBLISHED = "head_published"
#: Everybody reports.
REPORTS_OPEN = "reports_open"
#: The reports are counted; none is taken any more.
CLOSED = "closed"
#: The estimates are public.
RELEASED = "released"
#: No head list that clients can use was made in its time: its opt-in records are destroyed, and nothing comes of it.
EXPIRED = "expired"

#: The phases in their order; an epoch whose opt-in nobody finished leaves it for `expired`.
PHASES = (OPTIN_OPEN, HEAD_PUBLISHED, REPORTS_OPEN, CLOSED, RELEASED)

#: The one move that each phase has, and the phase it leads to.
MOVES: Mapping[str, tuple[str, str]] = {
    OPTIN_OPEN: ("publish_head", HEAD_PUBLISHED),
    HEAD_PUBLISHED: ("open_reports", REPORTS_OPEN),
    REPORTS_OPEN: ("close", CLOSED),
    CLOSED: ("release", RELEASED),
}

# Reports are read in blocks of so many, each a short transaction.
_BLOCK = 4096


@dataclass(frozen=True)
class Epoch:
    """One epoch of a task as it stood when it was read.

    Args:
        task: The task.
        task_number: The task's number in the store.
        number: The period's number, 0 for a task without periods.
        phase: Where it stands.
        moving: The move that has begun and not ended; while there is one, nothing is taken any more.
        since: When it came to its phase.
        head: The published head list, where the task has no domain of its own.
        optin: What the opt-in records said, as the plan published it.
        counts: What the reports said, counted when they were closed.
        reports: How many reports were counted.
        checksum: The XOR of the SHA-256 of their ids: with the number it tells two sets of reports apart.
        release: The id of its release.
        trouble: Why the move that has begun could not end: what, why, fix, and when it was tried last.
        scrubbed: Whether payloads and opt-in records are gone.
        forgotten: Whether the ids are gone too.
    """

    task: Task
    task_number: int
    number: int
    phase: str
    moving: str | None
    since: int
    head: tuple[tuple[str, ...], ...] | None = None
    optin: Mapping[str, Any] | None = None
    counts: Mapping[str, Any] | None = None
    reports: int | None = None
    checksum: bytes | None = None
    release: str | None = None
    trouble: Mapping[str, Any] | None = None
    scrubbed: bool = False
    forgotten: bool = False

    @property
    def key(self) -> str:
        """Name the move that is under way: always the same for the same move, so that it is paid for once."""
        if self.moving is None:
            raise UsageError("the epoch is not moving, so there is nothing to pay for")
        return f"collect:{self.task.id}:{self.number}:{self.moving}"

    @property
    def takes_reports(self) -> bool:
        """Whether reports are counted now."""
        return self.phase == REPORTS_OPEN and self.moving is None

    @property
    def takes_records(self) -> bool:
        """Whether opt-in records are taken now."""
        return self.phase == OPTIN_OPEN and self.moving is None

    @cached_property
    def configuration(self) -> Configuration | None:
        """What clients of this epoch run; None as long as there is no head list."""
        if self.task.head is None:
            return Configuration.of(self.task)
        return None if self.head is None else Configuration.of(self.task, self.head)

    @classmethod
    def read(cls, task: Task, row: sa.Row[Any]) -> Epoch:
        """Read a row of the store."""
        head = None if row.head is None else tuple(tuple(one) for one in json.loads(row.head))
        return cls(
            task=task,
            task_number=row.task,
            number=row.number,
            phase=row.phase,
            moving=row.moving,
            since=row.since,
            head=head,
            optin=None if row.optin is None else json.loads(row.optin),
            counts=None if row.counts is None else json.loads(row.counts),
            reports=row.reports,
            checksum=None if row.checksum is None else bytes(row.checksum),
            release=row.release,
            trouble=None if row.trouble is None else json.loads(row.trouble),
            scrubbed=row.scrubbed,
            forgotten=row.forgotten,
        )


def insert_new(connection: sa.Connection, table: sa.Table) -> Any:
    """Begin an INSERT that leaves a row alone if one with its key is there."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()


def lock_name(task: Task, number: int) -> str:
    """Name the lock (:meth:`~hushquery.collect.store.store.Store.alone`) that whoever moves an epoch holds."""
    return f"advance {task.id} {number}"


def register(store: Store, task: Task, now: float) -> int:
    """Give the number of a task in the store, and enter it if it is new.

    What is not under the hash of its id, such as min_batch, may have changed since; then the new form is kept.
    """
    document = json.dumps(task.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    with store.write() as connection:
        values = {"id": task.digest, "document": document, "since": int(now)}
        connection.execute(insert_new(connection, TASK).values(values))
        found = connection.execute(sa.select(TASK.c.number, TASK.c.document).where(TASK.c.id == task.digest)).one()
        if found.document != document:
            connection.execute(sa.update(TASK).where(TASK.c.id == task.digest).values(document=document))
        return int(found.number)


def registered(store: Store) -> list[tuple[int, Task]]:
    """Give all tasks that the store has seen, by their numbers."""
    with store.read() as connection:
        rows = connection.execute(sa.select(TASK.c.number, TASK.c.id, TASK.c.document).order_by(TASK.c.number)).all()
    found = []
    for number, digest, document in rows:
        task = Task.from_json(document)
        if task.digest != bytes(digest):
            raise DataError(f"task {number} of the store is not the one that its id names", fix="Restore a backup")
        found.append((number, task))
    return found


def holds_reports(phase: str, *, scrubbed: bool) -> bool:
    """Say whether an epoch has a table of reports: from when they are taken until they are counted and erased."""
    return phase in (REPORTS_OPEN, CLOSED, RELEASED) and not scrubbed


def tables_of_reports(connection: sa.Connection) -> list[sa.Table]:
    """List the tables of reports that there are."""
    query = sa.select(EPOCH.c.task, EPOCH.c.number, EPOCH.c.phase, EPOCH.c.scrubbed)
    epochs = connection.execute(query.order_by(EPOCH.c.task, EPOCH.c.number))
    return [reports_table(one.task, one.number) for one in epochs if holds_reports(one.phase, scrubbed=one.scrubbed)]


def reports_of(store: Store, epoch: Epoch) -> Iterator[bytes]:
    """Yield the bytes of the reports of an epoch, in the order of their random ids."""
    table, last = reports_table(epoch.task_number, epoch.number), b""
    query = sa.select(table).where(table.c.id > sa.bindparam("last")).order_by(table.c.id).limit(_BLOCK)
    while True:
        with store.read(table) as connection:
            rows = connection.execute(query, {"last": last}).all()
        for _, data in rows:
            yield bytes(data)
        if len(rows) < _BLOCK:
            return
        last = bytes(rows[-1][0])


def count_reports(connection: sa.Connection, epoch: Epoch) -> tuple[int, bytes]:
    """Count the reports of an epoch, and compute the XOR of the SHA-256 of their ids."""
    table = reports_table(epoch.task_number, epoch.number)
    number = mixed = 0
    for (report_id,) in connection.execution_options(yield_per=_BLOCK).execute(sa.select(table.c.id)):
        number += 1
        mixed ^= int.from_bytes(hashlib.sha256(report_id).digest())
    return number, mixed.to_bytes(32)


def epoch_row(connection: sa.Connection, task: Task, task_number: int, number: int, *, lock: bool) -> Epoch | None:
    """Read one epoch; with a lock nobody changes it before the transaction ends."""
    query = sa.select(EPOCH).where(EPOCH.c.task == task_number, EPOCH.c.number == number)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else Epoch.read(task, row)


def epochs_of(store: Store, task: Task, task_number: int) -> list[Epoch]:
    """Give all epochs of a task, oldest first."""
    with store.read() as connection:
        rows = connection.execute(sa.select(EPOCH).where(EPOCH.c.task == task_number).order_by(EPOCH.c.number)).all()
    return [Epoch.read(task, row) for row in rows]


# All but what moves gave, which may be megabytes for each epoch.
_STANDING = ("number", "phase", "moving", "since", "reports", "trouble", "scrubbed", "forgotten")


def standing(connection: sa.Connection, tasks: Mapping[int, Task]) -> list[Epoch]:
    """Give where all epochs of some tasks stand, oldest first, without head lists, estimates, counts and releases.

    Args:
        connection: In a transaction.
        tasks: The tasks, by their numbers in the store.
    """
    columns = [EPOCH.c[name] for name in _STANDING]
    query = sa.select(EPOCH.c.task, *columns).where(EPOCH.c.task.in_(list(tasks))).order_by(EPOCH.c.number)
    found = []
    for row in connection.execute(query):
        parts = {name: getattr(row, name) for name in _STANDING}
        parts["trouble"] = None if row.trouble is None else json.loads(row.trouble)
        found.append(Epoch(task=tasks[row.task], task_number=row.task, **parts))
    return found
