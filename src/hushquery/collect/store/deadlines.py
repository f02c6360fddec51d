"""Deadlines on what the store does, so that a store that hangs is found out and nobody waits for it.

Whoever has to answer in time says so (:func:`within`); everything that asks the store inside the block looks at what is
left. PostgreSQL's server gets it as its own timeouts, SQLite as the time to wait for a lock. Both help only as long as
the other side runs: a database that is stopped still acknowledges every packet, so TCP sees nothing wrong. Hence the
connection itself gives up (:func:`bounded_connection`). It is closed then and never used again. Whether a commit that
was under way took place is not known, so nobody is told that it did; whoever sends the same report again is told.

A call into a file system that hangs can't be given up. It goes on in a thread of its own (:class:`Asker`), which keeps
no process from ending.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, TypeVar

from hushquery.errors import Unavailable

__all__ = ["Asker", "bounded_connection", "left", "within"]

T = TypeVar("T")

_end: ContextVar[float | None] = ContextVar("hushquery_store_deadline", default=None)

#: How long a connection may take to be made where nobody is in a hurry.
CONNECT_SECONDS = 10.0
# libpq knows no shorter time.
_LEAST_CONNECT = 2


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give what is asked of the store in the block so many seconds in all, or what is left of an outer block's."""
    end, outer = time.monotonic() + seconds, _end.get()
    token = _end.set(end if outer is None else min(outer, end))
    try:
        yield
    finally:
        _end.reset(token)


def left() -> float | None:
    """Return how many seconds are left, never below zero; None where there is no deadline.

    >>> left() is None
    True
    >>> with within(5):
    ...     with within(60):
    ...         0 < left() <= 5
    True
    """
    end = _end.get()
    return None if end is None else max(0.0, end - time.monotonic())


@cache
def bounded_connection() -> Any:
    """Return psycopg's connection class with deadlines; made here, because psycopg need not be installed."""
    import psycopg

    def watched(connection: Any, made: Generator[Any, Any, T], end: float) -> Generator[Any, Any, T]:
        # psycopg's own loop comes by every tenth of a second, with nothing in its hands where nothing has arrived.
        try:
            wanted = next(made)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= end:
                    connection.close()
                    message = "the server does not answer"
                    raise psycopg.OperationalError(message)
                wanted = made.send(ready)
        except StopIteration as done:
            found: T = done.value
            return found

    class Bounded(psycopg.Connection[Any]):
        """A connection that is closed once the deadline of who uses it has passed."""

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


class Asker:
    """Asks the store for requests, each in a thread that nobody waits for longer than its time.

    Args:
        most: How many may ask at once; more wait for their turn.
    """

    def __init__(self, most: int = 12) -> None:
        self._free = asyncio.Semaphore(most)

    async def ask(self, seconds: float, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread, within a deadline, and return what it returns.

        Raises:
            Unavailable: It did not return in time; it may still be running.
        """
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
                    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                        loop.call_soon_threadsafe(self._settle, future, answer, failed)

                context = copy_context()
                try:
                    threading.Thread(target=context.run, args=(run,), name="hushquery-asker", daemon=True).start()
                except RuntimeError:  # the operating system gives no more threads
                    self._free.release()
                    raise Unavailable("the collector has no thread left", fix="Send it again later") from None
                return await future
        except TimeoutError:
            raise Unavailable("the store does not answer in time", fix="Send it again later") from None

    def _settle(self, future: asyncio.Future[T], answer: Any, failed: bool) -> None:
        self._free.release()  # now, and not when its time was over: a call that hangs keeps its place
        if future.done():
            return
        if failed:
            future.set_exception(answer)
        else:
            future.set_result(answer)
