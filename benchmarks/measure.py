"""Measure a command with all its descendants: CPU seconds, wall seconds, peak memory, and what went wrong, if it did.

A job may start others (Spark starts a Java machine) that outlive it and that it never waits for. So every job gets a
session of its own, and the processes of that session are looked at several times a second. CPU is what the system
reports at the end or what was seen on the way, whichever is more. Memory is the largest sum of resident sets seen at
once, or the peak of one process that its own counter shows, whichever is more; pages shared between processes count
once for each. (What the system reports at the end is no use: it counts the memory of the process that started the job.)
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAUSE = 0.05
GRACE = 5.0


@dataclass(frozen=True)
class Run:
    """What one run of a command took."""

    cpu: float
    wall: float
    mib: float
    output: str
    #: The last line of its complaint, empty where it succeeded.
    error: str = ""


def run(command: Sequence[str], *, limit: float, env: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end, or for ``limit`` seconds; never raises for what the command does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(
                command, stdout=out, stderr=err, env={**os.environ, **(env or {})}, start_new_session=True
            )
        except OSError as refused:
            return Run(0, 0, 0, "", f"{Path(command[0]).name}: {refused.strerror}")
        tree = _Tree(process.pid)
        status, used, late = None, None, False
        try:
            while status is None:
                tree.look()
                done, found, usage = os.wait4(process.pid, os.WNOHANG)
                if done:
                    status, used = found, usage
                elif not late and time.perf_counter() - began > limit:
                    late = True
                    tree.stop()
                else:
                    time.sleep(PAUSE)
        except KeyboardInterrupt:
            tree.stop()
            raise
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it again
        tree.end()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    cpu = max(used.ru_utime + used.ru_stime if used else 0.0, tree.cpu)
    error = ""
    if late:
        error = f"stopped after {limit:g} s, its time limit"
    elif process.returncode:
        error = last_line(texts[1]) or f"ended with code {process.returncode}"
    return Run(cpu, wall, tree.mib, texts[0], error)


class _Tree:
    """The processes of a session, as the system's process files show them (on Linux; elsewhere nothing is seen)."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._ticks: dict[int, int] = {}
        self.mib = 0.0

    @property
    def cpu(self) -> float:
        return sum(self._ticks.values()) / float(os.sysconf("SC_CLK_TCK"))

    def look(self) -> list[int]:
        """Note what each process has used so far; gives the processes."""
        pids, pages = [], 0
        for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208 -- many times a second
            if name.isdigit():
                try:
                    stat = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                except OSError:  # it ended
                    continue
                if int(stat[3]) == self._session and stat[0] != b"Z":
                    pids.append(int(name))
                    pages += int(stat[21])
                    self.mib = max(self.mib, _peak(name))
                    self._ticks[int(name)] = int(stat[11]) + int(stat[12])
        self.mib = max(self.mib, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        return pids

    def stop(self) -> None:
        for pid in self.look() or [self._session]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        """Let what the job left behind end by itself, then end it."""
        until = time.perf_counter() + GRACE
        while self.look():
            if time.perf_counter() > until:
                self.stop()
            time.sleep(PAUSE)


def _peak(pid: str) -> float:
    """Read the peak memory of a process so far, in MiB."""
    try:
        lines = Path("/proc", pid, "status").read_bytes().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(b"VmHWM")), 0.0)


def last_line(text: str) -> str:
    """Give the last line that says something, shortened, without the folder of a path."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    home = str(Path.home())
    return lines[-1].replace(home, "~")[:300] if lines else ""


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Give the least, the median and the largest."""
    found = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: round(value, digits) for name, value in found.items()}


def ratios(values: Sequence[float | None], references: Sequence[float | None]) -> list[float]:
    """Divide round by round, so that load on the machine during a round falls out; rounds without both are left out."""
    pairs = zip(values, references, strict=False)  # a reference that never ran has no rounds
    return [value / reference for value, reference in pairs if value is not None and reference]


def in_turns(
    jobs: Mapping[str, Callable[[], Run]], rounds: Mapping[str, int], until: float = math.inf
) -> dict[str, list[Run | None]]:
    """Run jobs round by round; gives a job's runs, with None for a round in which it has none.

    A job with fewer rounds has them in the last ones, so that slow jobs come when the others have their numbers. One
    that failed is not tried again. After ``until`` (of the clock that counts up) nothing more is started.
    """
    found: dict[str, list[Run | None]] = {name: [] for name in jobs}
    most = max(rounds.values(), default=0)
    for turn in range(most):
        for name, job in jobs.items():
            if turn < most - rounds[name] or any(run and run.error for run in found[name]):
                found[name].append(None)
            elif time.monotonic() > until:
                found[name].append(Run(0, 0, 0, "", "not run: the time for all jobs was over"))
            else:
                found[name].append(job())
    return found


def row(name: str, runs: Sequence[Run | None], reference: Sequence[Run | None], **more: Any) -> dict[str, Any]:
    """Sum up the runs of a job beside those of the reference; a job that failed is a row with its error."""
    done = finished(runs)
    told: dict[str, Any] = {"job": name, "rounds": len(done), **more}
    told["error"] = next((run.error for run in runs if run and run.error), "" if done else "did not run")
    if done:
        told |= {what: spread([getattr(run, what) for run in done]) for what in ("cpu", "wall")}
        told["mib"] = spread([run.mib for run in done], 0)
        for key, what in (("ratio", "cpu"), ("memory_ratio", "mib")):
            ours, theirs = (
                [getattr(run, what) if run and not run.error else None for run in r] for r in (runs, reference)
            )
            found = ratios(ours, theirs)
            if found:
                told[key] = spread(found)
    return told


def finished(runs: Sequence[Run | None]) -> list[Run]:
    """Give the runs that succeeded."""
    return [run for run in runs if run and not run.error]


def machine() -> dict[str, Any]:
    """Say when and on what this runs."""
    import platform

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
    }
