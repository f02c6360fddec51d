"""Connections that let the collector wait: they end, they are replaced, and they never fill the log or the memory."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn

from children import HANG, until
from collect.helpers import BINARY, SETTING, Clock, drain, make_report, printed, report_path, settings_for
from collect.servers import Server
from hushquery.collect.collector import Collector, Settings
from hushquery.collect.http import limits, serve
from hushquery.collect.http.admin import make_admin, metrics
from hushquery.collect.http.app import make_app
from hushquery.collect.http.limits import Connections
from hushquery.collect.http.serve import _QUIET, _trouble
from hushquery.collect.store.reports import NO_TASK, Writer, counts
from hushquery.task import Task

TASK = Task.loads(SETTING)
PATIENCE = HANG


class Listening:
    """A server in a thread, over real sockets."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        app = make_app(settings, clock=clock)
        self.collector: Collector = app.state.collector
        self.server = uvicorn.Server(uvicorn.Config(app, **_QUIET))
        self.bound = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = self.bound.getsockname()
        self._wires = ExitStack()

    def connect(self, *said: bytes, read: int | None = None) -> socket.socket:
        """Connect, say something, and keep the connection."""
        wire = self._wires.enter_context(socket.socket())
        if read is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, read)
        wire.settimeout(PATIENCE)
        wire.connect(self.address)
        for part in said:
            wire.sendall(part)
        return wire

    def put(self, number: int) -> httpx.Response:
        """Send a report as an honest client does."""
        report = make_report(TASK, number)
        address = f"http://127.0.0.1:{self.address[1]}{report_path(report)}"
        return httpx.put(address, content=report.to_bytes(), headers=BINARY, timeout=PATIENCE)

    def counted(self) -> dict[str, int]:
        """What was counted of connections."""
        drain(self.collector)
        return {reason: number for (task, reason), number in counts(self.collector.store).items() if task == NO_TASK}

    @property
    def open(self) -> set[Any]:
        return self.server.server_state.connections

    def close(self) -> None:
        self._wires.close()


@contextmanager
def listening(folder: Path, clock: Clock, **more: Any) -> Iterator[Listening]:
    made = Listening(settings_for(str(folder / "collector.db"), folder, SETTING, **more), clock)
    thread = threading.Thread(target=made.server.run, kwargs={"sockets": [made.bound]})
    thread.start()
    assert until(lambda: made.server.started)
    try:
        yield made
    finally:
        made.close()
        made.server.should_exit = True
        thread.join()
        made.bound.close()


def rest(wire: socket.socket) -> bytes:
    """Read until the other side has closed."""
    found = b""
    try:
        while part := wire.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def head(method: str, path: str, *more: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *more, "", ""]).encode()


