"""Running the collector: the public listener in one process or several, and the operator's listener beside it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from hushquery.collect.http.ending import signals_end_here
from hushquery.collect.http.settings import VARIABLE, Settings
from hushquery.errors import Unavailable, UsageError

__all__ = ["need_packages", "run"]

# What the extra `serve` brings and a collector imports.
_PACKAGES = ("fastapi", "uvicorn", "h11", "cryptography")

# How long a shutdown waits for requests that are under way.
_DRAIN_SECONDS = 12
# How long it waits for the operator's listener after that.
_ADMIN_SECONDS = 3
# How many connections may wait to be accepted, and how often it is looked whether the listener answers.
_BACKLOG = 2048
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 1.0

_QUIET: dict[str, Any] = {
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "forwarded_allow_ips": "",
    "log_level": "warning",
    # On h11, not the faster parser, which Uvicorn would take where it is installed: that one has no limit on headers.
    "http": "hushquery.collect.http.connections:Connection",
    # So many are accepted before any is looked at.
    "backlog": 64,
    "lifespan": "on",
    "ws": "none",
    "timeout_graceful_shutdown": _DRAIN_SECONDS,
    "timeout_keep_alive": 20,
}


def need_packages() -> None:
    """Refuse, with what to type, where a package that a collector needs is not installed."""
    for name in _PACKAGES:
        try:
            import_module(name)
        except ImportError:
            raise Unavailable(
                f"the collector needs the package {name}",
                why="it is not installed",
                fix="pip install 'hushquery[serve]'",
            ) from None


def run(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    admin_host: str = "127.0.0.1",
    admin_port: int | None = 8081,
    workers: int = 1,
    ready: Callable[[str, str | None], None] = lambda *_: None,
) -> None:
    """Serve until told to stop (SIGINT or SIGTERM), then write all that waits.

    Args:
        settings: The settings.
        host: The address of the public listener.
        port: Its port; 0 for any that is free.
        admin_host: The address of the operator's listener.
        admin_port: Its port; None for no such listener.
        workers: How many processes; more than one needs PostgreSQL.
        ready: Is called with both addresses once they answer, from a thread.
    """
    need_packages()
    import uvicorn

    from hushquery.collect.http.app import make_app
    from hushquery.collect.http.connections import raise_limit
    from hushquery.collect.store.store import Store
    from hushquery.collect.store.tally import Tally

    raise_limit()  # before there are workers, which inherit it
    if workers < 1:
        raise UsageError("a collector needs one worker at least")
    settings.load_tasks()  # what is wrong with them is said here, once, and not by each worker
    settings.operator()
    with (
        Tally.shared() as tally,
        closing(Store.open(settings.store, most_bytes=settings.most_bytes, tally=Tally(tally))) as store,
        _bound(host, port) as public,
        _admin(store, admin_host, admin_port, public) as admin,
        signals_end_here(settings.end_seconds),
    ):
        if workers > 1 and store.path is not None:
            raise UsageError(
                "several workers need PostgreSQL", why="SQLite has one writer", fix="Give --store postgresql://..."
            )
        settings = replace(settings, tally_file=tally)
        with _announced(public, lambda: ready(_address(public), admin)):
            if workers == 1:
                uvicorn.Server(uvicorn.Config(make_app(settings), **_QUIET)).run(sockets=[public])
            else:
                os.environ[VARIABLE] = settings.to_json()
                factory = "hushquery.collect.http.app:from_environment"
                uvicorn.run(factory, factory=True, workers=workers, fd=public.fileno(), **_QUIET)


@contextmanager
def _announced(public: socket.socket, ready: Callable[[], None]) -> Iterator[None]:
    """Call when the public listener answers, in this process or in a worker; never if it ends before that."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            if _trouble(public.family, address) is None:
                with suppress(OSError):  # it has just been closed
                    public.listen(_BACKLOG)  # Uvicorn has set it to as many as it accepts at once
                ready()
                return

    address = public.getsockname()
    thread = threading.Thread(target=watch, name="hushquery-ready", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _trouble(family: int, address: Any) -> str | None:
    """Say what is wrong with a listener that clients use, as one of them; None if it serves."""
    try:
        with socket.socket(family) as wire:
            wire.settimeout(_ANSWER_SECONDS)
            wire.connect(address)
            wire.sendall(b"HEAD /v1/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = wire.recv(12).partition(b" ")[2]
    except OSError:
        return "the public listener does not answer"
    return "more connections are open than can be served" if status in (b"503", b"") else None


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)
        bound.set_inheritable(True)
    except OSError as error:
        raise Unavailable(
            f"port {port} of {host} can't be taken",
            why=error.strerror or "",
            fix="Choose another port, or stop what has it",
        ) from None
    with bound:
        yield bound


@contextmanager
def _admin(store: Any, host: str, port: int | None, public: socket.socket) -> Iterator[str | None]:
    """Run the operator's listener in a thread, so that it answers for all workers."""
    if port is None:
        yield None
        return
    import uvicorn

    from hushquery.collect.http.admin import make_admin

    trouble = partial(_trouble, public.family, public.getsockname())
    with _bound(host, port) as bound:
        server = uvicorn.Server(uvicorn.Config(make_admin(store, name=host, public=trouble), **_QUIET))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="hushquery-admin", daemon=True)
        thread.start()
        try:
            yield _address(bound)
        finally:
            server.should_exit = True
            thread.join(_ADMIN_SECONDS)


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
