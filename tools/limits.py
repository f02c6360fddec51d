"""Compute the numbers of docs/limits.md from the library and write the tables into the page.

python tools/limits.py            # writes docs/limits.md
python tools/limits.py --check    # says whether the page is what this would write, its date apart
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from marked import Rows, Tables, main

from hushquery.core.budget import format_delta
from hushquery.core.composition import group
from hushquery.local.configuration import ORACLES, oracle_named

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"
COMMAND = "python tools/limits.py"
CELLS = 51


def pull(name: str, epsilon: int) -> float:
    """How far the share of one cell is moved by fake clients who send only what speaks for it, per share of fakes."""
    oracle = oracle_named(name, CELLS, epsilon)
    # The estimate is linear in reports: this is what a single report for the cell says, on average over nothing.
    return float(oracle.frequencies(np.eye(CELLS, dtype=np.int64)[0], 1)[0][0])


def poison() -> Rows:
    rows = [["one in a hundred clients is fake", "epsilon 1", "epsilon 2", "epsilon 4"]]
    rows.append(["answers as a device would, with a chosen value", *["up by 0.010"] * 3])
    for name in ORACLES:
        rows.append([f"sends what it likes, `{name}`", *(f"up by {pull(name, e) / 100:.3f}" for e in (1, 2, 4))])
    return rows


def groups() -> Rows:
    rows = [["people", "epsilon", "delta"]]
    for people in (1, 2, 5, 10):
        epsilon, delta = group(1, 1e-6, people)
        rows.append([str(people), f"{epsilon:g}", format_delta(delta)])
    return rows


def exposed() -> Rows:
    rows = [["people in the log", *(f"delta {delta:g}" for delta in (1e-4, 1e-6, 1e-8))]]
    for people in (10_000, 1_000_000, 100_000_000):
        cells = []
        for delta in (1e-4, 1e-6, 1e-8):
            at_least_one = -math.expm1(people * math.log1p(-delta))
            cells.append(f"{people * delta:g} expected; somebody with {at_least_one:.2g}")
        rows.append([f"{people:,}", *cells])
    return rows


TABLES: Tables = {made.__name__: made for made in (poison, groups, exposed)}

if __name__ == "__main__":
    main(PAGE, TABLES, COMMAND)
