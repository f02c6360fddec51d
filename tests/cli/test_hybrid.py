"""``hushquery head``, ``blend`` and what surrounds them, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hushquery.cli import main
from hushquery.cli.app import app
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import HushqueryError

CANARY = "zqcanary"


def run(*arguments: object) -> str:
    """Run a command that must succeed."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=True)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(*arguments: object) -> HushqueryError:
    """Run a command that must be refused."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert isinstance(result.exception, HushqueryError), (result.output, result.exception)
    return result.exception


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


WHO = ("--population", "readers")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [(f"u{i}", "weather leeds", "https://weather.example") for i in range(600)]
    rows += [(f"u{i}", "news", "https://news.example") for i in range(600, 1000)]
    rows += [(f"u{i}", f"{CANARY} {i}", f"https://{CANARY}.example/{i}") for i in range(1000, 1500)]
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(dict(zip(("user", "query", "url"), zip(*rows, strict=True), strict=True))), path)
    return path


def test_all_in_one(log: Path) -> None:
    told = json.loads(
        run("blend", "--simulate", log, "--optin", "0.3", "--level", "0.5", *WHO, "--out", "release", "--json")
    )
    assert told["tables"] == {"queries": 2, "clicks": 2, "records": 2}
    assert [one["relation"] for one in told["guarantees"]] == ["replace-one", "replace-one"]
    assert [one["model"] for one in told["guarantees"]] == ["curator", "local"]
    assert json.loads(Path("release/manifest.json").read_text())["interval_level"] == 0.5
    run("verify", "release")
    assert "https://weather.example" in run("search", "release", "wether leeds")
    assert "weather leeds" in run("trends", "release")
    for file in Path("release").iterdir():
        assert CANARY.encode() not in file.read_bytes()


def test_step_by_step(log: Path) -> None:
    run("task", "new", "--out", "task.toml")
    text = Path("task.toml").read_text().replace("min_batch = 1000", "min_batch = 2")
    Path("task.toml").write_text(text)
    assert "in the head list at a noisy" in run("head", log, "--task", "task.toml", "--out", "head", "--explain")
    assert not Path("ledger.db").exists()
    told = json.loads(run("head", log, "--task", "task.toml", "--out", "head", "--json"))
    assert told["records"] == 2
    report = run("randomize", "--task", "task.toml", "--head", "head", "--url", "https://news.example", "news")
    again = run("randomize", "--task", "task.toml", "--head", "head", "--nothing")
    assert report == again
    other = run("randomize", "--task", "task.toml", "--head", "head", "--client", "b", "news")
    Path("reports.txt").write_text(report + other)
    epoch = json.loads(
        run("estimate", "reports.txt", "--task", "task.toml", "--head", "head", "--out", "est", "--json")
    )
    assert epoch["n"] == 2
    assert "already" in str(refused("head", log, "--task", "task.toml", "--out", "head"))
    assert Ledger.open("ledger.db").account("browser users", "replace-one").spent.epsilon(0) == 4


def test_a_head_list_says_what_is_left_of_accounts_that_were_open(log: Path) -> None:
    run("task", "new", "--out", "task.toml")
    ledger = Ledger.open("ledger.db")
    ledger.open_account("browser users", "replace-one", Budget(48, 0))
    ledger.open_account("browser users who opted in", "replace-one", Budget(48, 3e-5))
    done = CliRunner().invoke(app, ["head", str(log), "--task", "task.toml", "--out", "head"])
    notes = [line for line in done.stderr.splitlines() if "has spent" in line]
    assert len(notes) == 2
    assert notes[0].endswith(
        'Account "browser users" (replace-one) has spent 4 of epsilon 48, delta 0. Left: 44 (ledger: ledger.db)'
    )
    assert "and delta 2" in notes[1]


def test_what_can_not_be_asked_is_refused_before_anything_is_spent(log: Path) -> None:
    simulate = ("blend", "--simulate", log, *WHO, "--out", "release")
    assert "level" in str(refused(*simulate, "--level", "7"))
    assert "0 and below 1" in str(refused(*simulate, "--optin", "1"))
    assert "mode" in str(refused(*simulate, "--mode", "other"))
    assert "epsilon" in str(refused(*simulate, "--epsilon", "-1"))
    run("task", "new", "--out", "task.toml")
    assert "can't both" in str(refused("blend", "--simulate", log, "--out", "release", "--task", "task.toml", *WHO))
    assert "--simulate" in str(refused("blend", "--out", "release"))
    assert "two folders" in str(refused("blend", "a", "--out", "release"))
    assert "can't be read" in str(refused("blend", "a", "b", "--out", "release"))
    assert not Path("ledger.db").exists()
    assert not Path("release").exists()


def test_the_command_line_itself_ends_with_the_exit_code_of_the_error(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("blend", "--simulate", log, *WHO, "--out", "release")
    monkeypatch.setattr("sys.argv", ["hushquery", "blend", "--simulate", str(log), *WHO, "--out", "again"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 3
    told = capsys.readouterr().err
    assert "Insufficient budget" in told
    assert CANARY not in told
