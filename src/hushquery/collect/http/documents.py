"""What the OpenAPI document says beyond what FastAPI sees: bodies, answers and problems."""

from __future__ import annotations

from typing import Any

from hushquery.collect.http.problems import MEDIA_TYPE, PROBLEMS
from hushquery.collect.http.wire import BINARY, JSON

__all__ = ["BATCH", "PROBLEM", "RECORDS", "REPORT", "RESULTS", "TASK", "TASK_LIST", "answers", "body", "cleaned"]

_ID = {"type": "string", "pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"}
_HASH = {"type": "string", "pattern": "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"}

#: The JSON form of a report.
REPORT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "version": {"const": 1},
        "id": _ID,
        "task": _HASH,
        "configuration": _HASH,
        "time": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        "payload": {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"},
    },
    "required": ["version", "id", "task", "configuration", "time", "payload"],
    "additionalProperties": False,
}

#: The JSON form of many reports. What is in the list may be anything: each item gets its own status. How many fit is a
#: matter of size (413, or 400 where they are more than reports fit into the bytes), not of form.
BATCH: dict[str, Any] = {
    "type": "object",
    "properties": {"reports": {"type": "array", "items": {}}},
    "required": ["reports"],
    "additionalProperties": False,
}

# A text of any length: what no list could hold is left out, and its user counts all the same.
_TEXT = {"type": "string"}

#: The records of one user.
RECORDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "records": {
            "type": "array",
            "items": {"type": "array", "prefixItems": [_TEXT, _TEXT], "minItems": 2, "maxItems": 2},
        }
    },
    "required": ["records"],
    "additionalProperties": False,
}

_EPOCH = {
    "type": ["object", "null"],
    "properties": {
        "number": {"type": "integer"},
        "phase": {"enum": ["optin_open", "head_published", "reports_open", "closed", "released", "expired"]},
        "takes_records": {"type": "boolean"},
        "takes_reports": {"type": "boolean"},
    },
    "required": ["number", "phase", "takes_records", "takes_reports"],
}

#: All tasks in brief.
TASK_LIST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "name": {"type": "string"},
                    "kind": {"type": "string"},
                    "epoch": _EPOCH,
                },
                "required": ["id", "name", "kind", "epoch"],
            },
        }
    },
    "required": ["tasks"],
}

#: One task as clients fetch it.
TASK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "task": {"type": "object"},
        "epoch": _EPOCH,
        "configuration": {"type": ["object", "null"]},
        "configuration_hash": {"type": ["string", "null"]},
        "optin": {"type": ["object", "null"]},
        "releases": {"type": "array", "items": {"type": "object"}},
        # Each epoch that published a head list, with its configuration hash: nothing of it ever changes.
        "lists": {
            "type": "array",
            "items": {
                "type": "array",
                "items": {"type": ["integer", "string"], "pattern": "^[0-9a-f]{64}$"},
                "minItems": 2,
                "maxItems": 2,
            },
        },
    },
    "required": ["id", "task", "epoch", "configuration", "configuration_hash", "optin", "releases", "lists"],
}

#: A problem document (RFC 9457).
PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"enum": [problem.uri for problem in PROBLEMS.values()]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "fix": {"type": "string"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "fix"],
}

#: The answer to many reports: a status for each, in the order of the request, and each problem once. Version 1 had no
#: number, and the type of a problem beside each status.
RESULTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "version": {"const": 2},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": ["string", "null"]},
                    "status": {"type": "integer"},
                    # The place of its problem in the list below, from 0.
                    "problem": {"type": "integer", "minimum": 0},
                },
                "required": ["id", "status"],
            },
        },
        "problems": {"type": "array", "items": PROBLEM},
    },
    "required": ["version", "results", "problems"],
}

# What can happen to every request, and to every one with a body.
_ALWAYS = ("busy", "internal", "unavailable")


def body(schema: dict[str, Any], *, binary: bool) -> dict[str, Any]:
    """Describe a request body."""
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if binary:
        content[BINARY] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def answers(good: dict[int, tuple[str, dict[str, Any] | None]], *problems: str) -> dict[int | str, dict[str, Any]]:
    """Describe the answers of an address: what goes well, and which problems there can be."""
    found: dict[int | str, dict[str, Any]] = {}
    for status, (words, schema) in good.items():
        found[status] = {"description": words}
        if schema is not None:
            found[status]["content"] = {JSON: {"schema": schema}}
    for name in (*problems, *_ALWAYS):
        problem = PROBLEMS[name]
        words = f"{problem.uri}: {problem.title}"
        if problem.status in found:
            found[problem.status]["description"] += f"; {words}"
            continue
        found[problem.status] = {"description": words, "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
        if problem.status in (425, 429, 503):
            found[problem.status]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found


def cleaned(document: dict[str, Any]) -> dict[str, Any]:
    """Take out what FastAPI says of its own validation errors: they are answered by problem documents here."""
    for path in document["paths"].values():
        for operation in path.values():
            wrong = operation["responses"].get("422", {}).get("content", {})
            if "HTTPValidationError" in str(wrong):
                del operation["responses"]["422"]
    components = document.setdefault("components", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.get("schemas", {}).pop(name, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document
