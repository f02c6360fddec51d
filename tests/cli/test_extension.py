"""What the second package brings to the command line: found where it is installed, and said where it is not."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import hushquery
from hushquery.cli import audit
from hushquery.cli.commands import COMMANDS, ENTRY_POINTS, EXTENSION, GROUPS, command_line, find_extension

ROOT = Path(__file__).resolve().parents[2]
GET_IT = "pip install ./experiments"


class Gone:
    """An entry point of a package whose folder was deleted, or that lacks a package of its own."""

    module = "hushquery_experiments.cli.bench"

    def __init__(self, lacking: str) -> None:
        self.lacking = lacking

    def load(self) -> object:
        raise ModuleNotFoundError(self.lacking, name=self.lacking)


def install(monkeypatch, *found):
    """As if this were all that is registered."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: found)


def test_what_is_registered_is_what_the_command_line_asks_for():
    project = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text("utf-8"))["project"]
    names = {*EXTENSION, "demo-serve"}
    assert set(project["entry-points"][ENTRY_POINTS]) == names
    assert {*EXTENSION} <= {*COMMANDS, *GROUPS}
    for name in names:
        found = find_extension(name)
        assert found is not None, "run `make setup`"
        assert sys.modules[project["entry-points"][ENTRY_POINTS][name].partition(":")[0]]


@pytest.mark.parametrize("gone", [(), (Gone("hushquery_experiments"),)], ids=["never installed", "deleted"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("bench",),
        ("bench", "--rows", "20000"),
        ("experiment",),
        ("experiment", "blender", "--point", "--head-size", "50"),
        ("demo", "--serve", "--out", "nowhere"),
    ],
    ids=" ".join,
)
def test_without_it_a_command_says_how_to_get_it(arguments, gone, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, *gone)
    done = hushquery(*arguments, "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 69
    assert said["error"] == "Unavailable"
    assert GET_IT in said["fix"]
    assert "hushquery-experiments" in said["why"]
    assert not list(tmp_path.iterdir())


def test_without_it_help_lists_the_others_only(monkeypatch):
    whole = CliRunner().invoke(command_line(), ["--help"]).output
    install(monkeypatch)
    app = command_line()
    listed = CliRunner().invoke(app, ["--help"]).output
    for name in (*COMMANDS, *GROUPS):
        assert f" {name} " in whole
        assert (f" {name} " in listed) == (name not in EXTENSION)
    for name in EXTENSION:
        done = CliRunner().invoke(app, [name, "--help"])
        assert done.exit_code == 0
        assert GET_IT.split()[-1] in done.output


def test_a_defect_of_the_second_package_is_no_reason_to_install_it(monkeypatch):
    install(monkeypatch, Gone("numpy"))
    with pytest.raises(ModuleNotFoundError):
        find_extension("bench")


def test_outside_a_clone_there_are_no_broken_mechanisms(monkeypatch, tmp_path):
    monkeypatch.setattr(audit, "__file__", str(tmp_path / "a" / "b" / "c" / "audit.py"))
    before = list(sys.path)
    done = hushquery("audit", "--controls", "--json")
    assert done.returncode == 69
    assert "Clone the repository" in json.loads(done.stdout)["fix"]
    assert sys.path == before


def test_in_a_clone_they_are_found(monkeypatch):
    before = list(sys.path)
    monkeypatch.delitem(sys.modules, "controls", raising=False)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if Path(folder) != ROOT / "tests"])
    found = audit._find_controls()
    assert "laplace noise halved" in found
    assert "head list released from one too low" in found
    assert str(ROOT / "tests") not in sys.path
    assert str(ROOT / "tests") in before
