"""Reports per second over real sockets: the collector beside the bare framework that writes the same bytes to SQLite.

The bare server is FastAPI on Uvicorn with one route: it reads the body and inserts the reports in one durable
transaction, without checking, counting, or knowing repeats. Both run one after the other in the same run, each in a
process of its own, with clients in further processes. Latencies are of whole requests; memory is the server's.

    python benchmarks/bench_collector.py [--reports 40000] [--connections 32] [--json] [--quick]
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

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
import asyncio, os, sqlite3, sys, threading
import uvicorn
from fastapi import FastAPI, Request, Response
connection = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
for pragma in ("journal_mode=WAL", "synchronous=FULL"):
    connection.execute(f"PRAGMA {pragma}").fetchall()
connection.execute("CREATE TABLE report (id BLOB PRIMARY KEY, data BLOB) WITHOUT ROWID")
lock, app = threading.Lock(), FastAPI()
def write(rows):
    with lock:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO report VALUES (?, ?)", rows)
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
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="error")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def send(
    port: int, first: int, number: int, batch: int, times: multiprocessing.SimpleQueue[list[float]], ready: Barrier
) -> None:
    """Prepare reports, wait until all clients have, send them one after the other, note how long each request took."""
    from hushquery.collect.wire import pack_batch, write_id
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
    """The resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def load(port: int, pid: int, reports: int, connections: int, batch: int) -> dict[str, float]:
    """Send from many processes at once; gives reports per second, latencies in ms and memory in MB."""
    import hushquery.collect.wire  # so that the clients, which are forked, need not each import it
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


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--reports", type=int, default=40_000)
    options.add_argument("--connections", type=int, default=32)
    options.add_argument("--quick", action="store_true", help="a quarter of the reports")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.reports //= 4
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.toml").write_text(TASK)
        (folder / "bare.py").write_text(BARE)
        for batch, reports in ((500, chosen.reports), (1, chosen.reports // 10)):
            found = {}
            for server in ("bare", "collector"):
                port = free_port()
                bare = [sys.executable, "bare.py", f"bare-{batch}.db", str(port)]
                ours = [sys.executable, "-m", "hushquery", "serve", "--task", "task.toml", "--admin-port", "-1"]
                ours += ["--port", str(port), "--store", f"ours-{batch}.db"]
                process = subprocess.Popen(
                    bare if server == "bare" else ours, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                while socket.socket().connect_ex(("127.0.0.1", port)):
                    time.sleep(0.1)
                time.sleep(1)
                load(port, process.pid, min(reports, 2000), min(8, chosen.connections), batch)  # to warm up
                found[server] = load(port, process.pid, reports, chosen.connections, batch)
                process.terminate()
                process.wait()
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
    if chosen.json:
        from measure import machine

        settings = {"reports": chosen.reports, "connections": chosen.connections}
        print(json.dumps({"benchmark": "collector", **machine(), "settings": settings, "measured": rows}, indent=2))


if __name__ == "__main__":
    main()
