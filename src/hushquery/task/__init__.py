"""The task: the TOML file on which clients and collector agree, and what may be collected under it."""

from __future__ import annotations

from hushquery.task.answers import Answers, template
from hushquery.task.domain import Domain, GroupedDomain, Numbers, Texts
from hushquery.task.model import ClientPart, CollectPart, HeadPart, OptInPart, RapporPart, Task, TaskPart

__all__ = [
    "Answers",
    "ClientPart",
    "CollectPart",
    "Domain",
    "GroupedDomain",
    "HeadPart",
    "Numbers",
    "OptInPart",
    "RapporPart",
    "Task",
    "TaskPart",
    "Texts",
    "template",
]
