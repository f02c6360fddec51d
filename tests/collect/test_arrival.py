"""Who came with whom, and in which order: looked for in the rows, pages and logs of both stores."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import psycopg
import pytest

from children import until
from collect.helpers import BINARY, SETTING, Clock, make_report, put, running, settings_for, stored_ids, waiting_reports
from collect.houses import House
from hushquery.collect.epochs.epochs import reports_of
from hushquery.collect.http.ingest import pack_batch
from hushquery.collect.store.copies import backup
from hushquery.collect.store.reports import Arrival, add_counts, mix, write_reports
from hushquery.collect.store.store import Store
from hushquery.errors import Unavailable
from hushquery.local.report import Report
from hushquery.task import Task
from ledger.workers import sql

TASK = Task.loads(SETTING)
PAGE = 4096


def random_reports(number: int) -> list[Report]:
    """Make reports whose ids are random and in every run the same: what is asserted below is not left to chance."""
    chance = random.Random(20261116)
    return [replace(make_report(TASK), id=chance.randbytes(16)) for _ in range(number)]


def rows(url: str) -> list[tuple[int, bytes]]:
    """Read every row of the store that names a report, as the heap keeps it: the transaction and the id, in order."""
    found = []
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT c.table_name FROM information_schema.columns c WHERE c.table_schema = current_schema() "
            "AND c.column_name = 'id' AND c.data_type = 'bytea' AND c.table_name NOT LIKE '%task'"
        ).fetchall()
        assert tables
        for (table,) in tables:
            query = f'SELECT xmin::text::bigint, id FROM "{table}" ORDER BY ctid'  # noqa: S608
            found += [(int(xmin), bytes(name)) for xmin, name in connection.execute(query).fetchall()]
    return found


def linked(url: str, pairs: Iterable[tuple[Report, Report]]) -> int:
    """Count the pairs that a transaction of their own gives away."""
    by_id = {name: xmin for xmin, name in rows(url)}
    sizes = Counter(by_id.values())
    assert sizes
    return sum(by_id[a.id] == by_id[b.id] and sizes[by_id[a.id]] == 2 for a, b in pairs)


def agreement(places: list[int]) -> float:
    """Give the share of pairs whose places follow their order of arrival; 1/2 is what chance gives."""
    pairs = list(combinations(places, 2))
    return sum(a < b for a, b in pairs) / len(pairs)


def within_pages(data: bytes, names: list[bytes]) -> float:
    """Give how well places within pages tell the order of arrival: 1/2 by chance, 0 and 1 for certain."""
    where = [data.find(name) for name in names]
    assert -1 not in where
    pages: dict[int, list[int]] = {}
    for place in where:
        pages.setdefault(place // PAGE, []).append(place)
    told = [a < b for page in pages.values() for a, b in combinations(page, 2)]
    assert len(told) > 1000
    return sum(told) / len(told)


def send_pairs(client: Any, reports: list[Report]) -> list[tuple[Report, Report]]:
    """Send two reports in each request, one request after the other: nobody else is there to hide among."""
    pairs = list(zip(reports[::2], reports[1::2], strict=True))
    for pair in pairs:
        data = pack_batch([one.to_bytes() for one in pair])
        assert client.post(f"/v1/tasks/{TASK.id}/reports", content=data, headers=BINARY).status_code == 200
    return pairs


def test_after_closing_neither_order_nor_company_is_in_the_rows(postgres: str, folder: Path, clock: Clock) -> None:
    reports = random_reports(200)
    with running(settings_for(postgres, folder, SETTING), clock) as (client, collector):
        pairs = send_pairs(client, reports)
        collector.phases.advance(TASK, 1, 0, "closed")
    assert linked(postgres, pairs) == 0
    kept = rows(postgres)
    assert len(kept) == 200
    assert len({xmin for xmin, _ in kept}) == 1  # all came in one transaction
    place = {name: number for number, (_, name) in enumerate(kept)}
    assert 0.4 < agreement([place[report.id] for report in reports]) < 0.6


@pytest.fixture
def postgres(postgres_url: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty store in PostgreSQL."""
    schema = f"a{abs(hash(request.node.name))}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{postgres_url}?options=-csearch_path%3D{schema}"


def test_while_an_epoch_is_open_lone_requests_are_mixed(postgres: str, folder: Path, clock: Clock) -> None:
    reports = random_reports(200)
    with running(settings_for(postgres, folder, SETTING), clock) as (client, collector):
        pairs = send_pairs(client, reports)
        collector.phases.tick({1: TASK})
        assert linked(postgres, pairs) == 0
        kept = rows(postgres)
        assert len(kept) == 200
        place = {name: number for number, (_, name) in enumerate(kept)}
        assert 0.4 < agreement([place[report.id] for report in reports]) < 0.6
        assert collector.phases.advance(TASK, 1, 0, "closed").reports == 200


