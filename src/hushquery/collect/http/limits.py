"""Limits on connections and requests: time, size, headers and origins; no details of failures leave the process.

docs/howto/operate-the-collector.md lists the limits. Some file descriptors are never given to clients, because the
store and the operator's listener need them. Connections are counted, never logged one by one.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from inspect import signature
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import h11
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hushquery.collect.http.problems import MEDIA_TYPE, RETRIED, document, problem_of, refuse
from hushquery.errors import HushqueryError

STATE = "connections"  #: The key of an application's state under which its server finds the limit on connections.

#: What is counted of connections, with what it means.
OUTCOMES = {
    "not-http": "sent something other than HTTP",
    "idle": "sent no request, or not all of its head",
    "unread": "did not read the answer",
    "replaced": "was closed to make room, having been idle longest",
    "turned-away": "came when too many were being served",
    "no-descriptor": "could not be accepted: the system has no more descriptors",
}

AT_ONCE = 64  #: How many connections are accepted at once, before any of them is handled.
ADMIN_CONNECTIONS = 32  #: How many connections the operator's listener has.

_MOST = 2000
# Descriptors for the store, its journal, keys and log, the operator's listener, and connections not counted yet.
_RESERVED = 64 + ADMIN_CONNECTIONS + 3 * AT_ONCE
_REFUSED = AT_ONCE  # how many more are let in when all are being served, to be answered 503
# Time limits: for the head of a request, for the next request, and for a client that stops reading an answer.
_HEAD_SECONDS, _NEXT_SECONDS, _UNREAD_SECONDS = 10.0, 20.0, 20.0
_BUFFER = 1 << 14

#: Headers of every answer, unless it has its own.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "interest-cohort=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TASK_PATH = "/v1/tasks/"
_EXPOSED = "ETag, Retry-After"
_PART = 1 << 14  # answers are sent in parts of this size
_CLOSING = (408, 413)  # statuses after which the rest of the body is not worth reading

_log = logging.getLogger("hushquery.collect")
# Uvicorn would log each malformed request, and the trace of an error, which may hold a value.
_silent = logging.getLogger("hushquery.collect.http.limits")
_silent.setLevel(logging.CRITICAL + 1)


def raise_limit() -> int:
    """Raise the process's limit on file descriptors as far as possible, and return it."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return _MOST + _RESERVED
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST + _RESERVED if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The connections of one server, by default as many as descriptors allow; ``count`` is called with outcomes."""

    def __init__(self, count: Callable[[str], None] = lambda _: None, most: int | None = None) -> None:
        self.count = count
        self.most = max(1, min(_MOST, raise_limit() - _RESERVED)) if most is None else most
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}

    @property
    def crowded(self) -> bool:
        """Whether there are too many and none that could be closed."""
        return len(self._open) > self.most

    def opened(self, connection: Connection) -> bool:
        """Register a connection, closing another if there are too many; return whether it may stay."""
        if len(self._open) >= self.most and self._waiting:
            self.count("replaced")
            next(iter(self._waiting)).drop()
        if len(self._open) >= self.most + _REFUSED:
            self.count("turned-away")
            return False
        self._open.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def idle(self, connection: Connection, *, since_now: bool) -> None:
        """Record that we wait for a client, beginning now or still."""
        if connection in self._open:
            if since_now:
                self._waiting.pop(connection, None)
            self._waiting.setdefault(connection)

    def busy(self, connection: Connection) -> None:
        """Record that the client waits for us."""
        self._waiting.pop(connection, None)

    def watch_loop(self) -> None:
        """Keep the event loop from logging each failed accept, and the text of other errors."""

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self.count("no-descriptor")
            else:
                _log.error("the event loop met an error: %s", type(error).__name__)

        asyncio.get_running_loop().set_exception_handler(failed)


class Connection(H11Protocol):
    """A connection that can't keep us waiting for ever."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.logger = _silent
        self._all: Connections = self.app_state[STATE]
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or turn it away."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_BUFFER)
        # The system would buffer megabytes more of an answer that nobody reads.
        self._set_option(socket.SO_SNDBUF, 4 * _BUFFER)
        if not self._all.opened(self):
            transport.abort()
            return
        self._all.idle(self, since_now=True)
        self._set_timer(_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up."""
        self._all.closed(self)
        self._set_timer(None)
        self._stop_watching()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close it at once and discard what is still to be sent."""
        self._all.closed(self)
        self._set_option(socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _set_option(self, name: int, value: int | bytes) -> None:
        with suppress(OSError):  # it has just been closed
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, name, value)

    def handle_events(self) -> None:
        """Handle what has arrived."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._set_timer(None)  # a request's head has arrived; its body has a time limit of its own
        self._update(since_now=self.cycle is not before)

    def on_response_complete(self) -> None:
        """Wait for the next request, or begin with it if it has arrived."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before and not self.transport.is_closing():
            self._set_timer(_NEXT_SECONDS)
        self._update(since_now=True)

    def _update(self, *, since_now: bool) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused:
            self._all.idle(self, since_now=since_now)
        else:
            self._all.busy(self)

    def _set_timer(self, seconds: float | None) -> None:
        # Unlike Uvicorn's own timer this one is not reset by single bytes.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        self._all.count("unread" if self.transport.get_write_buffer_size() else "idle")
        self.drop()

    def pause_writing(self) -> None:
        """Wait for the client to read, within limits."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_SECONDS, self._time_out)
        self._update(since_now=True)

    def resume_writing(self) -> None:
        """Continue."""
        super().resume_writing()
        self._stop_watching()
        self._update(since_now=False)

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- Uvicorn's text
        """Answer malformed HTTP with a problem document, and count it."""
        self._all.count("not-http")
        body = json.dumps(document(refuse("malformed", "it is not HTTP/1.1"))).encode()
        headers = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
        with suppress(h11.LocalProtocolError):  # an answer is under way
            parts = (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
        self.transport.close()


def silent_app(**options: Any) -> FastAPI:
    """Make an application without pages that load foreign scripts and without telemetry, which would report paths."""
    if "telemetry" in signature(FastAPI).parameters:  # older ones have none
        options["telemetry"] = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
    return FastAPI(docs_url=None, redoc_url=None, **options)


def media_type(request: Request) -> str:
    """Return the media type of a body; compressed ones are refused."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise refuse("media-type", "bodies are not compressed here")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Read a body of limited size in limited time, or refuse it as too large (413) or too slow (408)."""
    length = request.headers.get("content-length", "0")
    # Digits only: int() would accept "1_0" too.
    if not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise refuse("malformed", "Content-Length is no number")
    if int(length) > most:
        raise refuse("too-large")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise refuse("too-large")
                parts.append(part)
    except TimeoutError:
        raise refuse("slow") from None
    except ClientDisconnect:
        raise refuse("malformed", "the body ended early") from None
    return b"".join(parts)


def problem_response(error: HushqueryError, retry_after: int) -> Response:
    """Answer with the problem document of an error."""
    problem = problem_of(error)
    headers = {"Cache-Control": "no-store"}
    if problem.status in RETRIED:
        headers["Retry-After"] = str(retry_after)
    if problem.status in _CLOSING:
        headers["Connection"] = "close"
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="opt-in records"'
    body = json.dumps(document(error)).encode()
    return Response(body, problem.status, headers, MEDIA_TYPE)


class Guard:
    """Middleware that adds headers, answers for the origins that tasks allow, and lets no error text out."""

    def __init__(self, app: ASGIApp, origins: Mapping[str, Iterable[str]], retry_after: int) -> None:
        self._app = app
        self._retry_after = retry_after
        self._origins = {task: frozenset(allowed) for task, allowed in origins.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cross = self._cross_origin(str(scope["path"]), headers.get("origin"))
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                answer = MutableHeaders(scope=message)
                for name, value in (*HEADERS.items(), *cross.items()):
                    answer.setdefault(name, value)  # pages have a policy of their own
            body = message.get("body", b"")
            for start in range(0, len(body), _PART):  # the next when this one is read, so that memory holds one
                more = start + _PART < len(body) or message.get("more_body", False)
                await send({**message, "body": body[start : start + _PART], "more_body": more})
            if not body:
                await send(message)

        connections = scope.get("state", {}).get(STATE)
        refusal = None
        if connections is not None and connections.crowded:
            refusal = refuse("crowded")
        elif "transfer-encoding" in headers and "content-length" in headers:
            # A proxy in front of us may believe the other length, and a second request be smuggled in.
            refusal = refuse("malformed", "the body has two lengths")
        if refusal is not None:
            response = problem_response(refusal, self._retry_after)
            response.headers["Connection"] = "close"
            await response(scope, receive, guarded)
            return
        if scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            await Response(status_code=204)(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # its text and trace may hold a value, so neither is logged
            _log.error("a request failed: %s", type(error).__name__)
            if not started:
                failure = HushqueryError("the collector has failed")
                await problem_response(failure, 1)(scope, receive, guarded)

    def _cross_origin(self, path: str, origin: str | None) -> dict[str, str]:
        if not path.startswith(_TASK_PATH):
            # For every origin, because caches keep releases for a year and give everybody the same answer.
            return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": _EXPOSED}
        if origin is None:
            return {"Vary": "Origin"}
        allowed = self._origins.get(path.removeprefix(_TASK_PATH).partition("/")[0], frozenset())
        if origin not in allowed and "*" not in allowed:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, PUT, POST",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match",
            "Access-Control-Expose-Headers": _EXPOSED,
            "Access-Control-Max-Age": "86400",
        }


class KnownHosts:
    """Middleware that refuses requests to a foreign host name: a web page could point its name here (DNS rebinding).

    It refuses to be read by scripts of other pages too: only they send an origin with GET.
    """

    def __init__(self, app: ASGIApp, name: str, *, loopback: bool = False) -> None:
        self._app = app
        self._names = {"localhost", name.lower()}
        self._loopback = loopback  # whether only addresses of this machine itself are known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        refusal = self._refusal(Headers(scope=scope), scope["method"]) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers, method: str) -> Response | None:
        if not self._knows(headers.getlist("host")):
            return Response("this listener has another name\n", 421, media_type="text/plain")
        if method in ("GET", "HEAD") and "origin" in headers:
            return Response("this listener answers no other page\n", 403, media_type="text/plain")
        return None

    def _knows(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        host, _, port = hosts[0].lower().rpartition(":")
        name = host if host and port.isdecimal() else hosts[0].lower()
        try:
            return name in self._names or self._accepts(ip_address(name.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False

    def _accepts(self, address: IPv4Address | IPv6Address) -> bool:
        return address.is_loopback or not self._loopback
