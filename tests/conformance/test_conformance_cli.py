"""``hushquery audit --conformance``: what it prints, what it exits with, and what it refuses."""

from __future__ import annotations

import json
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import pytest

import hushquery.cli
from hushquery.core.registry import find

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
    assert (told["epsilon"], told["delta"], told["tight"]) == (3, 0.001, True)
    assert told["pairs"] == len(find("binary-response").calibrate(3, Fraction(1, 1000)).pairs())
    assert len(told["checks"]) == 12
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
    assert law["found"] == [f"dataset {dataset}: the probabilities sum to 0.875" for dataset in (0, 1)]


def test_it_says_at_what_budget_and_on_how_many_pairs_and_whether_the_claim_is_held_to_be_exact(run, tmp_path):
    loose = tmp_path / "mine.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    loose.write_text(text.replace("    relation =", "    tight = False\n    relation ="), encoding="utf-8")
    for file, loses in (
        (EXAMPLE, "what it claims"),
        (loose, "no more than it claims (it is not stated to be tight)"),
    ):
        code, out = run(f"{file}:YesNoSkip", "--conformance")
        assert code == 0
        assert f"{file}:YesNoSkip conforms at epsilon 3, delta 0.001, on 1 pair of datasets:" in out
        assert f"it draws what it states and loses {loses}; other pairs are not checked" in out


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("krr", "--epsilon", "1"),
        ("krr", "--runs", "1000"),
        ("krr", "--seed", "1"),
        ("krr", "--delta", "1e-5"),  # its default, but given
        ("krr", "--confidence", "0.9"),
        ("krr", "--method", "events"),
        ("krr", "--list"),
        ("--controls",),
    ],
)
def test_it_takes_a_mechanism_and_nothing_else(run, arguments):
    code, out = run(*arguments, "--conformance", "--json")
    assert code == 2
    assert json.loads(out)["what"] == "a check of conformance takes a mechanism and nothing else"
