"""Tasks and epochs as the store knows them, their phases and reports, and what is computed when an epoch moves."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hushquery.collect.store.schema import EPOCH, TASK, reports_table
from hushquery.collect.store.store import Store
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import DataError, Unavailable, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.server.counting import ReportCount, read_blocks
from hushquery.local.server.estimate import ClientEstimate, estimate_support
from hushquery.task import Task

if TYPE_CHECKING:  # the first imports this file
    from hushquery.collect.store.vault import Vault
    from hushquery.hybrid.published import PublishedHead

OPTIN_OPEN = "optin_open"  #: Users who opted in send records.
HEAD_PUBLISHED = "head_published"  #: The head list is public; the records it was made of are gone.
REPORTS_OPEN = "reports_open"  #: Everybody reports.
CLOSED = "closed"  #: The reports are counted; none is taken any more.
RELEASED = "released"  #: The estimates are public.
EXPIRED = "expired"  #: No usable head list was made in time: its opt-in records are destroyed.

#: The phases in their order; an epoch whose opt-in nobody finished leaves it for `expired`.
PHASES = (OPTIN_OPEN, HEAD_PUBLISHED, REPORTS_OPEN, CLOSED, RELEASED)

#: The one move that each phase has, and the phase it leads to.
MOVES: Mapping[str, tuple[str, str]] = {
    OPTIN_OPEN: ("publish_head", HEAD_PUBLISHED),
    HEAD_PUBLISHED: ("open_reports", REPORTS_OPEN),
    REPORTS_OPEN: ("close", CLOSED),
    CLOSED: ("release", RELEASED),
}

_BLOCK = 4096  # reports are read in blocks of so many, each a short transaction
_JSON = ("optin", "counts", "trouble")  # columns that hold JSON
# All columns but the results of moves, which may take megabytes for each epoch.
_STATUS = ("number", "phase", "moving", "since", "reports", "trouble", "scrubbed", "forgotten")


@dataclass(frozen=True)
class Epoch:
    """One epoch of a task as it stood when it was read."""

    task: Task
    task_row: int  # the task's row in the store
    number: int  # the period's number, 0 for a task without periods
    phase: str
    moving: str | None  # the move that has begun and not ended; meanwhile nothing more is accepted
    since: int  # when it came to its phase
    head: tuple[tuple[str, ...], ...] | None = None  # the published list, if the task has no domain of its own
    optin: Mapping[str, Any] | None = None  # the published opt-in estimates
    counts: Mapping[str, Any] | None = None  # the integers that the reports add up to, once they are closed
    reports: int | None = None  # how many were counted
    checksum: bytes | None = None  # the XOR of the SHA-256 of their ids
    release: str | None = None  # the id of its release
    trouble: Mapping[str, Any] | None = None  # why the move could not end (what, why, fix), and when it was tried last
    scrubbed: bool = False  # whether payloads and opt-in records are gone
    forgotten: bool = False  # whether the ids are gone too

    @property
    def key(self) -> str:
        """The name of the move that is under way, always the same for the same move, so that it is paid for once."""
        if self.moving is None:
            raise UsageError("the epoch is not moving, so there is nothing to pay for")
        return f"collect:{self.task.id}:{self.number}:{self.moving}"

    @property
    def takes_reports(self) -> bool:
        """Whether reports are accepted now."""
        return self.phase == REPORTS_OPEN and self.moving is None

    @property
    def takes_records(self) -> bool:
        """Whether opt-in records are accepted now."""
        return self.phase == OPTIN_OPEN and self.moving is None

    @cached_property
    def configuration(self) -> Configuration | None:
        """What clients of this epoch run; None until there is a head list."""
        if self.task.head is None:
            return Configuration.of(self.task)
        return None if self.head is None else Configuration.of(self.task, self.head)

    @classmethod
    def read(cls, task: Task, row: sa.Row[Any]) -> Epoch:
        """Read a row of the store, with all columns or those of :func:`epoch_statuses`."""
        values = {name: value for name, value in row._mapping.items() if name not in ("task", "mixed")}
        values |= {name: json.loads(values[name]) for name in _JSON if values.get(name) is not None}
        if values.get("head") is not None:
            values["head"] = tuple(tuple(record) for record in json.loads(values["head"]))
        if values.get("checksum") is not None:
            values["checksum"] = bytes(values["checksum"])
        return cls(task=task, task_row=row.task, **values)


def insert_new(connection: sa.Connection, table: sa.Table) -> Any:
    """Begin an INSERT that leaves an existing row with the same key alone."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()


