"""Time and memory of a whole release against the number of rows, beside the plain query of benchmarks/plain.sql.

    python benchmarks/bench_scale.py [--millions 1,10,30,100] [--out docs/scale.json] [--minutes 25]

Each job runs in a process of its own, the plain query and the release in turn, on the logs of job_log.py (made once).
``release`` is the default selector with clicks, ``guided`` the guided selector with clicks, on all but the largest log.
All of them get the same limit for the engine's memory, beyond which the engine writes to disk; --memory 0 lifts it.
Noise is counted in random words of 64 bits, and what the engine returns in bytes, in one more run of the smaller logs.
Small logs run several times and the fastest counts, because other work on the machine can only add. After so many
minutes no new job is begun, and what is missing is said; tools/scale.py makes docs/scale.md of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from job_log import job_log
from processes import Used, run

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
RESULTS = HERE.parent / "docs" / "scale.json"
MILLIONS = (1.0, 10.0, 30.0, 100.0)
BUDGET = ["--epsilon", "ln(10)", "--delta", "1e-5", "--queries-per-user", "20", "--clicks-per-user", "5", "--json"]
BUDGET += ["--population", "users of the log"]
PLAIN, RELEASE, GUIDED = "plain query", "release", "guided release"
# Short jobs are repeated so often; a long one is its own average.
ROUNDS_UP_TO = {2_000_000: 3, 15_000_000: 2}
# Jobs that count draws and bytes run once more on logs up to this size.
MOST_ROWS_TO_COUNT = 15_000_000

PLAIN_CODE = """
import json, sys, duckdb
text, log, out, settings, released = sys.argv[1:]
connection = duckdb.connect(config=json.loads(settings))
if int(released):
    connection.execute(f"SET VARIABLE released = {int(released)}")
connection.execute(open(text).read().replace("$log", log).replace("$out", out))
"""
# The command as it is, with a source of random words of 64 bits that counts them (a draw takes one, rarely more), and
# with an engine that counts the bytes of what it returns.
COUNTING_CODE = """
import sys
import pyarrow as pa
from ibis.backends.duckdb import Backend
from hushquery.cli import main
from hushquery.noise.sampler import SystemBits
drawn, returned, inside = [0], [0], [0]
words, whole, batches = SystemBits.words, Backend.to_pyarrow, Backend.to_pyarrow_batches
def counting_words(self, n):
    drawn[0] += n
    return words(self, n)
def counting_whole(self, *given, **named):
    inside[0] += 1
    try:
        found = whole(self, *given, **named)
    finally:
        inside[0] -= 1
    returned[0] += getattr(found, "nbytes", 8)
    return found
def counting_batches(self, *given, **named):
    reader = batches(self, *given, **named)
    if inside[0]:
        return reader
    def counted():
        for batch in reader:
            returned[0] += batch.nbytes
            yield batch
    return pa.RecordBatchReader.from_batches(reader.schema, counted())
SystemBits.words = counting_words
Backend.to_pyarrow, Backend.to_pyarrow_batches = counting_whole, counting_batches
sys.argv = ["hushquery", *sys.argv[1:]]
try:
    main()
finally:
    print(f"drawn {drawn[0]} returned {returned[0]}")
"""


class Spilled:
    """Watches how much a folder holds at most, while a job runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.most_mib = folder, 0.0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Spilled:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            self.most_mib = max(self.most_mib, _size(self.folder) / 2**20)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # the engine removes its files at any time
    return total


def command(job: str, log: Path, folder: Path, memory: str, released: int) -> list[str | Path]:
    """Write the command of a job whose outputs go to a fresh folder."""
    if job == PLAIN:
        settings = {"temp_directory": str(folder / "spilled")} | ({"memory_limit": memory} if memory else {})
        return [sys.executable, "-c", PLAIN_CODE, HERE / "plain.sql", log, folder, json.dumps(settings), str(released)]
    asked: list[str | Path] = [BIN / "hushquery", "release", log, *BUDGET]
    asked += ["--ledger", folder / "ledger.db", "--out", folder / "release"]
    return [*asked, "--selector", "guided"] if job == GUIDED else asked


def measure(
    job: str, log: Path, memory: str, released: int = 0, *, counting: bool = False
) -> tuple[Used, dict[str, Any]]:
    """Run a job once; give what it took and what it told."""
    folder = Path(tempfile.mkdtemp(prefix="hushquery-scale-", dir=log.parent))
    (folder / "spilled").mkdir()
    environment = {"HUSHQUERY_TEMP": str(folder / "spilled"), "TMPDIR": str(folder)}
    if memory:
        environment["HUSHQUERY_MEMORY"] = memory
    asked = command(job, log, folder, memory, released)
    if counting:
        asked = [sys.executable, "-c", COUNTING_CODE, *asked[1:]]
    try:
        with Spilled(folder / "spilled") as spilled:
            used, printed = run(asked, environment, folder)
        told: dict[str, Any] = {"spilled_mib": round(spilled.most_mib)}
        if job != PLAIN:
            answer, _, rest = printed[printed.index("{") :].rpartition("}")
            told["released"] = json.loads(answer + "}")["tables"]
            if counting:
                words, returned = rest.split("drawn ")[1].split("returned ")
                told |= {"random_words": int(words), "returned_bytes": int(returned.split()[0])}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return used, told


