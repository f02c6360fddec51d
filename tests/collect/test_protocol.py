"""Promises of a collection service that no other test holds; docs/protocol.md says which test holds which."""

from __future__ import annotations

import hashlib
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from children import HANG
from collect.helpers import (
    BINARY,
    SEARCHES,
    SETTING,
    WEEKLY,
    Clock,
    drain,
    make_report,
    put,
    report_path,
    running,
    settings_for,
    stored_ids,
    waiting_reports,
)
from collect.test_http import listening, receive, request, status, talk
from collect.test_records import give
from collect.test_reports import kind
from hushquery.collect.epochs.epochs import epochs_of
from hushquery.collect.http.ingest import pack_batch, write_id
from hushquery.collect.store.schema import RECORD
from hushquery.errors import UsageError
from hushquery.local.device.client import Client
from hushquery.task import Task

ROOT = Path(__file__).parents[2]
TASK, WEEK = Task.loads(SETTING), Task.loads(WEEKLY)
LENGTH = 7 * 86400


def test_the_audit_of_a_batch_is_its_count_and_the_xor_of_hashed_ids(
    store_url: str, folder: Path, clock: Clock
) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        reports = [make_report(TASK, number) for number in (3, 1, 4, 15, 9)]
        for report in (*reports, reports[0]):
            put(client, report)
        closed = collector.phases.advance(TASK, 1, 0)
    expected = bytes(32)
    for report in reports:
        hashed = hashlib.sha256(report.id).digest()
        expected = bytes(a ^ b for a, b in zip(expected, hashed, strict=True))
    assert (closed.reports, closed.checksum) == (5, expected)


def test_what_was_counted_and_forgotten_is_never_counted_again(store_url: str, folder: Path, clock: Clock) -> None:
    """Payloads go when they are counted, ids after the retention, and a copy that comes back later is refused."""
    with running(settings_for(store_url, folder, WEEKLY), clock) as (client, collector):
        reports = [make_report(WEEK, number) for number in range(4)]
        assert {put(client, report).status_code for report in reports} == {201}
        period = WEEK.period_at(clock())
        clock.now = (period + 1) * LENGTH + 1860.0
        collector.phases.tick({1: WEEK})
        collector.cache.refresh()
        assert sorted(stored_ids(collector.store)) == sorted(report.id for report in reports)
        assert waiting_reports(collector.store) == 0
        assert put(client, reports[0]).status_code == 200  # counted, and known
        assert kind(put(client, replace(reports[0], id=bytes(15) + b"x"))) == (410, "phase-over")
        clock.now += WEEK.collect.retention + 1
        collector.phases.tick({1: WEEK})
        collector.cache.refresh()
        assert stored_ids(collector.store) == []
        assert kind(put(client, reports[0])) == (410, "too-old")
        old = next(one for one in epochs_of(collector.store, WEEK, 1) if one.number == period)
        assert (old.reports, old.forgotten) == (4, True)


def test_a_task_that_asked_once_and_forgot_takes_nothing_more(store_url: str, folder: Path, clock: Clock) -> None:
    """A client that comes late is told to drop its report, not to send it again for ever."""
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        collector.phases.advance(TASK, 1, 0)
        clock.now += TASK.collect.retention + 1
        collector.phases.tick({1: TASK})
        collector.cache.refresh()
        (old,) = epochs_of(collector.store, TASK, 1)
        assert old.forgotten
        assert kind(put(client, make_report(TASK, time=clock.now))) == (410, "phase-over")


def test_an_epoch_is_released_once_and_its_counts_are_frozen(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        for number in range(4):
            put(client, make_report(TASK, number))
        closed = collector.phases.advance(TASK, 1, 0)
        assert kind(put(client, make_report(TASK, 9))) == (410, "phase-over")
        released = collector.phases.advance(TASK, 1, 0)
        assert (released.counts, released.reports) == (closed.counts, 4)
        with pytest.raises(UsageError, match="last phase"):
            collector.phases.advance(TASK, 1, 0)
        address = f"/v1/releases/{released.release}"
        served = client.get(address)
        assert hashlib.sha256(served.content).hexdigest() == released.release
        assert "immutable" in served.headers["cache-control"]


@pytest.mark.parametrize("least", ["0", "-1", "0.5", "true"])
def test_a_silly_minimum_is_refused(least: str) -> None:
    with pytest.raises(UsageError):
        Task.loads(SETTING.replace("min_batch = 3", f"min_batch = {least}"))


def test_ids_are_random_and_tell_nothing(folder: Path, clock: Clock) -> None:
    """Two devices that say the same at the same time have ids that have nothing in common, and so has one twice."""
    made = []
    for name in ("a", "b"):
        for period in range(2):
            clock.now += LENGTH * period
            report = Client(WEEK, folder / "clients.db", name, clock=clock).report("dark")
            assert report is not None
            made.append(report)
    assert len({report.id for report in made}) == 4
    assert {len(report.id) for report in made} == {16}


def test_many_clients_behind_one_relay_are_many(store_url: str, folder: Path, clock: Clock) -> None:
    """Nothing depends on addresses: one relay sends for all, and a repeat that it caused counts once."""
    reports = [make_report(TASK, number) for number in range(200)]
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        for _ in range(2):
            for report in reports:
                answer = put(client, report, **{"X-Forwarded-For": "192.0.2.1", "Via": "1.1 relay.example.org"})
                assert answer.status_code in (200, 201)
        assert collector.phases.advance(TASK, 1, 0).reports == 200


def test_guessed_tokens_are_all_answered_alike(store_url: str, folder: Path, clock: Clock) -> None:
    """A guess tells neither whether a name exists nor whether the task takes records now."""
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        good = collector.tokens.new(1)
        name = good[3:19]
        secrets = [f"{number:043d}" for number in range(50)]
        guesses = [f"hq_{name}.{secret}" for secret in secrets] + [f"hq_{'0' * 16}.{secret}" for secret in secrets]
        answers = {(one.status_code, one.text) for one in (give(client, guess) for guess in guesses)}
        assert len(answers) == 1
        clock.now += LENGTH  # the epoch is over
        assert {(one.status_code, one.text) for one in (give(client, guess) for guess in guesses[:2])} == answers
        with collector.store.read() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(RECORD)).scalar_one() == 0


