"""Nothing that works on estimates can spend budget or see data."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["estimates", "postprocess", "derived"])
def test_nothing_that_works_on_estimates_can_spend_budget_or_see_data(module):
    program = f"import sys, hushquery.core.{module}\nprint(*sorted(m for m in sys.modules if 'hushquery' in m))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert f"hushquery.core.{module}" in loaded
    banned = ("noise", "engine", "statistics", "curator", "local", "log", "release", "core.ledger", "core.registry")
    assert not [m for m in loaded if m.removeprefix("hushquery.").startswith(banned)]
