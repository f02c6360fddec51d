"""A real Spark standalone cluster for tests: a master and two workers, each a process of its own on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

#: Only so that a test that hangs ends: what has not happened by then never will, however busy the machine.
HANGS_AFTER = 900.0
LOOPBACK = "127.0.0.1"
#: The kernel kills what is started so when the thread that started it is gone, even if it was killed. Executors end by
#: themselves when their worker is gone.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
# Tests are small and short: compiling hot code is what a JVM spends most of such a life on.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS = f"""\
spark.sql.shuffle.partitions 2
spark.default.parallelism 2
spark.driver.host {LOOPBACK}
spark.driver.bindAddress {LOOPBACK}
spark.driver.memory 1g
spark.executor.memory 700m
spark.shuffle.io.maxRetries 1
spark.shuffle.io.retryWait 100ms
spark.driver.extraJavaOptions {JAVA}
spark.executor.extraJavaOptions {JAVA}
"""


@dataclass
class Cluster:
    """What runs.

    Attributes:
        url: ``spark://127.0.0.1:port``, as ``connect`` takes it.
        folder: Where everything of it lies; removed at the end.
        master: The master's process.
        workers: The workers' processes; one may be killed by its ``pid``. Their executors are their children.
        web: The address of the master's pages.
        settings: A folder for ``SPARK_CONF_DIR``: small partitions, small executors, everything on loopback.
    """

    url: str
    folder: Path
    web: str
    master: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def settings(self) -> Path:
        """The folder with ``spark-defaults.conf``."""
        return self.folder / "conf"

    def state(self) -> dict[str, object]:
        """Ask the master what it knows of its workers and applications."""
        with urllib.request.urlopen(f"{self.web}/json/", timeout=10) as answer:  # noqa: S310
            state: dict[str, object] = json.load(answer)
        return state

    def alive(self) -> int:
        """How many workers the master counts as alive."""
        workers = self.state()["workers"]
        assert isinstance(workers, list)
        return sum(worker["state"] == "ALIVE" for worker in workers)

    def executors(self, worker: subprocess.Popen[bytes]) -> list[int]:
        """The process ids of a worker's executors."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == worker.pid and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass  # it ended while we looked
        return found

    def add_workers(self, count: int) -> None:
        """Start more workers and wait until the master counts them."""
        wanted = self.alive() + count
        for _ in range(count):
            number = len(self.workers)
            kind = "org.apache.spark.deploy.worker.Worker"
            where = ["--host", LOOPBACK, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            self.workers.append(
                _start(kind, [*where, "--work-dir", str(self.folder / f"work{number}"), self.url], self.folder)
            )
        self.wait(lambda: self.alive() >= wanted, self.workers[-1])

    def kill_worker(self) -> None:
        """Kill the first worker that lives, and its executors, as a machine that loses power does.

        Returns when the master knows.
        """
        worker = next(one for one in self.workers if one.poll() is None)
        wanted = self.alive() - 1
        _end(worker)
        self.wait(lambda: self.alive() <= wanted)

    def wait(self, until: Callable[[], bool], needed: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until something is so; raise when the process it needs, the master's by default, has ended."""
        hangs_at = time.monotonic() + HANGS_AFTER
        while True:
            try:
                if until():
                    return
            except (OSError, ValueError):
                pass  # it does not listen yet, or answers before it knows anything
            if (needed or self.master).poll() is not None or time.monotonic() > hangs_at:
                output = (self.folder / "output").read_text(errors="replace")
                message = f"a part of the Spark cluster did not start:\n{output[-4000:]}"
                raise RuntimeError(message)
            time.sleep(0.05)


@contextmanager
def cluster(workers: int = 2) -> Iterator[Cluster]:
    """Start a master and workers with one core each; end all of them, and their executors, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="hq-spark-"))
    with ExitStack() as at_end:
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "conf").mkdir()
        (folder / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
        made = _master(folder, at_end)
        at_end.callback(lambda: [_end(one) for one in made.workers])
        made.add_workers(workers)
        yield made


def _master(folder: Path, at_end: ExitStack) -> Cluster:
    """Start the master; try again where somebody took a port in between."""
    for attempt in range(5):
        port, web = _free_port(), _free_port()
        kind = "org.apache.spark.deploy.master.Master"
        started = _start(kind, ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(web)], folder)
        made = Cluster(f"spark://{LOOPBACK}:{port}", folder, f"http://{LOOPBACK}:{web}", started)
        try:
            # Spark takes the next port where one is taken; then this one never answers, or with another address.
            made.wait(lambda made=made: made.state()["url"] == made.url)  # type: ignore[misc]
        except RuntimeError:
            _end(started)
            if attempt == 4:
                raise
            continue
        at_end.callback(_end, started)
        return made
    raise AssertionError


def _start(kind: str, arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    variables = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        # A dead worker is noticed when its connection closes; a slow machine must not make one look dead.
        "SPARK_MASTER_OPTS": f"-Dspark.worker.timeout=300 {JAVA}",
        "SPARK_WORKER_OPTS": JAVA,
    }
    with (folder / "output").open("ab") as output:
        # A session of its own: ending it ends the executors too.
        return subprocess.Popen(
            [*ENDS_WITH_US, str(home / "bin/spark-class"), kind, *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
