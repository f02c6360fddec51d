"""Mutants still apply, and a few of them, chosen by the commit, die; ``make mutants`` tries all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutants.catalogue import AREAS, EVERY, sample
from mutants.model import ROOT, Edit, Mutant, mutant
from mutants.run import attempt, passing

# Each takes about five seconds of processor time: pytest or vitest starts, imports, and stops at the first failure.
SAMPLED = 7


def test_every_mutant_still_applies() -> None:
    for one in EVERY:
        for file, text in one.applied().items():
            if file.endswith(".py"):
                ast.parse(text)  # what does not even parse is no realistic mistake


def test_mutants_have_names_harm_and_checks() -> None:
    assert len({one.name for one in EVERY}) == len(EVERY) >= 60
    assert all(one.harm and one.tests for one in EVERY)
    assert {one.file.split("/")[0] for one in EVERY} == {"src", "js"}
    assert all(AREAS.values())


def test_every_check_exists() -> None:
    for one in EVERY:
        for test in one.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not name or f"def {name.partition('[')[0]}(" in text, f"{one.name}: {test}"


def test_the_sample_is_the_same_all_over_a_run() -> None:
    assert sample(SAMPLED) == sample(SAMPLED)
    assert len(set(sample(SAMPLED))) == SAMPLED


@pytest.mark.parametrize("one", sample(SAMPLED), ids=lambda one: one.name)
def test_a_mutant_dies(one: Mutant) -> None:
    # Its audits have their turn in `make mutants`: the tests alone must see it.
    outcome = attempt(Mutant(one.name, one.harm, one.edits, one.tests))
    assert outcome.killers, outcome.survived


def test_without_a_mutant_the_checks_pass_in_the_copy() -> None:
    """A check that fails in the copy anyway would kill everything; one mutant in each language stands for all."""
    krr = next(one for one in EVERY if one.name == "krr-lie-low-in-both-paths")
    browser = next(one for one in EVERY if one.name == "js-lie-low")
    assert passing([krr, browser]) == []


def test_what_changes_nothing_survives_and_what_does_not_import_does_not_count_as_killed() -> None:
    file, old = "src/hushquery/local/oracles/krr.py", "@dataclass(frozen=True)\nclass KRR("
    tests = "tests/local/test_exact_words.py::test_an_array_of_clients_decides_word_by_word"
    harmless = attempt(mutant("harmless", "none", file, (old, "# nothing\n" + old), tests=tests))
    assert (harmless.dead, harmless.killers) == (False, ())
    broken = attempt(mutant("broken", "none", file, (old, "import nothing_of_that_name\n" + old), tests=tests))
    assert (broken.dead, broken.killers) == (False, ())


def test_an_edit_that_is_not_in_one_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for old in ("y = 1", "x = 1"):
        with pytest.raises(ValueError, match="places"):
            Mutant("m", "h", (Edit("a.py", old, "z"),), ("t",)).applied(tmp_path)
