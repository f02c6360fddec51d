"""A store that does not answer: uploads and readiness are answered all the same, and the server ends when told to."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from children import HANG
from children import start as start_process
from collect.helpers import SETTING, Clock, make_report, put
from collect.houses import House
from collect.servers import Server
from collect.test_faults import wait_for
from collect.test_kill import many_reports, stored
from hushquery.collect.store.databases import StoreCalls, left
from hushquery.collect.store.reports import Arrival, Writer, write_reports
from hushquery.collect.store.store import Store
from hushquery.errors import Unavailable
from hushquery.local.report import Report

# What each answer may take here is far above the deadline that the servers are given, and far below for ever.
PATIENCE = HANG
SOON = ("--store-seconds", "2")


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """Stop all processes of a PostgreSQL cluster, as a machine without memory or a disk without answer would."""
    with psycopg.connect(url) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    first = int((Path(data) / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    family = [first, *map(int, children)]
    try:
        for pid in family:
            tell(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in reversed(family):
            tell(pid, signal.SIGCONT)


def tell(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # a backend may have ended meanwhile
        os.kill(pid, number)


def start(url: str, folder: Path, *more: str, port: int = 0) -> Server:
    (folder / "task.toml").write_text(SETTING)
    running = Server(url, folder, folder / "task.toml", *SOON, *more, port=port)
    return running


def send(running: Server, report: Report) -> Any:
    with httpx.Client(base_url=running.address, timeout=PATIENCE) as client:
        return put(client, report)


def ready(running: Server) -> Any:
    return httpx.get(f"{running.admin}/readyz", timeout=PATIENCE)


def deliver(running: Server, *reports: Report) -> None:
    """Send reports until they are taken, as devices do: a machine that is busy may be too late at first."""
    for report in reports:
        wait_for(lambda report=report: send(running, report).status_code in (200, 201))  # type: ignore[misc]


def check_refusal(answer: Any) -> None:
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["type"].startswith("urn:hushquery:problem:")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_postgresql_hangs(postgres_url: str, folder: Path, workers: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA hangs{workers}")
    url = f"{postgres_url}?options=-csearch_path%3Dhangs{workers}"
    running = start(url, folder, "--workers", workers)
    reports = many_reports(24)
    deliver(running, reports[0])
    wait_for(lambda: ready(running).status_code == 200)
    with frozen(postgres_url):
        with ThreadPoolExecutor(12) as threads:
            for answer in threads.map(lambda report: send(running, report), reports[1:13]):
                check_refusal(answer)
        found = ready(running)
        assert (found.status_code, "answer" in found.text) == (503, True)
        metrics = httpx.get(f"{running.admin}/metrics", timeout=PATIENCE)
        assert (metrics.status_code, "\nhushquery_store_up 0\n" in metrics.text) == (200, True)
        page = httpx.get(f"{running.admin}/", timeout=PATIENCE)
        assert (page.status_code, "<h1>Collector</h1>" in page.text) == (503, True)
    # It goes on as soon as the store does, and what was refused may be there or not: it is taken once.
    wait_for(lambda: ready(running).status_code == 200)
    deliver(running, *reports[:13])
    with frozen(postgres_url):
        check_refusal(send(running, reports[13]))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(2 * PATIENCE) == 0
    assert running.process.stdout is not None
    running.process.stdout.close()
    running = start(url, folder)
    deliver(running, *reports[13:])
    assert running.stop() == 0
    assert sorted(stored(url)) == [report.id for report in reports]


def test_somebody_else_locks_a_sqlite_file(folder: Path) -> None:
    running = start(str(folder / "collector.db"), folder)
    (first, second) = many_reports(2)
    deliver(running, first)
    other = sqlite3.connect(folder / "collector.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    check_refusal(send(running, second))
    assert ready(running).status_code == 503
    other.execute("ROLLBACK")
    other.close()
    wait_for(lambda: ready(running).status_code == 200)
    deliver(running, second)
    assert running.stop() == 0
    assert running.log.read_text() == ""


class Hung:
    """A store whose calls do not come back, as those into a file system that is away."""

    most_bytes, path = None, None

    def __init__(self) -> None:
        self.asked, self.away = threading.Event(), threading.Event()

    @contextmanager
    def write(self) -> Iterator[None]:
        self.asked.set()
        self.away.wait()
        raise Unavailable("the store is away")
        yield


def test_who_waits_for_a_call_that_does_not_come_back_is_answered() -> None:
    store = Hung()
    writer = Writer(store, most_waiting=16, seconds=0.2)  # type: ignore[arg-type]
    arrival = Arrival(1, 0, bytes(16), b"")

    async def ask() -> list[object]:
        return list(await asyncio.gather(*(writer.write([arrival] * 2) for _ in range(4)), return_exceptions=True))

    for _ in range(3):  # what was given up does not fill the queue
        assert [type(answer) for answer in asyncio.run(asyncio.wait_for(ask(), PATIENCE))] == [Unavailable] * 4
    assert store.asked.is_set()
    writer.close()  # comes back
    store.away.set()


class Gated(Hung):
    """A store whose calls come back, late."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store, self.failures = store, store.failures

    @contextmanager
    def write(self) -> Iterator[Any]:
        self.asked.set()
        self.away.wait()
        with self.store.write() as connection:
            yield connection


