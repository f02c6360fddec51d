"""The cost model of docs/scale.md: it finds the line that is there, says how wrong it is, and fills the page."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale", ROOT / "tools" / "scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


ROWS = [1e6, 1e7, 3e7, 1e8]


def test_a_line_is_found_and_missed_by_nothing(scale):
    one = scale.Fit(ROWS, [2 + 3e-6 * n for n in ROWS])
    assert one.fixed == pytest.approx(2)
    assert one.rate == pytest.approx(3e-6)
    assert one.left_out() == pytest.approx([0, 0, 0, 0], abs=1e-9)
    low, high = one.span(1e10)
    assert low == pytest.approx(2 + 3e4)
    assert high > low  # the other model does not fit, and says so


def test_what_grows_faster_is_told(scale):
    costs = [1e-7 * n * math.log(n) for n in ROWS]
    one = scale.Fit(ROWS, costs)
    assert one.last_power > 1
    assert one.left_out()[-1] < -0.02  # the smaller logs promise too little for the largest
    assert one.span(1e10)[1] >= 1e-7 * 1e10 * math.log(1e10) * 0.999


def test_the_page_has_a_place_for_every_table(scale, tmp_path, monkeypatch):
    measured = [
        {"job": job, "rows": n, "users": n // 16, "megabytes": 1, "cpu_seconds": k + k * n / 1e6, "wall_seconds": 1.0}
        | {"peak_mib": 100 + n // 10**6, "spilled_mib": 0, "released": {"queries": n // 1000}}
        | {"random_words": n // 100, "returned_bytes": n // 10}
        for k, job in enumerate(scale.JOBS, 1)
        for n in (1_000_000, 10_000_000, 30_000_000)
    ]
    settings = {"engine_memory": "2GB", "cores": 2, "machine": "x", "command": "python benchmarks/bench_scale.py"}
    (tmp_path / "scale.json").write_text(
        json.dumps({"date": "2026-01-01", "settings": settings, "measured": measured, "skipped": []})
    )
    page = tmp_path / "scale.md"
    page.write_text((ROOT / "docs" / "scale.md").read_text())
    for name, path in (("PAGE", page), ("PICTURE", tmp_path / "rows.png"), ("CLIENTS", tmp_path / "none.json")):
        monkeypatch.setattr(scale, name, path)
    monkeypatch.setattr(sys, "argv", ["scale.py", str(tmp_path / "scale.json")])
    scale.main()
    first = page.read_text()
    assert "| release | 10,000,000 |" in first
    # 2 CPU seconds and 2 more for each million of rows.
    assert "| release | 2.0 | 2.00 | " in first
    assert "5.6 (" in first
    assert (tmp_path / "rows.png").stat().st_size > 10_000
    scale.main()
    assert page.read_text() == first
