"""hushquery: what a crowd searches for and clicks on, without what any one person searched for.

    >>> import hushquery as hq
    >>> hq.Budget(1, 1e-6)
    Budget(1.0, 1e-06)

The names below are the public surface. Each is imported from its own module when first used, so that
``import hushquery`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushquery._version import __version__

if TYPE_CHECKING:
    from hushquery import statistics
    from hushquery.auditing.attacks import audit
    from hushquery.core.budget import Budget, PrivacyWarning, Relation, Unit
    from hushquery.core.composition import compose
    from hushquery.core.estimates import Estimates
    from hushquery.core.guarantee import Guarantee
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.core.loss import Loss
    from hushquery.curator.plan import plan_release
    from hushquery.errors import HushqueryError
    from hushquery.hybrid.plan import plan_head
    from hushquery.hybrid.published import PublishedHead, blend
    from hushquery.local.device.client import Client
    from hushquery.local.server.estimate import estimate
    from hushquery.log import Log, read_log
    from hushquery.publish import SearchIndex
    from hushquery.release import Release
    from hushquery.task import Task

__all__ = [
    "Budget",
    "Client",
    "Estimates",
    "Guarantee",
    "HushqueryError",
    "Ledger",
    "Log",
    "Loss",
    "PrivacyWarning",
    "PublishedHead",
    "Relation",
    "Release",
    "SearchIndex",
    "Task",
    "Unit",
    "__version__",
    "audit",
    "blend",
    "compose",
    "estimate",
    "plan_head",
    "plan_release",
    "read_log",
    "statistics",
]

_HOMES = {
    "Budget": "core.budget",
    "Client": "local.device.client",
    "Estimates": "core.estimates",
    "Guarantee": "core.guarantee",
    "HushqueryError": "errors",
    "Ledger": "core.ledger.ledger",
    "Log": "log",
    "Loss": "core.loss",
    "PrivacyWarning": "core.budget",
    "Relation": "core.budget",
    "PublishedHead": "hybrid.published",
    "Release": "release",
    "SearchIndex": "publish",
    "Task": "task",
    "Unit": "core.budget",
    "audit": "auditing.audit",
    "blend": "hybrid.result",
    "compose": "core.composition",
    "plan_release": "curator.plan",
    "estimate": "local.server.estimate",
    "plan_head": "hybrid.plan",
    "read_log": "log",
}


if not TYPE_CHECKING:  # else a name that is not there would be of type Any

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"hushquery.{_HOMES[name]}"), name)
        if name in __all__:
            return import_module(f"hushquery.{name}")
        message = f"module 'hushquery' has no attribute {name!r}"
        raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
