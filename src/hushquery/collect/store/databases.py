"""Connections to SQLite and PostgreSQL, deadlines of calls into them, and counts of their failures.

A deadline (:func:`within`) becomes PostgreSQL's timeouts and SQLite's time to wait for a lock. A stopped database still
acknowledges every packet, so the connection itself gives up too, and is never used again. Whether a commit under way
took place is then unknown, so it is never acknowledged; a client that resends the report learns the outcome.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sqlite3
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from hushquery.errors import Unavailable

T = TypeVar("T")

_end: ContextVar[float | None] = ContextVar("hushquery_store_deadline", default=None)
WAIT_SECONDS = 30  #: How long a writer waits for its turn where there is no deadline.
CONNECT_SECONDS = 10.0  #: How long connecting may take where there is no deadline.
_LEAST_CONNECT = 2  # libpq knows no shorter time
_POOL_SECONDS = 2  # how long a request waits for a free connection
# A peer that is gone is noticed in half a minute; libpq's default is two hours.
_TCP = {
    "connect_timeout": int(CONNECT_SECONDS),
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

# Of a PostgreSQL transaction, in one statement. The last one frees its locks should this process hang.
_LIMIT = sa.select(
    sa.func.set_config("synchronous_commit", "on", True),
    sa.func.set_config("lock_timeout", sa.bindparam("lock", type_=sa.Text), True),
    sa.func.set_config("statement_timeout", sa.bindparam("statement", type_=sa.Text), True),
    sa.func.set_config("idle_in_transaction_session_timeout", sa.bindparam("idle", type_=sa.Text), True),
)
_SLOT = struct.Struct("=QQdd")  # how often the store was full or failed otherwise; when last full, when last accepting
_SLOTS = 128
_FULL_SECONDS = 15.0  # then a full store is tried again: readiness may keep away the uploads that would test it


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit all calls into the store in the block to so many seconds, or to what is left of an outer block's."""
    end, outer = time.monotonic() + seconds, _end.get()
    token = _end.set(end if outer is None else min(outer, end))
    try:
        yield
    finally:
        _end.reset(token)


def left() -> float | None:
    """Return how many seconds are left, at least zero; None without a deadline."""
    end = _end.get()
    return None if end is None else max(0.0, end - time.monotonic())


@cache
def bounded_connection() -> Any:
    """Return psycopg's connection class with deadlines, made here because psycopg need not be installed."""
    import psycopg

    def watched(connection: Any, steps: Generator[Any, Any, T], end: float) -> Generator[Any, Any, T]:
        # psycopg's own loop resumes this every tenth of a second, with nothing ready where nothing has arrived.
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= end:
                    connection.close()
                    message = "the server does not answer"
                    raise psycopg.OperationalError(message)
                wanted = steps.send(ready)
        except StopIteration as done:
            result: T = done.value
            return result

    class Bounded(psycopg.Connection[Any]):
        """A connection that is closed once its user's deadline has passed."""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            end = _end.get()
            return super().wait(gen if end is None else watched(self, gen, end), *arguments, **options)

        @classmethod
        def connect(cls, *arguments: Any, **options: Any) -> Any:
            seconds = left()
            if seconds is not None:
                if seconds <= 0:
                    message = "there was no time left to connect"
                    raise psycopg.OperationalError(message)
                given = float(options.get("connect_timeout", CONNECT_SECONDS))
                options["connect_timeout"] = max(_LEAST_CONNECT, int(min(given, seconds)))
            return super().connect(*arguments, **options)

    return Bounded


