"""The Python client fetches its task, and uses nothing that is not the task of its id."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collect.helpers import HEAD, SEARCHES, SETTING, Clock, running, settings_for
from collect.test_records import advance, give, hybrid
from hushquery.cli.app import app
from hushquery.errors import DataError, NotReady, Unavailable, UsageError
from hushquery.local.device.client import Client
from hushquery.local.device.fetch import fetch_task
from hushquery.task import Task

TASK = Task.loads(SEARCHES)


class Mirror(ThreadingHTTPServer):
    """Serves what a test says at every address."""

    status, body = 200, b""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/below"


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        assert self.path.startswith("/below/v1/tasks/")
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    server = Mirror(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a real collector serves: a task with a list of its own, and one before and after its head list."""
    folder, found = tmp_path_factory.mktemp("served"), {}
    settings = settings_for(str(folder / "collector.db"), folder, SEARCHES, SETTING)
    with running(settings, Clock()) as (client, collector):
        hybrid(collector)
        assert give(client, collector.tokens.new(1)).status_code == 201
        found["setting"] = client.get(f"/v1/tasks/{Task.loads(SETTING).id}").content
        found["early"] = client.get(f"/v1/tasks/{TASK.id}").content
        advance(collector)
        advance(collector)
        found["head"] = client.get(f"/v1/tasks/{TASK.id}").content
    return found


def test_a_task_with_a_list_of_its_own(mirror: Mirror, served: dict[str, bytes]) -> None:
    mirror.body = served["setting"]
    found = fetch_task(mirror.address, Task.loads(SETTING).id)
    assert (found.task, found.head, found.takes_reports) == (Task.loads(SETTING), None, True)


def test_a_head_list_comes_along(mirror: Mirror, served: dict[str, bytes], tmp_path: Path) -> None:
    mirror.body = served["early"]
    with pytest.raises(NotReady, match="not published"):
        fetch_task(mirror.address, TASK.id)
    mirror.body = served["head"]
    found = fetch_task(mirror.address, TASK.id)
    assert found.head == tuple(map(tuple, HEAD))
    assert found.takes_reports
    client = Client(found.task, tmp_path / "client.db", clock=Clock(), head=found.head)
    report = client.report("bus times")
    assert report is not None
    assert report.configuration.hex() == json.loads(served["head"])["configuration_hash"]


def more_epsilon(document: Any) -> None:
    document["task"]["client"]["epsilon"] = "8"


def another_chance(document: Any) -> None:
    document["configuration"]["oracle"]["lie"] += 1


def no_log(document: Any) -> None:
    del document["lists"]


def no_list(document: Any) -> None:
    document["configuration"]["domain"] = 7


def no_task(document: Any) -> None:
    document["task"] = {"task": "x"}


def no_answer(document: Any) -> None:
    document["epoch"]["takes_reports"] = "no"


@pytest.mark.parametrize("change", [more_epsilon, another_chance, no_list, no_task, no_answer, no_log])
def test_what_is_not_the_task_is_not_used(
    mirror: Mirror, served: dict[str, bytes], change: Callable[[Any], None]
) -> None:
    document = json.loads(served["head"])
    change(document)
    mirror.body = json.dumps(document).encode()
    with pytest.raises(DataError, match="not the task of this id"):
        fetch_task(mirror.address, TASK.id)


def test_a_list_that_is_not_the_last_of_the_log_is_not_used(mirror: Mirror, served: dict[str, bytes]) -> None:
    document = json.loads(served["head"])
    document["lists"][0][1] = "ab" * 32
    mirror.body = json.dumps(document).encode()
    with pytest.raises(DataError, match="not the last one of the collector's log"):
        fetch_task(mirror.address, TASK.id)


def test_a_log_goes_on_from_where_the_device_saw_it(mirror: Mirror, served: dict[str, bytes], tmp_path: Path) -> None:
    document = json.loads(served["head"])
    [[epoch, digest]] = document["lists"]
    state, other = tmp_path / "client.db", "ab" * 32

    def shown(*lists: list[Any]) -> str:
        mirror.body = json.dumps({**document, "lists": lists}).encode()
        return fetch_task(mirror.address, TASK.id, state=state).log

    first = shown([epoch, digest])
    assert first == shown([epoch, digest])
    longer = shown([epoch, digest], [epoch + 1, other], [epoch + 2, digest])
    for lists in (
        ([epoch, digest],),
        ([epoch, digest], [epoch + 1, digest]),
        ([epoch, digest], [epoch + 1, digest], [epoch + 2, digest]),
        ([epoch, digest], [epoch + 2, other], [epoch + 3, digest]),
        ([epoch - 1, other], [epoch, digest], [epoch + 1, other], [epoch + 2, digest]),
    ):
        with pytest.raises(DataError, match="another than before"):
            shown(*lists)
    # Anybody can compare.
    shown([epoch, digest], [epoch + 1, other], [epoch + 2, digest])
    for expected in (first, longer):
        result = CliRunner().invoke(app, ["task", "lists", mirror.address, TASK.id, "--expect", expected, "--json"])
        assert json.loads(result.stdout)["log"] == longer
    mirror.body = json.dumps({**document, "lists": [[epoch + 2, digest]]}).encode()
    result = CliRunner().invoke(app, ["task", "lists", mirror.address, TASK.id, "--expect", first])
    assert isinstance(result.exception, DataError)
    assert "two different logs" in result.exception.what


def test_each_epoch_that_published_a_list_is_in_the_log(served: dict[str, bytes]) -> None:
    assert json.loads(served["early"])["lists"] == json.loads(served["setting"])["lists"] == []
    document = json.loads(served["head"])
    assert document["lists"] == [[document["epoch"]["number"], document["configuration_hash"]]]


@pytest.mark.parametrize("body", [b"", b"[]", b"no", b"7", b'{"task": null}', b"[" * 200_000], ids=range(6))
def test_what_is_no_task_at_all(mirror: Mirror, body: bytes) -> None:
    mirror.body = body
    with pytest.raises(DataError, match="not the task of this id"):
        fetch_task(mirror.address, TASK.id)


def test_nobody_there_and_nothing_there(mirror: Mirror) -> None:
    mirror.status = 404
    with pytest.raises(Unavailable, match="does not serve"):
        fetch_task(mirror.address, TASK.id)
    with pytest.raises(Unavailable, match="can't be reached"):
        fetch_task("http://127.0.0.1:1", TASK.id)
    with pytest.raises(UsageError, match="no address"):
        fetch_task("ftp://collect.example.org", TASK.id)
