"""A store that is full, or gone, while a real server is under load: 503, and nothing that was acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

from children import HANG, until
from collect.helpers import SETTING
from collect.servers import Sender, Server
from collect.test_kill import many_reports, stored
from hushquery.local.report import Report
from postgres import cluster


def wait_for(there: Callable[[], bool]) -> None:
    assert until(there)


@contextmanager
def load(running: Server, reports: list[Report], single: int = 1) -> Iterator[list[Sender]]:
    """Send reports from three threads, some of them twice, until all of them are acknowledged."""
    half = len(reports) // 2
    parts = ((reports[:half], 20), (reports[half:], single), (reports[: half // 2], 30))
    senders = [Sender(running.port, part, batch) for part, batch in parts]
    for sender in senders:
        sender.start()
    yield senders
    for sender in senders:
        sender.join(HANG)
        assert not sender.is_alive()
        assert sender.strange == []  # 429 and 503 are all that it was ever told


def acknowledged(senders: list[Sender]) -> set[bytes]:
    return {report_id for sender in senders for report_id in list(sender.acknowledged)}


def start(url: str, folder: Path, *more: str, port: int = 0) -> Server:
    (folder / "task.toml").write_text(SETTING)
    running = Server(url, folder, folder / "task.toml", *more, port=port)
    return running


def ready(running: Server) -> int:
    return httpx.get(f"{running.admin}/readyz", timeout=HANG).status_code


def test_postgresql_stops_during_load(folder: Path) -> None:
    with cluster() as database:
        url = database.url
        running = start(url, folder)
        reports = many_reports(3000)
        with load(running, reports) as senders:
            wait_for(lambda: len(acknowledged(senders)) > 300)
            database.stop()  # as if its machine had lost power
            before = [sender.failures for sender in senders]
            wait_for(lambda: all(sender.failures > failed for sender, failed in zip(senders, before, strict=True)))
            assert ready(running) == 503
            told = acknowledged(senders)
            database.start()
            assert told <= set(stored(url))
        wait_for(lambda: ready(running) == 200)
        assert running.stop() == 0
        assert sorted(stored(url)) == [report.id for report in reports]


def test_a_sqlite_file_is_moved_away_during_load(folder: Path) -> None:
    running = start(str(folder / "collector.db"), folder)
    reports, away = many_reports(3000), folder / "away"
    away.mkdir()
    with load(running, reports) as senders:
        wait_for(lambda: len(acknowledged(senders)) > 300)
        files = sorted(folder.glob("collector.db*"))
        for file in files:
            file.rename(away / file.name)
        before = [sender.failures for sender in senders]
        wait_for(lambda: all(sender.failures > failed for sender, failed in zip(senders, before, strict=True)))
        assert not (folder / "collector.db").exists()  # no empty one came in its place
        assert ready(running) == 503
        for file in reversed(files):
            (away / file.name).rename(file)
    assert running.stop() == 0
    assert sorted(stored(str(folder / "collector.db"))) == [report.id for report in reports]


def test_a_store_fills_up_during_load(store_url: str, folder: Path) -> None:
    running = start(store_url, folder, "--max-store", "1MiB")
    reports = many_reports(12_000)
    with load(running, reports, single=40) as senders:
        wait_for(lambda: ready(running) == 503)
        wait_for(lambda: any(sender.failures > 2 for sender in senders))
        told = acknowledged(senders)
        assert 500 < len(told) < len(reports)
        assert told <= set(stored(store_url))
        assert running.stop() == 0
        running = start(store_url, folder, port=running.port)  # with more room
    assert running.stop() == 0
    assert sorted(stored(store_url)) == [report.id for report in reports]
