"""Reports per CPU second: what a device makes, in Python and in JavaScript, and what a server counts, by oracle.

    python benchmarks/bench_clients.py [--json] [--reports 100000] [--out docs/scale-clients.json]

Devices: ``Python, single`` is the randomizer alone, one value at a time; ``Python, vectorised`` the same for many
clients at once, as simulations run it; ``Python, client`` a whole client, whose report is on disk before it is handed
out; ``Python, client, a day`` one that reports all records of a day in one transaction. The same in JavaScript, on
Node, with the IndexedDB of the tests. Servers: from a Parquet file, and from the SQLite store of a collector, to the
support of every cell; each report is checked and counted once. Rates are of the best of some rounds; the ratio is to
``Python, single`` of the same oracle. Ours against other libraries: bench_local.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "scale-clients.json"
VALUES = [f"value {number}" for number in range(100)]
EPSILON, RECORDS_A_DAY, ROUNDS = 1, 20, 3
SINGLES, PEOPLE = 2_000, 200
NOW = 1_790_000_000
ORACLES = ("krr", "oue", "olh", "subset", "hadamard")
FIRST = "Python, single"


def task(oracle: str, records: int) -> Any:
    from hushquery.task import Task

    return Task.loads(
        f"""
        [task]
        name = "bench"
        population = "app users"
        kind = "setting"
        domain = {json.dumps(VALUES)}
        [client]
        epsilon = {EPSILON * records}
        lifetime_epsilon = {100 * records}
        records_per_user = {records}
        oracle = "{oracle}"
        """
    )


def rate(reports: int, work: Callable[[], object]) -> float:
    """Give reports per CPU second, from the best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return reports / best


