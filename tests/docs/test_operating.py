"""The page for operators names what there is: every answer, every option and every metric, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from hushquery.cli.app import app
from hushquery.collect.collector import Settings
from hushquery.collect.http import limits as connections
from hushquery.collect.http.admin import health, metrics
from hushquery.collect.http.ingest import MOST_REPORTS
from hushquery.collect.http.problems import PROBLEMS
from hushquery.collect.store.store import Store
from hushquery.local.device.send import REFUSED

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "howto" / "operate-the-collector.md").read_text(encoding="utf-8")


def test_every_answer_is_listed_with_what_clients_do() -> None:
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|[^|]*\| ([a-z ]+) \|$", PAGE, flags=re.MULTILINE)
    assert {(int(status), name) for status, name, _ in rows} == {(one.status, one.name) for one in PROBLEMS.values()}
    for status, name, client in rows:
        if name != "unauthorized":
            assert client == ("final" if int(status) in REFUSED else "later"), name


def test_every_option_of_serve_is_listed() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts if parameter.name != "help"}
    table = PAGE.partition("## Settings")[2].partition("\n## ")[0]
    listed = {
        name
        for row in re.findall(r"^\| (`--.*?) \|", table, flags=re.MULTILINE)
        for name in re.findall("--[a-z-]+", row)
    }
    assert listed == known - {"--help", "-h"}


def test_every_metric_is_listed(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "collector.db")
    known = set(re.findall(r"^# TYPE (\w+) ", metrics(store) + health(store, up=True), flags=re.MULTILINE))
    store.close()
    assert set(re.findall(r"^\| `(hushquery_\w+)[`{]", PAGE, flags=re.MULTILINE)) == known


def test_the_fixed_limits_are_as_the_page_says() -> None:
    limits, told = Settings(("task.toml",)), PAGE.partition("Fixed limits, per worker:")[2].partition("\n\n")[0]
    told = " ".join(told.split())
    assert f"keeps {connections._RESERVED} descriptors" in told
    assert f"A head has {connections._HEAD_SECONDS:.0f} seconds to arrive, a body {limits.body_seconds:.0f}," in told
    assert f"the next request {connections._NEXT_SECONDS:.0f};" in told
    assert f"cut after {connections._UNREAD_SECONDS:.0f}." in told
    for number in (limits.most_waiting, connections._MOST, MOST_REPORTS, limits.retry_after):
        assert f"{number:,} " in told
