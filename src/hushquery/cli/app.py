"""The root of the command line, whole: every command is imported."""

from __future__ import annotations

from hushquery.cli.commands import command_line

__all__ = ["app"]

#: The root command.
app = command_line()
