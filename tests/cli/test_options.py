"""Options that commands share as dataclasses: each field is an option, and the command gets the dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from commands import hushquery
from hushquery.cli.commands import command_line
from hushquery.cli.common import argument, flag, option, takes_options


@dataclass(frozen=True)
class Size:
    width: Annotated[int, option("W", "How wide.", min=1)]
    height: Annotated[int, option("H", "How high.")] = 2


@dataclass(frozen=True)
class Box(Size):
    height: Annotated[int, option("H", "How high it is.")] = 3
    closed: Annotated[bool, flag("--closed", "With a lid.")] = False


@pytest.fixture
def called() -> list[Any]:
    return []


@pytest.fixture
def app(called: list[Any]) -> typer.Typer:
    made = typer.Typer()

    @made.command()
    @takes_options
    def pack(name: Annotated[str, argument("NAME", "What is in it.")], *, weight: float = 1.5, box: Box) -> None:
        """Pack a box."""
        called.append((name, weight, box))

    return made


def test_a_command_gets_the_dataclass(app: typer.Typer, called: list[Any]) -> None:
    assert CliRunner().invoke(app, ["tea", "--width", "4"]).exit_code == 0
    assert CliRunner().invoke(app, ["tea", "--closed", "--height", "9", "--width", "4", "--weight", "2"]).exit_code == 0
    assert called == [("tea", 1.5, Box(4, 3, False)), ("tea", 2.0, Box(4, 9, True))]


@pytest.mark.parametrize("wrong", [["tea"], ["tea", "--width", "0"], ["tea", "--width", "1", "--box", "x"]])
def test_a_field_is_checked_like_any_option(wrong: list[str], app: typer.Typer, called: list[Any]) -> None:
    assert CliRunner().invoke(app, wrong).exit_code == 2
    assert called == []


def test_help_lists_the_fields_in_their_order_and_an_overridden_one_in_its_place(app: typer.Typer) -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120", "NO_COLOR": "1"}).stdout
    places = [text.index(said) for said in ("--weight", "--width", "How high it is.", "[default: 3]", "--closed")]
    assert places == sorted(places)
    assert "Pack a box." in text


def options(command: Any) -> dict[str, str]:
    """The options of every command by name, with their help."""
    own = {item.opts[0]: item.help or "" for item in command.params if item.opts[0].startswith("--")}
    for inner in getattr(command, "commands", {}).values():
        own |= {f"{inner.name} {name}": text for name, text in options(inner).items()}
    return own


def test_what_two_commands_share_is_described_in_one_way() -> None:
    told = options(typer.main.get_command(command_line()))
    for name in ("--no-create", "--new-population", "--explain", "--engine", "--exclude-users", "--json", "--columns"):
        texts = {text for path, text in told.items() if path.endswith(name) and not path.startswith("estimate")}
        assert len(texts) == 1, (name, texts)


def test_commands_run_here_end_as_in_a_process_of_their_own() -> None:
    done = hushquery("stat", "count", "nowhere.csv", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--unit" in done.stderr