def test_who_says_nothing_is_not_kept(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_HEAD_SECONDS", 0.2)
    with listening(folder, clock) as there:
        wires = [there.connect() for _ in range(20)] + [there.connect(b"GET /v1/ta") for _ in range(20)]
        assert {rest(wire) for wire in wires} == {b""}
        assert until(lambda: not there.open)
        assert there.counted() == {"idle": 40}


def test_a_byte_now_and_then_is_no_request(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uvicorn's own limit on idle connections begins anew with each byte, and knows none before the first request."""
    monkeypatch.setattr(limits, "_HEAD_SECONDS", 0.3)
    monkeypatch.setattr(limits, "_NEXT_SECONDS", 0.3)
    with listening(folder, clock) as there:
        started = head("GET", "/v1/ta")[:-2]  # a head that goes on and on
        answered = head("GET", "/nowhere", "Content-Length: 1000000")  # a body of a request that has its answer
        for wire in (there.connect(started), there.connect(answered)):

            def refused(wire: socket.socket = wire) -> bool:
                try:
                    return wire.send(b"x") == 0
                except OSError:
                    return True

            assert until(refused)
        assert there.counted() == {"idle": 2}


def test_answers_that_nobody_reads_are_cut_and_held_in_small_parts(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_UNREAD_SECONDS", 0.5)
    with listening(folder, clock) as there:
        large = bytes(4 << 20)
        there.collector.release = lambda _: large  # type: ignore[assignment]
        wires = [there.connect(head("GET", f"/v1/releases/{'0' * 64}"), read=4096) for _ in range(20)]
        most = 0

        def cut() -> bool:
            nonlocal most
            held = [one.transport.get_write_buffer_size() for one in list(there.open) if one.transport is not None]
            most = max([most, *held])
            return most > 0 and not there.open

        assert until(cut)
        assert 0 < most <= 3 * limits._BUFFER
        for wire in wires:
            assert len(rest(wire)) < len(large) / 10
        assert there.counted() == {"unread": 20}
        whole = httpx.get(f"http://127.0.0.1:{there.address[1]}/v1/releases/{'0' * 64}", timeout=PATIENCE)
        assert whole.content == large


def few(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let a process have so few descriptors that clients get this number of them."""
    monkeypatch.setattr(limits, "raise_limit", lambda: limits._RESERVED + number)


def test_whoever_let_us_wait_longest_makes_room(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, 8)
    report = head("PUT", report_path(make_report(TASK, 99)), "Content-Length: 500")
    with listening(folder, clock) as there:
        for number in range(60):
            there.connect(*[[], [b"GET "], [report, b"x"]][number % 3])  # nothing, half a head, half a body
            if number % 6 == 5:
                assert there.put(number).status_code == 201
            assert len(there.open) <= 8 + limits.AT_ONCE
        assert until(lambda: len(there.open) <= 8)
        found = there.counted()
        assert found["replaced"] >= 60 - 8
        assert set(found) == {"replaced"}


def test_when_all_are_being_served_the_next_is_told(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, 2)
    stopped, go_on, write = [], threading.Event(), Writer.write

    async def slow(writer: Writer, arrivals: Any) -> list[str]:
        stopped.append(1)
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return await write(writer, arrivals)

    monkeypatch.setattr(Writer, "write", slow)
    with listening(folder, clock, retry_after=17) as there:
        threads = [threading.Thread(target=lambda n=n: statuses.append(there.put(n).status_code)) for n in (1, 2)]  # type: ignore[misc]
        statuses: list[int] = []
        for thread in threads:
            thread.start()
        assert until(lambda: len(stopped) == 2)
        try:
            refused = there.put(3)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "17")
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["type"] == "urn:hushquery:problem:crowded"
            assert refused.headers["connection"] == "close"

            def trouble() -> str | None:
                return _trouble(socket.AF_INET, there.address)

            from fastapi.testclient import TestClient

            admin = TestClient(make_admin(there.collector.store, public=trouble), base_url="http://127.0.0.1")
            answer = admin.get("/readyz")
            assert (answer.status_code, answer.text) == (503, "more connections are open than can be served\n")
            go_on.set()
            for thread in threads:
                thread.join()
            assert statuses == [201, 201]
            assert admin.get("/readyz").status_code == 200
        finally:
            go_on.set()
    assert trouble() == "the public listener does not answer"


def test_what_is_no_http_is_counted_and_not_written_down(
    folder: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        printed(folder / "printed.txt") as shown,
        caplog.at_level(logging.DEBUG),
        listening(folder, clock) as there,
    ):
        for said in (b"\x16\x03\x01\x02\x00", b"GET / HTTX/1.1\r\n\r\n", b"SECRET\r\n\r\n", head("GET", "/", "A B: c")):
            answer = rest(there.connect(said, b"\r\n\r\n"))
            assert answer.startswith(b"HTTP/1.1 400")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "urn:hushquery:problem:malformed"
        body = head("PUT", report_path(make_report(TASK)), "Transfer-Encoding: chunked") + b"zz\r\n"
        assert rest(there.connect(body))[:12] == b"HTTP/1.1 400"
        upgrade = head("GET", "/nowhere", "Connection: Upgrade", "Upgrade: h2c")
        assert there.connect(upgrade).recv(12) == b"HTTP/1.1 404"
        assert there.counted() == {"not-http": 5}
        assert 'hushquery_connections_total{outcome="not-http"} 5' in metrics(there.collector.store)
    assert "SECRET" not in caplog.text
    written = [one for one in caplog.records if one.name.startswith(("uvicorn", "hushquery"))]
    assert [one.getMessage() for one in written if one.levelno >= logging.WARNING] == []
    assert shown.read_text("utf-8") == ""


def test_a_failed_accept_is_counted_and_not_written_down(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []

    async def fail() -> None:
        Connections(counted.append).watch_loop()
        loop = asyncio.get_running_loop()
        for _ in range(1000):
            loop.call_exception_handler({"message": "x", "exception": OSError(24, "Too many open files")})
        loop.call_exception_handler({"message": "SECRET", "exception": ValueError("SECRET")})

    asyncio.run(fail())
    assert counted == ["no-descriptor"] * 1000
    assert [record.getMessage() for record in caplog.records] == ["the event loop met an error: ValueError"]


def test_idle_connections_stop_neither_listener_where_descriptors_are_few(folder: Path) -> None:
    """By the numbers of `ulimit -n`: clients get what the store and the operator's listener do not need."""
    (folder / "task.toml").write_text(SETTING)
    limit = limits._RESERVED + 100
    server = Server(str(folder / "collector.db"), folder, folder / "task.toml", descriptors=limit)
    with ExitStack() as held:
        try:
            report = make_report(TASK, 1, time=time.time())
            for _ in range(limit + 50):
                held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            answer = httpx.put(
                server.address + report_path(report), content=report.to_bytes(), headers=BINARY, timeout=PATIENCE
            )
            assert answer.status_code == 201
            assert until(lambda: httpx.get(f"{server.admin}/readyz", timeout=PATIENCE).text == "ready\n")
            assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < limit
            assert server.log.read_text() == ""
        finally:
            server.stop()


def test_the_limit_on_descriptors_is_raised(folder: Path) -> None:
    (folder / "task.toml").write_text(SETTING)
    server = Server(str(folder / "collector.db"), folder, folder / "task.toml", descriptors="-S 256")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert hard > 256
    server.stop()


def test_addresses_are_told_once_they_answer(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts the collector may send the first request at once; where the start fails nothing is told."""
    may_start, asked, told = threading.Event(), threading.Event(), []
    start, servers = Collector.start, []

    def slow(collector: Collector) -> None:
        asked.set()
        assert may_start.wait(PATIENCE)
        start(collector)

    def ready(public: str, admin: str | None) -> None:
        told.append(httpx.get(f"{public}/v1/tasks").status_code)
        told.append(httpx.get(f"{admin}/healthz").status_code)

    init = uvicorn.Server.__init__
    monkeypatch.setattr(
        uvicorn.Server, "__init__", lambda server, config: servers.append(server) or init(server, config)
    )  # type: ignore[func-returns-value]
    monkeypatch.setattr(Collector, "start", slow)
    settings = settings_for(str(folder / "collector.db"), folder, SETTING)
    thread = threading.Thread(target=serve.run, args=[settings], kwargs={"port": 0, "admin_port": 0, "ready": ready})
    thread.start()
    assert asked.wait(PATIENCE)
    time.sleep(0.2)  # long enough for a hasty one
    assert told == []
    may_start.set()
    assert until(lambda: len(told) == 2)
    assert told == [200, 200]
    for server in servers:
        server.should_exit = True
    thread.join(PATIENCE)
    assert not thread.is_alive()
