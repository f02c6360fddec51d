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
    from hushquery import basic
    from hushquery.auditing.audit import audit
    from hushquery.curator.plan import curate
    from hushquery.errors import HushqueryError
    from hushquery.hybrid.plan import plan_head
    from hushquery.hybrid.published import PublishedHead
    from hushquery.hybrid.result import blend
    from hushquery.local.client import Client
    from hushquery.local.estimate import estimate
    from hushquery.log import Log, read_log
    from hushquery.privacy.budget import Budget, PrivacyWarning
    from hushquery.privacy.compose import compose
    from hushquery.privacy.estimates import Estimates
    from hushquery.privacy.guarantee import Guarantee
    from hushquery.privacy.ledger import Ledger
    from hushquery.privacy.loss import Loss
    from hushquery.privacy.unit import Relation, Unit
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
    "basic",
    "blend",
    "compose",
    "curate",
    "estimate",
    "plan_head",
    "read_log",
]

_HOMES = {
    "Budget": "privacy.budget",
    "Client": "local.client",
    "Estimates": "privacy.estimates",
    "Guarantee": "privacy.guarantee",
    "HushqueryError": "errors",
    "Ledger": "privacy.ledger",
    "Log": "log",
    "Loss": "privacy.loss",
    "PrivacyWarning": "privacy.budget",
    "Relation": "privacy.unit",
    "PublishedHead": "hybrid.published",
    "Release": "release",
    "SearchIndex": "publish",
    "Task": "task",
    "Unit": "privacy.unit",
    "audit": "auditing.audit",
    "blend": "hybrid.result",
    "compose": "privacy.compose",
    "curate": "curator.plan",
    "estimate": "local.estimate",
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
