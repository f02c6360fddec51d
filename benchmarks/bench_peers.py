"""One job on one log by every peer, the plain query and us: CPU, memory, what is released, lines of code to write.

    python benchmarks/bench_peers.py [--quick] [--only NAME,...] [--sizes 1000000] [--rounds N] [--json]

The job: publish how many users typed each query, keys private, d = 20 queries of a user, epsilon = ln 10, delta = 1e-5,
adding or removing one user. Each peer runs its own script in peers/, in an environment and a process of its own, and
they take turns. A ratio is to the plain query (plain.sql, queries only) of the same round. A peer that can't be
installed, fails, or takes too long is a row that says so. Slow peers run once, at the end, and some not on the largest
log. BENCH_ROUNDS and BENCH_SECONDS say how many rounds there are, and after how many seconds no more jobs are started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import install_peers as install
import measure
from job_log import job_log, shape

HERE = Path(__file__).resolve().parent
MILLION = 1_000_000
REFERENCE = "plain"
OURS = "ours"
ROUNDS = 3


@dataclass(frozen=True)
class Peer:
    """A job: its script, what it is called, who bounds the users, and on how much it is worth waiting for."""

    script: str
    title: str
    environment: str = ""
    #: Who sees to it that a user counts at most twenty times: "itself" for a complete peer, else "by hand".
    bounds: str = "itself"
    private: bool = True
    #: The largest log it gets in a full and in a quick run.
    most_rows: int = 10 * MILLION
    quick_rows: int = MILLION
    #: How often it runs at most on logs of up to a million rows, and on larger ones.
    rounds: tuple[int, int] = (9, 9)


PEERS = (
    Peer(REFERENCE, "plain query (plain.sql), not private", private=False),
    Peer("unordered", "plain query, any 20 rows (plain_unordered.sql), not private", private=False),
    Peer(OURS, "hushquery"),
    Peer("opendp_laplace", "OpenDP Polars, Laplace, any 20 rows", "opendp", rounds=(9, 2)),
    Peer("opendp_zcdp", "OpenDP Polars, Gaussian through zCDP", "opendp", rounds=(9, 2)),
    Peer("qrlew_duckdb", "Qrlew on DuckDB", "qrlew", rounds=(9, 2)),
    Peer("pydp_laplace", "PyDP, Laplace, on pandas", "pydp", bounds="by hand", rounds=(9, 2)),
    Peer("pydp_gaussian", "PyDP, Gaussian, on pandas", "pydp", bounds="by hand", rounds=(9, 2)),
    Peer("diffprivlib_geometric", "diffprivlib, geometric, on Polars", "diffprivlib", bounds="by hand", rounds=(9, 2)),
    Peer("pipelinedp_local", "PipelineDP, Gaussian, local", "pipelinedp", rounds=(2, 1)),
    Peer("pipelinedp_spark", "PipelineDP, Gaussian, Spark", "pipelinedp", "itself", True, MILLION, 100_000, (1, 1)),
    Peer("tumult_spark", "Tumult Analytics on Spark", "tumult", quick_rows=100_000, rounds=(1, 1)),
    Peer("smartnoise_sql", "SmartNoise SQL", "smartnoise", "itself", True, MILLION, 100_000, (1, 1)),
)
#: What one run may take, in seconds, for logs of up to so many rows.
LIMITS = {100_000: 240.0, MILLION: 300.0, 10 * MILLION: 480.0}
#: After so many seconds no more jobs are started, in a full and in a quick run.
SECONDS, QUICK_SECONDS = 1500.0, 200.0
#: What a job is given that starts just before.
LEAST = 30.0
START, END = "# >>> the job", "# <<< the job"


def lines_of_code(script: str) -> int | None:
    """Count the lines a user has to write: those between the two marks that are neither empty nor comments."""
    path = HERE / "peers" / f"{script}.py"
    if not path.exists():
        return None
    lines = [line.strip() for line in path.read_text().splitlines()]
    job = lines[lines.index(START) + 1 : lines.index(END)]
    return sum(bool(line) and not line.startswith("#") for line in job)


def command_of(peer: Peer, log: Path, out: Path) -> list[str]:
    """Give the command of a job; installs the peer where it is not there yet."""
    if not peer.private:
        sql = "plain.sql" if peer.script == REFERENCE else "plain_unordered.sql"
        return [sys.executable, str(HERE / "plain.py"), str(HERE / sql), str(log), str(out), "1", "0"]
    python = install.python_of(peer.environment) if peer.environment else sys.executable
    return [str(python), str(HERE / "peers" / f"{peer.script}.py"), str(log), str(out)]


def run(peer: Peer, log: Path, limit: float, until: float) -> measure.Run:
    """Run a peer once, with a folder of its own to write to; it may take its own limit, or what is left for all."""
    limit = min(limit, max(LEAST, round(until - time.monotonic())))
    out = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        command = command_of(peer, log, out)
        # Spark's workers must use the peer's environment, and Spark's choice of a host name may need a network.
        extra = {"PYSPARK_PYTHON": command[0], "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
        print(f"  {log.stem} {peer.script} ...", end="", file=sys.stderr, flush=True)
        found = measure.run(command, limit=limit, env=extra, cwd=out)  # where Spark leaves its warehouse
        if not found.error and count_in(found.output) is None:
            found = replace(found, error="it ended without saying how many queries it released")
        print(f" {found.error or f'{found.cpu:.1f} CPU s'}", file=sys.stderr, flush=True)
        return found
    except install.NotInstalled as error:
        return measure.Run(0, 0, 0, "", f"can't be installed: {error}")
    finally:
        shutil.rmtree(out, ignore_errors=True)


def count_in(output: str) -> int | None:
    """Read how many queries a job says it released, in the last line that it printed."""
    try:
        return int(json.loads(output.strip().splitlines()[-1])["released"])
    except (LookupError, TypeError, ValueError):
        return None


def released(runs: Sequence[measure.Run | None]) -> dict[str, int]:
    """Say how many queries came out, over the rounds."""
    counts = [count for run in measure.finished(runs) if (count := count_in(run.output)) is not None]
    return {"min": min(counts), "max": max(counts)} if counts else {}


def compared(pairs: Sequence[tuple[Peer, int]], rounds: int, until: float) -> list[dict[str, Any]]:
    """Run peers on logs of so many rows, in turns; gives a row for each, log by log."""
    jobs, turns = {}, {}
    # What runs only once is slow; it comes last, when the others have their numbers.
    for peer, rows in sorted(pairs, key=lambda pair: pair[0].rounds[pair[1] > MILLION] == 1):
        limit = next((seconds for most, seconds in LIMITS.items() if rows <= most), max(LIMITS.values()))
        jobs[f"{peer.script} {rows}"] = partial(run, peer, job_log(rows), limit, until)
        turns[f"{peer.script} {rows}"] = min(rounds, peer.rounds[rows > MILLION])
    for rows in sorted({rows for _, rows in pairs}):
        # The first look at a file is dearer than the next ones.
        run(PEERS[0], job_log(rows), max(LIMITS.values()), until)
    found = measure.in_turns(jobs, turns, until)
    return [
        measure.row(
            peer.script,
            found[f"{peer.script} {rows}"],
            found.get(f"{REFERENCE} {rows}", []),
            title=peer.title,
            rows=rows,
            bounds=peer.bounds if peer.private else "",
            private=peer.private,
            lines=lines_of_code(peer.script),
            released=released(found[f"{peer.script} {rows}"]),
        )
        for peer, rows in pairs
    ]


def verdicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare us with the complete peers, on the largest log: half the CPU of the cheapest, more queries than any."""
    size = max((row["rows"] for row in rows), default=0)
    done = {row["job"]: row for row in rows if row["rows"] == size and "cpu" in row}
    complete = [row for row in done.values() if row["bounds"] == "itself" and row["job"] != OURS]
    if OURS not in done or not complete:
        return []
    ours = done[OURS]
    cheapest = min(complete, key=lambda row: row["cpu"]["median"])
    most = max(complete, key=lambda row: row["released"]["max"])
    times, least = round(cheapest["cpu"]["median"] / ours["cpu"]["median"], 2), most["released"]["max"] + 1
    cheaper = f"{size:,} rows: times cheaper in CPU than {cheapest['title']}, the cheapest complete peer that finished"
    more = f"{size:,} rows: queries released, {most['title']} having the most of the complete peers that finished"
    got = ours["released"]["min"]
    return [
        {"what": cheaper, "got": times, "least": 2, "met": times >= 2},
        {"what": more, "got": got, "least": least, "met": got >= least},
    ]


