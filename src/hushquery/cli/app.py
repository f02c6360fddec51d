"""The root command, with every command imported."""

from __future__ import annotations

from hushquery.cli.commands import command_line

__all__ = ["app"]
app = command_line()  #: The root command.
