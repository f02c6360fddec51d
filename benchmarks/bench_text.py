"""Reading logs that are text, beside the engine's own CSV reader on the same file: CPU, time and peak memory.

    python benchmarks/bench_text.py [--json] [--millions 2,10] [--rounds 3]

Every job is a process of its own, and the jobs of a file take turns. ``engine`` is DuckDB's read_csv (read_json) with
columns, types and every option fixed, which trusts the file; ``ours`` is ``hushquery.read_log``, in which no line can
change how another one is read, up to the rows that a release counts. Both look at every cell of four columns, and are
timed after the imports. ``ours, rules off`` reads without normalising and without the patterns of personal text.
``check`` is what makes sure that an archive is whole, which the engine does not. ``plain query`` is
benchmarks/plain.sql over read_csv, ``release`` the whole command. Ratios are to the engine's own, of the fastest round.
The files are made of the log of job_log.py, once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from job_log import cache, job_log
from processes import Used, run

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
BUDGET = ["--epsilon", "ln(10)", "--delta", "1e-5", "--queries-per-user", "20", "--clicks-per-user", "5", "--json"]
BUDGET += ["--population", "users of the log"]
# Formats other than AOL's are read alone, and in the smallest size.
ENDINGS = {"aol": "txt", "aol, gzip": "txt.gz", "tsv": "tsv", "csv": "csv", "jsonl": "jsonl"}
COLUMNS = {"user": "VARCHAR", "query": "VARCHAR", "time": "TIMESTAMP", "rank": "VARCHAR", "url": "VARCHAR"}
# About one query is released for so many rows; the plain query has clicks for as many.
RELEASED_OF_ROWS = 1600
SUMS = 'count(*), sum(strlen("user")), sum(strlen(query)), max("time"), sum(strlen(url))'

# What is read alone is timed inside the process, after the imports: 2 million rows take less time than to begin.
ENGINE_CODE = """
import sys, time, duckdb
engine = duckdb.connect()
start = time.process_time()
engine.execute(sys.argv[1]).fetchall()
print("CPU", time.process_time() - start)
"""
OURS_CODE = """
import sys, time
from hushquery.log import read_log
path, kind, rules, sums = sys.argv[1:]
log = read_log(path, format=kind, normalise=rules == "on", patterns=rules == "on")
engine = log.rows._find_backends()[0][0]
sql = f"SELECT {sums} FROM ({engine.compile(log.rows)})"
start = time.process_time()
engine.con.execute(sql).fetchall()
print("CPU", time.process_time() - start)
"""
CHECK_CODE = """
import sys, time
from hushquery.log import read_log
log = read_log(sys.argv[1], format="aol")
start = time.process_time()
log.check_files()
print("CPU", time.process_time() - start)
"""


def text_log(rows: int, kind: str) -> Path:
    """Give the job's log as text of a kind; makes it at the first call."""
    import duckdb

    path = cache() / f"log-{rows}.{ENDINGS[kind]}"
    if path.exists():
        return path
    print(f"making {path.name}, once", file=sys.stderr)
    time = "strftime(\"time\", '%Y-%m-%d %H:%M:%S')"
    rank = "CASE WHEN url IS NOT NULL THEN '1' END"
    named = ("AnonID", "Query", "QueryTime", "ItemRank", "ClickURL") if kind.startswith("aol") else tuple(COLUMNS)
    values = ('"user"', "query", time, rank, "url")
    picked = ", ".join(f'{sql} AS "{name}"' for sql, name in zip(values, named, strict=True))
    if kind == "jsonl":
        options = "FORMAT json"
    else:
        quote, separator = ('"', ",") if kind == "csv" else ("", "\t")
        packed = ", COMPRESSION gzip" if kind.endswith("gzip") else ""
        options = f"FORMAT csv, DELIMITER '{separator}', HEADER true, QUOTE '{quote}', ESCAPE '{quote}'{packed}"
    unfinished = path.with_name("making-" + path.name)
    duckdb.execute(f"COPY (SELECT {picked} FROM '{job_log(rows)}') TO '{unfinished}' ({options})")  # noqa: S608
    unfinished.rename(path)
    return path


def engine_relation(path: Path, kind: str) -> str:
    """Write how the engine itself reads the file, with nothing left to guess."""
    columns = "{" + ", ".join(f"'{name}': '{type_}'" for name, type_ in COLUMNS.items()) + "}"
    if kind == "jsonl":
        return f"read_json('{path}', columns={columns}, format='newline_delimited')"
    quote, separator = ('"', ",") if kind == "csv" else ("", "\t")
    options = f"delim='{separator}', quote='{quote}', escape='{quote}', header=true, auto_detect=false, nullstr=''"
    return f"read_csv('{path}', columns={columns}, {options})"


