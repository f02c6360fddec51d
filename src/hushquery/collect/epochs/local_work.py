"""The moves of an epoch whose reports are all there is: count them, and publish the estimates with their guarantee."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hushquery.collect.epochs.epochs import Epoch, reports_of
from hushquery.collect.epochs.phases import HeadList
from hushquery.collect.store.store import Store
from hushquery.errors import DataError, Unavailable
from hushquery.local.server.counting import ReportCount, read_blocks
from hushquery.local.server.estimate import ClientEstimate, estimate_counted

__all__ = ["LocalWork", "estimated"]


class LocalWork:
    """What is computed for tasks without a head list to come. Nothing is spent: clients paid before they sent.

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
        """Count the reports; where there are enough, the counts come with the estimates."""
        if epoch.configuration is None:
            raise DataError("the epoch has no domain yet", fix="Publish its head list first")
        # All of an epoch are of its period: which one to count need not wait for the last report.
        count = ReportCount(epoch.configuration, epoch.number)
        for block in read_blocks(reports_of(self._store, epoch), count.length):
            count.add(block)
        # Texts are estimated for candidates, which nobody has named here: their counts are what there is.
        if count.n < epoch.task.collect.min_batch or epoch.task.task.kind == "text":
            return {"n": count.n, "support": count.support.tolist()}
        return estimate_counted(count, strict=True).to_json()

    def release(self, epoch: Epoch) -> bytes:
        """Publish the estimates, with their intervals and with what their publication promises."""
        made = estimated(epoch)
        document = {**made.to_json(), "name": epoch.task.task.name, "epoch": epoch.number}
        return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


def estimated(epoch: Epoch) -> ClientEstimate:
    """Give the estimates that were made when the epoch was closed; without them its release does not begin.

    Raises:
        Unavailable: There are counts only.
    """
    counts = epoch.counts or {}
    if "estimates" not in counts:
        raise Unavailable("the reports of this epoch are counted, not estimated", fix="Leave it closed")
    return ClientEstimate.from_json(counts)
