"""What the processes of the race and kill tests do, and a way to reach behind the ledger's back."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import psycopg

from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import BudgetRefused

# Processes are forked from a server that has imported all that is slow to import, so that they start at once.
# (It does not know where tests are, so this file can't be in the list; pytest is what they were started by.)
PROCESSES = multiprocessing.get_context("forkserver")
SLOW = "hushquery.core.ledger.ledger sqlalchemy.dialects.sqlite sqlalchemy.dialects.postgresql.psycopg psycopg pytest"
PROCESSES.set_forkserver_preload(SLOW.split())

READERS = ("readers", "add-remove")


def sql(url: str, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement directly in the store; `?` stands for a value. Gives the rows, if it has any."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            return connection.execute(statement, values).fetchall()
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description else []


def race(url: str, start: Any, answers: Any, loss: Loss, create_with: Budget | None, once: str | None = None) -> None:
    """Wait for all others, then spend; answer with the number of the entry, or that it was refused."""
    try:
        ledger = None if create_with else Ledger.open(url)
        start.wait(timeout=120)
        ledger = ledger or Ledger.open(url)
        entry = ledger.spend(*READERS, loss, what="race", create_with=create_with, once=once)
        answers.put(("spent", entry.seq, entry.created))
    except BudgetRefused:
        answers.put(("refused", 0, False))
    except BaseException as error:
        answers.put((repr(error), 0, False))


def spend_on(url: str, reports: Connection, loss: Loss, create_with: Budget | None) -> None:
    """Spend until killed or refused; report each entry after the ledger said that it is recorded."""
    reports.send_bytes(b"begin")
    ledger = Ledger.open(url)
    while True:
        try:
            entry = ledger.spend(*READERS, loss, what="until killed", create_with=create_with)
        except BudgetRefused:
            return
        reports.send_bytes(b"%d" % entry.seq)


class Spender:
    """A process that runs :func:`spend_on`, and what it reports."""

    def __init__(self, url: str, loss: Loss, create_with: Budget | None = None) -> None:
        self._reports, theirs = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(target=spend_on, args=(url, theirs, loss, create_with))
        self._process.start()
        theirs.close()
        self.reported: list[int] = []
        assert self._reports.recv_bytes() == b"begin"

    def wait_for_reports(self, number: int) -> None:
        """Wait until it has reported so many spends in all."""
        while len(self.reported) < number:
            self.reported.append(int(self._reports.recv_bytes()))

    def kill(self) -> list[int]:
        """Kill it at once (kill -9) and give all it has reported before."""
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL
        self._process.close()
        while True:
            try:
                self.reported.append(int(self._reports.recv_bytes()))
            except (EOFError, OSError):  # the last report may have been cut off
                self._reports.close()
                return self.reported
