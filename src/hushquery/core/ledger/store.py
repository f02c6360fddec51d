"""Where the ledger lives: two tables, the hash chain over their rows, and durable transactions.

Entries are never updated or deleted; a meta row holds the layout's version and the head, so that entries missing from
the end are noticed too. Each row's hash covers the row before it. No key is involved: the chain notices damage, a
careless edit, a lost row and a restored copy, but whoever may write to the store can write a whole new chain. Only a
head noted elsewhere (``Ledger.check``) notices that.

SQLite is one file on purpose: a write-ahead log could be left behind when the file is copied, so the rollback journal
is used, with ``synchronous=EXTRA``: a commit that returned survives a power cut.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from hushquery.errors import AccountMissing, LedgerCorrupt, Unavailable, UsageError, install

#: The version of the two tables; any other one is refused, because what it adds may be a cost.
SCHEMA = 1

GENESIS = "0" * 64

#: How long a writer waits for its turn: 50 processes at once must all get one.
WAIT_SECONDS = 60

# Any number will do, if it is always the same: it keeps two processes from creating the tables at once.
_CREATION_LOCK = 0x48555348

_RESTORE = (
    "Restore the ledger from a copy that `hushquery budget check` accepts and that holds every release made "
    "since; until then nothing may be released"
)

_TABLES = sa.MetaData()
META = sa.Table(
    "hushquery_ledger_meta",
    _TABLES,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("schema", sa.Integer, nullable=False),
    sa.Column("entries", sa.Integer, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
)
ENTRY = sa.Table(
    "hushquery_ledger_entry",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "population", "relation", "what", "plan")),
    sa.Column("period", sa.BigInteger, nullable=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("time", "data", "prev_hash", "hash")),
)
# Which files a population was charged for: private, beside the chain, and made by the first spend that names a file. So
# entries stay as they are, and a version that does not know the table opens the ledger as before.
FILE = sa.Table(
    "hushquery_ledger_file",
    sa.MetaData(),
    *(sa.Column(name, sa.Text, primary_key=True) for name in ("population", "path", "inode")),
)
_HASHED = tuple(column.name for column in ENTRY.columns if column.name != "hash")


def canonical(value: object) -> str:
    """Write plain data as the one JSON text it has: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(row: Mapping[str, Any]) -> str:
    """Return the hash a row must carry: SHA-256 over everything in it but the hash itself."""
    return hashlib.sha256(canonical({name: row[name] for name in _HASHED}).encode("ascii")).hexdigest()


def corrupt(name: str, why: str, fix: str = _RESTORE) -> LedgerCorrupt:
    """Word the refusal of a ledger that can't be trusted."""
    return LedgerCorrupt(f"the ledger {name} can't be trusted, so nothing is spent from it", why=why, fix=fix)


def default_ledger() -> str:
    """Return where the ledger of this person on this machine is, whatever folder a command runs in."""
    import platformdirs

    return str(platformdirs.user_data_path("hushquery", appauthor=False) / "ledger.db")


