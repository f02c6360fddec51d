"""The public side of the collector: an application that takes uploads and serves tasks and releases.

It keeps no access log and looks at no address and no user agent, so it may stand behind a relay.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hushquery._version import __version__
from hushquery.collect.collector import Collector
from hushquery.collect.epochs.phases import EpochWork
from hushquery.collect.http.connections import STATE, Connections
from hushquery.collect.http.documents import BATCH, RECORDS, REPORT, RESULTS, TASK, TASK_LIST, answers, body, cleaned
from hushquery.collect.http.ending import end_in_time, end_with_parent
from hushquery.collect.http.ingest import check_batch, check_one
from hushquery.collect.http.pages import PageFile, Pages
from hushquery.collect.http.problems import PROBLEMS, document, refuse
from hushquery.collect.http.requests import Guard, media_type, problem_response, read_body, silent_app
from hushquery.collect.http.settings import VARIABLE, Settings
from hushquery.collect.http.wire import JSON, read_id, read_records, write_id
from hushquery.collect.store.records import put_records
from hushquery.collect.store.writer import ACCEPTED, REPEATED, Arrival
from hushquery.errors import HushqueryError

__all__ = ["from_environment", "make_app"]

_STATUS = {ACCEPTED: 201, REPEATED: 200}
# How long the event loop may have to wait for a thread that reads a large body: once for each of its turns.
_SWITCH_SECONDS = 0.0005

TaskId = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The task id: 64 hexadecimal digits.")]
UploadId = Annotated[
    str,
    Path(
        pattern="^[A-Za-z0-9_-]{21}[AQgw]$",
        description="16 random bytes that the client chose, as base64url without padding.",
    ),
]
ReleaseId = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The id of a release, from its task.")]


def from_environment() -> FastAPI:
    """Make the application from the settings in the environment; worker processes start here."""
    settings = Settings.from_json(os.environ[VARIABLE])
    end_with_parent()
    end_in_time(settings.end_seconds)
    return make_app(settings)


def make_app(
    settings: Settings,
    *,
    work: EpochWork | None = None,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Make the public application.

    Args:
        settings: The settings.
        work: What is computed at the moves of epochs.
        clock: Gives the time in seconds since 1970.
        steady: Gives seconds that nobody sets.
    """
    collector = Collector(settings, work, clock, steady)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        sys.setswitchinterval(_SWITCH_SECONDS)
        end_in_time(settings.end_seconds)
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
    _serve_pages(app, Pages(collector))
    origins = {task.id: task.collect.origins for task in collector.board.numbers.values()}
    app.add_middleware(Guard, origins=origins, retry_after=settings.retry_after)
    described = app.openapi

    def openapi() -> dict[str, Any]:
        return cleaned(described())

    app.openapi = openapi  # type: ignore[method-assign]
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
        await collector.look()
        return Response(json.dumps(collector.task_list()), media_type=JSON, headers={"Cache-Control": "no-cache"})

    @app.get(
        "/v1/tasks/{task}",
        operation_id="task",
        summary="Get a task, the phase of its epoch, and what its clients run.",
        responses=answers({200: ("The task.", TASK), 304: ("As it was.", None)}, "no-such-task"),
    )
    async def task(task: TaskId, request: Request) -> Response:
        number = collector.number_of(task)
        await collector.look()
        data, tag = collector.task_document(number)
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


def _serve_pages(app: FastAPI, pages: Pages) -> None:
    def answer(request: Request, file: PageFile) -> Response:
        from hushquery.publish.site import HEADERS  # what pages may load: their own files only

        return _tagged(request, file.data, file.tag, file.media_type, HEADERS)

    def elsewhere(address: str) -> Response:
        return Response(status_code=307, headers={"Location": address, "Cache-Control": "no-cache"})

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def entrance(request: Request) -> Response:
        found = pages.entrance()
        return elsewhere(found) if isinstance(found, str) else answer(request, found)

    @app.api_route("/sites/{task}", methods=["GET", "HEAD"], include_in_schema=False)
    async def site(task: TaskId) -> Response:
        return elsewhere(f"{task}/")  # relative, so that it works under any path of any server

    @app.api_route("/sites/{task}/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(task: TaskId, name: str, request: Request) -> Response:
        return answer(request, await pages.file(pages.number_of(task), name))


def _tagged(
    request: Request, data: bytes, tag: str, media_type: str = JSON, more: Mapping[str, str] | None = None
) -> Response:
    headers = {"ETag": tag, **(more or {})}
    asked = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if tag in asked or "*" in asked:
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
        number = collector.number_of(task)
        with collector.counting(number) as writer:
            kind, report_id = media_type(request), read_id(id)
            data = await read_body(request, collector.board.numbers[number].collect.max_body, seconds)
            await collector.look()
            arrival = await collector.apart(data, check_one, collector.board, number, kind, data, report_id)
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
        number = collector.number_of(task)
        with collector.counting(number) as writer:
            kind = media_type(request)
            data = await read_body(request, collector.board.numbers[number].collect.max_body, seconds)
            await collector.look()
            found = await collector.apart(data, check_batch, collector.board, number, kind, data)
            arrivals = [item for _, item in found if isinstance(item, Arrival)]
            written = iter(await writer.write(arrivals) if arrivals else [])
            writer.count(number, [item for _, item in found if isinstance(item, str)])
        outcomes = [(name, next(written) if isinstance(item, Arrival) else item) for name, item in found]
        return Response(_results(outcomes), media_type=JSON, headers={"Cache-Control": "no-store"})


def _results(outcomes: list[tuple[bytes | None, str]]) -> bytes:
    """Write the answer to many reports: a status for each, and each problem document once."""
    problems = list(dict.fromkeys(outcome for _, outcome in outcomes if outcome not in _STATUS))
    results: list[dict[str, Any]] = []
    for name, outcome in outcomes:
        results.append({"id": None if name is None else write_id(name)})
        if outcome in _STATUS:
            results[-1]["status"] = _STATUS[outcome]
        else:
            results[-1].update(status=PROBLEMS[outcome].status, problem=problems.index(outcome))
    told = {"version": 2, "results": results, "problems": [document(refuse(name)) for name in problems]}
    return json.dumps(told, separators=(",", ":")).encode()


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
        number = collector.number_of(task)
        spec = collector.board.numbers[number]
        with collector.counting(number) as writer:
            header = request.headers.get("authorization")
            token = await collector.read(collector.tokens.check, number, header)
            kind, record_id = media_type(request), read_id(id)
            data = await read_body(request, spec.collect.max_body, seconds=collector.settings.body_seconds)
            records = await collector.apart(data, read_records, kind, data, spec)
            if collector.watch.doubt:
                raise refuse("clock-stopped")  # here the clock says which epoch they belong to
            period = spec.period_at(collector.board.now())
            outcome = await collector.write(
                put_records, collector.store, collector.vault, spec, number, period, token, record_id, records
            )
            writer.count(number, [f"records-{outcome}"])
        return _answer(outcome)