class StoreCalls:
    """Calls functions in threads, at most ``most`` at once, and abandons a call that hangs beyond its deadline."""

    def __init__(self, most: int = 12) -> None:
        self._free = asyncio.Semaphore(most)

    async def call(self, seconds: float, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function called in a thread, which may still run if it is not back in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
                future: asyncio.Future[T] = loop.create_future()

                def run() -> None:
                    try:
                        with within(seconds):
                            answer: Any = function(*arguments)
                        failed = False
                    except BaseException as error:
                        answer, failed = error, True
                    with suppress(RuntimeError):  # the loop is closed: nobody waits
                        loop.call_soon_threadsafe(self._settle, future, answer, failed)

                context = copy_context()
                try:
                    threading.Thread(target=context.run, args=(run,), name="hushquery-store-call", daemon=True).start()
                except RuntimeError:  # no more threads
                    self._free.release()
                    raise Unavailable("the collector has no thread left", fix="Send it again later") from None
                return await future
        except TimeoutError:
            raise Unavailable("the store does not answer in time", fix="Send it again later") from None

    def _settle(self, future: asyncio.Future[T], answer: Any, failed: bool) -> None:
        self._free.release()  # only now: a call that hangs keeps its place
        if future.done():
            return
        if failed:
            future.set_exception(answer)
        else:
            future.set_result(answer)


def limit_transaction(connection: sa.Connection) -> None:
    """Set the timeouts of a PostgreSQL transaction and make its commit durable."""
    connection.execute(_LIMIT, _limits())


def _limits() -> dict[str, str]:
    """Return PostgreSQL's timeouts: those of the deadline, else one for locks only, because moves may take long."""
    seconds = left()
    if seconds is None:
        return {"lock": f"{WAIT_SECONDS}s", "statement": "0", "idle": "0"}
    each = f"{max(1, int(1000 * seconds))}ms"
    return {"lock": each, "statement": each, "idle": each}


def limit_wait(connection: sa.Connection) -> None:
    """Let SQLite wait for a lock until the deadline."""
    seconds = left()
    milliseconds = int(1000 * (WAIT_SECONDS if seconds is None else seconds))
    if connection.info.get("busy_timeout") != milliseconds:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={milliseconds}")
        connection.info["busy_timeout"] = milliseconds


def sqlite_address(path: Path, mode: str) -> str:
    """Return the URI of a SQLite file; neither mode, ``ro`` or ``rw``, recreates a file that was deleted."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def sqlite_engine(path: Path, write: bool) -> sa.Engine:
    """Make the engine of a SQLite file; a read-only one leaves the file as it is."""
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
    """Make the engine of a PostgreSQL database; raises ImportError where psycopg is not installed."""
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


class FailureCounts:
    """How often a store failed, in memory that the processes of a server share, readable while the store is away."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        size = _SLOTS * _SLOT.size
        if path is None:
            self._memory = mmap.mmap(-1, size)
        else:
            with Path(path).open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), size)
        self._clock = clock
        self._mine = os.getpid() % _SLOTS * _SLOT.size
        self._lock = threading.Lock()

    @staticmethod
    @contextmanager
    def shared() -> Iterator[str]:
        """Create the memory that processes share, at its full size, and yield its path."""
        with tempfile.NamedTemporaryFile(prefix="hushquery-", suffix=".tally") as file:
            file.write(bytes(_SLOTS * _SLOT.size))
            file.flush()
            yield file.name

    def failed(self, *, full: bool) -> None:
        """Count a failure."""
        with self._lock:
            fulls, others, last, accepted = _SLOT.unpack_from(self._memory, self._mine)
            last = self._clock() if full else last
            _SLOT.pack_into(self._memory, self._mine, fulls + full, others + (not full), last, accepted)

    def accepted(self) -> None:
        """Record that a report was written."""
        with self._lock:
            fulls, others, last, _ = _SLOT.unpack_from(self._memory, self._mine)
            _SLOT.pack_into(self._memory, self._mine, fulls, others, last, self._clock())

    @property
    def totals(self) -> tuple[int, int]:
        """How often the store was full, and how often it failed otherwise, in all processes."""
        slots = list(_SLOT.iter_unpack(self._memory[:]))
        return sum(slot[0] for slot in slots), sum(slot[1] for slot in slots)

    @property
    def full(self) -> bool:
        """Whether the store was full when it was last asked to take a report, a moment ago."""
        slots = list(_SLOT.iter_unpack(self._memory[:]))
        last = max((last for count, _, last, _ in slots if count), default=float("-inf"))
        return last > max(slot[3] for slot in slots) and self._clock() - last < _FULL_SECONDS