def jobs(rows: int, kind: str, *, whole: bool) -> dict[str, list[str | Path]]:
    """Give the commands for a file, by name; the first is what the others are compared with."""
    path, plain_kind = text_log(rows, kind), kind.split(",")[0]
    relation = engine_relation(path, kind)
    ours: list[str | Path] = [sys.executable, "-c", OURS_CODE, path, plain_kind]
    found: dict[str, list[str | Path]] = {
        "read: engine": [sys.executable, "-c", ENGINE_CODE, f"SELECT {SUMS} FROM {relation}"],  # noqa: S608
        "read: ours, rules off": [*ours, "off", SUMS],
        "read: ours": [*ours, "on", SUMS],
    }
    if kind == "aol, gzip":
        found["read: check"] = [sys.executable, "-c", CHECK_CODE, path]
    if whole:
        sql = f"SET VARIABLE released = {rows // RELEASED_OF_ROWS};" + (HERE / "plain.sql").read_text()
        sql = sql.replace("'$log'", f"(SELECT * FROM {relation})")  # noqa: S608
        found["whole: plain query"] = [sys.executable, "-c", ENGINE_CODE, sql.replace("$out", "{folder}")]
        found["whole: release"] = [
            BIN / "hushquery", "release", path, "--format", "aol", *BUDGET,
            "--ledger", "{folder}/ledger.db", "--out", "{folder}/release",
        ]  # fmt: skip
    return found


def measured(sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """Run everything; give a row per file and job."""
    rows = []
    for size in sizes:
        for kind in ENDINGS if size == min(sizes) else ("aol", "aol, gzip"):
            todo = jobs(size, kind, whole=kind.startswith("aol"))
            taken: dict[str, list[Used]] = {job: [] for job in todo}
            for _ in range(rounds):
                for job, command in todo.items():
                    with tempfile.TemporaryDirectory() as folder:
                        used, told = run([str(part).replace("{folder}", folder) for part in command])
                    own = float(told.rpartition("CPU ")[2]) if job.startswith("read") else used.cpu
                    taken[job].append(Used(own, used.wall, used.peak_mib))
            best = {job: Used(*(min(column) for column in _columns(taken[job]))) for job in todo}
            for job in todo:
                base = best[next(other for other in todo if other.split(":")[0] == job.split(":")[0])]
                rows.append(
                    {
                        "rows": size,
                        "file": kind,
                        "megabytes": round(text_log(size, kind).stat().st_size / 1e6),
                        "job": job,
                        **best[job].to_json(),
                        "cpu_ratio": round(best[job].cpu / base.cpu, 2),
                        "memory_ratio": round(best[job].peak_mib / base.peak_mib, 2),
                    }
                )
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def _columns(taken: list[Used]) -> list[list[float]]:
    return [[used.cpu for used in taken], [used.wall for used in taken], [used.peak_mib for used in taken]]


def show(rows: list[dict[str, Any]], rounds: int) -> None:
    print(f"best of {rounds} rounds in turn; the release reads the file more than once, as the plain query does")
    print(f"{'rows':>12}  {'file':12}{'MB':>6}  {'':26}{'CPU s':>8}{'ratio':>7}{'wall s':>8}{'MiB':>7}{'ratio':>7}")
    for row in rows:
        print(
            f"{row['rows']:>12,}  {row['file']:12}{row['megabytes']:>6}  {row['job']:26}{row['cpu_seconds']:>8.2f}"
            f"{row['cpu_ratio']:>7.2f}{row['wall_seconds']:>8.2f}{row['peak_mib']:>7,}{row['memory_ratio']:>7.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--millions", default="2,10", help="millions of rows")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    try:
        sizes = sorted(round(float(part) * 1e6) for part in given.millions.split(","))
    except ValueError:
        parser.error("--millions is a list of numbers like 2,10")
    if given.rounds < 1 or not sizes or sizes[0] < 10_000:
        parser.error("--rounds is at least 1, and --millions at least 0.01")
    rows = measured(sizes, given.rounds)
    if given.json:
        print(json.dumps({"rounds": given.rounds, "measured": rows}, indent=2))
    else:
        show(rows, given.rounds)


if __name__ == "__main__":
    main()
