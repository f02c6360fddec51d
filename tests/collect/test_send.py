"""The Python client's sender: the same bytes until they are taken, pauses as stated, nothing that names a client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collect.helpers import NOW, SETTING, Clock
from hushquery.collect.http.ingest import write_id
from hushquery.errors import UsageError
from hushquery.local.device.client import Client
from hushquery.local.device.send import FIRST_PAUSE, NEXT_PAUSE, REFUSED, Sender
from hushquery.task import Task

TASK = Task.loads(SETTING)


class Collector(ThreadingHTTPServer):
    """A collector that answers as a test says, and notes what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.retry_after = 201, ""
        self.length = self.wrote = 0
        self.seen: list[tuple[str, bytes, dict[str, str]]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Collector

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, body, dict(self.headers)))
        self.send_response(self.server.status)
        if self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.send_header("Content-Length", str(self.server.length))
        self.end_headers()
        with suppress(OSError):
            for _ in range(self.server.length >> 20):
                self.wfile.write(bytes(1 << 20))
                self.server.wrote += 1 << 20

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def client(tmp_path: Path, clock: Clock) -> Client:
    made = Client(TASK, tmp_path / "client.db", clock=clock)
    made.report("dark")
    return made


def test_what_is_acknowledged_leaves_the_outbox(collector: Collector, client: Client, clock: Clock) -> None:
    (report,) = client.outbox()
    with Sender(collector.address, clock=clock) as sender:
        (delivery,) = sender.send(client)
        assert (delivery.outcome, delivery.status) == ("stored", 201)
        assert sender.send(client) == []
    ((path, body, headers),) = collector.seen
    assert path == f"/v1/tasks/{TASK.id}/reports/{write_id(report.id)}"
    assert body == report.to_bytes()
    assert set(headers) == {"Host", "Accept-Encoding", "Content-Length", "Content-Type"}  # nothing that names anybody


@pytest.mark.parametrize("status", sorted(REFUSED))
def test_what_is_refused_for_good_is_not_sent_again(
    collector: Collector, client: Client, clock: Clock, status: int
) -> None:
    collector.status = status
    with Sender(collector.address, clock=clock) as sender:
        assert [one.outcome for one in sender.send(client)] == ["refused"]
        assert client.outbox() == []


@pytest.mark.parametrize("status", [401, 404, 408, 425, 429, 500, 503, 307])
def test_all_else_is_sent_again_with_the_same_bytes_and_time(
    collector: Collector, client: Client, clock: Clock, status: int
) -> None:
    (report,) = client.outbox()
    collector.status = status
    with Sender(collector.address, clock=clock) as sender:
        for pause in (FIRST_PAUSE, NEXT_PAUSE, NEXT_PAUSE):
            assert [one.outcome for one in sender.send(client)] == ["later"]
            clock.now += pause - 1
            assert sender.send(client) == []  # it is left alone
            clock.now += 1
        collector.status = 200
        assert [one.outcome for one in sender.send(client)] == ["stored"]
    assert {body for _, body, _ in collector.seen} == {report.to_bytes()}
    assert len(collector.seen) == 4
    assert report.time <= NOW  # as it was made, hours ago


@pytest.mark.parametrize("said", ["1", "7200", "9999999999999999999999", "soon", "Mon, 21 Sep 2026 14:15:00 GMT"])
def test_when_to_come_back_is_not_the_collectors_to_say(
    collector: Collector, client: Client, clock: Clock, said: str
) -> None:
    """A time of its own for each device would tell the collector which one comes back."""
    collector.status, collector.retry_after = 429, said
    with Sender(collector.address, clock=clock) as sender:
        sender.send(client)
        clock.now += FIRST_PAUSE - 1
        assert sender.send(client) == []
        clock.now += 1
        assert len(sender.send(client)) == 1


def test_nobody_there(client: Client, clock: Clock) -> None:
    with Sender("http://127.0.0.1:1", clock=clock) as sender:
        (delivery,) = sender.send(client)
    assert (delivery.outcome, delivery.status) == ("later", 0)
    assert len(client.outbox()) == 1


@pytest.mark.parametrize("address", ["", "collect.example.org", "ftp://collect.example.org", "http://", "http://a/?b"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError, match="address"):
        Sender(address)


def test_a_long_answer_is_not_read(collector: Collector, client: Client, clock: Clock) -> None:
    """A collector gives a status; one that pours out gigabytes behind it gets rid of none of them."""
    collector.length = 1 << 30
    with Sender(collector.address, clock=clock) as sender:
        (delivery,) = sender.send(client)
    assert (delivery.outcome, client.outbox()) == ("stored", [])
    assert collector.wrote < 64 << 20


@pytest.mark.parametrize("address", ["http://host:port", "http://host:99999", "http://[::1"])
def test_an_address_that_can_not_be_read_is_told(address: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        Sender(address)
