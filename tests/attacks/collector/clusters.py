"""The PostgreSQL cluster of a run, which attacks stop, kill and search."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psycopg

import postgres


class Cluster:
    """A running cluster, and what attacks do to it."""

    def __init__(self, running: postgres.Cluster) -> None:
        self._running = running
        self.url, self.data = running.url, running.data
        self.stop_at_once, self.start = running.stop, running.start
        self._schemas = 0

    def new_schema(self) -> str:
        """Make an empty schema; gives the address of a store in it."""
        self._schemas += 1
        self.execute(f"CREATE SCHEMA a{self._schemas}")
        return f"{self.url}?options=-csearch_path%3Da{self._schemas}"

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def processes(self) -> list[int]:
        """The postmaster and its children."""
        found = [self._running.postmaster]
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(path.read_text().rpartition(")")[2].split()[1]) == found[0]:
                    found.append(int(path.parent.name))
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill all of it at once (kill -9)."""
        self.signal(signal.SIGKILL)
        time.sleep(0.1)

    def ensure(self) -> None:
        """Let it run, whatever an attack left."""
        with suppress(OSError):
            self.signal(signal.SIGCONT)
        try:
            psycopg.connect(self.url, connect_timeout=10).close()
        except psycopg.OperationalError:
            self.start()
