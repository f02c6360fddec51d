"""Every command and every program in README.md runs, and prints what the README says (see documents.py)."""

from __future__ import annotations

from pathlib import Path

from documents import ROOT, not_made, run_markdown, without_reason

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_runs(tmp_path: Path) -> None:
    assert not run_markdown(README, tmp_path)


def test_what_the_readme_makes_exists() -> None:
    assert not not_made(README)


def test_what_is_not_run_has_a_reason() -> None:
    assert not without_reason(README)
