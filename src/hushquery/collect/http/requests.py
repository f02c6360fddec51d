"""What holds for every request: limits on bodies, headers on answers, origins, and nothing said about failures."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from inspect import signature
from ipaddress import ip_address
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushquery.collect.http.connections import STATE
from hushquery.collect.http.problems import MEDIA_TYPE, document, problem_of, refuse
from hushquery.errors import HushqueryError

__all__ = ["Guard", "KnownHosts", "media_type", "problem_response", "read_body", "silent_app"]

_log = logging.getLogger("hushquery.collect")

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "interest-cohort=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TASK_PATH = "/v1/tasks/"
_METHODS = "GET, PUT, POST"
_SENT = "Authorization, Content-Type, If-None-Match"
_SHOWN = "ETag, Retry-After"
_DAY = "86400"
# Answers are handed over in parts of this size.
_PART = 1 << 14
# Statuses after which the rest of the body is not worth reading, and those that say when to come back.
_CLOSING = (408, 413)
_LATER = (425, 429, 503)


def silent_app(**options: Any) -> FastAPI:
    """Make an application without pages that load scripts from elsewhere, and without telemetry.

    Where a program has set up OpenTelemetry, FastAPI tells it of each request with its whole path, report ids included,
    unless all of that is switched off.
    """
    if "telemetry" in signature(FastAPI).parameters:  # older ones have none
        options["telemetry"] = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
    return FastAPI(docs_url=None, redoc_url=None, **options)


def media_type(request: Request) -> str:
    """Give the media type of a body; one that is compressed is refused."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise refuse("media-type", "bodies are not compressed here")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Read a body of limited size in limited time; what is larger is refused before it is read.

    Raises:
        Refusal: It is larger (413) or slower (408).
    """
    length = request.headers.get("content-length", "0")
    # Digits alone: Python's int() would read "1_0" too.
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
    if problem.status in _LATER:
        headers["Retry-After"] = str(retry_after)
    if problem.status in _CLOSING:
        headers["Connection"] = "close"
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="opt-in records"'
    body = json.dumps(document(error)).encode()
    return Response(body, problem.status, headers, MEDIA_TYPE)


class Guard:
    """Stands before the application: adds headers, answers for origins, and lets no error text out.

    Args:
        app: The application.
        origins: The origins that each task allows, by task id; ``*`` stands for all.
        retry_after: What Retry-After says, in seconds.
    """

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
                for name, value in (*_HEADERS.items(), *cross.items()):
                    answer.setdefault(name, value)  # pages have a policy of their own
            body = message.get("body", b"")
            for start in range(0, len(body), _PART):  # the next when this one is read, so that none lies about twice
                more = start + _PART < len(body) or message.get("more_body", False)
                await send({**message, "body": body[start : start + _PART], "more_body": more})
            if not body:
                await send(message)

        connections = scope.get("state", {}).get(STATE)
        if connections is not None and connections.crowded:
            refusal = problem_response(refuse("crowded"), self._retry_after)
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, guarded)
            return
        if "transfer-encoding" in headers and "content-length" in headers:
            # Two lengths of one body: what stands before us may believe the other one, and smuggle a request in it.
            refusal = problem_response(refuse("malformed", "the body has two lengths"), 1)
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, guarded)
            return
        if scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            await Response(status_code=204)(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # its text and its trace may hold a value, so neither is written anywhere
            _log.error("a request failed: %s", type(error).__name__)
            if not started:
                failure = HushqueryError("the collector has failed")
                await problem_response(failure, 1)(scope, receive, guarded)

    def _cross_origin(self, path: str, origin: str | None) -> dict[str, str]:
        """Say which headers let a page of another origin read the answer."""
        if not path.startswith(_TASK_PATH):
            # Whoever asks, because caches keep releases for a year and give everybody the same answer.
            return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": _SHOWN}
        if origin is None:
            return {"Vary": "Origin"}
        allowed = self._origins.get(path.removeprefix(_TASK_PATH).partition("/")[0], frozenset())
        found = {"Vary": "Origin"}
        if origin in allowed or "*" in allowed:
            found["Access-Control-Allow-Origin"] = origin
            found["Access-Control-Allow-Methods"] = _METHODS
            found["Access-Control-Allow-Headers"] = _SENT
            found["Access-Control-Expose-Headers"] = _SHOWN
            found["Access-Control-Max-Age"] = _DAY
        return found


class KnownHosts:
    """Stands before the operator's application: answers no request that was sent to a name.

    A page of anybody can give its own name the address of this machine, and its browser then lets it read what is
    answered there. Addresses, ``localhost`` and the name that the operator chose can't be taken over like that.

    Args:
        app: The application.
        name: The name that the listener was given.
    """

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._names = {"localhost", name.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and not self._knows(Headers(scope=scope).getlist("host")):
            await Response("this listener has another name\n", 421, media_type="text/plain")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        host, _, port = hosts[0].lower().rpartition(":")
        name = host if host and port.isdecimal() else hosts[0].lower()
        try:
            return name in self._names or bool(ip_address(name.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False
