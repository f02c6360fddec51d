"""Reports per CPU second of our local randomizers, side by side with pure-ldp and multi-freq-ldpy, in one run.

    make bench            or   .venv/bin/python benchmarks/bench_local.py [--json] [--quick] [--rounds N]

The other libraries need old dependencies, so they are installed into a virtual environment of their own, once; where
that fails, it is said and only ours are timed. Ours and
theirs each run in a worker process with one thread. The two take turns, so that load on the machine hits both alike;
times are CPU seconds of all threads, and a rate is the median of the rounds. Each library aggregates reports of its own
clients, made before the clock starts; aggregation runs from the reports to the estimate of every cell.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

CELLS = 5001
REPORTS = 100_000
EPSILON = 1
# Theirs hash every cell for every report, about a millisecond each; so few of them, and the rate is per report.
SLOW_REPORTS = 500
# Their 100,000 bit vectors would fill 4 GB; these many are made and listed again and again, which costs them no more.
VECTORS = 1_000
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}

OURS = "hushquery"
# What issue 4 asks for: this many times the faster of the two others.
WAYS = ("", ", list", ", table")  # from an array of reports, from a list of them, from an array to a table
LEAST_RATIO = {f"{oracle} aggregation{way}": n for oracle, n in (("OLH", 30), ("OUE", 5), ("k-RR", 5)) for way in WAYS}
LEAST_RATE = {"k-RR client, vectorised": 20_000_000}


@dataclass(frozen=True)
class Job:
    """Something to time: what is measured, of which library, how many reports a run handles, and the run."""

    measure: str
    library: str
    reports: int
    run: Callable[[], Any]
    #: How often it runs in a round, so that a round of a fast one is long enough for the clock.
    passes: int = 1

    @property
    def name(self) -> str:
        return f"{self.measure}/{self.library}"


def our_jobs() -> list[Job]:
    import numpy as np

    from hushquery.local.oracles.krr import KRR
    from hushquery.local.oracles.olh import OLH
    from hushquery.local.oracles.unary import OUE
    from hushquery.local.randomizer import Oracle, SupportCount
    from hushquery.noise.sampler import SystemBits

    bits = SystemBits()
    values = np.random.default_rng(4).integers(0, CELLS, REPORTS)

    def counted(oracle: Oracle, reports: Any) -> SupportCount:
        if isinstance(reports, list):  # single reports, as the peers take them
            whole = isinstance(reports[0], int | tuple)
            flat = np.array(reports) if whole else np.frombuffer(b"".join(reports), dtype=np.uint8)
            reports = flat if whole else flat.reshape(len(reports), -1)
        tally = SupportCount(oracle)
        tally.add_many(reports)
        return tally

    def frequencies(oracle: Oracle, reports: Any) -> Any:
        tally = counted(oracle, reports)
        return oracle.frequencies(tally.support, tally.n)[0]

    jobs = []
    oracles: tuple[tuple[str, type[Oracle], int], ...] = (("OLH", OLH, 1), ("OUE", OUE, 4), ("k-RR", KRR, 20))
    for name, kind, passes in oracles:
        oracle = kind.calibrate(CELLS, EPSILON)
        rows = oracle.randomize_many(values, bits)
        single = [oracle.report(row) for row in rows]
        ways = {
            "": partial(frequencies, oracle, rows),
            ", table": partial(lambda *given: counted(*given).estimate(), oracle, rows),
            ", list": partial(frequencies, oracle, single),
        }
        jobs += [Job(f"{name} aggregation{way}", OURS, REPORTS, run, passes) for way, run in ways.items()]
    krr = KRR.calibrate(CELLS, EPSILON)
    few = values[:2000].tolist()
    jobs.append(Job("k-RR client", OURS, len(few), lambda: [krr.randomize(value, bits) for value in few]))
    jobs.append(Job("k-RR client, vectorised", OURS, REPORTS, lambda: krr.randomize_many(values, bits), 20))
    return jobs


def their_jobs(slow: int) -> list[Job]:
    import random

    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client  # type: ignore[import-not-found]
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client  # type: ignore[import-not-found]
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client  # type: ignore[import-not-found]
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer  # type: ignore[import-not-found]
    from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer  # type: ignore[import-not-found]
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer  # type: ignore[import-not-found]

    values = random.Random(4).choices(range(CELLS), k=REPORTS)
    again = REPORTS // VECTORS
    jobs = []

    def pure(measure: str, server: Any, reports: list[Any]) -> None:
        def run() -> Any:
            server.reset()
            server.aggregate_all(reports)
            server.check_and_update_estimates()
            return server.get_estimates

        jobs.append(Job(measure, "pure-ldp", len(reports), run))

    def multi(measure: str, reports: list[Any], run: Callable[[list[Any]], Any]) -> None:
        jobs.append(Job(measure, "multi-freq-ldpy", len(reports), lambda: run(reports)))

    def same(value: int) -> int:
        return value

    hashing = LHClient(EPSILON, CELLS, use_olh=True, index_mapper=same)
    unary = UEClient(EPSILON, CELLS, use_oue=True, index_mapper=same)
    direct = DEClient(EPSILON, CELLS, index_mapper=same)
    pure("OLH aggregation", LHServer(EPSILON, CELLS, use_olh=True), [hashing.privatise(v) for v in values[:slow]])
    pure(
        "OUE aggregation",
        UEServer(EPSILON, CELLS, use_oue=True),
        [unary.privatise(value) for value in values[:VECTORS]] * again,
    )
    pure("k-RR aggregation", DEServer(EPSILON, CELLS), [direct.privatise(value) for value in values])
    multi(
        "OLH aggregation",
        [LH_Client(value, CELLS, EPSILON) for value in values[:slow]],
        lambda reports: LH_Aggregator_MI(reports, CELLS, EPSILON),
    )
    multi(
        "OUE aggregation",
        [UE_Client(value, CELLS, EPSILON) for value in values[:VECTORS]] * again,
        lambda reports: UE_Aggregator_MI(reports, EPSILON),
    )
    multi(
        "k-RR aggregation",
        [GRR_Client(value, CELLS, EPSILON) for value in values],
        lambda reports: GRR_Aggregator_MI(reports, CELLS, EPSILON),
    )
    some = values[:10_000]
    jobs.append(Job("k-RR client", "pure-ldp", len(some), lambda: [direct.privatise(value) for value in some]))
    multi("k-RR client", some, lambda few: [GRR_Client(value, CELLS, EPSILON) for value in few])
    return jobs


def work(jobs: list[Job]) -> None:
    """Say what can be timed, then time what is asked for, a line each, until the questions end."""
    by_name = {job.name: job for job in jobs}
    for job in jobs:
        # The first run compiles and allocates; it also shows that every cell gets an estimate.
        result = job.run()
        if len(result) != (CELLS if "aggregation" in job.measure else job.reports):
            raise SystemExit(f"{job.name} gave {len(result)} numbers")
    print(json.dumps([[job.measure, job.library, job.reports] for job in jobs]), flush=True)
    for line in sys.stdin:
        job = by_name[line.strip()]
        start = time.process_time()
        for _ in range(job.passes):
            job.run()
        print((time.process_time() - start) / job.passes, flush=True)


class Worker:
    """A process that times jobs on request."""

    def __init__(self, python: Path, kind: str, slow: int) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--worker", kind, "--slow-reports", str(slow)],
            env=os.environ | ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def jobs(self) -> list[tuple[str, str, int]]:
        return [(measure, library, reports) for measure, library, reports in json.loads(self._answer())]

    def seconds(self, measure: str, library: str) -> float:
        stdin = self._process.stdin
        if stdin is not None:
            stdin.write(f"{measure}/{library}\n")
            stdin.flush()
        return float(self._answer())

    def stop(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit("a worker of the benchmark failed; its message is above")
        return line


def measured(theirs: Path | None, rounds: int, slow: int) -> list[dict[str, Any]]:
    """Run the rounds; give a row per measure and library."""
    workers = [Worker(Path(sys.executable), "ours", slow)]
    if theirs:
        workers.append(Worker(theirs, "theirs", slow))
    todo = [(worker, *job) for worker in workers for job in worker.jobs()]
    todo.sort(key=lambda job: job[1])  # the contenders for a measure come right after each other
    seconds: dict[tuple[str, str], list[float]] = {(measure, library): [] for _, measure, library, _ in todo}
    for _ in range(rounds):
        for worker, measure, library, _ in todo:
            seconds[measure, library].append(worker.seconds(measure, library))
    for worker in workers:
        worker.stop()
    return [
        {
            "measure": measure,
            "library": library,
            "reports": reports,
            "reports_per_cpu_second": round(reports / statistics.median(seconds[measure, library])),
        }
        for _, measure, library, reports in todo
    ]


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare ours with what is required."""
    ours = {row["measure"]: row for row in rows if row["library"] == OURS}
    verdicts = []
    for key, least in (("times_the_faster_peer", LEAST_RATIO), ("reports_per_cpu_second", LEAST_RATE)):
        for measure, required in least.items():
            got = ours[measure][key]
            met = got is not None and got >= required
            verdicts.append({"measure": measure, key: got, "required": required, "met": met})
    return verdicts


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add each rate's ratio to the faster peer's; variants that only we have are compared with their plain way."""
    theirs: dict[str, float] = {}
    for row in rows:
        if row["library"] != OURS:
            theirs[row["measure"]] = max(theirs.get(row["measure"], 0), row["reports_per_cpu_second"])
    told = []
    for row in rows:
        faster = theirs.get(row["measure"].split(",")[0])
        times = round(row["reports_per_cpu_second"] / faster, 2) if faster else None
        told.append({**row, "times_the_faster_peer": times})
    return told


def show(rows: list[dict[str, Any]], verdicts: list[dict[str, Any]], rounds: int) -> None:
    print(
        f"k = {CELLS:,}, epsilon = {EPSILON}; reports per CPU second, one thread, median of {rounds} rounds in turn\n"
    )
    print(f"{'':26} {'':16} {'reports':>8} {'per second':>12} {'x faster peer':>14}")
    for row in rows:
        rate, ratio = row["reports_per_cpu_second"], row["times_the_faster_peer"]
        times = "-" if ratio is None else f"{ratio:,.2f}"
        print(f"{row['measure']:26} {row['library']:16} {row['reports']:>8,} {rate:>12,} {times:>14}")
    print(
        "\nAggregation runs from the reports of the library's own clients to an array of every cell's estimate, as"
        "\ntheirs give it (ours: and one of standard errors). `table` is ours up to a labelled table, which theirs do"
        "\nnot make; its rows with intervals are made when they are first read. `list` is ours from a Python list of"
        f"\nsingle reports, each checked. Where fewer than {REPORTS:,} reports were handled, the rate is per report:"
        f"\nthe work is proportional to them. Their OUE lists repeat {VECTORS:,} bit vectors, because {REPORTS:,}"
        "\nwould fill 4 GB.\n"
    )
    for verdict in verdicts:
        value, required = list(verdict.values())[1] or 0, verdict["required"]
        unit = "x" if "times_the_faster_peer" in verdict else " reports/s"
        verb = "met" if verdict["met"] else "MISSED"
        print(f"{verb}: {verdict['measure']} {value:,}{unit}, required {required:,}{unit}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-reports", type=int, default=SLOW_REPORTS, help="OLH reports for the other libraries")
    parser.add_argument("--worker", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rounds < 1 or not 1 <= given.slow_reports <= REPORTS:
        parser.error(f"--rounds is at least 1, and --slow-reports from 1 to {REPORTS}")
    if given.worker:
        work(our_jobs() if given.worker == "ours" else their_jobs(given.slow_reports))
        return
    from install_peers import NotInstalled, python_of, versions
    from measure import machine

    rounds, theirs, peers = 1 if given.quick else given.rounds, None, {}
    try:
        theirs, peers = python_of("local"), versions("local")
    except NotInstalled as error:
        peers = {"not installed": str(error)}
        print(f"pure-ldp and multi-freq-ldpy can't be installed: {error}", file=sys.stderr)
    rows = compared(measured(theirs, rounds, given.slow_reports))
    verdicts = judged(rows)
    if given.json:
        settings = {"cells": CELLS, "epsilon": EPSILON, "rounds": rounds, "peers": peers}
        told = {"benchmark": "local", **machine(), "settings": settings, "rates": rows, "required": verdicts}
        print(json.dumps(told, indent=2))
    else:
        show(rows, verdicts, rounds)
    if not all(verdict["met"] for verdict in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
