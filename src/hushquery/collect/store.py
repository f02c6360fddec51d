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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from hushquery.collect.deadlines import CONNECT_SECONDS, bounded_connection, left
from hushquery.collect.room import LEAST_FREE, free
from hushquery.collect.schema import MIGRATIONS, SCHEMA, TABLES, Migration, prepare
from hushquery.collect.tally import Tally
from hushquery.errors import DataError, NotReady, Unavailable, UsageError

__all__ = ["Store", "StoreFull", "sync_folder"]

#: How long a writer waits for its turn where nobody is in a hurry (:mod:`~hushquery.collect.deadlines`).
WAIT_SECONDS = 30
# A file with fewer pages left counts as full: a report and its indices may need so many.
_LEAST_PAGES = 4
# How long a request waits for one of the connections to be free.
_POOL_SECONDS = 2
# A peer that is gone is found out in half a minute; libpq's default is two hours.
_TCP = {
    "connect_timeout": int(CONNECT_SECONDS),
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

# Keeps two processes from making or converting the tables at once.
_PREPARE_LOCK = 0x48514331


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
        self.tally = tally or Tally()

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str],
        *,
        create: bool = True,
        most_bytes: int | None = None,
        tally: Tally | None = None,
        version: int = SCHEMA,
        migrations: Mapping[int, Migration] = MIGRATIONS,
    ) -> Store:
        """Open the store at a path or URL; make its tables where there are none, convert them where they are older.

        Args:
            where: A path, ``sqlite:///PATH`` or ``postgresql://USER@HOST:PORT/DATABASE``.
            create: Whether a SQLite file may be made where there is none.
            most_bytes: The size that the store may have.
            tally: What counts its failures; by default one of its own.
            version: The version of the tables to reach; for tests of conversions.
            migrations: How to reach it.
        """
        text = os.fspath(where)
        if "://" not in text:
            store = cls._sqlite(text, create, most_bytes)
        else:
            try:
                url = sa.make_url(text)
            except (ArgumentError, ValueError):
                raise _unreadable() from None
            if url.drivername in ("sqlite", "sqlite+pysqlite"):
                if "?" in text or url.host:
                    raise _unreadable()
                store = cls._sqlite(url.database or "", create, most_bytes)
            elif url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
                store = cls._postgresql(url, most_bytes)
            else:
                raise _unreadable()
        store.tally = tally or store.tally
        try:
            with store.write() as connection:
                if store.path is None:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_PREPARE_LOCK)))
                prepare(connection, store.name, version, migrations)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def _sqlite(cls, text: str, create: bool, most_bytes: int | None) -> Store:
        if text in ("", ":memory:"):
            raise UsageError("a collector can't keep reports in memory", fix="Give the path of a file: collector.db")
        path = Path(os.path.realpath(text))
        if not path.exists():
            if not create:
                raise Unavailable(f"there is no store at {text}", fix="Start `hushquery serve`, which makes it")
            try:
                # The write-ahead log takes the mode of the file: for its owner only.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                sync_folder(path.parent)
            except OSError as error:
                raise Unavailable(
                    f"the store {text} can't be made", why=error.strerror or "", fix="Choose another --store"
                ) from None
        return cls(_sqlite_engine(path, most_bytes), text, path, (), most_bytes)

    @classmethod
    def _postgresql(cls, url: sa.URL, most_bytes: int | None) -> Store:
        host = url.host or url.query.get("host") or "localhost"
        name = f"postgresql://{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"
        hidden = [value for key, value in url.query.items() if "password" in key]
        secrets = tuple(value for value in (url.password, *hidden) if isinstance(value, str) and value)
        try:
            engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                pool_pre_ping=True,
                pool_size=4,
                max_overflow=16,
                pool_timeout=_POOL_SECONDS,
                isolation_level="READ COMMITTED",
                connect_args={name: value for name, value in _TCP.items() if name not in url.query},
            )
        except ImportError:
            raise Unavailable(
                "a store in PostgreSQL needs the package psycopg", fix="pip install 'hushquery[serve]'"
            ) from None

        @sa.event.listens_for(engine, "do_connect")
        def connect(_: object, __: object, arguments: list[object], options: dict[str, object]) -> object:
            return bounded_connection().connect(*arguments, **options)

        return cls(engine, name, None, secrets, most_bytes)

    # ---- transactions --------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Look at the store: everything read inside belongs to one moment."""
        with self._translated(), self._engine.connect() as connection:
            if self.path is not None:
                _be_patient(connection)
                connection.exec_driver_sql("BEGIN")
                try:
                    yield connection
                finally:
                    with suppress(SQLAlchemyError, sqlite3.Error):
                        connection.exec_driver_sql("ROLLBACK")
            else:
                with connection.execution_options(isolation_level="REPEATABLE READ").begin():
                    if left() is not None:
                        connection.execute(_LIMIT, _limits())
                    yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Change the store: durable when the block ends, nothing when it raises."""
        with self._translated(), self._engine.connect() as connection:
            if self.path is None:
                with connection.begin():
                    connection.execute(_LIMIT, _limits())
                    yield connection
                return
            _be_patient(connection)
            self._still_there(connection)
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
            sizes = (
                connection.execute(
                    sa.select(sa.func.coalesce(sa.func.pg_total_relation_size(sa.func.to_regclass(table)), 0))
                )
                for table in TABLES.tables
            )
            return sum(int(size.scalar_one()) for size in sizes)

    def is_full(self) -> bool:
        """Say whether the size limit is reached; SQLite's freed pages count as free, because they are used again."""
        if self.most_bytes is None or self.path is None:
            return self.most_bytes is not None and self.size() >= self.most_bytes
        with self.read() as connection:
            names = ("page_count", "freelist_count", "page_size")
            pages, spare, page = (int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()) for name in names)
        return pages - spare + _LEAST_PAGES > max(1, self.most_bytes // page)

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

    def wipe_traces(self) -> None:
        """Empty SQLite's write-ahead log, so that deleted rows are nowhere in its files.

        PostgreSQL keeps deleted rows in its own log for a while; what must not be read there has to be written as
        ciphertext from the start.
        """
        if self.path is None:
            return
        with self._translated(), self._engine.connect() as connection:
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
        if busy:
            raise NotReady("the write-ahead log is in use and could not be emptied", fix="Try again")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

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


# Of a transaction of PostgreSQL: all in one question. The last one frees its locks should this process hang.
_LIMIT = sa.select(
    sa.func.set_config("synchronous_commit", "on", True),
    sa.func.set_config("lock_timeout", sa.bindparam("lock", type_=sa.Text), True),
    sa.func.set_config("statement_timeout", sa.bindparam("statement", type_=sa.Text), True),
    sa.func.set_config("idle_in_transaction_session_timeout", sa.bindparam("idle", type_=sa.Text), True),
)


def _limits() -> dict[str, str]:
    """Return PostgreSQL's timeouts: those of the deadline, else one for locks only, for moves may take their time."""
    seconds = left()
    if seconds is None:
        return {"lock": f"{WAIT_SECONDS}s", "statement": "0", "idle": "0"}
    each = f"{max(1, int(1000 * seconds))}ms"
    return {"lock": each, "statement": each, "idle": each}


def _be_patient(connection: sa.Connection) -> None:
    """Let SQLite wait for a lock as long as there is time."""
    seconds = left()
    milliseconds = int(1000 * (WAIT_SECONDS if seconds is None else seconds))
    if connection.info.get("patience") != milliseconds:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={milliseconds}")
        connection.info["patience"] = milliseconds


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


def _sqlite_engine(path: Path, most_bytes: int | None) -> sa.Engine:
    # mode=rw never creates a file: one that was deleted while we run must not come back empty.
    address = f"file:{quote(os.fsencode(path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            if most_bytes is not None:
                (page,) = connection.execute("PRAGMA page_size").fetchone()
                connection.execute(f"PRAGMA max_page_count={max(1, most_bytes // page)}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    engine = sa.create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=4,
        max_overflow=16,
        isolation_level="AUTOCOMMIT",
        pool_timeout=_POOL_SECONDS,
    )

    @sa.event.listens_for(engine, "connect")
    def note_file(_: object, record: sa.pool.ConnectionPoolEntry) -> None:
        there = path.stat()
        record.info["file"] = (there.st_dev, there.st_ino)

    return engine
