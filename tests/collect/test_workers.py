"""Workers end with their parent, however it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx2 as httpx
import psycopg

from children import HANG
from collect.helpers import SETTING, put
from collect.servers import Server
from collect.test_faults import wait_for
from collect.test_kill import many_reports, stored


def workers_of(pid: int) -> list[int]:
    """Find the processes below a process that serve."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_killing_the_parent_ends_the_workers(postgres_url: str, folder: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA orphans")
    url = f"{postgres_url}?options=-csearch_path%3Dorphans"
    (folder / "task.toml").write_text(SETTING)
    server = Server(url, folder, folder / "task.toml", "--workers", "2")
    workers = workers_of(server.process.pid)
    assert len(workers) == 2
    reports = many_reports(3)
    with httpx.Client(base_url=server.address, timeout=HANG) as client:
        for report in reports:
            wait_for(lambda report=report: put(client, report).status_code in (200, 201))  # type: ignore[misc]
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    try:
        wait_for(lambda: all(gone(worker) for worker in workers))
    finally:
        server.kill()  # the whole group, should the workers live on
    again = Server(url, folder, folder / "task.toml", port=server.port)  # the port is free
    assert again.stop() == 0
    assert sorted(stored(url)) == [report.id for report in reports]
