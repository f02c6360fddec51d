"""The moves of an epoch whose reports are all there is: count them, and publish the estimates with their guarantee."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hushquery.collect.epochs import Epoch, reports_of
from hushquery.collect.phases import HeadList
from hushquery.collect.store import Store
from hushquery.errors import DataError, Unavailable
from hushquery.local.configuration import Configuration
from hushquery.local.oracle import Tally
from hushquery.local.report import Report
from hushquery.privacy.guarantee import Guarantee, Step
from hushquery.privacy.loss import Loss
from hushquery.privacy.unit import Unit

__all__ = ["LocalWork"]


class LocalWork:
    """What is computed for tasks with a domain of their own. Nothing is spent: clients paid before they sent.

    Args:
        store: Where the reports are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def publish_head(self, epoch: Epoch) -> HeadList:
        """Refuse: a head list is made of opt-in records, by the hybrid's own work."""
        del epoch
        raise Unavailable(
            "this collector can't make head lists", why="it counts reports only", fix="Use a task with a domain"
        )

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        """Count the reports."""
        configuration = _configuration(epoch)
        tally = Tally(configuration.oracle)
        tally.add_many(Report.from_bytes(data).open(configuration) for data in reports_of(self._store, epoch))
        return tally.to_json()

    def release(self, epoch: Epoch) -> bytes:
        """Estimate the share of each value, with its interval and with what its publication promises."""
        configuration, task = _configuration(epoch), epoch.task
        tally = Tally.from_json(configuration.oracle, epoch.counts or {})
        each = task.client.records_per_user
        losses = Loss(pure=(configuration.oracle.epsilon,) * each)
        step = Step(configuration.oracle.name, f"{each} report(s) of one client in one period", losses)
        promise = Guarantee.of(task.task.population, "local", Unit("user", "replace-one"), [step])
        labels = [configuration.domain.label(cell) for cell in range(len(configuration.domain))]
        estimates = tally.estimate(labels=labels, guarantee=promise)
        document = {
            "task": task.id,
            "name": task.task.name,
            "epoch": epoch.number,
            "configuration": configuration.digest.hex(),
            "reports": tally.n,
            **estimates.to_json(),
        }
        return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


def _configuration(epoch: Epoch) -> Configuration:
    if epoch.configuration is None:
        raise DataError("the epoch has no domain yet", fix="Publish its head list first")
    return epoch.configuration
