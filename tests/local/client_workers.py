"""What the processes of the kill and race tests of the client do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hushquery.local.device import client as client_module
from hushquery.local.device.client import Client
from hushquery.local.device.reporting import report
from hushquery.local.device.store import ClientStore
from hushquery.task import Task

# Processes are forked from a server that has imported all that is slow to import.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["hushquery.local.device.client", "pytest"])

DAY = 86400
COLOURS = ["red", "green", "blue", "white"]
TASK = (
    '[task]\nname = "colour"\npopulation = "users"\nkind = "setting"\nperiod = "1d"\n'
    f"domain = {COLOURS}\n"
    "[client]\nepsilon = 1\nlifetime_epsilon = 1000\n"
)

#: Where a client can be killed, and whether its report is durable by then.
POINTS = {"while drawing": False, "between memo and report": False, "before the commit": False, "after it": True}


def colour_client(state: str, day: int = 20000, **options: Any) -> Client:
    """Make the client that all tests share, on a given day."""
    return Client(Task.loads(TASK), state, "me", clock=lambda: day * DAY, **options)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class DeadlyBits:
    """Coins that kill whoever tosses them."""

    secret = False

    def words(self, n: int) -> npt.NDArray[np.uint64]:  # noqa: ARG002
        die()


def killed_at(state: str, point: str) -> None:
    """Ask for a report and be killed at a point."""
    if point == "while drawing":
        colour_client(state, bits=DeadlyBits()).report("red")
    client = colour_client(state)
    if point == "between memo and report":

        class Deadly:
            path = os.path

            @staticmethod
            def urandom(n: int) -> bytes:  # 32 bytes are the secret, 16 the id of the report
                return os.urandom(n) if n == 32 else die()

        client_module.os = Deadly  # type: ignore[assignment]
    elif point == "before the commit":
        connect = ClientStore._connect

        def watched(self: ClientStore) -> sqlite3.Connection:
            connection = connect(self)
            connection.set_trace_callback(lambda sql: die() if sql == "COMMIT" else None)
            return connection

        ClientStore._connect = watched  # type: ignore[method-assign]
    else:
        transaction = ClientStore.transaction

        @contextmanager
        def deadly(self: ClientStore) -> Iterator[sqlite3.Connection]:
            with transaction(self) as connection:
                yield connection
            die()

        ClientStore.transaction = deadly  # type: ignore[method-assign]
    client.report("red")


def report_on(state: str, first_day: int, told: Connection) -> None:
    """Report day after day until killed, and tell each report after the client handed it out."""
    for day in range(first_day, first_day + 10_000):
        report = colour_client(state, day).report(COLOURS[day % 4])
        assert report is not None
        told.send((day, report.to_bytes()))


def race(state: str, number: int, start: Any, answers: Any, *, prepared: bool) -> None:
    """Wait for all others, then ask for a report of a value of one's own; on several days if all is prepared."""
    found: list[Any] = []
    try:
        days = range(20000, 20010 if prepared else 20001)
        clients = {day: colour_client(state, day) for day in days} if prepared else {}
        for day in days:
            start.wait(timeout=60)
            client = clients[day] if prepared else colour_client(state, day)
            report = client.report(COLOURS[number % 4])
            found.append(report.to_bytes() if report else None)
    except BaseException as error:
        found.append(repr(error))
    answers.put(tuple(found))


def report_to(address: str, task: str, state: str, value: str, answers: Any) -> None:
    """Report a value with the one call of a program, and tell what it did."""
    done = report(address, value, task=task, state=state, clock=lambda: 20000 * DAY)
    answers.put((done.reports[0].to_bytes(), done.outcome, int(done.cost)))
