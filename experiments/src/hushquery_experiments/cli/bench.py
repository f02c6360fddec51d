"""``hushquery bench``: what privacy costs on this machine, beside the plain query that is not private."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit, flag, option, progress
from hushquery.errors import DataError, UsageError

_ROWS_PER_USER = 35.5  # what the synthetic log has, about
_PER_USER = 20
# The first statement of benchmarks/plain.sql, which a wheel does not carry; a test keeps the two the same.
_PLAIN_SQL = """
COPY (
  SELECT query, count(*) AS n
  FROM (
    SELECT "user", query, row_number() OVER (PARTITION BY "user" ORDER BY first, query) AS place
    FROM (SELECT "user", query, min("time") AS first FROM '$log' GROUP BY ALL)
  )
  WHERE place <= 20
  GROUP BY query
) TO '$out/queries.parquet' (COMPRESSION zstd);
"""
_PLAIN = "import sys, duckdb; duckdb.connect().execute(sys.argv[1])"


def bench(
    rows: Annotated[int, option("N", "About how many rows the synthetic log has.", min=10_000)] = (1_000_000),
    rounds: Annotated[int, option("N", "How often each job runs, in turns.", min=1, max=100)] = 3,
    peers: Annotated[
        bool, flag("--peers", "Instead, compare with other libraries (only in a source tree; minutes).")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Measure what a release costs here, against the plain query that is not private.

        hushquery bench --rows 1000000 --rounds 3

    A synthetic log is made in a temporary folder. Two jobs then take turns, each in a process of its own: the plain
    query (DuckDB: the first 20 queries of each user, counted, written to Parquet; no noise) and `hushquery release`
    with the same bound. CPU seconds are user and system. A small log shows fixed cost: imports and calibration.
    """
    if peers:
        _run_peers(as_json=as_json)
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name, progress("measuring", 2 * rounds + 1) as show:
        results = _measured(Path(name), rows, rounds, lambda: show(more=1))
    emit(results, _as_text(results), as_json)


def _measured(folder: Path, rows: int, rounds: int, tell: Any) -> dict[str, Any]:
    log, users = folder / "log.parquet", max(1, round(rows / _ROWS_PER_USER))
    # Not in this process: what it has in memory when it starts a job would count as the job's.
    _run([sys.executable, "-m", "hushquery", "synth", "--users", str(users), "--out", str(log)])
    tell()
    plain_sql = _PLAIN_SQL.replace("$log", _quoted(log)).replace("$out", _quoted(folder))
    runs: dict[str, list[tuple[float, float]]] = {"plain query": [], "release": []}
    for turn in range(rounds):
        out = folder / f"release-{turn}"
        release = [sys.executable, "-m", "hushquery", "release", str(log), "--epsilon", "ln(10)", "--delta", "1e-5"]
        release += ["--queries-per-user", str(_PER_USER), "--ledger", str(folder / f"{turn}.db"), "--out", str(out)]
        release += ["--population", "imaginary users"]
        for job, command in (("plain query", [sys.executable, "-c", _PLAIN, plain_sql]), ("release", release)):
            runs[job].append(_run(command))
            tell()
    import pyarrow.parquet as pq

    cpu = [ours[0] / plain[0] for ours, plain in zip(runs["release"], runs["plain query"], strict=True)]
    memory = [ours[1] / plain[1] for ours, plain in zip(runs["release"], runs["plain query"], strict=True)]
    return {
        "rows": pq.read_metadata(log).num_rows,
        "users": users,
        "rounds": rounds,
        "cores": os.cpu_count(),
        "engine": "duckdb",
        "cpu_seconds": {job: _spread([run[0] for run in measured]) for job, measured in runs.items()},
        "peak_mib": {job: _spread([run[1] for run in measured]) for job, measured in runs.items()},
        "cpu_ratio": _spread(cpu),
        "memory_ratio": _spread(memory),
        "queries_counted": pq.read_metadata(folder / "queries.parquet").num_rows,
        "queries_released": pq.read_metadata(out / "queries.parquet").num_rows,
    }


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _run(command: list[str]) -> tuple[float, float]:
    """Run a command; gives its CPU seconds and its peak memory in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603
    complaint = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise DataError(
            what="a job of the benchmark failed",
            why=complaint.splitlines()[-1] if complaint else f"it ended with code {process.returncode}",
            fix="hushquery doctor says what this machine lacks",
        )
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kibibytes
    return used.ru_utime + used.ru_stime, used.ru_maxrss / unit


def _spread(values: list[float]) -> dict[str, float]:
    return {"min": round(min(values), 2), "median": round(statistics.median(values), 2), "max": round(max(values), 2)}


def _as_text(results: dict[str, Any]) -> str:
    lines = [f"{results['rows']:,} rows of {results['users']:,} synthetic users, {results['rounds']} rounds, DuckDB"]
    lines.append(f"{'':14}{'CPU s':>8}{'peak MiB':>10}   (medians)")
    for job in results["cpu_seconds"]:
        lines.append(
            f"{job:14}{results['cpu_seconds'][job]['median']:>8.2f}{results['peak_mib'][job]['median']:>10.0f}"
        )
    for word, key in (("CPU", "cpu_ratio"), ("memory", "memory_ratio")):
        low, middle, high = results[key].values()
        lines.append(f"{word}: the release takes {middle:.2f} times the plain query ({low:.2f} to {high:.2f})")
    lines.append(f"{results['queries_released']:,} queries released, of {results['queries_counted']:,} counted")
    return "\n".join(lines)


def _run_peers(*, as_json: bool) -> None:
    script = Path(__file__).resolve().parents[4] / "benchmarks" / "bench_peers.py"
    if not script.is_file():
        raise UsageError(
            what="the scripts of the peers are not here",
            why="they belong to the source tree, and this is an installed package",
            fix="Clone the repository and run `make bench`, or leave out --peers",
        )
    done = subprocess.run([sys.executable, str(script), "--quick", *(["--json"] if as_json else [])], check=False)  # noqa: S603
    raise typer.Exit(done.returncode)
