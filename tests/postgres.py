"""A real, throwaway PostgreSQL server for tests; nothing is mocked, and ``fsync`` stays on."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
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


@contextmanager
def server() -> Iterator[str]:
    """Start a server on a free port of 127.0.0.1; give its URL, password included; stop it at the end."""
    initdb, pg_ctl = find("initdb"), find("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="hq-pg-", dir="/tmp"))  # short: a socket's path has at most 107 bytes
    try:
        (folder / "password").write_text(PASSWORD)
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            owner = _postgres_user()
            for path in (folder, folder / "password"):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        login = ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--username=hush"]
        _run([initdb, "-D", str(data), "--no-sync", "--encoding=UTF8", "--locale=C", *login], folder)
        for attempt in range(5):
            port = _free_port()
            options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
            start = [pg_ctl, "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start"]
            try:
                _run(start, folder)
                break
            except RuntimeError:
                if attempt == 4:  # the first four times somebody else may have taken the port
                    raise
        try:
            yield f"postgresql://hush:{URL_PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            _run([pg_ctl, "-D", str(data), "-m", "immediate", "-w", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        message = "root can't run PostgreSQL, and there is no user `postgres`: apt-get install postgresql makes it"
        raise RuntimeError(message) from None


def _run(command: list[str], folder: Path) -> None:
    prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    # Output goes to a file: the server would keep a pipe open, and reading it would never end.
    with (folder / "output").open("w+b") as output:
        done = subprocess.run(
            [*prefix, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
        output.seek(0)
        text = output.read().decode(errors="replace")
    if done.returncode:
        log = folder / "log"
        more = log.read_text(errors="replace") if log.exists() else ""
        message = f"{' '.join(command)} failed:\n{text}\n{more}"
        raise RuntimeError(message)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
