"""A disk that is really full: it is seen from outside, nothing is lost, and closing an epoch works all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import psycopg
import pytest

from children import HANG
from collect.commands import read
from collect.helpers import put
from collect.servers import Server
from collect.test_faults import ready, start, wait_for
from collect.test_kill import TASK, many_reports, stored
from hushquery.collect.epochs.epochs import registered
from hushquery.collect.store.databases import FailureCounts
from hushquery.collect.store.reports import Arrival, write_reports
from hushquery.collect.store.store import RESERVE, Store

# Reports that are there before the disk fills up: more than fit into the pages of the write-ahead log.
BEFORE = 12_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is a little larger than the reserve of a store."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = f"size={2 * RESERVE + (12 << 20)}"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=False, capture_output=True)
    if done.returncode and os.geteuid():  # only root may mount a disk; CI runs as root, where a failure is a failure
        pytest.skip("mounting a small tmpfs needs root; run as root to test a full disk")
    assert done.returncode == 0, done.stderr.decode()
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Write a file until nothing more fits."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    there = os.statvfs(disk)
    assert there.f_bavail == 0
    return path


def metric(running: Server, name: str) -> int:
    answer = httpx.get(f"{running.admin}/metrics", timeout=HANG)
    assert answer.status_code == 200
    (line,) = (line for line in answer.text.splitlines() if line.startswith(f"{name} "))
    return int(line.rpartition(" ")[2])


def test_a_full_disk_is_seen_and_an_epoch_can_be_closed(small_disk: Path, folder: Path) -> None:
    url = str(small_disk / "collector.db")
    running = start(url, folder)
    assert (small_disk / "collector.db.reserve").stat().st_blocks * 512 == RESERVE
    reports = many_reports(BEFORE + 4000)
    store = Store.open(url)
    ((number, _),) = registered(store)
    for at in range(0, BEFORE, 2000):
        some = reports[at : at + 2000]
        with store.write() as connection:
            write_reports(connection, [Arrival(number, 0, one.id, one.to_bytes()) for one in some])
    store.close()
    wait_for(lambda: ready(running) == 200)
    assert metric(running, "hushquery_store_full") == 0
    filler = fill(small_disk)
    assert ready(running) == 503  # before anybody was refused
    told = [report.id for report in reports[:BEFORE]]
    with httpx.Client(base_url=running.address, timeout=HANG) as client:
        for report in reports[BEFORE:]:  # the first still fit into the write-ahead log
            answer = put(client, report)
            if answer.status_code != 201:
                break
            told.append(report.id)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:hushquery:problem:store-full")
    assert int(answer.headers["retry-after"]) > 0
    assert (ready(running), metric(running, "hushquery_store_full")) == (503, 1)
    assert metric(running, 'hushquery_store_failures_total{reason="full"}') >= 1
    assert metric(running, "hushquery_disk_free_bytes") == 0
    assert set(told) <= set(stored(url))
    # While the server runs, and while it does not: nothing else makes room.
    epoch = read("advance", "--to", "closed", "--store", url, "--keys", str(folder / "keys"))["epoch"]
    assert (epoch["phase"], epoch["reports"], epoch["trouble"]) == ("closed", len(told), None)
    assert not (small_disk / "collector.db.reserve").exists()
    payload = reports[0].to_bytes()
    for file in small_disk.glob("collector.db*"):
        assert payload[16:] not in file.read_bytes()
    filler.unlink()
    wait_for(lambda: ready(running) == 200)
    assert running.stop() == 0
    assert read("status", "--store", url)["tasks"][0]["id"] == TASK.id


def test_counts_of_failures_are_shared_and_forgets() -> None:
    now = [100.0]
    with FailureCounts.shared() as path:
        one, other = (FailureCounts(path, lambda: now[0]) for _ in range(2))
        assert (one.totals, one.full) == ((0, 0), False)
        one.failed(full=False)
        assert (other.totals, other.full) == ((0, 1), False)
        one.failed(full=True)
        assert (other.totals, other.full) == ((1, 1), True)
        now[0] += 1
        other.accepted()
        assert not one.full
        now[0] += 1
        one.failed(full=True)
        assert other.full
        now[0] += 15
        assert not other.full  # somebody has to try it again
        assert other.totals == (2, 1)


def test_a_full_disk_of_postgresql_is_seen_by_the_listener_that_writes_nothing(
    small_disk: Path, folder: Path, postgres_url: str
) -> None:
    place = small_disk / "tables"
    place.mkdir()
    if os.getuid() == 0:
        shutil.chown(place, "postgres", "postgres")
        for parent in (small_disk, *small_disk.parents):  # pytest's folders are for their owner only
            if not parent.stat().st_mode & 0o001:
                parent.chmod(0o711)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        connection.execute("CREATE SCHEMA small")
        try:
            options = "-csearch_path%3Dsmall%20-cdefault_tablespace%3Dsmall"
            running = start(f"{postgres_url}?options={options}", folder, "--workers", "2")
            wait_for(lambda: ready(running) == 200)
            assert metric(running, "hushquery_store_full") == 0
            filler = fill(small_disk)
            reports = many_reports(2000)
            with httpx.Client(base_url=running.address, timeout=HANG) as client:
                # The first still fit into pages that are there.
                answer = next(answer for answer in (put(client, one) for one in reports) if answer.status_code != 201)
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:hushquery:problem:store-full")
            assert (ready(running), metric(running, "hushquery_store_full")) == (503, 1)
            assert metric(running, 'hushquery_store_failures_total{reason="full"}') >= 1
            filler.unlink()
            assert running.stop() == 0
        finally:
            connection.execute("DROP SCHEMA small CASCADE")
            connection.execute("DROP TABLESPACE small")
