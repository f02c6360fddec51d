"""Sending: a client's outbox goes to the collector, always with the same bytes, until it is acknowledged.

A report leaves the outbox when it is acknowledged (200, 201) or refused for good (400, 409, 410, 413, 422); else it is
sent again after 5 minutes, then every 15. Retry-After is not followed: a collector that chose a time for each device
would recognise it by when it comes back. Nothing is retried within a call; redirects are not followed.
"""

from __future__ import annotations

import base64
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

from hushquery.errors import UsageError
from hushquery.local.device.client import Client
from hushquery.local.device.store import ClientStore
from hushquery.local.report import Report

#: Seconds for which a collector that took nothing is left alone the first time.
FIRST_PAUSE = 300
#: The same, each time after that.
NEXT_PAUSE = 900
#: Malformed, other bytes under this id, phase over, too large, not of this task: trying again changes nothing.
REFUSED = frozenset({400, 409, 410, 413, 422})

_STORED = (200, 201)
# An answer is a status. What is longer than a problem document is not read, whoever sends it.
_MOST_ANSWER = 65_536
_HEADERS = {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True)
class Delivery:
    """What became of a report; ``status`` is the HTTP status, 0 if the collector was not reached."""

    report: Report
    outcome: Literal["stored", "refused", "later"]
    status: int


def connection_to(server: str, timeout: float) -> tuple[http.client.HTTPConnection, str]:
    """Make a connection to a collector, not opened yet; return it with what all its paths begin with."""
    try:
        parts = urlsplit(server)
        port = parts.port
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(server)
    except ValueError:
        raise UsageError("this is no address of a collector", fix="Use, say, https://collect.example.org") from None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, port, timeout=timeout), parts.path.rstrip("/")


@contextmanager
def within(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Cut a request off after so many seconds in all: a timeout of a socket starts anew with every byte."""

    def cut() -> None:
        if connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Sender:
    """Send outboxes to one collector over one connection; use it as a context.

    Args:
        server: The collector's address, such as ``https://collect.example.org``.
        timeout: Seconds to wait for an answer.
        clock: Returns the time in seconds since 1970.
        state: A state file of clients that also keeps the pause after a failure, for the next program to wait as long.
    """

    def __init__(
        self,
        server: str,
        *,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
        state: ClientStore | None = None,
    ) -> None:
        self._connection, self._path = connection_to(server, timeout)
        self._server, self._timeout = server, timeout
        self._clock = clock
        self._store = state
        #: Until when the collector is left alone; None unless its last answer was a failure.
        self.until = None if state is None else self._kept(state)

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def send(self, client: Client) -> list[Delivery]:
        """Send what waits of the client's task, and return what became of each report that was tried.

        Nothing is tried for a while after the collector failed, or if the task is switched off. Call it now and then.
        """
        done: list[Delivery] = []
        if not client.task.client.enabled:
            return done
        for report in client.outbox():
            if report.task != client.task.digest:
                continue
            if self.until is not None and self._clock() < self.until:
                break  # the next ones would be turned away too
            status = self._put(report)
            if status in _STORED or status in REFUSED:
                client.sent(report.id)
                self._keep(None)
                done.append(Delivery(report, "stored" if status in _STORED else "refused", status))
            else:
                self._keep(self._clock() + (FIRST_PAUSE if self.until is None else NEXT_PAUSE))
                done.append(Delivery(report, "later", status))
        return done

    def _kept(self, store: ClientStore) -> float | None:
        """Return the pause that is kept; a clock that has been set back must not make it endless."""
        with store.transaction() as connection:
            row = connection.execute("SELECT until FROM pause WHERE server = ?", (self._server,)).fetchone()
        now = self._clock()
        return None if row is None else float(row[0]) if row[0] <= now + NEXT_PAUSE else now

    def _keep(self, until: float | None) -> None:
        if self._store is not None and until != self.until:
            with self._store.transaction() as connection:
                connection.execute("DELETE FROM pause WHERE server = ?", (self._server,))
                if until is not None:
                    connection.execute("INSERT INTO pause (server, until) VALUES (?, ?)", (self._server, until))
        self.until = until

    def _put(self, report: Report) -> int:
        """Send one report and return the status."""
        name = base64.urlsafe_b64encode(report.id).rstrip(b"=").decode()
        path = f"{self._path}/v1/tasks/{report.task.hex()}/reports/{name}"
        try:
            with within(self._connection, self._timeout):
                self._connection.request("PUT", path, report.to_bytes(), _HEADERS)
                response = self._connection.getresponse()
                response.read(_MOST_ANSWER)
            if not response.isclosed():  # there is more, which nobody wants
                self._connection.close()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens it anew
            return 0
        return response.status
