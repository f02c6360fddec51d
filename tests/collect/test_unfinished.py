"""Moves that are refused, and opt-in phases that nobody finished: visible, in nobody's way, and gone in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from collect.commands import read, run
from collect.helpers import SEARCHES, Clock, Crash, FakeHead, FakeWork, running, settings_for
from collect.houses import House
from collect.test_hybrid_work import open_accounts
from collect.test_records import give
from hushquery.collect.collector import Collector
from hushquery.collect.epochs.epochs import EXPIRED, HEAD_PUBLISHED, OPTIN_OPEN, Epoch, epochs_of
from hushquery.collect.epochs.phases import Phases
from hushquery.collect.http.admin import metrics
from hushquery.collect.store.schema import RECORD
from hushquery.collect.store.vault import Vault
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import AccountMissing, BudgetRefused, DataError, NotReady, UsageError
from hushquery.task import Task

WEEK = 7 * 86400
ONCE = SEARCHES.replace('period = "7d"\n', "")
TASK = Task.loads(SEARCHES)


def records(house: House) -> int:
    with house.store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(RECORD)).scalar_one())


def tick(house: House) -> None:
    house.phases.tick({house.number: house.task})


@pytest.mark.parametrize(("text", "ends"), [(SEARCHES, "period"), (ONCE, "retention")])
def test_an_opt_in_that_nobody_finished_is_destroyed_by_time(
    store_url: str, folder: Path, clock: Clock, text: str, ends: str
) -> None:
    house = House(store_url, folder, clock, text)
    house.work.fail_at = "publish_head"
    with pytest.raises(Crash):  # it had begun, and died
        house.advance()
    over = house.epoch().since + house.task.collect.retention if ends == "retention" else (house.period + 1) * WEEK
    if ends == "retention":  # without periods only time's end moves it; the crashed move would be resumed before
        house.work.fail_at = "publish_head"
    clock.now = over - 1.0
    assert records(house) == 1
    assert list((folder / "keys").iterdir())
    clock.now = float(over)
    tick(house)
    assert (house.epoch().phase, house.epoch().moving, house.epoch().scrubbed) == (EXPIRED, None, True)
    assert records(house) == 0
    assert not list((folder / "keys").iterdir())
    assert house.work.calls == ["publish_head"]  # nothing more was computed
    assert house.send(1) == ["phase-over"]
    with pytest.raises(UsageError, match="destroyed"):
        house.advance(HEAD_PUBLISHED)
    clock.now += house.task.collect.retention + 1
    tick(house)
    assert house.epoch().forgotten
    house.store.close()


def test_a_crash_before_the_destruction_is_made_good(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(store_url, folder, clock, SEARCHES)
    clock.now = (house.period + 1.0) * WEEK

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Vault, "destroy", die)
        with pytest.raises(Crash):
            tick(house)
    assert house.epoch().phase == EXPIRED
    assert records(house) == 1
    tick(house)
    assert records(house) == 0
    assert not list((folder / "keys").iterdir())
    house.store.close()


def test_a_key_that_is_elsewhere_is_not_taken_for_destroyed(store_url: str, folder: Path, clock: Clock) -> None:
    """Who moves an epoch from another folder, or on another machine, can't destroy the key that the records have."""
    house = House(store_url, folder, clock, SEARCHES)
    (key,) = (folder / "keys").iterdir()
    secret = key.read_bytes()
    clock.now = (house.period + 1.0) * WEEK
    lost = Phases(house.store, house.work, Vault(house.store, folder / "wrong"), clock=clock)
    with pytest.raises(DataError, match="not there, so it can't be destroyed"):
        lost.advance(house.task, house.number, house.period, HEAD_PUBLISHED)
    (trouble,) = lost.tick({house.number: house.task})
    assert isinstance(trouble, DataError)
    assert (records(house), house.epoch().phase, house.epoch().scrubbed) == (1, EXPIRED, False)
    assert key.read_bytes() == secret
    tick(house)  # by whoever has the key
    assert (records(house), house.epoch().scrubbed) == (0, True)
    assert not key.exists()
    assert lost.tick({house.number: house.task}) == []
    house.store.close()