def test_a_batch_of_another_task_is_refused_item_by_item(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING, WEEKLY), clock) as (client, _):
        mixed = [make_report(TASK, 1), make_report(WEEK, 2), make_report(TASK, 3)]
        data = pack_batch([report.to_bytes() for report in mixed])
        answer = client.post(f"/v1/tasks/{TASK.id}/reports", content=data, headers=BINARY).json()["results"]
        assert [one["status"] for one in answer] == [201, 422, 201]
        assert [one["id"] for one in answer] == [write_id(report.id) for report in mixed]


# ---- tricks with headers, on the wire ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        ["X: " + "a" * 100_000],
        [f"X-{number}: a" for number in range(20_000)],
        ["Content-Length: 5", "Content-Length : 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Bad Header: x"],
        ["X: a\0b"],
        ["Content-Encoding: gzip", "Content-Length: 5"],
        ["Content-Length: 0x5"],
        ["Content-Length: +5"],
        ["Content-Length: 5_0"],
    ],
    ids=lambda headers: headers[0][:28],
)
def test_tricks_with_headers(tmp_path: Path, clock: Clock, headers: list[str]) -> None:
    settings = settings_for(str(tmp_path / "collector.db"), tmp_path, SETTING, body_seconds=0.5)
    path = report_path(make_report(TASK))
    with listening(settings, clock) as port:
        try:
            answer = talk(port, request("PUT", path, "Content-Type: application/octet-stream", *headers), b"12345")
        except ConnectionError:
            answer = b""  # it hung up, which is an answer too
        assert not answer or status(answer) in (400, 408, 413, 415, 431)
        report = make_report(TASK)
        body = report.to_bytes()
        good = request("PUT", path, "Content-Type: application/octet-stream", f"Content-Length: {len(body)}")
        assert status(talk(port, good, body)) == 201  # and it goes on


def test_a_second_request_in_a_body_is_no_request(tmp_path: Path, clock: Clock) -> None:
    """What follows a refused body on the same connection is not taken for a request of its own."""
    settings = settings_for(str(tmp_path / "collector.db"), tmp_path, SETTING)
    body = make_report(TASK).to_bytes()
    headers = ("Content-Type: application/octet-stream", f"Content-Length: {len(body)}")
    inner = request("PUT", report_path(make_report(TASK)), *headers) + body
    both = f"Content-Length: {len(inner)}\r\nTransfer-Encoding: chunked"
    with listening(settings, clock) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=HANG) as wire:
            wire.sendall(request("PUT", report_path(make_report(TASK)), both) + b"0\r\n\r\n" + inner)
            first = receive(wire)
            assert status(first) >= 400
        time.sleep(0.2)
        answer = talk(port, request("GET", f"/v1/tasks/{TASK.id}"))
        assert status(answer) == 200
    from hushquery.collect.store.store import Store

    store = Store.open(tmp_path / "collector.db")
    assert stored_ids(store) == []
    store.close()


# ---- 25: one id, one report ----------------------------------------------------------------------------------


def test_of_equal_ids_in_one_batch_the_first_is_kept(store_url: str, tmp_path: Path, clock: Clock) -> None:
    first, other = make_report(TASK, 1), replace(make_report(TASK, 1), payload=b"\0")
    if first.payload == other.payload:
        other = replace(other, payload=b"\1")
    assert len({first.id, other.id}) == 1
    body = pack_batch([one.to_bytes() for one in (first, first, other)])
    with running(settings_for(store_url, tmp_path, SETTING), clock) as (client, collector):
        for statuses in ([201, 200, 409], [200, 200, 409]):
            answer = client.post(f"/v1/tasks/{TASK.id}/reports", content=body, headers=BINARY)
            assert [one["status"] for one in answer.json()["results"]] == statuses
        drain(collector)
        collector.phases.advance(TASK, 1, 0)
        (closed,) = epochs_of(collector.store, TASK, 1)
        assert (closed.reports, closed.checksum) == (1, hashlib.sha256(first.id).digest())


# ---- the document ------------------------------------------------------------------------------------------


def test_every_promise_is_stated_and_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \|(.*)$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 29))  # each once, in their order, none left out
    for number, row in rows:
        assert all(part.strip() for part in row.strip(" |").split(" | ")), f"promise {number} has an empty part"
        assert row.count(" | ") == 2, f"promise {number} is not a promise, how it is kept, and tests"
        named = re.findall(r"`([\w/.]+)::(\w+)`", row)
        assert named, f"promise {number} has no test"
        for file, name in named:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text("utf-8"), (number, name)
        for file, title in re.findall(r"`(js/[\w/.]+)`: \"([^\"]+)\"", row):
            assert title in (ROOT / file).read_text("utf-8"), (number, title)
