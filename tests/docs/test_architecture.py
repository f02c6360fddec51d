"""ARCHITECTURE.md and the decision records say what is there: arrows, files, functions, modules, tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hushquery"
DECISIONS = ROOT / "docs" / "decisions"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
RECORDS = sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))
# A line of a list may go on, indented.
INDEX = re.sub(r"\n +", " ", (DECISIONS / "index.md").read_text(encoding="utf-8"))
SECTIONS = ["Context", "Choice", "Considered", "Consequences", "What would change it"]

FLOWS = {
    title: part
    for title, _, part in (chunk.partition("\n") for chunk in TEXT.split("\n## "))
    if title.startswith("The flow")
}
ARROW = re.compile(r"^\| (\d+) \| (.+?) \| `([\w.]+)`.*? \| \[([\w./]+)\]\(([\w./]+)\) \|$", re.MULTILINE)


@cache
def defined(path: Path) -> set[str]:
    """The classes, functions and methods of a file: ``name`` and ``Class.name``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inside = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{one.name}" for one in inside}
    return found


# ---- the flows -----------------------------------------------------------------------------------------------------


def test_the_flows_are_drawn():
    assert [title.split(" of ")[1].split(",")[0] for title in FLOWS] == [
        "a release",
        "a collection",
        "a private statistic",
    ]


@pytest.mark.parametrize("flow", FLOWS)
def test_every_arrow_of_a_drawing_has_its_line_and_every_line_its_arrow(flow):
    drawing = re.search(r"```\n(.*?)```", FLOWS[flow], re.DOTALL)
    assert drawing is not None
    drawn = sorted(int(number) for number in re.findall(r"\((\d+)\)", drawing[1]))
    listed = [int(number) for number, *_ in ARROW.findall(FLOWS[flow])]
    assert drawn == listed == list(range(1, len(listed) + 1))
    assert len(re.findall(r"^\| \d+ \|", FLOWS[flow], re.MULTILINE)) == len(listed)


@pytest.mark.parametrize(
    ("flow", "name", "shown", "link"),
    [(flow, name, shown, link) for flow, part in FLOWS.items() for _, _, name, shown, link in ARROW.findall(part)],
)
def test_an_arrow_leads_to_a_function_that_exists(flow, name, shown, link):
    assert link == f"src/hushquery/{shown}"
    assert name in defined(ROOT / link), f"{link} has no {name}"


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", TEXT))))
def test_every_link_leads_somewhere(link):
    assert (ROOT / link).exists()


# ---- where things live: the tree itself is compared by test_site.py (`make reference`) ----------------------------


def test_files_that_are_named_are_there():
    """The text names files by their place in the package, or by name where the folder is clear."""
    folders = ("src", "experiments", "tests", "tools", "benchmarks")
    everything = {str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.*")}
    for name in re.findall(r"`([\w/]+\.(?:py|mjs|sql))`", TEXT):
        assert any(path == name or path.endswith(f"/{name}") for path in everything), name


# ---- decisions -----------------------------------------------------------------------------------------------------


def test_decisions_are_numbered_and_each_is_listed_twice_here_and_once_there():
    assert [name[:4] for name in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]
    assert re.findall(r"^\d+\. \[.*?\]\((.*?)\)", INDEX, re.MULTILINE) == RECORDS
    assert re.findall(r"^(\d{4}-.*)$", INDEX, re.MULTILINE) == [name.removesuffix(".md") for name in RECORDS]
    told = re.sub(r"\n +", " ", TEXT.partition("## Decisions")[2])
    assert re.findall(r"^- \[.*?\]\(docs/decisions/(.*?)\)", told, re.MULTILINE) == RECORDS


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_its_parts_and_is_short(name):
    text = (DECISIONS / name).read_text(encoding="utf-8")
    title = text.splitlines()[0]
    assert title.startswith(f"# {int(name[:4])}. ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert 20 <= len(text.splitlines()) <= 50
    for part in text.split("\n## ")[1:]:
        assert len(part.split()) > 5
    assert f"[{title.partition('. ')[2]}](" in INDEX


@pytest.mark.parametrize("name", RECORDS)
def test_what_holds_a_decision_exists(name):
    told = (DECISIONS / name).read_text(encoding="utf-8").partition("**Held by** ")[2]
    files = re.findall(r"`([\w./-]+)`", told)
    assert files
    for file in files:
        assert file.startswith(("tests/", "benchmarks/"))
        assert (ROOT / file).is_file(), file
