"""The collector without HTTP: store, tasks, writer, tokens, vault and phases of one server process, put together."""

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
from functools import lru_cache, partial
from typing import Any, TypeVar

import sqlalchemy as sa

from hushquery.collect.epochs.clock import Watch, tolerance
from hushquery.collect.epochs.epochs import Epoch
from hushquery.collect.epochs.phases import EpochWork, Phases
from hushquery.collect.epochs.work import make_work
from hushquery.collect.http.ingest import Board
from hushquery.collect.http.problems import problem_of, refuse
from hushquery.collect.http.settings import Settings
from hushquery.collect.store.deadlines import Asker, within
from hushquery.collect.store.schema import RELEASE
from hushquery.collect.store.store import Store
from hushquery.collect.store.tally import Tally
from hushquery.collect.store.tokens import Tokens
from hushquery.collect.store.vault import Vault
from hushquery.collect.store.writer import NO_TASK, Writer
from hushquery.errors import HushqueryError

__all__ = ["Collector"]

T = TypeVar("T")

_log = logging.getLogger("hushquery.collect")

# A body of this length is read where it arrives; a longer one in a thread, and this many may wait for that.
_SHORT = 4096
_MOST_APART = 64
_KEPT_RELEASES = 8


class Collector:
    """What one server process works with.

    Args:
        settings: The settings.
        work: What is computed at the moves of epochs; by default the counting of reports.
        clock: Gives the time in seconds since 1970.
        steady: Gives seconds that nobody sets.
    """

    def __init__(
        self,
        settings: Settings,
        work: EpochWork | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.store = Store.open(settings.store, most_bytes=settings.most_bytes, tally=Tally(settings.tally_file))
        self.store.keep_reserve()
        tasks = settings.load_tasks()
        self.watch = Watch(self.store, tolerance(tasks), clock, steady)
        self.board = Board(self.store, tasks, self.watch, doubt=lambda: self.watch.doubt)
        self.tokens = Tokens(self.store, self.watch)
        self.vault = Vault(self.store, settings.keys, settings.operator())
        self.phases = Phases(
            self.store,
            work or make_work(self.store, self.vault, settings.ledger),
            self.vault,
            clock=self.watch,
            watch=self.watch,
            optin_share=settings.optin_share,
        )
        if self.watch.look() is None:  # else nobody knows which periods there are
            for number, task in self.board.numbers.items():
                self.phases.ensure(task, number)
        self.board.refresh()
        for epoch in self.board.epochs():
            if epoch.takes_records:
                self._check_key(epoch)
        self.writer: Writer | None = None
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._asker = Asker()
        self._looking = asyncio.Lock()
        self._reader = ThreadPoolExecutor(1, "hushquery-reader")
        self._apart = 0
        # All who read a release now share its bytes.
        self.release = lru_cache(_KEPT_RELEASES)(self._release)
        self._documents: dict[int, tuple[Epoch | None, list[tuple[int, str]], bytes, str]] = {}

    # ---- its life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer, and the watch over time."""
        self.writer = Writer(self.store, self.settings.most_waiting, self.settings.store_seconds)
        self._ticker = threading.Thread(target=self._tick, name="hushquery-ticker", daemon=True)
        self._ticker.start()

    def _check_key(self, epoch: Epoch) -> None:
        """Say at once that records can't be taken; reports can, so the server starts all the same."""
        try:
            self.vault.check(epoch)
        except HushqueryError as error:
            _log.error("opt-in records of epoch %d are refused: %s: %s", epoch.number, error.what, error.why)

    def stop(self) -> None:
        """Write what waits, then let go of the store; a move that takes longer is taken up again at the next start."""
        self._stop.set()
        if self.writer is not None:
            self.writer.close()
        if self._ticker is not None:
            self._ticker.join(self.settings.store_seconds)
        self._reader.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def _tick(self) -> None:
        """Look at the clock often enough to know what it did; move epochs as often as was said, or by hand only."""
        tick = self.settings.tick_seconds or math.inf
        moved = time.monotonic()
        while not self._stop.wait(min(tick, self.watch.pause)):
            if time.monotonic() - moved >= tick:
                moved = time.monotonic()
                self.phases.tick(self.board.numbers)
            else:
                with suppress(HushqueryError):  # a store that is away: it is looked at again
                    self.watch.look()

    # ---- what requests ask ---------------------------------------------------------------------------------

    def number_of(self, task_id: str) -> int:
        """Find a task by its id, or refuse with 404."""
        number = self.board.ids.get(task_id)
        if number is None:
            raise refuse("no-such-task")
        return number

    async def look(self) -> None:
        """See where the epochs stand, if nobody has done so for a while; who comes meanwhile does not wait."""
        if self.board.stale and not self._looking.locked():
            async with self._looking:
                await self.read(self.board.refresh)

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Ask the store something for a request, without waiting for it too long."""
        return await self._asker.ask(self.settings.store_seconds / 3, function, *arguments)

    async def write(self, function: Callable[..., T], *arguments: Any) -> T:
        """Let the store write something for a request, without waiting for it too long."""
        return await self._asker.ask(self.settings.store_seconds, function, *arguments)

    async def apart(self, body: bytes, work: Callable[..., T], *arguments: Any) -> T:
        """Do what a body asks for; if that is long, in a thread, so that nobody else waits for it.

        Raises:
            Refusal: Too many wait for the thread.
        """
        if len(body) <= _SHORT:
            return work(*arguments)
        if self._apart >= _MOST_APART:
            raise refuse("busy")
        self._apart += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, partial(work, *arguments))
        finally:
            self._apart -= 1

    @contextmanager
    def counting(self, task_number: int) -> Iterator[Writer]:
        """Count what is refused in the block."""
        if self.writer is None:
            raise refuse("unavailable")
        try:
            yield self.writer
        except HushqueryError as error:
            self.writer.count(task_number, [problem_of(error).name])
            raise

    def count_connection(self, outcome: str) -> None:
        """Count what became of a connection; it belongs to no task, so it is counted under the number that none has."""
        if self.writer is not None:
            self.writer.count(NO_TASK, [outcome])

    def task_document(self, task_number: int) -> tuple[bytes, str]:
        """Give what clients fetch: the task, its epoch and what they run; and the ETag of it."""
        present, releases = self.board.present(task_number), self.board.releases(task_number)
        known = self._documents.get(task_number)
        # The same object means that the epoch has not changed since it was written.
        if known is None or known[0] is not present or known[1] != releases:
            data = self._document(task_number, present, releases)
            body = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
            known = (present, releases, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
            self._documents[task_number] = known
        return known[2], known[3]

    def _document(self, task_number: int, present: Epoch | None, releases: list[tuple[int, str]]) -> dict[str, Any]:
        task = self.board.numbers[task_number]
        configuration = present.configuration if present else None
        return {
            "id": task.id,
            "task": task.to_json(),
            "epoch": _summary(present),
            "configuration": None if configuration is None else json.loads(configuration.canonical()),
            "configuration_hash": None if configuration is None else configuration.digest.hex(),
            "optin": None if present is None else present.optin,
            "releases": [{"epoch": epoch, "id": release} for epoch, release in releases],
            "lists": self.board.lists(task_number),
        }

    def task_list(self) -> dict[str, Any]:
        """Give all tasks in brief."""
        found = []
        for number, task in self.board.numbers.items():
            part = task.task
            present = _summary(self.board.present(number))
            found.append({"id": task.id, "name": part.name, "kind": part.kind, "epoch": present})
        return {"tasks": found}

    def _release(self, release_id: str) -> bytes:
        """Read a release, or refuse with 404."""
        with within(self.settings.store_seconds), self.store.read() as connection:
            found = connection.execute(
                sa.select(RELEASE.c.document).where(RELEASE.c.id == release_id)
            ).scalar_one_or_none()
        if found is None:
            raise refuse("not-found")
        return bytes(found)


def _summary(epoch: Epoch | None) -> dict[str, Any] | None:
    if epoch is None:
        return None
    return {
        "number": epoch.number,
        "phase": epoch.phase,
        "takes_records": epoch.takes_records,
        "takes_reports": epoch.takes_reports,
    }
