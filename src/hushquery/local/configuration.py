"""Configuration: a task with its domain and the integers its clients run with, and the hash that binds them.

A report carries this hash. A client and a collector with another list, another order of the list, or another
mechanism can't mistake each other's reports for their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from hushquery.errors import CalibrationError, UsageError
from hushquery.local.choose import oracle_named
from hushquery.local.oracle import Randomizer
from hushquery.task import Domain, Task

__all__ = ["Configuration"]

# A simulator makes thousands of clients of one task, and exact calibration takes milliseconds.
_calibrated = lru_cache(maxsize=64)(oracle_named)


@dataclass(frozen=True)
class Configuration:
    """What every client of a task runs: made once from the task and, where it has none of its own, the head list.

    >>> from hushquery.task import template
    >>> configuration = Configuration.of(Task.loads(template("setting")))
    >>> configuration.oracle.k, len(configuration.digest)
    (4, 32)
    """

    task: Task
    domain: Domain
    oracle: Randomizer

    def __post_init__(self) -> None:
        if self.oracle.k != len(self.domain):
            raise UsageError(
                f"the mechanism has {self.oracle.k} cells and the domain {len(self.domain)}",
                fix="Make it with Configuration.of",
            )
        if self.oracle.epsilon > self.task.record_epsilon:
            raise CalibrationError(
                "the mechanism loses more than the task allows", fix="Calibrate it to the task's epsilon"
            )

    @classmethod
    def of(cls, task: Task, head: Sequence[Any] | None = None) -> Configuration:
        """Fix the domain and the mechanism of a task.

        Args:
            task: The task.
            head: The published head list, as [query, URL] pairs in their order; only for a task without a domain.
        """
        domain = task.listed(head)
        return cls(task, domain, _calibrated(task.client.oracle, len(domain), task.record_epsilon))

    def canonical(self) -> str:
        """Give the text that is hashed: JSON with sorted keys, no spaces, ASCII only."""
        data = {
            "version": 1,
            "task": self.task.id,
            "domain": self.domain.to_json(),
            "oracle": self.oracle.describe(),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> bytes:
        """The configuration hash: the SHA-256 of :meth:`canonical`."""
        return hashlib.sha256(self.canonical().encode("ascii")).digest()
