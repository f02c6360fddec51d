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


@pytest.mark.parametrize("kind", ["searches", "setting", "number", "text"])
def test_new_writes_what_check_accepts(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "task.toml"
    run("new", "--kind", kind, "--out", str(out))
    assert run("new", "--kind", kind) == out.read_text() == template(kind)
    task = Task.load(out)
    told = json.loads(run("check", str(out), "--json"))
    assert told["id"] == task.id
    assert told["task"] == task.to_json()
    assert told["canonical"] == task.canonical()
    assert (told["oracle"] is not None) == (kind != "searches")
    words = run("check", str(out))
    assert task.id in words
    often = "7d" if task.is_listed else "1d"
    assert f"{kind}, one report per client every {often}" in words
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
    with pytest.raises(UsageError, match="searches, setting, number or text"):
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


@pytest.mark.parametrize(
    ("kind", "cost", "words"),
    [
        ("setting", 1.0, ["epsilon 1 for a new value", "4 cells, krr", "krr has the shortest report"]),
        ("number", 1.0, ["epsilon 1 for a new value", "0 to 1,440", "onebit: at most 2 answers per device"]),
        ("text", 4.394449, ["epsilon 4.4 for a new value", "any text", "eps 1 2.05 for a single one"]),
        ("searches", None, ["epsilon 4 for a new value", "fixed when the head list is published"]),
    ],
)
def test_check_says_what_a_report_costs_and_why(
    tmp_path: Path, kind: str, cost: float | None, words: list[str]
) -> None:
    file = tmp_path / "task.toml"
    file.write_text(template(kind))
    said = run("check", str(file))
    for part in words:
        assert part in said
    told = json.loads(run("check", str(file), "--json"))
    assert told["cost"] == (cost if cost is None else pytest.approx(cost))


def test_check_says_which_two_stage_it_is(tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    both = '[["a", "https://a.example"], ["b", ""]]'
    text = f'[task]\nname="q"\npopulation="p"\ndomain={both}\n[client]\nepsilon=2\nlifetime_epsilon=4\n'
    file.write_text(text + 'oracle="two-stage"\n')
    assert "two-stage, as the task says: 2 queries" in run("check", str(file))
    file.write_text(text + 'oracle="krr"\n')
    assert "krr, as the task says" in run("check", str(file))
    file.write_text(text + "records_per_user=2\n")
    assert "epsilon 1 for a new value, 2 for all of a period" in run("check", str(file))


def test_check_with_a_head_list(tmp_path: Path) -> None:
    file, head = tmp_path / "task.toml", tmp_path / "head.json"
    file.write_text(template("searches"))
    head.write_text(json.dumps([[f"query {number}", ""] for number in range(500)]))
    assert "501 cells, subset" in run("check", str(file), "--head", str(head))
    assert "subset has the smallest variance" in run("check", str(file), "--head", str(head))


@pytest.mark.parametrize("kind", ["searches", "setting", "number", "text"])
def test_check_forecasts_the_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "task.toml"
    file.write_text(template(kind).replace("sampling = 1.0", "sampling = 0.25"))
    few, many = (json.loads(run("check", str(file), "--clients", n, "--json"))["error"] for n in ("40000", "160000"))
    assert (few["reports"], many["reports"]) == (10_000, 40_000)
    assert few["stderr"] == pytest.approx(2 * many["stderr"])  # four times the reports, half the error
    said = run("check", str(file), "--clients", "40000")
    assert "with 10,000 reports a standard error of" in said
    assert few["stderr_most"] >= few["stderr"]
    assert f"at most {few['stderr_most']:.2g} (of any value): 95% intervals reach" in said or kind == "number"
    assert f"about {1.96 * few['stderr']:.2g} to" in said
    assert ("average" in said) == (kind == "number")
    assert "error" not in json.loads(run("check", str(file), "--json"))


def test_a_forecast_says_that_sampling_leaves_too_few_reports(tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(template("setting").replace("sampling = 1.0", "sampling = 0.00001"))
    with pytest.raises(UsageError, match="fewer than two reports") as refused:
        run("check", str(file), "--clients", "100000")
    assert refused.value.why == "100,000 clients are sampled with 1e-05"


def test_check_refuses_a_rappor_that_loses_more(tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(template("text").replace("epsilon = 4.5", "epsilon = 4.0"))
    with pytest.raises(UsageError, match="loses more than the task allows"):
        run("check", str(file))


def test_schema() -> None:
    assert json.loads(run("schema")) == Task.json_schema()
