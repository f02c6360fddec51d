"""A PostgreSQL cluster of the run's own, that attacks stop, kill and search."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from postgres import find


class Cluster:
    """A running cluster.

    Args:
        url: Its URL, as its owner.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._schemas = 0
        with psycopg.connect(url) as connection:
            names = ("data_directory", "port")
            data, port = ((connection.execute(f"SHOW {name}").fetchone() or ("",))[0] for name in names)
        self.data, self._port = Path(data), port

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

    @property
    def postmaster(self) -> int:
        """The process id of the postmaster."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """The postmaster and its children."""
        found = [self.postmaster]
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

    def control(self, *arguments: str) -> None:
        """Run pg_ctl."""
        prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        command = [*prefix, find("pg_ctl"), "-D", str(self.data), "-w", *arguments]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", stdin=subprocess.DEVNULL
        )

    def stop_at_once(self) -> None:
        """Stop it as if its machine had lost power."""
        self.control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again; while a killed one still has its memory, that takes a few tries."""
        folder = self.data.parent
        options = f"-c listen_addresses=127.0.0.1 -c port={self._port} -c unix_socket_directories={folder}"
        for attempt in range(50):
            try:
                self.control("-l", str(folder / "log"), "-o", options, "start")
                return
            except subprocess.CalledProcessError:
                if attempt == 49:
                    raise
                time.sleep(0.2)

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
