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
    from hushquery.core.description import Description
    from hushquery.core.estimates import Estimates
    from hushquery.core.guarantee import Guarantee
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.core.loss import Loss
    from hushquery.curator.advice import Advice, advise
    from hushquery.curator.plan import ReleasePlan, plan_release
    from hushquery.errors import (
        BudgetRefused,
        CalibrationError,
        DataError,
        HushqueryError,
        NotReady,
        Unavailable,
        UsageError,
    )
    from hushquery.hybrid.plan import HeadPlan, plan_head
    from hushquery.hybrid.published import PublishedHead, blend
    from hushquery.local.device.client import Client
    from hushquery.local.device.fetch import fetch_task
    from hushquery.local.device.reporting import Reported, report
    from hushquery.local.device.send import Sender
    from hushquery.local.server.estimate import ClientEstimate, estimate
    from hushquery.log import Log, Look, look, read_log
    from hushquery.publish import SearchIndex
    from hushquery.release import Release, SigningKey, load, verify
    from hushquery.statistics import StatisticPlan, plan_statistic
    from hushquery.task import Task

__all__ = [
    "Advice",
    "Budget",
    "BudgetRefused",
    "CalibrationError",
    "Client",
    "ClientEstimate",
    "DataError",
    "Description",
    "Estimates",
    "Guarantee",
    "HeadPlan",
    "HushqueryError",
    "Ledger",
    "Log",
    "Look",
    "Loss",
    "NotReady",
    "PrivacyWarning",
    "PublishedHead",
    "Relation",
    "Release",
    "ReleasePlan",
    "Reported",
    "SearchIndex",
    "Sender",
    "SigningKey",
    "StatisticPlan",
    "Task",
    "Unavailable",
    "Unit",
    "UsageError",
    "__version__",
    "advise",
    "audit",
    "blend",
    "compose",
    "estimate",
    "fetch_task",
    "load",
    "look",
    "plan_head",
    "plan_release",
    "plan_statistic",
    "read_log",
    "report",
    "statistics",
    "verify",
]

_HOMES = {
    "auditing.attacks": ("audit",),
    "core.budget": ("Budget", "PrivacyWarning", "Relation", "Unit"),
    "core.composition": ("compose",),
    "core.description": ("Description",),
    "core.estimates": ("Estimates",),
    "core.guarantee": ("Guarantee",),
    "core.ledger.ledger": ("Ledger",),
    "core.loss": ("Loss",),
    "curator.advice": ("Advice", "advise"),
    "curator.plan": ("ReleasePlan", "plan_release"),
    "errors": (
        "BudgetRefused",
        "CalibrationError",
        "DataError",
        "HushqueryError",
        "NotReady",
        "Unavailable",
        "UsageError",
    ),
    "hybrid.plan": ("HeadPlan", "plan_head"),
    "hybrid.published": ("PublishedHead", "blend"),
    "local.device.client": ("Client",),
    "local.device.fetch": ("fetch_task",),
    "local.device.reporting": ("Reported", "report"),
    "local.device.send": ("Sender",),
    "local.server.estimate": ("ClientEstimate", "estimate"),
    "log": ("Log", "Look", "look", "read_log"),
    "publish": ("SearchIndex",),
    "release": ("Release", "SigningKey", "load", "verify"),
    "statistics": ("StatisticPlan", "plan_statistic"),
    "task": ("Task",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # else a name that is not there would be of type Any

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            return getattr(import_module(f"hushquery.{_HOME[name]}"), name)
        if name in __all__:
            return import_module(f"hushquery.{name}")
        message = f"module 'hushquery' has no attribute {name!r}"
        raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
