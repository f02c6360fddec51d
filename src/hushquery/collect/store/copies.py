"""Copies of a store: a backup that another collector can run on, what is kept when tables are converted, the reports of
an epoch as lines of text, and what it published as a value that can be saved.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import CLOSED, OPTIN_OPEN, Epoch, reports_of, tables_of_reports
from hushquery.collect.store import schema
from hushquery.collect.store.schema import EPOCH, META, RECORD, RELEASE, TABLES, TASK
from hushquery.collect.store.store import Store, sync_folder
from hushquery.errors import DataError, NotReady, Unavailable, UsageError
from hushquery.local.report import Report

if TYPE_CHECKING:
    from hushquery.local.server.estimate import ClientEstimate
    from hushquery.release import Release

__all__ = ["backup", "convert", "published", "report_lines", "restore"]

_BLOCK = 1000


def backup(store: Store, path: str | os.PathLike[str]) -> int:
    """Copy a store, SQLite or PostgreSQL, as it stands at one moment into a new SQLite file; gives the rows copied.

    Opt-in records are left out: they are to vanish when their key does, and a copy would not.
    """
    target = Path(path)
    if target.exists():
        raise UsageError(f"{target.name} exists already", fix="Choose another name for the backup")
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        copy = Store.open(draft)
        try:
            with _moment(store) as (source, reports), copy.write() as into:
                rows = _copied(source, reports, into)
            copy.wipe_traces()
        finally:
            copy.close()
        # A link, and not a rename: a backup that somebody else made meanwhile is not replaced.
        os.link(draft, target)
    except OSError as error:
        raise DataError(f"the backup {target.name} can't be written", why=error.strerror or "") from None
    finally:
        for left in target.parent.glob(f"{escape(draft.name)}*"):  # a name may hold what is a pattern to glob
            left.unlink()
    return rows


def convert(
    where: str,
    keep: str | os.PathLike[str] | None = None,
    *,
    version: int = schema.SCHEMA,
    migrations: Mapping[int, schema.Migration] = schema.MIGRATIONS,
) -> tuple[int, Path | None]:
    """Convert the tables of an older store, in one transaction, after a copy of them as they were is safe.

    Args:
        where: The store, as :meth:`~hushquery.collect.store.store.Store.open` takes it.
        keep: Where the copy goes, a SQLite file in either case; by default beside a SQLite store, under its name and
            version, and for PostgreSQL ``collector.version-N.db`` in the present folder.
        version: The version to reach; for tests of conversions.
        migrations: How to reach it.

    Returns:
        The version that the store had, and the copy; None if there was nothing to convert.
    """
    store = Store.locate(where)
    try:
        with store.prepare() as connection:
            found = schema.version_of(connection, store.name)
            if found is None:
                raise Unavailable(f"there is no store at {store.name}", fix="Start `hushquery serve`, which makes it")
            if found == version:
                return found, None
            name = f"{store.path or 'collector'}.version-{found}"
            copy = Path(keep or (name if store.path else f"{name}.db"))
            if found < version:  # a newer one is refused below, and nothing of it is copied
                _keep(store, connection, copy)
            try:
                schema.migrate(connection, store.name, version, migrations)
            except BaseException:  # before the commit: the tables are as they were
                if found < version:
                    copy.unlink()
                raise
        store.wipe_traces()
    finally:
        store.close()
    return found, copy


def _keep(store: Store, connection: sa.Connection, copy: Path) -> None:
    """Copy a store of any version, all of it, while the transaction keeps everybody from writing."""
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
                found = connection.execute(sa.select(table), execution_options={"yield_per": _BLOCK})
                for block in found.mappings().partitions():
                    target.execute(sa.insert(table), [dict(row) for row in block])
    finally:
        engine.dispose()


def restore(path: str | os.PathLike[str], store: Store) -> tuple[int, int]:
    """Copy a backup, or any store in a SQLite file, into a store that is empty.

    Gives the rows copied, and in how many epochs opt-in records have to be given anew: they are not copied.

    Raises:
        UsageError: There is something in the store already.
    """
    copy = Store.open(path, write=False)
    try:
        with _moment(copy) as (source, reports), store.write() as into:
            if into.execute(sa.select(TASK.c.number).limit(1)).first() is not None:
                raise UsageError("there is something in that store already", fix="Give a new file or an empty database")
            rows = _copied(source, reports, into)
            if into.dialect.name == "postgresql":  # the next task gets the next number
                last = sa.select(sa.func.max(TASK.c.number)).scalar_subquery()
                into.execute(sa.select(sa.func.setval(sa.func.pg_get_serial_sequence(TASK.name, "number"), last)))
            count = sa.select(sa.func.count()).select_from(EPOCH).where(EPOCH.c.phase == OPTIN_OPEN)
            anew = int(into.execute(count).scalar_one())
    finally:
        copy.close()
    return rows, anew


@contextmanager
def _moment(store: Store) -> Iterator[tuple[sa.Connection, list[sa.Table]]]:
    """Read a store at one moment, with the tables of reports that it has then."""
    while True:
        with store.read() as connection:
            before = tables_of_reports(connection)
        with store.read(*before) as connection:
            if tables_of_reports(connection) == before:  # else an epoch was opened or closed in between
                yield connection, before
                return


def _copied(source: sa.Connection, reports: Sequence[sa.Table], into: sa.Connection) -> int:
    rows = 0
    for table in reports:
        table.create(into)
    for table in (*TABLES.sorted_tables, *reports):
        if table in (META, RECORD):
            continue
        # In the order of their keys: the order in which a database keeps its rows may be that of their arrival.
        query = sa.select(table).order_by(*table.primary_key.columns)
        found = source.execution_options(yield_per=_BLOCK).execute(query)
        for block in found.mappings().partitions(_BLOCK):
            into.execute(sa.insert(table), [dict(row) for row in block])
            rows += len(block)
    # A head list that was begun was one of records that are not here: the copy's would be paid for and made of none.
    begun = sa.update(EPOCH).where(EPOCH.c.phase == OPTIN_OPEN)
    into.execute(begun.values(moving=None, trouble=None))
    return rows


def report_lines(store: Store, epoch: Epoch) -> Iterator[str]:
    """Give the reports of an epoch as words of base64url, in the order of their random ids."""
    if epoch.scrubbed:
        raise DataError(
            "the reports of this epoch are counted and scrubbed",
            why="only their ids are kept, so that repeats are recognised",
            fix="Use its counts (`hushquery collect status --json`) or its release",
        )
    for data in reports_of(store, epoch):
        yield Report.from_bytes(data).to_text()


def published(store: Store, epoch: Epoch, candidates: Sequence[str] | None = None) -> Release | ClientEstimate:
    """Give what an epoch published, to be saved; of a closed epoch of texts, what its counts say of candidates.

    Raises:
        NotReady: It has not published anything yet.
    """
    from hushquery.local.server.estimate import ClientEstimate, estimate_texts

    texts = epoch.task.task.kind == "text"
    if not texts and candidates is not None:
        raise UsageError("only a task of texts takes candidates", fix="Leave them out")
    if texts and epoch.phase == CLOSED and epoch.counts is not None:
        counts = epoch.counts
        return estimate_texts(epoch.task, counts["support"], counts["n"], candidates, period=epoch.number)
    if epoch.release is None:
        raise NotReady(
            "this epoch has not published anything",
            why=f"it is {epoch.phase}",
            fix="Close and release it, or give --epoch with the number of an earlier one",
        )
    with store.read() as connection:
        query = sa.select(RELEASE.c.document).where(RELEASE.c.id == epoch.release)
        document = json.loads(bytes(connection.execute(query).scalar_one()))
    if "tables" not in document:
        return ClientEstimate.from_json(document)
    from hushquery.collect.http.pages import read_release

    return read_release(document)
