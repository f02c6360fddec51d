"""The next head list, kept or new, is proposed at exactly the cost that the ledger then charges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from collect.commands import read, run
from collect.helpers import SETTING, Clock, running, settings_for
from collect.test_hybrid_work import open_accounts
from collect.test_kept_head import TASK, TEXT, publish
from hushquery.collect.collector import Collector
from hushquery.collect.http.admin import make_admin
from hushquery.collect.overview import next_list
from hushquery.collect.store.schema import RELEASE
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import BudgetRefused, UsageError
from hushquery.hybrid.proposal import Proposal, propose
from hushquery.task import Task

WEEK = 7 * 86400


def proposal(collector: Collector, folder: Path, clock: Clock) -> Proposal:
    accounts = Ledger.open(folder / "ledger.db").accounts()
    made = next_list(collector.store, TASK, 1, now=clock(), accounts=accounts)
    assert made is not None
    return made


def release(collector: Collector, epoch: int, low: float, high: float) -> None:
    """Publish a release of which only what the list misses is of interest."""
    stated = {"epoch": epoch, "rest": (low + high) / 2, "rest_low": low, "rest_high": high}
    document = json.dumps({"manifest": {"parameters": stated}}).encode()
    with collector.store.write() as connection:
        connection.execute(sa.insert(RELEASE).values(id=f"{epoch:064x}", task=1, epoch=epoch, document=document))


def test_what_is_proposed_is_what_is_charged(store_url: str, folder: Path, clock: Clock) -> None:
    """A new list, a kept one, and a new one again: each time the loss, and what is left, to the last digit."""
    open_accounts(folder, epochs=4)
    first = TASK.period_at(clock())
    wills = []
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        for number in range(3):
            clock.now = (first + number) * WEEK + 1.0
            proposed = proposal(collector, folder, clock)
            assert proposed.epoch == first + number
            wills.append(proposed.will)
            chosen = proposed.new if proposed.will == "new" else proposed.keep
            before = len(Ledger.open(folder / "ledger.db").history())
            publish(collector, clock, first + number, number % 2)
            ledger = Ledger.open(folder / "ledger.db")
            charged = {entry.population: entry.loss for entry in ledger.history()[before:]}
            assert charged == {cost.population: cost.loss for cost in (chosen.optin, chosen.clients)}
            for cost in (chosen.optin, chosen.clients):
                account = ledger.account(cost.population, "replace-one")
                stated = cost.to_json()
                assert stated["left_epsilon"] == account.remaining_epsilon
                assert stated["left_delta"] == account.remaining_delta
    assert wills == ["new", "keep", "new"]


def test_an_account_that_is_used_up_is_foretold(store_url: str, folder: Path, clock: Clock) -> None:
    open_accounts(folder, epochs=1)
    first = TASK.period_at(clock())
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        assert proposal(collector, folder, clock).new.optin.times == 1
        publish(collector, clock, first, 0)
        after = proposal(collector, folder, clock)
        assert (after.new.optin.fits, after.keep.optin.fits, after.keep.clients.fits) == (False, False, False)
        with pytest.raises(BudgetRefused):
            publish(collector, clock, first + 1, 0)
        assert (after.begun, proposal(collector, folder, clock).begun) == (False, True)


def test_which_epoch_is_next(store_url: str, folder: Path, clock: Clock) -> None:
    open_accounts(folder, epochs=9)
    first = TASK.period_at(clock())
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        assert proposal(collector, folder, clock).epoch == first  # its opt-in phase is open
        publish(collector, clock, first, 0)
        assert (proposal(collector, folder, clock).epoch, proposal(collector, folder, clock).will) == (
            first + 1,
            "keep",
        )
        clock.now = (first + 5) * WEEK + 1.0  # nobody was there meanwhile
        assert (proposal(collector, folder, clock).epoch, proposal(collector, folder, clock).will) == (first + 5, "new")


def test_advice_follows_what_releases_say(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace("keep = 2", "keep = 3")
    task = Task.loads(text)
    monkeypatch.setattr("collect.test_kept_head.TASK", task)
    open_accounts(folder, epochs=9)
    first = task.period_at(clock())
    with running(settings_for(store_url, folder, text), clock) as (_, collector):

        def advice() -> tuple[str, str]:
            made = next_list(
                collector.store, task, 1, now=clock(), accounts=Ledger.open(folder / "ledger.db").accounts()
            )
            assert made is not None
            assert (made.to_json()["change"] is None) == (made.will == made.advice[0])
            return made.advice

        assert advice() == ("new", "no list has been published yet")
        publish(collector, clock, first, 0)
        assert advice()[0] == "keep"
        release(collector, first - 1, 0.9, 0.95)  # of the list before: says nothing of this one
        release(collector, first, 0.30, 0.40)
        assert advice()[0] == "keep"
        publish(collector, clock, first + 1, 0)
        for low, high, expected in ((0.39, 0.49, "keep"), (0.41, 0.51, "new")):
            with collector.store.write() as connection:
                connection.execute(sa.delete(RELEASE).where(RELEASE.c.epoch == first + 1))
            release(collector, first + 1, low, high)
            advised, why = advice()
            assert (advised, f"{low:.0%} to {high:.0%} of them, and 30% to 40% at first" in why) == (expected, True)
        publish(collector, clock, first + 2, 0)
        assert advice() == ("new", "the task keeps a list for 3 periods ([head] keep)")


def test_the_command_and_the_page(store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    open_accounts(folder, epochs=9)
    first = TASK.period_at(clock())
    ledger = str(folder / "ledger.db")
    where = ("--store", store_url, "--ledger", ledger)
    monkeypatch.setattr("time.time", clock)
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        publish(collector, clock, first, 0)
        admin = TestClient(make_admin(collector.store, ledger=ledger, clock=clock), base_url="http://127.0.0.1")
        assert "next head list" not in admin.get("/").text  # nothing has been released yet
        release(collector, first, 0.25, 0.35)
        text = admin.get("/").text
        data = read("next", *where)
    entries = len(Ledger.open(ledger).history())
    told = run("next", *where)
    assert data == {"task": TASK.id, **json.loads(json.dumps(proposal_of(store_url, folder, clock)))}
    assert (data["will"], data["advice"], data["missed"]["low"]) == ("keep", "keep", 0.25)
    assert data["keep"]["optin"]["delta"] == 0
    assert data["new"]["optin"]["delta"] == 1e-5
    assert data["device"] == {"answer_epsilon": 4.0, "lifetime_epsilon": 16.0, "answers_left": 3}
    assert "the task says keep, we advise keep" in told
    assert "it missed 30.0% of searches (25.0% to 35.0%)" in told
    assert "nothing if its record did not move" in told
    assert f"The next head list, of epoch {first + 1}" in text
    assert "30.00% of searches (25.00% to 35.00%)" in text
    assert "weather" not in text + told + json.dumps(data)
    assert len(Ledger.open(ledger).history()) == entries  # looking costs nothing


def proposal_of(url: str, folder: Path, clock: Clock) -> dict[str, Any]:
    from contextlib import closing

    from hushquery.collect.store.store import Store

    with closing(Store.open(url, create=False, write=False)) as store:
        accounts = Ledger.open(folder / "ledger.db").accounts()
        made = next_list(store, TASK, 1, now=clock(), accounts=accounts)
    assert made is not None
    return made.to_json()


def test_a_task_without_a_list(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock):
        pass
    with pytest.raises(UsageError, match="no head list"):
        run("next", "--store", store_url)
    with pytest.raises(UsageError, match="no head list"):
        propose(Task.loads(SETTING), 0)
