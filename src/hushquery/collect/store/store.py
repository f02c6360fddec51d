"""Where the collector keeps everything: a SQLite file, or a PostgreSQL database for several server processes.

A commit that returned survives a power cut. Closing an epoch needs room for the write-ahead log before it frees any, so
the server keeps a reserve, an empty file or table, which moving an epoch on a full disk deletes.
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
    FailureCounts,
    left,
    limit_transaction,
    limit_wait,
    postgresql_engine,
    sqlite_address,
    sqlite_engine,
)
from hushquery.collect.store.schema import check_version, make_tables, version_of
from hushquery.errors import DataError, NotReady, Unavailable, UsageError, install

#: The size of the reserve of a SQLite store, at most a quarter of the free disk: a block of rows needs half a MiB.
RESERVE = 16 << 20
_LEAST_FREE = 1 << 20  # with fewer bytes left a disk counts as full: the write-ahead log grows by more at once
_PREPARE_LOCK = 0x48514331  # keeps two processes from making or converting the tables at once

# The tables of reports come and go, so they are found by their names.
_POSTGRESQL_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class "
    "WHERE relkind = 'r' AND pg_table_is_visible(oid) AND starts_with(relname::text, 'hushquery_collect_') "
    "AND relname <> 'hushquery_collect_reserve'"
)

# What determines how long PostgreSQL keeps its write-ahead log.
_LOG_SETTINGS = (
    "SELECT name, current_setting(name) FROM pg_settings "
    "WHERE name IN ('wal_recycle', 'wal_keep_size', 'archive_mode', 'checkpoint_timeout') "
    "UNION ALL SELECT 'replication slots', count(*)::text FROM pg_replication_slots "
    "UNION ALL SELECT 'replicas', count(*)::text FROM pg_stat_replication"
)

# An empty MiB, uncompressed.
_RESERVE = (
    "CREATE TABLE IF NOT EXISTS hushquery_collect_reserve (filler bytea)",
    "ALTER TABLE hushquery_collect_reserve ALTER COLUMN filler SET STORAGE EXTERNAL",
    "INSERT INTO hushquery_collect_reserve SELECT decode(repeat('00', 1048576), 'hex') "
    "WHERE NOT EXISTS (SELECT FROM hushquery_collect_reserve)",
)

_SOME_PAGES = 4  # SQLite counts as full when fewer pages than this are left
_ANY_PAGES = 2**32 - 2


class StoreFull(Unavailable):
    """The store has reached its size limit, or its disk is full."""


class Store:
    """The tables of a collector, opened by :meth:`open`; messages show its ``name`` and none of its ``secrets``."""

    def __init__(self, engine: sa.Engine, name: str, path: Path | None, secrets: tuple[str, ...]) -> None:
        self._engine = engine
        self._secrets = secrets
        self.name = name
        self.path = path
        self.most_bytes: int | None = None
        self._leaves_log = False
        self.failures = FailureCounts()

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str],
        *,
        create: bool = True,
        write: bool = True,
        most_bytes: int | None = None,
        failures: FailureCounts | None = None,
    ) -> Store:
        """Open the store at a path, ``sqlite:///PATH`` or ``postgresql://...``; create its tables if there are none.

        Without ``write`` it stays as it is, byte for byte. Tables of another version raise DataError.
        """
        store = cls.locate(where, create=create and write, write=write)
        store.most_bytes, store.failures = most_bytes, failures or store.failures
        try:
            with store.prepare() if write else store.read() as connection:
                version = version_of(connection, store.name)
                if version is not None:
                    check_version(version, store.name)
                elif write:
                    make_tables(connection)
                else:
                    raise no_store(store.name)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def locate(cls, where: str | os.PathLike[str], *, create: bool = False, write: bool = True) -> Store:
        """Find the store at a path or URL, as :meth:`open` does, without looking at its tables."""
        text = os.fspath(where)
        if "://" not in text:
            return cls._sqlite(text, create, write)
        url = None
        with suppress(ArgumentError, ValueError):
            url = sa.make_url(text)
        if url is not None and url.drivername in ("sqlite", "sqlite+pysqlite") and "?" not in text and not url.host:
            return cls._sqlite(url.database or "", create, write)
        if url is not None and url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
            return cls._postgresql(url)
        raise UsageError(  # without the address, which may hold a password
            "the address of the store can't be read",
            fix="Give a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE (%40 for @)",
        )

    @classmethod
    def _sqlite(cls, text: str, create: bool, write: bool) -> Store:
        if text in ("", ":memory:"):
            raise UsageError("a collector can't keep reports in memory", fix="Give the path of a file: collector.db")
        path = Path(os.path.realpath(text))
        if not path.exists():
            if not create:
                raise no_store(text)
            try:
                # The write-ahead log takes the mode of the file: readable by its owner only.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                sync_folder(path.parent)
            except OSError as error:
                raise Unavailable(
                    f"the store {text} can't be made", why=error.strerror or "", fix="Choose another --store"
                ) from None
        store = cls(sqlite_engine(path, write), text, path, ())
        store._leaves_log = not write and not Path(f"{path}-wal").exists()
        return store

    @classmethod
    def _postgresql(cls, url: sa.URL) -> Store:
        host = url.host or url.query.get("host") or "localhost"
        name = f"postgresql://{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"
        hidden = [value for key, value in url.query.items() if "password" in key]
        secrets = tuple(value for value in (url.password, *hidden) if isinstance(value, str) and value)
        try:
            engine = postgresql_engine(url)
        except ImportError:
            raise Unavailable("a store in PostgreSQL needs the package psycopg", fix=install("serve")) from None
        return cls(engine, name, None, secrets)

    @contextmanager
    def read(self, *tables: sa.Table) -> Iterator[sa.Connection]:
        """Read a snapshot of the store.

        Tables of reports are locked before it is taken: PostgreSQL would show an emptied one in an older snapshot too.
        """
        with self._translated(), self._engine.connect() as connection:
            if self.path is not None:
                limit_wait(connection)
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
        """Change the store, durably unless the block raises; the size limit does not hold for what ``frees`` room."""
        with self._translated(), self._engine.connect() as connection:
            if self.path is None:
                with connection.begin():
                    limit_transaction(connection)
                    yield connection
                return
            limit_wait(connection)
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
        """Create or convert the tables: a :meth:`write` that excludes all others."""
        with self.write() as connection:
            if self.path is None:
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # all reports may have to be moved
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_PREPARE_LOCK)))
            yield connection

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold a named lock among all processes, which dies with its process; raises NotReady if it is taken."""
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
                raise _taken() from None
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _locked_session(self, key: int) -> Iterator[None]:
        with self._translated(), self._engine.connect() as connection:
            acquired = connection.execute(sa.select(sa.func.pg_try_advisory_lock(key))).scalar_one()
            connection.commit()
            if not acquired:
                raise _taken()
            try:
                yield
            finally:
                try:
                    connection.execute(sa.select(sa.func.pg_advisory_unlock(key)))
                    connection.commit()
                except SQLAlchemyError:
                    connection.invalidate()  # the end of the session frees the lock too

    def size(self) -> int:
        """Return how many bytes the tables take."""
        if self.path is not None:
            pages, page = self._pragmas("page_count", "page_size")
            return pages * page
        with self.read() as connection:
            return int(connection.exec_driver_sql(_POSTGRESQL_SIZE).scalar_one())

    def _pragmas(self, *names: str) -> list[int]:
        with self.read() as connection:
            return [int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()) for name in names]

    def is_full(self) -> bool:
        """Return whether the size limit is reached; SQLite's free pages don't count, because they are used again."""
        if self.most_bytes is None or self.path is None:
            return self.most_bytes is not None and self.size() >= self.most_bytes
        pages, spare, page = self._pragmas("page_count", "freelist_count", "page_size")
        # One report may need some pages at once, and is refused if fewer are left.
        return pages - spare + _SOME_PAGES > max(1, self.most_bytes // page)

    def lacks_room(self) -> bool:
        """Return whether reports find no room: the store was just full, is at its limit, or its disk is full."""
        if self.failures.full or self.is_full():
            return True
        if self.path is None or free_bytes(self.path) >= _LEAST_FREE:
            return False
        spare, page = self._pragmas("freelist_count", "page_size")
        return spare * page < _LEAST_FREE

    def keep_reserve(self) -> None:
        """Create the reserve that :meth:`make_room` gives back, unless there is hardly any room left."""
        if self.path is None:
            with suppress(Unavailable), self.prepare() as connection:
                for statement in _RESERVE:
                    connection.exec_driver_sql(statement)
            return
        reserve = self._reserve(self.path)
        with suppress(OSError):
            free = free_bytes(self.path)
            size = RESERVE if free >= 2 * RESERVE else free // 4
            if reserve.exists() or size < _LEAST_FREE // 2:
                return
            handle = os.open(reserve, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(handle, 0, size)
            except OSError:
                reserve.unlink()
            finally:
                os.close(handle)

    def make_room(self) -> bool:
        """Delete the reserve if the disk is full; return whether there was one."""
        if self.path is not None:
            with suppress(OSError):
                if free_bytes(self.path) < _LEAST_FREE:
                    self._reserve(self.path).unlink()
                    return True
            return False
        with self.write(frees=True) as connection:
            there = bool(connection.exec_driver_sql("SELECT to_regclass('hushquery_collect_reserve')").scalar())
            connection.exec_driver_sql("DROP TABLE IF EXISTS hushquery_collect_reserve")
        return there

    @staticmethod
    def _reserve(path: Path) -> Path:
        return path.with_name(f"{path.name}.reserve")

    def wipe_traces(self) -> None:
        """Empty SQLite's write-ahead log, so that deleted rows are nowhere in its files.

        PostgreSQL is asked, where rights allow, to end its log file (docs/howto/operate-the-collector.md).
        """
        if self.path is None:
            self._try("SELECT pg_switch_wal()")
            self._try("CHECKPOINT")
        elif not self._truncate_log():
            raise NotReady("the write-ahead log is in use and could not be emptied", fix="Try again")

    def shorten_log(self) -> bool:
        """Empty SQLite's write-ahead log, which shows the order of arrival; return False if it is being read."""
        return self.path is None or self._truncate_log("PRAGMA busy_timeout=0")

    def _truncate_log(self, *before: str) -> bool:
        with self._translated(), self._engine.connect() as connection:
            limit_wait(connection)
            try:
                for pragma in before:
                    connection.exec_driver_sql(pragma)
                return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            finally:
                connection.info.pop("busy_timeout", None)
                limit_wait(connection)

    def vacuum(self, table: sa.Table) -> None:
        """Let PostgreSQL reuse the room of deleted rows now rather than later."""
        if self.path is None:
            self._try(f'VACUUM "{table.name}"')

    def _try(self, statement: str) -> None:
        """Run a statement outside of transactions, and ignore it if PostgreSQL refuses."""
        with suppress(Unavailable), self._translated(), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(statement)

    def log_settings(self) -> dict[str, str] | None:
        """Return the settings that keep old files of PostgreSQL's write-ahead log; None for SQLite."""
        if self.path is not None:
            return None
        with self.read() as connection:
            return {name: str(value) for name, value in connection.exec_driver_sql(_LOG_SETTINGS)}

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        if self._leaves_log and self.path is not None:
            # A reader may not remove the empty log that reading creates; a writer does when it closes.
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(sqlite_address(self.path, "rw"), uri=True)) as connection,
            ):
                connection.execute("SELECT name FROM sqlite_master").fetchone()

    def _still_there(self, connection: sa.Connection) -> None:
        """Refuse to write into a file that was deleted or replaced, where nobody would find it."""
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
        """Translate the errors of drivers into ours, without passwords and values."""
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
            # SQLite calls a write-ahead log that can't grow an I/O error.
            full = full or (_code(cause) == sqlite3.SQLITE_IOERR and self._disk_is_full())
            self.failures.failed(full=full)
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
            return self.path is not None and free_bytes(self.path) < _LEAST_FREE
        except OSError:
            return False

    def _why(self, cause: BaseException) -> str:
        # The first line only: PostgreSQL's further lines may show the values of a row.
        why = (str(cause).strip().splitlines() or [""])[0] or type(cause).__name__
        for secret in self._secrets:
            for form in (secret, quote(secret), quote(secret, safe="")):
                why = why.replace(form, "***")
        return why


def no_store(name: str) -> Unavailable:
    """Return the error of a store that does not exist."""
    return Unavailable(f"there is no store at {name}", fix="Start `hushquery serve`, which creates it")


def _taken() -> NotReady:
    return NotReady("another process is already doing this", fix="Wait until it is done")


def _code(cause: BaseException) -> int | None:
    code = getattr(cause, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def free_bytes(path: Path) -> int:
    """Return how many bytes the disk of a file has left."""
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize


def sync_folder(folder: Path) -> None:
    """Make a folder's list of files durable: without it a power cut may remove a file that was just created."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
