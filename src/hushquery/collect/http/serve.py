"""Run the collector: its processes, the listeners they share, and how they end.

A process ends in time, whatever hangs, and loses nothing: what was acknowledged is on disk, and moves are resumed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from hushquery.collect.collector import Settings
from hushquery.errors import Unavailable, UsageError, install

_VARIABLE = "HUSHQUERY_COLLECTOR"  # the environment variable with the settings of worker processes
_PACKAGES = ("fastapi", "uvicorn", "h11", "cryptography")  # the packages of the extra `serve`
_DRAIN_SECONDS = 12  # how long a shutdown waits for requests that are under way
_ADMIN_SECONDS = 3  # how long it waits for the operator's listener after that
_BACKLOG = 2048  # how many connections may wait to be accepted
_TRY_SECONDS = 0.05  # how often the listener is tried until it answers
_ANSWER_SECONDS = 1.0

_QUIET: dict[str, Any] = {
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "forwarded_allow_ips": "",
    "log_level": "warning",
    # On h11, not the faster parser that Uvicorn prefers: that one has no limit on headers.
    "http": "hushquery.collect.http.limits:Connection",
    "backlog": 64,  # how many are accepted before any is handled
    "lifespan": "on",
    "ws": "none",
    "timeout_graceful_shutdown": _DRAIN_SECONDS,
    "timeout_keep_alive": 20,
}

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_over = threading.Event()  # set when a server has ended by itself; never in a worker

_log = logging.getLogger("hushquery.collect")


def need_packages() -> None:
    """Raise Unavailable if a package that a collector needs is not installed."""
    for name in _PACKAGES:
        try:
            import_module(name)
        except ImportError:
            what, fix = f"the collector needs the package {name}", install("serve")
            raise Unavailable(what, why="it is not installed", fix=fix) from None


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
    """Serve until SIGINT or SIGTERM, then write all that waits; ``ready`` is called once both addresses answer.

    Port 0 is any free one; without ``admin_port`` there is no operator's listener. Several workers need PostgreSQL.
    """
    need_packages()
    import uvicorn

    from hushquery.collect.http.app import make_app
    from hushquery.collect.http.limits import raise_limit
    from hushquery.collect.store.databases import FailureCounts
    from hushquery.collect.store.store import Store
    from hushquery.collect.store.vault import read_operator_key

    raise_limit()  # before there are workers, which inherit it
    if workers < 1:
        raise UsageError("a collector needs at least one worker")
    settings.load_tasks()  # errors are raised here once, and not by each worker
    read_operator_key(settings.operator_key_file)
    with (
        FailureCounts.shared() as failures,
        closing(Store.open(settings.store, most_bytes=settings.most_bytes, failures=FailureCounts(failures))) as store,
        _bound(host, port) as public,
        _admin(store, settings, admin_host, admin_port, public) as admin,
        signals_end_here(settings.end_seconds),
    ):
        if workers > 1 and store.path is not None:
            raise UsageError(
                "several workers need PostgreSQL", why="SQLite has one writer", fix="Give --store postgresql://..."
            )
        settings = replace(settings, failures_file=failures)
        with _announced(public, lambda: ready(_address(public), admin)):
            if workers == 1:
                app = make_app(settings, on_start=partial(end_in_time, settings.end_seconds))
                uvicorn.Server(uvicorn.Config(app, **_QUIET)).run(sockets=[public])
            else:
                os.environ[_VARIABLE] = settings.to_json()
                factory = "hushquery.collect.http.serve:make_worker"
                uvicorn.run(factory, factory=True, workers=workers, fd=public.fileno(), **_QUIET)


def run_setup(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = 8081,
    collector: str | None = None,
    ready: Callable[[str], None] = lambda _: None,
) -> Path | None:
    """Serve the first-run page on this machine alone until it has written a task file, and return that.

    ``ready`` is called with the address to open, which has a token that works once. None after SIGINT or SIGTERM.
    """
    need_packages()
    import uvicorn

    from hushquery.collect.http.setup import ENTER, FirstRun, make_setup

    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        found = host
    if port is None or not _is_loopback(str(found)):
        raise UsageError(
            "the first-run page is for this machine alone" if port is not None else "the first-run page needs a port",
            fix="Leave out --admin-host and --admin-port, or write the task with `hushquery task new`",
        )
    run = FirstRun(folder)
    with _bound(str(found), port) as bound, signals_end_here(_DRAIN_SECONDS) as stopped:
        app = make_setup(run, done=lambda: setattr(server, "should_exit", True), collector=collector)
        server = uvicorn.Server(uvicorn.Config(app, **_QUIET))
        address = f"{_address(bound)}{ENTER}?token={run.token}"
        with _announced(bound, lambda: ready(address)):
            server.run(sockets=[bound])
    return None if stopped.is_set() else run.written


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def make_worker() -> Any:
    """Make the application of a worker process, from the settings in the environment."""
    from hushquery.collect.http.app import make_app

    settings = Settings.from_json(os.environ[_VARIABLE])
    end_with_parent()
    end_in_time(settings.end_seconds)  # and again at its start, when Uvicorn has set its own handlers
    return make_app(settings, on_start=partial(end_in_time, settings.end_seconds))


@contextmanager
def _announced(public: socket.socket, ready: Callable[[], None]) -> Iterator[None]:
    """Call ``ready`` when the public listener answers, in this process or in a worker; never if it ends before."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_TRY_SECONDS):
            if _trouble(public.family, address) is None:
                with suppress(OSError):  # it has just been closed
                    public.listen(_BACKLOG)  # Uvicorn has set it to the number that it accepts at once
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
    """Return what is wrong with the public listener, asked as a client; None if it serves."""
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
        bound.listen(_BACKLOG)
        bound.set_inheritable(True)
    except OSError as error:
        what, fix = f"port {port} of {host} can't be taken", "Choose another port, or stop what uses it"
        raise Unavailable(what, why=error.strerror or "", fix=fix) from None
    with bound:
        yield bound


