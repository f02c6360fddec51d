"""What is said to be erased is searched for in the files of both stores: the disk says what is left, not a table."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from collect.commands import run as cli
from collect.helpers import (
    BINARY,
    HEAD,
    SEARCHES,
    SETTING,
    Clock,
    Crash,
    make_report,
    put,
    running,
    settings_for,
    stored_ids,
    waiting_reports,
)
from collect.houses import House
from collect.test_records import WORDS, advance, everything, give, hybrid
from hushquery.collect.epochs import phases
from hushquery.collect.epochs.epochs import Epoch
from hushquery.collect.http.ingest import pack_batch
from hushquery.collect.store import reports as store_reports
from hushquery.collect.store.store import Store
from hushquery.local.report import Report
from hushquery.task import Task

TASK = Task.loads(SETTING)
#: Every payload that a device of the task can send: who knows the rest of a report tries these.
PAYLOADS = {make_report(TASK, number).payload for number in range(200)}


def random_reports(number: int) -> list[Report]:
    """Make reports with ids as devices draw them."""
    return [replace(make_report(TASK, n, cell=n % 3), id=os.urandom(16)) for n in range(number)]


def guesses(report: Report) -> Iterator[bytes]:
    """Give what keyless hashes of the report could have left on the disk, for every payload that it may have had."""
    for payload in PAYLOADS:
        guess = replace(report, payload=payload)
        for text in (guess.to_bytes(), guess.to_text().encode()):
            for name in ("sha256", "blake2b", "md5"):
                digest = hashlib.new(name, text).digest()[:16]
                yield digest
                yield digest.hex().encode()


def found(disk: bytes, words: list[bytes]) -> int:
    """Count the words that are on the disk."""
    return sum(word in disk for word in words)


def whole_reports(disk: bytes) -> set[bytes]:
    """Find whatever on the disk looks like a report of the task: its id stands before the hash of the task."""
    length = len(make_report(TASK).to_bytes())
    starts = [match.start() - 17 for match in re.finditer(re.escape(TASK.digest), disk)]
    return {disk[start : start + length] for start in starts}


def remove_old_logs(url: str) -> None:
    """Let PostgreSQL delete what it does not need of its log any more, instead of keeping the file for later."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_recycle = off")
            connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def erasing_store(new_store: Callable[[], str]) -> str:
    """A store on a server that keeps no old log, as docs/howto/operate-the-collector.md sets it up."""
    url = new_store()
    remove_old_logs(url)
    return url


def test_no_report_and_no_hash_of_one_is_in_any_file_after_closing(
    erasing_store: str, folder: Path, clock: Clock
) -> None:
    """Write-ahead logs included, while the collector runs and after it has stopped."""
    reports = random_reports(120)
    sent = {report.to_bytes() for report in reports}
    hashes = list(guesses(reports[0]))
    with running(settings_for(erasing_store, folder, SETTING), clock) as (client, collector):
        for report in reports[:20]:
            assert put(client, report).status_code == 201
        data = pack_batch([report.to_bytes() for report in reports[20:]])
        assert client.post(f"/v1/tasks/{TASK.id}/reports", content=data, headers=BINARY).status_code == 200
        assert sent <= whole_reports(everything(erasing_store))  # this does look where they are
        collector.phases.advance(TASK, 1, 0, "closed")
        disk = everything(erasing_store)
        assert not sent & whole_reports(disk)
        assert found(disk, [report.id for report in reports]) == 120  # of which only the id is kept
        assert found(disk, hashes) == 0
        assert put(client, reports[3]).status_code == 200  # the id is enough to know a repeat
        assert put(client, replace(reports[3], id=os.urandom(16))).status_code == 410
    assert not sent & whole_reports(everything(erasing_store))


def test_no_hash_of_a_report_is_there_while_its_epoch_is_open(store_url: str, folder: Path, clock: Clock) -> None:
    """What is never written is in no backup and in no replica either."""
    reports = random_reports(20)
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        for report in reports:
            put(client, report)
        disk = everything(store_url)
    assert {report.to_bytes() for report in reports} <= whole_reports(disk)
    assert found(disk, list(guesses(reports[0]))) == 0


def test_other_bytes_under_a_known_id_are_told_until_the_report_is_erased(
    store_url: str, folder: Path, clock: Clock
) -> None:
    report = random_reports(1)[0]
    other = replace(report, payload=next(one for one in sorted(PAYLOADS) if one != report.payload))
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        assert [put(client, one).status_code for one in (report, report, other)] == [201, 200, 409]
        collector.phases.advance(TASK, 1, 0, "closed")
        assert [put(client, one).status_code for one in (report, other)] == [200, 200]


