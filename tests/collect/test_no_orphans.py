"""A test run that is killed leaves no server and no database behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from children import ended, start, until
from collect.helpers import SETTING

ROOT = Path(__file__).resolve().parents[2]

# A test that starts what others start, says which processes these are, and never ends.
ENDLESS = """
import json, os, threading
from pathlib import Path

from attacks.collector.frame import Serving, children
from collect.servers import Server
from postgres import cluster


def test_endless(tmp_path):
    task = tmp_path / "task.toml"
    task.write_text(os.environ["TASK_TEXT"])
    with cluster() as database:
        one = Server(database.url, tmp_path, task, "--workers", "2")
        options = ["--port", "0", "--admin-port", "0", "--store", str(tmp_path / "attacked.db"), "--task", str(task)]
        two = Serving(tmp_path, options, {}, None, ())
        servers = [one.process.pid, two.pid]
        found = {"pids": [*servers, *children(one.process.pid), database.postmaster], "folder": str(database.folder)}
        os.write(int(os.environ["TELL"]), json.dumps(found).encode() + b"\\n")
        threading.Event().wait()
"""


def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    read, write = os.pipe()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-c", str(ROOT / "pyproject.toml")]
    more = ["-p", "no:cacheprovider", "-o", "addopts=", "--basetemp", str(tmp_path / "run")]
    env = {**os.environ, "TELL": str(write), "TASK_TEXT": SETTING}
    with (tmp_path / "log").open("wb") as log:
        process = start(
            [*command, *more, str(tmp_path / "test_endless.py")],
            cwd=ROOT, env=env, pass_fds=[write], stdout=log, stderr=log,
        )  # fmt: skip
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        line = told.readline()
    assert line, (tmp_path / "log").read_text()
    found = json.loads(line)
    assert len(found["pids"]) >= 5
    assert all(Path(f"/proc/{pid}").exists() for pid in found["pids"])
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(ended(pid) for pid in found["pids"])
    assert until(lambda: not Path(found["folder"]).exists())
