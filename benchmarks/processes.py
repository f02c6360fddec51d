"""What a command costs, in a process of its own: the measure that the benchmarks of whole commands share."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Used", "run"]


@dataclass(frozen=True)
class Used:
    """What one process took: seconds on all cores together, seconds on the clock, and memory at its peak."""

    cpu: float
    wall: float
    peak_mib: float

    def to_json(self) -> dict[str, Any]:
        return {
            "cpu_seconds": round(self.cpu, 3),
            "wall_seconds": round(self.wall, 3),
            "peak_mib": round(self.peak_mib),
        }


def run(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[Used, str]:
    """Run a command to its end; give what it took and what it printed. A command that fails ends the benchmark."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = process.stdout.read() if process.stdout else ""
    # wait4 counts this child alone; the sums over all children would mix the jobs.
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command[:4]))} failed: {printed[-2000:]}")
    return Used(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024), printed
