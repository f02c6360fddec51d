"""The experiment on repeated epochs: the command runs it and writes a page, and its claims can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hushquery.errors import UsageError
from hushquery_experiments.cli.experiment import epochs as command
from hushquery_experiments.epochs.follow import EpochRow, Total
from hushquery_experiments.epochs.page import as_text, page
from hushquery_experiments.epochs.study import Coverage, KeptRun, check_claims, epochs


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("experiment") / "new"
    # With fewer people lists of two or three records may come out alike, and then a new list asks nothing anew.
    done = run("--users=80000", "--epochs=2", "--runs=2", "--seed=3", "--out", str(made))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["publishable"] is True
    return made


@pytest.fixture(scope="module")
def data(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text())


def test_it_follows_the_same_people_with_lists_that_are_kept_or_not(data: Any) -> None:
    new, kept = data["runs"]
    assert (new["keep"], kept["keep"]) == (1, 2)
    assert new["epochs"][0] == kept["epochs"][0]  # until a list is kept or not, the two are one
    assert kept["epochs"][1]["listed"] == 0
    assert kept["epochs"][1]["drawn"] < new["epochs"][1]["drawn"]
    assert [(row["keep"], row["changing"], row["first"]) for row in data["coverage"]] == [
        *((1, 1.0, 0), (1, 0.2, 0)),
        *((2, 0.2, 0), (6, 0.2, 0), (6, 0.2, 1)),
    ]
    assert all(row["intervals"] > 0 for row in data["coverage"])
    moved = next(total for total in kept["totals"] if total["group"].startswith("moved"))
    assert moved["person_worst"] == moved["optin_worst"] + moved["client_worst"] == 4


def test_claims_hold_and_fail_when_they_should(data: Any) -> None:
    runs = [
        KeptRun(
            **{
                **one,
                "epochs": tuple(EpochRow(**row) for row in one["epochs"]),
                "totals": tuple(Total(**row) for row in one["totals"]),
            }
        )
        for one in data["runs"]
    ]
    coverage = [Coverage(**row) for row in data["coverage"]]
    assert [claim.holds for claim in check_claims(runs, coverage)] == [True] * 4
    new, kept = runs
    over = replace(kept, totals=tuple(replace(total, client_worst=9.0) for total in kept.totals))
    assert [claim.holds for claim in check_claims([new, over], coverage)][:2] == [False, False]
    assert not check_claims([kept, new], coverage)[2].holds
    narrow = [replace(row, covered=0.9) for row in coverage]
    assert not check_claims(runs, narrow)[3].holds


def test_the_page_says_both_numbers_and_whose_they_are(folder: Path, data: Any) -> None:
    assert {file.name for file in folder.iterdir()} == {"index.html", "results.json"}
    html = (folder / "index.html").read_text()
    assert "<script" not in html
    assert "basic composition" in html
    assert "given the change times" in html
    assert html.count("<svg") == len(page(data).figures) == 4
    assert "moved, and there all the time" in as_text(data)


def test_other_folders_and_senseless_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not what an experiment made"):
        run("--out", str(tmp_path))
    for wrong in ({"users": 10}, {"epochs": 1}, {"moving": 2.0}, {"runs": 1}, {"changing": float("nan")}):
        with pytest.raises(UsageError):
            epochs(**wrong)
