"""What an operator sees: the numbers are those of mechanism and ledger, and nothing of anybody is in them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from collect.commands import read, run
from collect.helpers import SETTING, WEEKLY, Clock, drain, make_report, put, report_path, running, settings_for
from hushquery.collect.collector import Collector
from hushquery.collect.forecast import forecast, in_words
from hushquery.collect.http.admin import make_admin
from hushquery.collect.overview import overview
from hushquery.collect.store.store import Store
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.local.configuration import Configuration
from hushquery.local.rappor import plan
from hushquery.task import Task, template

WEEK = 7 * 86400
TEXT = WEEKLY.replace('["dark", "light", "system"]', '["zyx", "wvu", "tsr"]')
TASK = Task.loads(TEXT)
NEVER = threading.Event()


def seen(collector: Collector, clock: Clock, ledger: Path | None = None) -> dict[str, Any]:
    """Return what is shown of the only task."""
    data = overview(collector.store, None if ledger is None else str(ledger), now=clock())
    (task,) = data["tasks"]
    return dict(task)


@contextmanager
def operator(collector: Collector, **more: Any) -> Iterator[TestClient]:
    """Open the operator's listener."""
    with TestClient(make_admin(collector.store, **more), base_url="http://127.0.0.1") as admin:
        yield admin


@pytest.mark.parametrize("kind", ["setting", "number", "text"])
def test_the_forecast_is_that_of_the_mechanisms_integers(kind: str) -> None:
    configuration = Configuration.of(Task.loads(template(kind)))
    channel = configuration.channel
    made = forecast(configuration, 10_000)
    assert made is not None
    assert (made["stderr"], made["stderr_most"]) == channel.expected_errors(10_000)
    assert made["half_width"] == pytest.approx(1.96 * made["stderr"], rel=1e-4)
    assert made["of"] == ("mean" if kind == "number" else "share")
    if kind == "text":
        many = len(configuration.task.collect.candidates or ()) or 100
        expected = plan.forecast(10_000, channel.params, candidates=many, rule="bonferroni")  # type: ignore[attr-defined]
        assert made["smallest_share"] == expected.smallest_share
        assert "finds texts that" in in_words(made)
    else:
        assert made["smallest_share"] is None
    assert forecast(configuration, 1) is None
    assert "too few" in in_words(None)


def test_the_forecast_agrees_with_the_release(store_url: str, folder: Path, clock: Clock) -> None:
    """The standard errors that the closed epoch is released with are those that were forecast."""
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        for number in range(60):
            assert put(client, make_report(TASK, number, cell=number % 3)).status_code == 201
        (before,) = seen(collector, clock)["epochs"]
        assert before["received"] == 60
        for to in ("closed", "released"):
            collector.phases.advance(TASK, 1, before["number"], to)
        (after,) = seen(collector, clock)["epochs"]
        document = client.get(f"/v1/releases/{after['release']}").json()
    assert (after["received"], after["reports"]) == (None, 60)
    assert after["forecast"] == before["forecast"]
    largest = max(document["tables"]["estimates"]["stderr"])
    assert before["forecast"]["stderr"] * 0.9 <= largest <= before["forecast"]["stderr_most"] * 1.1


def test_when_a_phase_ends_and_how_many_reports_it_will_have(store_url: str, folder: Path, clock: Clock) -> None:
    begins = TASK.period_at(clock.now) * WEEK
    clock.now = begins + 3600.0
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        (at_once,) = seen(collector, clock)["epochs"]
        assert (at_once["received"], at_once["forecast"], at_once["at_end"]) == (0, None, None)
        ends = begins + WEEK + TASK.collect.time_precision + TASK.collect.clock_skew
        assert (at_once["begins"], at_once["ends"]) == (begins, ends)
        for number in range(10):
            put(client, make_report(TASK, number, time=clock.now))
        opened, clock.now = clock.now, clock.now + (ends - clock.now) / 4
        (later,) = seen(collector, clock)["epochs"]
        assert (later["received"], later["at_end"]["reports"]) == (10, 40)
        assert later["at_end"]["stderr"] == pytest.approx(later["forecast"]["stderr"] / 2)
        clock.now = ends - 1.0
        assert not collector.phases.due({1: TASK})
        clock.now = float(ends)
        assert [epoch.since for epoch, _ in collector.phases.due({1: TASK})] == [int(opened)]
        assert seen(collector, clock)["epochs"][0]["at_end"]["reports"] == 10


