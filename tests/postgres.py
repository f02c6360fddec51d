"""A real, throwaway PostgreSQL server for tests; nothing is mocked, and ``fsync`` stays on."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "s3cr3t-Pa55/word"  # noqa: S105
URL_PASSWORD = "s3cr3t-Pa55%2Fword"  # noqa: S105


def find(program: str) -> str:
    """Give the path of a PostgreSQL program, from PATH or from where Debian keeps it."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda p: int(p.parts[4]))
    found = str(debian[-1]) if debian else shutil.which(program)
    if not found:
        message = (
            f"these tests need a real PostgreSQL server, and `{program}` was not found on PATH or in "
            "/usr/lib/postgresql: install it with `apt-get install postgresql` (make test does)"
        )
        raise RuntimeError(message)
    return found


class Cluster:
    """A running PostgreSQL cluster of one's own, which tests may stop, kill and start again.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.port = 0

    @property
    def url(self) -> str:
        """Its URL as its owner, password included."""
        return f"postgresql://hush:{URL_PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def postmaster(self) -> int:
        """The process id of the postmaster."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def start(self, attempts: int = 50) -> None:
        """Start it; while a killed one still has its memory, or somebody else its port, that takes a few tries."""
        for attempt in range(attempts):
            options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.folder}"
            try:
                _run(["pg_ctl", "-D", str(self.data), "-l", str(self.folder / "log"), "-o", options, "-w", "start"])
                return
            except RuntimeError:
                if attempt == attempts - 1:
                    raise
                time.sleep(0.2)

    def stop(self) -> None:
        """Stop it as if its machine had lost power."""
        _run(["pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop"])


# Waits for the end of its input, which comes when the test run closes it or dies; then ends the cluster and its folder.
_KEEPER = """
import os, shutil, signal, sys
from pathlib import Path
sys.stdin.read()
folder = Path(sys.argv[1])
try:
    postmaster = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    handle = os.pidfd_open(postmaster)
    for number in (signal.SIGCONT, signal.SIGQUIT):
        signal.pidfd_send_signal(handle, number)
    import select
    select.select([handle], [], [], 60)
except (OSError, ValueError, IndexError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster on a free port of 127.0.0.1; it is gone at the end, also when this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="hq-pg-", dir="/tmp"))  # short: a socket's path has at most 107 bytes
    keeper = subprocess.Popen(
        [sys.executable, "-c", _KEEPER, str(folder)], stdin=subprocess.PIPE, start_new_session=True, cwd="/"
    )
    try:
        (folder / "password").write_text(PASSWORD)
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            owner = _postgres_user()
            for path in (folder, folder / "password"):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        made = Cluster(folder)
        login = ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--username=hush"]
        _run(["initdb", "-D", str(made.data), "--no-sync", "--encoding=UTF8", "--locale=C", *login])
        for attempt in range(5):
            made.port = _free_port()
            try:
                made.start(attempts=1)
                break
            except RuntimeError:
                if attempt == 4:  # the first four times somebody else may have taken the port
                    raise
        yield made
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait()


@contextmanager
def server() -> Iterator[str]:
    """Run a cluster, and give its URL."""
    with cluster() as running:
        yield running.url


def _postgres_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        message = "root can't run PostgreSQL, and there is no user `postgres`: apt-get install postgresql makes it"
        raise RuntimeError(message) from None


def _run(command: list[str]) -> None:
    """Run a program of PostgreSQL, as its user."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    command = [*prefix, find(command[0]), *command[1:]]
    # Output goes to a file: the server would keep a pipe open, and reading it would never end.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if done.returncode:
        message = f"{' '.join(command)} failed:\n{text}"
        raise RuntimeError(message)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