def file_marks(files: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Return the absolute path of each file that there is, and what tells it from others under any name."""
    marks: dict[str, str] = {}
    for file in files:
        with suppress(OSError):
            state = Path(file).stat()
            marks[os.path.realpath(file)] = f"{state.st_dev}:{state.st_ino}"
    return marks


class Transaction:
    """One look at the store, or one change to it: nobody else changes it in between."""

    def __init__(self, store: LedgerStore, connection: sa.Connection, *, writing: bool) -> None:
        self._store, self._connection, self._writing = store, connection, writing

    def rows_after(self, count: int, head: str) -> list[dict[str, Any]]:
        """Read the rows after the first ``count``, of which the last has the hash ``head``, and verify the chain."""
        name = self._store.name
        entries, end = self._head()
        if entries < count:
            raise corrupt(name, f"it had {count} entries before and now has {entries}: an old copy took its place")
        if self._connection.scalar(sa.select(sa.func.count()).select_from(ENTRY)) != entries:
            raise corrupt(name, f"its head says {entries} entries, and that is not how many there are")
        query = sa.select(ENTRY).where(ENTRY.c.seq >= count).order_by(ENTRY.c.seq)
        rows = [dict(row) for row in self._connection.execute(query).mappings()]
        if count:  # the last row verified before is read again: it must still be the same
            if not rows or rows[0]["seq"] != count or rows[0]["hash"] != head or not _intact(rows[0]):
                raise corrupt(name, f"entry {count} is not the entry that was there before")
            del rows[0]
        for seq, row in enumerate(rows, count + 1):
            if row["seq"] != seq:
                raise corrupt(name, f"entry {seq} is missing")
            if row["prev_hash"] != head:
                raise corrupt(name, f"entry {seq} does not follow the one before it: some were dropped or moved")
            if not _intact(row):
                raise corrupt(name, f"entry {seq} was changed after it was written")
            head = row["hash"]
        if count + len(rows) != entries or head != end:
            raise corrupt(name, "its last entry is not the one its head names: some were dropped or added")
        return rows

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows at the end of the chain, and the new head; both count once the transaction has ended."""
        self._connection.execute(sa.insert(ENTRY), [dict(row) for row in rows])
        moved = self._connection.execute(
            sa.update(META)
            .where(META.c.entries == rows[0]["seq"] - 1, META.c.head == rows[0]["prev_hash"])
            .values(entries=rows[-1]["seq"], head=rows[-1]["hash"])
        )
        if moved.rowcount != 1:  # pragma: no cover - the lock makes this impossible; if not, spend nothing
            raise corrupt(self._store.name, "its head moved while it was locked")

    def files(self) -> list[tuple[str, str, str]]:
        """Read the private table of files: population, path and inode of each."""
        if not sa.inspect(self._connection).has_table(FILE.name):
            return []
        return [tuple(row) for row in self._connection.execute(sa.select(FILE).order_by(*FILE.columns))]

    def add_files(self, population: str, marks: Mapping[str, str]) -> None:
        """Note that a population was charged for some files: the inode of each path."""
        new = {(population, *mark) for mark in marks.items()} - set(self.files() if marks else ())
        if new:
            FILE.create(self._connection, checkfirst=True)
            self._connection.execute(sa.insert(FILE), [dict(zip(FILE.columns.keys(), row, strict=True)) for row in new])

    def integrity(self) -> None:
        """Let SQLite check every page of its file, and that the file is exactly as long as it should be."""
        path = self._store.path
        if path is None:
            return
        size = self._connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        expected = size * self._connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        # stat, never open: closing any descriptor of the file would drop SQLite's locks on it (POSIX).
        length = path.stat().st_size
        if length != expected:
            raise corrupt(self._store.name, f"the file has {length} bytes instead of {expected}")
        if self._connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one() != "ok":
            raise corrupt(self._store.name, "SQLite finds its file damaged")

    def _head(self) -> tuple[int, str]:
        query = sa.select(META)
        if self._writing:  # PostgreSQL lets one writer at a time past here; SQLite did so at BEGIN IMMEDIATE
            query = query.with_for_update()
        rows = self._connection.execute(query).all()
        if len(rows) != 1:
            raise corrupt(self._store.name, "its head is missing, or there are two")
        _, schema, entries, head = rows[0]
        if schema != SCHEMA:
            raise corrupt(
                self._store.name,
                f"its layout is version {schema!r} and this hushquery knows only version {SCHEMA}",
                "Upgrade hushquery to the version that wrote it",
            )
        if not isinstance(entries, int) or not isinstance(head, str):
            raise corrupt(self._store.name, "its head is not a number of entries and a hash")
        return entries, head


def _intact(row: Mapping[str, Any]) -> bool:
    try:
        return bool(row["hash"] == digest(row))
    except (TypeError, ValueError):  # a blob or an infinity, where SQLite's loose types let somebody put one
        return False


class LedgerStore:
    """A SQLite file or a PostgreSQL database that keeps a ledger."""

    # A connection lives for one transaction, so a replaced file is noticed and a process may fork.

    def __init__(self, engine: sa.Engine, name: str, path: Path | None = None, secrets: tuple[str, ...] = ()) -> None:
        self._engine = engine
        self._secrets = secrets  # which must not appear in any message
        self.name = name  # for messages; no user, no password
        self.path = path  # of the SQLite file

    @classmethod
    def open(cls, where: str | os.PathLike[str], *, create: bool) -> LedgerStore:
        """Find the store at a path or URL, and make it where there is none and ``create`` allows it."""
        text = os.fspath(where)
        if "://" not in text:
            return cls._sqlite(text, create=create)
        try:
            url = sa.make_url(text)
        except (ArgumentError, ValueError):
            raise UsageError(
                "the address of the ledger can't be read",  # and is not shown: it may hold a password
                fix="Use a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE (%40 for @)",
            ) from None
        if url.drivername in ("sqlite", "sqlite+pysqlite"):
            if "?" in text or url.host:
                raise UsageError(
                    "the address of a SQLite ledger is a path and nothing else", fix="Use a path, or sqlite:///PATH"
                )
            return cls._sqlite(url.database or "", create=create)
        if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
            return cls._postgresql(url, create=create)
        raise UsageError(
            f"no ledger can be kept in {url.drivername!r}",
            fix="Use a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE",
        )

    @classmethod
    def _sqlite(cls, text: str, *, create: bool) -> LedgerStore:
        if text in ("", ":memory:"):
            raise UsageError(
                "a ledger in memory would forget what was spent", fix="Use the path of a file, such as ledger.db"
            )
        path = Path(os.path.realpath(text))
        store = cls(_sqlite_engine(path), text, path)
        if not path.exists():
            if not create:
                raise _no_ledger(text)
            if text == default_ledger():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.parent.chmod(0o700)  # it names the files that were charged
            store._make_file(path)
        elif path.is_file() and path.stat().st_size == 0:
            raise corrupt(text, "the file is empty, and a ledger never is", f"{_RESTORE}, or delete an empty file")
        with store._transaction("BEGIN") as connection:
            store._has_tables(connection)
        return store

    def _make_file(self, path: Path) -> None:
        """Make an empty ledger under another name, then link it to this one: none is ever seen half made."""
        try:
            with tempfile.TemporaryDirectory(prefix=".hushquery-", dir=path.parent) as folder:
                draft = Path(folder, "draft.db")
                with LedgerStore(_sqlite_engine(draft, new=True), self.name)._transaction("BEGIN") as connection:
                    _make_tables(connection)
                draft.chmod(0o600)  # it names the files that were charged; SQLite gives its journal the same mode
                with suppress(FileExistsError):  # another process was faster; its ledger is as good as ours
                    os.link(draft, path)
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # the name too must survive a power cut, or the budget would come back
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Unavailable(
                f"no ledger can be created at {self.name}",
                why=error.strerror or type(error).__name__,
                fix="Use a path in a folder that exists, on a local disk, where you may write",
            ) from None

    @classmethod
    def _postgresql(cls, url: sa.URL, *, create: bool) -> LedgerStore:
        host = url.host or url.query.get("host") or "localhost"
        name = f"postgresql://{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"
        hidden = [value for key, value in url.query.items() if "password" in key]
        secrets = tuple(value for value in (url.password, *hidden) if isinstance(value, str) and value)
        try:
            engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                poolclass=NullPool,
                connect_args={} if "connect_timeout" in url.query else {"connect_timeout": 10},
            )
        except ImportError:
            raise Unavailable(
                "a ledger in PostgreSQL needs the package psycopg", why="it is not installed", fix=install("serve")
            ) from None
        store = cls(engine, name, None, secrets)
        with store._transaction("REPEATABLE READ") as connection:
            there = store._has_tables(connection)
        if not there:
            if not create:
                raise _no_ledger(name)
            with store._transaction("READ COMMITTED") as connection:
                # Two processes that create at once would trip over each other's CREATE TABLE.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
                if not store._has_tables(connection):
                    _make_tables(connection)
        return store

    def _has_tables(self, connection: sa.Connection) -> bool:
        """Whether the ledger's tables are there; a file without them is somebody else's."""
        inspector = sa.inspect(connection)
        there = [inspector.has_table(table.name) for table in (META, ENTRY)]
        if not all(there) and (any(there) or self.path):
            raise corrupt(self.name, "it is a database, but a table of the ledger is not in it")
        return all(there)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Look at the store: everything read inside belongs to one moment."""
        with self._transaction("BEGIN" if self.path else "REPEATABLE READ") as connection:
            yield Transaction(self, connection, writing=False)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Change the store: one writer at a time, durable when the block ends, nothing when it raises."""
        # In PostgreSQL a writer waits for the meta row; READ COMMITTED then sees what the last writer left.
        with self._transaction("BEGIN IMMEDIATE" if self.path else "READ COMMITTED") as connection:
            if self.path:
                _keep_private(self.path)
            else:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
            yield Transaction(self, connection, writing=True)

    @contextmanager
    def _transaction(self, mode: str) -> Iterator[sa.Connection]:
        with self._translated(), self._engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                # The driver is in autocommit mode, so what runs is what is written here. When the block
                # raises, closing the connection rolls back, as the next reader does when a process dies.
                connection.exec_driver_sql(mode)
                yield connection
                connection.exec_driver_sql("COMMIT")
            else:
                with connection.execution_options(isolation_level=mode).begin():
                    yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the errors of drivers into ours; none of them may show a password."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
            if _means_damage(cause):
                raise corrupt(self.name, "its store can't be read as a ledger") from None
            why = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
            for secret in self._secrets:
                for form in (secret, quote(secret), quote(secret, safe="")):
                    why = why.replace(form, "***")
            raise Unavailable(
                f"the ledger {self.name} can't be reached or written, so nothing may be released",
                why=why,
                fix="Check that it is there, that you may write to it and that its disk is not full",
            ) from None


