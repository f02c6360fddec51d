"""Copies of a store: backup, restore, conversion of older tables, and export of an epoch's reports and results."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import (
    CLOSED,
    OPTIN_OPEN,
    RELEASED,
    Epoch,
    estimate_of,
    reports_of,
    tables_of_reports,
)
from hushquery.collect.store import schema
from hushquery.collect.store.schema import EPOCH, META, RECORD, RELEASE, TABLES, TASK
from hushquery.collect.store.store import Store, no_store, sync_folder
from hushquery.errors import DataError, NotReady, UsageError
from hushquery.local.report import Report

if TYPE_CHECKING:
    from hushquery.release import Release

_BLOCK = 1000


def backup(store: Store, path: str | os.PathLike[str]) -> int:
    """Copy a snapshot of a store into a new SQLite file; return how many rows were copied.

    Opt-in records are left out: they must vanish with their key, and a copy would not.
    """
    target = Path(path)
    if target.exists():
        raise UsageError(f"{target.name} exists already", fix="Choose another name for the backup")
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        copy = Store.open(draft)
        try:
            with _snapshot(store) as (source, reports), copy.write() as into:
                rows = _copy_rows(source, reports, into)
            copy.wipe_traces()
        finally:
            copy.close()
        # A link, not a rename: it never replaces a backup that was made meanwhile.
        os.link(draft, target)
    except OSError as error:
        raise DataError(f"the backup {target.name} can't be written", why=error.strerror or "") from None
    finally:
        for left in target.parent.glob(f"{escape(draft.name)}*"):  # a name may contain wildcards
            left.unlink()
    return rows


def convert(where: str, keep: str | os.PathLike[str] | None = None) -> tuple[int, Path | None]:
    """Convert the tables of an older store in one transaction, after copying them as they were into a SQLite file.

    Returns the version that the store had, and the copy; None if there was nothing to convert.
    """
    store = Store.locate(where)
    try:
        with store.prepare() as connection:
            version = schema.version_of(connection, store.name)
            if version is None:
                raise no_store(store.name)
            if version == schema.SCHEMA:
                return version, None
            if version > schema.SCHEMA:
                schema.check_version(version, store.name)
            name = f"{store.path or 'collector'}.version-{version}"
            copy = Path(keep or (name if store.path else f"{name}.db"))
            _keep(store, connection, copy)
            try:
                schema.migrate(connection, version, store.name)
            except BaseException:  # nothing is committed: the tables are as they were
                copy.unlink()
                raise
        store.wipe_traces()
    finally:
        store.close()
    return version, copy


def _keep(store: Store, connection: sa.Connection, copy: Path) -> None:
    """Copy all of a store of any version while the transaction keeps everybody else from writing."""
    try:
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            if store.path is not None:
                with closing(sqlite3.connect(store.path)) as source, closing(sqlite3.connect(copy)) as target:
                    source.backup(target)
            else:
                _keep_postgresql(connection, copy)
            with copy.open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(copy.absolute().parent)
        except BaseException:
            copy.unlink()
            raise
    except FileExistsError:
        raise UsageError(f"{copy.name} exists already", fix="Choose another --keep") from None
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"the copy {copy.name} can't be written", why=str(error), fix="Choose another --keep") from None


def _keep_postgresql(connection: sa.Connection, copy: Path) -> None:
    tables = sa.MetaData()
    tables.reflect(connection, only=lambda name, _: name.startswith("hushquery_collect_"))
    names = ", ".join(f'"{table.name}"' for table in tables.sorted_tables)
    connection.exec_driver_sql(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
    for column in (column for table in tables.sorted_tables for column in table.columns):
        column.type, column.server_default = column.type.as_generic(), None
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(copy))
    try:
        with engine.begin() as target:
            tables.create_all(target)
            for table in tables.sorted_tables:
                rows = connection.execute(sa.select(table), execution_options={"yield_per": _BLOCK})
                for block in rows.mappings().partitions():
                    target.execute(sa.insert(table), [dict(row) for row in block])
    finally:
        engine.dispose()


def restore(path: str | os.PathLike[str], store: Store) -> tuple[int, int]:
    """Copy a backup, or any store in a SQLite file, into an empty store.

    Returns how many rows were copied, and in how many epochs opt-in records have to be given again.
    """
    copy = Store.open(path, write=False)
    try:
        with _snapshot(copy) as (source, reports), store.write() as into:
            if into.execute(sa.select(TASK.c.number).limit(1)).first() is not None:
                raise UsageError("that store is not empty", fix="Use a new file or an empty database")
            rows = _copy_rows(source, reports, into)
            if into.dialect.name == "postgresql":  # the next task gets the next number
                last = sa.select(sa.func.max(TASK.c.number)).scalar_subquery()
                into.execute(sa.select(sa.func.setval(sa.func.pg_get_serial_sequence(TASK.name, "number"), last)))
            count = sa.select(sa.func.count()).select_from(EPOCH).where(EPOCH.c.phase == OPTIN_OPEN)
            anew = int(into.execute(count).scalar_one())
    finally:
        copy.close()
    return rows, anew


@contextmanager
def _snapshot(store: Store) -> Iterator[tuple[sa.Connection, list[sa.Table]]]:
    """Read a store at one moment, including the tables of reports that it has then."""
    while True:
        with store.read() as connection:
            before = tables_of_reports(connection)
        with store.read(*before) as connection:
            if tables_of_reports(connection) == before:  # else an epoch was opened or closed in between
                yield connection, before
                return


def _copy_rows(source: sa.Connection, reports: Sequence[sa.Table], into: sa.Connection) -> int:
    rows = 0
    for table in reports:
        table.create(into)
    for table in (*TABLES.sorted_tables, *reports):
        if table in (META, RECORD):
            continue
        # In the order of their keys: a database may keep its rows in the order of their arrival.
        query = sa.select(table).order_by(*table.primary_key.columns)
        result = source.execution_options(yield_per=_BLOCK).execute(query)
        for block in result.mappings().partitions(_BLOCK):
            into.execute(sa.insert(table), [dict(row) for row in block])
            rows += len(block)
    # A head list that was begun used records that are not copied: here it would be paid for and empty.
    begun = sa.update(EPOCH).where(EPOCH.c.phase == OPTIN_OPEN)
    into.execute(begun.values(moving=None, trouble=None))
    return rows


def report_lines(store: Store, epoch: Epoch) -> Iterator[str]:
    """Yield the reports of an epoch as base64url text, in the order of their random ids."""
    if epoch.scrubbed:
        raise DataError(
            "the reports of this epoch are counted and scrubbed",
            why="only their ids are kept, so that repeats are recognised",
            fix="Use its counts (`hushquery collect status --json`) or its release",
        )
    for data in reports_of(store, epoch):
        yield Report.from_bytes(data).to_text()


def published(store: Store, epoch: Epoch, candidates: Sequence[str] | None = None) -> Release:
    """Return what an epoch published; for a closed epoch of texts, the estimates for candidates."""
    if candidates is not None:
        if epoch.task.task.kind != "text":
            raise UsageError("only a task of texts takes candidates", fix="Leave them out")
        least, found = epoch.task.collect.min_batch, epoch.reports or 0
        if epoch.phase in (CLOSED, RELEASED) and found < least:
            raise NotReady(f"{found:,} reports are too few", why=f"the task's min_batch is {least:,}")
        return estimate_of(epoch, candidates).release()
    if epoch.release is None:
        raise NotReady(
            "this epoch has not published anything",
            why=f"it is {epoch.phase}",
            fix="Close and release it, or give --epoch with the number of an earlier one"
            + ("; of a closed one, --candidates looks for texts" if epoch.task.task.kind == "text" else ""),
        )
    with store.read() as connection:
        query = sa.select(RELEASE.c.document).where(RELEASE.c.id == epoch.release)
        document = json.loads(bytes(connection.execute(query).scalar_one()))
    from hushquery.collect.http.pages import read_release

    return read_release(document)
