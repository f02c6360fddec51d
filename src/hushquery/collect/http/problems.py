"""What the collector answers when it says no: RFC 9457 problem documents, each of a type that programs can tell apart.

No document shows a value, a report or a part of a request; those of status 500 and above do not even say why, because
the reason names machines of the operator.
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

__all__ = ["MEDIA_TYPE", "PROBLEMS", "Problem", "Refusal", "document", "problem_of", "refuse"]

#: The media type of problem documents.
MEDIA_TYPE = "application/problem+json"

_PREFIX = "urn:hushquery:problem:"


@dataclass(frozen=True)
class Problem:
    """One type of problem.

    Args:
        name: The last part of its URI; also its name in counters.
        status: The HTTP status.
        title: What happened, in words.
        fix: What the client can do.
    """

    name: str
    status: int
    title: str
    fix: str

    @property
    def uri(self) -> str:
        """The URI that names the type."""
        return _PREFIX + self.name


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

# From the special to the general: the first that fits counts.
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
    (DataError, "unavailable"),  # what is left of these is a damaged store or a lost key
)


class Refusal(HushqueryError):
    """A request that is refused, with the type of problem to answer with."""

    def __init__(self, problem: Problem, why: str = "") -> None:
        self.problem = problem
        super().__init__(problem.title, why=why, fix=problem.fix)


def refuse(name: str, why: str = "") -> Refusal:
    """Make the refusal of a request.

    Args:
        name: The type of problem.
        why: The reason in words; never a part of the request.
    """
    return Refusal(PROBLEMS[name], why)


def problem_of(error: HushqueryError) -> Problem:
    """Give the type of problem that an error is.

    >>> from hushquery.errors import Unavailable
    >>> problem_of(Unavailable("the store is gone")).status
    503
    """
    if isinstance(error, Refusal):
        return error.problem
    return PROBLEMS[next((name for kind, name in _OF_ERRORS if isinstance(error, kind)), "internal")]


def document(error: HushqueryError) -> dict[str, Any]:
    """Give the problem document of an error."""
    problem = problem_of(error)
    found: dict[str, Any] = {"type": problem.uri, "title": problem.title, "status": problem.status, "fix": problem.fix}
    if error.why and problem.status < 500:
        found["detail"] = error.why
    return found
