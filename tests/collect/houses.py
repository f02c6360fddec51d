"""A store with one task and its phases, without HTTP, and what racing processes do with it."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from children import HANG
from collect.helpers import HEAD, Clock, FakeWork, make_report
from hushquery.collect.epochs.epochs import CLOSED, Epoch, epochs_of, insert_new, register
from hushquery.collect.epochs.phases import Phases
from hushquery.collect.store.reports import Arrival, write_reports
from hushquery.collect.store.schema import RECORD, RELEASE
from hushquery.collect.store.store import Store
from hushquery.collect.store.vault import Vault
from hushquery.errors import NotReady
from hushquery.task import Task

# Processes are forked from a server that has imported all that is slow to import, so that they start at once.
PROCESSES = multiprocessing.get_context("forkserver")
SLOW = "hushquery.collect.http.app sqlalchemy.dialects.sqlite sqlalchemy.dialects.postgresql.psycopg psycopg pytest"
PROCESSES.set_forkserver_preload(SLOW.split())


class House:
    """A store with one task and its phases, without HTTP."""

    def __init__(self, url: str, folder: Path, clock: Clock, text: str, work: Any = None) -> None:
        self.clock, self.task = clock, Task.loads(text)
        self.store = Store.open(url)
        self.vault = Vault(self.store, folder / "keys")
        self.work = work or FakeWork(self.store, self.vault)
        self.phases = Phases(self.store, self.work, self.vault, clock=clock)
        self.number = register(self.store, self.task, clock())
        self.phases.ensure(self.task, self.number)
        self.period = self.task.period_at(clock())
        if self.epoch().takes_records:
            self.give()

    def give(self) -> None:
        """Put the records of one user into the epoch, if they are not there yet."""
        epoch, key = self.epoch(), {"task": self.number, "epoch": self.period, "id": bytes(16)}
        sealed, mark = self.vault.seal(epoch, bytes(16), [["weather leeds", ""]])
        with self.store.write() as connection:
            connection.execute(insert_new(connection, RECORD).values(**key, giver="x", mac=mark, ciphertext=sealed))

    def advance(self, to: str | None = None) -> Epoch:
        return self.phases.advance(self.task, self.number, self.period, to)

    def epoch(self) -> Epoch:
        return next(one for one in epochs_of(self.store, self.task, self.number) if one.number == self.period)

    def send(self, count: int, first: int = 0) -> list[str]:
        head = HEAD if self.task.head else None
        one = make_report(self.task, time=self.clock.now, head=head)
        reports = [replace(one, id=(first + n).to_bytes(16, "big")) for n in range(count)]
        arrivals = [Arrival(self.number, self.period, r.id, r.to_bytes()) for r in reports]
        with self.store.write() as connection:
            return write_reports(connection, arrivals)

    def releases(self) -> int:
        with self.store.read() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(RELEASE)).scalar_one())


def race_to_advance(url: str, folder: Path, text: str, start: Any, answers: Any) -> None:
    """Wait for the others, then close the epoch; answer with what came of it and what was computed."""
    try:
        house = House(url, folder, Clock(), text)
        start.wait(timeout=HANG)
        try:
            phase = house.advance(CLOSED).phase
        except NotReady:
            phase = "busy"
        house.store.close()
        answers.put((phase, house.work.calls))
    except BaseException as error:
        answers.put((repr(error), []))