def measured(peers: list[Peer], sizes: list[int], rounds: int, seconds: float, *, quick: bool) -> dict[str, Any]:
    """Measure everything; gives what --json prints."""
    fitting = [
        (peer, size) for size in sizes for peer in peers if size <= (peer.quick_rows if quick else peer.most_rows)
    ]
    for name in dict.fromkeys(peer.environment for peer, _ in fitting if peer.environment):
        with contextlib.suppress(install.NotInstalled):  # each of its jobs will say so
            install.python_of(name)  # before the clock starts
    rows = compared(fitting, rounds, time.monotonic() + seconds)
    versions = {}
    for name in sorted({peer.environment for peer in peers if peer.environment}):
        try:
            versions[name] = install.versions(name)
        except install.NotInstalled as error:
            versions[name] = {"not installed": str(error)}
    logs = [shape(job_log(size)) for size in sizes]
    settings = {"quick": quick, "rounds": rounds, "epsilon": "ln(10)", "delta": 1e-5, "queries_per_user": 20}
    return {
        "benchmark": "peers",
        **measure.machine(),
        "settings": settings,
        "versions": versions,
        "logs": logs,
        "measured": rows,
        "required": verdicts(rows),
    }


def show(told: dict[str, Any]) -> None:
    """Print the tables."""
    print(f"{told['date']}, {told['machine']}, load {told['load_average']}")
    for size in told["logs"]:
        print(f"\n{size['rows']:,} rows, {size['users']:,} users, {size['distinct_queries']:,} distinct queries")
        print(
            f"{'':62}{'n':>2}{'CPU s':>8}{'ratio min/med/max':>20}{'MiB':>7}{'released':>12}{'bounds':>9}{'lines':>6}"
        )
        for row in told["measured"]:
            if row["rows"] != size["rows"]:
                continue
            if "cpu" not in row:
                print(f"{row['title']:62}  {row['error']}")
                continue
            ratio = "/".join(f"{value:.1f}" for value in row.get("ratio", {}).values())
            count = "-".join(f"{value}" for value in sorted(set(row["released"].values())))
            print(
                f"{row['title']:62}{row['rounds']:>2}{row['cpu']['median']:>8.1f}{ratio:>20}{row['mib']['median']:>7.0f}"
                f"{count:>12}{row['bounds']:>9}{row['lines'] or '-':>6}"
            )
    print()
    for verdict in told["required"]:
        word = "met" if verdict["met"] else "MISSED"
        print(f"{word}: {verdict['what']}: {verdict['got']}, at least {verdict['least']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one round, 0.1 and 1 million rows, slow peers on the least"
    )
    parser.add_argument(
        "--only", default="", help="names of scripts in peers/, plain and unordered, with commas between"
    )
    parser.add_argument("--sizes", default="", help="numbers of rows, with commas between")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("BENCH_ROUNDS", ROUNDS)))
    parser.add_argument(
        "--seconds",
        type=float,
        default=os.environ.get("BENCH_SECONDS") or None,
        help="after this, no more jobs are started; they are reported so",
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    wanted = given.only.split(",") if given.only else [peer.script for peer in PEERS]
    unknown = set(wanted) - {peer.script for peer in PEERS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(peer.script for peer in PEERS)}")
    usual = (100_000, MILLION) if given.quick else (MILLION, 10 * MILLION)
    sizes = [int(size) for size in given.sizes.split(",")] if given.sizes else list(usual)
    peers = [peer for peer in PEERS if peer.script in wanted]
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    told = measured(peers, sizes, 1 if given.quick else given.rounds, seconds, quick=given.quick)
    print(json.dumps(told, indent=2)) if given.json else show(told)


if __name__ == "__main__":
    main()
