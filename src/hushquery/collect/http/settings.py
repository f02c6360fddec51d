"""How a collector is set up: what `hushquery serve` was told, as one value that its worker processes read too."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from hushquery.collect.store.vault import OPERATOR_VARIABLE, operator_key
from hushquery.errors import DataError, UsageError
from hushquery.task import Task

__all__ = ["VARIABLE", "Settings", "read_operator_key"]

#: The environment variable by which worker processes are told their settings.
VARIABLE = "HUSHQUERY_COLLECTOR"


@dataclass(frozen=True)
class Settings:
    """The settings of a collector.

    Args:
        tasks: The task files.
        store: Where reports are kept: a path, or ``postgresql://...``.
        ledger: The path or URL of the ledger that head lists are paid from.
        keys: The folder of the keys of opt-in records.
        most_bytes: The size that the store may have.
        most_waiting: How many reports may wait to be written before uploads are refused with 429.
        body_seconds: How long a body may take to arrive.
        retry_after: What Retry-After says, in seconds.
        store_seconds: How long an upload waits for the store to write before it is answered with 503; who only looks
            something up waits for a third of it.
        end_seconds: How long a server that was told to end may take, whatever the store does.
        tick_seconds: How often the time is looked at to move epochs; 0: they are moved by hand only.
        optin_share: After which share of a period its opt-in phase ends.
        operator_key_file: The file with the operator key; else the environment variable HUSHQUERY_OPERATOR_KEY.
        tally_file: Where the processes of a server count the failures of the store; made by `serve`.
    """

    tasks: tuple[str, ...]
    store: str = "collector.db"
    ledger: str = "ledger.db"
    keys: str = "collector-keys"
    most_bytes: int | None = None
    most_waiting: int = 20_000
    body_seconds: float = 20.0
    retry_after: int = 30
    store_seconds: float = 6.0
    end_seconds: float = 25.0
    tick_seconds: float = 5.0
    optin_share: float = 0.25
    operator_key_file: str | None = None
    tally_file: str | None = None

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UsageError("a collector needs a task", fix="Give --task FILE")
        if not 0 < self.optin_share < 1:
            raise UsageError("the opt-in share of a period is above 0 and below 1")
        if self.most_waiting < 1 or self.body_seconds <= 0 or self.retry_after < 1 or self.tick_seconds < 0:
            raise UsageError("limits of a collector are above zero")
        if self.store_seconds <= 0 or self.end_seconds <= 0:
            raise UsageError("--store-seconds must be positive")
        if self.most_bytes is not None and self.most_bytes < 1 << 20:
            raise UsageError("a store of less than 1 MiB can't hold anything", fix="Raise the limit")

    def load_tasks(self) -> list[Task]:
        """Read the task files; the same task twice is a slip, and one that can't be finished takes nobody's records."""
        tasks = [Task.load(path) for path in self.tasks]
        for task in tasks:
            _check_finishable(task)
        if len({task.id for task in tasks}) < len(tasks):
            raise UsageError("two task files are the same task", fix="Give each task once")
        return tasks

    def operator(self) -> bytes | None:
        """Read the operator key, where there is one."""
        return read_operator_key(self.operator_key_file)

    def to_json(self) -> str:
        """Write the settings for worker processes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read what :meth:`to_json` wrote."""
        data = json.loads(text)
        return cls(**{**data, "tasks": tuple(data["tasks"])})


def _check_finishable(task: Task) -> None:
    """Refuse a task whose opt-in records would be gathered for nothing: of them no head list could be made here."""
    if task.head is None:
        return
    if task.optin is None:
        raise UsageError(
            "a task with a [head] list needs an [optin] part to be collected",
            why="the collector makes the list of what opt-in users give",
            fix="Add [optin], or write a domain into [task]",
        )
    if task.optin.relation != "replace-one":
        raise UsageError(
            f'the collector makes no head list under [optin] relation = "{task.optin.relation}"',
            why="how many opted in is a secret then, and everybody can count who uploads",
            fix='Use relation = "replace-one"',
        )


def read_operator_key(path: str | None) -> bytes | None:
    """Read the operator key from a file, or else from the environment; None where there is none."""
    if path is None:
        return operator_key(os.environ.get(OPERATOR_VARIABLE))
    try:
        return operator_key(Path(path).read_text("ascii"))
    except (OSError, UnicodeError):
        raise DataError("the file of the operator key can't be read", fix="Check --operator-key") from None
