"""A whole release against the plain, non-private query on the same engine and file (benchmarks/plain.sql).

    python benchmarks/bench_release.py [ROWS_IN_MILLIONS] [ROUNDS]

Runs both in turn, each in a process of its own, and prints CPU seconds (user and system), peak memory and their ratios,
from the fastest round of each: other work on the machine can only add. The log is synthetic and made once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
USERS_PER_MILLION_ROWS = 28_200
PLAIN = """
import sys, duckdb
sql = open(sys.argv[1]).read().replace("$log", sys.argv[2]).replace("$out", sys.argv[3])
duckdb.connect().execute(sql)
"""
BUDGET = ["--epsilon", "ln(10)", "--delta", "1e-5", "--queries-per-user", "20", "--json"]


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command; give its CPU seconds and its peak memory in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = process.stderr.read().decode() if process.stderr else ""
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[:4]} failed: {message}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log.parquet"
        from hushquery.log.synthetic import write_log

        write_log(log, "aol", max(1, int(millions * USERS_PER_MILLION_ROWS)), 7)
        jobs = {
            "plain query": lambda _: [sys.executable, "-c", PLAIN, str(HERE / "plain.sql"), str(log), str(folder)],
            "release, queries and clicks": lambda i: release(log, folder, f"{i}a", "--clicks-per-user", "5"),
            "release, guided, queries and clicks": lambda i: release(
                log, folder, f"{i}b", "--clicks-per-user", "5", "--selector", "guided"
            ),
        }
        best: dict[str, tuple[float, float]] = {}
        for i in range(rounds):
            for job, command in jobs.items():
                cpu, memory = measure(command(i))
                known = best.get(job, (float("inf"), float("inf")))
                best[job] = (min(cpu, known[0]), min(memory, known[1]))
        plain = best["plain query"]
        print(f"{millions:g} million rows, best of {rounds} rounds, two threads of DuckDB each")
        print(f"{'job':40}{'CPU s':>8}{'ratio':>8}{'peak MiB':>10}{'ratio':>8}")
        for job, (cpu, memory) in best.items():
            print(f"{job:40}{cpu:>8.1f}{cpu / plain[0]:>8.2f}{memory:>10.0f}{memory / plain[1]:>8.2f}")


def release(log: Path, folder: Path, name: str, *options: str) -> list[str]:
    """Write the command of a release with a ledger of its own."""
    where = ["--ledger", str(folder / f"ledger-{name}.db"), "--out", str(folder / f"release-{name}")]
    return [str(BIN / "hushquery"), "release", str(log), *BUDGET, *where, *options]


if __name__ == "__main__":
    main()
