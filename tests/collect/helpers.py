"""What tests of the collector share: tasks, reports, a clock, a fake of the hybrid's work, a collector in memory."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from hushquery.collect.collector import Collector, Settings
from hushquery.collect.epochs.epochs import Epoch, reports_of
from hushquery.collect.http.app import make_app
from hushquery.collect.http.ingest import write_id
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault
from hushquery.local.configuration import Configuration
from hushquery.local.report import Report
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task

NOW = 1_790_000_000.0

SETTING = """
[task]
name = "theme"
population = "app users"
kind = "setting"
domain = ["dark", "light", "system"]
[client]
epsilon = 1
lifetime_epsilon = 16
[collect]
min_batch = 3
origins = ["https://app.example.org"]
"""

WEEKLY = SETTING.replace('kind = "setting"', 'kind = "setting"\nperiod = "7d"')

SEARCHES = """
[task]
name = "searches"
population = "browser users"
period = "7d"
[optin]
epsilon = 4
delta = 1e-5
records_per_user = 2
[client]
epsilon = 4
records_per_user = 2
lifetime_epsilon = 16
[head]
size = 5
[collect]
min_batch = 3
"""

HEAD = [["weather leeds", "https://weather.example"], ["news", "https://news.example"], ["bus times", ""]]


class Clock:
    """A clock that tells what a test says; time passes when `now` is set, and jumps when it is told to."""

    def __init__(self) -> None:
        self.now = NOW
        self._jumped = 0.0

    def steady(self) -> float:
        """Tell seconds that no jump changes."""
        return self.now - self._jumped

    def jump(self, seconds: float) -> None:
        """Be set forward or back."""
        self.now += seconds
        self._jumped += seconds

    def __call__(self) -> float:
        return self.now


def make_report(task: Task, number: int = 0, *, time: float = NOW, head: Any = None, cell: int = 0) -> Report:
    """Make the report of a client; another number is another client."""
    configuration = Configuration.of(task, head)
    oracle = configuration.oracle
    payload = oracle.pack(oracle.randomize(cell, SeededBits(number)))
    return Report(number.to_bytes(16, "big"), task.digest, configuration.digest, task.truncate(time), payload)


@dataclass(frozen=True)
class FakeHead:
    """What becomes of opt-in records, faked: a head list, and what is published beside it."""

    records: Sequence[Sequence[str]]
    optin: Mapping[str, Any]

    def to_json(self) -> Mapping[str, Any]:
        return self.optin


class FakeWork:
    """The hybrid's work, faked: counts how often each move was paid for and computed."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self.store, self.vault = store, vault
        self.paid: list[str] = []
        self.calls: list[str] = []
        self.seen: list[list[list[str]]] = []
        self.fail_at: str | None = None

    def _pay(self, epoch: Epoch) -> None:
        self.calls.append(str(epoch.moving))
        if epoch.key not in self.paid:
            self.paid.append(epoch.key)
        if self.fail_at == epoch.moving:
            self.fail_at = None
            raise Crash

    def publish_head(self, epoch: Epoch) -> FakeHead:
        self._pay(epoch)
        self.seen = [records for _, records in self.vault.records(epoch)]
        return FakeHead(HEAD, {"users": len(self.seen)})

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        self._pay(epoch)
        return {"reports": sum(1 for _ in reports_of(self.store, epoch)), "estimates": []}

    def release(self, epoch: Epoch, candidates: Sequence[str] | None = None) -> bytes:
        del candidates
        self._pay(epoch)
        return json.dumps({"epoch": epoch.number, "reports": epoch.reports}).encode()


class Crash(BaseException):
    """What a test raises where a process would die."""


_files = itertools.count()


def settings_for(url: str, folder: Path, *tasks: str, **more: Any) -> Settings:
    """Write task files, and give the settings of a collector that is moved by hand."""
    paths = []
    for text in tasks:
        path = folder / f"task-{next(_files)}.toml"
        path.write_text(text)
        paths.append(str(path))
    given = {
        "tick_seconds": 0,
        "store_seconds": 60.0,
        "keys": str(folder / "keys"),
        "ledger": str(folder / "ledger.db"),
        **more,
    }
    return Settings(tasks=tuple(paths), store=url, **given)


@contextmanager
def running(settings: Settings, clock: Clock, work: Any = None) -> Iterator[tuple[TestClient, Collector]]:
    """Run the application in this process."""
    app = make_app(settings, work=work, clock=clock, steady=clock.steady)
    with TestClient(app, base_url="http://collect.example.org", raise_server_exceptions=True) as client:
        yield client, app.state.collector


def stored_ids(store: Store) -> list[bytes]:
    """Read the ids of all reports that a store knows, of those that wait to be counted and of those that are."""
    with store.read() as connection:
        names = [name for name in sa.inspect(connection).get_table_names() if "_reports_" in name or "_known" in name]
        found = [connection.exec_driver_sql(f'SELECT id FROM "{name}"').scalars().all() for name in names]  # noqa: S608
    return [bytes(one) for ids in found for one in ids]


def waiting_reports(store: Store) -> int:
    """Count the reports that a store still has whole."""
    with store.read() as connection:
        names = [name for name in sa.inspect(connection).get_table_names() if "_reports_" in name]
        counts = [connection.exec_driver_sql(f'SELECT count(*) FROM "{name}"') for name in names]  # noqa: S608
        return sum(int(count.scalar_one()) for count in counts)


def drain(collector: Collector) -> None:
    """Let the writer write all that waits, counters included, and stop."""
    assert collector.writer is not None
    collector.writer.close()


def report_path(report: Report) -> str:
    return f"/v1/tasks/{report.task.hex()}/reports/{write_id(report.id)}"


BINARY = {"Content-Type": "application/octet-stream"}


def put(client: Any, report: Report, **headers: str) -> Any:
    return client.put(report_path(report), content=report.to_bytes(), headers={**BINARY, **headers})


def random_id() -> bytes:
    return os.urandom(16)


@contextmanager
def printed(path: Path) -> Iterator[Path]:
    """Write down what this process prints, by Python or below it; pytest's capfd lost its own file here at times."""
    with path.open("w+", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        kept = [os.dup(number) for number in (1, 2)]
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield path
        finally:
            for number, handle in zip((1, 2), kept, strict=True):
                os.dup2(handle, number)
                os.close(handle)
