"""Run every family and write docs/coverage.md: ``python -m tools.coverage [--quick] [FAMILY ...]``."""

from __future__ import annotations

import argparse
import datetime
import importlib
import pkgutil
import sys
from pathlib import Path

import tools.coverage
from tools.coverage import HIGH, LEAST_INTERVALS, LOW, Cell

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def families() -> list[str]:
    """Return the names of the modules that measure something."""
    return sorted(m.name for m in pkgutil.iter_modules(tools.coverage.__path__) if not m.name.startswith("_"))


def page(cells: list[Cell]) -> str:
    """Return the page: a table with a row per cell."""
    good = sum(cell.holds and cell.coverage <= HIGH for cell in cells)
    above = [cell for cell in cells if cell.holds and cell.coverage > HIGH]
    notes = list(dict.fromkeys(cell.note for cell in above))
    lines = [
        "# Coverage of intervals",
        "",
        f"Made by `python -m tools.coverage` on {datetime.date.today():%Y-%m-%d}. Each row runs the real pipeline,",
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
    """Measure, print each cell as it is done, and write the page unless only a part was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="*", help=f"only these, without writing the page: {', '.join(families())}")
    parser.add_argument("--quick", action="store_true", help="fewer intervals per cell, without writing the page")
    asked = parser.parse_args()
    cells: list[Cell] = []
    for name in asked.family or families():
        for cell in importlib.import_module(f"tools.coverage.{name}").measure(quick=asked.quick):
            cells.append(cell)
            print(f"{cell.coverage:.3f} of {cell.intervals:,}  {cell.shown}: {cell.setting}", flush=True)
    if not asked.family and not asked.quick:
        PAGE.write_text(page(cells), encoding="utf-8")
    return 0 if asked.quick or all(cell.holds for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