def _keep_private(path: Path) -> None:
    """Take away what others may do with a file of ours that an older version made: 0644 becomes 0600.

    The group keeps its rights where it may write, because then the ledger is shared on purpose.
    """
    with suppress(OSError):
        state = path.stat()
        kept = 0o770 if state.st_mode & 0o020 else 0o700
        if state.st_mode & 0o777 & ~kept and state.st_uid == os.geteuid():
            path.chmod(state.st_mode & kept)


def _no_ledger(name: str) -> AccountMissing:
    return AccountMissing(
        f"there is no ledger at {name}", fix="Open an account first; `hushquery budget open --help` says how"
    )


def _sqlite_engine(path: Path, *, new: bool = False) -> sa.Engine:
    # mode=rw never creates a file: an empty one must not look like a ledger on which nothing was spent.
    address = f"file:{quote(os.fsencode(path))}?mode={'rwc' if new else 'rw'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
            connection.execute("PRAGMA synchronous=EXTRA")
        except BaseException:
            connection.close()
            raise
        if mode != "delete":  # pragma: no cover - SQLite says "database is locked" before it comes to this
            connection.close()
            raise Unavailable("another program keeps the ledger in write-ahead mode", fix="Close it")
        return connection

    return sa.create_engine("sqlite://", creator=connect, poolclass=NullPool, isolation_level="AUTOCOMMIT")


def _make_tables(connection: sa.Connection) -> None:
    _TABLES.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(META).values(id=1, schema=SCHEMA, entries=0, head=GENESIS))


# What can be wrong with the world around a SQLite file; every other error means the file itself is wrong.
_SQLITE_OUTSIDE = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS
}  # fmt: skip


def _means_damage(cause: BaseException) -> bool:
    if isinstance(cause, sqlite3.Error):  # without a code: a text that is not text
        return getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _SQLITE_OUTSIDE
    # PostgreSQL: damaged data, or a table or column of ours is gone. Its other errors are about reaching it.
    state = getattr(cause, "sqlstate", None) or ""
    return state.startswith("XX") or state in ("42P01", "42703")
