"""The moves of a hybrid epoch: the head list of the opt-in records, the clients' counts, and both blended."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from hushquery.collect.epochs import Epoch
from hushquery.collect.local_work import LocalWork
from hushquery.collect.phases import HeadList
from hushquery.collect.store import Store
from hushquery.collect.vault import Vault
from hushquery.local.estimate import ClientEstimate
from hushquery.privacy.ledger import Ledger

__all__ = ["HybridWork"]


class HybridWork:
    """What is computed for tasks whose head list opt-in users make; other tasks' reports are only counted.

    Args:
        store: Where the reports are.
        vault: Where the opt-in records are.
        ledger: The ledger that both populations pay from; its accounts are opened beforehand.
    """

    def __init__(self, store: Store, vault: Vault, ledger: str | os.PathLike[str]) -> None:
        self._vault = vault
        self._ledger = ledger
        self._local = LocalWork(store)

    def publish_head(self, epoch: Epoch) -> HeadList:
        """Make the head list, after both populations have paid for it once."""
        # Engines and tables are large; a server process that only takes reports does not load them.
        import pyarrow as pa

        from hushquery.hybrid.plan import plan_head

        rows = [(giver.hex(), *record) for giver, records in self._vault.records(epoch) for record in records]
        columns = dict(zip(("user", "query", "url"), map(list, zip(*rows, strict=True)), strict=True))
        plan = plan_head(pa.table(columns), epoch.task)
        made = plan.run(Ledger.open(self._ledger, once=epoch.key), epoch=epoch.number)
        return HeadList(made.records, made.to_json())

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        """Count the clients' reports."""
        return self._local.close(epoch)

    def release(self, epoch: Epoch) -> bytes:
        """Blend what both populations said; both have paid already."""
        if epoch.task.head is None:
            return self._local.release(epoch)
        from hushquery.hybrid.published import PublishedHead
        from hushquery.hybrid.result import blend

        made = blend(PublishedHead.from_json(epoch.optin), ClientEstimate.from_json(epoch.counts))
        document = {
            "task": epoch.task.id,
            "name": epoch.task.task.name,
            "epoch": epoch.number,
            "manifest": made.manifest,
            "guarantees": [guarantee.to_json() for guarantee in made.guarantees],
            "tables": {name: table.to_pylist() for name, table in made.tables.items()},
        }
        return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