def test_who_asks_again_finishes_what_could_not_be_destroyed(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move was made and said "try again", because a log was in use: to try again is to ask for the same phase."""
    house = House(store_url, folder, clock, SEARCHES)

    def busy(*_: object) -> None:
        raise NotReady("the write-ahead log is in use and could not be emptied", fix="Try again")

    with monkeypatch.context() as patch:
        patch.setattr(house.store, "wipe_traces", busy)
        with pytest.raises(NotReady, match="in use"):
            house.advance(HEAD_PUBLISHED)
        with pytest.raises(NotReady, match="in use"):  # and not a success, as long as it is so
            house.advance(HEAD_PUBLISHED)
    assert house.epoch().phase == HEAD_PUBLISHED
    assert list((folder / "keys").iterdir())
    assert house.advance(HEAD_PUBLISHED).phase == HEAD_PUBLISHED
    assert not list((folder / "keys").iterdir())
    assert house.work.calls == ["publish_head"]
    house.store.close()


@pytest.mark.parametrize("dies", ["write", "wipe_traces"])
def test_a_destruction_that_died_half_way_is_finished(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    house = House(store_url, folder, clock, SEARCHES)
    (key,) = (folder / "keys").iterdir()
    secret, epoch = key.read_bytes(), house.epoch()

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(house.store, dies, die)
        with pytest.raises(Crash):
            house.vault.destroy(epoch)
    assert secret[4:] not in key.read_bytes()  # the key went first
    house.vault.destroy(epoch)
    assert (records(house), key.exists()) == (0, False)
    house.vault.destroy(epoch)
    house.store.close()


def test_an_unexpected_failure_is_told_without_its_text(store_url: str, folder: Path, clock: Clock) -> None:
    class Broken:
        def publish_head(self, _: Epoch) -> None:
            raise ZeroDivisionError("weather leeds")

    house = House(store_url, folder, clock, SEARCHES, Broken())
    clock.now = (house.period + 1) * WEEK - 1.0
    (trouble,) = house.phases.tick({house.number: house.task})  # and the watch goes on
    assert trouble.why == "ZeroDivisionError"
    assert "ZeroDivisionError" in str(house.epoch().trouble)
    assert "weather" not in str(house.epoch().trouble)
    house.store.close()


@pytest.mark.parametrize("listed", [[], [["\ud800", ""]], [["a", ""], ["a", ""]]], ids=["empty", "broken", "double"])
def test_a_list_that_nobody_can_use_is_drawn_once(store_url: str, folder: Path, clock: Clock, listed: Any) -> None:
    """What the noise left is the outcome: to draw again until it looks better would cost again."""

    class Unlucky(FakeWork):
        def publish_head(self, epoch: Epoch) -> FakeHead:
            super().publish_head(epoch)
            return FakeHead(listed, {"users": 1})

    house = House(store_url, folder, clock, SEARCHES)
    work = Unlucky(house.store, house.vault)
    house.phases._work = work
    moved = house.advance(HEAD_PUBLISHED)
    assert (moved.phase, moved.moving, moved.head, moved.optin) == (EXPIRED, None, None, {"users": 1})
    assert moved.trouble is not None
    assert records(house) == 0
    assert not list((folder / "keys").iterdir())
    clock.now += 3600
    tick(house)
    with pytest.raises(UsageError, match="destroyed"):
        house.advance(HEAD_PUBLISHED)
    assert work.calls == ["publish_head"]
    assert house.send(1) == ["phase-over"]
    house.store.close()


def test_whoever_asks_by_hand_after_the_end_destroys_too(store_url: str, folder: Path, clock: Clock) -> None:
    house = House(store_url, folder, clock, SEARCHES)
    clock.now = (house.period + 1.0) * WEEK
    with pytest.raises(UsageError, match="destroyed"):
        house.advance(HEAD_PUBLISHED)
    assert (house.epoch().phase, records(house), house.work.calls) == (EXPIRED, 0, [])
    house.store.close()


def look(collector: Collector, number: int) -> Epoch:
    return next(one for one in epochs_of(collector.store, TASK, 1) if one.number == number)


def test_a_refused_budget_is_told_and_keeps_nobody_else_waiting(store_url: str, folder: Path, clock: Clock) -> None:
    clock.now = int(clock.now) // WEEK * WEEK + 1.0
    period = TASK.period_at(clock())
    ledger = Ledger.open(folder / "ledger.db")
    ledger.open_account("browser users", "replace-one", Budget("1/10", 0))
    ledger.open_account("browser users who opted in", "replace-one", Budget(4, "1e-5"))
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        token = collector.tokens.new(1)
        assert give(client, token).status_code == 201
        with pytest.raises(BudgetRefused):
            collector.phases.advance(TASK, 1, period)
        stuck = look(collector, period)
        assert (stuck.phase, stuck.moving) == (OPTIN_OPEN, "publish_head")
        assert list((folder / "keys").iterdir())  # the records are still there to be used
        told = run("status", "--store", store_url)
        assert "publish_head has begun" in told
        assert "Insufficient budget" in told
        assert "requested epsilon 4" in told
        assert "hushquery budget open" in told  # what to do
        (task,) = read("status", "--store", store_url)["tasks"]
        assert task["epochs"][0]["trouble"]["at"] == int(clock.now)
        assert f'hushquery_epoch_trouble{{task="{TASK.id}",epoch="{period}"}} 1' in metrics(collector.store)
        assert give(client, token).status_code == 410
        # Nothing of it is told to clients, and nothing of what was given is in it.
        assert "trouble" not in client.get(f"/v1/tasks/{TASK.id}").text
        # Time tries it again, but not at every look.
        clock.now += 30
        assert collector.phases.tick({1: TASK}) == []
        clock.now += 31
        (again,) = collector.phases.tick({1: TASK})
        assert isinstance(again, BudgetRefused)
        # The next epoch takes what is given to it.
        clock.now = (period + 1.0) * WEEK + 1
        collector.phases.tick({1: TASK})
        collector.cache.refresh()
        assert give(client, token).status_code == 201
        old, new = look(collector, period), look(collector, period + 1)
        assert (old.phase, new.phase, new.trouble) == (EXPIRED, OPTIN_OPEN, None)
        assert old.trouble is not None
        assert f'hushquery_epoch_trouble{{task="{TASK.id}",epoch="{period}"}} 0' in metrics(collector.store)
    assert [entry.kind for entry in ledger.history()] == ["open", "open"]  # nothing was spent


@pytest.mark.filterwarnings("ignore:2 records per user")
def test_a_missing_account_is_told_and_the_move_resumes_once_it_is_there(
    store_url: str, folder: Path, clock: Clock
) -> None:
    """A task with periods does not open its accounts itself: they would end with its first epoch."""
    clock.now = int(clock.now) // WEEK * WEEK + 1.0
    period = TASK.period_at(clock())
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        assert give(client, collector.tokens.new(1)).status_code == 201
        with pytest.raises(AccountMissing):
            collector.phases.advance(TASK, 1, period)
        assert "There is no account" in str(look(collector, period).trouble)
        open_accounts(folder, epochs=12)
        clock.now += 61
        collector.phases.tick({1: TASK})
        # One person's record does not pass the threshold: both have paid, and the list is empty.
        assert look(collector, period).phase == EXPIRED
        assert "There is no account" not in str(look(collector, period).trouble)
    spends = [entry for entry in Ledger.open(folder / "ledger.db").history() if entry.kind == "spend"]
    (once,) = {entry.once for entry in spends}
    assert len(spends) == 2
    assert str(once).startswith(f"collect:{TASK.id}:{period}:publish_head:")


def test_what_was_given_can_be_taken_back_while_the_move_is_refused(store_url: str, folder: Path, clock: Clock) -> None:
    clock.now = int(clock.now) // WEEK * WEEK + 1.0
    period = TASK.period_at(clock())
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        token = collector.tokens.new(1)
        assert give(client, token).status_code == 201
        with pytest.raises(AccountMissing):
            collector.phases.advance(TASK, 1, period)
        assert look(collector, period).moving == "publish_head"
        told = run("tokens", "revoke", token, "--forget", "--store", store_url)
        assert told == "revoked, and 1 of its uploads deleted\n"
        # Nobody's records are left: the phase is open again, and nothing is paid for.
        open_accounts(folder, epochs=12)
        clock.now += 61
        assert collector.phases.tick({1: TASK}) == []
        assert (look(collector, period).moving, look(collector, period).trouble) == (None, None)
        collector.cache.refresh()
        assert give(client, collector.tokens.new(1)).status_code == 201
    assert [entry.kind for entry in Ledger.open(folder / "ledger.db").history()] == ["open", "open"]
