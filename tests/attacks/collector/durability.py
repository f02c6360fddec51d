"""Kill everything that can be killed under load: what was acknowledged is counted, and counted once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psycopg

from attacks.collector.devices import FEW, acknowledged, audit, join, reports, senders
from attacks.collector.frame import Check, Ground, Serving, alive, children, until
from children import HANG, start
from collect.servers import Sender

MUST = "nothing acknowledged is lost, nothing is counted twice"


def attack(ground: Ground) -> Iterator[Check]:
    """Kill the server, its parent, the database; stop it in flight; race for the closing."""
    if ground.kind == "postgresql":
        yield from _kill_the_parent(ground)
        yield _kill_the_database(ground)
        if ground.short:  # what is left is the same code as on SQLite
            return
    if ground.short:  # both under one load
        yield _kill_the_server(ground, stop=True)
        return
    yield _kill_the_server(ground)
    yield _stop_in_flight(ground)


def counted(ground: Ground, store: str, ids: list[bytes], strange: str, tried: str) -> Check:
    """Close the epoch, by two at once, and compare its audit with the ids that were sent."""
    command = [sys.executable, "-m", "hushquery", "collect", "advance", "--to", "closed", "--store", store]
    racers = [
        start(command, cwd=ground.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(ground.size(2, 4))
    ]
    codes = [racer.wait(HANG) for racer in racers]
    (task,) = ground.status(store)
    (epoch,) = task["epochs"]
    number, checksum = audit(ids)
    held = (epoch["phase"], epoch["reports"], epoch["checksum"]) == ("closed", number, checksum) and not strange
    seen = f"{epoch['reports']} counted of {number} acknowledged, checksum "
    seen += "as it must be" if epoch["checksum"] == checksum else "differs"
    seen += f"; {epoch['phase']}, advance raced by {len(codes)} ended with {sorted(codes)}"
    accepted = task["uploads"].get("accepted", 0)
    seen += f"; {accepted} counted as accepted; {strange}".removesuffix("; ")
    # Whoever loses the race is told so (an error) or finds it done; one at least has done it.
    return Check(tried, MUST, seen, held and 0 in codes and accepted == number)


def _while_killing(started: list[Sender], number: int, times: int, kill: Callable[[int], None]) -> None:
    for turn in range(times):
        goal = len(acknowledged(started)) + number // (2 * times + 1)
        until(lambda goal=goal: len(acknowledged(started)) >= goal or not any(s.is_alive() for s in started), 120)
        kill(turn)


def _kill_the_server(ground: Ground, *, stop: bool = False) -> Check:
    store, task = ground.new_store(), ground.task(FEW)
    number, kills = ground.size(600, 12_000), ground.size(1, 6)
    given = reports(FEW, number)
    running: list[Serving] = [ground.serve(store, task)]
    port = running[0].port
    beside = ground.serve(store, task) if ground.kind == "postgresql" else None
    started = senders(port, given[: number // 2], (40, 1) if ground.short else (40, 25, 1))
    started += senders(beside.port if beside else port, given[number // 2 :], (30, 20))

    codes = []

    def kill(turn: int) -> None:
        if stop and turn:
            codes.append(running[0].stop())
        else:
            running[0].kill()
        running[0] = ground.serve(store, task, port=port)

    _while_killing(started, number, kills + stop, kill)
    strange = join(started, 300) + (f"; exit codes {codes}" if any(codes) else "")
    for one in (running[0], beside):
        if one is not None and one.stop() != 0:
            strange += "; a server did not end well"
    two = ", two servers on one PostgreSQL" if beside else ""
    also = ", then SIGTERM with requests in flight," if stop else ""
    tried = f"kill -9 of the server {kills} times{also} under load of {number} reports{two}; then `advance` raced"
    return counted(ground, store, [one.id for one in given], strange, tried)


def _kill_the_parent(ground: Ground) -> Iterator[Check]:
    store, task = ground.new_store(), ground.task(FEW)
    number = ground.size(400, 5_000)
    given = reports(FEW, number)
    serving = ground.serve(store, task, more=("--workers", "2"))
    port, workers = serving.port, children(serving.pid)
    started = senders(port, given, (20, 10))
    until(lambda: len(acknowledged(started)) > number // 4, 60)
    os.kill(serving.pid, signal.SIGKILL)
    serving.process.wait()
    ended = until(lambda: not any(map(alive, workers)), 30)
    seen = "all workers ended" if ended else f"{sum(map(alive, workers))} of {len(workers)} still run after 30 s"
    yield Check("kill -9 of the parent of two workers", "the workers end by themselves", seen, ended)
    serving.kill()  # what is left of its group
    for pid in workers:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, workers)), 10)
    again = ground.serve(store, task, more=("--workers", "2"), port=port)
    strange = join(started, 120)
    again.stop()
    yield counted(ground, store, [one.id for one in given], strange, f"the same under load of {number} reports")


def _kill_the_database(ground: Ground) -> Check:
    store, task = ground.new_store(), ground.task(FEW)
    number = ground.size(600, 12_000)
    given = reports(FEW, number)
    serving = ground.serve(store, task)
    beside = None if ground.short else ground.serve(store, task)
    started = senders(serving.port, given[: number // 2], (30, 1))
    started += senders((beside or serving).port, given[number // 2 :], (25, 20))

    def kill(turn: int) -> None:
        if turn % 3 == 0:
            with psycopg.connect(ground.cluster.url, autocommit=True) as connection:
                busy = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                ).fetchall()
            os.kill(busy[0][0], signal.SIGKILL)  # PostgreSQL then ends all sessions and recovers
        elif turn % 3 == 1:
            ground.cluster.kill()
            ground.cluster.start()
        else:
            ground.cluster.stop_at_once()
            time.sleep(0.3)
            ground.cluster.start()

    times = 3 if ground.short else 6
    _while_killing(started, number, times, kill)
    strange = join(started, 300)
    until(lambda: serving.ready()[0] == 200, 30)
    for one in (serving, beside):
        if one is not None and one.stop() != 0:
            strange += "; a server did not end well"
    tried = f"kill -9 of a database session, of the whole cluster, immediate stop; {times} in all, {number} reports"
    return counted(ground, store, [one.id for one in given], strange, tried)


def _stop_in_flight(ground: Ground) -> Check:
    store, task = ground.new_store(), ground.task(FEW)
    number, times = 6_000, 4
    given = reports(FEW, number)
    running = [ground.serve(store, task)]
    port = running[0].port
    started = senders(port, given, (20, 1, 15))
    codes = []

    def stop(_: int) -> None:
        codes.append(running[0].stop())
        running[0] = ground.serve(store, task, port=port)

    _while_killing(started, number, times, stop)
    strange = join(started, 300)
    codes.append(running[0].stop())
    if set(codes) != {0}:
        strange += f"; exit codes {codes}"
    tried = f"SIGTERM {times + 1} times with requests in flight, {number} reports"
    return counted(ground, store, [one.id for one in given], strange, tried)
