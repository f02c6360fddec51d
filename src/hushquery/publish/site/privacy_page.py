"""The privacy page: what was collected, from whom, under which guarantee, what it cost, and what leaves a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hushquery.errors import UsageError
from hushquery.publish.site.pages import ledger_charts
from hushquery.release import Release
from hushquery.release.page import in_numbers, promise, two_promises

__all__ = ["checked_task", "privacy_page"]

# What a person gives, by the kind of task.
_GIVES = {
    "searches": "what they search for and which result they choose",
    "setting": "the value of one setting",
}


def checked_task(privacy: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the task that clients of the latest release run, as a collector serves it, or None; refuse half of one."""
    task = privacy.get("task")
    if task is None:
        return None
    if not isinstance(task, Mapping) or not {"id", "task", "configuration"} <= set(task):
        raise UsageError(
            "the task of a site is incomplete", fix="Give it as a collector serves it: id, task, configuration"
        )
    return task if task["configuration"] is not None else None


def privacy_page(releases: Sequence[Release], names: Sequence[str], privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``privacy.html`` shows.

    Args:
        releases: The releases, oldest first.
        names: What each release is called.
        privacy: ``task`` and ``ledger``, as :func:`hushquery.publish.site.build_site` takes them.
    """
    last, task = releases[-1], checked_task(privacy)
    kind = "" if task is None else str(task["task"]["task"]["kind"])
    each = last.manifest["parameters"].get("records_per_user")
    return {
        "promises": [promise(guarantee, last.manifest) for guarantee in last.guarantees],
        "two_promises": two_promises(last.guarantees),
        "kind": kind,
        "gives": _GIVES.get(kind or "searches", "one value"),
        "records_each": each if isinstance(each, int) and each > 1 else 0,
        "accounts": _ledger(privacy.get("ledger"), privacy.get("accounts") or ()),
        "people": list(dict.fromkeys(g.population for release in releases for g in release.guarantees)),
        "history": [
            {
                "name": name,
                "created": release.manifest["created"],
                "promised": {guarantee.population: in_numbers(guarantee) for guarantee in release.guarantees},
            }
            for release, name in zip(releases, names, strict=True)
        ],
    }


def _ledger(rows: Any, accounts: Any) -> list[dict[str, Any]]:
    for given in (rows or (), accounts):
        if not isinstance(given, Sequence) or not all(isinstance(row, Mapping) for row in given):
            raise UsageError("the ledger of a site is a list of rows", fix="Give what Ledger.over_time() gives")
    return ledger_charts(rows or (), accounts)
