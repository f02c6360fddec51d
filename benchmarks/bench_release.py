"""A whole release against the plain, non-private query on the same engine and file, each in a process of its own.

    python benchmarks/bench_release.py [--rows 10000000] [--rounds 3] [--quick] [--json]

Two plain queries are shown. plain.sql is the reference: the same bound as a release (one row per user and query, the
first 20 by time), the same counts. plain_unordered.sql counts any 20 rows of a user, which is cheaper and not the same
table. Jobs take turns; a ratio is to the reference of the same round, with or without clicks as the job itself, and is
given as least, median and largest. CPU seconds are user and system, of the process and all it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import measure
from job_log import job_log, shape

HERE = Path(__file__).resolve().parent
ROWS, QUICK_ROWS, ROUNDS = 10_000_000, 1_000_000, 3
LIMIT = 600.0
BUDGET = ["--epsilon", "ln(10)", "--delta", "1e-5", "--queries-per-user", "20", "--json"]
BUDGET += ["--population", "users of the log"]
CLICKS = ["--clicks-per-user", "5"]
PLAIN, PLAIN_QUERIES, UNORDERED = "plain query", "plain query, no clicks", "plain query, unordered, no clicks"
RELEASE, RELEASE_QUERIES = "release", "release, no clicks"
GUIDED = "release, guided"
# What the plain query does not do either: bring texts into one form, and look for personal numbers in them.
AS_THEY_ARE = "release, texts taken as they are"
# What a release costs however small the log is: Python, its libraries, calibration, pages.
SMALL_ROWS = 100_000
START_UP = f"release of {SMALL_ROWS:,} rows, mostly start-up"
# What each job is compared with, and the most that issue 7 allows: CPU ratio, memory ratio.
REFERENCE = {
    PLAIN: PLAIN,
    RELEASE: PLAIN,
    AS_THEY_ARE: PLAIN,
    START_UP: PLAIN,
    GUIDED: PLAIN,
    PLAIN_QUERIES: PLAIN_QUERIES,
    UNORDERED: PLAIN_QUERIES,
    RELEASE_QUERIES: PLAIN_QUERIES,
}
MOST = {RELEASE: (1.3, 1.5), RELEASE_QUERIES: (1.3, 1.5), GUIDED: (3.0, None)}


def plain(log: Path, out: Path, sql: str, statements: int, released: int) -> list[str]:
    """Write the command of a plain query, with clicks for as many queries as were released."""
    return [sys.executable, *map(str, (HERE / "plain.py", HERE / sql, log, out, statements, released))]


def release(log: Path, out: Path, *options: str) -> list[str]:
    """Write the command of a release with a ledger of its own."""
    where = ["--ledger", str(out / "ledger.db"), "--out", str(out / "release")]
    return [sys.executable, "-m", "hushquery", "release", str(log), *BUDGET, *where, *options]


def command_of(job: str, log: Path, out: Path, released: int) -> list[str]:
    """Write the command of a job."""
    return {
        PLAIN: plain(log, out, "plain.sql", 2, released),
        PLAIN_QUERIES: plain(log, out, "plain.sql", 1, released),
        UNORDERED: plain(log, out, "plain_unordered.sql", 1, released),
        RELEASE: release(log, out, *CLICKS),
        RELEASE_QUERIES: release(log, out),
        AS_THEY_ARE: release(log, out, *CLICKS, "--no-normalise", "--no-patterns"),
        START_UP: release(job_log(SMALL_ROWS), out, *CLICKS),
        GUIDED: release(log, out, *CLICKS, "--selector", "guided"),
    }[job]


def counts(out: Path) -> dict[str, int]:
    """Say how many rows each table has that a job wrote."""
    import pyarrow.parquet as pq

    return {path.stem: pq.read_metadata(path).num_rows for path in sorted(out.rglob("*.parquet"))}


def measured(rows: int, rounds: int) -> dict[str, Any]:
    """Measure everything; gives what --json prints."""
    log = job_log(rows)
    made: dict[str, dict[str, int]] = {}

    def run(job: str) -> measure.Run:
        out = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            found = measure.run(command_of(job, log, out, made.get(RELEASE, {}).get("queries", 0)), limit=LIMIT)
            made[job] = counts(out)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        print(f"  {job}: {found.error or f'{found.cpu:.1f} CPU s'}", file=sys.stderr, flush=True)
        return found

    # The first release also says for how many queries the plain query counts clicks, and warms the disk's cache.
    warm = run(RELEASE)
    if warm.error:
        raise SystemExit(f"the release failed: {warm.error}")
    jobs = {job: partial(run, job) for job in REFERENCE}
    found = measure.in_turns(jobs, dict.fromkeys(jobs, rounds))
    told = [measure.row(job, found[job], found[REFERENCE[job]], tables=made[job]) for job in jobs]
    settings = {"rows": rows, "rounds": rounds, "epsilon": "ln(10)", "delta": 1e-5, "queries_per_user": 20}
    return {
        "benchmark": "release",
        **measure.machine(),
        "settings": {**settings, "clicks_per_user": 5},
        "logs": [shape(log)],
        "measured": told,
        "required": verdicts(told, rows),
    }


def verdicts(rows: list[dict[str, Any]], rows_of_log: int) -> list[dict[str, Any]]:
    """Compare the median ratios with what is required."""
    told = []
    for row in rows:
        for key, word, most in zip(
            ("ratio", "memory_ratio"), ("CPU", "peak memory"), MOST.get(row["job"], ()), strict=False
        ):
            if most is not None and key in row:
                got = row[key]["median"]
                what = f"{word}, times {REFERENCE[row['job']]}, {rows_of_log:,} rows"
                told.append({"job": row["job"], "what": what, "got": got, "most": most, "met": got <= most})
    return told


def show(told: dict[str, Any]) -> None:
    """Print the table."""
    size, settings = told["logs"][0], told["settings"]
    print(f"{told['date']}, {told['machine']}, load {told['load_average']}, {settings['rounds']} rounds")
    print(f"{size['rows']:,} rows, {size['users']:,} users, {size['distinct_queries']:,} distinct queries\n")
    print(f"{'':36}{'CPU s':>8}{'ratio min/med/max':>20}{'peak MiB':>10}{'ratio':>8}   tables")
    for row in told["measured"]:
        if "cpu" not in row:
            print(f"{row['job']:36}  {row['error']}")
            continue
        ratio = "/".join(f"{value:.2f}" for value in row["ratio"].values())
        tables = ", ".join(f"{n:,} {name}" for name, n in row["tables"].items())
        print(
            f"{row['job']:36}{row['cpu']['median']:>8.2f}{ratio:>20}{row['mib']['median']:>10.0f}"
            f"{row['memory_ratio']['median']:>8.2f}   {tables}"
        )
    print()
    for verdict in told["required"]:
        word = "met" if verdict["met"] else "MISSED"
        print(f"{word}: {verdict['job']}: {verdict['what']}: {verdict['got']}, at most {verdict['most']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=None, help=f"rows of the log, {ROWS:,} unless told")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("BENCH_ROUNDS", ROUNDS)))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, one round")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = given.rows or (QUICK_ROWS if given.quick else ROWS)
    if given.rounds < 1 or rows < 1000:
        parser.error("--rounds is at least 1, and --rows at least 1000")
    told = measured(rows, 1 if given.quick else given.rounds)
    print(json.dumps(told, indent=2)) if given.json else show(told)


if __name__ == "__main__":
    main()
