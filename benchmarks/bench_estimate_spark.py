"""Reports from Parquet to an estimate: in this process, and on a local Spark session with two cores.

    python benchmarks/bench_estimate_spark.py [--reports 1000000] [--rounds 3] [--json]

Both count the very same reports, and the sums must be equal. Seconds are by the clock and of CPU (on Linux, with all of
Spark's processes), the least of the rounds, with Spark's session started and its first job behind it. Spark pays for
sending every report to the worker of its id and from there to a Python process; it is for reports that one machine
can't hold, and this says what that costs on one that can.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushquery.engine import connect
from hushquery.local.configuration import Configuration
from hushquery.local.report import VERSION
from hushquery.local.server.estimate import ClientEstimate, estimate
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task

CELLS = 1001
FILES = 4
WEEK = 7 * 86400
HEAD = [[f"query {i}", f"https://{i}.example"] for i in range(CELLS - 1)]
TASK = Task.make(
    {
        "task": {"name": "searches", "population": "readers", "period": "7d"},
        "optin": {"epsilon": 4, "delta": "1e-5"},
        "client": {"epsilon": 4, "lifetime_epsilon": 8, "oracle": "krr"},
        "head": {"size": CELLS - 1},
    }
)


def write(folder: Path, reports: int) -> list[Path]:
    """Write the reports of as many clients, all of one week, each with its own id."""
    fixed = Configuration.of(TASK, HEAD)
    bits = SeededBits("bench estimate")
    paths = []
    for number in range(FILES):
        rows = reports // FILES
        cells = fixed.oracle.randomize_many(np.arange(rows) % CELLS, bits)
        size = fixed.channel.report_bytes
        payload = cells.astype("<u8").view(np.uint8).reshape(rows, 8)[:, :size]
        fixed_part = [fixed.task.digest, fixed.digest, (52 * WEEK).to_bytes(8, "big"), size.to_bytes(2, "big")]
        columns = [
            np.full((rows, 1), VERSION, dtype=np.uint8),
            bits.words(2 * rows).view(np.uint8).reshape(rows, 16),
            np.tile(np.frombuffer(b"".join(fixed_part), dtype=np.uint8), (rows, 1)),
            payload,
        ]
        flat = np.concatenate(columns, axis=1)
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(flat.shape[1]), rows, [None, pa.py_buffer(flat)])
        paths.append(folder / f"reports{number}.parquet")
        pq.write_table(pa.table({"report": column.cast(pa.binary())}), paths[-1])
    return paths


def measured(reports: int, rounds: int) -> list[dict[str, object]]:
    """Time each way; a row for each, with its ratio to this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = connect("spark")
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), reports)
        ways: dict[str, Callable[[], ClientEstimate]] = {
            f"{where}, {period}": lambda engine=engine, number=number: estimate(  # type: ignore[misc]
                TASK, paths, head=HEAD, period=number, engine=engine
            )
            for where, engine in (("this process", None), ("Spark", spark))
            for period, number in (("one period named", 52), ("the fullest period", None))
        }
        found = [run() for run in ways.values()]
        if any(one.n != reports or one.support.tolist() != found[0].support.tolist() for one in found):
            raise SystemExit("the sums differ")
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, run in ways.items():
                start, used = time.perf_counter(), cpu_seconds()
                run()
                taken[name].append((time.perf_counter() - start, cpu_seconds() - used))
    spark.disconnect()
    least = {name: (min(clock for clock, _ in pairs), min(cpu for _, cpu in pairs)) for name, pairs in taken.items()}
    return [
        {
            "way": name,
            "seconds": round(clock, 2),
            "cpu_seconds": round(cpu, 2),
            "reports_per_cpu_second": round(reports / cpu),
            "times_this_process": round(cpu / least["this process" + name[name.index(",") :]][1], 1),
        }
        for name, (clock, cpu) in least.items()
    ]


def cpu_seconds() -> float:
    """Add up the CPU time of this process and all that descend from it, the ended ones included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)], used[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))

    def ours(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return sum(ticks for process, ticks in used.items() if ours(process)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.rounds < 1 or given.reports < 10 * CELLS:
        parser.error(f"--rounds is at least 1, and --reports at least {10 * CELLS}")
    rows = measured(given.reports // FILES * FILES, given.rounds)
    if given.json:
        print(json.dumps({"reports": given.reports, "cells": CELLS, "rounds": given.rounds, "ways": rows}, indent=2))
        return
    print(f"{given.reports:,} reports of {CELLS:,} cells, the fastest of {given.rounds} rounds\n")
    print(f"{'':36} {'seconds':>8} {'CPU s':>8} {'per CPU s':>12} {'x process':>10}")
    for row in rows:
        print(
            f"{row['way']:36} {row['seconds']:>8} {row['cpu_seconds']:>8} {row['reports_per_cpu_second']:>12,} "
            f"{row['times_this_process']:>10}"
        )


if __name__ == "__main__":
    main()
