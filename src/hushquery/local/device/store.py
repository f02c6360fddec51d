"""The SQLite file of clients: its tables and durable transactions; client.py fills them.

Whoever has the file has the secrets and can test values against the memo keys, so it stays on the device, readable for
its owner only. Every change is one transaction, of one process at a time, that is on disk before anything is returned
(rollback journal, ``synchronous=EXTRA``).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError

#: The version of the tables; another one is refused.
SCHEMA = 1

#: How long a process waits for its turn.
WAIT_SECONDS = 60

# Says in the file's header that the tables are ours: "HQcl".
_APPLICATION = 0x4851636C

_TABLES = (
    "CREATE TABLE client (id TEXT PRIMARY KEY, secret BLOB NOT NULL, spent TEXT NOT NULL, cap TEXT) WITHOUT ROWID",
    "CREATE TABLE memo (key BLOB PRIMARY KEY, client TEXT NOT NULL, task BLOB NOT NULL, period INTEGER NOT NULL, "
    "cost TEXT NOT NULL, payload BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE report (client TEXT NOT NULL, task BLOB NOT NULL, period INTEGER NOT NULL, slot INTEGER NOT NULL, "
    "id BLOB NOT NULL UNIQUE, data BLOB NOT NULL, sent INTEGER NOT NULL DEFAULT 0, "
    "PRIMARY KEY (client, task, period, slot)) WITHOUT ROWID",
    "CREATE INDEX memo_of_client ON memo (client)",
    f"PRAGMA application_id={_APPLICATION}",
    f"PRAGMA user_version={SCHEMA}",
)

# Files of earlier versions get these when opened: how far the log of head lists went that a task's collector showed
# last, and until when a collector is left alone whose last answer was a failure.
_LATER = (
    "CREATE TABLE IF NOT EXISTS lists (task BLOB PRIMARY KEY, count INTEGER NOT NULL, log TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS pause (server TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID",
)


class ClientStore:
    """The state file of clients; created, readable for its owner only, if it does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        if text in ("", ":memory:"):
            raise UsageError(
                "a client without a state file would randomise the same value anew each time",
                fix="Give the path of a file, such as client.db",
            )
        self.path = Path(os.path.realpath(text))
        self.name = self.path.name
        with self.transaction():
            pass  # makes the tables, or refuses a file that is not ours

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Change the state, alone; what was written is on the disk when this ends."""
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._check_tables(connection)
                    for statement in _LATER:
                        connection.execute(statement)
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    # After a failed commit SQLite may have rolled back by itself.
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _connect(self) -> sqlite3.Connection:
        with suppress(FileExistsError):
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                raise
            except OSError as error:
                raise Unavailable(
                    f"the state file {self.name} can't be made", why=error.strerror or "", fix="Choose another --state"
                ) from None
        address = f"file:{quote(os.fsencode(self.path))}?mode=rw"
        connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            # A write-ahead log beside the file could be lost when the file is copied.
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("PRAGMA secure_delete=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_tables(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not application and not tables:
            for statement in _TABLES:
                connection.execute(statement)
        elif application != _APPLICATION:
            raise DataError(f"{self.name} is not a state file of clients", fix="Give --state another path")
        elif version != SCHEMA:
            raise DataError(
                f"the state file {self.name} has version {version} and this hushquery knows only version {SCHEMA}",
                fix="Upgrade hushquery to the version that wrote it",
            )

    def _unusable(self, error: sqlite3.Error) -> HushqueryError:
        if isinstance(error, sqlite3.OperationalError):
            return Unavailable(
                f"the state file {self.name} can't be used now",
                why=str(error),
                fix="See that the disk has room, the file is writable and no other program holds it",
            )
        return DataError(
            f"the state file {self.name} is damaged or not SQLite",
            why=str(error),
            fix="Restore it; deleting it makes a new client, whose loss adds to the old one's",
        )
