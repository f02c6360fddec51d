"""Reports per second over real sockets: the collector beside the bare framework that writes the same bytes.

The bare server is FastAPI on Uvicorn with one route: it reads the body and inserts the reports in one durable
transaction, without checking, counting, or knowing repeats. Both run one after the other in the same run, with the
same store and the same number of processes, and with clients in further processes. Latencies are of whole requests;
memory is that of all the server's processes together.

    python benchmarks/bench_collector.py [--store postgresql --workers 2] [--reports 40000] [--connections 32]
                                         [--minutes 10] [--json] [--quick]

With ``--minutes`` the collector then gets a steady load for so long, and its memory is shown for every minute.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

TASK = """
[task]
name = "theme"
population = "app users"
kind = "setting"
domain = ["dark", "light", "system"]
[client]
epsilon = 1
lifetime_epsilon = 16
[collect]
max_body = "1MiB"
"""

BARE = """
import asyncio, sys, threading
import uvicorn
from fastapi import FastAPI, Request, Response
where, port, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
app = FastAPI()
if where.startswith("postgresql"):
    import psycopg
    local = threading.local()
    def write(rows):
        if not hasattr(local, "connection"):
            local.connection = psycopg.connect(where)
        with local.connection.transaction():
            local.connection.execute(
                "INSERT INTO bare SELECT * FROM unnest(%s::bytea[], %s::bytea[])", [list(one) for one in zip(*rows)]
            )
else:
    import sqlite3
    connection = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE bare (id BLOB PRIMARY KEY, data BLOB) WITHOUT ROWID")
    lock = threading.Lock()
    def write(rows):
        with lock:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO bare VALUES (?, ?)", rows)
            connection.execute("COMMIT")
@app.put("/v1/tasks/{task}/reports/{id}")
async def put(task: str, id: str, request: Request):
    body = await request.body()
    await asyncio.to_thread(write, [(body[1:17], body)])
    return Response(status_code=201)
@app.post("/v1/tasks/{task}/reports")
async def post(task: str, request: Request):
    body, rows, at = await request.body(), [], 0
    while at < len(body):
        length = int.from_bytes(body[at:at + 4])
        rows.append((body[at + 5:at + 21], body[at + 4:at + 4 + length]))
        at += 4 + length
    await asyncio.to_thread(write, rows)
    return {"results": [{"status": 201} for _ in rows]}
if __name__ == "__main__":
    given = {"host": "127.0.0.1", "port": port, "access_log": False, "log_level": "error"}
    uvicorn.run("bare:app" if workers > 1 else app, workers=workers if workers > 1 else None, **given)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def send(
    port: int, first: int, number: int, batch: int, times: multiprocessing.SimpleQueue[list[float]], ready: Barrier
) -> None:
    """Prepare reports, wait until all clients have, send them one after the other, note how long each request took."""
    from hushquery.collect.http.ingest import pack_batch, write_id
    from hushquery.local.configuration import Configuration
    from hushquery.local.report import Report
    from hushquery.task import Task

    task = Task.loads(TASK)
    one = Report(bytes(16), task.digest, Configuration.of(task).digest, task.truncate(time.time()), b"\1")
    connection = http.client.HTTPConnection("127.0.0.1", port)
    path, kind, taken = f"/v1/tasks/{task.id}/reports", {"Content-Type": "application/octet-stream"}, []
    requests = []
    for start in range(first, first + number, batch):
        reports = [replace(one, id=os.urandom(16)) for _ in range(batch)]
        if batch == 1:
            requests.append(("PUT", f"{path}/{write_id(reports[0].id)}", reports[0].to_bytes()))
        else:
            requests.append(("POST", path, pack_batch([report.to_bytes() for report in reports])))
        del start
    ready.wait()
    for method, address, body in requests:
        began = time.perf_counter()
        connection.request(method, address, body, kind)
        answer = connection.getresponse()
        found = answer.read()
        taken.append(time.perf_counter() - began)
        good = answer.status == 201 or all(one["status"] == 201 for one in json.loads(found)["results"])
        if not good:
            raise SystemExit(f"{answer.status}: {found[:200]!r}")
    times.put(taken)


def memory(pid: int) -> float:
    """The resident memory of a process and of all that it started, in MB."""
    family, total = [pid], 0
    for one in family:
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
        except OSError:
            continue
        family += [int(child) for child in children]
        total += int(next((line.split()[1] for line in lines if line.startswith("VmRSS")), "0"))
    return total / 1024


