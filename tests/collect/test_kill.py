"""kill -9 of a real server under load: every acknowledged report is counted exactly once, on both stores."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from children import HANG
from collect.helpers import SETTING, make_report, stored_ids
from collect.servers import Sender, Server
from hushquery.collect.collector import Settings
from hushquery.collect.epochs.epochs import epochs_of, registered, reports_of
from hushquery.collect.http.serve import run
from hushquery.collect.store.store import Store
from hushquery.errors import UsageError
from hushquery.local.report import Report
from hushquery.task import Task

TASK = Task.loads(SETTING)


def many_reports(number: int) -> list[Report]:
    one = make_report(TASK, time=time.time())
    return [replace(one, id=(n + 1).to_bytes(16, "big")) for n in range(number)]


def kill_under_load(url: str, folder: Path, number: int, kills: int, *more: str) -> None:
    task = folder / "task.toml"
    task.write_text(SETTING)
    chance = random.Random(20261115)
    reports = many_reports(number)
    server = Server(url, folder, task, *more)
    port = server.port
    # Two senders have the same reports: whoever comes second must be told that it is there already.
    shares = [reports[: number // 2], reports[number // 2 :], reports[: number // 4], reports[: number // 20]]
    senders = [Sender(port, share, batch) for share, batch in zip(shares, (50, 40, 60, 1), strict=True)]
    for sender in senders:
        sender.start()
    for _ in range(kills):
        goal = sum(len(sender.acknowledged) for sender in senders) + number // (2 * kills)
        while sum(len(sender.acknowledged) for sender in senders) < goal and any(s.is_alive() for s in senders):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.05))
        server.kill()
        acknowledged = {report_id for sender in senders for report_id in list(sender.acknowledged)}
        assert acknowledged <= set(stored(url)), "an acknowledged report is not there"
        server = Server(url, folder, task, *more, port=port)
    for sender in senders:
        sender.join(HANG)
        assert not sender.is_alive()
        assert sender.strange == []
    assert sum(sender.failures for sender in senders) > 0  # the kills were felt
    assert server.stop() == 0
    found = stored(url)
    assert sorted(found) == [report.id for report in reports]
    assert len(found) == len(set(found)) == number
    assert server.log.read_text() == ""


def stored(url: str) -> list[bytes]:
    store = Store.open(url, write=False)
    found = stored_ids(store)
    store.close()
    return found


def test_kill_loses_nothing_that_was_acknowledged(new_store: Callable[[], str], folder: Path) -> None:
    kill_under_load(new_store(), folder, number=3000, kills=2)


def test_several_workers_are_one_collector(postgres_url: str, folder: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA workers")
    url = f"{postgres_url}?options=-csearch_path%3Dworkers"
    task = folder / "task.toml"
    task.write_text(SETTING)
    server = Server(url, folder, task, "--workers", "2")
    reports = many_reports(400)
    senders = [Sender(server.port, reports, batch) for batch in (20, 30, 7)]  # all of them send the same
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(HANG)
        assert set(sender.acknowledged) == {report.id for report in reports}
        assert sender.strange == []
    assert server.stop() == 0
    assert server.log.read_text() == ""
    assert sorted(stored(url)) == [report.id for report in reports]


def test_sqlite_has_one_worker(folder: Path) -> None:
    (folder / "task.toml").write_text(SETTING)
    settings = Settings(tasks=(str(folder / "task.toml"),), store=str(folder / "collector.db"))
    with pytest.raises(UsageError, match="PostgreSQL"):
        run(settings, port=0, admin_port=0, workers=2)


@pytest.mark.prove
def test_kill_often_under_much_load(new_store: Callable[[], str], folder: Path) -> None:
    url = new_store()
    more = ("--workers", "2") if url.startswith("postgresql") else ()
    kill_under_load(url, folder, 100_000, 12, *more)
    store = Store.open(url)
    ((number, task),) = registered(store)
    (epoch,) = epochs_of(store, task, number)
    assert sum(1 for _ in reports_of(store, epoch)) == 100_000
    store.close()
