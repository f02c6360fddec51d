"""What an operator sees of a collector: phases, reports and the error they will give, refusals, budgets and room.

No value, no count of one and no client is in it. How many reports an epoch has is published with its release. While it
is open the number says when devices report, as the network and ``hushquery_uploads_total`` do, and never what: so it
is for the operator, whose listener is private.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hushquery.collect.epochs.clock import read_clock
from hushquery.collect.epochs.epochs import (
    OPTIN_OPEN,
    REPORTS_OPEN,
    Epoch,
    epoch_row,
    epoch_statuses,
    latest_head,
    registered,
)
from hushquery.collect.epochs.phases import phase_ends
from hushquery.collect.forecast import forecast
from hushquery.collect.store.reports import ACCEPTED, REPEATED, counts
from hushquery.collect.store.schema import EPOCH, RELEASE, reports_table
from hushquery.collect.store.store import Store, free_bytes
from hushquery.core.ledger.ledger import Account, Ledger
from hushquery.errors import HushqueryError
from hushquery.local.configuration import Configuration
from hushquery.task import Task

if TYPE_CHECKING:
    from hushquery.hybrid.proposal import Proposal

_MOST_COUNTED = 2_000_000  # reports of an open epoch are counted up to so many, within the time that a page has
_LEAST_PART = 0.02  # of a phase has to be over before its rate says anything


def overview(
    store: Store, ledger: str | None, *, now: float, optin_share: float = 0.25, most: int | None = None
) -> dict[str, Any]:
    """Return all that an operator is shown, as plain data; ``most`` is how many epochs of a task, the latest."""
    counted, tasks = counts(store), registered(store)
    accounts, trouble = _accounts(ledger)
    with store.read() as connection:
        stopped = read_clock(connection).stopped
    return {
        "now": int(now),
        "store": store.name,
        "bytes": store.size(),
        "most_bytes": store.most_bytes,
        "disk_free": None if store.path is None else free_bytes(store.path),
        "clock_stopped": stopped,
        "log": store.log_settings(),
        "ledger_trouble": trouble,
        "tasks": [
            {
                "id": task.id,
                "name": task.task.name,
                "kind": task.task.kind,
                "min_batch": task.collect.min_batch,
                "uploads": {reason: count for (row, reason), count in sorted(counted.items()) if row == task_row},
                "epochs": _epochs(store, task, task_row, now, optin_share, most),
                "device": _device(task),
                "accounts": [one.to_json() for one in accounts if one.population in _populations(task)],
                "next": _next(store, task, task_row, now, accounts),
            }
            for task_row, task in tasks
        ],
    }


def refused(uploads: Mapping[str, int]) -> dict[str, int]:
    """Return how many uploads were refused, by reason."""
    return {reason: count for reason, count in uploads.items() if reason not in (ACCEPTED, REPEATED) and count}


# ---- epochs and the error they will give -----------------------------------------------------------------------------


def _epochs(
    store: Store, task: Task, task_row: int, now: float, optin_share: float, most: int | None
) -> list[dict[str, Any]]:
    with store.read() as connection:
        statuses = epoch_statuses(connection, {task_row: task})
        chosen = statuses if most is None else [one for one in statuses if not one.forgotten][-most:]
        epochs = [epoch for one in chosen if (epoch := epoch_row(connection, task, task_row, one.number))]
    known: dict[Any, Configuration | None] = {}
    return [_epoch(store, epoch, known, now, optin_share) for epoch in epochs]


def _epoch(
    store: Store, epoch: Epoch, known: dict[Any, Configuration | None], now: float, optin_share: float
) -> dict[str, Any]:
    shown = ("number", "phase", "moving", "since", "reports", "release", "trouble")
    ends, received = phase_ends(epoch, optin_share), _received(store, epoch)
    if epoch.head not in known:  # a list that is kept is calibrated once
        known[epoch.head] = epoch.configuration
    configuration = known[epoch.head]
    so_far = epoch.reports if received is None else received
    at_end = None
    if configuration is not None and received is not None and ends is not None and received < _MOST_COUNTED:
        part = min(1.0, (now - epoch.since) / max(ends - epoch.since, 1.0))
        at_end = forecast(configuration, round(received / part)) if part >= _LEAST_PART else None
    return {
        **{name: getattr(epoch, name) for name in shown},
        "begins": None if epoch.task.task.period is None else epoch.number * epoch.task.task.period,
        "ends": None if ends is None else int(ends),
        "received": received,
        "more": received == _MOST_COUNTED,
        "forecast": None if configuration is None or so_far is None else forecast(configuration, so_far),
        "at_end": at_end,
    }


def _received(store: Store, epoch: Epoch) -> int | None:
    """Count the reports of an open epoch, up to a limit; None where it is not open, or was closed meanwhile."""
    if epoch.phase != REPORTS_OPEN:
        return None
    table = reports_table(epoch.task_row, epoch.number)
    try:
        with store.read(table) as connection:
            some = sa.select(table.c.id).limit(_MOST_COUNTED).subquery()
            return int(connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())
    except HushqueryError:
        with store.read() as connection:  # if the store is away this says so
            again = epoch_row(connection, epoch.task, epoch.task_row, epoch.number)
        if again is not None and again.phase == REPORTS_OPEN:
            raise
        return None


# ---- budgets ---------------------------------------------------------------------------------------------------------


def _accounts(ledger: str | None) -> tuple[list[Account], str | None]:
    """Return the accounts of a ledger; without it the rest is still worth seeing."""
    if ledger is None:
        return [], None
    try:
        return Ledger.open(ledger, create=False).accounts(), None
    except HushqueryError as error:
        return [], error.what


def _populations(task: Task) -> Iterable[str]:
    """Name the populations that the collector charges for a task; without a head list none."""
    if task.head is None:
        return ()
    from hushquery.hybrid.published import client_population, optin_population

    return client_population(task), optin_population(task)


def _device(task: Task) -> dict[str, Any]:
    """Return what a device may spend: the collector never knows what it has spent."""
    one, ever = task.client.epsilon, task.client.lifetime_epsilon
    return {"answer_epsilon": float(one), "lifetime_epsilon": float(ever), "answers": int(ever / one)}


# ---- the next list ---------------------------------------------------------------------------------------------------


def _next(store: Store, task: Task, task_row: int, now: float, accounts: list[Account]) -> dict[str, Any] | None:
    """Propose the next list, once an epoch has been released."""
    if task.head is None or task.optin is None or not _released(store, task_row):
        return None
    proposed = next_list(store, task, task_row, now=now, accounts=accounts)
    return None if proposed is None else proposed.to_json()


def next_list(
    store: Store, task: Task, task_row: int, *, now: float, accounts: Iterable[Account] = ()
) -> Proposal | None:
    """Propose the head list of the next epoch that gets one; None for a task without periods that has its list."""
    from hushquery.hybrid.proposal import propose

    present = task.period_at(now)
    with store.read() as connection:
        statuses = epoch_statuses(connection, {task_row: task})
        lists = connection.execute(sa.select(sa.func.count(EPOCH.c.head.distinct())).where(EPOCH.c.task == task_row))
        published = int(lists.scalar_one())
    last = statuses[-1] if statuses else None
    number = present if last is None else max(present, last.number + 1)
    begun = False
    if last is not None and last.number >= present and last.phase == OPTIN_OPEN:
        number, begun = last.number, last.moving is not None
    if task.task.period is None and number > 0:
        return None
    head = latest_head(store, task_row, number)
    released = [] if head is None else [one for one in _released(store, task_row) if one >= head.listed]
    ends = [_manifest(store, task_row, epoch) for epoch in dict.fromkeys(released[:1] + released[-1:])]
    return propose(task, number, head=head, lists=published, manifests=ends, accounts=accounts, begun=begun)


def _released(store: Store, task_row: int) -> list[int]:
    query = sa.select(RELEASE.c.epoch).where(RELEASE.c.task == task_row).order_by(RELEASE.c.epoch)
    with store.read() as connection:
        return [int(one) for one in connection.execute(query).scalars()]


def _manifest(store: Store, task_row: int, epoch: int) -> Mapping[str, Any]:
    query = sa.select(RELEASE.c.document).where(RELEASE.c.task == task_row, RELEASE.c.epoch == epoch).limit(1)
    with store.read() as connection:
        document = json.loads(bytes(connection.execute(query).scalar_one()))
    return dict(document.get("manifest", {}))  # an earlier hushquery wrote none
