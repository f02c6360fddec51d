"""Running the collector: the public listener in one process or several, and the operator's listener beside it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from hushquery.collect.ending import signals_end_here
from hushquery.collect.settings import VARIABLE, Settings
from hushquery.errors import Unavailable, UsageError

__all__ = ["need_packages", "run"]

# What the extra `serve` brings and a collector imports.
_PACKAGES = ("fastapi", "uvicorn", "cryptography")

# How long a shutdown waits for requests that are under way.
_DRAIN_SECONDS = 12
# How long it waits for the operator's listener after that.
_ADMIN_SECONDS = 3
# More connections than this at once are turned away with 503.
_MOST_CONNECTIONS = 2000

_QUIET: dict[str, Any] = {
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "forwarded_allow_ips": "",
    "log_level": "warning",
    # Not the faster parser, which Uvicorn would take where it is installed: that one has no limit on headers.
    "http": "h11",
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
        ready: Is called with both addresses once they are taken.
    """
    need_packages()
    import uvicorn

    from hushquery.collect.app import make_app
    from hushquery.collect.store import Store
    from hushquery.collect.tally import Tally

    if workers < 1:
        raise UsageError("a collector needs one worker at least")
    settings.load_tasks()  # what is wrong with them is said here, once, and not by each worker
    settings.operator()
    with (
        Tally.shared() as tally,
        closing(Store.open(settings.store, most_bytes=settings.most_bytes, tally=Tally(tally))) as store,
        _bound(host, port) as public,
        _admin(store, admin_host, admin_port) as admin,
        signals_end_here(settings.end_seconds),
    ):
        if workers > 1 and store.path is not None:
            raise UsageError(
                "several workers need PostgreSQL", why="SQLite has one writer", fix="Give --store postgresql://..."
            )
        settings = replace(settings, tally_file=tally)
        ready(_address(public), admin)
        if workers == 1:
            config = uvicorn.Config(make_app(settings), limit_concurrency=_MOST_CONNECTIONS, **_QUIET)
            uvicorn.Server(config).run(sockets=[public])
        else:
            os.environ[VARIABLE] = settings.to_json()
            uvicorn.run(
                "hushquery.collect.app:from_environment",
                factory=True,
                workers=workers,
                fd=public.fileno(),
                limit_concurrency=_MOST_CONNECTIONS,
                **_QUIET,
            )


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
def _admin(store: Any, host: str, port: int | None) -> Iterator[str | None]:
    """Run the operator's listener in a thread, so that it answers for all workers."""
    if port is None:
        yield None
        return
    import uvicorn

    from hushquery.collect.admin import make_admin

    with _bound(host, port) as bound:
        server = uvicorn.Server(uvicorn.Config(make_admin(store), lifespan="off", **_QUIET))
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
