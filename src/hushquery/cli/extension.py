"""What lives in the second package, hushquery-experiments, and how to get it where it is missing."""

from __future__ import annotations

from typing import Any

from hushquery.errors import Unavailable

__all__ = ["GROUP", "find", "missing"]

#: The group of entry points under which the second package offers commands and parts of them.
GROUP = "hushquery.commands"


def find(name: str) -> Any:
    """Return what the second package offers under a name, or None where it is not installed, or its clone is gone."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            if error.name != entry.module.partition(".")[0]:
                raise
    return None


def missing(command: str) -> Unavailable:
    """Make the error that says how to get a command.

    >>> print(missing("hushquery bench").what)
    `hushquery bench` is not installed
    """
    return Unavailable(
        f"`{command}` is not installed",
        why="it belongs to the package hushquery-experiments, which comes with a clone of the repository",
        fix="Clone it and run `make setup`, or install that package beside this one: pip install ./experiments",
    )