def test_sqlites_files_do_not_tell_the_order(tmp_path: Path, clock: Clock) -> None:
    reports, store = random_reports(300), tmp_path / "collector.db"
    with running(settings_for(str(store), tmp_path, SETTING), clock) as (client, collector):
        for report in reports:
            assert put(client, report).status_code == 201
        log = Path(f"{store}-wal")
        assert until(lambda: log.stat().st_size == 0)  # a moment after the last upload
        collector.phases.tick({1: TASK})
        names = [report.id for report in reports]
        assert 0.4 < within_pages(store.read_bytes(), names) < 0.6
        collector.phases.advance(TASK, 1, 0, "closed")
        assert not [name for name in names if name in log.read_bytes()]
        assert 0.4 < within_pages(store.read_bytes(), names) < 0.6


def test_mixing_loses_nothing_and_doubles_nothing(store_url: str, folder: Path, clock: Clock) -> None:
    """Three servers write, some of it twice, while a fourth writes the table anew as fast as it can."""
    houses = [House(store_url, folder, clock, SETTING) for _ in range(4)]
    reports, outcomes, done = random_reports(150), Counter[str](), threading.Event()

    def send(house: House, mine: list[Report]) -> None:
        for report in (*mine, *mine[::3]):
            arrival = Arrival(house.number, house.period, report.id, report.to_bytes())
            with house.store.write() as connection:
                told = write_reports(connection, [arrival])
                add_counts(connection, {(house.number, told[0]): 1}, 0)
            outcomes.update(told)

    def mix_on() -> int:
        number = 0
        while not done.is_set():
            with suppress(Unavailable):  # it waited for too long
                mix(houses[3].store, houses[3].epoch())
            number += 1
        return number

    # The first two send the same reports.
    shares = (reports[:100], reports[:100], reports[100:])
    with ThreadPoolExecutor(4) as pool:
        mixing = pool.submit(mix_on)
        sending = [pool.submit(send, house, share) for house, share in zip(houses[:3], shares, strict=True)]
        try:
            for one in sending:
                one.result(120)
        finally:
            done.set()
        assert mixing.result(60) > 1
    assert sql(store_url, "SELECT mixed > 1 FROM hushquery_collect_epoch") == [(True,)]
    assert outcomes == {"accepted": 150, "repeated": 100 + 2 * len(reports[:100:3]) + len(reports[100::3])}
    assert sorted(stored_ids(houses[0].store)) == sorted(report.id for report in reports)
    assert houses[0].advance("closed").reports == 150
    for house in houses:
        house.store.close()


def test_who_reads_meanwhile_sees_every_report(store_url: str, folder: Path, clock: Clock) -> None:
    """To an older snapshot of PostgreSQL a table that was truncated is empty: no copy may be made of that."""
    house, other = (House(store_url, folder, clock, SETTING) for _ in range(2))
    assert house.send(200) == ["accepted"] * 200
    done = threading.Event()

    def mix_on() -> int:
        number = 0
        while not done.is_set():
            with other.store.write() as connection:
                add_counts(connection, {(1, "accepted"): 100}, 0)  # as if half of them were new
            with suppress(Unavailable):  # somebody reads
                mix(other.store, other.epoch())
            number += 1
        return number

    with ThreadPoolExecutor(1) as pool:
        mixing = pool.submit(mix_on)
        try:
            for number in range(6):
                assert sum(1 for _ in reports_of(house.store, house.epoch())) == 200
                backup(house.store, folder / f"{number}.db")
                copy = Store.open(folder / f"{number}.db", write=False)
                assert waiting_reports(copy) == 200
                copy.close()
        finally:
            done.set()
        assert mixing.result(60) > 3
    for one in (house, other):
        one.store.close()


def test_a_dump_that_began_before_sees_every_report(postgres: str, folder: Path, clock: Clock) -> None:
    """As pg_dump does: it chooses its moment first, and reads the tables one after the other."""
    house = House(postgres, folder, clock, SETTING)
    with psycopg.connect(postgres) as dump:
        assert house.send(50) == ["accepted"] * 50
        with house.store.write() as connection:
            add_counts(connection, {(1, "accepted"): 50}, 0)
        dump.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        dump.execute("SELECT 1")
        before = rows(postgres)
        mix(house.store, house.epoch())
        assert rows(postgres) != before
        assert dump.execute("SELECT count(*) FROM hushquery_collect_reports_1_0").fetchone() == (50,)
    house.store.close()