def shape(log: Path) -> dict[str, int]:
    """Count rows and users of a log: what a cost can depend on."""
    import duckdb

    found = duckdb.execute('SELECT count(*), max("user") + 1 FROM read_parquet(?)', [str(log)]).fetchone() or (0, 0)
    return {"rows": int(found[0]), "users": int(found[1]), "megabytes": round(log.stat().st_size / 1e6)}


def measured(sizes: list[int], memory: str, minutes: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Run everything; give a row per job and log, and what there was no time for."""
    deadline = time.monotonic() + 60 * minutes
    rows: list[dict[str, Any]] = []
    skipped = []
    last: dict[str, float] = {}
    for size in sizes:
        log = job_log(size)
        about = shape(log)
        # The release comes first: the plain query then counts the clicks of as many queries as it published.
        jobs = [RELEASE, PLAIN] + ([GUIDED] if size < max(sizes) or len(sizes) == 1 else [])
        taken: dict[str, list[Used]] = {job: [] for job in jobs}
        told: dict[str, dict[str, Any]] = {}
        rounds = next((times for most, times in ROUNDS_UP_TO.items() if size <= most), 1)
        for _ in range(rounds):
            for job in jobs:
                if time.monotonic() + last.get(job, 0.0) * size > deadline:
                    continue
                released = told.get(RELEASE, {}).get("released", {}).get("queries", 0)
                used, told[job] = measure(job, log, memory, released)
                taken[job].append(used)
                last[job] = used.wall / size
                print(f"{size / 1e6:g} million rows, {job}: {used.cpu:.1f} CPU s", file=sys.stderr, flush=True)
        for job in jobs:
            if not taken[job]:
                skipped.append(f"{job}, {size:,} rows")
                continue
            best = min(taken[job], key=lambda used: used.cpu)
            row = {"job": job, **about, **best.to_json(), "runs": len(taken[job]), **told[job]}
            row["cpu_seconds_of_runs"] = [round(used.cpu, 3) for used in taken[job]]
            if job != PLAIN and size <= MOST_ROWS_TO_COUNT and time.monotonic() < deadline:
                row |= measure(job, log, memory, counting=True)[1]
            rows.append(row)
    return rows, skipped


def show(found: dict[str, Any]) -> None:
    plain = {row["rows"]: row for row in found["measured"] if row["job"] == PLAIN}
    print(f"the engine's memory is limited to {found['settings']['engine_memory'] or 'its default'}")
    heads = (
        "",
        "rows",
        "CPU s",
        "x plain",
        "wall s",
        "us per row",
        "peak MiB",
        "x plain",
        "on disk",
        "words",
        "returned",
    )
    print("{:16}{:>13}{:>9}{:>9}{:>9}{:>12}{:>10}{:>9}{:>9}{:>10}{:>12}".format(*heads))
    for row in found["measured"]:
        beside = plain.get(row["rows"], row)
        print(
            f"{row['job']:16}{row['rows']:>13,}{row['cpu_seconds']:>9.1f}"
            f"{row['cpu_seconds'] / beside['cpu_seconds']:>9.2f}{row['wall_seconds']:>9.1f}"
            f"{1e6 * row['cpu_seconds'] / row['rows']:>12.2f}{row['peak_mib']:>10,}"
            f"{row['peak_mib'] / beside['peak_mib']:>9.2f}{row['spilled_mib']:>9,}"
            f"{row.get('random_words', '-'):>10}{row.get('returned_bytes', '-'):>12}"
        )
    for one in found["skipped"]:
        print(f"no time for: {one}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print what is written")
    parser.add_argument("--millions", default=",".join(f"{size:g}" for size in MILLIONS), help="millions of rows")
    parser.add_argument("--memory", default="2GB", help="the engine's limit; 0 for the engine's own")
    parser.add_argument("--minutes", type=float, default=25, help="begin no job that would end later")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    try:
        sizes = sorted(round(float(part) * 1e6) for part in given.millions.split(","))
    except ValueError:
        parser.error("--millions is a list of numbers like 1,10,30,100")
    if not sizes or sizes[0] < 10_000:
        parser.error("--millions are at least 0.01")
    memory = "" if given.memory == "0" else given.memory
    rows, skipped = measured(sizes, memory, given.minutes)
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "settings": {
            "engine_memory": memory,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "command": "python benchmarks/bench_scale.py --millions " + given.millions,
        },
        "measured": rows,
        "skipped": skipped,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)


if __name__ == "__main__":
    main()
