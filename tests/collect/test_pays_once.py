"""A move that is resumed after a crash has paid already, wherever it died."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from collect.helpers import SEARCHES, Clock, Crash, FakeHead, FakeWork, running, settings_for
from collect.houses import House
from collect.test_hybrid_work import TASK, TEXT, give_many, open_accounts
from hushquery.collect.epochs.epochs import HEAD_PUBLISHED, Epoch, EpochWork
from hushquery.collect.store.schema import RECORD
from hushquery.collect.store.vault import Vault
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, BudgetRefused
from hushquery.hybrid.plan import HeadPlan, plan_head
from hushquery.hybrid.published import PublishedHead
from hushquery.noise.sampler import KeyedBits
from hushquery.task import Task

HALF = Loss(pure=("1/2",))


class SpendingWork(FakeWork):
    """A work that pays for its head lists from a real ledger, and dies at the moment a test names."""

    ledger: str
    die: str | None = None

    def publish_head(self, epoch: Epoch) -> FakeHead:
        self._die("before")
        ledger = Ledger.open(self.ledger)
        for population in ("those who opted in", "browser users"):
            ledger.spend(population, "replace-one", HALF, what="list", create_with=Budget(1, 0), once=epoch.key)
            self._die("between")
        made = super().publish_head(epoch)
        self._die("after")
        return made

    def _die(self, moment: str) -> None:
        if self.die == moment:
            self.die = None
            raise Crash


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_crash_at_any_point_pays_once(store_url: str, folder: Path, clock: Clock, moment: str) -> None:
    house = House(store_url, folder, clock, SEARCHES)
    work = SpendingWork(house.store, house.vault)
    work.ledger, work.die = str(folder / "ledger.db"), moment
    house.phases._work = work
    with pytest.raises(Crash):
        house.advance()
    assert house.advance().phase == HEAD_PUBLISHED
    ledger = Ledger.open(work.ledger)
    spends = [entry.population for entry in ledger.history() if entry.kind == "spend"]
    assert spends == ["those who opted in", "browser users"]
    assert ledger.account("browser users", "replace-one").remaining_epsilon == 0.5
    house.store.close()


def spends(folder: Path) -> int:
    return sum(entry.kind == "spend" for entry in Ledger.open(folder / "ledger.db").history())


def test_other_records_of_the_same_epoch_are_paid_for_again(
    new_store: Callable[[], str], folder: Path, clock: Clock
) -> None:
    """A store that is restored, begun anew or run beside another gathers records again: a second list is no retry."""
    open_accounts(folder, epochs=1)
    period = TASK.period_at(clock())
    with running(settings_for(new_store(), folder, TEXT), clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
        assert collector.phases.advance(TASK, 1, period).phase == HEAD_PUBLISHED
    assert spends(folder) == 2
    with running(settings_for(new_store(), folder, TEXT), clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
        with pytest.raises(BudgetRefused):
            collector.phases.advance(TASK, 1, period)
    assert spends(folder) == 2


def test_the_same_records_are_paid_for_once(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_accounts(folder, epochs=1)
    period = TASK.period_at(clock())

    def die(*_: object) -> None:
        raise Crash

    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
        with monkeypatch.context() as patch:
            patch.setattr(HeadPlan, "_draw", die)
            with pytest.raises(Crash):
                collector.phases.advance(TASK, 1, period)
        assert spends(folder) == 2
        assert collector.phases.advance(TASK, 1, period).phase == HEAD_PUBLISHED
    assert spends(folder) == 2


def test_fewer_records_are_paid_for_anew(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes back what was given after it was paid for and before a list was made of it."""
    open_accounts(folder, epochs=1)
    period = TASK.period_at(clock())

    def die(*_: object) -> None:
        raise Crash

    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
        with monkeypatch.context() as patch:
            patch.setattr(HeadPlan, "_draw", die)
            with pytest.raises(Crash):
                collector.phases.advance(TASK, 1, period)
        assert spends(folder) == 2
        assert collector.tokens.forget("7").deleted == 1
        with pytest.raises(BudgetRefused):  # there was enough for one list only
            collector.phases.advance(TASK, 1, period)


