"""``hushquery task``: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushquery.cli.task import app
from hushquery.errors import UsageError
from hushquery.task import Task, template


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("kind", ["searches", "setting"])
def test_new_writes_what_check_accepts(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "task.toml"
    run("new", "--kind", kind, "--out", str(out))
    assert run("new", "--kind", kind) == out.read_text() == template(kind)
    task = Task.load(out)
    told = json.loads(run("check", str(out), "--json"))
    assert told["id"] == task.id
    assert told["task"] == task.to_json()
    assert told["canonical"] == task.canonical()
    assert (told["oracle"] is not None) == (kind == "setting")
    words = run("check", str(out))
    assert task.id in words
    assert "one report per client every 7d" in words
    assert "given the change times" in words


def test_new_does_not_replace_a_file(tmp_path: Path) -> None:
    out = tmp_path / "task.toml"
    out.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        run("new", "--out", str(out))
    assert out.read_text() == "mine"
    run("new", "--out", str(out), "--force")
    assert Task.load(out)


def test_new_refuses_another_kind_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="searches or setting"):
        run("new", "--kind", "clicks")
    with pytest.raises(UsageError, match="can't be written"):
        run("new", "--out", str(tmp_path / "no" / "task.toml"))


def test_check_suggests(tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(template("setting").replace("lifetime_epsilon", "lifetime_epsilom"))
    with pytest.raises(UsageError, match="did you mean lifetime_epsilon"):
        run("check", str(file))


def test_check_tells_sampling_and_the_off_switch(tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(template("setting").replace("sampling = 1.0", "sampling = 0.25"))
    assert "by 0.25 of the clients" in run("check", str(file))
    file.write_text(template("setting").replace("enabled = true", "enabled = false"))
    assert "switched off" in run("check", str(file))


def test_schema() -> None:
    assert json.loads(run("schema")) == Task.json_schema()
