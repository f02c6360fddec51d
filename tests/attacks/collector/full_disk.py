"""A disk that fills up: seen by readiness and metrics, nothing acknowledged is lost, and closing frees space."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx

from attacks.collector.devices import FEW, KIND, WIDE, audit, put, reports
from attacks.collector.frame import Check, Ground, until
from children import HANG
from hushquery.collect.http.ingest import pack_batch
from hushquery.local.report import Report
from hushquery.task import Task

_BATCH = 300
#: The names of metrics that tell of a full disk.
_TELLING = re.compile(r"^(hushquery_\w*(?:full|free|space|ready)\w*)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def attack(ground: Ground) -> Iterator[Check]:
    """Fill the store of two tasks with reports of the one; close that one; the other goes on."""
    store, more, named = _small(ground)
    tasks = [ground.task(FEW, "few"), ground.task(WIDE, "wide")]
    serving = ground.serve(store, *tasks, more=more)
    first = put(serving.port, reports(FEW, 1)[0]).status
    before = _telling(serving.admin)
    kept, unsure, statuses = _fill(serving.address)
    ready = until(lambda: serving.ready()[0] == 503, 30, 0.2)
    code, text = serving.ready()
    seen = f"uploads then {statuses}, {len(kept)} acknowledged; readiness {code}: {text.strip()[:60]}"
    filled = f"{named} filled with reports"
    yield Check(filled, "uploads 503, readiness 503", seen, statuses == [503] and ready and first == 201)
    after = _telling(serving.admin)
    changed = [name for name, value in after.items() if before.get(name) not in (None, value)]
    seen = f"{', '.join(changed) or 'none changed'}; {len(after)} metrics of that kind"
    yield Check(f"{filled}: metrics", "/metrics answers, and one of them tells", seen, bool(changed))
    # Nobody adds room: the one thing that helps is to close an epoch.
    task = Task.loads(WIDE).id
    code, _, err = ground.collect("advance", "--to", "closed", "--task", task, "--store", store)
    (found,) = (one for one in ground.status(store) if one["id"] == task)
    (epoch,) = found["epochs"]
    counted = (epoch["reports"], epoch["checksum"])
    sure = counted == audit(kept) or (bool(unsure) and len(kept) <= (epoch["reports"] or 0) <= len(kept) + len(unsure))
    seen = f"exit code {code} {err.strip()[:100]}; epoch {epoch['phase']}, {epoch['reports']} counted, "
    seen += f"{len(kept)} acknowledged"
    # The server itself may have released what is closed by now.
    held = code == 0 and epoch["phase"] in ("closed", "released") and sure
    yield Check(f"{filled}: `advance --to closed`", "it works, all that was acknowledged is counted once", seen, held)
    more_reports = reports(FEW, _BATCH)
    taken = until(lambda: _takes(serving.address, more_reports), 30, 0.5)
    ready = until(lambda: serving.ready()[0] == 200, 30, 0.2)
    seen = f"{_BATCH} reports {'taken' if taken else 'refused'}, readiness {'200' if ready else 'not 200'}"
    must = f"there is room again: the other task takes {_BATCH} reports, readiness 200"
    yield Check("after that closing", must, seen, taken and ready)
    serving.stop()


def _small(ground: Ground) -> tuple[str, list[str], str]:
    """Make a store on a disk of a few MiB, where a disk can be made; else one with a limit of its own."""
    place = ground.folder / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m,mode=755", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        return ground.new_store(), ["--max-store", "2MiB"], "a store of limited size"
    ground.on_end.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
    if ground.kind == "sqlite":
        return str(place / "collector.db"), [], "a disk of 3 MiB"
    name = f"small{os.getpid()}"
    spot = place / "tables"
    spot.mkdir()
    for one in (ground.folder, place, spot):
        one.chmod(0o755)
    subprocess.run(["chown", "postgres", str(spot)], check=True)
    spot.chmod(0o700)
    ground.cluster.execute(f"CREATE TABLESPACE {name} LOCATION '{Path(spot)}'")
    url = ground.new_store()
    schema = url.rpartition("%3D")[2]

    def tidy() -> None:
        ground.cluster.ensure()
        ground.cluster.execute(f"DROP SCHEMA {schema} CASCADE", f"DROP TABLESPACE {name}")

    ground.on_end.callback(tidy)
    return f"{url}%20-cdefault_tablespace%3D{name}", [], "a disk of 3 MiB with the tables"


def _fill(address: str) -> tuple[list[bytes], list[bytes], list[int]]:
    """Send until nothing is taken any more; gives what was acknowledged, what had no answer, and the last statuses."""
    kept: list[bytes] = []
    unsure: list[bytes] = []
    task = Task.loads(WIDE).id
    given = reports(WIDE, _BATCH)
    with httpx.Client(base_url=address, timeout=HANG) as client:
        for _ in range(200):
            for_now = [type(one)(os.urandom(16), one.task, one.configuration, one.time, one.payload) for one in given]
            body = pack_batch([one.to_bytes() for one in for_now])
            try:
                answer = client.post(f"/v1/tasks/{task}/reports", content=body, headers=KIND)
            except httpx.HTTPError:
                unsure += [one.id for one in for_now]
                return kept, unsure, [0]
            if answer.status_code != 200:
                return kept, unsure, [answer.status_code]
            statuses = [one["status"] for one in answer.json()["results"]]
            kept += [one.id for one, status in zip(for_now, statuses, strict=True) if status in (200, 201)]
            if set(statuses) != {201}:
                return kept, unsure, sorted(set(statuses) - {201})
    return kept, unsure, [201]


def _takes(address: str, given: list[Report]) -> bool:
    """Whether a batch is taken whole, now or before."""
    body = pack_batch([one.to_bytes() for one in given])
    with suppress(httpx.HTTPError):
        path = f"{address}/v1/tasks/{given[0].task.hex()}/reports"
        answer = httpx.post(path, content=body, headers=KIND, timeout=HANG)
        if answer.status_code == 200:
            return {one["status"] for one in answer.json()["results"]} <= {200, 201}
    return False


def _telling(admin: str) -> dict[str, str]:
    try:
        answer = httpx.get(f"{admin}/metrics", timeout=HANG)
    except httpx.HTTPError:
        return {}
    # A store that can't be asked may be told by the status; the lines count all the same.
    return dict(_TELLING.findall(answer.text))
