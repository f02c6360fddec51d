"""Spending under a key: at most once for each account, whatever is asked how often, and readable by every version."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushquery import statistics
from hushquery.core.budget import Budget
from hushquery.core.ledger.entries import Entry
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.ledger.store import digest
from hushquery.core.loss import Loss
from hushquery.errors import BudgetError, BudgetRefused, LedgerCorrupt, UsageError
from ledger.workers import READERS, sql

THIRD = Loss(pure=("1/3",))
keys = st.none() | st.sampled_from(["a", "b", " a ", "e\u0301", "\u00e9"])
spends = st.lists(st.tuples(st.sampled_from(["readers", "authors"]), keys, st.booleans()), max_size=12)


def test_the_same_key_pays_once(store_url: str) -> None:
    ledger = Ledger.open(store_url)
    first = ledger.spend(*READERS, THIRD, what="list", plan="abc", create_with=Budget(1, 0), once="epoch 1")
    assert (first.created, first.once) == (True, "epoch 1")
    head = ledger.head
    for reopened in (ledger, Ledger.open(store_url)):
        again = reopened.spend(*READERS, THIRD, what="other words", create_with=Budget(5, 0), once=" epoch 1 ")
        assert again == first
        assert not again.created
        assert reopened.check() == head
    # Another account, another key, no key: each is a spend of its own.
    assert ledger.spend("authors", "add-remove", THIRD, what="x", create_with=Budget(1, 0), once="epoch 1").seq == 4
    assert ledger.spend(*READERS, THIRD, what="x", once="epoch 2").seq == 5
    assert ledger.spend(*READERS, THIRD, what="x").once is None
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, THIRD, what="x", once="epoch 3")
    assert ledger.spend(*READERS, THIRD, what="x", once="epoch 1") == first  # paid for, so not refused


def test_a_refused_spend_leaves_its_key_free(store_url: str) -> None:
    ledger = Ledger.open(store_url)
    ledger.open_account(*READERS, Budget("1/4", 0))
    with pytest.raises(BudgetRefused):
        ledger.spend(*READERS, THIRD, what="x", once="k")
    assert ledger.spend(*READERS, Loss(pure=("1/4",)), what="x", once="k").seq == 2


def test_another_price_under_the_key_is_refused(store_url: str) -> None:
    ledger = Ledger.open(store_url)
    ledger.spend(*READERS, THIRD, what="x", create_with=Budget(1, 0), once="k")
    head = ledger.head
    with pytest.raises(BudgetError, match="another price"):
        ledger.spend(*READERS, Loss(pure=("1/4",)), what="x", once="k")
    assert ledger.check() == head


def test_no_plan_runs_twice_for_one_payment(tmp_path: Path) -> None:
    """The attack: a ledger opened with a key, five plans, one payment, five draws of noise. There is no such ledger."""
    with pytest.raises(TypeError, match="once"):
        Ledger.open(tmp_path / "ledger.db", once="k")  # type: ignore[call-arg]
    people = {"user": [1, 2, 3]}
    with pytest.raises(TypeError, match="once"):
        statistics.plan_count(people, unit="user", epsilon=1, population="readers").run(
            tmp_path / "ledger.db", once="k"
        )  # type: ignore[call-arg]


@pytest.mark.parametrize("bad", ["", "  ", "a\nb", "a\0b"])
def test_bad_keys_are_refused(store_url: str, bad: str) -> None:
    ledger = Ledger.open(store_url)
    with pytest.raises(UsageError):
        ledger.spend(*READERS, THIRD, what="x", create_with=Budget(1, 0), once=bad)
    assert ledger.history() == []


@pytest.mark.parametrize("plan", ["once: k", "abc\nonce: k\ndef", "once:k"])
def test_a_plan_can_not_pretend_to_be_a_key(store_url: str, plan: str) -> None:
    ledger = Ledger.open(store_url)
    with pytest.raises(UsageError, match="plan"):
        ledger.spend(*READERS, THIRD, what="x", plan=plan, create_with=Budget(1, 0))


def test_the_key_is_under_the_hash(store_url: str) -> None:
    ledger = Ledger.open(store_url)
    ledger.spend(*READERS, THIRD, what="x", create_with=Budget(1, 0), once="k")
    sql(store_url, "UPDATE hushquery_ledger_entry SET plan = ? WHERE seq = 2", ["once: other"])
    with pytest.raises(LedgerCorrupt, match="changed"):
        Ledger.open(store_url)


def test_entries_without_keys_are_written_as_before(tmp_path: Path) -> None:
    """The row of a spend is, byte for byte, what the version before keys wrote: its hash did not change."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    entry = ledger.spend(*READERS, THIRD, what="x", plan="abc", create_with=Budget(1, 0))
    assert (entry.plan, entry.once) == ("abc", None)
    row = {
        **{name: value for name, value in entry.to_json().items() if name not in ("terms", "loss", "hash")},
        "data": json.dumps(THIRD.to_json(), sort_keys=True, separators=(",", ":")),
    }
    assert digest(row) == entry.hash
    assert Entry.from_row({**row, "hash": entry.hash}, "x") == entry


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=spends)
def test_each_account_pays_for_a_key_once(tmp_path: Path, asked: list[tuple[str, str | None, bool]]) -> None:
    path = tmp_path / f"{uuid4().hex}.db"
    ledger = Ledger.open(path)
    paid: dict[tuple[str, str], int] = {}
    spent = {"readers": 0, "authors": 0}
    for population, once, reopen in asked:
        ledger = Ledger.open(path) if reopen else ledger
        entry = ledger.spend(population, "add-remove", THIRD, what="x", create_with=Budget(100, 0), once=once)
        name = {"e\u0301": "\u00e9"}.get(once or "", (once or "").strip())
        before = paid.setdefault((population, name), entry.seq) if once else entry.seq
        assert before == entry.seq
        spent[population] += once is None
    for account in ledger.accounts():
        expected = spent[account.population] + sum(who == account.population for who, _ in paid)
        assert len(account.spent.pure) == expected
