"""``hushquery collect``, called in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from hushquery.cli.collect import app


def run(*arguments: str) -> str:
    """Run a command; gives what it wrote."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def read(*arguments: str) -> Any:
    """Run a command; gives what it wrote as JSON."""
    return json.loads(run(*arguments, "--json"))
