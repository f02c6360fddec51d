"""Honest devices: their tasks, their reports, how they send them, and what must come of it."""

from __future__ import annotations

import hashlib
import http.client
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from attacks.collector.frame import patience
from children import HANG
from collect.helpers import SETTING, make_report, report_path
from collect.servers import Sender
from hushquery.local.report import Report
from hushquery.task import Task

#: A task of few answers: who knows the rest of a report can try them all.
FEW = SETTING
#: A task with answers of 33 random bytes, which can be searched for.
WIDE = SETTING.replace(
    'domain = ["dark", "light", "system"]', f"domain = [{', '.join(f'{chr(34)}v{n}{chr(34)}' for n in range(256))}]"
).replace("epsilon = 1\n", 'epsilon = 1\noracle = "oue"\n', 1)

KIND = {"Content-Type": "application/octet-stream"}


def reports(text: str, number: int, now: float | None = None) -> list[Report]:
    """Make the reports of so many devices, each with coins and an id of its own."""
    task = Task.loads(text)
    made = [make_report(task, coin, time=time.time() if now is None else now, cell=coin % 3) for coin in range(64)]
    if text == WIDE:
        made = [make_report(task, coin, time=time.time() if now is None else now) for coin in range(number)]
    return [replace(made[n % len(made)], id=os.urandom(16)) for n in range(number)]


def audit(ids: Iterable[bytes]) -> tuple[int, str]:
    """What `collect status` must say of a closed epoch with these reports: how many, and the XOR of hashed ids."""
    number = mixed = 0
    for one in ids:
        number += 1
        mixed ^= int.from_bytes(hashlib.sha256(one).digest())
    return number, mixed.to_bytes(32).hex()


def senders(port: int, given: Sequence[Report], batches: Sequence[int]) -> list[Sender]:
    """Start clients that send until all is acknowledged; the first and the last have the same reports."""
    share = -(-len(given) // len(batches))
    parts = [given[n * share : (n + 1) * share] for n in range(len(batches))]
    started = [Sender(port, part, batch) for part, batch in zip(parts, batches, strict=True)]
    started.append(Sender(port, parts[0][: len(parts[0]) // 2], batches[0] + 1))
    for one in started:
        one.start()
    return started


def acknowledged(started: Iterable[Sender]) -> set[bytes]:
    """The ids that were acknowledged so far."""
    return {one for sender in started for one in list(sender.acknowledged)}


def join(started: Iterable[Sender], seconds: float) -> str:
    """Wait for clients; gives what is strange about how it went, or nothing."""
    end, strange = time.monotonic() + patience(seconds), []
    for one in started:
        one.join(max(0.1, end - time.monotonic()))
        strange += [f"{len(one.acknowledged)} of {len(one.reports)} acknowledged"] if one.is_alive() else []
        strange += [f"status {status}" for status in sorted(set(map(str, one.strange)))]
        one.stopped = True
    return "; ".join(strange)


@dataclass(frozen=True)
class Upload:
    """One upload: its status (0: no answer), how long it took, and what else counts of the answer."""

    status: int
    seconds: float
    media_type: str = ""
    retry_after: str | None = None
    text: str = ""


def put(port: int, report: Report, timeout: float = HANG) -> Upload:
    """Send one report over a connection of its own."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("PUT", report_path(report), report.to_bytes(), KIND)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return Upload(0, time.monotonic() - began, text=type(error).__name__)
    finally:
        connection.close()
    kind = answer.getheader("Content-Type", "") or ""
    return Upload(answer.status, time.monotonic() - began, kind, answer.getheader("Retry-After"), text)


def steady(port: int, given: Sequence[Report], per_second: float, timeout: float = 30) -> list[Upload]:
    """Send reports at a steady pace from a thread each, as devices that know nothing of each other do."""
    found: list[Upload] = []
    threads = []
    begin = time.monotonic()
    for number, report in enumerate(given):
        with suppress(ValueError):
            time.sleep(begin + number / per_second - time.monotonic())
        thread = threading.Thread(target=lambda one=report: found.append(put(port, one, timeout)), daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join(timeout + 5)
    return found


def p99(uploads: Sequence[Upload]) -> float:
    """The 99th percentile of how long uploads took; one without an answer took for ever."""
    taken = sorted(one.seconds if one.status else float("inf") for one in uploads)
    return taken[min(len(taken) - 1, len(taken) * 99 // 100)]
