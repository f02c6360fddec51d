"""``hushquery collect upload``: an opt-in log arrives once, whatever is killed, repeated, changed or refused."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collect.commands import run as collect
from collect.helpers import SEARCHES
from collect.servers import Server
from commands import hushquery
from hushquery.cli import upload as module
from hushquery.collect.epochs.epochs import epochs_of
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault
from hushquery.task import Task

TASK = Task.loads(SEARCHES.replace('period = "7d"\n', ""))
WISH = "a very private wish"
LOG = f"""user,query,url
ann,{WISH},https://doctor.example
ann,news,
ann,bus times,
ann,weather leeds,
bob,news,https://news.example
bob,news,https://news.example
cid,*,
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("upload")
    (folder / "task.toml").write_text(SEARCHES.replace('period = "7d"\n', ""))
    running = Server(str(folder / "collector.db"), folder, folder / "task.toml", "--tick", "0")
    yield folder, running.address
    running.kill()


class Giver:
    """A steward with a token and a log."""

    def __init__(self, folder: Path, address: str, *, shared: bool = True, tmp: Path) -> None:
        self.folder, self.address, self.log, self.token = folder, address, tmp / "optin.csv", tmp / "token.txt"
        self.log.write_text(LOG)
        made = collect("tokens", "new", "--store", str(folder / "collector.db"), *(["--shared"] if shared else []))
        self.token.write_text(made)
        self.token.chmod(0o600)

    def run(self, *more: str, task: str = TASK.id) -> tuple[int, str, str]:
        done = hushquery(
            *(
                "collect",
                "upload",
                self.log,
                "--task",
                task,
                "--token-file",
                self.token,
                "--server",
                self.address,
                *more,
            )
        )
        assert WISH not in done.stdout + done.stderr
        assert self.token.read_text().strip() not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    def told(self) -> dict[str, Any]:
        code, out, _ = self.run("--json")
        return {"code": code, **json.loads(out)}


@pytest.fixture
def giver(server: tuple[Path, str], tmp_path: Path) -> Giver:
    return Giver(*server, tmp=tmp_path)


def stored(folder: Path) -> list[list[list[str]]]:
    """Open what the collector has sealed."""
    with_store = Store.open(str(folder / "collector.db"), create=False)
    try:
        (epoch,) = epochs_of(with_store, TASK, 1)
        return [records for _, records in Vault(with_store, folder / "keys").records(epoch)]
    finally:
        with_store.close()


def test_each_user_gives_once_within_the_bound_however_often_it_runs(giver: Giver) -> None:
    before = Counter(map(json.dumps, stored(giver.folder)))
    first = giver.told()
    assert (first["code"], first["users"], first["accepted"], first["refused"]) == (0, 3, 3, {})
    again = giver.told()
    assert (again["accepted"], again["repeated"]) == (0, 3)
    new = [json.loads(one) for one in (Counter(map(json.dumps, stored(giver.folder))) - before).elements()]
    # At most two distinct records each, and who has nothing that a list could hold takes part with nothing.
    assert sorted(map(len, new)) == [0, 1, 2]
    assert [["news", "https://news.example"]] in new
    assert giver.run()[:2] == (0, "3 users: 0 accepted, 3 were there already\n")


def test_a_log_that_changed_gives_nobody_a_second_time(giver: Giver) -> None:
    giver.told()
    giver.log.write_text(LOG.replace("bob,news", "bob,maps").replace("cid,*", "dan,news"))
    changed = giver.told()
    assert (changed["code"], changed["accepted"], changed["repeated"]) == (4, 1, 1)
    assert changed["refused"] == {"other-bytes": 1}


def test_a_personal_token_gives_for_one_person(server: tuple[Path, str], tmp_path: Path) -> None:
    personal = Giver(*server, shared=False, tmp=tmp_path)
    told = personal.told()
    assert (told["code"], told["accepted"], told["refused"]) == (4, 1, {"contributed": 2})
    personal.log.write_text("user,query\nme,news\n")
    assert personal.told()["accepted"] == 0


def test_half_an_upload_goes_on(giver: Giver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had been killed after two users."""
    real, given = module._uploads, []

    def fewer(*arguments: Any) -> Any:
        given.append(real(*arguments))
        return given[-1][:2]

    monkeypatch.setattr(module, "_uploads", fewer)
    assert giver.told()["accepted"] == 2
    monkeypatch.undo()
    told = giver.told()
    assert (told["accepted"], told["repeated"]) == (1, 2)


def test_what_it_refuses_before_a_row_is_read(giver: Giver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_uploads", pytest.fail)
    for task in (TASK.id[:12], "0" * 64):
        assert giver.run(task=task)[0] in (2, 69)
    address, giver.address = giver.address, "http://collect.example.org"
    code, _, err = giver.run()
    assert (code, "unencrypted" in err) == (2, True)
    giver.address = address
    giver.token.write_text("two words\n")
    assert "holds no token" in giver.run()[2]
    giver.token.unlink()
    done = hushquery("collect", "upload", giver.log, "--task", TASK.id, "--token-file", giver.token)
    assert (done.returncode, "can't be read" in done.stderr) == (2, True)


def test_a_token_that_others_can_read_is_told_and_a_wrong_one_stops_it(giver: Giver) -> None:
    giver.token.chmod(0o644)
    assert "chmod 600" in giver.run()[2]
    giver.token.write_text("hq_0000000000000000.nobody")
    code, out, err = giver.run()
    assert (code, out) == (2, "")
    assert "refuses the token" in err
    assert "0 of 3 were taken" in err


class Moody(ThreadingHTTPServer):
    """Answers as a collector does, uploads with the statuses that a test gives, and then takes them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), MoodyHandler)
        self.statuses: list[int] = []
        self.seen: list[tuple[str, bytes]] = []
        self.epoch: Any = {"takes_records": True, "takes_reports": False, "number": 0}


class MoodyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Moody

    def do_GET(self) -> None:
        self._answer(200, json.dumps({"task": TASK.to_json(), "epoch": self.server.epoch}).encode())

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, body))
        status = self.server.statuses.pop() if self.server.statuses else 201
        self._answer(status, b'{"type": "urn:hushquery:problem:busy ' + WISH.encode() + b'"}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def moody(giver: Giver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moody]:
    server = Moody()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    giver.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    server.server_close()


def test_what_fails_for_now_is_sent_again_with_the_same_bytes(giver: Giver, moody: Moody) -> None:
    moody.statuses = [503, 429, 500, 408]
    told = giver.told()
    assert (told["code"], told["accepted"], told["refused"]) == (0, 3, {})
    assert len(moody.seen) == 7
    assert len(set(moody.seen)) == len({path for path, _ in moody.seen}) == 3


def test_a_collector_that_takes_nothing_is_left(giver: Giver, moody: Moody) -> None:
    moody.statuses = [503] * 1000
    told = giver.told()
    assert (told["code"], told["accepted"], told["left"], told["stopped"]["error"]) == (69, 0, 3, "Unavailable")
    moody.statuses = [418]
    assert giver.told()["refused"] == {"status 418": 1}
    moody.epoch = None
    assert giver.run()[0] == 75
