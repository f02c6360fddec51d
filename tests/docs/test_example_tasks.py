"""Every task file among the examples can be checked, served and answered."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hushquery.cli.task import app
from hushquery.collect.collector import Settings
from hushquery.local.configuration import Configuration
from hushquery.local.device.client import Client
from hushquery.task import Task

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [*sorted((ROOT / "examples" / "tasks").glob("*.toml")), *sorted((ROOT / "examples").glob("*/task.toml"))]
VALUES: dict[str, Any] = {"searches": "opening hours", "setting": "dark", "number": 90, "text": "https://home.example"}


def test_there_is_one_for_each_kind_and_each_mechanism_of_numbers() -> None:
    tasks = [Task.load(path) for path in (ROOT / "examples" / "tasks").glob("*.toml")]
    assert {task.task.kind for task in tasks} == set(VALUES)
    assert {task.oracle for task in tasks if task.task.kind == "number"} == {"onebit", "dbitflip"}
    assert {task.head is None for task in tasks if task.task.kind == "searches"} == {True, False}
    assert len({task.id for task in tasks}) == len(tasks)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_task_file_is_checked_served_and_answered(path: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(path), "--clients", "100000", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    (task,) = Settings(tasks=(str(path),)).load_tasks()  # what a collector refuses it refuses here
    assert told["id"] == task.id
    assert 0 < told["error"]["stderr"] < (100 if task.oracle == "onebit" else 0.1)
    head = None if task.head is None else [["opening hours", ""], ["weather leeds", "https://weather.example"]]
    report = Client(task, tmp_path / "client.db", head=head).report(VALUES[task.task.kind])
    assert report is not None
    report.open(Configuration.of(task, head))


def page() -> str:
    return (ROOT / "docs" / "howto" / "collect-a-setting.md").read_text(encoding="utf-8")


def test_the_table_of_errors_is_what_task_check_says() -> None:
    rows = re.findall(r"^\| `([a-z-]+\.toml)` \([^|]*\|(.*)\|$", page(), flags=re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in (ROOT / "examples" / "tasks").glob("*.toml")}
    for name, cells in rows:
        for clients, shown in zip(("1000", "10000", "100000", "1000000"), cells.split("|"), strict=True):
            path = str(ROOT / "examples" / "tasks" / name)
            result = CliRunner().invoke(app, ["check", path, "--clients", clients, "--json"], catch_exceptions=False)
            assert f"{json.loads(result.stdout)['error']['stderr']:.2g}" == shown.strip(), f"{name}, {clients}"


def test_the_how_to_names_them_all() -> None:
    for path in (ROOT / "examples" / "tasks").glob("*.toml"):
        assert f"examples/tasks/{path.name}" in page()
