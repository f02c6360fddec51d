"""Fetching a task from its collector: what a device has to know, checked before it answers anything.

The device knows the task's id, which is the hash of all that the task promises; so the collector can't change the
promise. What it adds, the published head list, is only checked for consistency with the configuration hash that the
same server sent: a collector could serve each device a list of its own, and tell their reports apart by it. Who does
not trust the collector that far compares the hash with what others were served, or ships the list with the program.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable
from hushquery.local.configuration import Configuration
from hushquery.local.send import connection_to
from hushquery.task import Task

__all__ = ["Fetched", "fetch_task"]

# A list of a million records is about this long; whoever sends more sends something else.
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Fetched:
    """A task as its collector serves it.

    Args:
        task: The task; its off-switch is as the collector set it.
        head: The published head list, for :class:`~hushquery.local.client.Client`; None for a task with its own list.
        takes_reports: Whether its epoch takes reports now.
    """

    task: Task
    head: tuple[tuple[str, ...], ...] | None
    takes_reports: bool


def fetch_task(server: str, task_id: str, *, timeout: float = 30.0) -> Fetched:
    """Fetch a task and check that it is the one of this id.

    Args:
        server: The collector's address, such as ``https://collect.example.org``.
        task_id: The task's id in hexadecimal digits; ship it with your program.
        timeout: Seconds to wait for an answer.

    Raises:
        Unavailable: The collector was not reached, or does not serve this task.
        NotReady: The head list is not published yet.
        DataError: What it serves is not the task of this id.
    """
    connection, path = connection_to(server, timeout)
    try:
        connection.request("GET", f"{path}/v1/tasks/{task_id}")
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise Unavailable("the collector can't be reached", why=why, fix="Try again later") from None
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise Unavailable(
            "the collector does not serve this task", why=f"status {response.status}", fix="Check address and id"
        )
    try:
        served = json.loads(body)
        task = Task.make(served["task"])
        if task.id != task_id:
            raise _another()
        takes = served["epoch"] is not None and served["epoch"]["takes_reports"]
        if not isinstance(takes, bool):
            raise _another()
        return Fetched(task, _head(task, served), takes)
    except (DataError, NotReady):
        raise
    except (HushqueryError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _another() from None


def _head(task: Task, served: Any) -> tuple[tuple[str, ...], ...] | None:
    if task.head is None:
        return None
    if served["configuration"] is None:
        raise NotReady("the head list is not published yet", fix="Try again later")
    head = tuple((str(query), str(url)) for query, url in served["configuration"]["domain"]["records"])
    if Configuration.of(task, head).digest.hex() != served["configuration_hash"]:
        raise _another()
    return head


def _another() -> DataError:
    return DataError(
        "what the collector serves is not the task of this id",
        why="its parts do not have the hashes that they should have",
        fix="Use nothing of it; ask the operator",
    )
