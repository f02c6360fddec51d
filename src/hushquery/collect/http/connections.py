"""Connections: how many there may be at once, and how long each may keep the collector waiting.

Whoever has connected may let us wait for a request, for the rest of one, or for our answer to be read. All three end
after a while. When there are more connections than the process may have, the one that has let us wait longest goes, so
that the next is served; if all are being served, the next gets a 503. Some file descriptors are never given to
clients: the store and the operator's listener need them. Nothing here writes a line for each connection: it counts.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from hushquery.collect.http.problems import MEDIA_TYPE, document, refuse

__all__ = ["ADMIN_CONNECTIONS", "AT_ONCE", "OUTCOMES", "STATE", "Connection", "Connections", "raise_limit"]

#: Under this name an application tells its server, at the start, what its connections are limited by.
STATE = "connections"

#: What is counted of connections, with what it means.
OUTCOMES = {
    "not-http": "sent what is no HTTP",
    "idle": "let us wait for a request, or the rest of its head",
    "unread": "did not read the answer",
    "replaced": "was closed for another, having let us wait longest",
    "turned-away": "came when too many were being served",
    "no-descriptor": "could not be accepted: the system has no more descriptors",
}

#: How many connections are accepted at once, before any of them is looked at.
AT_ONCE = 64

#: How many connections the operator's listener has.
ADMIN_CONNECTIONS = 32

_MOST = 2000
# Descriptors that clients never get: for the store, its journal, the keys and the log; for the operator's listener;
# and for those that were accepted, or are being closed, while nobody has counted them.
_KEPT = 64 + ADMIN_CONNECTIONS + 3 * AT_ONCE
# How many more are let in when all are being served, to be told so.
_TOLD = AT_ONCE
# The head of a request comes within this time of connecting, the next within that time of the answer; of an answer a
# quarter of a buffer is read at least in the last.
_HEAD_SECONDS, _NEXT_SECONDS, _UNREAD_SECONDS = 10.0, 20.0, 20.0
_BUFFER = 1 << 14

_log = logging.getLogger("hushquery.collect")
# Uvicorn writes a line for each request that is none, and the trace of an error, which may hold a value.
_silent = logging.getLogger("hushquery.collect.http.connections")
_silent.setLevel(logging.CRITICAL + 1)


def raise_limit() -> int:
    """Raise the number of descriptors that the process may have as far as it can be, and return how many that is."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return _MOST + _KEPT
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST + _KEPT if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The connections of one server, in the order in which they began to let us wait.

    Args:
        count: Called with each outcome to count.
        most: How many there may be; by default as many as the limit on descriptors leaves.
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None, most: int | None = None) -> None:
        self.count = count
        self.most = max(1, min(_MOST, raise_limit() - _KEPT)) if most is None else most
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}

    @property
    def crowded(self) -> bool:
        """Whether there are more than there may be, and none that could go."""
        return len(self._open) > self.most

    def opened(self, connection: Connection) -> bool:
        """Register a new connection, closing another if there are too many. Return whether this one may stay."""
        if len(self._open) >= self.most and self._waiting:
            self.count("replaced")
            next(iter(self._waiting)).drop()
        if len(self._open) >= self.most + _TOLD:
            self.count("turned-away")
            return False
        self._open.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection, *, anew: bool) -> None:
        """Note that a connection lets us wait, from now on or as it did before."""
        if connection in self._open:
            if anew:
                self._waiting.pop(connection, None)
            self._waiting.setdefault(connection)

    def served(self, connection: Connection) -> None:
        """Note that it is our turn."""
        self._waiting.pop(connection, None)

    def watch_loop(self) -> None:
        """Keep the event loop from writing a line for each failed accept, and what other errors say."""

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self.count("no-descriptor")
            else:
                _log.error("the event loop met an error: %s", type(error).__name__)

        asyncio.get_running_loop().set_exception_handler(failed)


class Connection(H11Protocol):
    """A connection that does not let us wait for ever."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.logger = _silent
        self._all: Connections = self.app_state[STATE]
        self._patience: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or turn it away."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_BUFFER)
        # The system would hold megabytes more of an answer, for as long as nobody reads it.
        self._set_option(socket.SO_SNDBUF, 4 * _BUFFER)
        if not self._all.opened(self):
            transport.abort()
            return
        self._all.waits(self, anew=True)
        self._be_patient(_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._all.closed(self)
        self._be_patient(None)
        self._stop_watching()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close it at once, and let the system forget too what is still to be said."""
        self._all.closed(self)
        self._set_option(socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _set_option(self, name: int, value: int | bytes) -> None:
        with suppress(OSError):  # it has just been closed
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, name, value)

    # ---- whose turn it is ----------------------------------------------------------------------------------

    def handle_events(self) -> None:
        """Handle what has arrived."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._be_patient(None)  # the head of a request is there; its body has a time limit of its own
        self._note(anew=self.cycle is not before)

    def on_response_complete(self) -> None:
        """Wait for the next request, or begin with it if it is there."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before and not self.transport.is_closing():
            self._be_patient(_NEXT_SECONDS)
        self._note(anew=True)

    def _note(self, *, anew: bool) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused:
            self._all.waits(self, anew=anew)
        else:
            self._all.served(self)

    def _be_patient(self, seconds: float | None) -> None:
        # Unlike Uvicorn's own timer this one goes on when a byte arrives: a byte now and then is no request.
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds is None else self.loop.call_later(seconds, self._tired)

    def _tired(self) -> None:
        self._all.count("unread" if self.transport.get_write_buffer_size() else "idle")
        self.drop()

    # ---- answers -------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Wait for the client to read, not for ever."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_SECONDS, self._tired)
        self._note(anew=True)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._stop_watching()
        self._note(anew=False)

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- Uvicorn's words
        """Answer what is no HTTP with a problem document, and count it."""
        self._all.count("not-http")
        body = json.dumps(document(refuse("malformed", "it is not HTTP/1.1"))).encode()
        headers = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
        with suppress(h11.LocalProtocolError):  # an answer is under way: there is no place for another
            parts = (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
        self.transport.close()
