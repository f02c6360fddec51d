"""Every registered mechanism has a proof, with its reference and tests that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROOFS = ROOT / "docs" / "proofs"
INDEX = (PROOFS / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path.name for path in PROOFS.glob("*.md") if path.name != "README.md")
REGISTERED = sorted(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
        "hushquery.mechanisms"
    ]
)


def proofs() -> dict[str, str]:
    """The page of each mechanism, by the table of the index."""
    rows = re.findall(r"^\| (`.*?) \| \[[\w-]+\]\(([\w-]+\.md)\):", INDEX, re.MULTILINE)
    return {name: page for names, page in rows for name in re.findall(r"`([\w-]+)`", names)}


def held_by(page: str) -> str:
    """The last part of a page: what holds it."""
    return (PROOFS / page).read_text(encoding="utf-8").partition("**Held by** ")[2]


def files(page: str) -> list[str]:
    """The files and folders that hold a page."""
    return re.findall(r"`([\w./-]+/[\w./-]+)`", held_by(page))


def test_the_index_names_every_registered_mechanism_once():
    named = [
        name for names in re.findall(r"^\| (`.*?) \|", INDEX, re.MULTILINE) for name in re.findall(r"`(.*?)`", names)
    ]
    assert sorted(named) == REGISTERED
    assert sorted(proofs()) == REGISTERED


def test_the_index_names_every_page_and_no_other():
    assert sorted(set(re.findall(r"\]\(([\w-]+\.md)\)", INDEX))) == PAGES
    tree = re.search(r"```\{toctree\}\n:hidden:\n\n(.*?)```", INDEX, re.DOTALL)
    assert tree is not None
    assert sorted(f"{name}.md" for name in tree[1].split()) == PAGES


@pytest.mark.parametrize("name", REGISTERED)
def test_a_mechanism_has_statement_proof_reference_and_tests(name):
    text = (PROOFS / proofs()[name]).read_text(encoding="utf-8")
    for part in (r"\*\*Statement", r"\*\*Proof", r"\*\*References?\.", r"\*\*Held by\*\* "):
        assert re.search(part, text), f"{proofs()[name]} has no {part}"
    told = held_by(proofs()[name])
    # The suite runs over every registered name, and the page says that this is one of them.
    assert "`tests/conformance`" in told
    assert f"`{name}`" in told


@pytest.mark.parametrize("page", PAGES)
def test_what_holds_a_page_exists(page):
    assert files(page)
    for name in files(page):
        assert name.startswith("tests/"), name
        assert (ROOT / name).exists(), name
        tests = [ROOT / name] if name.endswith(".py") else sorted((ROOT / name).glob("test_*.py"))
        assert any("def test_" in test.read_text(encoding="utf-8") for test in tests) or "controls" in name, name


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_holds_a_page_is_named_in_full(page):
    assert not re.findall(r"`(test_\w+\.py|controls/\w+\.py)`", held_by(page))
