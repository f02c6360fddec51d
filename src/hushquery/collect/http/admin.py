"""The operator's side of the collector: health, readiness and metrics, on a listener of its own.

Metrics count per task and reason, never per value or client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response

from hushquery._version import __version__
from hushquery.collect.epochs.clock import read_clock
from hushquery.collect.epochs.epochs import registered, standing
from hushquery.collect.http.connections import ADMIN_CONNECTIONS, OUTCOMES, STATE, Connections
from hushquery.collect.http.problems import PROBLEMS
from hushquery.collect.http.requests import KnownHosts, silent_app
from hushquery.collect.store.deadlines import Asker
from hushquery.collect.store.room import free
from hushquery.collect.store.schema import SCHEMA
from hushquery.collect.store.store import Store
from hushquery.collect.store.writer import ACCEPTED, NO_TASK, REPEATED, counts
from hushquery.errors import HushqueryError, Unavailable

__all__ = ["health", "make_admin", "metrics"]

#: Within how many seconds readiness and metrics answer, whatever the store does.
READY_SECONDS, METRICS_SECONDS = 1.5, 5.0
#: The media type of Prometheus's text format.
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def make_admin(store: Store, *, name: str = "localhost", public: Callable[[], str | None] = lambda: None) -> FastAPI:
    """Make the operator's application; it belongs on a loopback address.

    Args:
        store: The collector's store.
        name: The name by which it is asked; addresses and ``localhost`` will do always, other names never.
        public: Says what is wrong with the public listener; None if it serves.
    """
    asker = Asker(most=4)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        connections = Connections(most=ADMIN_CONNECTIONS)
        connections.watch_loop()
        yield {STATE: connections}

    app = silent_app(title="hushquery collector: admin", version=__version__, lifespan=life)
    app.add_middleware(KnownHosts, name=name)

    @app.get("/healthz", summary="Whether the process lives.")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", summary="Whether clients are answered, reports are taken and epochs move.")
    async def readyz() -> Response:
        # Both at once: neither waits for what the other waits for.
        looked = (asker.ask(READY_SECONDS, public), asker.ask(READY_SECONDS, _lacks, store))
        of_public, of_store = await asyncio.gather(*looked, return_exceptions=True)
        if isinstance(of_public, Unavailable):
            of_public = "the public listener does not answer in time"
        why = next((_said(one) for one in (of_public, of_store) if one is not None), None)
        return Response("ready\n" if why is None else f"{why}\n", 200 if why is None else 503, media_type="text/plain")

    @app.get("/metrics", summary="Counts in Prometheus's text format.")
    async def show_metrics() -> Response:
        try:
            found, up = await asker.ask(METRICS_SECONDS, metrics, store), True
        except HushqueryError:
            found, up = "", False
        return Response(found + health(store, up=up), media_type=_TEXT)

    return app


def _said(found: str | BaseException) -> str:
    """Return what a look at a listener or store found, or why there was none."""
    if isinstance(found, HushqueryError):
        return found.what
    if isinstance(found, BaseException):
        raise found
    return found


def _lacks(store: Store) -> str | None:
    """Return what a collector lacks to do its work; None where it lacks nothing."""
    with store.write() as connection:
        stopped = read_clock(connection).stopped
    if stopped is not None:
        return f"no epoch moves by time: {stopped['what']}\n{stopped['why']}\n{stopped['fix']}"
    if store.lacks_room():
        return "the store or its disk is full: close epochs, raise the limit, or add a disk"
    return None


def health(store: Store, *, up: bool) -> str:
    """Write what is known without the store, in Prometheus's text format.

    Args:
        store: The store, which is not asked.
        up: Whether it has just answered.
    """
    full, other = store.tally.failures
    lines = [
        "# HELP hushquery_store_up 1 if the store has just answered; if not, only these few metrics are shown.",
        "# TYPE hushquery_store_up gauge",
        f"hushquery_store_up {int(up)}",
        "# HELP hushquery_store_full 1 if the store had no room for reports a moment ago.",
        "# TYPE hushquery_store_full gauge",
        f"hushquery_store_full {int(store.tally.full)}",
        "# HELP hushquery_store_failures_total How often the store failed in this server, by reason.",
        "# TYPE hushquery_store_failures_total counter",
        f'hushquery_store_failures_total{{reason="full"}} {full}',
        f'hushquery_store_failures_total{{reason="other"}} {other}',
    ]
    if up and store.path is not None:  # the disk of a store that hangs may hang too
        lines += [
            "# HELP hushquery_disk_free_bytes What the disk of a SQLite store has left.",
            "# TYPE hushquery_disk_free_bytes gauge",
            f"hushquery_disk_free_bytes {free(store.path)}",
        ]
    return "\n".join(lines) + "\n"


def metrics(store: Store) -> str:
    """Write the counts in Prometheus's text format: every reason of every task, zeros included."""
    counted = counts(store)
    uploads = ["# HELP hushquery_uploads_total Uploads by task and outcome.", "# TYPE hushquery_uploads_total counter"]
    phases = ["# HELP hushquery_epoch_phase 1 for the phase of each epoch.", "# TYPE hushquery_epoch_phase gauge"]
    closed = ["# HELP hushquery_epoch_reports Reports counted at closing.", "# TYPE hushquery_epoch_reports gauge"]
    stuck = [
        "# HELP hushquery_epoch_trouble 1 for an epoch whose next move was refused; `collect status` says why.",
        "# TYPE hushquery_epoch_trouble gauge",
    ]
    tasks = dict(registered(store))
    with store.read() as connection:
        epochs = standing(connection, tasks)
        stopped = read_clock(connection).stopped is not None
    for number, task in tasks.items():
        reasons = {reason for of_task, reason in counted if of_task == number}
        for reason in sorted(reasons | set(PROBLEMS) | {ACCEPTED, REPEATED}):
            value = counted.get((number, reason), 0)
            uploads.append(f'hushquery_uploads_total{{task="{task.id}",reason="{reason}"}} {value}')
        for epoch in epochs:
            if epoch.task_number == number and not epoch.forgotten:
                where = f'task="{task.id}",epoch="{epoch.number}"'
                phases.append(f'hushquery_epoch_phase{{{where},phase="{epoch.phase}"}} 1')
                stuck.append(f"hushquery_epoch_trouble{{{where}}} {int(None not in (epoch.moving, epoch.trouble))}")
                if epoch.reports is not None:
                    closed.append(f"hushquery_epoch_reports{{{where}}} {epoch.reports}")
    connections = ["# HELP hushquery_connections_total Connections that were not served, by what became of them."]
    connections.append("# TYPE hushquery_connections_total counter")
    for outcome in OUTCOMES:
        value = counted.get((NO_TASK, outcome), 0)
        connections.append(f'hushquery_connections_total{{outcome="{outcome}"}} {value}')
    store_lines = [
        "# HELP hushquery_store_bytes The size of the tables.",
        "# TYPE hushquery_store_bytes gauge",
        f"hushquery_store_bytes {store.size()}",
        "# HELP hushquery_schema_version The version of the tables.",
        "# TYPE hushquery_schema_version gauge",
        f"hushquery_schema_version {SCHEMA}",
        "# HELP hushquery_clock_stopped 1 if no epoch moves by time; `collect clock` says why.",
        "# TYPE hushquery_clock_stopped gauge",
        f"hushquery_clock_stopped {int(stopped)}",
    ]
    return "\n".join([*uploads, *phases, *stuck, *closed, *connections, *store_lines]) + "\n"
