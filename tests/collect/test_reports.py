"""Uploads of reports: every status code of the protocol, each with its type; no answer repeats what was sent."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from children import HANG
from collect.helpers import (
    BINARY,
    NOW,
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
)
from hushquery.collect.collector import Collector
from hushquery.collect.http.ingest import pack_batch
from hushquery.collect.http.problems import Refusal
from hushquery.collect.store.reports import counts
from hushquery.task import Task

TASK = Task.loads(SETTING)
WEEK = Task.loads(WEEKLY)


def kind(response: object) -> tuple[int, str]:
    """The status and the type of a problem document."""
    assert response.headers["content-type"] == "application/problem+json"  # type: ignore[attr-defined]
    data = response.json()  # type: ignore[attr-defined]
    assert data["status"] == response.status_code  # type: ignore[attr-defined]
    return data["status"], data["type"].removeprefix("urn:hushquery:problem:")


def test_new_repeated_other(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        report = make_report(TASK, 1)
        other = replace(report, payload=make_report(TASK, 2, cell=1).payload)
        assert other != report
        assert put(client, report).status_code == 201
        assert put(client, report).status_code == 200
        as_json = client.put(report_path(report), json=report.to_json())
        assert as_json.status_code == 200  # the same report in its other form
        assert kind(put(client, other)) == (409, "other-bytes")
        assert put(client, report).status_code == 200
        drain(collector)
        assert counts(collector.store) == {(1, "accepted"): 1, (1, "repeated"): 3, (1, "other-bytes"): 1}


def test_refusals_are_typed_and_counted(store_url: str, folder: Path, clock: Clock) -> None:
    text = WEEKLY.replace("min_batch", 'retention = "28d"\nmin_batch')
    task = Task.loads(text)
    good = make_report(task)
    week = 7 * 86400
    cases = {
        "malformed": (good.to_bytes()[:-1], 400),
        "wrong-task": (replace(good, task=bytes(32)).to_bytes(), 422),
        "not-in-domain": (replace(good, payload=b"\xff").to_bytes(), 422),
        "clock": (replace(good, time=good.time + 3600).to_bytes(), 422),
        "too-old": (replace(good, time=good.time - 28 * 86400 - 1800).to_bytes(), 410),
        "phase-over": (replace(good, time=good.time - week).to_bytes(), 410),
    }
    with running(settings_for(store_url, folder, text), clock) as (client, collector):
        for name, (data, status) in cases.items():
            answer = client.put(report_path(good), content=data, headers=BINARY)
            assert kind(answer) == (status, name)
        assert kind(put(client, replace(good, configuration=bytes(32)))) == (422, "wrong-task")
        assert kind(put(client, replace(good, time=good.time + 1))) == (422, "clock")
        assert put(client, good).status_code == 201
        drain(collector)
        found = {reason: number for (_, reason), number in counts(collector.store).items()}
        assert found == {**dict.fromkeys(cases, 1), "wrong-task": 2, "clock": 2, "accepted": 1}


def test_a_report_within_the_skew_of_the_next_period_comes_too_early(
    store_url: str, folder: Path, clock: Clock
) -> None:
    week = 7 * 86400
    clock.now = (int(NOW) // week + 1) * week - 30.0  # half a minute before the next period
    with running(settings_for(store_url, folder, WEEKLY), clock) as (client, collector):
        report = make_report(WEEK, time=clock.now + 30)
        answer = put(client, report)
        assert kind(answer) == (425, "too-early")
        assert int(answer.headers["retry-after"]) > 0
        clock.now += 60
        collector.phases.ensure(WEEK, 1)
        collector.cache.refresh()
        assert put(client, report).status_code == 201


def test_before_the_head_list_reports_come_too_early(store_url: str, folder: Path, clock: Clock) -> None:
    task = Task.loads(SEARCHES)
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, _):
        answer = put(client, make_report(task, head=[["x", ""]]))
        assert kind(answer) == (425, "too-early")


def test_addresses(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        report = make_report(TASK)
        elsewhere = report_path(report).replace(TASK.id, "0" * 64)
        assert kind(client.put(elsewhere, content=report.to_bytes(), headers=BINARY)) == (404, "no-such-task")
        assert kind(client.put(elsewhere.replace("0" * 64, "x"), content=b"")) == (404, "no-such-task")
        assert kind(client.put(report_path(make_report(TASK, 7)), content=report.to_bytes(), headers=BINARY)) == (
            400,
            "malformed",
        )
        assert kind(client.put(report_path(report)[:-1], content=report.to_bytes(), headers=BINARY)) == (
            400,
            "malformed",
        )
        assert kind(client.get("/v1/nothing")) == (404, "not-found")
        refused = client.delete(report_path(report))
        assert kind(refused) == (405, "method-not-allowed")
        assert refused.headers["allow"] == "PUT"
        assert kind(client.put(report_path(report), content=report.to_bytes())) == (415, "media-type")
        squeezed = {**BINARY, "Content-Encoding": "gzip"}
        assert kind(client.put(report_path(report), content=report.to_bytes(), headers=squeezed)) == (415, "media-type")


def test_a_large_body_is_refused(store_url: str, folder: Path, clock: Clock) -> None:
    text = SETTING.replace("min_batch", "max_body = 512\nmin_batch")
    task = Task.loads(text)
    with running(settings_for(store_url, folder, text), clock) as (client, _):
        path = f"/v1/tasks/{task.id}/reports"
        assert kind(client.post(path, content=bytes(513), headers=BINARY)) == (413, "too-large")
        parts = (bytes(100) for _ in range(100))  # without a Content-Length
        assert kind(client.post(path, content=parts, headers=BINARY)) == (413, "too-large")


@pytest.mark.parametrize("form", ["binary", "json"])
def test_one_bad_report_never_spoils_a_batch(store_url: str, folder: Path, clock: Clock, form: str) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        good = [make_report(TASK, number) for number in range(5)]
        bad = replace(make_report(TASK, 9), task=bytes(32))
        conflict = replace(good[0], payload=make_report(TASK, 3, cell=2).payload)
        assert conflict != good[0]
        sent = [good[0], bad, good[1], good[0], None, conflict, good[2]]
        path = f"/v1/tasks/{TASK.id}/reports"
        if form == "binary":
            data = pack_batch([b"nonsense" if one is None else one.to_bytes() for one in sent])
            answer = client.post(path, content=data, headers=BINARY)
        else:
            items = [{"id": 5} if one is None else one.to_json() for one in sent]
            answer = client.post(path, json={"reports": items})
        assert answer.status_code == 200
        results = answer.json()["results"]
        assert [one["status"] for one in results] == [201, 422, 201, 200, 400, 409, 201]
        assert [one["id"] is None for one in results] == [one is None for one in sent]
        problems = answer.json()["problems"]
        assert problems[results[5]["problem"]]["type"] == "urn:hushquery:problem:other-bytes"
        assert [one["status"] for one in problems] == [422, 400, 409]  # each once
        for one in results:
            assert "problem" not in one if one["status"] < 400 else problems[one["problem"]]["status"] == one["status"]
        drain(collector)
        assert counts(collector.store)[1, "accepted"] == 3


def test_an_answer_is_no_longer_than_what_was_sent(store_url: str, folder: Path, clock: Clock) -> None:
    """Else a few bytes of one address would make many, which it need not even read."""
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        path = f"/v1/tasks/{TASK.id}/reports"
        numbers = b'{"reports":[' + b",".join([b"1"] * 9999) + b"]}"
        refused = client.post(path, content=numbers, headers={"Content-Type": "application/json"})
        assert kind(refused) == (400, "malformed")
        assert len(refused.content) < 1000
        bad = [replace(make_report(TASK, number), time=0) for number in range(600)]
        for body, headers in (
            (pack_batch([one.to_bytes() for one in bad]), BINARY),
            (b'{"reports":[' + b",".join([b"1"] * 16) + b"]}", {"Content-Type": "application/json"}),
        ):
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code == 200
            assert len(answer.content) < len(body) + 1000
            assert len(answer.json()["problems"]) == 1
        drain(collector)
        assert counts(collector.store)[1, "malformed"] == 17


def test_large_bodies_are_read_in_a_thread_and_few_wait_for_it(store_url: str, folder: Path, clock: Clock) -> None:
    async def work(collector: Collector) -> None:
        def where(*_: object) -> str:
            assert let_go.wait(HANG)
            return threading.current_thread().name

        let_go = threading.Event()
        large = [asyncio.create_task(collector.process(bytes(5000), where)) for _ in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="more arrives"):
            await collector.process(bytes(5000), where)
        assert await collector.process(bytes(100), lambda: threading.current_thread()) is threading.current_thread()
        let_go.set()
        assert {name.rpartition("_")[0] for name in await asyncio.gather(*large)} == {"hushquery-reader"}

    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        asyncio.run(work(collector))
        seen: list[str] = []
        board = collector.cache.now
        collector.cache.now = lambda: seen.append(threading.current_thread().name) or board()  # type: ignore[method-assign,func-returns-value]
        batch = pack_batch([make_report(TASK, number).to_bytes() for number in range(60)])
        answer = client.post(f"/v1/tasks/{TASK.id}/reports", content=batch, headers=BINARY)
        assert {one["status"] for one in answer.json()["results"]} == {201}
        assert {name.rpartition("_")[0] for name in seen} == {"hushquery-reader"}


def test_a_full_queue_is_told_when_to_come_back(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING, most_waiting=3, retry_after=7), clock) as (client, _):
        path = f"/v1/tasks/{TASK.id}/reports"
        reports = [make_report(TASK, number) for number in range(4)]
        many = client.post(path, content=pack_batch([one.to_bytes() for one in reports]), headers=BINARY)
        assert kind(many) == (429, "busy")
        assert many.headers["retry-after"] == "7"
        fewer = client.post(path, content=pack_batch([one.to_bytes() for one in reports[:3]]), headers=BINARY)
        assert [one["status"] for one in fewer.json()["results"]] == [201] * 3


def test_a_broken_frame_takes_nothing(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        path = f"/v1/tasks/{TASK.id}/reports"
        whole = pack_batch([make_report(TASK, number).to_bytes() for number in range(2)])
        for body in (whole[:-1], whole + b"\0", whole + b"\xff\xff\xff\xff"):
            assert kind(client.post(path, content=body, headers=BINARY)) == (400, "malformed")
        for text in ("", "[]", '{"reports": 1}', '{"reports": [], "x": 1}', "[" * 100_000, '{"reports": [NaN}'):
            headers = {"Content-Type": "application/json"}
            assert client.post(path, content=text, headers=headers).status_code in (400, 413)
        drain(collector)
        assert (1, "accepted") not in counts(collector.store)
        assert client.post(path, content=b"", headers=BINARY).json() == {"version": 2, "results": [], "problems": []}


def test_no_answer_repeats_what_was_sent(store_url: str, folder: Path, clock: Clock) -> None:
    secret = "embarrassing-illness"  # noqa: S105
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        path = f"/v1/tasks/{TASK.id}/reports"
        report = make_report(TASK).to_json()
        tries = [
            client.post(path, json={"reports": [{secret: secret}, {**report, "payload": secret}, secret]}),
            client.post(path, json={secret: [secret]}),
            client.post(path, content=secret, headers={"Content-Type": f"application/{secret}"}),
            client.put(f"{path}/{secret}", json={"x": secret}),
            client.get(f"/v1/tasks/{secret}"),
            client.get(f"/{secret}?{secret}={secret}"),
            client.put(report_path(make_report(TASK)), json={**report, "payload": secret}),
        ]
        for answer in tries:
            assert secret not in answer.text
            assert secret not in str(answer.headers)


def test_two_tasks_in_one_server_keep_apart(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING, WEEKLY), clock) as (client, collector):
        one, two = make_report(TASK), make_report(WEEK)
        assert one.id == two.id
        assert put(client, one).status_code == put(client, two).status_code == 201
        replayed = client.put(report_path(one), content=two.to_bytes(), headers=BINARY)
        assert kind(replayed) == (422, "wrong-task")
        listed = client.get("/v1/tasks").json()["tasks"]
        assert [task["name"] for task in listed] == ["theme", "theme"]
        assert {task["id"] for task in listed} == {TASK.id, WEEK.id}
        assert json.dumps(sorted(collector.cache.rows)) == json.dumps(sorted([TASK.id, WEEK.id]))
