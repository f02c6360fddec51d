"""Which command lives in which file, and a command line with all of them or with one: help must answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from hushquery._version import __version__
from hushquery.cli import extension

__all__ = ["COMMANDS", "EXTENSION", "GROUPS", "command_line", "root_for"]

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
#: Those of both kinds that the second package brings; without it they say where to get it.
EXTENSION = ("bench", "experiment")


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
            command = (
                extension.find(name) if name in EXTENSION else getattr(import_module(f"hushquery.cli.{file}"), name)
            )
            if command is None:
                _add_missing(made, name)
            else:
                made.command()(command)
    for name in GROUPS:
        if only in (None, name):
            group = extension.find(name) if name in EXTENSION else import_module(f"hushquery.cli.{name}").app
            if group is None:
                _add_missing(made, name)
            else:
                made.add_typer(group)
    return made


def _add_missing(to: typer.Typer, name: str) -> None:
    """Add a command that takes whatever is given and says how to get it; help lists only what is there."""
    error = extension.missing(f"hushquery {name}")

    def absent() -> None:
        raise error

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    to.command(name, help=f"{error}", hidden=True, context_settings=anything)(absent)


def root_for(arguments: Sequence[str]) -> typer.Typer:
    """Give the root command for some arguments: where the first names a command, nothing else is imported."""
    if arguments and arguments[0] in (*COMMANDS, *GROUPS, "--version"):
        return command_line(arguments[0])
    # As an attribute, which is looked up when it is needed.
    app: typer.Typer = import_module("hushquery.cli.app").app
    return app
