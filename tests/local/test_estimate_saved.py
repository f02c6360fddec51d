"""The release of an estimate: saved, read back, and shown by every command, for each kind of task."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import hushquery as hq
from commands import answer
from hushquery.errors import DataError, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.server.estimate import ClientEstimate, estimate, estimate_support
from hushquery.local.server.published import read_estimate
from hushquery.publish.example import tiny_release
from hushquery.release import Release, verify
from hushquery.task import Task
from setting_reports import FIXED, REPORTS, TASK, made

NUMBER = """
task = {name = "minutes", population = "app users", kind = "number", highest = 60}
client = {epsilon = 2, lifetime_epsilon = 8, oracle = "ORACLE"}
collect = {min_batch = 100}
"""
MEAN = Task.loads(NUMBER.replace("ORACLE", "onebit"))
HISTOGRAM = Task.loads(NUMBER.replace('"ORACLE"', '"dbitflip", buckets = 6, bits = 2'))
TEXT = Task.loads("""
task = {name = "home page", population = "app users", kind = "text"}
client = {epsilon = 20, lifetime_epsilon = 40, rappor = {k = 16, h = 2, m = 4, p = 0.25, q = 0.75, f = 0.5}}
collect = {min_batch = 100}
""")
PAIRS = Task.loads("""
task = {name = "searches", population = "app users"}
optin = {epsilon = 1, delta = 1e-6}
client = {epsilon = 3, lifetime_epsilon = 6}
head = {size = 10, mode = "paper"}
collect = {min_batch = 100}
""")
HEAD = [["news", "https://news.example"], ["news", ""], ["=maps", "https://maps.example"]]
WORDS = ["news.example", "weather.example", "nobody.example"]


def of(task: Task, values: list[Any], head: Any = None, **how: Any) -> ClientEstimate:
    return estimate(task, made(Configuration.of(task, head), values), head=head, **how)


@pytest.fixture(scope="module")
def estimates() -> dict[str, ClientEstimate]:
    return {
        "setting": estimate(TASK, [*REPORTS, REPORTS[0], b""], post="clip"),
        "mean": of(MEAN, [10, 30] * 200),
        "histogram": of(HISTOGRAM, [10, 30] * 200, post="norm-sub", level=0.9),
        "text": of(TEXT, WORDS[:2] * 300, candidates=[*WORDS, " news.example "]),
        "searches": of(PAIRS, [("news", "https://news.example"), ("=maps", ""), ("x", "")] * 200, HEAD),
    }


def run(*words: object) -> str:
    code, out, err = answer(*words)
    assert code == 0, err
    return out


KINDS = ("setting", "mean", "histogram", "text", "searches")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_verified_and_loaded(estimates: dict[str, ClientEstimate], kind: str, tmp_path: Path) -> None:
    found, folder = estimates[kind], tmp_path / "est"
    assert found.save(folder) == folder
    assert verify(folder).problems == ()
    again = ClientEstimate.load(folder)
    assert again.to_json() == found.to_json()
    assert again.table == found.table
    assert (again.digest, again.candidates) == (found.digest, found.candidates)
    assert again.support.dtype == np.int64
    table = pq.read_table(folder / "estimates.parquet")
    assert table.column_names == ["value", "estimate", "stderr", "low", "high"]
    assert table["estimate"].to_pylist() == found.table.values
    assert table["value"].to_pylist() == [row.label for row in found]  # in the order of the list, not by size
    with pytest.raises(UsageError, match="exists already"):
        found.save(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_reads_it(estimates: dict[str, ClientEstimate], kind: str, tmp_path: Path) -> None:
    folder = estimates[kind].save(tmp_path / "est")
    assert "is whole, and its guarantee follows" in run("verify", folder)
    shown = run("show", folder)
    assert "epsilon" in shown
    assert ("mean" if kind == "mean" else "share") in shown
    assert json.loads(run("show", folder, "--json"))["kind"] == "local"
    run("export", folder, "--csv", tmp_path / "csv")
    run("export", folder, "--sqlite", tmp_path / "one.db")
    assert (tmp_path / "csv" / "support.csv").read_text("utf-8").startswith("cell,reports")
    with closing(sqlite3.connect(tmp_path / "one.db")) as base:
        assert base.execute("SELECT count(*) FROM estimates").fetchone() == (len(estimates[kind]),)
    release = Release.load(folder)
    assert release.estimates == release.tables["estimates"]
    assert list(release.to_pandas().columns) == ["value", "estimate", "stderr", "low", "high"]
    assert release.to_polars("support").height == len(estimates[kind].support)


@pytest.mark.parametrize("command", [("search", "x"), ("show", "--query", "x")])
def test_what_needs_queries_says_so(command: tuple[str, ...], tmp_path: Path) -> None:
    folder = estimate(TASK, REPORTS).save(tmp_path / "est")
    name, *rest = command
    code, _, told = answer(name, folder, *rest)
    assert code == DataError.exit_code
    assert "holds estimates from clients' reports" in told


def test_words_for_people(estimates: dict[str, ClientEstimate]) -> None:
    setting, mean, texts, searches = (estimates[kind].release() for kind in ("setting", "mean", "text", "searches"))
    page = setting.page()
    for told in (
        '<h1><bdi dir="auto">theme',
        "dark",
        "everything else",
        "1,000",
        "epsilon for one answer",
        "post-processed",
    ):
        assert told in page
    assert "The average" in mean.page()
    assert "Looked for, and not found" in texts.page()
    assert "nobody.example" in texts.page()
    assert "other pages" in searches.page()
    assert "␉" not in searches.page()
    for release in (setting, mean, texts, searches):
        card = release.card()
        assert "One answer costs a device at most epsilon" in card
        assert "Search statistics" not in card
        assert "task\\_text" not in card
        assert "<script" not in release.page()


def test_nothing_found_is_said() -> None:
    nobody = of(TEXT, ["elsewhere.example"] * 300, candidates=["nobody.example"])
    assert len(nobody) == 0
    assert "None of the 1 texts that were looked for passed the test" in nobody.release().page()
    assert read_estimate(nobody.release()).to_json() == nobody.to_json()


def test_names_are_never_markup(tmp_path: Path) -> None:
    odd = Task.make(
        TASK.to_json() | {"task": TASK.to_json()["task"] | {"name": "<b>x</b>", "domain": ["<i>", "/etc", "~/x"]}}
    )
    folder = of(odd, ["<i>", "/etc", "~/x"] * 100).save(tmp_path / "est")
    assert verify(folder).ok
    page = (folder / "report.html").read_text("utf-8")
    assert "<b>x" not in page
    assert "<i>" not in page.replace("<i>everything else", "")
    assert "&lt;i&gt;" in page


def test_what_is_no_estimate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        ClientEstimate.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no manifest"):
        ClientEstimate.load(tmp_path)
    with pytest.raises(DataError, match="holds no estimates from reports"):
        read_estimate(tiny_release())


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_reports_are_no_estimate(n: int) -> None:
    with pytest.raises(DataError, match="at least two reports"):
        estimate_support(FIXED, np.array([n, 0, 0, 0], dtype=np.int64), n)


def test_the_same_from_files_and_from_counts() -> None:
    plain = hq.estimate(TASK, REPORTS)
    assert estimate_support(FIXED, plain.support, plain.n).to_json() == plain.to_json()
