"""Run every benchmark, keep what each found as JSON in the cache, and, after a full run, write docs/benchmarks.md.

    python benchmarks/run_all.py [--quick] [--only release,peers]        or   make bench [QUICK=1]

A benchmark is a file bench_NAME.py that takes --json; a quick run has those that take --quick too. One that fails or
takes too long is reported, and the others run all the same. BENCH_ROUNDS says how many rounds there are. ``scale`` is
long and has a page of its own, docs/scale.md: run it by name.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import page
from job_log import cache
from measure import machine

HERE = Path(__file__).resolve().parent
FIRST = ("release", "peers")
#: What one benchmark may take, in seconds, in a full and in a quick run.
LIMIT, QUICK_LIMIT = 1800.0, 280.0
GRACE = 20.0
# What runs only when named; and what a quick run leaves out, having no peers to be compared with.
BY_NAME = ("scale",)
NOT_QUICK = ("collector", "hybrid")


def names() -> list[str]:
    """Give the benchmarks there are, those about the release first."""
    found = [path.stem.removeprefix("bench_") for path in sorted(HERE.glob("bench_*.py"))]
    return sorted(found, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def options_of(name: str, *, quick: bool) -> list[str] | None:
    """Give the options that a benchmark gets; None where a quick run should leave it out."""
    told = subprocess.run([sys.executable, str(HERE / f"bench_{name}.py"), "--help"], capture_output=True, check=False)
    known = told.stdout.decode()
    if quick and "--quick" not in known:
        return None
    rounds = os.environ.get("BENCH_ROUNDS", "")
    options = [option for option, wanted in (("--json", True), ("--quick", quick)) if wanted and option in known]
    return options + (["--rounds", rounds] if rounds and "--rounds" in known else [])


def run(name: str, options: list[str], limit: float) -> dict[str, Any]:
    """Run one benchmark; gives what it printed as JSON, or its error, with how long it took."""
    script = [sys.executable, str(HERE / f"bench_{name}.py")]
    began = time.monotonic()
    process = subprocess.Popen([*script, *options], stdout=subprocess.PIPE, text=True)
    try:
        output, late = process.communicate(timeout=limit)[0], False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that it can end what it started
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        output, late = process.communicate()[0], True
    seconds = round(time.monotonic() - began)
    told = as_json(output)
    if told is None:
        why = f"stopped after {limit:g} s" if late else f"ended with code {process.returncode}, without JSON"
        told = {"error": why}
    return {
        **machine(),
        **told,
        "benchmark": name,
        "seconds": seconds,
        "command": " ".join(["bench_" + name + ".py", *options]),
    }


def as_json(output: str) -> dict[str, Any] | None:
    """Read what a benchmark printed; a bare list is what it measured."""
    try:
        told = json.loads(output)
    except ValueError:
        return None
    return told if isinstance(told, dict) else {"measured": told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, no page")
    parser.add_argument("--only", default="", help="names of benchmarks, with commas between")
    given = parser.parse_args()
    usual = [name for name in names() if name not in BY_NAME and not (given.quick and name in NOT_QUICK)]
    wanted = given.only.split(",") if given.only else usual
    unknown = set(wanted) - set(names())
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    results = cache() / ("results-quick" if given.quick else "results")
    results.mkdir(exist_ok=True)
    began = time.monotonic()
    for name in wanted:
        print(f"== {name}", file=sys.stderr, flush=True)
        options = options_of(name, quick=given.quick)
        if options is None:
            print("left out: it has no quick form", file=sys.stderr)
            continue
        told = run(name, options, QUICK_LIMIT if given.quick else LIMIT)
        (results / f"{name}.json").write_text(json.dumps(told, indent=2) + "\n")
        print(page.markdown(told), flush=True)
    print(f"{len(wanted)} benchmarks in {time.monotonic() - began:.0f} s; results in {results}", file=sys.stderr)
    if not given.quick:
        print(f"wrote {page.write(results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
