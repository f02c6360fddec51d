"""How the two databases are connected to, and how long a transaction may wait in them.

Under a deadline (:mod:`~hushquery.collect.store.deadlines`) their own timeouts are set to the time that remains.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from hushquery.collect.store.deadlines import CONNECT_SECONDS, bounded_connection, left

__all__ = ["WAIT_SECONDS", "be_patient", "limit_transaction", "postgresql_engine", "sqlite_address", "sqlite_engine"]

#: How long a writer waits for its turn where nobody is in a hurry (:mod:`~hushquery.collect.store.deadlines`).
WAIT_SECONDS = 30
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

# Of a transaction of PostgreSQL: all in one question. The last one frees its locks should this process hang.
_LIMIT = sa.select(
    sa.func.set_config("synchronous_commit", "on", True),
    sa.func.set_config("lock_timeout", sa.bindparam("lock", type_=sa.Text), True),
    sa.func.set_config("statement_timeout", sa.bindparam("statement", type_=sa.Text), True),
    sa.func.set_config("idle_in_transaction_session_timeout", sa.bindparam("idle", type_=sa.Text), True),
)


def limit_transaction(connection: sa.Connection) -> None:
    """Set the timeouts of a PostgreSQL transaction and make its commit durable."""
    connection.execute(_LIMIT, _limits())


def _limits() -> dict[str, str]:
    """Return PostgreSQL's timeouts: those of the deadline, else one for locks only, for moves may take their time."""
    seconds = left()
    if seconds is None:
        return {"lock": f"{WAIT_SECONDS}s", "statement": "0", "idle": "0"}
    each = f"{max(1, int(1000 * seconds))}ms"
    return {"lock": each, "statement": each, "idle": each}


def be_patient(connection: sa.Connection) -> None:
    """Let SQLite wait for a lock as long as there is time."""
    seconds = left()
    milliseconds = int(1000 * (WAIT_SECONDS if seconds is None else seconds))
    if connection.info.get("patience") != milliseconds:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={milliseconds}")
        connection.info["patience"] = milliseconds


def sqlite_address(path: Path, mode: str) -> str:
    """Return the address of a file for SQLite, with ``ro`` or ``rw``."""
    # Neither mode creates a file: one that was deleted while we run must not come back empty.
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def sqlite_engine(path: Path, write: bool) -> sa.Engine:
    """Make the engine of a SQLite file; one that may not write leaves the file as it is."""
    address = sqlite_address(path, "rw" if write else "ro")
    changing = ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "foreign_keys=ON")

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in changing if write else ():
                connection.execute(f"PRAGMA {pragma}").fetchall()
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


def postgresql_engine(url: sa.URL) -> sa.Engine:
    """Make the engine of a PostgreSQL database.

    Raises:
        ImportError: psycopg is not installed.
    """
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_size=4,
        max_overflow=16,
        pool_timeout=_POOL_SECONDS,
        isolation_level="READ COMMITTED",
        connect_args={name: value for name, value in _TCP.items() if name not in url.query},
    )

    @sa.event.listens_for(engine, "do_connect")
    def connect(_: object, __: object, arguments: list[object], options: dict[str, object]) -> object:
        return bounded_connection().connect(*arguments, **options)

    return engine
