"""The task: the TOML file on which clients and collector agree, and what may be collected under it."""

from __future__ import annotations

from hushquery.task.domain import Domain
from hushquery.task.model import ClientPart, CollectPart, HeadPart, OptInPart, Task, TaskPart
from hushquery.task.template import template

__all__ = ["ClientPart", "CollectPart", "Domain", "HeadPart", "OptInPart", "Task", "TaskPart", "template"]
