"""A whole epoch of a local task over HTTP: reports in, estimates with their guarantee out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import hushquery as hq
from collect.helpers import BINARY, SETTING, WEEKLY, Clock, make_report, put, running, settings_for
from hushquery.collect.epochs import epochs as work
from hushquery.collect.epochs.epochs import Epoch, epochs_of, reports_of
from hushquery.collect.http.admin import metrics
from hushquery.collect.http.ingest import pack_batch
from hushquery.collect.http.pages import read_release
from hushquery.collect.store.schema import EPOCH
from hushquery.collect.store.store import Store
from hushquery.errors import NotReady, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.device.client import Client
from hushquery.local.server.counting import Block, ReportCount
from hushquery.local.server.published import problems
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task
from setting_reports import made

TASK = Task.loads(SETTING)


def test_reports_become_a_release(store_url: str, folder: Path, clock: Clock) -> None:
    oracle = Configuration.of(TASK).oracle
    truth = [0] * 700 + [1] * 250 + [2] * 50
    rows = oracle.randomize_many(truth, SeededBits(5))
    one = make_report(TASK)
    reports = [
        replace(one, id=(n + 1).to_bytes(16, "big"), payload=oracle.pack(oracle.report(row)))
        for n, row in enumerate(rows)
    ]
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        path = f"/v1/tasks/{TASK.id}"
        for start in range(0, len(reports), 250):
            data = pack_batch([report.to_bytes() for report in reports[start : start + 250]])
            results = client.post(f"{path}/reports", content=data, headers=BINARY).json()["results"]
            assert {result["status"] for result in results} == {201}
        for phase in ("closed", "released"):
            collector.phases.advance(TASK, 1, 0, phase)
        collector.cache.refresh()
        served = client.get(path).json()
        assert served["epoch"]["phase"] == "released"
        (named,) = served["releases"]
        answer = client.get(f"/v1/releases/{named['id']}")
        assert "immutable" in answer.headers["cache-control"]
        release = answer.json()
        assert (release["name"], release["epoch"], release["task"]) == ("theme", 0, TASK.id)
        assert release["manifest"]["parameters"]["reports"] == 1000
        assert release["guarantees"][0]["relation"] == "replace-one"
        assert release["guarantees"][0]["epsilon"] <= 1
        found = release["tables"]["estimates"]
        values, errors = oracle.frequencies(oracle.support(rows), 1000)
        assert found["estimate"] == pytest.approx(values.tolist())
        assert found["stderr"] == pytest.approx(errors.tolist())
        assert found["value"] == ["dark", "light", "system", "*"]
        assert release["tables"]["support"]["reports"] == oracle.support(rows).tolist()
        # It is the release that the same reports give without a collector, and as sound.
        assert read_release(release).tables == hq.estimate(TASK, reports).release().tables
        assert list(problems(read_release(release))) == []
        assert put(client, reports[7]).status_code == 200  # counted already, and whoever asks is told so
        assert put(client, replace(one, id=b"x" * 16)).status_code == 410
        assert client.get("/v1/releases/" + "0" * 64).status_code == 404


@pytest.mark.parametrize("text", [SETTING, WEEKLY], ids=["once", "weekly"])
def test_every_report_is_read_and_counted_once(
    store_url: str, folder: Path, clock: Clock, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are enough to estimate, and where the task has periods: nothing waits in a file meanwhile."""
    task, read, counted = Task.loads(text), list[bytes](), list[int]()

    def watched(store: Store, epoch: Epoch) -> Iterator[bytes]:
        for data in reports_of(store, epoch):
            read.append(data)
            yield data

    def counting(count: ReportCount, block: Block) -> None:
        counted.append(block.read)
        add(count, block)

    add = ReportCount.add
    monkeypatch.setattr(work, "reports_of", watched)
    monkeypatch.setattr(ReportCount, "add", counting)
    monkeypatch.setattr(ReportCount, "_blocks", None)  # what waited is read from there
    with running(settings_for(store_url, folder, text), clock) as (client, collector):
        sent = [make_report(task, number) for number in range(30)]
        assert {put(client, report).status_code for report in sent} == {201}
        closed = collector.phases.advance(task, 1, task.period_at(clock()), "closed")
    assert sorted(read) == sorted(report.to_bytes() for report in sent)
    assert sum(counted) == 30
    assert closed.counts is not None
    assert (closed.counts["n"], closed.reports, len(closed.counts["support"])) == (30, 30, 4)


NUMBERS = """
[task]
name = "minutes a day"
population = "app users"
kind = "number"
highest = 1440
[client]
epsilon = 1
lifetime_epsilon = 16
oracle = "onebit"
[collect]
min_batch = 3
"""

TEXTS = """
[task]
name = "home page"
population = "app users"
kind = "text"
[client]
epsilon = 20
lifetime_epsilon = 40
oracle = "rappor"
[client.rappor]
k = 16
h = 2
m = 4
p = 0.5
q = 0.75
f = 0.5
[collect]
min_batch = 3
"""