@contextmanager
def _admin(store: Any, settings: Settings, host: str, port: int | None, public: socket.socket) -> Iterator[str | None]:
    """Run the operator's listener in a thread, for all workers."""
    if port is None:
        yield None
        return
    import uvicorn

    from hushquery.collect.http.admin import make_admin

    trouble = partial(_trouble, public.family, public.getsockname())
    more: dict[str, Any] = {"ledger": settings.ledger, "optin_share": settings.optin_share}
    with _bound(host, port) as bound:
        server = uvicorn.Server(uvicorn.Config(make_admin(store, name=host, public=trouble, **more), **_QUIET))
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


def end_in_time(seconds: float) -> None:
    """End the process so many seconds after SIGINT or SIGTERM, after present handlers; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        signal.signal(number, _begin(signal.getsignal(number), seconds))


def _begin(before: Any, seconds: float) -> Callable[[int, FrameType | None], None]:
    def begin(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=_end, args=(_over, seconds), name="hushquery-ending", daemon=True).start()
        if callable(before):
            before(number, frame)

    return begin


def _end(over: threading.Event, seconds: float) -> None:
    if not over.wait(seconds):
        _log.error("the collector could not end in %g seconds: it ends without closing its store", seconds)
        os._exit(0)  # it was asked to end, and does


@contextmanager
def signals_end_here(seconds: float) -> Iterator[threading.Event]:
    """Keep Uvicorn, which raises a signal again, from ending the process before the block or ``seconds`` are over.

    The event that it yields is set when a signal has come.
    """
    global _over
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    over = _over = threading.Event()
    before = {number: signal.signal(number, lambda *_: came.set()) for number in _SIGNALS}
    end_in_time(seconds)
    try:
        yield came
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """In a worker: end, as on SIGTERM, as soon as the process that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="hushquery-parent", daemon=True).start()
