"""The moves of a hybrid epoch: the head list of the opt-in records, the clients' counts, and both blended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hushquery.collect.epochs.epochs import Epoch, epochs_of
from hushquery.collect.epochs.local_work import LocalWork, estimated
from hushquery.collect.epochs.phases import HeadList
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault
from hushquery.core.ledger.ledger import Ledger

if TYPE_CHECKING:
    from hushquery.hybrid.published import PublishedHead

__all__ = ["HybridWork"]


class HybridWork:
    """What is computed for tasks whose head list opt-in users make; other tasks' reports are only counted.

    Args:
        store: Where the reports are.
        vault: Where the opt-in records are.
        ledger: The ledger that both populations pay from; its accounts are opened beforehand.
    """

    def __init__(self, store: Store, vault: Vault, ledger: str | os.PathLike[str]) -> None:
        self._store = store
        self._vault = vault
        self._ledger = ledger
        self._local = LocalWork(store)

    def publish_head(self, epoch: Epoch) -> HeadList:
        """Make the head list, or measure again the one that the task keeps, after both populations have paid once.

        The accounts of a task with periods are opened beforehand: one that its first epoch opened would end with it.
        """
        # Engines and tables are large; a server process that only takes reports does not load them.
        from hushquery.hybrid.plan import plan_head

        create = epoch.task.task.period is None
        plan = plan_head(_SealedRecords(self._vault, epoch), epoch.task, head=self._kept(epoch))
        made = plan.run(Ledger.open(self._ledger), epoch=epoch.number, create=create)
        return HeadList(made.records, made.to_json())

    def _kept(self, epoch: Epoch) -> PublishedHead | None:
        """Give the latest list, if the task keeps it for this period; an empty one is not worth keeping."""
        from hushquery.hybrid.published import PublishedHead

        earlier = [one for one in epochs_of(self._store, epoch.task, epoch.task_number) if one.number < epoch.number]
        for one in reversed(earlier):
            if one.optin is not None:
                head = PublishedHead.from_json(one.optin)
                return head if head.records and epoch.number <= head.last_epoch else None
        return None

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        """Count the clients' reports."""
        return self._local.close(epoch)

    def release(self, epoch: Epoch) -> bytes:
        """Blend what both populations said; both have paid already."""
        if epoch.task.head is None:
            return self._local.release(epoch)
        from hushquery.hybrid.published import PublishedHead, blend

        made = blend(PublishedHead.from_json(epoch.optin), estimated(epoch))
        document = {
            "task": epoch.task.id,
            "name": epoch.task.task.name,
            "epoch": epoch.number,
            "manifest": made.manifest,
            "guarantees": [guarantee.to_json() for guarantee in made.guarantees],
            "tables": {name: table.to_pydict() for name, table in made.tables.items()},
        }
        return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


class _SealedRecords:
    """The opt-in records of an epoch as they are now: paid for once, opened after that, with noise that is theirs.

    A store that was restored or begun anew gathers other records under the same epoch: those have another key, so they
    are paid for again and get other noise.
    """

    def __init__(self, vault: Vault, epoch: Epoch) -> None:
        self._vault, self._epoch = vault, epoch
        self.name = epoch.key

    @property
    def noise_key(self) -> bytes:
        """Return the key from which these records' noise is drawn."""
        return self._vault.noise_key(self._epoch)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Decrypt the records, into an engine that is gone when the block ends."""
        # Who gave nothing has a row without a query: the published number of users does not depend on what they gave.
        rows: list[tuple[str | None, ...]] = []
        for giver, records in self._vault.records(self._epoch):
            rows += [(giver.hex(), *record) for record in records] or [(giver.hex(), None, None)]
        with _only_in_memory(_log(rows)) as table:
            yield table


def _log(rows: list[tuple[str | None, ...]]) -> Any:
    """Give rows of (user, query, URL) as a log can be read from them."""
    import pyarrow as pa

    names = ("user", "query", "url")
    return pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})


@contextmanager
def _only_in_memory(rows: Any) -> Iterator[Any]:
    """Put rows into an engine of their own that never writes them down, and is gone when the block ends.

    Where memory does not suffice DuckDB goes on in files, in plain text, and a crash leaves them. It fails instead.
    """
    from hushquery.engine import connect

    engine = connect()
    try:
        engine.raw_sql("SET temp_directory = ''")
        yield engine.create_table("log", rows)
    finally:
        engine.disconnect()