def python_devices(oracle: str, reports: int, folder: Path) -> dict[str, float]:
    """Measure devices in Python."""
    import numpy as np

    from hushquery.local.configuration import Configuration
    from hushquery.local.device.client import Client
    from hushquery.noise.sampler import SystemBits

    one, day, bits = task(oracle, 1), task(oracle, RECORDS_A_DAY), SystemBits()
    randomizer = Configuration.of(one).oracle
    cells = np.random.default_rng(1).integers(0, randomizer.k, reports)
    few = cells[:SINGLES].tolist()
    people = iter(range(10**9))  # each is new, so that nothing is remembered

    def client() -> None:
        for _ in range(PEOPLE):
            Client(one, folder / f"{oracle}.db", f"{next(people)}").report(VALUES[0])

    def whole_day() -> None:
        for _ in range(PEOPLE // 10):
            Client(day, folder / f"{oracle}-day.db", f"{next(people)}").reports(VALUES[:RECORDS_A_DAY])

    return {
        FIRST: rate(SINGLES, lambda: [randomizer.pack(randomizer.randomize(cell, bits)) for cell in few]),
        "Python, vectorised": rate(reports, lambda: randomizer.randomize_many(cells, bits)),
        "Python, client": rate(PEOPLE, client),
        "Python, client, a day": rate(PEOPLE // 10 * RECORDS_A_DAY, whole_day),
    }


def servers(oracle: str, reports: int, folder: Path) -> dict[str, float]:
    """Measure servers on the same reports, in a Parquet file and in a collector's store."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import sqlalchemy as sa

    from hushquery.collect.epochs.epochs import register, reports_of
    from hushquery.collect.store.schema import reports_table
    from hushquery.collect.store.store import Store
    from hushquery.local.configuration import Configuration
    from hushquery.local.report import Report
    from hushquery.local.server.counting import ReportCount, read_blocks
    from hushquery.noise.sampler import SystemBits

    one = task(oracle, 1)
    configuration = Configuration.of(one)
    randomizer = configuration.oracle
    cells = np.random.default_rng(2).integers(0, randomizer.k, reports)
    payloads = [randomizer.pack(randomizer.report(row)) for row in randomizer.randomize_many(cells, SystemBits())]
    when = one.truncate(NOW)
    sent = [Report(os.urandom(16), one.digest, configuration.digest, when, payload).to_bytes() for payload in payloads]
    file = folder / f"{oracle}.parquet"
    pq.write_table(pa.table({"report": pa.array(sent, pa.binary())}), file)
    store = Store.open(folder / f"{oracle}-store.db")
    number = register(store, one, NOW)
    table = reports_table(number, 0)
    with store.write() as connection:
        table.create(connection)
        connection.execute(sa.insert(table), [{"id": data[1:17], "data": data} for data in sent])
    epoch = cast("Any", SimpleNamespace(task_row=number, number=0))

    def counted(source: Callable[[], Any]) -> None:
        with ReportCount(configuration) as count:
            for block in read_blocks(source(), count.length):
                count.add(block)
        if count.n != reports:
            raise SystemExit(f"{oracle}: {count.n} of {reports} reports were counted")

    found = {
        "from Parquet": rate(reports, lambda: counted(lambda: file)),
        "from the collector's store": rate(reports, lambda: counted(lambda: reports_of(store, epoch))),
    }
    store.close()
    return found


def javascript_devices() -> dict[str, dict[str, float]]:
    """Measure devices in JavaScript, by oracle; nothing where Node or the client's packages are not there."""
    from hushquery.local.configuration import Configuration

    node = shutil.which("node")
    if node is None or not (ROOT / "js" / "node_modules" / "esbuild").exists():
        print("no Node, or no js/node_modules (`make client` installs them): no JavaScript", file=sys.stderr)
        return {}

    def served(of: Any) -> dict[str, Any]:
        return {"id": of.id, "task": of.to_json(), "configuration": json.loads(Configuration.of(of).canonical())}

    oracles = [
        {"name": name, "one": served(task(name, 1)), "day": served(task(name, RECORDS_A_DAY)), "values": VALUES}
        for name in ORACLES
    ]
    asked = {"oracles": oracles, "singles": SINGLES, "people": PEOPLE, "rounds": ROUNDS}
    done = subprocess.run(
        [node, "tools/bench.mjs"],
        cwd=ROOT / "js",
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"js/tools/bench.mjs failed: {done.stderr[-2000:]}")
    names = {"single": "JavaScript, single", "client": "JavaScript, client", "day": "JavaScript, client, a day"}
    return {row["oracle"]: {names[key]: row[key] for key in names} for row in json.loads(done.stdout)}


def measured(reports: int) -> list[dict[str, Any]]:
    """Measure everything; give a row per oracle and way."""
    rows = []
    scripts = javascript_devices()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for oracle in ORACLES:
            devices = python_devices(oracle, reports, folder) | scripts.get(oracle, {})
            for side, found in (("device", devices), ("server", servers(oracle, reports, folder))):
                rows += [
                    {
                        "oracle": oracle,
                        "side": side,
                        "way": way,
                        "per_cpu_second": round(value),
                        "times_python_single": round(value / devices[FIRST], 2),
                    }
                    for way, value in found.items()
                ]
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def show(rows: list[dict[str, Any]], reports: int) -> None:
    print(f"{len(VALUES)} values and the wildcard, epsilon {EPSILON}; servers count {reports:,} reports")
    print(f"{'oracle':10}{'side':8}{'way':28}{'reports per CPU s':>18}{'x Python, single':>18}")
    for row in rows:
        print(
            f"{row['oracle']:10}{row['side']:8}{row['way']:28}{row['per_cpu_second']:>18,}"
            f"{row['times_python_single']:>18,.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where tools/scale.py finds them")
    given = parser.parse_args()
    if given.reports < SINGLES:
        parser.error(f"--reports is at least {SINGLES}")
    rows = measured(given.reports)
    found = {"reports": given.reports, "values": len(VALUES), "epsilon": EPSILON, "measured": rows}
    given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        show(rows, given.reports)


if __name__ == "__main__":
    main()
