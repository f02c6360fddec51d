"""Which command lives in which file, and a command line with all of them or with one: help must answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from hushquery._version import __version__

__all__ = ["COMMANDS", "GROUPS", "command_line", "root_for"]

#: The file of each command, in the order in which help lists them.
COMMANDS = {
    "demo": "demo",
    "doctor": "doctor",
    "synth": "synth",
    "plan": "plan",
    "release": "release",
    "verify": "verify",
    "export": "verify",
    "head": "head",
    "randomize": "randomize",
    "estimate": "estimate",
    "blend": "blend",
    "show": "show",
    "search": "use",
    "suggest": "use",
    "correct": "use",
    "similar": "use",
    "find": "use",
    "keywords": "use",
    "classify": "use",
    "trends": "trends",
    "site": "site",
    "audit": "audit",
    "bench": "bench",
    "serve": "serve",
}
#: Commands that have commands of their own, each in the file of its name.
GROUPS = ("stat", "budget", "explain", "experiment", "task", "collect", "rappor")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"hushquery {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learn what a crowd searches for and clicks on without learning what any one person searched for."""
    del version


def command_line(only: str | None = None) -> typer.Typer:
    """Make the root command, with every command or with one: only its file is then imported."""
    made = typer.Typer(
        name="hushquery",
        help=root.__doc__,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(root)
    for name, file in COMMANDS.items():
        if only in (None, name):
            made.command()(getattr(import_module(f"hushquery.cli.{file}"), name))
    for name in GROUPS:
        if only in (None, name):
            made.add_typer(import_module(f"hushquery.cli.{name}").app)
    return made


def root_for(arguments: Sequence[str]) -> typer.Typer:
    """Give the root command for some arguments: where the first names a command, nothing else is imported."""
    if arguments and arguments[0] in (*COMMANDS, *GROUPS, "--version"):
        return command_line(arguments[0])
    # As an attribute, which is looked up when it is needed.
    app: typer.Typer = import_module("hushquery.cli.app").app
    return app
