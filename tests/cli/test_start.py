"""The command line starts light, and every way it ends has its exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer

import hushquery.cli.app as whole_line
from commands import hushquery, spawn
from hushquery import __version__, errors
from hushquery.cli.commands import command_line
from hushquery.cli.common import JsonFlag

HEAVY = [
    "altair",
    "dp_accounting",
    "duckdb",
    "ibis",
    "mpmath",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pydantic",
    "scipy",
    "sqlalchemy",
]

#: Runs the command line as the script does, then tells what it loaded and what it cost.
PROBE = """
import json, sys, time
from hushquery.cli import main
try:
    main()
except SystemExit as stop:
    code = stop.code
print(json.dumps({"code": code, "cpu": time.process_time(), "modules": sorted(sys.modules)}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["doctor", "--help"], ["release", "--help"]], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments: list[str], record_property: Callable[[str, object], None]) -> None:
    command = [sys.executable, "-c", PROBE, *arguments]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
    # Shown, not asserted: a time depends on what else the machine does. `pytest -rP` prints it.
    sys.stdout.write(f"hushquery {' '.join(arguments)}: {told['cpu']:.2f} s of CPU\n")
    record_property("cpu", told["cpu"])
    # Typer itself loads Pydantic to read the options of a command, but not for the root.
    allowed = set() if len(arguments) == 1 else {"pydantic"}
    assert told["code"] in (0, None)
    assert not (set(HEAVY) & set(told["modules"])) - allowed
    if arguments[0] == "release":
        assert "hushquery.cli.release" in told["modules"]
        assert "hushquery.cli.doctor" not in told["modules"]


def test_version() -> None:
    done = spawn("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hushquery {__version__}\n", "")


def test_help_names_every_command() -> None:
    done = hushquery("--help")
    assert done.returncode == 0
    names = [command.name or command.callback.__name__ for command in whole_line.app.registered_commands]
    names += [group.typer_instance.info.name for group in whole_line.app.registered_groups]
    assert names
    for name in names:
        assert name in done.stdout


@pytest.mark.parametrize("name", ["release", "correct", "budget"])
def test_a_command_alone_is_the_one_of_the_whole(name: str) -> None:
    alone, whole = command_line(name), whole_line.app
    assert len(alone.registered_commands) + len(alone.registered_groups) == 1
    for one in alone.registered_commands:
        assert one.callback in [other.callback for other in whole.registered_commands]
    for group in alone.registered_groups:
        assert group.typer_instance in [other.typer_instance for other in whole.registered_groups]


def helps(command: Any) -> list[str]:
    """Every help text of a command, its options and its own commands."""
    own = [command.help or "", *(getattr(option, "help", None) or "" for option in command.params)]
    return own + [text for inner in getattr(command, "commands", {}).values() for text in helps(inner)]


def test_no_help_is_taken_for_markup() -> None:
    texts = helps(typer.main.get_command(whole_line.app))
    assert len(texts) > 100
    # Rich takes [word] for a style, and shows nothing.
    assert [text for text in texts if re.search(r"\[[a-z]", text)] == []


def test_no_arguments_is_help_and_usage() -> None:
    done = hushquery()
    assert done.returncode in (0, 2)  # Typer's choice; what matters is that it helps
    assert "doctor" in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["no-such-command"], ["--no-such-option"], ["doctor", "--no-such-option"]])
def test_unknown_words_are_usage_errors(arguments: list[str]) -> None:
    done = hushquery(*arguments)
    assert done.returncode == 2
    assert not done.stdout
    assert arguments[-1] in done.stderr
    assert "Traceback" not in done.stderr


CODES = {
    errors.HushqueryError: 1,
    errors.UsageError: 2,
    errors.CalibrationError: 2,
    errors.BudgetError: 3,
    errors.BudgetRefused: 3,
    errors.AccountMissing: 3,
    errors.LedgerCorrupt: 3,
    errors.DataError: 4,
    errors.Unavailable: 69,
    errors.NotReady: 75,
    errors.Interrupted: 130,
}


def test_every_error_has_its_code_here() -> None:
    def below(kind: type[errors.HushqueryError]) -> set[type[errors.HushqueryError]]:
        return {kind}.union(*(below(child) for child in kind.__subclasses__()))

    assert {kind for kind in below(errors.HushqueryError) if kind.__module__ == errors.__name__} == set(CODES)


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException, *arguments: str) -> CompletedProcess[str]:
    """Run a command line whose only command raises the error."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def broken(as_json: JsonFlag = False) -> None:
        raise error

    monkeypatch.setattr(whole_line, "app", app)
    return hushquery(*arguments)


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=[kind.__name__ for kind in CODES])
def test_errors_become_exit_codes(
    kind: type[errors.HushqueryError], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fail(monkeypatch, kind("it broke", why="it was old", fix="buy a new one"))
    assert (done.returncode, done.stdout) == (code, "")
    assert [line.strip() for line in done.stderr.splitlines()] == [
        "error: it broke",
        "it was old",
        "buy a new one",
    ]


def test_errors_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    error = errors.BudgetRefused("too much", why="0.1 remains", fix="ask for less")
    done = fail(monkeypatch, error, "--json")
    assert (done.returncode, done.stderr) == (3, "")
    expected = {"error": "BudgetRefused", "what": "too much", "why": "0.1 remains", "fix": "ask for less"}
    assert json.loads(done.stdout) == expected


def test_a_defect_is_one_message_that_quotes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done = fail(monkeypatch, ZeroDivisionError("a secret value"))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_a_defect_shows_its_traceback_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHQUERY_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        fail(monkeypatch, ZeroDivisionError("a defect"))


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m hushquery --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
