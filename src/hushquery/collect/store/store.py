"""Where the collector keeps everything: a SQLite file, or a PostgreSQL database for several server processes.

SQLite runs in write-ahead mode with ``synchronous=FULL`` and PostgreSQL with ``synchronous_commit=on``: a commit that
returned survives a power cut. Deleted rows are overwritten in SQLite (``secure_delete``). Whatever goes wrong with
the store becomes :class:`~hushquery.errors.Unavailable`, and whoever waited for the commit is told so.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from hushquery.collect.store.databases import (
    be_patient,
    limit_transaction,
    postgresql_engine,
    sqlite_address,
    sqlite_engine,
)
from hushquery.collect.store.deadlines import left
from hushquery.collect.store.room import LEAST_FREE, free, keep_reserve, make_room
from hushquery.collect.store.schema import check_version, make_tables, version_of
from hushquery.collect.store.tally import Tally
from hushquery.errors import DataError, NotReady, Unavailable, UsageError

__all__ = ["Store", "StoreFull", "sync_folder"]

# Keeps two processes from making or converting the tables at once.
_PREPARE_LOCK = 0x48514331


# The tables of reports come and go, so they are found by their names.
_POSTGRESQL_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class "
    "WHERE relkind = 'r' AND pg_table_is_visible(oid) AND starts_with(relname::text, 'hushquery_collect_') "
    "AND relname <> 'hushquery_collect_reserve'"
)

# What decides how long PostgreSQL keeps its write-ahead log.
_LOG_SETTINGS = (
    "SELECT name, current_setting(name) FROM pg_settings "
    "WHERE name IN ('wal_recycle', 'wal_keep_size', 'archive_mode', 'checkpoint_timeout') "
    "UNION ALL SELECT 'replication slots', count(*)::text FROM pg_replication_slots "
    "UNION ALL SELECT 'replicas', count(*)::text FROM pg_stat_replication"
)

# A MiB that holds nothing, of which nothing is compressed.
_RESERVE = (
    "CREATE TABLE IF NOT EXISTS hushquery_collect_reserve (filler bytea)",
    "ALTER TABLE hushquery_collect_reserve ALTER COLUMN filler SET STORAGE EXTERNAL",
    "INSERT INTO hushquery_collect_reserve SELECT decode(repeat('00', 1048576), 'hex') "
    "WHERE NOT EXISTS (SELECT FROM hushquery_collect_reserve)",
)

# SQLite counts as full when fewer pages than this are left.
_SOME_PAGES = 4
_ANY_PAGES = 2**32 - 2


class StoreFull(Unavailable):
    """The store has reached its size limit, or its disk is full."""


class Store:
    """A place where a collector keeps its tables. Made by :meth:`open`.

    Args:
        engine: The SQLAlchemy engine.
        name: What to call the store in messages; no user, no password.
        path: The file, for SQLite.
        secrets: What must not appear in any message.
        most_bytes: The size that the store may have; None for no limit.
        tally: What counts its failures.
    """

    def __init__(
        self,
        engine: sa.Engine,
        name: str,
        path: Path | None = None,
        secrets: tuple[str, ...] = (),
        most_bytes: int | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._engine = engine
        self._secrets = secrets
        self.name = name
        self.path = path
        self.most_bytes = most_bytes
        self._leaves_log = False
        self.tally = tally or Tally()

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str],
        *,
        create: bool = True,
        write: bool = True,
        most_bytes: int | None = None,
        tally: Tally | None = None,
    ) -> Store:
        """Open the store at a path or URL; make its tables where there are none.

        Args:
            where: A path, ``sqlite:///PATH`` or ``postgresql://USER@HOST:PORT/DATABASE``.
            create: Whether a SQLite file may be made where there is none.
            write: Whether it may be changed. A store that is only read stays as it is, byte for byte.
            most_bytes: The size that the store may have.
            tally: What counts its failures; by default one of its own.

        Raises:
            DataError: Its tables are of another version; ``hushquery collect migrate`` converts older ones.
        """
        store = cls.locate(where, create=create and write, write=write, most_bytes=most_bytes)
        store.tally = tally or store.tally
        try:
            with store.prepare() if write else store.read() as connection:
                found = version_of(connection, store.name)
                if found is not None:
                    check_version(found, store.name)
                elif write:
                    make_tables(connection)
                else:
                    raise _no_store(store.name)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def locate(
        cls,
        where: str | os.PathLike[str],
        *,
        create: bool = False,
        write: bool = True,
        most_bytes: int | None = None,
    ) -> Store:
        """Find the store at a path or URL, as :meth:`open` does, without a look at its tables."""
        text = os.fspath(where)
        if "://" not in text:
            store = cls._sqlite(text, create, write, most_bytes)
        else:
            try:
                url = sa.make_url(text)
            except (ArgumentError, ValueError):
                raise _unreadable() from None
            if url.drivername in ("sqlite", "sqlite+pysqlite"):
                if "?" in text or url.host:
                    raise _unreadable()
                store = cls._sqlite(url.database or "", create, write, most_bytes)
            elif url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
                store = cls._postgresql(url, most_bytes)
            else:
                raise _unreadable()
        return store

    @classmethod
    def _sqlite(cls, text: str, create: bool, write: bool, most_bytes: int | None) -> Store:
        if text in ("", ":memory:"):
            raise UsageError("a collector can't keep reports in memory", fix="Give the path of a file: collector.db")
        path = Path(os.path.realpath(text))
        if not path.exists():
            if not create:
                raise _no_store(text)
            try:
                # The write-ahead log takes the mode of the file: for its owner only.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                sync_folder(path.parent)
            except OSError as error:
                raise Unavailable(
                    f"the store {text} can't be made", why=error.strerror or "", fix="Choose another --store"
                ) from None
        store = cls(sqlite_engine(path, write), text, path, (), most_bytes)
        store._leaves_log = not write and not Path(f"{path}-wal").exists()
        return store

    @classmethod
    def _postgresql(cls, url: sa.URL, most_bytes: int | None) -> Store:
        host = url.host or url.query.get("host") or "localhost"
        name = f"postgresql://{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"
        hidden = [value for key, value in url.query.items() if "password" in key]
        secrets = tuple(value for value in (url.password, *hidden) if isinstance(value, str) and value)
        try:
            engine = postgresql_engine(url)
        except ImportError:
            raise Unavailable(
                "a store in PostgreSQL needs the package psycopg", fix="pip install 'hushquery[serve]'"
            ) from None
        return cls(engine, name, None, secrets, most_bytes)

    # ---- transactions --------------------------------------------------------------------------------------

    @contextmanager
    def read(self, *tables: sa.Table) -> Iterator[sa.Connection]:
        """Look at the store: everything read inside belongs to one moment.

        Args:
            tables: Tables of reports that are read. While one is, it is not emptied: to a moment before that
                PostgreSQL would show it empty. So they are locked first, and the moment is chosen after.
        """
        with self._translated(), self._engine.connect() as connection:
            if self.path is not None:
                be_patient(connection)
                connection.exec_driver_sql("BEGIN")
                try:
                    yield connection
                finally:
                    with suppress(SQLAlchemyError, sqlite3.Error):
                        connection.exec_driver_sql("ROLLBACK")
            else:
                with connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True).begin():
                    if left() is not None:
                        limit_transaction(connection)
                    if tables:
                        names = ", ".join(f'"{table.name}"' for table in tables)
                        connection.exec_driver_sql(f"LOCK TABLE {names} IN ACCESS SHARE MODE")
                    yield connection

    @contextmanager
    def write(self, *, frees: bool = False) -> Iterator[sa.Connection]:
        """Change the store: durable when the block ends, nothing when it raises.

        Args:
            frees: Whether this is part of making room: then the size limit, which is there for uploads, does not hold.
        """
        with self._translated(), self._engine.connect() as connection:
            if self.path is None:
                with connection.begin():
                    limit_transaction(connection)
                    yield connection
                return
            be_patient(connection)
            self._still_there(connection)
            if self.most_bytes is not None:
                page = int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
                most = _ANY_PAGES if frees else max(1, self.most_bytes // page)
                connection.exec_driver_sql(f"PRAGMA max_page_count={most}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(SQLAlchemyError, sqlite3.Error):
                    connection.exec_driver_sql("ROLLBACK")
                raise
            self._still_there(connection)

    @contextmanager
    def prepare(self) -> Iterator[sa.Connection]:
        """Make or convert the tables: a :meth:`write` that keeps out all others who do."""
        with self.write() as connection:
            if self.path is None:
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # all reports there are may be moved
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_PREPARE_LOCK)))
            yield connection

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Be the only one, in all processes, that is in the block of this name; the lock dies with its process.

        Raises:
            NotReady: Somebody else is in it.
        """
        key = hashlib.sha256(name.encode()).digest()[:8]
        with self._locked_file(key.hex()) if self.path else self._locked_session(int.from_bytes(key, signed=True)):
            yield

    @contextmanager
    def _locked_file(self, key: str) -> Iterator[None]:
        handle = os.open(f"{self.path}.{key}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise _busy() from None
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _locked_session(self, key: int) -> Iterator[None]:
        with self._translated(), self._engine.connect() as connection:
            free = connection.execute(sa.select(sa.func.pg_try_advisory_lock(key))).scalar_one()
            connection.commit()
            if not free:
                raise _busy()
            try:
                yield
            finally:
                try:
                    connection.execute(sa.select(sa.func.pg_advisory_unlock(key)))
                    connection.commit()
                except SQLAlchemyError:
                    connection.invalidate()  # the end of the session frees the lock too

    # ---- size and traces -----------------------------------------------------------------------------------

    def size(self) -> int:
        """Give the number of bytes that the tables take."""
        with self.read() as connection:
            if self.path is not None:
                pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())
            return int(connection.exec_driver_sql(_POSTGRESQL_SIZE).scalar_one())

    def is_full(self) -> bool:
        """Say whether the size limit is reached; SQLite's freed pages count as free, because they are used again."""
        if self.most_bytes is None or self.path is None:
            return self.most_bytes is not None and self.size() >= self.most_bytes
        with self.read() as connection:
            names = ("page_count", "freelist_count", "page_size")
            pages, spare, page = (int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()) for name in names)
        # One report may need some pages at once, and is refused where the last ones do not suffice.
        return pages - spare + _SOME_PAGES > max(1, self.most_bytes // page)

    def lacks_room(self) -> bool:
        """Return whether reports find no room: the store was just full, is at its limit, or its disk is full."""
        if self.tally.full or self.is_full():
            return True
        return self.path is not None and free(self.path) < LEAST_FREE and self._spare() < LEAST_FREE

    def _spare(self) -> int:
        """Return how many bytes of a SQLite file are free, because what was in them is deleted."""
        with self.read() as connection:
            pages = int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())
            return pages * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())

    def keep_reserve(self) -> None:
        """Keep some room for closing epochs when there is none: beside a SQLite file, or as a table of PostgreSQL."""
        if self.path is not None:
            keep_reserve(self.path)
            return
        with suppress(Unavailable), self.prepare() as connection:
            for statement in _RESERVE:
                connection.exec_driver_sql(statement)

    def make_room(self) -> bool:
        """Give the reserve back, if the disk is full; returns whether there was one."""
        if self.path is not None:
            return make_room(self.path)
        with self.write(frees=True) as connection:
            there = bool(connection.exec_driver_sql("SELECT to_regclass('hushquery_collect_reserve')").scalar())
            connection.exec_driver_sql("DROP TABLE IF EXISTS hushquery_collect_reserve")
        return there

    def wipe_traces(self) -> None:
        """Empty SQLite's write-ahead log, so that deleted rows are nowhere in its files.

        PostgreSQL's log is not ours. Where we have the right to (the role ``pg_checkpoint``, and EXECUTE on
        ``pg_switch_wal``) we end the file that is being written and ask for a checkpoint, after which PostgreSQL
        needs none of the files before it; :meth:`log_settings` tells what keeps them all the same.
        """
        if self.path is None:
            self._ask("SELECT pg_switch_wal()")
            self._ask("CHECKPOINT")
        elif not self._truncate_log():
            raise NotReady("the write-ahead log is in use and could not be emptied", fix="Try again")

    def shorten_log(self) -> bool:
        """Empty SQLite's write-ahead log, which tells the order of arrival; False if somebody reads in it just now."""
        return self.path is None or self._truncate_log("PRAGMA busy_timeout=0")

    def _truncate_log(self, *before: str) -> bool:
        with self._translated(), self._engine.connect() as connection:
            be_patient(connection)
            try:
                for pragma in before:
                    connection.exec_driver_sql(pragma)
                return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            finally:
                connection.info.pop("patience", None)
                be_patient(connection)

    def vacuum(self, table: sa.Table) -> None:
        """Let PostgreSQL use the room of deleted rows again, at once; if it can't, it will by itself."""
        if self.path is None:
            self._ask(f'VACUUM "{table.name}"')

    def _ask(self, statement: str) -> None:
        """Run what PostgreSQL takes outside of transactions only; what it refuses is not done."""
        with suppress(Unavailable), self._translated(), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(statement)

    def log_settings(self) -> dict[str, str] | None:
        """Read what keeps old files of PostgreSQL's write-ahead log, by the names of its settings; None for SQLite."""
        if self.path is not None:
            return None
        with self.read() as connection:
            return {name: str(value) for name, value in connection.exec_driver_sql(_LOG_SETTINGS)}

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        if self._leaves_log and self.path is not None:
            # Whoever only reads may not remove the empty log that reading makes. Who may write does, unless it is used.
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(sqlite_address(self.path, "rw"), uri=True)) as connection,
            ):
                connection.execute("SELECT name FROM sqlite_master").fetchone()

    def _still_there(self, connection: sa.Connection) -> None:
        """Refuse to write into a file that was deleted or replaced: nobody would ever find it again."""
        opened = connection.info.get("file")
        try:
            there = self.path.stat() if self.path else None
        except OSError:
            there = None
        if there is None or opened != (there.st_dev, there.st_ino):
            connection.invalidate()
            self._engine.dispose()
            raise Unavailable(f"the store {self.name} was removed or replaced", fix="Put it back")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the errors of drivers into ours; none of them shows a password or a value."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
            if isinstance(cause, sqlite3.DatabaseError) and _code(cause) in (
                sqlite3.SQLITE_NOTADB,
                sqlite3.SQLITE_CORRUPT,
            ):
                raise DataError(f"the store {self.name} is damaged or no SQLite file", fix="Restore a backup") from None
            full = _code(cause) == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) in ("53100", "54000")
            # A write-ahead log that can't grow is an error of input and output to SQLite.
            full = full or (_code(cause) == sqlite3.SQLITE_IOERR and self._disk_is_full())
            self.tally.failed(full=full)
            if full:
                raise StoreFull(
                    f"the store {self.name} is full", fix="Close and release epochs, raise the limit, or add a disk"
                ) from None
            raise Unavailable(
                f"the store {self.name} can't be reached or written",
                why=self._why(cause),
                fix="Check that it is there, that you may write to it and that its disk is not full",
            ) from None

    def _disk_is_full(self) -> bool:
        try:
            return self.path is not None and free(self.path) < LEAST_FREE
        except OSError:
            return False

    def _why(self, cause: BaseException) -> str:
        # The first line only: PostgreSQL's further lines may show the values of a row.
        why = (str(cause).strip().splitlines() or [""])[0] or type(cause).__name__
        for secret in self._secrets:
            for form in (secret, quote(secret), quote(secret, safe="")):
                why = why.replace(form, "***")
        return why


def _no_store(name: str) -> Unavailable:
    return Unavailable(f"there is no store at {name}", fix="Start `hushquery serve`, which makes it")


def _unreadable() -> UsageError:
    return UsageError(  # and the address is not shown: it may hold a password
        "the address of the store can't be read",
        fix="Give a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE (%40 for @)",
    )


def _busy() -> NotReady:
    return NotReady("another process is at this already", fix="Wait until it is done")


def _code(cause: BaseException) -> int | None:
    code = getattr(cause, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def sync_folder(folder: Path) -> None:
    """Make durable which files a folder holds: without it a power cut may take away a file that was just made."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
