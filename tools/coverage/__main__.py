"""Run every family, or some, and write docs/coverage.md: ``python -m tools.coverage [--quick] [FAMILY ...]``.

What each family gave last is kept in cells.json, so that families can be run one by one, or beside each other.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import fcntl
import importlib
import json
import pkgutil
import sys
from pathlib import Path

import tools.coverage
from tools.coverage import HIGH, LEAST_INTERVALS, LOW, Cell

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
KEPT = Path(__file__).parent / "cells.json"


def families() -> list[str]:
    """Return the names of the modules that measure something."""
    return sorted(m.name for m in pkgutil.iter_modules(tools.coverage.__path__) if not m.name.startswith("_"))


def keep(family: str, cells: list[Cell]) -> None:
    """Keep what a family gave, and write the page if all of them are there."""
    with Path(f"{KEPT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
        day = f"{datetime.date.today():%Y-%m-%d}"
        kept[family] = {"date": day, "cells": [dataclasses.asdict(cell) for cell in cells]}
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        if all(name in kept for name in families()):
            every = [Cell(**cell) for name in families() for cell in kept[name]["cells"]]
            PAGE.write_text(page(every, sorted({kept[name]["date"] for name in families()})), encoding="utf-8")


def page(cells: list[Cell], dates: list[str]) -> str:
    """Return the page: a table with a row per cell."""
    good = sum(cell.holds and cell.coverage <= HIGH for cell in cells)
    above = [cell for cell in cells if cell.holds and cell.coverage > HIGH]
    notes = list(dict.fromkeys(cell.note for cell in above))
    lines = [
        "# Coverage of intervals",
        "",
        f"Made by `python -m tools.coverage` on {' and '.join(dates)}. Each row runs the real pipeline,",
        f"noise included, until it has at least {LEAST_INTERVALS:,} intervals, and counts how many contain the true",
        f"value. A 95% interval must cover between {LOW:.0%} and {HIGH:.0%}: {good} of {len(cells)} do, and",
        f"{len(above)} cover more for a reason that is stated under the table ([proof](proofs/intervals.md)).",
        "",
        "| interval | setting | intervals | covered |",
        "| --- | --- | ---: | ---: |",
    ]
    for cell in cells:
        share = f"{cell.coverage:.3f}" if cell.holds else f"**{cell.coverage:.3f}**"
        share += f" ({notes.index(cell.note) + 1})" if cell in above else ""
        lines.append(f"| {cell.shown} | {cell.setting} | {cell.intervals:,} | {share} |")
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))] if notes else []
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print each cell as it is done, keep the cells and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="*", help=f"only these: {', '.join(families())}")
    parser.add_argument("--quick", action="store_true", help="fewer intervals per cell; nothing is kept or written")
    asked = parser.parse_args()
    every: list[Cell] = []
    for name in asked.family or families():
        cells: list[Cell] = []
        for cell in importlib.import_module(f"tools.coverage.{name}").measure(quick=asked.quick):
            cells.append(cell)
            print(f"{cell.coverage:.3f} of {cell.intervals:,}  {cell.shown}: {cell.setting}", flush=True)
        if not asked.quick:
            keep(name, cells)
        every += cells
    return 0 if asked.quick or all(cell.holds for cell in every) else 1


if __name__ == "__main__":
    sys.exit(main())