def test_nothing_is_decrypted_before_it_is_paid_for(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    period = TASK.period_at(clock())
    opened: list[int] = []

    def watched(vault: Vault, epoch: Epoch) -> Iterator[tuple[bytes, list[list[str]]]]:
        opened.append(spends(folder))
        return read(vault, epoch)

    read = Vault.records
    monkeypatch.setattr(Vault, "records", watched)
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
        with pytest.raises(AccountMissing):
            collector.phases.advance(TASK, 1, period)
        assert opened == []
        open_accounts(folder, epochs=1)
        collector.phases.advance(TASK, 1, period)
    assert opened == [2]  # both populations had paid


# ---- one payment, one noise ------------------------------------------------------------------------------------------


class Seen:
    """Every head list that was drawn, and every one but the last is lost in a crash before it is stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, crashes: int) -> None:
        self.lists: list[dict[str, Any]] = []
        publish = EpochWork.publish_head

        def watched(work: EpochWork, epoch: Epoch) -> PublishedHead:
            made = publish(work, epoch)
            self.lists.append(made.to_json())
            if len(self.lists) <= crashes:
                raise Crash
            return made

        monkeypatch.setattr(EpochWork, "publish_head", watched)


def test_five_draws_for_one_payment_are_one_list(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: whoever can make the work die between the draw and the store sees, or waits for, another noise."""
    open_accounts(folder, epochs=1)
    period = TASK.period_at(clock())
    seen = Seen(monkeypatch, crashes=4)
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
        for _ in range(4):
            with pytest.raises(Crash):
                collector.phases.advance(TASK, 1, period)
        stored = collector.phases.advance(TASK, 1, period).optin
    assert spends(folder) == 2
    assert len(seen.lists) == 5
    assert all(one == seen.lists[0] for one in seen.lists)
    assert stored == seen.lists[0]


def test_a_copy_of_store_and_keys_makes_the_same_list_again(
    folder: Path, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies everything back but the ledger, after the list was published, gets that list and no second one."""
    open_accounts(folder, epochs=1)
    period = TASK.period_at(clock())
    seen = Seen(monkeypatch, crashes=0)
    settings = settings_for(f"sqlite:///{folder}/store.db", folder, TEXT)
    with running(settings, clock) as (_, collector):
        give_many(collector, collector.cache.epochs()[0])
    shutil.copytree(folder, tmp_path / "before")
    for _ in range(2):
        with running(settings, clock) as (_, collector):
            assert collector.phases.advance(TASK, 1, period).phase == HEAD_PUBLISHED
        for file in (tmp_path / "before").rglob("*"):
            if file.is_file() and file.name != "ledger.db":
                shutil.copy(file, folder / file.relative_to(tmp_path / "before"))
    assert spends(folder) == 2
    assert seen.lists[0] == seen.lists[1]


def test_other_records_have_other_noise(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        epoch, vault = collector.cache.epochs()[0], collector.vault
        give_many(collector, epoch)
        keys = [vault.noise_key(epoch)]
        assert vault.noise_key(epoch) == keys[0]
        assert collector.tokens.forget("7").deleted == 1
        keys.append(vault.noise_key(epoch))
        # The same ids with other records in them are other records.
        with collector.store.write() as connection:
            sealed, _ = vault.seal(epoch, (8).to_bytes(16, "big"), [["maps", ""]])
            mine = RECORD.c.id == (8).to_bytes(16, "big")
            connection.execute(sa.update(RECORD).where(mine).values(ciphertext=sealed))
        keys.append(vault.noise_key(epoch))
        assert len(set(keys)) == len({KeyedBits(key).name for key in keys}) == 3


def test_other_noise_is_paid_for_again(tmp_path: Path) -> None:
    """The attack without a collector: the same name, another key for each draw."""
    rows = {"user": [f"u{n}" for n in range(40)], "query": ["news"] * 40, "url": ["https://a.example"] * 40}
    task = Task.make({**TASK.to_json(), "task": {"name": "once", "population": "readers"}})
    made, ledger = [], Ledger.open(tmp_path / "ledger.db")

    class Records:
        name = "always the same"
        noise_key = bytes(32)

        def open(self) -> Any:
            return nullcontext(rows)

    for number in (0, 0, 0, 1):
        Records.noise_key = bytes([number]) * 32
        try:
            made.append(plan_head(Records(), task).run(ledger, epoch=0).to_json())
        except BudgetRefused:
            made.append({})
    assert made[0] == made[1] == made[2] != {}
    assert made[3] == {}
