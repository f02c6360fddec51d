"""A store that answers nothing: PostgreSQL stopped by SIGSTOP, a SQLite file that another process has locked."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from attacks.collector.devices import FEW, KIND, audit, put, reports
from attacks.collector.frame import Check, Ground, patience, until
from children import start

_LOCK = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


def attack(ground: Ground) -> Iterator[Check]:
    """Let the store hang under uploads, look at readiness, let it go on, let it hang again, and stop the server."""
    store = ground.new_store()
    serving = ground.serve(store, ground.task(FEW))
    given = reports(FEW, 6)
    acknowledged = [given[0].id] if put(serving.port, given[0]).status == 201 else []
    named = "PostgreSQL stopped by SIGSTOP" if ground.kind == "postgresql" else "SQLite locked by another process"
    with ExitStack() as stack:
        _hang(ground, store, stack)
        first = put(serving.port, given[1])
        later = put(serving.port, given[2])
        slowest = max(first.seconds, later.seconds)
        statuses = sorted({first.status, later.status})
        documents = {one.media_type for one in (first, later)} == {"application/problem+json"}
        told = documents and None not in (first.retry_after, later.retry_after)
        held = statuses == [503] and slowest <= patience(10) and told
        seen = f"status {statuses} after {_about(slowest)} at most"
        yield Check(f"{named}: uploads", "503 with Retry-After within 10 s", seen, held)
        began = time.monotonic()
        code, text = serving.ready()
        taken = time.monotonic() - began
        seen = f"{code or 'no answer'} ({text.strip()[:60]}) after {_about(taken)}"
        yield Check(f"{named}: readiness", "503 within 2 s", seen, code == 503 and taken <= patience(2))
    ready = until(lambda: serving.ready()[0] == 200, 60, 0.2)
    again = [put(serving.port, one) for one in given[1:4]]
    acknowledged += [one.id for one, upload in zip(given[1:4], again, strict=True) if upload.status in (200, 201)]
    seen = f"readiness {200 if ready else 'not 200'}, uploads {[one.status for one in again]}"
    yield Check(f"{named}, then let go", "all goes on as before", seen, ready and len(acknowledged) == 4)
    with ExitStack() as stack:
        _hang(ground, store, stack)
        under_way = start([sys.executable, "-c", _SEND, str(serving.port), *_parts(given[4])], stdout=subprocess.PIPE)
        stack.callback(under_way.kill)
        assert under_way.stdout is not None
        under_way.stdout.readline()  # it is sent
        time.sleep(1)  # and the server has it in hand
        began = time.monotonic()
        code_at_end = serving.stop(30)
        taken = time.monotonic() - began
    seen = "it did not end" if code_at_end is None else f"ended with {code_at_end} after {_about(taken)}"
    late = under_way.communicate()[0].decode().strip()
    if late in ("200", "201"):
        acknowledged.append(given[4].id)
    yield Check(f"{named}, an upload under way: SIGTERM", "the server ends within 30 s", seen, code_at_end is not None)
    if code_at_end is None:
        serving.kill()
    if ground.kind == "postgresql":
        ground.cluster.ensure()
    code, _, _ = ground.collect("advance", "--to", "closed", "--store", store)
    ((epoch,),) = (task["epochs"] for task in ground.status(store))
    # What was under way and got no answer may be there or not.
    possible = [audit(acknowledged), audit([*acknowledged, given[4].id])]
    seen = f"{epoch['reports']} counted, {len(acknowledged)} acknowledged"
    held = code == 0 and (epoch["reports"], epoch["checksum"]) in possible
    yield Check(f"{named}: what was acknowledged", "all of it is counted once", seen, held)


_SEND = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=900)
try:
    connection.request("PUT", sys.argv[2], bytes.fromhex(sys.argv[3]), {"Content-Type": sys.argv[4]})
    print("sent", flush=True)
    print(connection.getresponse().status)
except OSError:
    print("none")
"""


def _parts(report: object) -> list[str]:
    from collect.helpers import report_path
    from hushquery.local.report import Report

    assert isinstance(report, Report)
    return [report_path(report), report.to_bytes().hex(), KIND["Content-Type"]]


def _hang(ground: Ground, store: str, stack: ExitStack) -> None:
    """Let the store hang until the stack is left."""
    if ground.kind == "postgresql":
        ground.cluster.signal(signal.SIGSTOP)
        stack.callback(ground.cluster.signal, signal.SIGCONT)
        return
    locker = start([sys.executable, "-c", _LOCK, str(Path(store))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.callback(locker.communicate)
    stack.callback(locker.kill)
    assert locker.stdout is not None
    assert locker.stdout.readline() == b"locked\n"


def _about(seconds: float) -> str:
    return f"{seconds:.1f} s"