def test_an_exported_file_is_for_its_owner_only(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        put(client, random_reports(1)[0])
        old = os.umask(0)
        try:
            cli("export", "--out", str(folder / "reports.txt"), "--store", store_url)
        finally:
            os.umask(old)
    assert (folder / "reports.txt").stat().st_mode & 0o777 == 0o600


def test_nothing_that_people_gave_outlives_its_epoch(erasing_store: str, folder: Path, clock: Clock) -> None:
    """Tokens, opt-in records, their key, reports: in the store, the folder of keys and the ledger."""
    task = Task.loads(SEARCHES)
    with running(settings_for(erasing_store, folder, SEARCHES), clock) as (client, collector):
        hybrid(collector)
        token = collector.tokens.new(1, shared=True)
        assert [give(client, token).status_code for _ in range(5)] == [201] * 5
        epoch = collector.cache.epochs()[0]
        key, words = collector.vault._secret(epoch, make=False), [*WORDS, token.partition(".")[2].encode()]
        hashes = [hashlib.new(name, word).digest()[:16] for word in WORDS for name in ("sha256", "md5")]
        for _ in range(2):
            advance(collector)
        made = [replace(make_report(task, n, head=HEAD), id=os.urandom(16)) for n in range(20)]
        assert {put(client, report).status_code for report in made} == {201}
        sent = [report.to_bytes() for report in made]
        assert found(everything(erasing_store), sent) == 20
        for _ in range(2):
            advance(collector)
        assert collector.cache.epochs()[0].phase == "released"
        beside = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert found(everything(erasing_store) + beside, [*words, *hashes, key, *sent]) == 0


@pytest.mark.parametrize("granted", [False, True], ids=["ordinary", "granted"])
def test_an_ordinary_role_erases_the_tables(postgres_url: str, folder: Path, clock: Clock, granted: bool) -> None:
    """Without the two grants of docs/howto/operate-the-collector.md only PostgreSQL's log keeps what was erased."""
    role = f"ordinary_{granted}".lower()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        connection.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
        if granted:
            connection.execute(f"GRANT pg_checkpoint TO {role}")
            connection.execute(f"GRANT EXECUTE ON FUNCTION pg_switch_wal() TO {role}")
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    remove_old_logs(postgres_url)
    url = f"postgresql://{role}:x@{postgres_url.partition('@')[2]}"
    reports = random_reports(50)
    with running(settings_for(url, folder, SETTING), clock) as (client, collector):
        assert {put(client, report).status_code for report in reports} == {201}
        assert collector.phases.advance(TASK, 1, 0, "closed").scrubbed
        told = cli("status", "--store", url)
        assert "PostgreSQL's log may keep reports that were erased" in told
        assert "archive_mode off, " in told
    log, tables = (
        b"".join(path.read_bytes() for path in Path(row[0], part).rglob("*") if path.is_file())
        for part in ("pg_wal", "base")
    )
    sent = [report.to_bytes() for report in reports]
    assert found(tables, sent) == 0
    assert (found(log, sent) == 0) is granted  # one or the other may lie across two pages of the log


@pytest.mark.parametrize("dies", ["between blocks", "wipe_traces", "drop_reports"])
def test_a_crash_while_erasing_is_made_good(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """Whatever is half done, each report is known, none is taken again, and whoever comes next finishes it."""
    house = House(store_url, folder, clock, SETTING)
    assert house.send(10) == ["accepted"] * 10
    writes = 0

    def die(*_: object) -> None:
        raise Crash

    @contextmanager
    def second_write_dies(*_: object, **more: bool) -> Iterator[sa.Connection]:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise Crash
        with write(**more) as connection:
            yield connection

    write = house.store.write
    with monkeypatch.context() as patch:
        if dies == "between blocks":
            patch.setattr(store_reports, "_BLOCK", 4)

            def broken(store: Store, epoch: Epoch) -> None:
                patch.setattr(store, "write", second_write_dies)
                store_reports.keep_ids(store, epoch)
                raise Crash  # PostgreSQL does it in one transaction, and dies after it

            patch.setattr(phases, "keep_ids", broken)
        elif dies == "wipe_traces":
            patch.setattr(house.store, "wipe_traces", die)
        else:
            patch.setattr(phases, "drop_reports", die)
        with pytest.raises(Crash):
            house.advance("closed")
    assert (house.epoch().phase, house.epoch().scrubbed) == ("closed", False)
    assert house.send(10) == ["repeated"] * 10
    assert house.send(1, first=50) == ["phase-over"]
    assert len(stored_ids(house.store)) == 10
    house.phases.tick({house.number: house.task})
    assert house.epoch().scrubbed
    assert (waiting_reports(house.store), len(stored_ids(house.store))) == (0, 10)
    assert house.send(10) == ["repeated"] * 10
    house.store.close()


def test_a_table_from_after_the_backup_is_in_nobodys_way(store_url: str, folder: Path, clock: Clock) -> None:
    """PostgreSQL's own tools restore the tables that a dump has, and leave others that came since."""
    house = House(store_url, folder, clock, SETTING)
    assert house.send(3) == ["accepted"] * 3
    with house.store.write() as connection:
        connection.exec_driver_sql("DELETE FROM hushquery_collect_epoch")
    house.phases.ensure(house.task, house.number)
    assert waiting_reports(house.store) == 0
    assert house.send(2) == ["accepted"] * 2
    assert house.advance("closed").reports == 2
    house.store.close()
