"""Nothing that works on estimates can spend budget or see data."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_that_works_on_estimates_can_spend_budget_or_see_data():
    program = "import sys, hushquery.core.estimates\nprint(*sorted(m for m in sys.modules if 'hushquery' in m))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "hushquery.core.estimates" in loaded
    banned = ("noise", "engine", "statistics", "curator", "local", "log", "release", "core.ledger", "core.registry")
    assert not [m for m in loaded if m.removeprefix("hushquery.").startswith(banned)]
