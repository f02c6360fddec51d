"""Every command and every program of the tutorials and the how-tos runs, each page in an empty folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import ROOT, blocks, not_made, run_markdown, without_reason

DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for kind in ("tutorials", "howto") for path in DOCS.glob(f"{kind}/**/*.md"))
# Pages that have nothing to run. A page that is not named here and runs nothing is a mistake in its fences.
NOTHING_TO_RUN = {"tutorials/index.md", "howto/index.md"}


def test_there_is_a_tutorial_for_each_trust_model() -> None:
    assert {"tutorials/curator.md", "tutorials/local.md", "tutorials/hybrid.md"} <= set(PAGES)


def test_every_picture_of_a_tutorial_is_there_and_shown() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("tutorials/*.md"))
    shown = set(re.findall(r"\]\(\.\./images/([\w.-]+)\)", text))
    assert shown == {path.name for path in DOCS.glob("images/tutorial-*.png")}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    runs = [block for block in blocks(text) if block.not_run is None]
    assert bool(runs) is (page not in NOTHING_TO_RUN), f"{page} has {len(runs)} blocks to run"
    assert not run_markdown(text, tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_makes_what_exists_and_says_why_it_leaves_out(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert not not_made(text)
    assert not without_reason(text)
