"""``hq.report``, the one call of a program: against collectors that lie, fail and wait, and with other processes."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import hushquery as hq
from commands import hushquery
from hushquery.local.configuration import Configuration
from hushquery.local.device.send import FIRST_PAUSE, NEXT_PAUSE
from hushquery.local.report import Report
from local.client_workers import PROCESSES, report_to

NOW = 1_790_000_000.0
WEEK = 7 * 86_400
WISH = "a very private wish"


def text_of(kind: str = "setting", epsilon: str = "1", lifetime: str = "2", more: str = "") -> str:
    what = {
        "setting": 'domain = ["dark", "light", "system"]',
        "number": "highest = 100",
        "searches": 'domain = [["news", "https://news.example"], ["maps", ""]]',
    }[kind]
    oracle = 'oracle = "onebit"\nstep = 100\n' if kind == "number" else ""
    return (
        f'[task]\nname = "t"\npopulation = "users"\nkind = "{kind}"\nperiod = "7d"\n{what}\n'
        f"[client]\nepsilon = {epsilon}\nlifetime_epsilon = {lifetime}\n{oracle}{more}"
    )


TASK = hq.Task.loads(text_of())


class Collector(ThreadingHTTPServer):
    """Serves a task as a collector does, and answers uploads with what a test says."""

    def __init__(self, task: hq.Task = TASK) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.document: dict[str, Any] = {
            "task": task.to_json(),
            "configuration": json.loads(Configuration.of(task, None).canonical()),
            "lists": [],
            "epoch": {"takes_reports": True},
        }
        self.redirect, self.trickle, self.status = "", False, 201
        self.asked: list[str] = []
        self.bodies: list[bytes] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Collector

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self._answer(302 if self.server.redirect else 200, json.dumps(self.server.document).encode())

    def do_PUT(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self.server.status, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if self.server.redirect:
            self.send_header("Location", self.server.redirect)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            for n in range(len(body) if self.server.trickle else 1):
                self.wfile.write(body[n : n + 1] if self.server.trickle else body)
                if self.server.trickle:
                    time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    yield from _run(Collector())


def _run(server: Collector) -> Iterator[Collector]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class Device:
    """A program on a device: its state file, and a clock that a test sets."""

    def __init__(self, folder: Path, address: str, task: hq.Task = TASK) -> None:
        self.state, self.address, self.task, self.now = folder / "client.db", address, task, NOW

    def report(self, value: Any, **more: Any) -> hq.Reported:
        given = {"task": self.task.id, "state": self.state, "clock": lambda: self.now, **more}
        return hq.report(self.address, value, **given)

    @property
    def client(self) -> hq.Client:
        return hq.Client(self.task, self.state, clock=lambda: self.now)


@pytest.fixture
def device(tmp_path: Path, collector: Collector) -> Device:
    return Device(tmp_path, collector.address)


def test_one_call_draws_once_sends_and_says_what_it_cost(device: Device, collector: Collector) -> None:
    done = device.report("dark")
    assert (done.outcome, done.cost, done.spent, done.left) == ("stored", 1, 1, 1)
    assert collector.bodies == [done.reports[0].to_bytes()]
    assert Report.from_bytes(collector.bodies[0]).task == TASK.digest
    assert stat.S_IMODE(device.state.stat().st_mode) == 0o600
    for value in ("dark", "light"):  # the first value of a period decides
        again = device.report(value)
        assert (again.outcome, again.cost, again.reports) == ("before", 0, done.reports)
    assert len(collector.bodies) == 1


def test_a_repeated_value_is_free_another_costs_and_after_the_lifetime_nothing_is_told(
    device: Device, collector: Collector
) -> None:
    seen = []
    for value in ("dark", "dark", "light", "system", "system", "dark"):
        done = device.report(value)
        assert done.outcome == "stored"
        seen.append((done.cost, done.left))
        device.now += WEEK
    assert seen == [(1, 1), (0, 1), (1, 0), (0, 0), (0, 0), (0, 0)]
    payloads = [Report.from_bytes(body).payload for body in collector.bodies]
    assert payloads[0] == payloads[1] == payloads[5]
    assert payloads[3] == payloads[4]  # drawn once, from coins that depend on no value
    assert device.client.account().spent == Fraction(2)


def test_without_an_id_or_with_half_of_one_nobody_is_asked(device: Device, collector: Collector) -> None:
    with pytest.raises(hq.UsageError, match="hushquery task id"):
        device.report("dark", task=None)
    for half in (TASK.id[:12], TASK.id.upper(), "", TASK.id + "/../" + TASK.id, TASK.id + "\n"):
        with pytest.raises(hq.UsageError, match="64 hexadecimal digits"):
            device.report("dark", task=half)
    assert collector.asked == []


def another_epsilon(document: Any) -> None:
    document["task"] = hq.Task.loads(text_of(epsilon="2")).to_json()


def another_task_whole(document: Any) -> None:
    task = hq.Task.loads(text_of(epsilon="2"))
    document |= {"task": task.to_json(), "configuration": json.loads(Configuration.of(task, None).canonical())}


def another_chance(document: Any) -> None:
    document["configuration"]["oracle"]["lie"] -= 1


def no_promise(document: Any) -> None:
    document["epoch"]["takes_reports"] = 1


@pytest.mark.parametrize("lie", [another_epsilon, another_task_whole, another_chance, no_promise])
def test_a_collector_that_serves_something_else_gets_nothing(device: Device, collector: Collector, lie: Any) -> None:
    lie(collector.document)
    with pytest.raises(hq.DataError, match="not the task of this id") as refused:
        device.report(WISH)
    assert WISH not in str(refused.value)
    assert collector.bodies == []
    assert device.client.account().spent == 0
    assert device.client.outbox() == []


def test_redirects_are_not_followed(device: Device, collector: Collector, tmp_path: Path) -> None:
    for other in _run(Collector()):
        collector.redirect = f"{other.address}/v1/tasks/{TASK.id}"
        with pytest.raises(hq.Unavailable, match="does not serve"):
            device.report("dark")
        collector.redirect = ""
        collector.status = 307
        assert device.report("dark").outcome == "later"
        assert (other.asked, other.bodies) == ([], [])


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_failing_collector_gets_the_same_bytes_later(device: Device, collector: Collector, status: int) -> None:
    collector.status = status
    first = device.report("dark")
    assert (first.outcome, first.cost) == ("later", 1)
    for pause in (FIRST_PAUSE, NEXT_PAUSE):
        device.now += pause - 1
        assert device.report("light").outcome == "later"
        device.now += 1  # a program that starts again waits as long as one that runs on
        assert device.report("dark").outcome == "later"
    assert len(collector.bodies) == 3
    device.now += NEXT_PAUSE
    collector.status = 201
    done = device.report("dark")
    assert (done.outcome, done.cost, done.reports) == ("stored", 0, first.reports)
    assert set(collector.bodies) == {first.reports[0].to_bytes()}


def test_it_waits_where_it_may(device: Device, collector: Collector) -> None:
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        device.now += seconds
        if len(slept) == 2:
            collector.status = 200

    collector.status = 503
    done = device.report("dark", wait=3600, sleep=sleep)
    assert (done.outcome, slept) == ("stored", [FIRST_PAUSE, NEXT_PAUSE])
    assert set(collector.bodies) == {done.reports[0].to_bytes()}
    collector.status = 503
    device.now += WEEK
    slept.clear()
    assert device.report("dark", wait=FIRST_PAUSE - 1, sleep=sleep).outcome == "later"
    assert slept == []


def test_a_clock_that_was_set_back_makes_no_endless_pause(device: Device, collector: Collector) -> None:
    collector.status = 503
    device.now += 50 * WEEK
    device.report("dark")
    collector.status, device.now = 201, NOW
    assert device.report("dark").outcome == "stored"


def test_a_collector_that_trickles_is_cut_off(device: Device, collector: Collector) -> None:
    collector.trickle = True
    with pytest.raises((hq.Unavailable, hq.DataError)):
        device.report("dark", timeout=0.5)
    assert collector.bodies == []
    assert device.client.account().spent == 0


def test_refused_for_good_is_told_and_not_sent_again(device: Device, collector: Collector) -> None:
    collector.status = 422
    assert device.report("dark").outcome == "refused"
    assert device.report("dark").outcome == "before"
    assert len(collector.bodies) == 1


def test_nothing_is_drawn_where_the_collector_takes_nothing(device: Device, collector: Collector) -> None:
    collector.document["epoch"] = None
    with pytest.raises(hq.NotReady, match="takes no reports"):
        device.report("dark")
    assert device.client.account().spent == 0


def test_a_state_that_can_not_be_written_sends_nothing(device: Device, collector: Collector, tmp_path: Path) -> None:
    for state in (tmp_path / "no" / "client.db", tmp_path, Path("/proc/client.db")):
        with pytest.raises(hq.HushqueryError) as refused:
            device.report(WISH, state=state)
        assert WISH not in str(refused.value)
    assert (collector.asked, collector.bodies) == ([], [])


def test_by_default_the_state_is_in_a_folder_of_the_person(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert device.report("dark", state=None).outcome == "stored"
    file = tmp_path / "data" / "hushquery" / "client.db"
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert device.report("light", state=None).outcome == "before"


def test_a_value_that_is_refused_costs_nothing_and_is_not_shown(device: Device, tmp_path: Path) -> None:
    task = hq.Task.loads(text_of(more='unknown = "refuse"\n'))
    for refusing in _run(Collector(task)):
        other = Device(tmp_path, refusing.address, task)
        with pytest.raises(hq.DataError) as refused:
            other.report(WISH)
        assert WISH not in str(refused.value)
        assert refusing.bodies == []
    assert WISH not in repr(device.report(WISH))
    assert WISH.encode() not in device.state.read_bytes()


@pytest.mark.parametrize(
    ("kind", "value"), [("number", 37), ("number", "37"), ("searches", ("news", "https://news.example"))]
)
def test_the_other_kinds(kind: str, value: Any, tmp_path: Path) -> None:
    task = hq.Task.loads(text_of(kind))
    for other in _run(Collector(task)):
        done = Device(tmp_path, other.address, task).report(value)
        assert (done.outcome, len(other.bodies)) == ("stored", 1)
        assert repr(done) == "Reported(stored, epsilon 1 spent now, 1 of 2 left)"
        assert done.reports[0].payload.hex() not in repr(done)


def test_processes_at_once_give_one_report_and_pay_once(device: Device, collector: Collector) -> None:
    answers = PROCESSES.Queue()
    shared = (collector.address, TASK.id, str(device.state))
    racers = [PROCESSES.Process(target=report_to, args=(*shared, value, answers)) for value in ("dark", "light") * 2]
    for racer in racers:
        racer.start()
    made = [answers.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    answers.close()
    assert {body for body, _, _ in made} == set(collector.bodies)
    assert len(set(collector.bodies)) == 1
    assert {outcome for _, outcome, _ in made} <= {"stored", "before"}
    assert sum(cost for _, _, cost in made) == 1
    assert device.client.account().spent == 1


def test_threads_at_once(device: Device, collector: Collector) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(device.report, ["dark", "light"] * 4))
    assert len({done.reports for done in made}) == len(set(collector.bodies)) == 1
    assert sum(done.cost for done in made) == 1


def test_the_command(device: Device, collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(text_of())
    assert hushquery("task", "id", file).stdout.strip() == TASK.id
    words = ("report", collector.address, "-", "--task", TASK.id, "--state", device.state)
    done = hushquery(*words, "--json", stdin=b"dark\n")
    assert json.loads(done.stdout)["outcome"] == "stored"
    again = hushquery(*words, stdin=b"light\n")
    assert (again.returncode, again.stdout.startswith("nothing to send")) == (0, True)
    collector.status = 503
    later = hushquery(*words, "--client", "another", stdin=b"dark\n")
    assert (later.returncode, "same bytes" in later.stdout) == (75, True)
    missing = hushquery("report", collector.address, WISH)
    assert missing.returncode == 2
    assert "hushquery task id" in missing.stderr
    assert WISH not in missing.stderr + missing.stdout
