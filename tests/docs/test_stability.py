"""docs/stability.md: the numbers of formats and exit codes are those of the code, and unknown ones are refused."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hushquery as hq
from hushquery import errors
from hushquery.collect.store import schema as collector
from hushquery.collect.store.store import Store
from hushquery.core.ledger import store as ledger_store
from hushquery.errors import DataError, HushqueryError, LedgerCorrupt, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.device import store as client_store
from hushquery.local.report import VERSION, Report, ReportVersionUnknown
from hushquery.publish.site import build_site
from hushquery.release.manifest import FORMAT_VERSION
from hushquery.release.release import MANIFEST, manifest_bytes, sign
from hushquery.release.signature import VERSION as SIGNATURE_VERSION
from hushquery.task import Task
from hushquery.task.answers import template
from setting_reports import REPORTS, TASK
from small_releases import private_hybrid, release_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "stability.md").read_text("utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5
}


def number(name: str) -> int:
    return int(ROWS[name][1])


def test_the_numbers_are_those_of_the_code() -> None:
    assert number("release") == FORMAT_VERSION
    assert number("report") == VERSION
    assert number("signature") == SIGNATURE_VERSION
    assert number("ledger") == ledger_store.SCHEMA
    assert number("client state") == client_store.SCHEMA
    assert number("collector store") == collector.SCHEMA
    assert set(collector.MIGRATIONS) == set(range(1, collector.SCHEMA))  # every older one is converted
    assert number("configuration") == json.loads(Configuration.of(TASK).canonical())["version"]
    assert number("search index of a site") == json.loads(build_site([private_hybrid()])["index.json"])["version"]


def test_exit_codes() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \| [^|]+ \|$", PAGE, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HushqueryError)]
    assert told == {0, *(kind.exit_code for kind in kinds)}


@pytest.mark.parametrize("written", [0, FORMAT_VERSION + 1, "1", None, 1.5, True])
def test_a_release(written: Any, tmp_path: Path) -> None:
    folder = release_of({"news": 100}).save(tmp_path / "release")
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["format_version"] == 1  # the lowest that can say it
    assert json.loads((private_hybrid().save(tmp_path / "hybrid") / MANIFEST).read_bytes())["format_version"] == 2
    assert hq.estimate(TASK, REPORTS).release().manifest["format_version"] == 3
    (folder / MANIFEST).write_bytes(manifest_bytes(sign({**manifest, "format_version": written})))
    with pytest.raises(DataError):
        hq.Release.load(folder)


@pytest.mark.parametrize("written", [0, 2, "1", None, True])
def test_reports(written: Any) -> None:
    with pytest.raises(ReportVersionUnknown):
        Report.from_json({**REPORTS[0].to_json(), "version": written})
    with pytest.raises(ReportVersionUnknown):
        Report.from_bytes(b"\x02" + REPORTS[0].to_bytes()[1:])


@pytest.mark.parametrize("written", [0, 2, "1", None, True])
def test_a_head_list(written: Any) -> None:
    task = Task.loads(template("searches")).to_json()
    document: dict[str, Any] = {"format": "hushquery-head", "task": task, "epoch": 0, "created": "2026-11-15"}
    document |= {"test_noise": False, "configuration": None, "records": [], "optin": {}}
    with pytest.raises(DataError, match="unknown version"):
        hq.PublishedHead.from_json({**document, "version": written})
    with pytest.raises(DataError, match="opt-in shares"):  # with the known one it reads on
        hq.PublishedHead.from_json({**document, "version": 1})


@pytest.mark.parametrize("written", [0, 99])
def test_databases(written: int, tmp_path: Path) -> None:
    hq.Ledger.open(tmp_path / "ledger.db").open_account("readers", "add-remove", hq.Budget(1, 0))
    hq.Client(TASK, tmp_path / "client.db", "one").report("dark")
    Store.open(str(tmp_path / "collector.db")).close()
    changes = {
        "ledger.db": f"UPDATE hushquery_ledger_meta SET schema = {written}",  # noqa: S608
        "client.db": f"PRAGMA user_version = {written}",
        "collector.db": f"UPDATE hushquery_collect_meta SET schema = {written}",  # noqa: S608
    }
    for name, change in changes.items():
        with closing(sqlite3.connect(tmp_path / name)) as base, base:
            base.execute(change)
    with pytest.raises(LedgerCorrupt, match=f"layout is version {written}"):
        hq.Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(DataError, match=f"has version {written}"):
        hq.Client(TASK, tmp_path / "client.db", "one").report("dark")
    with pytest.raises(DataError, match=f"tables of version {written}"):
        Store.open(str(tmp_path / "collector.db"))


def test_a_task_has_no_number_and_refuses_what_it_does_not_know() -> None:
    text = template("setting")
    assert "version" not in text
    for line in ("version = 1\n", 'colour = "blue"\n'):
        with pytest.raises(UsageError, match="unknown key"):
            Task.loads(text.replace("[collect]", f"[collect]\n{line}"))


def test_what_is_public_exists() -> None:
    assert all(hasattr(hq, name) for name in hq.__all__)
    exported = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))["exports"]
    assert {"hushquery-client" + name.removeprefix(".") for name in exported} == set(
        re.findall(r"`(hushquery-client[a-z/]*)`", PAGE)
    )