def load(port: int, pid: int, reports: int, connections: int, batch: int) -> dict[str, float]:
    """Send from many processes at once; gives reports per second, latencies in ms and memory in MB."""
    import hushquery.collect.http.ingest  # so that the clients, which are forked, need not each import it
    import hushquery.local.report
    import hushquery.task  # noqa: F401

    context = multiprocessing.get_context("fork")
    times = context.SimpleQueue()
    share = max(batch, reports // connections // batch * batch)
    ready = context.Barrier(connections + 1)
    senders = [context.Process(target=send, args=(port, 0, share, batch, times, ready)) for _ in range(connections)]
    for sender in senders:
        sender.start()
    ready.wait(120)
    before, began = memory(pid), time.perf_counter()
    taken = sorted(one for _ in senders for one in times.get())
    seconds = time.perf_counter() - began
    for sender in senders:
        sender.join()
    at = {f"p{share}_ms": 1000 * taken[min(len(taken) - 1, len(taken) * share // 100)] for share in (50, 95, 99)}
    return {"reports_per_s": share * connections / seconds, **at, "mb_before": before, "mb_after": memory(pid)}


@contextmanager
def serving(server: str, folder: Path, store: str, workers: int) -> Iterator[tuple[int, int]]:
    """Run a server until the block ends; gives its port and its process id."""
    port = free_port()
    if server == "bare":
        command = [sys.executable, "bare.py", store, str(port), str(workers)]
    else:
        command = [sys.executable, "-m", "hushquery", "serve", "--task", "task.toml", "--admin-port", "-1"]
        command += ["--port", str(port), "--store", store, "--workers", str(workers)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        answers = 0
        while answers < 2 * workers:  # a worker more may still be on its way
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/v1/tasks")
                connection.getresponse().read()
                answers += 1
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"the {server} server ended") from None
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def stores(kind: str, folder: Path) -> Iterator[Callable[[], str]]:
    """Give a function that makes an empty store each time."""
    numbers = itertools.count()
    if kind == "sqlite":
        yield lambda: str(folder / f"store-{next(numbers)}.db")
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import psycopg

    from postgres import server

    with server() as url:

        def make() -> str:
            schema = f"b{next(numbers)}"
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE SCHEMA {schema}")
                connection.execute(f"CREATE TABLE {schema}.bare (id bytea PRIMARY KEY, data bytea)")
            return f"{url}?options=-csearch_path%3D{schema}"

        yield make


def compare(chosen: argparse.Namespace, folder: Path, new_store: Callable[[], str]) -> list[dict[str, Any]]:
    """Measure both servers, batched and single."""
    rows: list[dict[str, Any]] = []
    for batch, reports in ((500, chosen.reports), (1, chosen.reports // 10)):
        found = {}
        for server in ("bare", "collector"):
            with serving(server, folder, new_store(), chosen.workers) as (port, pid):
                load(port, pid, min(reports, 2000), min(8, chosen.connections), batch)  # to warm up
                found[server] = load(port, pid, reports, chosen.connections, batch)
            numbers = ", ".join(f"{key} {value:,.1f}" for key, value in found[server].items())
            sent = "batches of 500" if batch > 1 else "single"
            rounded = {key: round(value, 1) for key, value in found[server].items()}
            rows.append({"sent": sent, "server": server, **rounded})
            if not chosen.json:
                print(f"{sent:<15} {server:<10} {numbers}", flush=True)
        ratio = found["collector"]["reports_per_s"] / found["bare"]["reports_per_s"]
        rows[-1]["times_bare"] = round(ratio, 2)
        if not chosen.json:
            print(f"{'':<15} collector / bare: {ratio:.2f}", flush=True)
    return rows


def endure(chosen: argparse.Namespace, folder: Path, store: str) -> list[dict[str, Any]]:
    """Load the collector steadily for minutes; gives its memory and how much it took, minute by minute."""
    rows: list[dict[str, Any]] = []
    with serving("collector", folder, store, chosen.workers) as (port, pid):
        for minute in range(chosen.minutes + 1):
            row = {"minute": minute, "mb": round(memory(pid), 1)}
            rows.append(row)
            if not chosen.json:
                taken = f", {rows[-2]['reports_per_s']:,.0f} reports/s before" if minute else ""
                print(f"minute {minute:>2}: {row['mb']:.1f} MB{taken}", flush=True)
            if minute < chosen.minutes:
                end, reports, began = time.monotonic() + 60, 0, time.monotonic()
                while time.monotonic() < end:
                    load(port, pid, 8 * 1000, 8, 100)
                    load(port, pid, 8 * 20, 8, 1)
                    reports += 8 * 1000 + 8 * 20
                row["reports_per_s"] = round(reports / (time.monotonic() - began), 1)
    return rows


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    options.add_argument("--workers", type=int, default=1, help="processes of each server; needs PostgreSQL")
    options.add_argument("--reports", type=int, default=40_000)
    options.add_argument("--connections", type=int, default=32)
    options.add_argument("--minutes", type=int, default=0, help="then load the collector for so long, for its memory")
    options.add_argument("--quick", action="store_true", help="a quarter of the reports")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    if chosen.workers > 1 and chosen.store == "sqlite":
        options.error("several workers need --store postgresql")
    if chosen.quick:
        chosen.reports //= 4
    with tempfile.TemporaryDirectory() as name, stores(chosen.store, Path(name)) as new_store:
        folder = Path(name)
        (folder / "task.toml").write_text(TASK)
        (folder / "bare.py").write_text(BARE)
        rows = compare(chosen, folder, new_store)
        over = endure(chosen, folder, new_store()) if chosen.minutes else []
    if chosen.json:
        from measure import machine

        settings = {name: getattr(chosen, name) for name in ("store", "workers", "reports", "connections")}
        found = {"benchmark": "collector", **machine(), "settings": settings, "measured": rows}
        print(json.dumps({**found, "memory": over} if over else found, indent=2))


if __name__ == "__main__":
    main()
