"""The ledger: the durable, append-only account of what was spent on a population. It refuses to overspend.

Each population has one account, under one relation: losses under two can't be added exactly (docs/decisions/0020). In a
ledger where an older version opened both, the first is the population's and nothing more is spent from the other.

**Spend, then read.** :meth:`Ledger.spend` returns once the entry would survive a power cut, and only then may
data be read. A crash in between loses budget, never privacy. Budget is never returned.

**Once.** Interrupted work is repeated, and with a key (``once``) it pays once, even where processes race. It must then
draw the same noise each time, or one payment would buy two results; only
:meth:`hushquery.hybrid.plan.HeadPlan.run` does.

**Periods.** The period of a spend is ``floor((now - opened) / length)``, but never before the last one that was used:
the budget of each period exists once, whatever the clock does. A clock that jumps back stays in the period it had
reached; a spend while it is ahead costs the periods it jumped over.

**Evolution policy.** Entries are read by every later version. A kind of entry is never removed and never changes its
meaning; new kinds may be added. A kind, a part of a loss or a layout that this version does not know is refused: what
is not understood can't be assumed to cost nothing.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hushquery.core.budget import Budget, Relation, finite
from hushquery.core.description import check_named, clean_text, near_name
from hushquery.core.ledger.entries import (
    Account,
    AccountTotals,
    Entry,
    Terms,
    account_name,
    loss_text,
    period_length,
    plan_text,
    time_text,
)
from hushquery.core.ledger.refusal import refusal
from hushquery.core.ledger.store import (
    GENESIS,
    LedgerStore,
    Transaction,
    canonical,
    corrupt,
    default_ledger,
    digest,
    file_marks,
)
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, BudgetError, UsageError

__all__ = ["Account", "Entry", "Ledger", "Terms", "period_length"]


_Key = tuple[str, Relation]  # of an account: the population, and the relation it is kept under


class Book:
    """The verified entries, and what they add up to."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self.entries: list[Entry] = []
        self.accounts: dict[_Key, AccountTotals] = {}
        self.relations: dict[str, Relation] = {}  # of each population's account; of two, of the one opened first
        self.once: dict[tuple[str, Relation, str], Entry] = {}

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        return self.entries[-1].hash if self.entries else GENESIS

    def add(self, entry: Entry) -> None:
        """Take in the entry that follows, or refuse one that can't be there."""
        key = (entry.population, entry.relation)
        totals = self.accounts.get(key)
        if entry.terms is not None:
            if totals is not None:
                raise corrupt(self.ledger, f"entry {entry.seq} opens an account that was open already")
            self.accounts[key] = AccountTotals(entry.terms, entry.time)
            self.relations.setdefault(*key)
        else:
            if totals is None or entry.period < totals.last_period:
                raise corrupt(self.ledger, f"entry {entry.seq} spends from no account or from a period gone by")
            totals.add(entry)
            if entry.once is not None:
                self.once.setdefault((*key, entry.once), entry)
        self.entries.append(entry)


