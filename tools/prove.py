"""Run the acceptance sizes of the issues and write docs/proved.md: date, machine, commands and outputs.

``make prove`` runs this; ``make prove ARGS="mutants collector"`` runs only what has one of these words in its title,
and leaves the other sections of the page as they are. Add a run by adding a line to ``RUNS``; it passes if its command
exits with 0.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "proved.md"
BIN = Path(sys.executable).parent
LINES_KEPT = 400  # of one output; the middle of a longer one is left out


@dataclass(frozen=True)
class Run:
    """One thing to prove, and the command whose exit code says whether it holds."""

    title: str
    command: str


_DEMO3 = " ".join(f"--{name} vectors/rappor_decode/demo3/{name}.csv" for name in ("params", "counts", "map"))

RUNS = (
    Run("Tests at acceptance size", "pytest -m prove -v -rP --durations=20"),
    Run("Mutants: every known mistake is killed", "env PYTHONPATH=tests python -m mutants"),
    Run("Coverage of every interval shown", "python -m tools.coverage"),
    Run("Audit: discrete Laplace at epsilon 1", "hushquery audit discrete-laplace --epsilon 1"),
    Run("Audit: Gaussian at epsilon 1", "hushquery audit gaussian --epsilon 1"),
    Run("Audit: every negative control is flagged", "hushquery audit --controls"),
    Run("Experiment: randomizers against theory, and averaging attacks", "python tools/experiments.py local"),
    Run("RAPPOR's demo3 decoded: more strings", f"hushquery rappor decode {_DEMO3} --rule two-sd"),
    Run("RAPPOR's demo3 decoded: no decoys", f"hushquery rappor decode {_DEMO3} --rule bonferroni"),
    Run("Both, against the true histogram", "pytest -v tests/local/test_rappor_decode.py -k demo3"),
    Run("Local oracles against pure-ldp and multi-freq-ldpy", "python benchmarks/bench_local.py"),
    Run("Samplers against OpenDP and numpy", "python benchmarks/bench_samplers.py"),
    Run("Ten million rows released, against the plain query", "python benchmarks/bench_release.py --rounds 2"),
    Run("Experiment: BLENDER, every figure and claim", "python tools/experiments.py blender"),
    Run("Experiment: twelve epochs with people who move", "python tools/experiments.py epochs"),
    Run("Five million clients through the real randomizers", "python benchmarks/bench_hybrid.py"),
    Run("Attacks on the collector, on SQLite", "python -m tests.attacks.collector --store sqlite --page"),
    Run("Attacks on the collector, on PostgreSQL", "python -m tests.attacks.collector --store postgresql --page"),
    Run(
        "Load on PostgreSQL with two workers, beside the bare framework; memory over ten minutes",
        "python benchmarks/bench_collector.py --store postgresql --workers 2 --minutes 10",
    ),
    Run(
        "Collections: four kinds, from nothing to a published page, 2,000 devices and 20 browsers each",
        "env PYTHONPATH=tests python tools/prove_collections.py",
    ),
    Run("What this machine has", "hushquery doctor"),
)


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    run: Run
    code: int
    seconds: float
    output: str
    when: str

    @property
    def row(self) -> str:
        """The line of the table."""
        verdict = "passed" if self.code == 0 else f"**failed** (exit {self.code})"
        return f"| {self.run.title} | {verdict} | {self.seconds:.0f} s | {self.when} |"

    @property
    def section(self) -> str:
        """What it ran and what that printed."""
        return "\n".join(["```console", f"$ {self.run.command}", self.output.strip("\n"), "```"])


def execute(run: Run) -> Result:
    """Run one command with this environment's programs first on PATH, showing its output as it comes."""
    print(f"\n== {run.title}\n$ {run.command}", flush=True)
    settings = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "110"}
    start = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        shlex.split(run.command),
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {commit()}"
    return Result(run, process.returncode, time.monotonic() - start, tidy(lines), when)


def commit() -> str:
    """Name the commit, and say if the tree differs from it."""
    git = ["git", "-C", str(ROOT)]
    named = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "src", "js", "tests"], capture_output=True, check=False)
    return (named.stdout.strip() or "no commit") + (" and changes" if changed.stdout else "")


def tidy(lines: list[str]) -> str:
    """Make an output fit to keep: no colours, no paths of this machine, no endless middle."""
    if len(lines) > LINES_KEPT:
        half = LINES_KEPT // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines left out ...", *lines[-half:]]
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", "\n".join(lines))
    for path, name in ((ROOT, "."), (Path(sys.base_prefix), "(python)"), (Path.home(), "~")):
        text = text.replace(str(path), name)
    return text.replace("```", "'''")


def document(rows: dict[str, str], sections: dict[str, str]) -> str:
    """Write the page from the line and the section of each run, by title."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        "# What was proved, and how",
        "",
        "Written by `make prove`; do not edit. Each section is a command and what it printed.",
        "",
        f"- machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()}",
        f"- Python: {platform.python_version()}",
        "",
        "| what | result | time | when, and at which commit |",
        "|---|---|---|---|",
        *rows.values(),
    ]
    for title, section in sections.items():
        parts += ["", f"## {title}", "", section]
    return "\n".join(parts) + "\n"


def stated(page: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read the lines and sections of a page that :func:`document` wrote."""
    head, *bodies = re.split(r"^## (?=.*\n\n```console$)", page, flags=re.MULTILINE)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in head.splitlines() if line.count(" | ") == 3}
    sections = {title: body.strip() for title, _, body in (each.partition("\n") for each in bodies)}
    return rows, sections


def main(words: list[str]) -> int:
    """Run everything, or what has one of the words in its title, even after a failure; 1 if any failed."""
    chosen = [run for run in RUNS if not words or any(word.lower() in run.title.lower() for word in words)]
    if not chosen:
        print(f"nothing to prove has {' or '.join(words)} in its title")
        return 2
    results = [execute(run) for run in chosen]
    rows, sections = stated(TARGET.read_text(encoding="utf-8") if TARGET.exists() else "")
    rows |= {result.run.title: result.row for result in results}
    sections |= {result.run.title: result.section for result in results}
    # In the order of the list; what is no longer in it, or was never run, is not in the page.
    kept = [run.title for run in RUNS if run.title in rows and run.title in sections]
    TARGET.write_text(document({t: rows[t] for t in kept}, {t: sections[t] for t in kept}), encoding="utf-8")
    failed = sum(result.code != 0 for result in results)
    print(f"\nwrote {TARGET.relative_to(ROOT)}: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
