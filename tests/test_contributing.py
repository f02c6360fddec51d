"""The mechanism that CONTRIBUTING.md shows is complete, and the audit flags the mistake in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_mechanism_of_contributing_runs_and_is_flagged(tmp_path):
    program = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    assert program is not None
    (tmp_path / "mine.py").write_text(program[1], encoding="utf-8")
    command = [sys.executable, "-m", "hushquery", "audit", "mine.py:Coin", "--epsilon", "1", "--seed", "1", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["flagged"]
    assert 1.0 < result["lower_bound"] < 1.0986
