"""A ledger for the moves of epochs: a move that is resumed after a crash does not pay again.

What a crashed attempt computed was seen by nobody: only the transaction that ends a move publishes. So the attempt that
does publish needs one spend, and the one in the ledger under the move's key is it.

Looking for the key and spending are two steps. The lock of the move (:meth:`hushquery.collect.store.Store.alone`) keeps
other servers out between them. If a server loses that lock without noticing, the same move may be paid for twice: that
loses budget, never privacy.
"""

from __future__ import annotations

import os

from hushquery.errors import BudgetError
from hushquery.privacy.budget import Budget
from hushquery.privacy.ledger import Ledger
from hushquery.privacy.ledger_entries import Entry
from hushquery.privacy.loss import Loss
from hushquery.privacy.unit import Relation

__all__ = ["PaidOnce"]


class PaidOnce(Ledger):
    """The ledger of one move: each population pays once, however often it is asked.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = PaidOnce.of_move(folder.name + "/ledger.db", "collect:task:0:publish_head")
    >>> budget, loss = Budget(1, 0), Loss(pure=("3/4",))
    >>> first = ledger.spend("readers", "replace-one", loss, what="the head list", create_with=budget)
    >>> again = ledger.spend("readers", "replace-one", loss, what="the head list", create_with=budget)
    >>> first.seq == again.seq, ledger.account("readers", "replace-one").remaining_epsilon
    (True, 0.25)
    >>> folder.cleanup()
    """

    key: str = ""

    @classmethod
    def of_move(cls, where: str | os.PathLike[str], key: str, *, create: bool = True) -> PaidOnce:
        """Open the ledger for a move.

        Args:
            where: The path or URL of the ledger.
            key: The name of the move, ``Epoch.key``.
            create: Whether to make an empty ledger where there is none.
        """
        ledger = cls.open(where, create)
        assert isinstance(ledger, PaidOnce)  # noqa: S101 -- for the type checker: open makes an object of its class
        ledger.key = key
        return ledger

    def spend(
        self,
        population: str,
        relation: Relation | str,
        loss: Loss,
        *,
        what: str,
        plan: str = "",
        create_with: Budget | None = None,
    ) -> Entry:
        """Record a loss under the move's key, or give the entry of the attempt that did.

        Raises:
            BudgetError: An earlier attempt at the move paid another price: its parameters have changed since.
        """
        wanted = Relation.of(str(relation))
        for entry in self.history(population):
            if entry.kind == "spend" and entry.relation is wanted and self.key in entry.plan.splitlines():
                if entry.loss != loss:
                    raise BudgetError(
                        "an earlier attempt at this move of the epoch was paid for at another price",
                        why=f"entry {entry.seq} of the ledger {self.name} has another loss",
                        fix="Finish the move with the settings and the version of hushquery that began it",
                    )
                return entry
        noted = f"{plan}\n{self.key}".strip()
        return super().spend(population, relation, loss, what=what, plan=noted, create_with=create_with)
