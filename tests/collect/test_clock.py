"""A clock that jumps closes nothing, destroys nothing, and loses nobody's report: it waits for the operator."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from collect.commands import read, run
from collect.helpers import SEARCHES, WEEKLY, Clock, FakeWork, make_report, put, running, settings_for
from collect.test_faults import wait_for
from collect.test_records import give
from hushquery.collect.collector import Collector
from hushquery.collect.epochs.clock import Watch, confirm, read_clock, tolerance
from hushquery.collect.epochs.epochs import epochs_of, register
from hushquery.collect.epochs.phases import Phases
from hushquery.collect.http.admin import make_admin
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault
from hushquery.errors import NotReady
from hushquery.task import Task

DAY = 86400.0
WEEK = 7 * DAY
SKEW = 60.0

TASK, SEARCH = Task.loads(WEEKLY), Task.loads(SEARCHES)


@pytest.fixture
def clock() -> Clock:
    """The beginning of a period, so that it ends when a test says so."""
    made = Clock()
    made.now = made.now // WEEK * WEEK + 1.0
    return made


def tick(collector: Collector) -> None:
    assert collector.phases.tick(collector.cache.tasks) == []
    collector.cache.refresh()


def phases(collector: Collector, number: int = 1) -> list[tuple[int, str]]:
    """Where the epochs of a task stand, the first as epoch 0."""
    found = epochs_of(collector.store, collector.cache.tasks[number], number)
    return [(epoch.number - found[0].number, epoch.phase) for epoch in found]


def ready(store: Store) -> tuple[int, str]:
    answer = TestClient(make_admin(store), base_url="http://127.0.0.1").get("/readyz")
    return answer.status_code, answer.text


def stopped(store: Store) -> Any:
    with store.read() as connection:
        return read_clock(connection).stopped


@pytest.mark.parametrize("days", [8, 200])
def test_a_jump_forward_releases_nothing_and_destroys_no_key(
    store_url: str, folder: Path, clock: Clock, days: int
) -> None:
    with running(settings_for(store_url, folder, WEEKLY, SEARCHES), clock) as (client, collector):
        reports = [make_report(TASK, number, time=clock.now) for number in range(6)]
        assert [put(client, report).status_code for report in reports[:4]] == [201] * 4
        assert give(client, collector.tokens.new(2)).status_code == 201
        tick(collector)
        (key,) = (folder / "keys").iterdir()
        secret = key.read_bytes()
        clock.jump(days * DAY)
        assert put(client, reports[4]).status_code == 201  # before anybody has looked at the clock
        tick(collector)
        assert put(client, reports[5]).status_code == 201
        clock.jump(-days * DAY)
        tick(collector)
        assert (phases(collector), phases(collector, 2)) == ([(0, "reports_open")], [(0, "optin_open")])
        assert key.read_bytes() == secret
        # It waits although all looks well again, and says so.
        found = stopped(collector.store)
        assert f"forward by {days} days" in found["what"]
        assert ready(collector.store) == (
            503,
            f"no epoch moves by time: {found['what']}\n{found['why']}\n{found['fix']}\n",
        )
        confirm(collector.store, clock.now)
        tick(collector)
        assert ready(collector.store) == (200, "ready\n")
        assert phases(collector) == [(0, "reports_open")]
        clock.now += 8 * DAY  # which pass
        tick(collector)
        assert phases(collector) == [(0, "released"), (1, "reports_open")]
        assert epochs_of(collector.store, TASK, 1)[0].reports == 6


def test_a_jump_back_refuses_nothing_for_good(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, WEEKLY), clock) as (client, collector):
        honest = clock.now + DAY
        clock.now += DAY
        tick(collector)
        document = client.get(f"/v1/tasks/{TASK.id}").json()
        clock.jump(-30 * DAY)
        assert put(client, make_report(TASK, 1, time=honest)).status_code == 201
        tick(collector)
        assert "back by 30 days" in stopped(collector.store)["what"]
        assert put(client, make_report(TASK, 2, time=honest)).status_code == 201
        assert client.get(f"/v1/tasks/{TASK.id}").json() == document
    with running(settings_for(store_url, folder, WEEKLY), clock) as (client, collector):  # and started anew like that
        assert put(client, make_report(TASK, 3, time=honest)).status_code == 201
        assert client.get(f"/v1/tasks/{TASK.id}").json() == document
        answer = put(client, make_report(TASK, 4, time=honest + 30 * DAY))
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert answer.json()["type"] == "urn:hushquery:problem:clock-stopped"
        tick(collector)
        assert phases(collector) == [(0, "reports_open")]


def test_small_steps_add_up(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, WEEKLY), clock) as (_, collector):
        steps = 0
        while stopped(collector.store) is None:
            clock.now += 5
            clock.jump(SKEW / 4)
            tick(collector)
            steps += 1
        assert steps == 5
        assert phases(collector) == [(0, "reports_open")]


def test_what_is_within_the_skew_is_no_jump(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, WEEKLY), clock) as (_, collector):
        for step in (SKEW - 1, 1 - SKEW, SKEW - 10, 10 - SKEW):
            clock.jump(step)
            clock.now += 5
            tick(collector)
        assert stopped(collector.store) is None
    clock.now += SKEW - 10  # a restart
    with running(settings_for(store_url, folder, WEEKLY), clock) as (_, collector):
        clock.now += 3 * DAY  # a process that hung, or waited for its store: its steady clock vouches for the time
        tick(collector)
        assert stopped(collector.store) is None


def test_a_long_stop_waits_for_the_operator(
    store_url: str, folder: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(store_url, folder, WEEKLY, SEARCHES)
    with running(settings, clock) as (client, collector):
        late = make_report(TASK, 1, time=clock.now + DAY)
        token = collector.tokens.new(2)
        clock.now += DAY
        tick(collector)
    clock.now += 6.5 * DAY  # a weekend, with the end of a period in it
    with caplog.at_level(logging.ERROR), running(settings, clock) as (client, collector):
        assert "no server has run for 6 days, 12:00:00" in caplog.text
        assert "hushquery collect clock --confirm" in caplog.text
        tick(collector)
        assert phases(collector) == [(0, "reports_open")]
        assert put(client, late).status_code == 201  # what devices kept meanwhile is in time
        assert put(client, make_report(TASK, 2, time=clock.now)).status_code == 425
        answer = give(client, token)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:hushquery:problem:clock-stopped")
        assert "no server has run" in run("status", "--store", store_url)
        assert "no server has run" in read("clock", "--store", store_url)["stopped"]["what"]
        confirm(collector.store, clock.now)
        tick(collector)
        assert phases(collector) == [(0, "closed"), (1, "reports_open")]
        assert epochs_of(collector.store, TASK, 1)[0].reports == 1
        assert put(client, make_report(TASK, 2, time=clock.now)).status_code == 201
        assert give(client, token).status_code == 201


def test_the_stop_holds_for_all_servers(store_url: str, folder: Path, clock: Clock) -> None:
    settings, wrong = settings_for(store_url, folder, WEEKLY), Clock()
    wrong.now = clock.now
    with running(settings, clock) as (_, right), running(settings, wrong) as (_, other):
        wrong.jump(8 * DAY)
        tick(other)
        clock.now += 8 * DAY  # its time is honest, and it would be time to move
        tick(right)
        assert phases(right) == [(0, "reports_open")]
        clock.now -= 8 * DAY
        confirm(right.store, clock.now)
        tick(right)
        assert stopped(right.store) is None
        tick(other)  # its clock is wrong still
        assert "set forward" in stopped(right.store)["what"]
        wrong.jump(-8 * DAY)
        confirm(right.store, clock.now)
        tick(other)
        tick(right)
        assert stopped(right.store) is None
    wrong.jump(8 * DAY)
    with running(settings, wrong) as (_, other):  # one that is started with it
        tick(other)
        assert phases(other) == [(0, "reports_open")]
        assert "set forward" in stopped(other.store)["what"]


def test_by_hand_nothing_is_destroyed_by_a_wrong_clock(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        assert give(client, collector.tokens.new(1)).status_code == 201
    store = Store.open(store_url)
    vault = Vault(store, folder / "keys")
    clock.jump(8 * DAY)
    watch = Watch(store, tolerance([SEARCH]), clock, clock.steady)
    moves = Phases(store, FakeWork(store, vault), vault, clock=clock, watch=watch)
    period = SEARCH.period_at(clock.now - 8 * DAY)
    with pytest.raises(NotReady, match="set forward"):
        moves.advance(SEARCH, 1, period)
    assert len(list((folder / "keys").iterdir())) == 1
    assert stopped(store) is None  # one who looks does not stop the servers
    confirm(store, clock.now)
    assert [epoch.phase for epoch in epochs_of(store, SEARCH, 1)] == ["optin_open"]
    with pytest.raises(Exception, match="destroyed"):
        moves.advance(SEARCH, 1, period)
    assert [epoch.phase for epoch in epochs_of(store, SEARCH, 1)] == ["expired"]
    store.close()


def test_the_command(store_url: str, folder: Path) -> None:
    store = Store.open(store_url)
    number = register(store, TASK, time.time())
    vault = Vault(store, folder / "keys")
    Phases(store, FakeWork(store, vault), vault, clock=lambda: time.time() - 8 * DAY).ensure(TASK, number)
    where = ("--store", store_url)
    assert "none yet" in run("clock", *where)
    ahead = Watch(store, SKEW, lambda: time.time() + 8 * DAY)
    assert ahead.compare() is None  # the first that is ever seen is believed
    behind = Watch(store, SKEW)
    found = behind.compare()
    assert found is not None
    assert "behind the newest time" in found["what"]
    text = run("clock", *where)
    assert "no epoch moves by time" in text
    assert found["fix"] in text
    assert "of theme closes: it takes no more reports" in text  # what will be done when it is confirmed
    assert read("clock", "--confirm", *where)["stopped"] is None
    assert "epochs move by time" in run("clock", *where)
    assert behind.compare() is None
    store.close()


def test_a_server_that_is_moved_by_hand_looks_at_its_clock_too(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its next start would be the end of a long stop, however short it was."""
    monkeypatch.undo()  # of what keeps the ticker of tests quiet
    monkeypatch.setattr(Watch, "pause", 0.01)
    with running(settings_for(store_url, folder, WEEKLY), clock) as (_, collector):
        clock.now += 30 * DAY
        wait_for(lambda: newest(collector.store) == int(clock.now))
        assert phases(collector) == [(0, "reports_open")]


def newest(store: Store) -> int | None:
    with store.read() as connection:
        return read_clock(connection).newest
