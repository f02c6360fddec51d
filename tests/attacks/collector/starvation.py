"""One cheap address against all honest devices: dear batches, answers nobody reads, idle and slow connections."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

from attacks.collector import burden
from attacks.collector.devices import FEW, Upload, p99, put, reports, steady
from attacks.collector.frame import Check, Ground, Serving, until
from children import HANG, start
from hushquery.task import Task

TASK = Task.loads(FEW).id
#: The most that honest uploads may slow down under attack.
MOST_RATIO = 3.0
#: What one batch may cost the server, in CPU seconds, and how long its answer may be.
MOST_CPU, MOST_ANSWER = 0.1, 100_000
MOST_LOG = 64 * 1024
MOST_MIB = 96.0


def attack(ground: Ground) -> Iterator[Check]:
    """Measure what requests cost, then honest uploads beside hostile ones; each attack meets a server of its own."""
    yield _cost(_fresh(ground))
    if not ground.short:
        for kind, number, tried in (
            ("numbers", 4, "4 batches of 9,999 bare numbers a second (80 kB/s) from one address"),
            ("slow", 200, "200 connections that send a byte a second"),
        ):
            yield _measured(_fresh(ground), kind, number, tried)
    yield _unread(_fresh(ground), ground.size(40, 200))
    yield from _idle(_fresh(ground, files=1024))


def _fresh(ground: Ground, files: int | None = None) -> Serving:
    ground.end()  # what still has an earlier attack to deal with
    return ground.serve(ground.new_store(), ground.task(FEW), files=files)


@contextmanager
def burdened(kind: str, port: int, number: int) -> Iterator[None]:
    """Let hostile clients work in a process of their own."""
    command = [sys.executable, burden.__file__, kind, str(port), TASK, str(number)]
    process = start(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()  # and its pipe is closed


def _cost(serving: Serving) -> Check:
    worst, longest = (0.0, ""), (0, "")
    for name, (kind, body) in burden.batches().items():
        httpx.post(f"{serving.address}/v1/tasks/{TASK}/reports", content=b"", timeout=HANG)
        before = serving.cpu()
        answer = httpx.post(
            f"{serving.address}/v1/tasks/{TASK}/reports", content=body, headers={"Content-Type": kind}, timeout=60
        )
        worst = max(worst, (serving.cpu() - before, name))
        longest = max(longest, (len(answer.content), name))
    seen = f"at most {worst[0]:.2f} CPU s ({worst[1]}), at most {longest[0]:,} bytes of answer ({longest[1]})"
    tried = f"batches of {burden.ITEMS:,} items that are none, in 20 to 60 kB, {len(burden.batches())} kinds"
    must = f"each costs at most {MOST_CPU} CPU s and {MOST_ANSWER:,} bytes of answer"
    return Check(tried, must, seen, worst[0] <= MOST_CPU and longest[0] <= MOST_ANSWER)


def _measured(serving: Serving, kind: str, number: int, tried: str) -> Check:
    """Compare honest uploads in quiet and under attack, in one run: p99 of 400 at 20 a second each time."""
    steady(serving.port, reports(FEW, 40), 20)  # to warm up
    quiet = steady(serving.port, reports(FEW, 400), 20)
    logged, held_by = serving.logged(), serving.memory()
    with burdened(kind, serving.port, number):
        under = steady(serving.port, reports(FEW, 400), 20)
        ready = serving.ready()[0]
    grown, ratio = serving.memory() - held_by, p99(under) / p99(quiet)
    good = sum(one.status == 201 for one in under)
    times = "for ever" if ratio == float("inf") else f"{1000 * p99(under):.0f} ms, {ratio:.1f} times"
    seen = f"p99 {1000 * p99(quiet):.0f} ms quiet, under attack {times}; {good} of {len(under)} taken; "
    seen += f"readiness {ready}; log {serving.logged() - logged:,} bytes; memory +{max(grown, 0):.0f} MiB"
    held = ratio <= MOST_RATIO and good == len(under) and ready == 200
    held = held and serving.logged() - logged <= MOST_LOG and grown <= MOST_MIB
    must = f"all taken, p99 at most {MOST_RATIO:.0f} times the quiet one, readiness 200, log and memory stay small"
    return Check(f"honest uploads beside {tried}", must, seen, held)


def _descriptors(serving: Serving) -> int:
    return sum(1 for pid in serving.family() for _ in Path(f"/proc/{pid}/fd").glob("*"))


def _unread(serving: Serving, number: int) -> Check:
    before, held_by, logged = _descriptors(serving), serving.memory(), serving.logged()
    with burdened("unread", serving.port, number):
        most = 0.0

        def cut() -> bool:
            nonlocal most
            most = max(most, serving.memory() - held_by)
            return _descriptors(serving) <= before + number // 10

        until(lambda: _descriptors(serving) > before + number // 2, 60, 0.5)  # a busy server takes them late
        until(cut, 90, 1)
        left = max(0, _descriptors(serving) - before)
        upload = put(serving.port, reports(FEW, 1)[0], timeout=HANG)
    seen = f"{left} of {number} still held after 90 s at most; memory +{max(most, 0):.0f} MiB; "
    seen += f"log {serving.logged() - logged:,} bytes; honest upload {upload.status}"
    held = left <= number // 10 and most <= MOST_MIB and upload.status == 201 and serving.logged() - logged <= MOST_LOG
    return Check(
        f"{number} connections that ask for much and read nothing",
        f"they are cut, memory grows by at most {MOST_MIB:.0f} MiB, honest uploads are taken",
        seen,
        held,
    )


def _idle(serving: Serving) -> Iterator[Check]:
    with burdened("idle", serving.port, 1100):
        time.sleep(2)
        logged = serving.logged()
        answers: list[Upload] = []
        taken = until(lambda: _taken(serving, answers), 60, 0.5)
        ready, _ = serving.ready()
        grown = serving.logged() - logged
    odd = [one for one in answers if not _told(one)]
    seen = f"{len(answers)} uploads answered {sorted({one.status for one in answers})}, the last "
    seen += f"{'taken' if taken else 'not taken'}; {len(odd)} without a proper answer; readiness {ready or 'silent'}; "
    # The size of the log depends on how long all this took, its order does not.
    seen += f"log {'below 64 kB' if grown <= MOST_LOG else f'+{grown / 2**20:.0f} MiB'}"
    must = "each upload is taken, or refused by a problem document with Retry-After; then taken within 60 s; "
    must += "readiness answers; the log stays small"
    held = taken and not odd and ready in (200, 503) and grown <= MOST_LOG
    yield Check("1,100 idle connections at `ulimit -n 1024`", must, seen, held)
    after = until(lambda: put(serving.port, reports(FEW, 1)[0]).status == 201, 30, 0.5)
    ready_again = until(lambda: serving.ready()[0] == 200, 30, 0.5)
    seen = f"uploads {'taken' if after else 'not taken'}, readiness {'200' if ready_again else 'not 200'}"
    yield Check("and when they are gone", "all is as before", seen, after and ready_again)


def _taken(serving: Serving, answers: list[Upload]) -> bool:
    answers.append(put(serving.port, reports(FEW, 1)[0]))
    return answers[-1].status == 201


def _told(upload: Upload) -> bool:
    refused = upload.media_type == "application/problem+json" and upload.retry_after is not None
    return upload.status == 201 or (upload.status in (429, 503) and refused)
