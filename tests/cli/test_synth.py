"""``hushquery synth``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from hushquery.cli.demo import synth
from hushquery.errors import UsageError

app = typer.Typer()
app.command()(synth)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tells_what_was_made(tmp_path: Path) -> None:
    out = tmp_path / "log.parquet"
    told = json.loads(run("--profile", "tiny", "--users", "300", "--seed", "4", "--out", str(out), "--json"))
    table = pq.read_table(out)
    assert told == {"path": str(out), "profile": "tiny", "users": 300, "rows": len(table), "seed": 4}
    text = run("--profile", "tiny", "--users", "300", "--seed", "4", "--out", str(out), "--force")
    assert f"{len(table):,} rows of 300 synthetic users" in text
    assert pq.read_table(out).equals(table)


def test_refuses_an_existing_file(tmp_path: Path) -> None:
    out = tmp_path / "log.csv"
    out.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        run("--profile", "tiny", "--users", "3", "--out", str(out))
    assert out.read_text() == "mine"


@pytest.mark.parametrize("users", ["0", "-5", "100000001"])
def test_refuses_numbers_of_users(tmp_path: Path, users: str) -> None:
    with pytest.raises(UsageError, match="from 1 to 100,000,000"):
        run("--users", users, "--out", str(tmp_path / "log.csv"))


def test_needs_a_file() -> None:
    assert CliRunner().invoke(app, ["--profile", "tiny"]).exit_code == 2


def test_help_has_examples() -> None:
    text = " ".join(run("--help").split())
    assert "hushquery synth --profile tiny" in text
    assert "private tail" in text