def test_what_was_given_up_is_taken_once(folder: Path, clock: Clock) -> None:
    """What the store has begun may be there later; what had not begun is left alone, for its device sends it again."""
    house = House(str(folder / "collector.db"), folder, clock, SETTING)
    reports = [make_report(house.task, n, time=clock()) for n in range(3)]
    first, *others = (Arrival(house.number, 0, one.id, one.to_bytes()) for one in reports)
    gated = Gated(house.store)
    writer = Writer(gated, seconds=0.2)  # type: ignore[arg-type]

    async def ask() -> list[object]:
        begun = asyncio.create_task(writer.write([first]))
        await asyncio.to_thread(gated.asked.wait)
        return list(await asyncio.gather(begun, *(writer.write([one]) for one in others), return_exceptions=True))

    assert [type(answer) for answer in asyncio.run(asyncio.wait_for(ask(), PATIENCE))] == [Unavailable] * 3
    gated.away.set()
    writer.close()
    assert stored(str(folder / "collector.db")) == [first.id]
    with house.store.write() as connection:
        assert write_reports(connection, [first, *others]) == ["repeated", "accepted", "accepted"]
    house.store.close()


_HANG = """
import sys, threading
import hushquery.collect.store.store as store
before = store.Store.write
def hang(self):
    if threading.current_thread() is not threading.main_thread():
        print("hangs", file=sys.stderr, flush=True)
        threading.Event().wait()
    return before(self)
store.Store.write = hang
from hushquery.collect.http.serve import run
from hushquery.collect.collector import Settings
settings = Settings(tasks=("task.toml",), store_seconds=0.5, end_seconds=2.0, tick_seconds=0.1)
run(settings, port=0, admin_port=0, ready=lambda *found: print(*found, flush=True))
"""


def test_a_call_that_never_comes_back_does_not_keep_the_server_from_ending(folder: Path) -> None:
    (folder / "task.toml").write_text(SETTING)
    command = [sys.executable, "-c", _HANG]
    with start_process(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        public, admin = server.stdout.readline().split()
        with httpx.Client(base_url=public, timeout=PATIENCE) as client:
            wait_for(lambda: client.get("/v1/tasks").status_code == 200)
            check_refusal(put(client, many_reports(1)[0]))
        assert httpx.get(f"{admin}/readyz", timeout=PATIENCE).status_code == 503
        server.terminate()
        server.communicate(timeout=PATIENCE)
        assert server.returncode is not None


def test_who_asks_a_store_that_hangs_is_answered_and_the_next_has_a_place_once_it_comes_back() -> None:
    back = threading.Event()

    async def ask() -> None:
        calls = StoreCalls(most=2)
        for _ in range(5):  # two wait for the store and three for a place
            with pytest.raises(Unavailable, match="in time"):
                await asyncio.wait_for(calls.call(0.05, back.wait), PATIENCE)
        back.set()
        answers = await asyncio.gather(*(calls.call(PATIENCE, lambda n=n: (n, left())) for n in range(5)))
        assert [n for n, _ in answers] == list(range(5))
        assert all(0 < seconds <= PATIENCE for _, seconds in answers)
        with pytest.raises(ZeroDivisionError):
            await calls.call(PATIENCE, lambda: 1 // 0)

    asyncio.run(ask())
