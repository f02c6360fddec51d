"""The page of coverages: what counts as covered enough, what must be explained, and that each family runs."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tools():
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("tools.coverage.__main__")
    finally:
        sys.path.remove(str(ROOT))


@pytest.mark.parametrize(
    ("intervals", "covered", "note", "holds"),
    [
        (4_000, 3_800, "", True),
        (4_000, 3_750, "", False),
        (4_000, 3_750, "a reason does not excuse too few", False),
        (4_000, 3_960, "", False),
        (4_000, 3_960, "a reason explains too many", True),
        (3_999, 3_800, "", False),
    ],
)
def test_too_few_is_never_excused_and_too_many_is_explained(tools, intervals, covered, note, holds):
    cell = tools.Cell("counts", "a setting", intervals, covered, note=note)
    assert cell.holds is holds
    page = tools.page([cell], ["2026-11-16"])
    assert ("**" in page) is not holds
    assert (note in page if note else True) is (holds or not note)


@pytest.mark.parametrize("family", ["curator", "series", "statistics", "trends"])
def test_a_family_measures_the_real_pipeline(tools, family):
    """A few hundred intervals each: too few to tell 94% from 95%, enough to see one that is broken."""
    measured = importlib.import_module(f"tools.coverage.{family}").measure(quick=True)
    for cell in itertools.islice(measured, 4):
        assert cell.intervals >= 300
        assert cell.coverage >= 0.9, cell


def test_the_page_is_that_of_the_kept_cells(tools):
    kept = json.loads(tools.KEPT.read_text("utf-8"))
    cells = [tools.Cell(**cell) for name in tools.families() for cell in kept[name]["cells"]]
    assert all(cell.holds for cell in cells)
    assert tools.PAGE.read_text("utf-8") == tools.page(cells, sorted({kept[name]["date"] for name in tools.families()}))
