"""Which command lives in which file; only the one that runs is imported, so that help answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer

from hushquery.cli.common import group, root
from hushquery.errors import Unavailable, UsageError

#: The file of each command, in the order in which help lists them.
COMMANDS = {
    "demo": "demo",
    "doctor": "doctor",
    "look": "look",
    "synth": "demo",
    "plan": "release",
    "release": "release",
    "verify": "show",
    "card": "card",
    "sign": "keys",
    "export": "show",
    "head": "hybrid",
    "report": "reports",
    "randomize": "reports",
    "estimate": "reports",
    "blend": "hybrid",
    "show": "show",
    "search": "search",
    "suggest": "search",
    "correct": "search",
    "similar": "search",
    "find": "search",
    "keywords": "search",
    "classify": "search",
    "trends": "trends",
    "site": "site",
    "audit": "audit",
    "bench": "bench",
    "serve": "collect",
}
#: Commands that have commands of their own, each in the file of its name.
GROUPS = ("stat", "budget", "keys", "explain", "experiment", "task", "collect", "rappor")
#: What people type who mean a command of another name.
MEANT = {
    "publish": "release", "anonymize": "release", "privatize": "release", "export-csv": "export", "check": "verify",
    "validate": "verify", "ledger": "budget", "account": "budget", "spend": "budget", "count": "stat", "sum": "stat",
    "statistics": "stat", "server": "serve", "collector": "serve", "forecast": "plan", "generate": "synth",
    "send": "report", "encode": "randomize", "decode": "estimate", "query": "search", "autocomplete": "suggest",
    "web": "site", "html": "site", "trend": "trends",
}  # fmt: skip
EXTENSION = ("bench", "experiment")  #: Those of the second package; without it they print how to get it.
ENTRY_POINTS = "hushquery.commands"  #: Where the second package offers commands and parts of them.


def find_extension(name: str) -> Any:
    """Return what the second package offers under a name, or None where it is not installed, or its clone is gone."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            if error.name != entry.module.partition(".")[0]:
                raise
    return None


def missing_extension(command: str) -> Unavailable:
    """Return the error that explains how to install a command of the second package."""
    return Unavailable(
        f"`{command}` is not installed",
        why="it belongs to the package hushquery-experiments, which comes with a clone of the repository",
        fix="Clone it and run `make setup`, or install that package beside this one: pip install ./experiments",
    )


def command_line(only: str | None = None) -> typer.Typer:
    """Make the root command, with every command or with one: only its file is then imported."""
    line = group("hushquery", root.__doc__ or "", pretty_exceptions_enable=False)
    line.callback()(root)
    for name in (*COMMANDS, *GROUPS):
        if only not in (None, name):
            continue
        if name in EXTENSION:
            command = find_extension(name)
        else:
            file = import_module(f"hushquery.cli.{COMMANDS.get(name, name)}")
            command = file.app if name in GROUPS else getattr(file, name)
        if command is None:
            _add_missing(line, name)
        elif name in GROUPS:
            line.add_typer(command)
        else:
            line.command()(command)
    return line


def _add_missing(line: typer.Typer, name: str) -> None:
    """Add a command that takes whatever is given and says how to get it; help lists only what is there."""
    error = missing_extension(f"hushquery {name}")

    def absent() -> None:
        raise error

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    line.command(name, help=f"{error}", hidden=True, context_settings=anything)(absent)


def root_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the root command for some arguments: where the first names a command, nothing else is imported."""
    if arguments and arguments[0] in (*COMMANDS, *GROUPS, "--version"):
        return command_line(arguments[0])
    if arguments and not arguments[0].startswith("-"):
        raise _unknown(arguments[0])
    # As an attribute, which is looked up when it is needed.
    app: typer.Typer = import_module("hushquery.cli.app").app
    return app


def _unknown(word: str) -> UsageError:
    """Return the error for a command that there is not, with the one that is meant."""
    names = [*COMMANDS, *GROUPS]
    near = [MEANT[word.lower()]] if word.lower() in MEANT else get_close_matches(word.lower(), names, cutoff=0.6)
    fix = f"Did you mean `hushquery {near[0]}`? " if near else ""
    return UsageError(f"there is no command {word!r}", fix=f"{fix}`hushquery --help` lists all commands")