def lock_name(task: Task, number: int) -> str:
    """Return the name of the lock (:meth:`~hushquery.collect.store.store.Store.locked`) that moving an epoch takes."""
    return f"advance {task.id} {number}"


def register(store: Store, task: Task, now: float) -> int:
    """Return the row of a task, inserting it, or updating what its id does not cover, such as min_batch."""
    document = json.dumps(task.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    with store.write() as connection:
        values = {"id": task.digest, "document": document, "since": int(now)}
        connection.execute(insert_new(connection, TASK).values(values))
        row = connection.execute(sa.select(TASK.c.number, TASK.c.document).where(TASK.c.id == task.digest)).one()
        if row.document != document:
            connection.execute(sa.update(TASK).where(TASK.c.id == task.digest).values(document=document))
        return int(row.number)


def registered(store: Store) -> list[tuple[int, Task]]:
    """Return all tasks that the store has seen, with their rows."""
    with store.read() as connection:
        rows = connection.execute(sa.select(TASK.c.number, TASK.c.id, TASK.c.document).order_by(TASK.c.number)).all()
    tasks = []
    for task_row, digest, document in rows:
        task = Task.from_json(document)
        if task.digest != bytes(digest):
            raise DataError(f"task {task_row} of the store is not the one that its id names", fix="Restore a backup")
        tasks.append((task_row, task))
    return tasks


def holds_reports(phase: str, *, scrubbed: bool) -> bool:
    """Return whether an epoch has a table of reports: from when it opens until they are counted and erased."""
    return phase in (REPORTS_OPEN, CLOSED, RELEASED) and not scrubbed


def tables_of_reports(connection: sa.Connection) -> list[sa.Table]:
    """Return the tables of reports that exist."""
    query = sa.select(EPOCH.c.task, EPOCH.c.number, EPOCH.c.phase, EPOCH.c.scrubbed)
    epochs = connection.execute(query.order_by(EPOCH.c.task, EPOCH.c.number))
    return [reports_table(one.task, one.number) for one in epochs if holds_reports(one.phase, scrubbed=one.scrubbed)]


def reports_of(store: Store, epoch: Epoch) -> Iterator[bytes]:
    """Yield the bytes of an epoch's reports, in the order of their random ids."""
    table, last = reports_table(epoch.task_row, epoch.number), b""
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
    table = reports_table(epoch.task_row, epoch.number)
    count = checksum = 0
    for (report_id,) in connection.execution_options(yield_per=_BLOCK).execute(sa.select(table.c.id)):
        count += 1
        checksum ^= int.from_bytes(hashlib.sha256(report_id).digest())
    return count, checksum.to_bytes(32)


def epoch_row(connection: sa.Connection, task: Task, task_row: int, number: int) -> Epoch | None:
    """Read one epoch."""
    query = sa.select(EPOCH).where(EPOCH.c.task == task_row, EPOCH.c.number == number)
    row = connection.execute(query).one_or_none()
    return None if row is None else Epoch.read(task, row)


def epochs_of(store: Store, task: Task, task_row: int) -> list[Epoch]:
    """Return all epochs of a task, oldest first."""
    with store.read() as connection:
        rows = connection.execute(sa.select(EPOCH).where(EPOCH.c.task == task_row).order_by(EPOCH.c.number)).all()
    return [Epoch.read(task, row) for row in rows]


def latest_head(store: Store, task_row: int, before: int) -> PublishedHead | None:
    """Return the latest head list that a task published before an epoch."""
    from hushquery.hybrid.published import PublishedHead

    earlier = (EPOCH.c.task == task_row, EPOCH.c.number < before, EPOCH.c.optin.is_not(None))
    query = sa.select(EPOCH.c.optin).where(*earlier).order_by(EPOCH.c.number.desc()).limit(1)
    with store.read() as connection:
        text = connection.execute(query).scalar_one_or_none()
    return None if text is None else PublishedHead.from_json(json.loads(text))


def epoch_statuses(connection: sa.Connection, tasks: Mapping[int, Task]) -> list[Epoch]:
    """Return the epochs of some tasks (by row), oldest first, without head lists, estimates, counts and releases."""
    columns = [EPOCH.c[name] for name in _STATUS]
    query = sa.select(EPOCH.c.task, *columns).where(EPOCH.c.task.in_(list(tasks))).order_by(EPOCH.c.number)
    return [Epoch.read(tasks[row.task], row) for row in connection.execute(query)]


def estimate_of(epoch: Epoch, candidates: Sequence[str] | None = None) -> ClientEstimate:
    """Estimate from what a closed epoch counted; texts need candidates, of the task where none are given."""
    if epoch.counts is None or epoch.configuration is None:
        raise Unavailable("the reports of this epoch are not counted", fix="Close it first")
    return estimate_support(
        epoch.configuration,
        np.array(epoch.counts["support"], dtype=np.int64),
        epoch.counts["n"],
        periods=(epoch.number,),
        candidates=epoch.task.collect.candidates if candidates is None else candidates,
    )


class EpochWork:
    """The computations of an epoch's moves; each may run again after a crash and is paid for once.

    Only a head list spends budget: the ledger records it under ``epoch.key`` and the name of its noise. Counting spends
    nothing, because clients paid before they sent.
    """

    def __init__(self, store: Store, vault: Vault, ledger: str | os.PathLike[str]) -> None:
        self._store = store
        self._vault = vault
        self._ledger = ledger

    def publish_head(self, epoch: Epoch) -> PublishedHead:
        """Make the head list, or measure the kept one again, after both populations have paid.

        Accounts of a task with periods must exist: one created by the first epoch would be used up by it.
        """
        # A server that only takes reports does not load engines and tables.
        from hushquery.hybrid.plan import plan_head

        plan = plan_head(_SealedRecords(self._vault, epoch), epoch.task, head=self._list_to_keep(epoch))
        create = epoch.task.task.period is None
        # Whoever published the task with its numbers meant them; clients have agreed to them.
        return plan.run(Ledger.open(self._ledger), epoch=epoch.number, create=create, anyway=True)

    def _list_to_keep(self, epoch: Epoch) -> PublishedHead | None:
        """Return the latest list if the task keeps it for this period; an empty one is never kept."""
        head = latest_head(self._store, epoch.task_row, epoch.number)
        return head if head is not None and head.records and epoch.number <= head.last_epoch else None

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        """Count the reports; estimates are made of these integers, if there are enough, when they are released."""
        if epoch.configuration is None:
            raise DataError("the epoch has no domain yet", fix="Publish its head list first")
        count = ReportCount(epoch.configuration, epoch.number)
        for block in read_blocks(reports_of(self._store, epoch), count.length):
            count.add(block)
        if count.refused or count.n != count.read:  # they were checked when they arrived
            raise DataError("the store holds reports that are not of this epoch", fix="Restore a backup")
        least = epoch.task.collect.min_batch
        return {"n": count.n, "support": count.support.tolist(), "min_batch": least}

    def release(self, epoch: Epoch, candidates: Sequence[str] | None = None) -> bytes:
        """Write the JSON document that is served: the clients' estimates, or the blend with the opt-in users'."""
        estimate = estimate_of(epoch, candidates)
        if epoch.task.head is None:
            made = estimate.release()
        else:
            from hushquery.hybrid.published import PublishedHead, blend

            made = blend(PublishedHead.from_json(epoch.optin), estimate)
        document = {
            "name": epoch.task.task.name,
            "epoch": epoch.number,
            "task": epoch.task.id,
            "manifest": made.manifest,
            "guarantees": [guarantee.to_json() for guarantee in made.guarantees],
            "tables": {name: table.to_pydict() for name, table in made.tables.items()},
        }
        return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


class _SealedRecords:
    """The opt-in records of an epoch, decrypted after they are paid for.

    A restored store has other records, thus another noise key: they are paid for again and get fresh noise.
    """

    def __init__(self, vault: Vault, epoch: Epoch) -> None:
        self._vault, self._epoch = vault, epoch
        self.name = epoch.key

    @property
    def noise_key(self) -> bytes:
        return self._vault.noise_key(self._epoch)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Decrypt the records into an engine of their own, which is gone when the block ends."""
        from hushquery.engine import connect

        # A user without records has a row without a query: the published number of users must not depend on records.
        rows: list[tuple[str | None, ...]] = []
        for giver, records in self._vault.records(self._epoch):
            rows += [(giver.hex(), *record) for record in records] or [(giver.hex(), None, None)]
        engine = connect()
        try:
            # Without a folder DuckDB fails when memory runs out, instead of writing plain text to disk.
            engine.raw_sql("SET temp_directory = ''")
            yield engine.create_table("log", _log(rows))
        finally:
            engine.disconnect()


def _log(rows: list[tuple[str | None, ...]]) -> Any:
    import pyarrow as pa

    names = ("user", "query", "url")
    return pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})
