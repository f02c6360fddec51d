"""The operator's side of the collector: health, readiness and metrics, on a listener of its own.

Metrics count per task and reason, never per value or client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI, Response

from hushquery._version import __version__
from hushquery.collect.connections import ADMIN_CONNECTIONS, OUTCOMES, STATE, Connections
from hushquery.collect.epochs import registered, standing
from hushquery.collect.http import KnownHosts, silent_app
from hushquery.collect.problems import PROBLEMS
from hushquery.collect.schema import SCHEMA
from hushquery.collect.store import Store
from hushquery.collect.writer import ACCEPTED, NO_TASK, REPEATED, counts
from hushquery.errors import HushqueryError

__all__ = ["make_admin", "metrics"]

#: The media type of Prometheus's text format.
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def make_admin(store: Store, *, name: str = "localhost", public: Callable[[], str | None] = lambda: None) -> FastAPI:
    """Make the operator's application; it belongs on a loopback address.

    Args:
        store: The collector's store.
        name: The name by which it is asked; addresses and ``localhost`` will do always, other names never.
        public: Says what is wrong with the public listener; None if it serves.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        connections = Connections(most=ADMIN_CONNECTIONS)
        connections.watch_loop()
        yield {STATE: connections}

    app = silent_app(title="hushquery collector: admin", version=__version__, lifespan=life)
    app.add_middleware(KnownHosts, name=name)

    @app.get("/healthz", summary="Whether the process lives.")
    def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", summary="Whether clients are answered and the store can be written.")
    def readyz() -> Response:
        if (trouble := public()) is not None:
            return Response(f"{trouble}\n", 503, media_type="text/plain")
        try:
            with store.write() as connection:
                connection.execute(sa.select(1))
            if store.is_full():
                return Response("the store is full\n", 503, media_type="text/plain")
        except HushqueryError as error:
            return Response(f"{error.what}\n", 503, media_type="text/plain")
        return Response("ready\n", media_type="text/plain")

    @app.get("/metrics", summary="Counts in Prometheus's text format.")
    def show_metrics() -> Response:
        try:
            return Response(metrics(store), media_type=_TEXT)
        except HushqueryError as error:
            return Response(f"# {error.what}\n", 503, media_type="text/plain")

    return app


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
    ]
    return "\n".join([*uploads, *phases, *stuck, *closed, *connections, *store_lines]) + "\n"
