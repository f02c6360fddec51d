"""What the second package brings to the command line: found where it is installed, and said where it is not."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushquery import cli
from hushquery.cli import audit, extension
from hushquery.cli.commands import COMMANDS, EXTENSION, GROUPS, command_line

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


def end(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["hushquery", *arguments])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it; put it back
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_what_is_registered_is_what_the_command_line_asks_for():
    project = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text("utf-8"))["project"]
    names = {*EXTENSION, "demo-serve"}
    assert set(project["entry-points"][extension.GROUP]) == names
    assert {*EXTENSION} <= {*COMMANDS, *GROUPS}
    for name in names:
        found = extension.find(name)
        assert found is not None, "run `make setup`"
        assert sys.modules[project["entry-points"][extension.GROUP][name].partition(":")[0]]


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
def test_without_it_a_command_says_how_to_get_it(arguments, gone, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, *gone)
    assert end(monkeypatch, *arguments, "--json") == 69
    said = json.loads(capsys.readouterr().out)
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
        extension.find("bench")


def test_outside_a_clone_there_are_no_broken_mechanisms(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(audit, "__file__", str(tmp_path / "a" / "b" / "c" / "audit.py"))
    before = list(sys.path)
    assert end(monkeypatch, "audit", "--controls", "--json") == 69
    said = json.loads(capsys.readouterr().out)
    assert "Clone the repository" in said["fix"]
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
