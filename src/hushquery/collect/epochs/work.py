"""What is computed when an epoch moves: the head list of the opt-in records, the counts of the reports, the release."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hushquery.collect.epochs.epochs import Epoch, epochs_of, reports_of
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import DataError, Unavailable
from hushquery.local.server.counting import ReportCount, read_blocks
from hushquery.local.server.estimate import ClientEstimate, estimate_counted

if TYPE_CHECKING:
    from hushquery.hybrid.published import PublishedHead


class EpochWork:
    """The computations of an epoch's moves. Each may run again after a crash and is paid for once.

    Only a head list spends budget: the ledger records it under ``epoch.key`` together with the name of its noise,
    which belongs to the records that are read (:meth:`~hushquery.collect.store.vault.Vault.noise_key`), and an entry
    that is there already is not paid again. Counting spends nothing: clients paid before they sent.
    """

    def __init__(self, store: Store, vault: Vault, ledger: str | os.PathLike[str]) -> None:
        self._store = store
        self._vault = vault
        self._ledger = ledger

    def publish_head(self, epoch: Epoch) -> PublishedHead:
        """Make the head list, or measure the one that the task keeps again, after both populations have paid.

        Accounts of a task with periods must exist: one created by the first epoch would be used up by it.
        """
        # A server that only takes reports does not load engines and tables.
        from hushquery.hybrid.plan import plan_head

        plan = plan_head(_SealedRecords(self._vault, epoch), epoch.task, head=self._list_to_keep(epoch))
        create = epoch.task.task.period is None
        return plan.run(Ledger.open(self._ledger), epoch=epoch.number, create=create)

    def _list_to_keep(self, epoch: Epoch) -> PublishedHead | None:
        """Return the latest list if the task keeps it for this period; an empty one is never kept."""
        from hushquery.hybrid.published import PublishedHead

        earlier = [one for one in epochs_of(self._store, epoch.task, epoch.task_row) if one.number < epoch.number]
        for one in reversed(earlier):
            if one.optin is not None:
                head = PublishedHead.from_json(one.optin)
                return head if head.records and epoch.number <= head.last_epoch else None
        return None

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        """Count the reports, and estimate from them if there are enough."""
        if epoch.configuration is None:
            raise DataError("the epoch has no domain yet", fix="Publish its head list first")
        count = ReportCount(epoch.configuration, epoch.number)
        for block in read_blocks(reports_of(self._store, epoch), count.length):
            count.add(block)
        # Texts are estimated for candidates, which are named later.
        if count.n < epoch.task.collect.min_batch or epoch.task.task.kind == "text":
            return {"n": count.n, "support": count.support.tolist()}
        return estimate_counted(count, strict=True).to_json()

    def release(self, epoch: Epoch) -> bytes:
        """Write the JSON document that is served: the clients' estimates, or the blend with the opt-in users'."""
        counts = epoch.counts or {}
        if "estimates" not in counts:
            raise Unavailable("the reports of this epoch are counted, not estimated", fix="Leave it closed")
        estimate = ClientEstimate.from_json(counts)
        document: dict[str, Any] = {"name": epoch.task.task.name, "epoch": epoch.number}
        if epoch.task.head is None:
            document = {**estimate.to_json(), **document}
        else:
            from hushquery.hybrid.published import PublishedHead, blend

            blended = blend(PublishedHead.from_json(epoch.optin), estimate)
            document |= {
                "task": epoch.task.id,
                "manifest": blended.manifest,
                "guarantees": [guarantee.to_json() for guarantee in blended.guarantees],
                "tables": {name: table.to_pydict() for name, table in blended.tables.items()},
            }
        return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


class _SealedRecords:
    """The opt-in records of an epoch as they are now: paid for once, decrypted after that.

    A store that was restored or begun anew collects other records in the same epoch. Those have another noise key, so
    they are paid for again and get fresh noise.
    """

    def __init__(self, vault: Vault, epoch: Epoch) -> None:
        self._vault, self._epoch = vault, epoch
        self.name = epoch.key

    @property
    def noise_key(self) -> bytes:
        """The key from which the noise on these records is drawn."""
        return self._vault.noise_key(self._epoch)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Decrypt the records into an engine of their own, which is gone when the block ends."""
        from hushquery.engine import connect

        # A user without records has a row without a query, so that the published number of users is independent of
        # what they gave.
        rows: list[tuple[str | None, ...]] = []
        for giver, records in self._vault.records(self._epoch):
            rows += [(giver.hex(), *record) for record in records] or [(giver.hex(), None, None)]
        engine = connect()
        try:
            # Without a folder DuckDB fails when memory runs out, instead of writing plain text to disk.
            engine.raw_sql("SET temp_directory = ''")
            yield engine.create_table("log", _log(rows))
        finally:
            engine.disconnect()


def _log(rows: list[tuple[str | None, ...]]) -> Any:
    """Return rows of (user, query, URL) as a table that a log can be read from."""
    import pyarrow as pa

    names = ("user", "query", "url")
    return pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})
