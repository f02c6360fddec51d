"""The store itself: made once by many, converted or refused, and gone, full or damaged without a lie to anybody."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from children import HANG
from collect.helpers import NOW, SETTING, Clock, make_report, put, running, settings_for, stored_ids
from collect.houses import PROCESSES
from collect.store_workers import open_and_register
from hushquery.collect.epochs.epochs import EpochWork, register, registered
from hushquery.collect.epochs.phases import Phases
from hushquery.collect.http.ingest import pack_batch
from hushquery.collect.http.problems import Refusal
from hushquery.collect.store.reports import Arrival, Writer, write_reports
from hushquery.collect.store.schema import META, SCHEMA, reports_table
from hushquery.collect.store.store import Store, StoreFull
from hushquery.collect.store.vault import Vault
from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.task import Task

TASK = Task.loads(SETTING)


def test_what_is_not_under_the_hash_of_a_task_may_change(store_url: str) -> None:
    on = Task.loads(SETTING)
    off = Task.loads(SETTING.replace("[client]", "[client]\nenabled = false"))
    assert on.id == off.id
    store = Store.open(store_url)
    for task in (on, off, on):
        assert register(store, task, 0) == 1
        ((_, found),) = registered(store)
        assert found == task
    store.close()


def test_many_processes_make_one_store(store_url: str) -> None:
    racers = 8
    start, answers = PROCESSES.Barrier(racers), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=open_and_register, args=(store_url, SETTING, start, answers)) for _ in range(racers)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=HANG) for _ in processes]
    for process in processes:
        process.join()
        process.close()
    assert found == [1] * racers


def test_who_is_alone_is_alone(store_url: str) -> None:
    one, two = Store.open(store_url), Store.open(store_url)
    with one.locked("x"):
        with pytest.raises(NotReady), two.locked("x"):
            pass
        with two.locked("y"):
            pass
    with two.locked("x"):
        pass
    one.close()
    two.close()


def test_a_commit_survives_a_power_cut(store_url: str) -> None:
    """No test can cut the power, so this looks at what the databases were told."""
    store = Store.open(store_url)
    with store.write() as connection:
        if store.path is None:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"
            assert connection.exec_driver_sql("SHOW fsync").scalar_one() == "on"
        else:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
            assert connection.exec_driver_sql("PRAGMA secure_delete").scalar_one() == 1
    store.close()


def test_a_failed_block_changes_nothing(store_url: str) -> None:
    store = Store.open(store_url)
    register(store, TASK, NOW)

    def change() -> None:
        with store.write() as connection:
            connection.execute(sa.update(META).values(schema=99))
            raise UsageError("no")

    with pytest.raises(UsageError):
        change()
    with store.read() as connection:
        assert connection.execute(sa.select(META.c.schema)).scalar_one() == SCHEMA
    store.close()


@pytest.mark.parametrize(
    "address", ["", ":memory:", "mysql://x/y", "sqlite:///a?mode=ro", "http://[", "postgresql://u:pass@h:port/d"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        Store.open(address)
    assert "pass" not in str(caught.value)


def test_a_password_is_never_shown(postgres_url: str) -> None:
    wrong = postgres_url.replace("s3cr3t-Pa55%2Fword", "An0ther%2Fsecret")
    with pytest.raises(Unavailable) as caught:
        Store.open(wrong)
    assert "An0ther" not in str(caught.value)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(DataError, match="damaged"):
        Store.open(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE x (y)")
    other.close()
    with pytest.raises(DataError, match="something else"):
        Store.open(tmp_path / "other.db")
    with pytest.raises(Unavailable, match="no store"):
        Store.open(tmp_path / "none.db", create=False)
    with pytest.raises(Unavailable):
        Store.open(tmp_path / "no" / "folder.db")
    Store.open(tmp_path / "new.db").close()
    assert stat.S_IMODE((tmp_path / "new.db").stat().st_mode) == 0o600


def fill(url: str, folder: Path, clock: Clock, limit: int) -> tuple[int, int]:
    """Send reports until the store is full; gives how many were acknowledged, and how many refused."""
    text = SETTING.replace("min_batch", 'max_body = "1MiB"\nmin_batch')
    task = Task.loads(text)
    one = make_report(task)
    good = bad = 0
    with running(settings_for(url, folder, text, most_bytes=limit), clock) as (client, collector):
        for start in range(1, 40_000, 1000):
            ids = range(start, start + 1000)
            data = pack_batch([replace(one, id=n.to_bytes(16, "big")).to_bytes() for n in ids])
            if collector.writer:
                collector.writer._measured = -1e9  # look at the size each time
            answer = client.post(
                f"/v1/tasks/{task.id}/reports", content=data, headers={"Content-Type": "application/octet-stream"}
            )
            if answer.status_code == 503:
                assert answer.json()["type"] == "urn:hushquery:problem:store-full"
                assert "retry-after" in answer.headers
                bad += 1
                if bad > 2:
                    break
            else:
                good += sum(result["status"] == 201 for result in answer.json()["results"])
    return good, bad


def test_a_full_store_says_so_and_loses_nothing(store_url: str, folder: Path, clock: Clock) -> None:
    good, bad = fill(store_url, folder, clock, 2 << 20)
    assert good > 1000
    assert bad > 2
    store = Store.open(store_url)
    assert len(stored_ids(store)) == good
    store.close()


def test_a_full_file_is_told_and_freed_pages_are_room(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "collector.db", most_bytes=1_000_000)  # no multiple of a page
    assert not store.is_full()

    table = reports_table(1, 0)
    with store.write() as connection:
        table.create(connection)

    def add(number: int) -> None:
        with store.write() as connection:
            connection.execute(sa.insert(table).values(id=number.to_bytes(16, "big"), data=bytes(3000)))

    with pytest.raises(StoreFull):
        list(map(add, range(1000)))
    assert store.is_full()
    with store.write() as connection:
        connection.execute(sa.delete(table))
    assert not store.is_full()
    store.close()


def test_closing_an_epoch_makes_room_in_a_full_file(tmp_path: Path, clock: Clock) -> None:
    store = Store.open(tmp_path / "collector.db", most_bytes=1_000_000)
    vault = Vault(store, tmp_path)
    phases = Phases(store, EpochWork(store, vault, tmp_path / "ledger.db"), vault, clock=clock)
    number = register(store, TASK, NOW)
    phases.ensure(TASK, number)
    one = make_report(TASK)

    def send(first: int) -> int:
        reports = [replace(one, id=n.to_bytes(16, "little")) for n in range(first, first + 50)]
        with store.write() as connection:
            write_reports(connection, [Arrival(number, 0, report.id, report.to_bytes()) for report in reports])
        return first + 50

    sent = 0
    with suppress(StoreFull):
        while sent < 100_000:
            sent = send(sent)
    with pytest.raises(StoreFull):
        send(sent)
    assert phases.advance(TASK, number, 0, "closed").reports == sent > 4000
    assert not store.is_full()
    assert phases.advance(TASK, number, 0, "released").release
    store.close()


def test_a_store_file_that_is_gone(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "collector.db"
    with running(settings_for(str(path), tmp_path, SETTING), clock) as (client, _):
        assert put(client, make_report(TASK, 1)).status_code == 201
        away = tmp_path / "away"
        away.mkdir()
        for file in tmp_path.glob("collector.db*"):
            file.rename(away / file.name)
        answer = put(client, make_report(TASK, 2))
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:hushquery:problem:unavailable")
        for file in away.iterdir():
            file.rename(tmp_path / file.name)
        assert put(client, make_report(TASK, 2)).status_code == 201
        assert put(client, make_report(TASK, 1)).status_code == 200


def test_a_server_that_is_gone(postgres_url: str, folder: Path, clock: Clock) -> None:
    """All connections are cut while the collector runs: 503 or an answer that is true, and then it works again."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA cut")
    url = f"{postgres_url}?options=-csearch_path%3Dcut"
    with running(settings_for(url, folder, SETTING), clock) as (client, _):
        assert put(client, make_report(TASK, 1)).status_code == 201
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
        statuses = [put(client, make_report(TASK, 2)).status_code for _ in range(2)]
        assert statuses[0] in (201, 503)
        assert statuses[1] in (200, 201)
        assert put(client, make_report(TASK, 1)).status_code == 200


