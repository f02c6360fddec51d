"""Fetching a task from its collector, checked before the device answers anything.

The task's id is the hash of all that it promises, and the device computes mechanism and integers itself, so the
collector can change neither. A head list of its own for each device would tell their reports apart: so lists stand in a
public log whose hash is the same for everybody, and a device refuses a log that does not continue the one it saw. A log
that differed from the start is found only by comparing hashes (``hushquery task lists``). docs/protocol.md. Nothing
that the collector chose goes back to it: no ETag, no cookie, no redirect.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
from dataclasses import dataclass
from typing import Any

from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.device.send import connection_to, within
from hushquery.local.device.store import ClientStore
from hushquery.task import Task

# A list of a million records is about this long; whoever sends more sends something else.
_MOST_BYTES = 1 << 28

#: Where a program's author finds the id of a task.
HOW_TO_GET_THE_ID = (
    "Take it from `hushquery task id FILE`, or from the task's page at the collector, and keep it in your program"
)
#: The log of head lists: each epoch that published one, with its configuration hash.
Lists = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Fetched:
    """A task as its collector serves it, with its head list, the log of lists, and whether it takes reports now."""

    task: Task
    head: tuple[tuple[str, ...], ...] | None
    takes_reports: bool
    lists: Lists = ()

    @property
    def log(self) -> str:
        """The hash over the log of head lists: the same for everybody, if nobody is singled out."""
        return chained(self.task.id, self.lists)[-1]


def chained(task_id: str, lists: Lists) -> list[str]:
    """Compute the hash over the log of head lists, before the first entry and after each.

    >>> [one[:8] for one in chained("00" * 32, ((7, "ab" * 32), (8, "ab" * 32)))]
    ['00000000', '2bf0a283', 'dd163279']
    """
    hashes = [task_id]
    for epoch, configuration in lists:
        text = f"hushquery-v1 list {hashes[-1]} {epoch} {configuration}"
        hashes.append(hashlib.sha256(text.encode("ascii")).hexdigest())
    return hashes


def fetch_task(
    server: str, task_id: str, *, state: str | os.PathLike[str] | None = None, timeout: float = 30.0
) -> Fetched:
    """Fetch a task and check that it is the one of this id.

    Args:
        server: The collector's address, such as ``https://collect.example.org``.
        task_id: The task's id in hexadecimal digits; ship it with your program.
        state: The client's state file, which keeps the last log of head lists that was seen, to compare the next with.
        timeout: Seconds to wait for an answer.

    Raises:
        Unavailable: The collector was not reached, or does not serve this task.
        NotReady: The head list is not published yet.
        DataError: What it serves is not the task of this id.
    """
    task, served = fetch_document(server, task_id, timeout)
    try:
        takes = served["epoch"] is not None and served["epoch"]["takes_reports"]
        if not isinstance(takes, bool):
            raise _another()
        head = _head(task, served)
        fetched = Fetched(task, head, takes, () if head is None else _lists(served["lists"]))
        _compare(fetched, served["configuration"])
    except (DataError, NotReady):
        raise
    except (HushqueryError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _another() from None
    if state is not None and head is not None:
        _go_on(ClientStore(state), fetched)
    return fetched


def fetch_document(server: str, task_id: str, timeout: float) -> tuple[Task, Any]:
    """Fetch what a collector serves of a task; only the task is checked against the id, nothing else of it."""
    if not re.fullmatch("[0-9a-f]{64}", task_id):
        raise UsageError("a task id has 64 hexadecimal digits, all of them", fix=HOW_TO_GET_THE_ID)
    connection, path = connection_to(server, timeout)
    try:
        with within(connection, timeout):
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
    except DataError:
        raise
    except (HushqueryError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _another() from None
    return task, served


def _head(task: Task, served: Any) -> tuple[tuple[str, ...], ...] | None:
    if task.head is None:
        return None
    if served["configuration"] is None:
        raise NotReady("the head list is not published yet", fix="Try again later")
    return tuple((query, url) for query, url in served["configuration"]["domain"]["records"])


def _lists(served: Any) -> Lists:
    """Read the log of head lists: epochs one after the other, each with a hash."""
    lists = tuple((epoch, configuration) for epoch, configuration in served)
    numbers = [epoch for epoch, _ in lists]
    if not all(type(epoch) is int and epoch >= 0 for epoch in numbers) or numbers != sorted(set(numbers)):
        raise _another()
    if not all(re.fullmatch("[0-9a-f]{64}", configuration) for _, configuration in lists):
        raise _another()
    return lists


def _compare(fetched: Fetched, served: Any) -> None:
    """Refuse a mechanism that is not the one that this device computes, and a list that is not the last of the log."""
    if served is None:
        return
    own = Configuration.of(fetched.task, fetched.head)
    if json.dumps(served, sort_keys=True, separators=(",", ":")) != own.canonical():
        raise _another()
    if fetched.head is not None and (not fetched.lists or fetched.lists[-1][1] != own.digest.hex()):
        raise DataError(
            "the head list is not the last one of the collector's log",
            why="a list that is not in the log may be for this device alone",
            fix="Use nothing of it; ask the operator",
        )


def _go_on(store: ClientStore, fetched: Fetched) -> None:
    """Refuse a log that does not go on from where this device saw it last, and keep how far it goes now."""
    hashes, task = chained(fetched.task.id, fetched.lists), fetched.task.digest
    with store.transaction() as connection:
        seen = connection.execute("SELECT count, log FROM lists WHERE task = ?", (task,)).fetchone()
        if seen is not None and hashes[seen[0] : seen[0] + 1] != [seen[1]]:
            raise DataError(
                "the collector's log of head lists is another than before",
                why="it was shortened or rewritten, or this device is shown one of its own",
                fix="Use nothing of it; compare logs with others (`hushquery task lists`), and ask the operator",
            )
        now = (len(fetched.lists), hashes[-1])
        if now != seen:
            connection.execute("INSERT OR REPLACE INTO lists (task, count, log) VALUES (?, ?, ?)", (task, *now))


def _another() -> DataError:
    return DataError(
        "what the collector serves is not the task of this id",
        why="its task, mechanism or list differs from what the id and the log promise",
        fix="Use nothing of it; ask the operator",
    )
