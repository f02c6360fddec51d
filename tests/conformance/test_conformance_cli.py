"""``hushquery audit --conformance``: what it prints, what it exits with, and what it refuses."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

import hushquery.cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "randomizer" / "my_randomizer.py"


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it; put it back
        monkeypatch.setattr(sys, "argv", ["hushquery", "audit", *arguments])
        with pytest.raises(SystemExit) as left:
            hushquery.cli.main()
        return int(left.value.code or 0), capsys.readouterr().out

    return command


def test_every_check_by_name_as_plain_data(run):
    code, out = run("binary-response", "--conformance", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["mechanism"] == "binary-response"
    assert told["conforms"] is True
    assert len(told["checks"]) == 9
    assert all(check == {"check": check["check"], "holds": True, "found": []} for check in told["checks"])


def test_what_is_found_is_told_and_the_exit_code_says_so(run, tmp_path):
    broken = tmp_path / "mine.py"
    broken.write_text(EXAMPLE.read_text(encoding="utf-8").replace("SKIP / ONE}", "SKIP / ONE / 2}"), encoding="utf-8")
    code, out = run(f"{broken}:YesNoSkip", "--conformance", "--json")
    told = json.loads(out)
    assert code == 1
    assert told["conforms"] is False
    (law,) = (check for check in told["checks"] if check["check"] == "the law is a law")
    assert law["holds"] is False
    assert law["found"] == [f"world {world}: the probabilities sum to 0.875" for world in (0, 1)]


@pytest.mark.parametrize(
    "arguments", [(), ("krr", "--epsilon", "1"), ("krr", "--runs", "1000"), ("krr", "--seed", "1")]
)
def test_it_takes_a_mechanism_and_nothing_else(run, arguments):
    code, out = run(*arguments, "--conformance", "--json")
    assert code == 2
    assert json.loads(out)["what"] == "a check of conformance takes a mechanism and nothing else"