class Ledger:
    """The budget of every population, and everything that was ever spent of it; made by :meth:`open`.
    Several processes and threads may use the same store at once. The whole chain of entries is verified when the ledger
    is opened, and all that was added since before each spend.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(folder.name + "/ledger.db")
    >>> opened = ledger.open_account("readers", "add-remove", Budget(1, 0))
    >>> entry = ledger.spend("readers", "add-remove", Loss(pure=("3/4",)), what="top queries of May")
    >>> entry.seq, ledger.account("readers", "add-remove").remaining_epsilon
    (2, 0.25)
    >>> folder.cleanup()
    """

    def __init__(self, store: LedgerStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._book = Book(store.name)

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | None = None,
        create: bool = True,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Ledger:
        """Open the ledger at a path (SQLite) or URL (``sqlite:///...``, ``postgresql://...``) and verify it; by default
        the one of this person on this machine (:func:`~hushquery.core.ledger.store.default_ledger`).
        Without ``create`` a missing ledger is an ``AccountMissing``. A password in a URL never appears in a message.
        """
        ledger = cls(LedgerStore.open(default_ledger() if where is None else where, create=create), clock)
        with ledger._store.read() as transaction:
            ledger._catch_up(transaction)
            transaction.integrity()
        return ledger

    @property
    def name(self) -> str:
        """Where the ledger is; never with a password."""
        return self._store.name

    @property
    def head(self) -> str:
        """``COUNT:HASH`` of the last entry seen. Note it elsewhere: then :meth:`check` knows an old copy."""
        return f"{len(self._book.entries)}:{self._book.head}"

    def open_account(
        self,
        population: str,
        relation: Relation | str,
        budget: Budget,
        period: str | None = None,
        lifetime: Budget | None = None,
        *,
        new_population: bool = False,
    ) -> Account:
        """Open an account; its terms can't be changed later, because people were promised them.

        Args:
            population: Whose privacy it guards; always the same name for the same people.
            relation: ``add-remove`` or ``replace-one``.
            budget: For each period, or for the lifetime where ``period`` is left out.
            period: The length of a period, such as ``7d``, ``12h`` or ``30m``.
            lifetime: With a period: what all periods together may spend.
            new_population: Confirms that these are other people than those of an account with nearly the same name.
        """
        key = _key(population, relation)
        terms = Terms(budget, period, lifetime)
        if any(cap is not None and not cap.epsilon and not cap.delta for cap in (budget, lifetime)):
            raise UsageError(
                "an account of epsilon 0 and delta 0 could never spend anything",
                why="and its budget can't be changed later",
                fix="Use epsilon > 0, often 0.1 to 4",
            )
        with self._lock:
            with self._store.write() as transaction:
                self._catch_up(transaction)
                if key in self._book.accounts:
                    raise BudgetError(
                        f"The account {account_name(*key)} exists already",
                        why=f"It may spend {self._book.accounts[key].terms}, and that can't be changed",
                        fix="Spend from it, or name another population if these are other people",
                    )
                self._check_new(key, (), new_population=new_population)
                now = self._now()
                row = self._row(key, "open", "account opened", now, canonical(terms.to_json()))
                entry = Entry.from_row(row, self.name)
                transaction.append([row])
            self._book.add(entry)
            return self._account(key, now)

    def spend(
        self,
        population: str,
        relation: Relation | str,
        loss: Loss,
        *,
        what: str,
        plan: str = "",
        create_with: Budget | None = None,
        new_population: bool = False,
        once: str | None = None,
        files: Iterable[str | os.PathLike[str]] = (),
    ) -> Entry:
        """Record a loss, durably, or refuse it and record nothing. Only after this returned may the data be read.

        Args:
            population: Whose privacy is spent.
            relation: The relation the loss is stated under.
            loss: What it costs.
            what: What will be released, in words.
            plan: The plan it comes from, such as its hash.
            create_with: A lifetime budget to open a missing account with; then the entry is ``created``: tell the user.
            new_population: Confirms that these are other people than those of an account with nearly the same name, or
                of one that was charged for the same file.
            once: A key. If the account has spent under it before, nothing is spent and that entry is returned; what
                is released then must be the same, to the bit.
            files: What will be read; noted in the private part of the ledger, for :meth:`other_names`.

        Raises:
            BudgetRefused: It would exceed a budget.
            BudgetError: The account is under the other relation, its name is nearly another's or its file was charged
                to another, or another loss was spent under the key.
            UsageError: A new account's name is a placeholder.
            AccountMissing: There is no such account, and no ``create_with``.
        """
        key = _key(population, relation)
        what = clean_text(what, "what is released")
        once = None if once is None else clean_text(once, "the key")
        plan = plan_text(plan, once)
        data = loss_text(loss, key[1])
        marks = file_marks(files)
        ASKED.append((self, len(self._book.entries), key))
        with self._lock:
            with self._store.write() as transaction:
                self._catch_up(transaction)
                if once is not None and (paid := self._book.once.get((*key, once))):
                    return _same_price(paid, loss)
                self._check_relation(key)
                now = self._now()
                rows: list[dict[str, Any]] = []
                totals = self._book.accounts.get(key)
                if totals is None:
                    if create_with is None:
                        raise _no_account(key)
                    self._check_new(key, _charged(transaction, key[0], marks), new_population=new_population)
                    totals = AccountTotals(Terms(create_with), now)
                    terms = canonical(totals.terms.to_json())
                    rows.append(self._row(key, "open", "account opened by its first spend", now, terms))
                period = totals.period_at(now)
                over = totals.exceeded(period, loss)
                if over is None:
                    rows.append(self._row(key, "spend", what, now, data, plan, period, rows))
                    # Read back before it is written: an entry that can't be read would close the ledger.
                    entries = [Entry.from_row(row, self.name) for row in rows]
                    transaction.append(rows)
                    transaction.add_files(key[0], marks)
            if over is not None:  # worded only here, where nobody waits for the store any more
                raise refusal(key, totals, period, loss, *over)
            for entry in entries:
                self._book.add(entry)
            return replace(entries[-1], created=len(entries) > 1)

    def files(self) -> list[tuple[str, str]]:
        """Return every population with the files that it was charged for. Private: never part of a release."""
        with self._store.read() as transaction:
            return [(population, path) for population, path, _ in transaction.files()]

    def other_names(self, population: str, files: Iterable[str | os.PathLike[str]]) -> list[str]:
        """Return the other populations that were charged for one of these files, known by its path or its inode."""
        name, marks = clean_text(population, "the population"), file_marks(files)
        with self._store.read() as transaction:
            return _charged(transaction, name, marks)

    def check_new(
        self,
        population: str,
        relation: Relation | str,
        files: Iterable[str | os.PathLike[str]] = (),
        *,
        new_population: bool = False,
    ) -> None:
        """Refuse what :meth:`spend` would of a population that has no account yet: a placeholder for a name, nearly
        the name of another, or files that were charged to another. Nothing is spent, and a known name always passes.
        """
        key, marks = _key(population, relation), file_marks(files)
        with self._lock, self._store.read() as transaction:
            self._catch_up(transaction)
            if key not in self._book.accounts:
                self._check_new(key, _charged(transaction, key[0], marks), new_population=new_population)

    def near(self, population: str) -> str | None:
        """Return the population that a new name is nearly the same as, if there is one; None for a known name."""
        name = clean_text(population, "the population")
        with self._lock:
            self._refresh()
            return self._near(name)

    def account(self, population: str, relation: Relation | str) -> Account:
        """Return one account as it stands now."""
        key = _key(population, relation)
        with self._lock:
            self._refresh()
            if key not in self._book.accounts:
                raise _no_account(key)
            return self._account(key, self._now())

    def accounts(self, population: str | None = None) -> list[Account]:
        """Return all accounts (of one population) as they stand now, sorted by name."""
        wanted = None if population is None else clean_text(population, "the population")
        with self._lock:
            self._refresh()
            now = self._now()
            return [self._account(key, now) for key in sorted(self._book.accounts) if wanted in (None, key[0])]

    def history(self, population: str | None = None) -> list[Entry]:
        """Return all entries (of one population), oldest first."""
        wanted = None if population is None else clean_text(population, "the population")
        with self._lock:
            self._refresh()
            return [entry for entry in self._book.entries if wanted in (None, entry.population)]

    def over_time(self, population: str | None = None) -> list[dict[str, Any]]:
        """Tabulate what each account had spent after each of its entries; None where no epsilon holds at its delta."""
        book, rows = Book(self.name), []
        for entry in self.history(population):
            book.add(entry)
            totals = book.accounts[entry.population, entry.relation]
            budget = totals.terms.budget
            rows.append(
                {
                    "time": time_text(entry.time),
                    "account": f"{entry.population} ({entry.relation.value})",
                    "period": entry.period,
                    "what": entry.what,
                    "spent_epsilon": finite(totals.spent(entry.period).epsilon(budget.delta)),
                    "budget_epsilon": float(budget.epsilon),
                }
            )
        return rows

    def check(self, expect_head: str | None = None) -> str:
        """Verify everything again from the first entry, and return the head. ``expect_head`` (``COUNT:HASH``), noted
        earlier, must still be part of the chain: an older copy, or a chain that was written anew, is refused.
        """
        count, noted = _read_head(f"0:{GENESIS}" if expect_head is None else expect_head)
        with self._lock:
            book = Book(self.name)
            with self._store.read() as transaction:
                for row in transaction.rows_after(0, GENESIS):
                    book.add(Entry.from_row(row, self.name))
                transaction.integrity()
            known = len(self._book.entries)
            for number, mark in ((known, self._book.head), (count, noted)):
                if number > len(book.entries):
                    why = f"it has {len(book.entries)} entries and once had {number}: this is an old copy"
                    raise corrupt(self.name, why)
                if mark != (book.entries[number - 1].hash if number else GENESIS):
                    raise corrupt(self.name, f"entry {number} is not the one that was noted: it was written anew")
            for key, totals in book.accounts.items():
                if totals.overspent():
                    raise corrupt(self.name, f"the account {account_name(*key)} spent more than its budget")
            self._book = book
            return self.head

    def __repr__(self) -> str:
        accounts, entries = len(self._book.accounts), len(self._book.entries)
        return f"<Ledger {self.name}: {accounts} accounts, {entries} entries, head {self.head[:20]}...>"

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        shown = {"name": self.name, "accounts": self.accounts(), "entries": self.history()}
        return render("notebook/ledger.html", account_name=account_name, **shown)

    def _catch_up(self, transaction: Transaction) -> None:
        """Verify and take in what was added since the last look, by this process or another."""
        for row in transaction.rows_after(len(self._book.entries), self._book.head):
            self._book.add(Entry.from_row(row, self.name))

    def _refresh(self) -> None:
        with self._store.read() as transaction:
            self._catch_up(transaction)

    def _check_relation(self, key: _Key) -> None:
        """Refuse a second relation: it would be a second budget for the same people."""
        kept = self._book.relations.get(key[0], key[1])
        if kept is not key[1]:
            raise BudgetError(
                f'The account of "{key[0]}" is kept under {kept.value}, not {key[1].value}. Nothing was spent',
                why="A population has one budget, and losses under two relations can't be added up",
                fix=f"State the loss under {kept.value}, or name another population if these are other people",
            )

    def _check_new(self, key: _Key, charged: Sequence[str], *, new_population: bool) -> None:
        """Refuse a second account of a population: under another relation, under nearly the same name, or for the same
        files, which were ``charged`` to other names before. Refuse a placeholder for a name too.
        """
        self._check_relation(key)
        check_named(key[0])
        near = None if new_population else self._near(key[0])
        if near is None and (new_population or not charged):
            return
        known = near or charged[0]
        what = f'There is no population "{key[0]}" yet, but there is "{near}"'
        if near is None:
            others = ", ".join(f'"{name}"' for name in charged)
            what = f'A file of the new population "{key[0]}" was charged to {others} before (the same path or inode)'
        raise BudgetError(
            f"{what}. Nothing was spent",
            why="A second name for the same people would give them a second budget",
            fix=f'Use the name "{known}". If these are other people, confirm it with --new-population, or '
            "new_population=True",
        )

    def _near(self, population: str) -> str | None:
        known = {name for name, _ in self._book.accounts}
        return None if population in known else near_name(population, sorted(known))

    def _now(self) -> datetime:
        now = self._clock()
        if now.tzinfo is None:
            raise UsageError("the clock gives a time without a time zone", fix="Use datetime.now(UTC)")
        return now.astimezone(UTC)

    def _row(
        self,
        key: _Key,
        kind: str,
        what: str,
        now: datetime,
        data: str,
        plan: str = "",
        period: int = 0,
        before: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """Make the row that follows the last entry, or the rows ``before`` that are about to."""
        row: dict[str, Any] = {"seq": len(self._book.entries) + len(before) + 1, "kind": kind, "population": key[0]}
        row |= {"relation": key[1].value, "what": what, "plan": plan, "period": period, "time": time_text(now)}
        row |= {"data": data, "prev_hash": before[-1]["hash"] if before else self._book.head}
        return {**row, "hash": digest(row)}

    def _account(self, key: _Key, now: datetime) -> Account:
        totals = self._book.accounts[key]
        period = totals.period_at(now)
        return Account(*key, totals.terms, totals.opened, period, totals.spent(period), totals.ever.total)


#: The last spends that this process asked for: of which ledger, after how many entries, from which account.
ASKED: deque[tuple[Ledger, int, _Key]] = deque(maxlen=64)


def spent_here() -> list[tuple[Ledger, Entry]]:
    """Return what the ledgers recorded of the spends that this process asked for, also of one that was interrupted."""
    found: dict[tuple[str, int], tuple[Ledger, Entry]] = {}
    for ledger, known, key in ASKED:
        for entry in ledger.history(key[0]):
            if entry.seq > known and entry.loss is not None and entry.relation is key[1]:
                found.setdefault((ledger.name, entry.seq), (ledger, entry))
    return list(found.values())


def _key(population: str, relation: Relation | str) -> _Key:
    return clean_text(population, "the population"), Relation.of(str(relation))


def _charged(transaction: Transaction, population: str, marks: Mapping[str, str]) -> list[str]:
    """Return the other populations that were charged for one of these files."""
    inodes, known = set(marks.values()), transaction.files() if marks else []
    return sorted({name for name, path, inode in known if name != population and (path in marks or inode in inodes)})


def _same_price(paid: Entry, loss: Loss) -> Entry:
    if paid.loss != loss:
        raise BudgetError(
            "This was paid for before at another price. Nothing was spent",
            why=f"Entry {paid.seq} of the ledger has the same key and another loss",
            fix="Finish it with the settings and the version of hushquery that began it",
        )
    return paid


def _no_account(key: _Key) -> AccountMissing:
    return AccountMissing(
        f"There is no account {account_name(*key)}",
        why="Nobody has decided yet what may be spent on these people",
        fix="Open it with `hushquery budget open`, or allow the first spend to create it",
    )


def _read_head(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"([0-9]{1,15}):([0-9a-f]{64})", text.strip())
    if not match:
        raise UsageError("the head to expect can't be read", fix="Use COUNT:HASH as `hushquery budget check` prints it")
    return int(match[1]), match[2]
