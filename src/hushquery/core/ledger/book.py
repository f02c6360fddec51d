"""What the entries of a ledger add up to: the sum of each account's losses, by period and ever."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from hushquery.core.budget import Budget
from hushquery.core.ledger.entries import Entry, Terms, period_length
from hushquery.core.ledger.store import GENESIS, corrupt
from hushquery.core.loss import Loss
from hushquery.core.unit import Relation

__all__ = ["Book", "Tally"]


class _Sum:
    """A growing sum of losses; added in pairs, because one by one is quadratic in their number."""

    def __init__(self) -> None:
        self._parts: list[Loss] = []

    def add(self, loss: Loss) -> None:
        self._parts.append(loss)

    @property
    def total(self) -> Loss:
        while len(self._parts) > 1:
            pairs = zip(self._parts[::2], self._parts[1::2], strict=False)
            self._parts = [a + b for a, b in pairs] + self._parts[len(self._parts) // 2 * 2 :]
        return self._parts[0] if self._parts else Loss()


class Tally:
    """What the entries of one account add up to."""

    def __init__(self, terms: Terms, opened: datetime) -> None:
        self.terms = terms
        self.opened = opened
        self.last_period = 0
        self.ever = _Sum()
        self.periods: dict[int, _Sum] = {}

    def add(self, entry: Entry) -> None:
        """Add a spend."""
        self.last_period = entry.period
        for part in (self.ever, self.periods.setdefault(entry.period, _Sum())):
            part.add(cast(Loss, entry.loss))

    def period_at(self, now: datetime) -> int:
        """Give the period a spend belongs to: never one before the last that was used."""
        if self.terms.period is None:
            return 0
        return max(self.last_period, (now - self.opened) // period_length(self.terms.period))

    def spent(self, period: int) -> Loss:
        """Give what was spent in a period."""
        return self.periods[period].total if period in self.periods else Loss()

    def exceeded(self, period: int, loss: Loss) -> tuple[Budget, Loss] | None:
        """Give the budget that ``loss`` would exceed and what was spent of it, if there is one."""
        caps = [(self.terms.budget, self.spent(period))]
        if self.terms.lifetime is not None:
            caps.append((self.terms.lifetime, self.ever.total))
        return next((cap for cap in caps if not _fits(cap[1] + loss, cap[0])), None)

    def overspent(self) -> bool:
        """Whether a budget is exceeded already, which no spend allows: two ledgers were joined, or worse."""
        spent = [(self.terms.budget, part.total) for part in self.periods.values()]
        if self.terms.lifetime is not None:
            spent.append((self.terms.lifetime, self.ever.total))
        return not all(_fits(total, budget) for budget, total in spent)


class Book:
    """The verified entries, and what they add up to."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self.entries: list[Entry] = []
        self.accounts: dict[tuple[str, Relation], Tally] = {}
        self.relations: dict[str, Relation] = {}  # of each population's account; of two, of the one opened first
        self.once: dict[tuple[str, Relation, str], Entry] = {}

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        return self.entries[-1].hash if self.entries else GENESIS

    def add(self, entry: Entry) -> None:
        """Take in the entry that follows, or refuse one that can't be there."""
        key = (entry.population, entry.relation)
        tally = self.accounts.get(key)
        if entry.terms is not None:
            if tally is not None:
                raise corrupt(self.ledger, f"entry {entry.seq} opens an account that was open already")
            self.accounts[key] = Tally(entry.terms, entry.time)
            self.relations.setdefault(*key)
        else:
            if tally is None or entry.period < tally.last_period:
                raise corrupt(self.ledger, f"entry {entry.seq} spends from no account or from a period gone by")
            tally.add(entry)
            if entry.once is not None:
                self.once.setdefault((*key, entry.once), entry)
        self.entries.append(entry)


def _fits(loss: Loss, budget: Budget) -> bool:
    return loss.fits(budget.epsilon, budget.delta)
