"""docs/papers.md is what tools/papers.py makes of the committed pages of experiments."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "papers.py"
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
PAPERS = json.loads((ROOT / "tools" / "paper_values.json").read_text(encoding="utf-8"))


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location("papers", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "papers", module)  # where its dataclasses look
    spec.loader.exec_module(module)
    return module


def tables(text: str) -> list[str]:
    """The tables of a page outside its fences, each as its lines."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [found[0].strip() for found in re.finditer(r"(^\|.*\n?)+", outside, re.MULTILINE)]


def test_the_page_is_current():
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_page_that_changed_is_noticed(tool, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images", "_build"))
    monkeypatch.setattr(tool, "DOCS", tmp_path / "docs")
    assert tool.page() == PAGE
    (tmp_path / "docs" / "experiments" / "local.md").write_text("# Local\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="is not the page of results"):
        tool.page()


def test_the_readme_compares_with_the_paper_as_it_was_measured(tool):
    shown = {row[0]: row[1] for row in tool.read("experiments/blender.md").under("What had to be shown").rows[1:]}

    def measured(*words):
        (value,) = [value for claim, value in shown.items() if all(word in claim for word in words)]
        return [f"{float(number):.4f}".lstrip("0") for number in re.findall(r"0\.\d+", value)]

    aol, yandex = ("AOL profile, 5%",), ("Yandex profile, 2.5%",)
    best, paper = measured(*aol, "L1")[:2]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"NDCG {measured(*aol, 'NDCG')[0]}, L1 {best} where the paper's algorithm has {paper}" in readme
    assert f"NDCG {measured(*yandex, 'NDCG')[0]}, L1 {measured(*yandex, 'L1')[0]};" in readme


def test_our_thresholds_are_those_of_the_paper():
    stated = PAPERS["korolova2009"]["thresholds"]
    for name in ("K", "b"):
        line = re.search(rf"^\| {name}, ours \| (.*) \|$", PAGE, re.MULTILINE)
        assert line is not None
        assert [float(cell) for cell in line[1].split(" | ")] == [float(value) for value in stated[name]]


def test_every_paper_has_its_place_and_its_value_on_the_page():
    for paper in ("korolova2009", "blender", "rappor", "onebit"):
        assert f"## {PAPERS[paper]['paper']}" in PAGE
    told = [
        PAPERS["blender"]["abstract"],
        PAPERS["blender"]["ldpminer"],
        *PAPERS["korolova2009"]["statements"].values(),
    ]
    for one in told:
        assert one["where"]
        assert one["said"] in PAGE
    for one in PAPERS["rappor"]["values"].values():
        assert f"| {one['said']} | {one['value']} |" in PAGE
    # Each figure of BLENDER that its text says something of.
    for figure in (9, 11, 12, 13, 14, 15, 16):
        assert f"| figure {figure}, " in PAGE
