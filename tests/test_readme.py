"""Every command and every program in README.md runs, and prints what the README says (see documents.py)."""

from __future__ import annotations

import re
from pathlib import Path

from documents import ROOT, agree, blocks, commands, not_made, run_markdown, shell, targets, without_reason

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_readme_runs(tmp_path: Path) -> None:
    assert not run_markdown(README, tmp_path)


def test_what_the_readme_makes_exists() -> None:
    assert not not_made(README)


def test_what_is_not_run_has_a_reason() -> None:
    assert not without_reason(README)


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shown = next(
        command for block in blocks(README) for command in commands(block) if targets(command.text) == ["demo"]
    )
    recipe = re.search(r"^demo:.*\n\t(.+)$", MAKEFILE, flags=re.MULTILINE)
    assert recipe
    assert shown.output.strip()
    code, printed = shell(recipe[1].replace("$(BIN)/", ""), tmp_path)
    assert code == 0, printed
    assert agree(shown.output, printed), printed
