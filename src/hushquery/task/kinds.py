"""Which keys belong to which kind of task; everything that contradicts is refused when the file is read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.task.model import HeadPart, Task

__all__ = ["NUMBER_ORACLES", "PAPER_SHARE", "TEXT_ORACLES", "check_kind", "oracle_of", "query_share_of", "schema_rules"]

#: The mechanisms for numbers; auto is the first.
NUMBER_ORACLES = ("onebit", "dbitflip")

#: The mechanisms for texts; auto is the first.
TEXT_ORACLES = ("rappor",)

#: The query's share of epsilon in two-stage response, f_C of BLENDER, where ``[head] mode = "paper"`` says no more.
PAPER_SHARE = Fraction(85, 100)

_TWO_STAGE = "two-stage"

# Which oracle a key of [client] belongs to.
_KEYS = {
    "query_share": _TWO_STAGE,
    "step": "onebit",
    "buckets": "dbitflip",
    "bits": "dbitflip",
    "rappor": "rappor",
}


def check_kind(task: Task) -> None:
    """Refuse parts of a task that do not fit its kind or its mechanism."""
    if task.is_listed:
        _check_listed(task)
    else:
        _check_unlisted(task)
    for key, oracle in _KEYS.items():
        if getattr(task.client, key) is not None and oracle_of(task) != oracle:
            raise UsageError(f'[client] {key} belongs to oracle = "{oracle}"; leave it out, or choose that')


def oracle_of(task: Task) -> str:
    """Give the mechanism's name; ``auto`` where only the list decides."""
    if task.client.oracle != "auto":
        return task.client.oracle
    if not task.is_listed:
        return (NUMBER_ORACLES if task.task.kind == "number" else TEXT_ORACLES)[0]
    return _TWO_STAGE if task.head is not None and task.head.mode == "paper" else "auto"


def query_share_of(task: Task) -> Fraction | None:
    """Give the query's share of epsilon in two-stage response; None for all that the URL leaves."""
    if task.client.query_share is None and task.client.oracle == "auto" and oracle_of(task) == _TWO_STAGE:
        return PAPER_SHARE
    return task.client.query_share


def schema_rules() -> list[dict[str, Any]]:
    """Say as JSON Schema which key each kind of task can't do without; :func:`check_kind` refuses more than that."""
    listed, headed = _needs("task", "domain", "array"), {"required": ["head"], "properties": {"head": _OBJECT}}
    rules = {
        "setting": listed,
        "number": _needs("task", "highest", "integer"),
        "text": _needs("client", "rappor", "object"),
    }
    named = [
        {"if": {"properties": {"task": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}}}, "then": then}
        for kind, then in rules.items()
    ]
    searches = {"properties": {"task": {"properties": {"kind": {"const": "searches"}}}}}
    return [*named, {"if": searches, "then": {"anyOf": [listed, headed]}}]


_OBJECT = {"type": "object"}


def _needs(part: str, key: str, kind: str) -> dict[str, Any]:
    return {"properties": {part: {"required": [key], "properties": {key: {"type": kind}}}}}


def _check_listed(task: Task) -> None:
    if task.client.oracle in (*NUMBER_ORACLES, *TEXT_ORACLES):
        kind = "number" if task.client.oracle in NUMBER_ORACLES else "text"
        raise UsageError(f'[client] oracle = "{task.client.oracle}" is for kind = "{kind}"')
    if task.task.highest is not None:
        raise UsageError('[task] highest is for kind = "number"')
    if oracle_of(task) == _TWO_STAGE:
        if task.task.kind != "searches":
            raise UsageError('[client] oracle = "two-stage" is for (query, URL) records: kind = "searches"')
        if task.client.unknown == "refuse":
            raise UsageError(
                'two-stage has cells for other URLs and other queries, so [client] unknown must be "wildcard"'
            )
    if task.task.domain is None:
        if task.task.kind == "setting":
            raise UsageError("[task] domain is missing: list the values that the setting can have")
        if task.head is None:
            raise UsageError("the task has neither a [head] list to come nor a [task] domain")
    elif task.head is not None:
        raise UsageError("the task has both a [task] domain and a [head] list; leave one of them out")
    if task.head is not None:
        _check_head(task, task.head)


def _check_head(task: Task, head: HeadPart) -> None:
    """Refuse a hybrid whose two sides would not estimate the same."""
    if (head.mode == "paper") != (oracle_of(task) == _TWO_STAGE):
        raise UsageError(
            '[head] mode = "paper" is for two-stage reports; leave [client] oracle out, or write "two-stage"'
            if head.mode == "paper"
            else '[client] oracle = "two-stage" belongs to [head] mode = "paper"; write that, or choose another oracle'
        )
    if head.algorithm == "guided" and (head.mode != "best" or task.client.records_per_user != 1):
        raise UsageError(
            '[head] algorithm = "guided" counts one record of each user, in mode = "best": give records_per_user = 1; '
            "weighed says how many records it looks at"
        )
    if head.weighed is not None and head.algorithm != "guided":
        raise UsageError('[head] weighed belongs to algorithm = "guided"; leave it out, or choose that')
    if task.optin is not None and task.optin.records_per_user != task.client.records_per_user:
        raise UsageError(
            "[optin] and [client] have different records_per_user, so the two sides would estimate different shares: "
            "give both the same"
        )


def _check_unlisted(task: Task) -> None:
    kind, client = task.task.kind, task.client
    known = NUMBER_ORACLES if kind == "number" else TEXT_ORACLES
    if client.oracle not in ("auto", *known):
        raise UsageError(f'kind = "{kind}" has the oracles auto, {", ".join(known)}')
    for part, name in ((task.task.domain, "[task] domain"), (task.head, "[head]"), (task.optin, "[optin]")):
        if part is not None:
            raise UsageError(f'{name} is for tasks with a list of values; a task of kind = "{kind}" has none')
    if client.records_per_user != 1:
        raise UsageError(
            f'kind = "{kind}" takes records_per_user = 1: it has no wildcard to fill the slots of who has fewer'
        )
    if client.unknown == "wildcard" and "unknown" in client.model_fields_set:
        raise UsageError(f'kind = "{kind}" has no wildcard; leave [client] unknown out')
    if kind == "number":
        _check_number(task)
    elif task.task.highest is not None:
        raise UsageError('[task] highest is for kind = "number"')
    elif client.rappor is None:
        raise UsageError("[client.rappor] is missing: give k, h, m, p, q and f")
    elif client.rappor.p >= client.rappor.q:
        raise UsageError("[client.rappor] p must be below q, else a report says nothing or the opposite")


def _check_number(task: Task) -> None:
    highest, client = task.task.highest, task.client
    if highest is None:
        raise UsageError("[task] highest is missing: the largest number there can be, a public bound")
    if oracle_of(task) == "onebit":
        if client.step is not None and (client.step > highest or highest % client.step):
            raise UsageError("[client] step must divide [task] highest")
        return
    if client.buckets is None or client.bits is None:
        raise UsageError("[client] buckets and bits are missing: how many ranges, and for how many a device answers")
    if client.buckets > highest + 1:
        raise UsageError("[client] buckets is more than there are numbers from 0 to highest")
    if client.bits > client.buckets:
        raise UsageError("[client] bits is more than there are buckets")
