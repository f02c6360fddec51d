"""The operator's application: health, readiness and metrics, on a listener of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response

from hushquery._version import __version__
from hushquery.collect.epochs.clock import read_clock
from hushquery.collect.epochs.epochs import Epoch, epoch_statuses, registered
from hushquery.collect.http.limits import ADMIN_CONNECTIONS, OUTCOMES, STATE, Connections, KnownHosts, silent_app
from hushquery.collect.http.problems import PROBLEMS
from hushquery.collect.store.databases import StoreCalls
from hushquery.collect.store.reports import ACCEPTED, NO_TASK, REPEATED, counts
from hushquery.collect.store.schema import SCHEMA
from hushquery.collect.store.store import Store, free_bytes
from hushquery.errors import HushqueryError, Unavailable

#: Within how many seconds readiness and metrics answer, whatever the store does.
READY_SECONDS, METRICS_SECONDS = 1.5, 5.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"  #: The media type of Prometheus's text format.


def make_admin(store: Store, *, name: str = "localhost", public: Callable[[], str | None] = lambda: None) -> FastAPI:
    """Make the operator's application, which answers to ``name``; ``public`` returns the public one's trouble."""
    calls = StoreCalls(most=4)

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
        checks = (calls.call(READY_SECONDS, public), calls.call(READY_SECONDS, _trouble, store))
        of_public, of_store = await asyncio.gather(*checks, return_exceptions=True)
        if isinstance(of_public, Unavailable):
            of_public = "the public listener does not answer in time"
        why = next((_reason(one) for one in (of_public, of_store) if one is not None), None)
        return Response("ready\n" if why is None else f"{why}\n", 200 if why is None else 503, media_type="text/plain")

    @app.get("/metrics", summary="Counts in Prometheus's text format.")
    async def show_metrics() -> Response:
        try:
            text, up = await calls.call(METRICS_SECONDS, metrics, store), True
        except HushqueryError:
            text, up = "", False
        return Response(text + health(store, up=up), media_type=_TEXT)

    return app


def _reason(result: str | BaseException) -> str:
    if isinstance(result, HushqueryError):
        return result.what
    if isinstance(result, BaseException):
        raise result
    return result


def _trouble(store: Store) -> str | None:
    with store.write() as connection:
        stopped = read_clock(connection).stopped
    if stopped is not None:
        return f"no epoch moves by time: {stopped['what']}\n{stopped['why']}\n{stopped['fix']}"
    if store.lacks_room():
        return "the store or its disk is full: close epochs, raise the limit, or add a disk"
    return None


def _metric(name: str, text: str, values: Iterable[tuple[str, int]], kind: str = "gauge") -> str:
    lines = [f"# HELP hushquery_{name} {text}", f"# TYPE hushquery_{name} {kind}"]
    lines += [f"hushquery_{name}{f'{{{labels}}}' if labels else ''} {value}" for labels, value in values]
    return "\n".join(lines) + "\n"


def health(store: Store, *, up: bool) -> str:
    """Write the metrics that need no store, which has just answered or not."""
    full, other = store.failures.totals
    text = "1 if the store has just answered; if not, only these few metrics are shown."
    lines = _metric("store_up", text, [("", int(up))])
    lines += _metric(
        "store_full", "1 if the store had no room for reports a moment ago.", [("", int(store.failures.full))]
    )
    reasons = [('reason="full"', full), ('reason="other"', other)]
    text = "How often the store failed in this server, by reason."
    lines += _metric("store_failures_total", text, reasons, "counter")
    if up and store.path is not None:  # the disk of a store that hangs may hang too
        text = "What the disk of a SQLite store has left."
        lines += _metric("disk_free_bytes", text, [("", free_bytes(store.path))])
    return lines


def metrics(store: Store) -> str:
    """Write the metrics of the store: every reason of every task, zeros included; never per value or client."""
    counted, tasks = counts(store), dict(registered(store))
    with store.read() as connection:
        statuses = epoch_statuses(connection, tasks)
        stopped = read_clock(connection).stopped is not None
    uploads: list[tuple[str, int]] = []
    epochs: list[tuple[str, Epoch]] = []
    for row, task in tasks.items():
        reasons = {reason for of_row, reason in counted if of_row == row} | set(PROBLEMS) | {ACCEPTED, REPEATED}
        uploads += [(f'task="{task.id}",reason="{one}"', counted.get((row, one), 0)) for one in sorted(reasons)]
        mine = [one for one in statuses if one.task_row == row and not one.forgotten]
        epochs += [(f'task="{task.id}",epoch="{one.number}"', one) for one in mine]
    phases = [(f'{labels},phase="{epoch.phase}"', 1) for labels, epoch in epochs]
    stuck = [(labels, int(None not in (epoch.moving, epoch.trouble))) for labels, epoch in epochs]
    closed = [(labels, epoch.reports) for labels, epoch in epochs if epoch.reports is not None]
    dropped = [(f'outcome="{outcome}"', counted.get((NO_TASK, outcome), 0)) for outcome in OUTCOMES]
    return "".join(
        [
            _metric("uploads_total", "Uploads by task and outcome.", uploads, "counter"),
            _metric("epoch_phase", "1 for the phase of each epoch.", phases),
            _metric("epoch_trouble", "1 for an epoch whose next move was refused; `collect status` says why.", stuck),
            _metric("epoch_reports", "Reports counted at closing.", closed),
            _metric(
                "connections_total", "Connections that were not served, by what became of them.", dropped, "counter"
            ),
            _metric("store_bytes", "The size of the tables.", [("", store.size())]),
            _metric("schema_version", "The version of the tables.", [("", SCHEMA)]),
            _metric("clock_stopped", "1 if no epoch moves by time; `collect clock` says why.", [("", int(stopped))]),
        ]
    )
