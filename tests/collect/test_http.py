"""HTTP as hostile and careless clients speak it: origins, headers, slow and oversized bodies, tricks with paths."""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from children import HANG
from collect.helpers import (
    BINARY,
    SEARCHES,
    SETTING,
    Clock,
    FakeWork,
    drain,
    make_report,
    put,
    report_path,
    running,
    settings_for,
)
from collect.servers import Server
from collect.test_records import everything
from hushquery.collect.collector import Settings
from hushquery.collect.http.admin import make_admin, metrics
from hushquery.collect.http.app import make_app
from hushquery.collect.http.limits import Connection
from hushquery.collect.http.serve import run
from hushquery.errors import NotReady
from hushquery.local.configuration import Configuration
from hushquery.task import Task

TASK = Task.loads(SETTING)
ORIGIN = "https://app.example.org"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return str(tmp_path / "collector.db")


# ---- tasks -------------------------------------------------------------------------------------------------


def test_a_task_is_served_with_what_clients_run(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        answer = client.get(f"/v1/tasks/{TASK.id}")
        data = answer.json()
        assert Task.make(data["task"]).id == TASK.id == data["id"]
        configuration = Configuration.of(TASK)
        assert json.loads(configuration.canonical()) == data["configuration"]
        assert data["configuration_hash"] == configuration.digest.hex()
        assert data["epoch"] == {"number": 0, "phase": "reports_open", "takes_records": False, "takes_reports": True}


def test_etags(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        task = Task.loads(SEARCHES)
        path = f"/v1/tasks/{task.id}"
        first = client.get(path)
        assert first.json()["configuration"] is None
        tag = first.headers["etag"]
        for asked in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = client.get(path, headers={"If-None-Match": asked})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert client.get(path, headers={"If-None-Match": '"x"'}).status_code == 200
        collector.phases._work = FakeWork(collector.store, collector.vault)
        with pytest.raises(NotReady, match="nobody"):
            collector.phases.advance(task, 1, task.period_at(clock()))
        given = {"Authorization": f"Bearer {collector.tokens.new(1)}"}
        records = client.put(f"{path}/records/{'A' * 22}", json={"records": [["news", ""]]}, headers=given)
        assert records.status_code == 201
        collector.phases.advance(task, 1, task.period_at(clock()))
        collector.cache.refresh()
        changed = client.get(path, headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag
        assert changed.json()["epoch"]["phase"] == "head_published"
        assert changed.json()["configuration"]["domain"]["records"][0] == ["weather leeds", "https://weather.example"]


# ---- headers -----------------------------------------------------------------------------------------------


def test_every_answer_has_the_security_headers(sqlite_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(sqlite_url, folder, SETTING), clock) as (client, _):
        for answer in (client.get("/v1/tasks"), client.get("/nothing"), put(client, make_report(TASK))):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "server" not in answer.headers
            assert "set-cookie" not in answer.headers


def test_only_the_tasks_origins_may_read(sqlite_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(sqlite_url, folder, SETTING, SEARCHES), clock) as (client, _):
        path = f"/v1/tasks/{TASK.id}"
        ask = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
        good = client.options(report_path(make_report(TASK)), headers={"Origin": ORIGIN, **ask})
        assert good.status_code == 204
        assert good.headers["access-control-allow-origin"] == ORIGIN
        assert "PUT" in good.headers["access-control-allow-methods"]
        assert "Content-Type" in good.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in good.headers
        for origin in (
            "https://evil.example",
            "https://app.example.org.evil.example",
            "http://app.example.org",
            "null",
        ):
            for address in (path, report_path(make_report(TASK))):
                bad = client.options(address, headers={"Origin": origin, **ask})
                assert "access-control-allow-origin" not in bad.headers
            assert "access-control-allow-origin" not in client.get(path, headers={"Origin": origin}).headers
        other = client.get(f"/v1/tasks/{Task.loads(SEARCHES).id}", headers={"Origin": ORIGIN})
        assert "access-control-allow-origin" not in other.headers
        shown = client.get(path, headers={"Origin": ORIGIN})
        assert shown.headers["access-control-allow-origin"] == ORIGIN
        assert shown.headers["vary"] == "Origin"
        refused = client.put(report_path(make_report(TASK)), content=b"", headers={"Origin": ORIGIN, **BINARY})
        assert refused.status_code == 400
        assert refused.headers["access-control-allow-origin"] == ORIGIN  # a page may see why


def test_a_cache_may_give_a_release_to_every_origin(sqlite_url: str, folder: Path, clock: Clock) -> None:
    """It is kept for a year, so what the first asked must be what the next can read."""
    with running(settings_for(sqlite_url, folder, SETTING), clock) as (client, _):
        for address in ("/v1/tasks", "/v1/releases/" + "0" * 64):
            for headers in ({}, {"Origin": ORIGIN}):
                assert client.get(address, headers=headers).headers["access-control-allow-origin"] == "*"


def test_a_defect_says_nothing(
    sqlite_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("embarrassing-illness")

    monkeypatch.setattr("hushquery.collect.http.ingest.check", fail)
    with running(settings_for(sqlite_url, folder, SETTING), clock) as (client, _), caplog.at_level(logging.DEBUG):
        answer = put(client, make_report(TASK))
        assert answer.status_code == 500
        assert answer.json()["type"] == "urn:hushquery:problem:internal"
        assert "embarrassing" not in answer.text
        assert "embarrassing" not in caplog.text
        assert "ValueError" in caplog.text


# ---- the operator's side -----------------------------------------------------------------------------------


def test_admin(store_url: str, folder: Path, clock: Clock) -> None:
    from fastapi.testclient import TestClient

    with running(settings_for(store_url, folder, SETTING), clock) as (client, collector):
        put(client, make_report(TASK))
        put(client, make_report(TASK))
        client.put(report_path(make_report(TASK)), content=b"x", headers=BINARY)
        drain(collector)
        admin = TestClient(make_admin(collector.store), base_url="http://127.0.0.1")
        assert admin.get("/healthz").text == "ok\n"
        assert admin.get("/readyz").text == "ready\n"
        lines = admin.get("/metrics").text.splitlines()
        for reason, number in (("accepted", 1), ("repeated", 1), ("malformed", 1), ("busy", 0), ("too-old", 0)):
            assert f'hushquery_uploads_total{{task="{TASK.id}",reason="{reason}"}} {number}' in lines
        assert f'hushquery_epoch_phase{{task="{TASK.id}",epoch="0",phase="reports_open"}} 1' in lines
        assert f'hushquery_epoch_trouble{{task="{TASK.id}",epoch="0"}} 0' in lines
        assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)
        assert "dark" not in metrics(collector.store)
        assert client.get("/metrics").status_code == client.get("/healthz").status_code == 404
        admin.close()


def test_not_ready_without_the_store(tmp_path: Path, clock: Clock) -> None:
    from fastapi.testclient import TestClient

    path = tmp_path / "collector.db"
    with (
        running(settings_for(str(path), tmp_path, SETTING), clock) as (_, collector),
        TestClient(make_admin(collector.store), base_url="http://127.0.0.1") as admin,
    ):
        path.rename(tmp_path / "away.db")
        assert admin.get("/readyz").status_code == 503
        assert admin.get("/healthz").status_code == 200
        (tmp_path / "away.db").rename(path)
        assert admin.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8081", 200),
        ("[::1]:8081", 200),
        ("localhost:8081", 200),
        ("metrics.internal", 200),
        ("Metrics.Internal:9090", 200),
        ("evil.example", 421),
        ("evil.example:8081", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8081", 421),
        ("", 421),
        ("127.0.0.1:8081@evil.example", 421),
    ],
)
def test_the_admin_listener_answers_to_no_name_of_others(
    sqlite_url: str, folder: Path, clock: Clock, host: str, status: int
) -> None:
    """A page that gives its own name our address is a reader of the metrics, for the operator's browser."""
    from fastapi.testclient import TestClient

    with running(settings_for(sqlite_url, folder, SETTING), clock) as (_, collector):
        admin = TestClient(make_admin(collector.store, name="metrics.internal"), base_url="http://127.0.0.1")
        for path in ("/healthz", "/metrics", "/openapi.json"):
            answer = admin.get(path, headers={"Host": host})
            assert answer.status_code == status
            assert status == 200 or "hushquery_" not in answer.text
        assert admin.get("/nowhere", headers={"Host": host}).status_code == (404 if status == 200 else 421)


# ---- over a real socket ------------------------------------------------------------------------------------


@contextmanager
def listening(settings: Settings, clock: Clock) -> Iterator[int]:
    """Run a server in a thread; gives its port."""
    from hushquery.collect.http.serve import _QUIET

    server = uvicorn.Server(uvicorn.Config(make_app(settings, clock=clock), **_QUIET))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def talk(port: int, *parts: bytes, pause: float = 0) -> bytes:
    """Send parts to a server as they are; gives all it answers until it closes or says no more."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as wire:
        for part in parts:
            wire.sendall(part)
            time.sleep(pause)
        return receive(wire)


def receive(wire: socket.socket) -> bytes:
    found = b""
    wire.settimeout(HANG)
    while b"\r\n\r\n" not in found:
        part = wire.recv(65536)
        if not part:
            break
        found += part
    return found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def request(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: collect.example.org", *headers, "", ""]
    return "\r\n".join(lines).encode()


def test_bodies_on_the_wire(sqlite_url: str, folder: Path, clock: Clock) -> None:
    settings = settings_for(sqlite_url, folder, SETTING, body_seconds=0.5)
    report = make_report(TASK)
    path, kind = report_path(report), "Content-Type: application/octet-stream"
    with listening(settings, clock) as port:
        assert status(talk(port, request("PUT", path, kind, "Content-Length: 99999999999"))) == 413  # nothing was sent
        slow = talk(port, request("PUT", path, kind, "Content-Length: 500"), b"x")
        assert status(slow) == 408
        assert b"connection: close" in slow.lower()
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"  # and no end of it
        assert status(talk(port, request("PUT", path, kind, "Transfer-Encoding: chunked"), chunk, chunk)) == 413
        for odd in ("Content-Length: x", "Content-Length: -5", "Content-Length: 5\r\nContent-Length: 6"):
            assert status(talk(port, request("PUT", path, kind, odd), b"12345")) == 400
        body = report.to_bytes()
        both = f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked"
        assert status(talk(port, request("PUT", path, kind, both), body)) in (400, 408)
        good = request("PUT", path, kind, f"Content-Length: {len(body)}")
        assert status(talk(port, good, body[:50], body[50:], pause=0.05)) == 201
        assert status(talk(port, good + body)) == 200
        assert status(talk(port, good.replace(b"PUT", b"P\0T") + body)) == 400


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tasks/../admin",
        "/v1/tasks/%2e%2e/%2e%2e/etc/passwd",
        "//v1/tasks",
        "/v1/tasks/",
        "/v1/tasks/%00",
        "/v1/tasks/{task}/reports/",
        "/v1/tasks/{task}/reports/..%2f..",
        "/v1/tasks/{task}%20",
        "/v1/tasks/{TASK}",
        "/v1/releases/..",
        "/v1/releases/%ff",
        "/v1/tasks/{task};x=1",
    ],
)
def test_tricks_with_paths(sqlite_url: str, folder: Path, clock: Clock, path: str) -> None:
    with running(settings_for(sqlite_url, folder, SETTING), clock) as (client, _):
        address = path.replace("{task}", TASK.id).replace("{TASK}", TASK.id.upper())
        for method in ("GET", "PUT", "POST"):
            answer = client.request(method, address)
            assert answer.status_code in (400, 404, 405), (method, address)
            assert answer.headers["content-type"] == "application/problem+json"


_LOGS_EVERYTHING = "import logging; logging.basicConfig(level=logging.DEBUG); from hushquery.cli import main; main()"


def test_nothing_names_a_client(store_url: str, folder: Path) -> None:
    """Address, user agent and headers of a relay are in no table and no log, also where every logger says all it can.

    In a process of its own: what redirects the standard streams of this one upsets pytest's capture in long runs.
    """
    marks = ["Odd-Browser/7", "203.0.113.77", "198.51.100.9"]
    headers = ["User-Agent: Odd-Browser/7", "X-Forwarded-For: 203.0.113.77", "Forwarded: for=198.51.100.9"]
    (folder / "task.toml").write_text(SETTING)
    server = Server(store_url, folder, folder / "task.toml", code=_LOGS_EVERYTHING)
    report = make_report(TASK, time=time.time())
    body = report.to_bytes()
    kind = "Content-Type: application/octet-stream"
    answer = talk(
        server.port, request("PUT", report_path(report), kind, f"Content-Length: {len(body)}", *headers), body
    )
    assert status(answer) == 201
    assert status(talk(server.port, request("GET", "/Odd-Browser/7", *headers))) == 404
    kept = everything(store_url)
    assert server.process.stdout is not None
    server.process.send_signal(signal.SIGTERM)
    logged = server.process.stdout.read().decode() + server.log.read_text("utf-8")  # the first until it has ended
    assert server.stop() == 0
    assert "asyncio" in logged  # loggers do say something
    assert TASK.digest in kept  # this does look where the report is
    for mark in marks:
        assert mark not in logged
        assert mark.encode() not in kept
    assert "127.0.0.1" not in logged


def test_headers_are_limited_whatever_is_installed(
    sqlite_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where httptools is installed Uvicorn would take it, and one connection could fill the memory with a header."""
    parsers: list[type] = []

    def note(server: uvicorn.Server, **_: Any) -> None:
        server.config.load()
        parsers.append(server.config.http_protocol_class)

    monkeypatch.setattr(uvicorn.Server, "run", note)
    run(settings_for(sqlite_url, folder, SETTING), port=0, admin_port=0)
    assert parsers == [Connection, Connection]  # of both listeners
    assert issubclass(Connection, H11Protocol)


def test_settings_that_mean_nothing(folder: Path) -> None:
    from hushquery.errors import UsageError

    bad: list[dict[str, Any]] = [
        {"most_waiting": 0},
        {"body_seconds": 0},
        {"optin_share": 1.0},
        {"most_bytes": 10},
        {"retry_after": 0},
    ]
    for more in bad:
        with pytest.raises(UsageError):
            settings_for("x.db", folder, SETTING, **more)
    with pytest.raises(UsageError, match="same task"):
        settings_for("x.db", folder, SETTING, SETTING + "# again\n").load_tasks()
    with pytest.raises(UsageError, match="needs a task"):
        settings_for("x.db", folder)
    settings = settings_for("x.db", folder, SETTING)
    assert Settings.from_json(settings.to_json()) == settings
