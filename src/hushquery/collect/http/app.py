"""The public application of the collector: its routes, which take uploads and serve tasks, releases and pages.

It keeps no access log and reads no address and no user agent, so it may stand behind a relay.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hushquery._version import __version__
from hushquery.collect.collector import Collector, Settings
from hushquery.collect.epochs.epochs import EpochWork
from hushquery.collect.http.ingest import check_batch, check_one, read_id, read_records, write_id
from hushquery.collect.http.limits import STATE, Connections, Guard, media_type, problem_response, read_body, silent_app
from hushquery.collect.http.pages import PageFile, Pages
from hushquery.collect.http.problems import (
    BATCH,
    JSON,
    PROBLEMS,
    RECORDS,
    REPORT,
    RESULTS,
    TASK,
    TASK_LIST,
    answers,
    body,
    document,
    refuse,
    without_validation_errors,
)
from hushquery.collect.store.reports import ACCEPTED, REPEATED, Arrival
from hushquery.collect.store.vault import put_records
from hushquery.errors import HushqueryError

_STATUS = {ACCEPTED: 201, REPEATED: 200}
_SWITCH_SECONDS = 0.0005  # how long a thread that reads a large body may delay each turn of the event loop

TaskId = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The task id: 64 hexadecimal digits.")]
UploadId = Annotated[
    str,
    Path(
        pattern="^[A-Za-z0-9_-]{21}[AQgw]$",
        description="16 random bytes that the client chose, as base64url without padding.",
    ),
]
ReleaseId = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The id of a release, from its task.")]


def make_app(
    settings: Settings,
    *,
    work: EpochWork | None = None,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = time.monotonic,
    on_start: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Make the public application of a collector; ``on_start`` is called when it starts."""
    collector = Collector(settings, work, clock, steady)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        sys.setswitchinterval(_SWITCH_SECONDS)
        on_start()
        collector.start()
        connections = Connections(collector.count_connection)
        connections.watch_loop()
        try:
            yield {STATE: connections}
        finally:
            await asyncio.to_thread(collector.stop)

    app = silent_app(
        title="hushquery collector",
        version=__version__,
        description="Takes locally private reports and serves tasks and releases.",
        lifespan=life,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
    )
    app.state.collector = collector
    _handle_errors(app, settings.retry_after)
    _serve_tasks(app, collector)
    _take_reports(app, collector)
    _take_records(app, collector)
    _serve_pages(app, collector, cache(lambda: Pages(collector)))
    origins = {task.id: task.collect.origins for task in collector.cache.tasks.values()}
    app.add_middleware(Guard, origins=origins, retry_after=settings.retry_after)
    openapi = app.openapi
    app.openapi = lambda: without_validation_errors(openapi())  # type: ignore[method-assign]
    return app


def _handle_errors(app: FastAPI, retry_after: int) -> None:
    @app.exception_handler(HushqueryError)
    async def refused(_: Request, error: HushqueryError) -> Response:
        return problem_response(error, retry_after)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        # FastAPI's own answer would repeat what was sent.
        where = {part for one in error.errors() for part in one["loc"][:2]}
        names = {"task": "no-such-task", "release": "not-found"}
        name = next((names[part] for part in names if part in where), "malformed")
        return problem_response(refuse(name), retry_after)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        names = {404: "not-found", 405: "method-not-allowed"}
        response = problem_response(refuse(names.get(error.status_code, "malformed")), retry_after)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response


def _serve_tasks(app: FastAPI, collector: Collector) -> None:
    @app.get(
        "/v1/tasks", operation_id="tasks", summary="List the tasks.", responses=answers({200: ("Tasks.", TASK_LIST)})
    )
    async def tasks() -> Response:
        await collector.refresh()
        return Response(json.dumps(collector.task_list()), media_type=JSON, headers={"Cache-Control": "no-cache"})

    @app.get(
        "/v1/tasks/{task}",
        operation_id="task",
        summary="Get a task, the phase of its epoch, and what its clients run.",
        responses=answers({200: ("The task.", TASK), 304: ("As it was.", None)}, "no-such-task"),
    )
    async def task(task: TaskId, request: Request) -> Response:
        task_row = collector.row_of(task)
        await collector.refresh()
        data, tag = collector.task_document(task_row)
        return _tagged(request, data, tag, more={"Cache-Control": "no-cache"})

    @app.get(
        "/v1/releases/{release}",
        operation_id="release",
        summary="Get a release.",
        responses=answers({200: ("The release.", {"type": "object"}), 304: ("As it was.", None)}, "not-found"),
    )
    async def release(release: ReleaseId, request: Request) -> Response:
        data = await collector.read(collector.release, release)
        return _tagged(request, data, f'"{release}"', more={"Cache-Control": "public, max-age=31536000, immutable"})


