"""The operator's application: a page, health, readiness and metrics, on a listener that changes nothing."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Response

from hushquery._version import __version__
from hushquery.collect.epochs.clock import format_time, read_clock
from hushquery.collect.epochs.epochs import Epoch, epoch_statuses, registered
from hushquery.collect.forecast import in_words
from hushquery.collect.http.limits import ADMIN_CONNECTIONS, OUTCOMES, STATE, Connections, KnownHosts, silent_app
from hushquery.collect.http.problems import PROBLEMS
from hushquery.collect.overview import overview, refused
from hushquery.collect.store.databases import StoreCalls
from hushquery.collect.store.reports import ACCEPTED, NO_TASK, REPEATED, counts
from hushquery.collect.store.schema import SCHEMA
from hushquery.collect.store.store import Store, free_bytes
from hushquery.core.ledger.entries import down_text, epsilon_text
from hushquery.errors import HushqueryError, Unavailable
from hushquery.templates import render

#: Within how many seconds readiness, metrics and the page answer, whatever the store does.
READY_SECONDS, METRICS_SECONDS, PAGE_SECONDS = 1.5, 5.0, 10.0
_MOST_EPOCHS = 6  # of each task are on the page, the latest
#: Of the page: it loads nothing, sends nothing, and is in no frame of another page.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TEXT = "text/plain; version=0.0.4; charset=utf-8"  #: The media type of Prometheus's text format.


def make_admin(
    store: Store,
    *,
    name: str = "localhost",
    public: Callable[[], str | None] = lambda: None,
    ledger: str | None = None,
    optin_share: float = 0.25,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """Make the operator's application, which answers to ``name``; ``public`` returns the public one's trouble."""
    # A page that hangs, perhaps because the ledger does, takes no place from readiness and metrics.
    calls, of_page = StoreCalls(most=4), StoreCalls(most=2)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        connections = Connections(most=ADMIN_CONNECTIONS)
        connections.watch_loop()
        yield {STATE: connections}

    app = silent_app(title="hushquery collector: admin", version=__version__, lifespan=life)
    app.add_middleware(KnownHosts, name=name)

    @app.get("/", summary="What an operator sees: epochs, the error of their reports, refusals, budgets and room.")
    async def page() -> Response:
        see = partial(overview, store, ledger, optin_share=optin_share, most=_MOST_EPOCHS)
        now = clock()
        try:
            text, status = await of_page.call(PAGE_SECONDS, lambda: operator_page(see(now=now), now)), 200
        except HushqueryError as error:
            text, status = operator_page(None, now, f"{error.what}. {error.fix}" if error.fix else error.what), 503
        return Response(text, status, HEADERS, "text/html; charset=utf-8")

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


def operator_page(data: dict[str, Any] | None, now: float, trouble: str = "") -> str:
    """Render the operator's page of an :func:`~hushquery.collect.overview.overview`; without one, say why."""
    return render(
        "collector/operator.html",
        data=data,
        seen=format_time(now),
        trouble=trouble,
        day=lambda seconds: format_time(seconds)[:10],
        time=lambda seconds: format_time(seconds)[:16] + " UTC",
        size=_size,
        words=in_words,
        refused=refused,
        spent=lambda account: epsilon_text(math.inf if account["spent_epsilon"] is None else account["spent_epsilon"]),
        down=down_text,
    )


def _size(many: float) -> str:
    """Print a number of bytes with three digits.

    >>> _size(999), _size(81_920), _size(52_300_000_000)
    ('999 B', '81.9 kB', '52.3 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if many < 999.5:
            return f"{many:.3g} {unit}"
        many /= 1000
    return f"{many:.3g} TB"


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
