"""What a command of a single process costs, exactly, as the system says at its end.

measure.py looks at whole trees of processes on the way, which peers need; here nothing runs beside the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


# A process is said to have used at least what its parent had when it began, so the command's parent is this small one.
_BETWEEN = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[2:])
_, status, used = os.wait4(process.pid, 0)
taken = [used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1024]
os.write(int(sys.argv[1]), json.dumps([os.waitstatus_to_exitcode(status), taken]).encode())
"""


def run(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[Used, str]:
    """Run a command to its end; give what it took and what it printed. A command that fails ends the benchmark."""
    told, tell = os.pipe()
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", _BETWEEN, str(tell), *map(str, command)],
        env={**os.environ, **(env or {})},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        pass_fds=[tell],
    )
    os.close(tell)
    with os.fdopen(told) as pipe:
        answer = pipe.read()
    status, taken = json.loads(answer) if answer else (done.returncode or 1, [0.0, 0.0, 0.0])
    if status:
        raise SystemExit(f"{' '.join(map(str, command[:4]))} failed: {done.stdout[-2000:]}")
    return Used(*taken), done.stdout