def _serve_pages(app: FastAPI, collector: Collector, pages: Callable[[], Pages]) -> None:
    def answer(request: Request, file: PageFile) -> Response:
        from hushquery.publish.site import HEADERS  # pages may load their own files only

        return _tagged(request, file.data, file.tag, file.media_type, HEADERS)

    def redirect(address: str) -> Response:
        return Response(status_code=307, headers={"Location": address, "Cache-Control": "no-cache"})

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def entrance(request: Request) -> Response:
        page = pages().entrance()
        return redirect(page) if isinstance(page, str) else answer(request, page)

    @app.api_route("/sites/{task}", methods=["GET", "HEAD"], include_in_schema=False)
    async def site(task: TaskId) -> Response:
        return redirect(f"{task}/")  # relative, so that it works under any path

    @app.api_route("/sites/{task}/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(task: TaskId, name: str, request: Request) -> Response:
        return answer(request, await pages().file(collector.row_of(task), name))


def _tagged(
    request: Request, data: bytes, tag: str, media_type: str = JSON, more: Mapping[str, str] | None = None
) -> Response:
    headers = {"ETag": tag, **(more or {})}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=media_type, headers=headers)


def _take_reports(app: FastAPI, collector: Collector) -> None:
    seconds = collector.settings.body_seconds
    of_uploads = ("malformed", "no-such-task", "slow", "too-large", "media-type")
    of_reports = ("other-bytes", "phase-over", "too-old", "not-in-domain", "wrong-task", "clock", "too-early")

    @app.put(
        "/v1/tasks/{task}/reports/{id}",
        operation_id="putReport",
        summary="Send one report; again and again if need be, with the same bytes.",
        responses=answers(
            {201: ("It is new, and durable.", None), 200: ("It was there already.", None)}, *of_uploads, *of_reports
        ),
        openapi_extra=body(REPORT, binary=True),
    )
    async def put_report(task: TaskId, id: UploadId, request: Request) -> Response:
        task_row = collector.row_of(task)
        with collector.counting(task_row) as writer:
            kind, report_id = media_type(request), read_id(id)
            data = await read_body(request, collector.cache.tasks[task_row].collect.max_body, seconds)
            await collector.refresh()
            arrival = await collector.process(data, check_one, collector.cache, task_row, kind, data, report_id)
            (outcome,) = await writer.write([arrival])
        return _answer(outcome)

    @app.post(
        "/v1/tasks/{task}/reports",
        operation_id="postReports",
        summary="Send many reports; each gets its own status, in the order of the request.",
        responses=answers({200: ("What became of each.", RESULTS)}, *of_uploads),
        openapi_extra=body(BATCH, binary=True),
    )
    async def post_reports(task: TaskId, request: Request) -> Response:
        task_row = collector.row_of(task)
        with collector.counting(task_row) as writer:
            kind = media_type(request)
            data = await read_body(request, collector.cache.tasks[task_row].collect.max_body, seconds)
            await collector.refresh()
            checked = await collector.process(data, check_batch, collector.cache, task_row, kind, data)
            arrivals = [item for _, item in checked if isinstance(item, Arrival)]
            written = iter(await writer.write(arrivals) if arrivals else [])
            writer.count(task_row, [item for _, item in checked if isinstance(item, str)])
        outcomes = [(name, next(written) if isinstance(item, Arrival) else item) for name, item in checked]
        return Response(_results(outcomes), media_type=JSON, headers={"Cache-Control": "no-store"})


def _results(outcomes: list[tuple[bytes | None, str]]) -> bytes:
    """Encode the answer to many reports: a status for each, and each problem document once."""
    problems = list(dict.fromkeys(outcome for _, outcome in outcomes if outcome not in _STATUS))
    results: list[dict[str, Any]] = []
    for name, outcome in outcomes:
        results.append({"id": None if name is None else write_id(name)})
        if outcome in _STATUS:
            results[-1]["status"] = _STATUS[outcome]
        else:
            results[-1].update(status=PROBLEMS[outcome].status, problem=problems.index(outcome))
    answer = {"version": 2, "results": results, "problems": [document(refuse(name)) for name in problems]}
    return json.dumps(answer, separators=(",", ":")).encode()


def _answer(outcome: str) -> Response:
    if outcome not in _STATUS:
        raise refuse(outcome)
    return Response(status_code=_STATUS[outcome], headers={"Cache-Control": "no-store"})


def _take_records(app: FastAPI, collector: Collector) -> None:
    extra = body(RECORDS, binary=False)
    extra["security"] = [{"token": []}]

    @app.put(
        "/v1/tasks/{task}/records/{id}",
        operation_id="putRecords",
        summary="Give the records of a user who opted in.",
        responses=answers(
            {201: ("They are new, and durable.", None), 200: ("They were there already.", None)},
            *("malformed", "unauthorized", "no-such-task", "slow", "other-bytes", "contributed", "phase-over"),
            *("too-large", "media-type", "too-early"),
        ),
        openapi_extra=extra,
    )
    async def put_record(task: TaskId, id: UploadId, request: Request) -> Response:
        task_row = collector.row_of(task)
        spec = collector.cache.tasks[task_row]
        with collector.counting(task_row) as writer:
            header = request.headers.get("authorization")
            token = await collector.read(collector.tokens.check, task_row, header)
            kind, record_id = media_type(request), read_id(id)
            data = await read_body(request, spec.collect.max_body, seconds=collector.settings.body_seconds)
            records = await collector.process(data, read_records, kind, data, spec)
            if collector.watch.doubt:
                raise refuse("clock-stopped")  # the clock decides which epoch they belong to
            period = spec.period_at(collector.cache.now())
            outcome = await collector.write(
                put_records, collector.store, collector.vault, spec, task_row, period, token, record_id, records
            )
            writer.count(task_row, [f"records-{outcome}"])
        return _answer(outcome)
