"""What every attack on a collector shares: where it happens, what it found, and the table of all of it.

The product is looked at from outside: `hushquery serve` and `hushquery collect` as processes, HTTP, files on disk.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import httpx2 as httpx
from typer.testing import CliRunner

from attacks.collector.clusters import Cluster
from children import HANG, start
from children import until as children_until
from hushquery.cli.collect import app as commands
from hushquery.errors import HushqueryError
from postgres import cluster as cluster_of_its_own

STORES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Check:
    """One thing that an attack tried, what must hold all the same, and what was seen."""

    tried: str
    must: str
    seen: str
    held: bool


@dataclass(frozen=True)
class Row:
    """A check, with the attack and the store that it belongs to."""

    attack: str
    store: str
    tried: str
    must: str
    seen: str
    held: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Serving:
    """`hushquery serve` as a process of its own, with the environment and the limits that an attack wants."""

    def __init__(
        self, folder: Path, options: Iterable[str], env: Mapping[str, str], files: int | None, prefix: Iterable[str]
    ) -> None:
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        command = [*prefix, sys.executable, "-m", "hushquery", "serve", "--json", *options]

        def limit() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        options = {"cwd": folder, "stdout": subprocess.PIPE, "start_new_session": True, "env": {**os.environ, **env}}
        with self.log.open("wb") as log:
            self.process = start(command, before=limit, stderr=log, **options)
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"the server did not start: {self.log.read_text()[-2000:]}")
            text += line
        found = json.loads(text)
        self.address, self.admin = str(found["address"]), str(found["admin"])
        self.port, self.admin_port = (int(one.rpartition(":")[2]) for one in (self.address, self.admin))
        self.pid = self.process.pid

    def ready(self, timeout: float = HANG) -> tuple[int, str]:
        """Ask whether it is ready; 0 where there is no answer."""
        try:
            answer = httpx.get(f"{self.admin}/readyz", timeout=timeout)
            return answer.status_code, answer.text
        except httpx.HTTPError as error:
            return 0, type(error).__name__

    def family(self) -> list[int]:
        """The process and all that it started."""
        found = [self.pid]
        for pid in found:
            found += children(pid)
        return found

    def cpu(self) -> float:
        """CPU seconds of the process and what it started, so far."""
        ticks = 0
        for pid in self.family():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident memory of all its processes in MiB."""
        return sum(memory(pid) for pid in self.family())

    def logged(self) -> int:
        """How many bytes it has logged."""
        return self.log.stat().st_size

    def kill(self) -> None:
        """Kill it and all its workers at once (kill -9)."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self, seconds: float = 60) -> int | None:
        """Ask it to stop (SIGTERM); gives its exit code, None where it does not end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(patience(seconds))
        except subprocess.TimeoutExpired:
            return None
        self._close()
        return code

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()