def test_nothing_of_anybody_is_shown(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        reports = [make_report(TASK, number, cell=1) for number in range(5)]
        for report in reports:
            put(client, report)
        client.put(report_path(reports[0]), content=b"x")
        drain(collector)
        with operator(collector, clock=clock) as admin:
            answer = admin.get("/")
            text = answer.text
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "<script" not in text
        assert "theme" in text  # the task
        assert "media-type" in text  # why something was refused
        shown = text + str(seen(collector, clock))
        for hidden in ("zyx", "wvu", "tsr", "support", *(report.id.hex() for report in reports)):
            assert hidden not in shown
    spoken = run("status", "--store", store_url)
    assert "5 reports so far" in spoken
    assert "zyx" not in spoken


def test_the_command_prints_the_same_numbers(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        for number in range(4):
            put(client, make_report(Task.loads(SETTING), number))
        drain(collector)
        ours = overview(collector.store, None, now=clock())
    told = read("status", "--store", store_url)
    assert told["disk_free"] is None or told["disk_free"] > 0
    (mine,), (theirs,) = ours["tasks"], told["tasks"]
    assert {key: theirs[key] for key in mine if key != "epochs"} == {key: mine[key] for key in mine if key != "epochs"}
    assert [{key: epoch[key] for key in epoch if key not in ("counts", "checksum")} for epoch in theirs["epochs"]] == (
        mine["epochs"]
    )


def test_very_many_reports_are_not_counted_to_the_last(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting a hundred million would take longer than a page has."""
    monkeypatch.setattr("hushquery.collect.overview._MOST_COUNTED", 4)
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector), operator(collector) as admin:
        for number in range(6):
            put(client, make_report(TASK, number))
        (epoch,) = seen(collector, clock)["epochs"]
        assert (epoch["received"], epoch["more"], epoch["at_end"]) == (4, True, None)
        assert "4 or more" in admin.get("/").text
    assert "4 or more reports so far" in run("status", "--store", store_url)


def test_trouble_is_shown(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector), operator(collector) as admin:
        assert "No epoch moves by time" not in admin.get("/").text
        clock.jump(40 * WEEK)
        collector.phases.tick({1: TASK})
        text = admin.get("/").text
        assert "No epoch moves by time" in text
        assert "collect clock --confirm" in text


def test_budgets_of_both_populations(store_url: str, folder: Path, clock: Clock) -> None:
    from collect.helpers import SEARCHES

    ledger = folder / "ledger.db"
    with running(settings_for(store_url, folder, SEARCHES), clock) as (_, collector):
        assert "there is no ledger" in str(overview(collector.store, str(ledger), now=clock())["ledger_trouble"])
        book = Ledger.open(ledger)
        book.open_account("browser users", "replace-one", Budget(48, 0))
        book.open_account("browser users who opted in", "replace-one", Budget(24, 1e-5))
        book.open_account("others", "replace-one", Budget(1, 0))
        task = seen(collector, clock, ledger)
        assert [(one["population"], one["remaining_epsilon"]) for one in task["accounts"]] == [
            ("browser users", 48.0),
            ("browser users who opted in", 24.0),
        ]
        with operator(collector, ledger=str(ledger)) as admin:
            text = admin.get("/").text
    assert "0 of 48 spent" in text
    assert "others" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(sqlite: str, folder: Path, clock: Clock, method: str) -> None:
    with running(settings_for(sqlite, folder, TEXT), clock) as (_, collector), operator(collector) as admin:
        assert admin.request(method, "/").status_code == 405


@pytest.fixture
def sqlite(folder: Path) -> str:
    """The URL of an empty store in a file, for what has nothing to do with the database."""
    return f"sqlite:///{folder}/collector.db"


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
def test_other_pages_get_nothing(sqlite: str, folder: Path, clock: Clock, headers: dict[str, str]) -> None:
    with running(settings_for(sqlite, folder, TEXT), clock) as (_, collector), operator(collector) as admin:
        for path in ("/", "/metrics", "/readyz"):
            answer = admin.get(path, headers=headers)
            assert answer.status_code in (403, 421)
            assert len(answer.text) < 50
            assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("what", ["store", "ledger"])
def test_a_page_that_hangs_answers_and_keeps_nobody_waiting(
    sqlite: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def hang(*_: Any, **__: Any) -> Any:
        NEVER.wait()

    with running(settings_for(sqlite, folder, TEXT), clock) as (_, collector), operator(collector, ledger="x") as admin:
        monkeypatch.setattr("hushquery.collect.http.admin.PAGE_SECONDS", 0.05)
        where = "hushquery.collect.overview.counts" if what == "store" else "hushquery.core.ledger.ledger.Ledger.open"
        monkeypatch.setattr(where, hang)
        for _ in range(4):  # more than there are places
            answer = admin.get("/")
            assert answer.status_code == 503
            assert "does not answer in time" in answer.text
        assert admin.get("/readyz").text == "ready\n"
        assert "hushquery_store_up 1" in admin.get("/metrics").text


def test_a_store_that_is_away(folder: Path, clock: Clock) -> None:
    path = folder / "collector.db"
    with running(settings_for(str(path), folder, TEXT), clock) as (_, collector), operator(collector) as admin:
        path.rename(folder / "away.db")
        collector.store._engine.dispose()
        answer = admin.get("/")
        assert answer.status_code == 503
        assert "can&#39;t be reached" in answer.text


def test_an_epoch_that_is_closed_while_it_is_counted(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table is gone by then."""
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        for number in range(3):
            put(client, make_report(TASK, number))
        drain(collector)
        reading = Store.read

        @contextmanager
        def late(store: Store, *tables: Any) -> Iterator[Any]:
            if tables:
                monkeypatch.setattr(Store, "read", reading)
                collector.phases.advance(TASK, 1, TASK.period_at(clock()), "closed")
            with reading(store, *tables) as connection:
                yield connection

        monkeypatch.setattr(Store, "read", late)
        (epoch,) = seen(collector, clock)["epochs"]
        assert epoch["received"] is None
        assert not math.isnan(epoch["since"])
