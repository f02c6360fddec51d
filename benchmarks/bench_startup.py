"""What it costs to begin: importing hushquery and asking for help, beside an empty Python and the peers' imports.

    python benchmarks/bench_startup.py [--json] [--quick] [--rounds 9]

Each job is a process of its own; the jobs take turns, so that load on the machine hits all alike. Numbers are CPU
seconds of the fastest round: other work can only add. The jobs run once before the clock counts, so files are cached.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from processes import run

BIN = Path(sys.executable).parent
EMPTY = "python -c pass"
# What a user would import instead, or what we import when there is work to do.
PEERS = {"opendp": "opendp.prelude", "duckdb": "duckdb", "ibis": "ibis", "numpy": "numpy", "pyarrow": "pyarrow"}
# The floor of any command line of ours: Typer with one command that does nothing.
BARE = "a bare Typer --help"
BARE_TYPER = """
import typer
app = typer.Typer()
@app.command()
def nothing(number: int = 1) -> None: pass
app(["--help"])
"""
# So many times that floor `--help` may cost.
MOST_TIMES_BARE = 2.0


def jobs() -> tuple[dict[str, list[str | Path]], list[str]]:
    """Give what to run, by name, and the peers that are not installed."""
    ours: dict[str, list[str | Path]] = {
        EMPTY: [sys.executable, "-c", "pass"],
        BARE: [sys.executable, "-c", BARE_TYPER],
        "import hushquery": [sys.executable, "-c", "import hushquery"],
        "hushquery --version": [BIN / "hushquery", "--version"],
        "hushquery --help": [BIN / "hushquery", "--help"],
        "hushquery release --help": [BIN / "hushquery", "release", "--help"],
    }
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    theirs: dict[str, list[str | Path]] = {
        f"import {module}": [sys.executable, "-c", f"import {module}"]
        for name, module in PEERS.items()
        if name not in missing
    }
    return ours | theirs, missing


def measured(rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Run all jobs in turn; give a row for each."""
    todo, missing = jobs()
    seconds: dict[str, list[float]] = {name: [] for name in todo}
    memory: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, command in todo.items():
            used, _ = run(command)
            memory[name] = used.peak_mib
            if number:
                seconds[name].append(used.cpu)
    empty, bare = min(seconds[EMPTY]), min(seconds[BARE])
    rows = [
        {
            "job": name,
            "cpu_seconds": round(min(taken), 4),
            "median_cpu_seconds": round(sorted(taken)[len(taken) // 2], 4),
            "times_empty_python": round(min(taken) / empty, 2),
            "times_bare_typer": round(min(taken) / bare, 2),
            "peak_mib": round(memory[name]),
        }
        for name, taken in seconds.items()
    ]
    return rows, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    given = parser.parse_args()
    given.rounds = min(given.rounds, 2) if given.quick else given.rounds
    if given.rounds < 1:
        parser.error("--rounds is at least 1")
    rows, missing = measured(given.rounds)
    verdicts = [
        {
            "job": row["job"],
            "times_bare_typer": row["times_bare_typer"],
            "most": MOST_TIMES_BARE,
            "met": row["times_bare_typer"] <= MOST_TIMES_BARE,
        }
        for row in rows
        if row["job"].startswith("hushquery") and "--help" in row["job"]
    ]
    if given.json:
        print(json.dumps({"measured": rows, "not_installed": missing, "required": verdicts}, indent=2))
    else:
        print(f"{'':28}{'CPU s':>8}{'median':>8}{'x empty':>9}{'x bare Typer':>14}{'MiB':>6}")
        for row in rows:
            print(
                f"{row['job']:28}{row['cpu_seconds']:>8.3f}{row['median_cpu_seconds']:>8.3f}"
                f"{row['times_empty_python']:>9.1f}{row['times_bare_typer']:>14.2f}{row['peak_mib']:>6}"
            )
        print(f"best of {given.rounds} rounds in turn")
        for name in missing:
            print(f"{name}: not installed here")
        for one in verdicts:
            verb = "met" if one["met"] else "MISSED"
            print(f"{verb}: {one['job']} {one['times_bare_typer']:.2f} times a bare Typer's, at most {one['most']}")
    if not all(one["met"] for one in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
