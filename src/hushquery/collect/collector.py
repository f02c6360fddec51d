"""A collector without HTTP: its settings, and the parts of one server process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

import sqlalchemy as sa

from hushquery.collect.epochs.clock import Watch, tolerance
from hushquery.collect.epochs.epochs import Epoch, EpochWork
from hushquery.collect.epochs.phases import Phases
from hushquery.collect.http.ingest import TaskCache
from hushquery.collect.http.problems import problem_of, refuse
from hushquery.collect.store.databases import FailureCounts, StoreCalls, within
from hushquery.collect.store.reports import NO_TASK, Writer
from hushquery.collect.store.schema import RELEASE
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Tokens, Vault, read_operator_key
from hushquery.core.ledger.store import default_ledger
from hushquery.errors import HushqueryError, UsageError
from hushquery.task import Task

T = TypeVar("T")

_log = logging.getLogger("hushquery.collect")
_SHORT = 4096  # a longer body is read in a thread, not in the event loop
_MOST_IN_THREAD = 64  # so many bodies may wait for that thread
_CACHED_RELEASES = 8


@dataclass(frozen=True)
class Settings:
    """The settings of a collector."""

    tasks: tuple[str, ...]  # the task files
    store: str = "collector.db"  # a path, or postgresql://...
    ledger: str = field(default_factory=default_ledger)  # the path or URL of what head lists are paid from
    keys: str = "collector-keys"  # the folder of the keys of opt-in records
    most_bytes: int | None = None  # the size limit of the store
    most_waiting: int = 20_000  # how many reports may wait to be written before uploads are refused with 429
    body_seconds: float = 20.0  # how long a body may take to arrive
    retry_after: int = 30  # the seconds in Retry-After
    store_seconds: float = 6.0  # an upload that waits longer for the store gets 503; a lookup waits a third of it
    end_seconds: float = 25.0  # how long a server may take to end, whatever the store does
    tick_seconds: float = 5.0  # how often epochs are moved by time; 0: by hand only
    optin_share: float = 0.25  # the share of a period after which its opt-in phase ends
    operator_key_file: str | None = None  # else the environment variable HUSHQUERY_OPERATOR_KEY
    failures_file: str | None = None  # where the processes of a server count failures of the store; set by `serve`

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UsageError("a collector needs a task", fix="Pass --task FILE")
        if not 0 < self.optin_share < 1:
            raise UsageError("the opt-in share of a period must be above 0 and below 1")
        if self.most_waiting < 1 or self.body_seconds <= 0 or self.retry_after < 1 or self.tick_seconds < 0:
            raise UsageError("collector limits must be positive")
        if self.store_seconds <= 0 or self.end_seconds <= 0:
            raise UsageError("--store-seconds must be positive")
        if self.most_bytes is not None and self.most_bytes < 1 << 20:
            raise UsageError("a store of less than 1 MiB can't hold anything", fix="Raise the limit")

    def load_tasks(self) -> list[Task]:
        """Read the task files, and refuse duplicates and tasks that could not be finished."""
        tasks = [Task.load(path) for path in self.tasks]
        for task in tasks:
            _check_finishable(task)
        if len({task.id for task in tasks}) < len(tasks):
            raise UsageError("duplicate task: two files define the same task", fix="Pass each task once")
        return tasks

    def to_json(self) -> str:
        """Serialize the settings for worker processes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Read the form of :meth:`to_json`."""
        data = json.loads(text)
        return cls(**{**data, "tasks": tuple(data["tasks"])})


def _check_finishable(task: Task) -> None:
    """Refuse a task whose opt-in records would be collected for nothing: no head list could be made of them."""
    if task.head is None:
        return
    if task.optin is None:
        raise UsageError(
            "a task with a [head] list needs an [optin] part to be collected",
            why="the collector builds the list from the records of opt-in users",
            fix="Add [optin], or write a domain into [task]",
        )
    if task.optin.relation != "replace-one":
        raise UsageError(
            f'the collector makes no head list under [optin] relation = "{task.optin.relation}"',
            why="the number of opt-in users would be a secret, and anybody can count uploads",
            fix='Use relation = "replace-one"',
        )


class Collector:
    """The parts of one server process; tests give it their own work, wall clock and monotonic clock."""

    def __init__(
        self,
        settings: Settings,
        work: EpochWork | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        failures = FailureCounts(settings.failures_file)
        self.store = Store.open(settings.store, most_bytes=settings.most_bytes, failures=failures)
        self.store.keep_reserve()
        tasks = settings.load_tasks()
        self.watch = Watch(self.store, tolerance(tasks), clock, steady)
        self.cache = TaskCache(self.store, tasks, self.watch, doubt=lambda: self.watch.doubt)
        self.tokens = Tokens(self.store, self.watch)
        self.vault = Vault(self.store, settings.keys, read_operator_key(settings.operator_key_file))
        self.phases = Phases(
            self.store,
            work or EpochWork(self.store, self.vault, settings.ledger),
            self.vault,
            clock=self.watch,
            watch=self.watch,
            optin_share=settings.optin_share,
        )
        if self.watch.compare() is None:  # else the current period is unknown
            for task_row, task in self.cache.tasks.items():
                self.phases.ensure(task, task_row)
        self.cache.refresh()
        for epoch in self.cache.epochs():
            if epoch.takes_records:
                self._check_key(epoch)
        self.writer: Writer | None = None
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._calls = StoreCalls()
        self._refreshing = asyncio.Lock()
        self._reader = ThreadPoolExecutor(1, "hushquery-reader")
        self._in_thread = 0
        self.release = lru_cache(_CACHED_RELEASES)(self._release)  # all who read a release now share its bytes
        self._documents: dict[int, tuple[Epoch | None, list[tuple[int, str]], bytes, str]] = {}

    def start(self) -> None:
        """Start the writer and the ticker."""
        self.writer = Writer(self.store, self.settings.most_waiting, self.settings.store_seconds)
        self._ticker = threading.Thread(target=self._tick, name="hushquery-ticker", daemon=True)
        self._ticker.start()

    def _check_key(self, epoch: Epoch) -> None:
        """Log at once that records can't be taken; reports can, so the server starts all the same."""
        try:
            self.vault.check(epoch)
        except HushqueryError as error:
            _log.error("opt-in records of epoch %d are refused: %s: %s", epoch.number, error.what, error.why)

    def stop(self) -> None:
        """Write what waits, then close the store; a move that takes longer is resumed at the next start."""
        self._stop.set()
        if self.writer is not None:
            self.writer.close()
        if self._ticker is not None:
            self._ticker.join(self.settings.store_seconds)
        self._reader.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def _tick(self) -> None:
        """Compare the clocks often enough to notice a jump, and move epochs as often as the settings say."""
        tick = self.settings.tick_seconds or math.inf
        moved = time.monotonic()
        while not self._stop.wait(min(tick, self.watch.pause)):
            if time.monotonic() - moved >= tick:
                moved = time.monotonic()
                self.phases.tick(self.cache.tasks)
            else:
                with suppress(HushqueryError):  # the store is away: the next time will do
                    self.watch.compare()

    def row_of(self, task_id: str) -> int:
        """Return the row of a task, or refuse with 404."""
        task_row = self.cache.rows.get(task_id)
        if task_row is None:
            raise refuse("no-such-task")
        return task_row

    async def refresh(self) -> None:
        """Refresh the cache if it is stale; requests that come meanwhile use it as it is."""
        if self.cache.stale and not self._refreshing.locked():
            async with self._refreshing:
                await self.read(self.cache.refresh)

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that reads the store, within a third of the limit."""
        return await self._calls.call(self.settings.store_seconds / 3, function, *arguments)

    async def write(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that writes to the store, within the limit."""
        return await self._calls.call(self.settings.store_seconds, function, *arguments)

    async def process(self, body: bytes, function: Callable[..., T], *arguments: Any) -> T:
        """Process a body; a long one in a thread, so that nobody else waits for it, or refuse if too many wait."""
        if len(body) <= _SHORT:
            return function(*arguments)
        if self._in_thread >= _MOST_IN_THREAD:
            raise refuse("busy")
        self._in_thread += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, partial(function, *arguments))
        finally:
            self._in_thread -= 1

    @contextmanager
    def counting(self, task_row: int) -> Iterator[Writer]:
        """Count what is refused in the block."""
        if self.writer is None:
            raise refuse("unavailable")
        try:
            yield self.writer
        except HushqueryError as error:
            self.writer.count(task_row, [problem_of(error).name])
            raise

    def count_connection(self, outcome: str) -> None:
        """Count what became of a connection; it belongs to no task."""
        if self.writer is not None:
            self.writer.count(NO_TASK, [outcome])

    def task_document(self, task_row: int) -> tuple[bytes, str]:
        """Return what clients fetch (the task, its epoch and configuration) and its ETag."""
        epoch, releases = self.cache.current(task_row), self.cache.releases(task_row)
        known = self._documents.get(task_row)
        # The same object means that the epoch has not changed.
        if known is None or known[0] is not epoch or known[1] != releases:
            data = self._document(task_row, epoch, releases)
            body = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
            known = (epoch, releases, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
            self._documents[task_row] = known
        return known[2], known[3]

    def _document(self, task_row: int, epoch: Epoch | None, releases: list[tuple[int, str]]) -> dict[str, Any]:
        task = self.cache.tasks[task_row]
        configuration = epoch.configuration if epoch else None
        return {
            "id": task.id,
            "task": task.for_devices(),
            "epoch": _summary(epoch),
            "configuration": None if configuration is None else json.loads(configuration.canonical()),
            "configuration_hash": None if configuration is None else configuration.digest.hex(),
            "optin": None if epoch is None else epoch.optin,
            "releases": [{"epoch": number, "id": release} for number, release in releases],
            "lists": self.cache.lists(task_row),
        }

    def task_list(self) -> dict[str, Any]:
        """Return all tasks in brief."""
        tasks = [
            {
                "id": task.id,
                "name": task.task.name,
                "kind": task.task.kind,
                "epoch": _summary(self.cache.current(task_row)),
            }
            for task_row, task in self.cache.tasks.items()
        ]
        return {"tasks": tasks}

    def _release(self, release_id: str) -> bytes:
        query = sa.select(RELEASE.c.document).where(RELEASE.c.id == release_id)
        with within(self.settings.store_seconds), self.store.read() as connection:
            document = connection.execute(query).scalar_one_or_none()
        if document is None:
            raise refuse("not-found")
        return bytes(document)


def _summary(epoch: Epoch | None) -> dict[str, Any] | None:
    names = ("number", "phase", "takes_records", "takes_reports")
    return None if epoch is None else {name: getattr(epoch, name) for name in names}