class SlowStore:
    """A store whose transactions begin only when a test says so."""

    def __init__(self, store: Store, gate: asyncio.Event) -> None:
        self._store, self._gate = store, gate
        self.path, self.name, self.most_bytes = store.path, store.name, None

    def write(self) -> object:
        while not self._gate.is_set():
            pass
        return self._store.write()

    def shorten_log(self) -> bool:
        return self._store.shorten_log()


class LosingStore(SlowStore):
    """A store that dies at the very end of a transaction, when all is written and nothing is committed."""

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        with self._store.write() as connection:
            yield connection
            raise Unavailable("the power is gone")


def test_nothing_is_acknowledged_before_it_is_committed(new_store: Callable[[], str], folder: Path) -> None:
    store = Store.open(new_store())
    number = register(store, TASK, NOW)
    vault = Vault(store, folder)
    Phases(store, EpochWork(store, vault, folder / "ledger.db"), vault, clock=Clock()).ensure(TASK, number)
    arrival = Arrival(number, 0, bytes(16), b"x")

    async def send(into: object) -> list[str]:
        writer = Writer(into)  # type: ignore[arg-type]
        try:
            return await writer.write([arrival])
        finally:
            await asyncio.to_thread(writer.close)

    with pytest.raises(Unavailable):
        asyncio.run(send(LosingStore(store, asyncio.Event())))
    assert asyncio.run(send(store)) == ["accepted"]  # it was not there
    assert asyncio.run(send(store)) == ["repeated"]
    store.close()


def test_a_full_queue_refuses_at_once(store_url: str) -> None:
    store = Store.open(store_url)
    number = register(store, TASK, NOW)
    arrivals = [Arrival(number, 0, n.to_bytes(16, "big"), b"") for n in range(30)]

    async def send() -> tuple[list[object], int]:
        gate = asyncio.Event()
        writer = Writer(SlowStore(store, gate), most_waiting=20)  # type: ignore[arg-type]
        tasks = [asyncio.create_task(writer.write([one])) for one in arrivals]
        await asyncio.sleep(0.05)
        refused = sum(task.done() for task in tasks)
        gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(writer.close)
        return list(found), refused

    found, refused = asyncio.run(send())
    assert refused == 10
    assert [isinstance(one, Refusal) and one.problem.status for one in found] == [False] * 20 + [429] * 10
    store.close()


def test_a_writer_writes_what_waits_before_it_stops(store_url: str) -> None:
    store = Store.open(store_url)
    number = register(store, TASK, NOW)

    async def send() -> list[object]:
        writer = Writer(store)
        tasks = [
            asyncio.create_task(writer.write([Arrival(number, 0, n.to_bytes(16, "big"), b"")])) for n in range(500)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(writer.close)
        with pytest.raises(HushqueryError, match="shut down"):
            await writer.write([])
        return list(await asyncio.gather(*tasks))

    assert asyncio.run(send()) == [["phase-over"]] * 500  # there is no epoch, and each was told so
    store.close()


def test_full_is_a_kind_of_unavailable() -> None:
    assert issubclass(StoreFull, Unavailable)
