"""Which work is done at the moves of epochs: one place for the server and the command line to ask."""

from __future__ import annotations

from hushquery.collect.epochs.hybrid_work import HybridWork
from hushquery.collect.epochs.phases import EpochWork
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault

__all__ = ["make_work"]


def make_work(store: Store, vault: Vault, ledger: str) -> EpochWork:
    """Give what computes head lists, counts and releases.

    Args:
        store: Where the reports are.
        vault: Where the opt-in records are.
        ledger: The path or URL of the ledger that head lists are paid from.
    """
    return HybridWork(store, vault, ledger)
