"""Every notebook of examples/notebooks runs from its first cell to its last, and draws what it says it draws."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples" / "notebooks").glob("*.py"))}
MARK = re.compile(r"# %%( \[markdown\])?")


def cells(text: str) -> list[tuple[bool, str]]:
    """Take a notebook apart: whether a cell is text, and what it says."""
    found: list[tuple[bool, list[str]]] = []
    for line in text.splitlines():
        if mark := MARK.fullmatch(line):
            found.append((mark[1] is not None, []))
        else:
            assert found, "a notebook begins with a cell"
            found[-1][1].append(line)
    return [(is_text, "\n".join(lines)) for is_text, lines in found]


def test_there_is_one_for_each_trust_model() -> None:
    assert set(NOTEBOOKS) == {"curator", "local", "hybrid"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_is_made_of_cells(name: str) -> None:
    made = cells(NOTEBOOKS[name].read_text(encoding="utf-8"))
    assert len(made) >= 10
    assert made[0][0], "the first cell says what this is"
    for is_text, text in made:
        assert text.strip(), "no cell is empty"
        if is_text:
            assert all(line.startswith("#") for line in text.splitlines() if line), text
        else:
            ast.parse(text)  # a cell is whole statements, because it is run alone


def drawn(text: str) -> list[str]:
    """Name the charts that a notebook shows, in order of names."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return sorted(ast.literal_eval(call.args[1]) for call in calls if ast.unparse(call.func) == "show")


@pytest.mark.prove
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(NOTEBOOKS[name])],
        cwd=tmp_path,
        env=os.environ | {"NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    charts = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    assert sorted(charts) == drawn(NOTEBOOKS[name].read_text(encoding="utf-8"))
    assert len(charts) >= 2
    assert all("<svg" in text and "<path" in text for text in charts.values())
