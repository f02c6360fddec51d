"""docs/citing.md: it agrees with CITATION.cff, and every paper in it is named where it is used."""

from __future__ import annotations

import re
from pathlib import Path

from hushquery import __version__

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "citing.md").read_text("utf-8")
CITATION = (ROOT / "CITATION.cff").read_text("utf-8")

ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (\w+)\s*= (.*?)(?:,\n(?=  \w+\s*= )|\n\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| \[([^]]+)\]\(\.\./([^)]+)\) \|$", re.MULTILINE)


def entries() -> dict[str, dict[str, str]]:
    return {key: dict(FIELD.findall(body)) for _, key, body in ENTRY.findall(PAGE)}


def said(name: str) -> str:
    """A value of CITATION.cff."""
    [found] = re.findall(rf'^(?:  - )?{name}: "?([^"\n]*)"?$', CITATION, re.MULTILINE)
    return found


def test_it_agrees_with_the_citation_file() -> None:
    own = entries()["hushquery"]
    assert own["title"] == f"{{{said('title')}}}"
    assert own["author"] == f"{{{{{said('name')}}}}}"
    assert own["version"] == f"{{{said('version')}}}" == f"{{{__version__}}}"
    assert own["license"] == f"{{{said('license')}}}"
    year, month, _ = said("date-released").split("-")
    assert own["year"] == f"{{{year}}}"
    assert (
        own["month"]
        == ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"][int(month) - 1]
    )


def test_every_paper_is_complete_and_in_the_table() -> None:
    papers = {key: fields for key, fields in entries().items() if key != "hushquery"}
    assert len(papers) > 25
    assert [key for key, _, _ in ROW.findall(PAGE)] == list(papers)
    for key, fields in papers.items():
        assert {"title", "author", "year"} <= set(fields), key
        assert {"booktitle", "journal"} & set(fields), key
        assert all(value.startswith("{") and value.endswith("}") for value in fields.values()), key
        assert key.endswith(fields["year"].strip("{}")), key


def test_every_paper_is_named_in_its_file() -> None:
    papers = entries()
    for key, shown, target in ROW.findall(PAGE):
        assert shown == target
        text = (ROOT / target).read_text("utf-8")
        surname = papers[key]["author"].strip("{}").partition(",")[0]
        assert key == f"{surname.lower()}{papers[key]['year'].strip('{}')}"
        year = papers[key]["year"].strip("{}")
        assert re.search(rf"{surname}\b[^.]*?\b{year}|{surname}\b.{{0,200}}?{year}", text, re.DOTALL), (key, target)