@pytest.mark.parametrize(("text", "value"), [(NUMBERS, 90), (TEXTS, "news.example")], ids=["number", "text"])
def test_tasks_without_a_list(store_url: str, folder: Path, clock: Clock, text: str, value: object) -> None:
    task = Task.loads(text)
    with running(settings_for(store_url, folder, text), clock) as (client, collector):
        for name in range(20):
            one = Client(task, folder / "clients.db", f"client {name}", clock=clock, bits=SeededBits(name))
            report = one.report(value)
            assert report is not None
            assert put(client, report).status_code == 201
        closed = collector.phases.advance(task, 1, 0, "closed")
        assert closed.counts is not None
        assert closed.counts["n"] == closed.reports == 20
        if text is TEXTS:
            begun = sa.update(EPOCH).values(moving="release", trouble='{"what": "", "why": "", "fix": "", "at": 0}')
            for left in (None, begun):  # also where an earlier hushquery had begun
                if left is not None:
                    with collector.store.write() as connection:
                        connection.execute(left)
                with pytest.raises(NotReady, match="not estimated"):
                    collector.phases.advance(task, 1, 0, "released")
                (same,) = epochs_of(collector.store, task, 1)
                assert (same.phase, same.moving, same.trouble) == ("closed", None, None)
            assert collector.phases.tick({1: task}) == []
            assert f'hushquery_epoch_trouble{{task="{task.id}",epoch="0"}} 0' in metrics(collector.store)
        else:
            released = collector.phases.advance(task, 1, 0, "released")
            found = client.get(f"/v1/releases/{released.release}").json()["tables"]["estimates"]
            (low,), (estimate,), (high,) = (found[name] for name in ("low", "estimate", "high"))
            # The coins of 1BitMean come from the device's own secret: in one collection of 1,200 no bit is set, and the
            # exact interval of a count of zero begins at its estimate. Otherwise the estimate is strictly inside.
            zeros, ones = closed.counts["support"]
            assert (low < estimate, estimate < high) == (ones > 0, zeros > 0)
            assert low <= estimate <= high
            collector.cache.refresh()
            assert "The average" in client.get(f"/sites/{task.id}/").text


CLEAR = TEXTS.replace("p = 0.5", "p = 0.1").replace("q = 0.75", "q = 0.9").replace("f = 0.5", "f = 0.25")


def send_texts(client: Any, task: Task, clock: Clock) -> None:
    values = ["news.example", "news.example", "weather.example"] * 100
    for report in made(Configuration.of(task), values, time=task.truncate(clock())):
        assert put(client, report).status_code == 201


def test_texts_are_released_for_candidates_of_the_operator(store_url: str, folder: Path, clock: Clock) -> None:
    task = Task.loads(CLEAR)
    with running(settings_for(store_url, folder, CLEAR), clock) as (client, collector):
        send_texts(client, task, clock)
        collector.phases.advance(task, 1, 0, "closed")
        with pytest.raises(UsageError, match="no candidate"):
            collector.phases.advance(task, 1, 0, "released", [])
        released = collector.phases.advance(task, 1, 0, "released", ["news.example", "nobody.example"])
        served = client.get(f"/v1/releases/{released.release}").json()
        assert served["tables"]["estimates"]["value"] == ["news.example"]
        assert served["tables"]["candidates"]["text"] == ["news.example", "nobody.example"]
        assert list(problems(read_release(served))) == []
        assert list(read_release(served).tables) == ["estimates", "support", "candidates"]
        collector.cache.refresh()
        page = client.get(f"/sites/{task.id}/").text
        assert "Looked for, and not found" in page
        assert "nobody.example" in page


def test_texts_are_released_by_themselves_where_the_task_names_candidates(
    store_url: str, folder: Path, clock: Clock
) -> None:
    text = CLEAR + 'candidates = ["weather.example", "news.example"]\n'
    task = Task.loads(text)
    assert task.id == Task.loads(CLEAR).id
    with running(settings_for(store_url, folder, text), clock) as (client, collector):
        assert "weather.example" not in client.get(f"/v1/tasks/{task.id}").text
        send_texts(client, task, clock)
        collector.phases.advance(task, 1, 0, "closed")
        assert collector.phases.tick({1: task}) == []
        (epoch,) = epochs_of(collector.store, task, 1)
        assert epoch.phase == "released"
        found = client.get(f"/v1/releases/{epoch.release}").json()["tables"]
        assert found["candidates"]["text"] == ["weather.example", "news.example"]
        assert found["estimates"]["value"] == ["news.example", "weather.example"]


def test_only_texts_take_candidates(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (_, collector):
        collector.phases.ensure(TASK, 1)
        with pytest.raises(UsageError, match="only a task of texts"):
            collector.phases.advance(TASK, 1, 0, "closed", ["dark"])
    with pytest.raises(UsageError, match="candidates is a list of texts"):
        Task.loads(SETTING + 'candidates = ["dark"]\n')


def test_a_smaller_minimum_does_not_help_what_was_closed_below_it(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        for number in range(2):
            put(client, make_report(TASK, number))
        collector.phases.advance(TASK, 1, 0, "closed")
    less = SETTING.replace("min_batch = 3", "min_batch = 2")
    with running(settings_for(store_url, folder, less), clock) as (_, again):
        with pytest.raises(NotReady, match="closed with 2 of them, fewer than"):
            again.phases.advance(Task.loads(less), 1, 0, "released")
        assert again.phases.tick({1: Task.loads(less)}) == []
        (epoch,) = epochs_of(again.store, TASK, 1)
        assert (epoch.phase, epoch.moving, epoch.trouble) == ("closed", None, None)