class Ground:
    """Where one attack happens: a folder of its own, an empty store, servers that are killed at its end.

    Args:
        kind: sqlite or postgresql.
        short: Whether sizes are those of `make test`.
        cluster: Starts, at the first call, the PostgreSQL cluster of the run.
        folder: A folder of its own.
    """

    def __init__(self, kind: str, short: bool, cluster: Callable[[], Cluster], folder: Path) -> None:
        self.kind, self.short, self.folder = kind, short, folder
        self._cluster = cluster
        self._servers: list[Serving] = []
        self._stores = 0
        self.on_end = ExitStack()

    @property
    def cluster(self) -> Cluster:
        """The PostgreSQL cluster of the run."""
        return self._cluster()

    def size(self, short: int, long: int) -> int:
        """Choose a size."""
        return short if self.short else long

    def new_store(self) -> str:
        """Give the address of an empty store."""
        self._stores += 1
        if self.kind == "sqlite":
            folder = self.folder / f"store-{self._stores}"
            folder.mkdir()
            return str(folder / "collector.db")
        return self.cluster.new_schema()

    def task(self, text: str, name: str = "task") -> Path:
        """Write a task file."""
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def serve(
        self,
        store: str,
        *tasks: Path,
        more: Iterable[str] = (),
        port: int = 0,
        env: Mapping[str, str] | None = None,
        files: int | None = None,
        prefix: Iterable[str] = (),
    ) -> Serving:
        """Start a server and wait until it answers."""
        named = [word for task in tasks for word in ("--task", str(task))]
        options = ["--port", str(port), "--admin-port", "0", "--store", store, "--keys", str(self.folder / "keys")]
        options += ["--ledger", str(self.folder / "ledger.db"), *named, *more]
        serving = Serving(self.folder, options, env or {}, files, prefix)
        self._servers.append(serving)
        return serving

    def collect(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = HANG) -> tuple[int, str, str]:
        """Run `hushquery collect`; gives its exit code and what it wrote. -1 where it did not end.

        In `make test` it is run in this process where it needs no environment of its own.
        """
        if words[0] == "advance":
            words = (*words, "--keys", str(self.folder / "keys"), "--ledger", str(self.folder / "ledger.db"))
        if self.short and env is None:
            result = CliRunner().invoke(commands, list(words))
            if isinstance(result.exception, HushqueryError):
                return result.exception.exit_code, result.stdout, str(result.exception)
            if not isinstance(result.exception, SystemExit | None):
                raise result.exception
            return result.exit_code, result.stdout, result.stderr
        command = [sys.executable, "-m", "hushquery", "collect", *words]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, "", "it did not end"
        return done.returncode, done.stdout, done.stderr

    def status(self, store: str) -> list[dict[str, Any]]:
        """Read `collect status`: its tasks with their epochs."""
        code, out, err = self.collect("status", "--store", store, "--json")
        if code:
            raise RuntimeError(f"collect status failed: {err[-500:]}")
        found: list[dict[str, Any]] = json.loads(out)["tasks"]
        return found

    def end(self) -> None:
        """Kill what still runs."""
        for serving in self._servers:
            if serving.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(serving.pid, signal.SIGCONT)
                serving.kill()
        self.on_end.close()


# ---- small things ------------------------------------------------------------------------------------------


_patient = False


def patience(seconds: float) -> float:
    """How long to wait for what must come within some seconds: in `make test` the machine may be busy, so for ever."""
    return HANG if _patient else seconds


def until(there: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Wait until something is so; False where it never is."""
    return children_until(there, pause, patience(seconds))


def children(pid: int) -> list[int]:
    """The processes that a process started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def memory(pid: int) -> float:
    """Resident memory of a process in MiB."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024
    return 0.0


# ---- running and showing -----------------------------------------------------------------------------------


class Shared:
    """The PostgreSQL cluster of a run: started when an attack first asks for it, gone at the end."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._started: Cluster | None = None

    def __call__(self) -> Cluster:
        if self._started is None:
            self._started = Cluster(self._stack.enter_context(cluster_of_its_own()))
        return self._started

    def ensure(self) -> None:
        """Let it run, whatever an attack left, where it was started."""
        if self._started is not None:
            self._started.ensure()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def run(attacks: Mapping[str, ModuleType], kind: str, short: bool, shared: Shared | None = None) -> Iterator[Row]:
    """Run attacks one after the other, whatever becomes of each; gives the rows as they come."""
    global _patient
    _patient = short
    with Shared() if shared is None else nullcontext(shared) as cluster:
        for name, attack in attacks.items():
            ground = Ground(kind, short, cluster, Path(tempfile.mkdtemp(prefix="hq-attack-")))
            try:
                for check in attack.attack(ground):
                    yield Row(name, kind, check.tried, check.must, _plain(check.seen, ground), check.held)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                seen = f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {str(error)[:300]}"
                yield Row(name, kind, "the attack itself", "it comes to its end", _plain(seen, ground), held=False)
            finally:
                ground.end()
                cluster.ensure()
                shutil.rmtree(ground.folder, ignore_errors=True)


def _plain(seen: str, ground: Ground) -> str:
    """Leave out what is of this run alone: folders, ports."""
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", " ".join(seen.replace(str(ground.folder), ".").split()))


def table(rows: Iterable[Row]) -> str:
    """Write rows as one table."""
    lines = ["| attack | store | tried | must hold | seen | held |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.attack} | {row.store} | {cell(row.tried)} | {cell(row.must)} | {cell(row.seen)} | "
        f"{'yes' if row.held else '**no**'} |"
        for row in rows
    ]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Make a text fit a cell of a table."""
    return text.replace("|", "/").replace("\n", " ").replace("<", "&lt;")
