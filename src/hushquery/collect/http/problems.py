"""Refusals of the collector as RFC 9457 problem documents, and the schemas of its OpenAPI document.

No problem document shows a part of a request; those of status 500 and above show no reason, which names machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushquery.collect.store.store import StoreFull
from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.local.report import (
    ReportError,
    ReportOfAnotherConfiguration,
    ReportOfAnotherTask,
    ReportOutOfDomain,
    ReportTimeInvalid,
)

#: The media types of problem documents, of the compact forms, and of the JSON forms.
MEDIA_TYPE, BINARY, JSON = "application/problem+json", "application/octet-stream", "application/json"
RETRIED = (425, 429, 503)  #: The statuses of problems that pass with time; they say when to retry.


@dataclass(frozen=True)
class Problem:
    """One type of problem: its name in URIs and counters, its HTTP status, what happened, and what to do."""

    name: str
    status: int
    title: str
    fix: str

    @property
    def uri(self) -> str:
        """The URI of the type."""
        return f"urn:hushquery:problem:{self.name}"


#: All problems, by name.
PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem("malformed", 400, "the request is not what belongs here", "Send it as the client library does"),
        Problem("unauthorized", 401, "a valid bearer token is needed", "Ask the operator for a token"),
        Problem("no-such-task", 404, "there is no such task here", "GET /v1/tasks lists the tasks"),
        Problem("not-found", 404, "there is nothing at this address", "See /v1/openapi.json"),
        Problem("method-not-allowed", 405, "this address does not know that method", "See /v1/openapi.json"),
        Problem("slow", 408, "the body took too long to arrive", "Send it again, in smaller parts"),
        Problem("other-bytes", 409, "another report has this id already", "Never change a report that was made"),
        Problem("contributed", 409, "this token has given its records for the epoch", "Wait for the next epoch"),
        Problem("phase-over", 410, "the epoch takes none of these any more", "Drop it"),
        Problem("too-old", 410, "it is older than what the collector remembers", "Drop it"),
        Problem("too-large", 413, "the body is larger than the task allows", "Send fewer at once"),
        Problem("media-type", 415, "the body has a media type that is not read here", "See /v1/openapi.json"),
        Problem("not-in-domain", 422, "the payload is not in the domain of the task", "Drop it"),
        Problem("wrong-task", 422, "it was made for another task or configuration", "Fetch the task again"),
        Problem("clock", 422, "its time is in the future, or finer than the task allows", "Set the clock"),
        Problem("too-early", 425, "the epoch does not take these yet", "Send it again later, unchanged"),
        Problem("busy", 429, "more arrives than can be written", "Send it again later, unchanged"),
        Problem("internal", 500, "the collector has failed", "Send it again later, unchanged"),
        Problem("unavailable", 503, "the store can't be reached in time", "Send it again later, unchanged"),
        Problem("crowded", 503, "more connections are open than can be served", "Send it again later, unchanged"),
        Problem("clock-stopped", 503, "the collector's clock is in doubt", "Send it again later, unchanged"),
        Problem("store-full", 503, "the store is full; nothing was taken", "Send it again later, unchanged"),
    )
}

# From the special to the general: the first match counts.
_OF_ERRORS: tuple[tuple[type[HushqueryError], str], ...] = (
    (ReportOfAnotherTask, "wrong-task"),
    (ReportOfAnotherConfiguration, "wrong-task"),
    (ReportTimeInvalid, "clock"),
    (ReportOutOfDomain, "not-in-domain"),
    (ReportError, "malformed"),
    (StoreFull, "store-full"),
    (Unavailable, "unavailable"),
    (NotReady, "too-early"),
    (UsageError, "malformed"),
    (DataError, "unavailable"),  # a damaged store or a lost key
)


class Refusal(HushqueryError):
    """A request that is refused, with the type of problem to answer."""

    def __init__(self, problem: Problem, why: str = "") -> None:
        self.problem = problem
        super().__init__(problem.title, why=why, fix=problem.fix)


def refuse(name: str, why: str = "") -> Refusal:
    """Return the refusal of a request by the name of its problem; the reason never shows a part of the request."""
    return Refusal(PROBLEMS[name], why)


def problem_of(error: HushqueryError) -> Problem:
    """Return the type of problem that an error is."""
    if isinstance(error, Refusal):
        return error.problem
    return PROBLEMS[next((name for kind, name in _OF_ERRORS if isinstance(error, kind)), "internal")]


def document(error: HushqueryError) -> dict[str, Any]:
    """Return the problem document of an error."""
    problem = problem_of(error)
    fields: dict[str, Any] = {"type": problem.uri, "title": problem.title, "status": problem.status, "fix": problem.fix}
    if error.why and problem.status < 500:
        fields["detail"] = error.why
    return fields


def _object(properties: dict[str, Any], *optional: str, closed: bool = False, null: bool = False) -> dict[str, Any]:
    """Return the schema of an object whose properties are all required but the optional ones."""
    schema: dict[str, Any] = {
        "type": ["object", "null"] if null else "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }
    return {**schema, "additionalProperties": False} if closed else schema


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _INTEGER, _BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
_ID = {"type": "string", "pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"}
_HASH = {"type": "string", "pattern": "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"}

#: The JSON form of a report.
REPORT = _object(
    {
        "version": {"const": 1},
        "id": _ID,
        "task": _HASH,
        "configuration": _HASH,
        "time": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        "payload": {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"},
    },
    closed=True,
)

#: The JSON form of many reports. Items may be anything: each gets its own status, and only their size is limited.
BATCH = _object({"reports": _list({})}, closed=True)

#: The records of one user: texts of any length, because one that no list could hold is left out and its user counts.
RECORDS = _object(
    {"records": _list({"type": "array", "prefixItems": [_TEXT, _TEXT], "minItems": 2, "maxItems": 2})}, closed=True
)

_EPOCH = _object(
    {
        "number": _INTEGER,
        "phase": {"enum": ["optin_open", "head_published", "reports_open", "closed", "released", "expired"]},
        "takes_records": _BOOLEAN,
        "takes_reports": _BOOLEAN,
    },
    null=True,
)

#: All tasks in brief.
TASK_LIST = _object({"tasks": _list(_object({"id": _TEXT, "name": _TEXT, "kind": _TEXT, "epoch": _EPOCH}))})

# An epoch that published a head list, with its configuration hash: it never changes.
_LISTED = {
    "type": "array",
    "items": {"type": ["integer", "string"], "pattern": "^[0-9a-f]{64}$"},
    "minItems": 2,
    "maxItems": 2,
}

#: One task as clients fetch it.
TASK = _object(
    {
        "id": _TEXT,
        "task": {"type": "object"},
        "epoch": _EPOCH,
        "configuration": {"type": ["object", "null"]},
        "configuration_hash": {"type": ["string", "null"]},
        "optin": {"type": ["object", "null"]},
        "releases": _list({"type": "object"}),
        "lists": _list(_LISTED),
    }
)

#: A problem document (RFC 9457).
PROBLEM = _object(
    {
        "type": {"enum": [problem.uri for problem in PROBLEMS.values()]},
        "title": _TEXT,
        "status": _INTEGER,
        "fix": _TEXT,
        "detail": _TEXT,
    },
    "detail",
)

_PROBLEM_INDEX = {"type": "integer", "minimum": 0}  # the index of the problem in the list beside the results

#: The answer to many reports: a status for each, in the order of the request, and each problem once.
RESULTS = _object(
    {
        "version": {"const": 2},
        "results": _list(
            _object({"id": {"type": ["string", "null"]}, "status": _INTEGER, "problem": _PROBLEM_INDEX}, "problem")
        ),
        "problems": _list(PROBLEM),
    }
)

_ALWAYS = ("busy", "internal", "unavailable")  # what can happen to every request


def body(schema: dict[str, Any], *, binary: bool) -> dict[str, Any]:
    """Describe a request body."""
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if binary:
        content[BINARY] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def answers(good: dict[int, tuple[str, dict[str, Any] | None]], *problems: str) -> dict[int | str, dict[str, Any]]:
    """Describe the answers of an address: successes, and the problems there can be."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status, (words, schema) in good.items():
        responses[status] = {"description": words}
        if schema is not None:
            responses[status]["content"] = {JSON: {"schema": schema}}
    for problem in (PROBLEMS[name] for name in (*problems, *_ALWAYS)):
        words = f"{problem.uri}: {problem.title}"
        if problem.status in responses:
            responses[problem.status]["description"] += f"; {words}"
            continue
        responses[problem.status] = {"description": words, "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
        if problem.status in RETRIED:
            responses[problem.status]["headers"] = {"Retry-After": {"schema": _INTEGER}}
    return responses


def without_validation_errors(document: dict[str, Any]) -> dict[str, Any]:
    """Remove FastAPI's own validation errors from an OpenAPI document: here problem documents answer them."""
    for path in document["paths"].values():
        for operation in path.values():
            invalid = operation["responses"].get("422", {}).get("content", {})
            if "HTTPValidationError" in str(invalid):
                del operation["responses"]["422"]
    components = document.setdefault("components", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.get("schemas", {}).pop(name, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document
