"""The attacks of examples/attacks succeed on the simple releases and fail on ours; docs/why-not.md shows the results.

**False alarms.** The towns are fixed; ``HUSHQUERY_TEST_SEED`` changes the noise of the hushquery releases, and nothing
on the side of the simple ones. Half of m people are in the log, chosen by a coin that the attack does not see, so if a
release says nothing about who is in it, the share of right guesses is above 1/2 + sqrt(ln(1/ALPHA)/(2m)) with
probability ALPHA = 2e-10 at most (Hoeffding's bound, which holds for draws without replacement too). On a hushquery
release the mean may be up to (e^epsilon + delta)/(1 + e^epsilon) instead of 1/2, and nearly is so for the attack on
which all of epsilon is spent. A text of one person alone comes out with probability at most delta = 1e-6 per person;
of 450 people with such texts, independently, three or more do with probability below (450e-6)^3/6 < 2e-11.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from pathlib import Path

import pytest

from statistical import ALPHA, bits

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "attacks"
PAGE = ROOT / "docs" / "why-not.md"
PEOPLE, SEED = 3000, 5
MORE = 5000  # the most popular query is ten standard deviations above the threshold: something comes out


@pytest.fixture(autouse=True)
def _attacks_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "run_all", raising=False)  # the benchmarks have one too


def blind(score, mean=0.5):
    """The share of right guesses that an attack with this mean exceeds with probability 2e-10 at most."""
    return mean + math.sqrt(math.log(1 / ALPHA) / (2 * score.targets))


def test_the_game_is_even_and_the_coin_is_hidden():
    import town

    made = town.build(PEOPLE, SEED)
    assert len(made.inside) == pytest.approx(PEOPLE / 2, abs=1)
    assert set(made.log) == made.inside
    book, seen = town.in_the_phone_book(made), town.overheard(made, SEED)
    for known in (book, seen):
        assert 2 * sum(person in made.inside for person in known) == len(known) >= 300
    # Nobody else has a secret of the phone book, and what was seen is what the person searched for.
    entries = [entry for texts in book.values() for entry in texts]
    assert len(entries) == len(set(entries))
    assert all(set(queries) <= set(made.searches[person]) for person, queries in seen.items())
    everybody, nobody = town.judge(made, book, book), town.judge(made, book, [])
    assert everybody.accuracy == nobody.accuracy == 0.5
    assert (everybody.wrong, nobody.named) == (len(book) / 2, 0)


def test_masked_ids():
    import masked_ids

    found = masked_ids.attack(MORE, SEED, bits("attacks", "masked"))
    assert found.phone_book.accuracy == 1  # every text of the phone book is one person's, and is there in clear
    assert found.exposed > 10
    assert found.shoulder.accuracy > 0.95 > blind(found.shoulder)
    assert found.shoulder_right > 0.45 * found.shoulder.targets
    assert found.released >= 1
    assert found.phone_book_ours.named <= 2
    assert found.shoulder_ours.named > 5  # it does guess
    assert found.shoulder_ours.accuracy < blind(found.shoulder_ours) < 0.65


def test_hashed_words():
    import hashed_words

    found = hashed_words.attack(PEOPLE, SEED, bits("attacks", "hashed"))
    # A random assignment gets one right on average, and 20 with probability below 1/20! < 1e-18.
    assert found.words == hashed_words.FREQUENT
    assert found.by_company >= 20
    assert found.by_company > 2 * found.by_rank
    assert found.read > 0.9
    assert found.shoulder.accuracy > 0.9 > blind(found.shoulder)
    assert found.came_out <= 2
    assert found.shoulder_ours.accuracy < blind(found.shoulder_ours)


def test_sampled_log():
    import sampled_log

    found = sampled_log.attack(PEOPLE, SEED, bits("attacks", "sampled"))
    for exposed, rate in zip(found.samples, sampled_log.RATES * 2, strict=True):
        assert exposed.score.wrong == 0
        # Of n people each is there with at least this chance; fewer than n rate/4 at the larger rate is below 1e-6.
        assert exposed.exposed >= exposed.score.targets / 2 * rate / 4
        assert exposed.stated is None
    large = [exposed for exposed, rate in zip(found.samples, sampled_log.RATES * 2, strict=True) if rate == 0.1]
    assert all(exposed.least_delta > 0.01 for exposed in large)
    assert found.ours.exposed <= 2
    assert found.ours.least_delta < 0.001 < min(exposed.least_delta for exposed in large)


def test_rare_queries():
    import rare_queries

    found = rare_queries.attack(PEOPLE, SEED, bits("attacks", "rare"))
    assert found.rare_dropped.accuracy == 1
    # A fifth of the people come out either way: the attack does probe the threshold, and mostly learns noise.
    assert found.ours.named > found.ours.targets / 5
    assert found.ours.wrong > found.ours.targets / 10
    # The law: a count of R against R - 1 passes more often by P[noise = 0] alone, 1/(sigma sqrt(2 pi)), sigma 18.9.
    assert found.ours.accuracy < blind(found.ours, 0.5 + 0.5 * 0.0212)
    # Where all of epsilon is on one query the mean is 0.731; below 0.6 is six standard deviations away.
    assert 0.6 < found.ours_one.accuracy < blind(found.ours_one, found.most)
    assert found.most == pytest.approx(0.7311, abs=1e-4)


def test_exact_counts():
    import exact_counts

    found = exact_counts.attack(MORE, SEED, bits("attacks", "exact"))
    assert found.exact.targets >= 100
    assert found.exact.accuracy == 1
    assert found.with_count >= 1
    assert found.ours.accuracy < blind(found.ours)


def test_the_page_shows_what_the_script_writes():
    import run_all

    page = PAGE.read_text(encoding="utf-8")
    for name in run_all.ATTACKS:
        text = run_all.between(name).search(page)[0]
        made = re.search(r"Made on (\d{4}-\d\d-\d\d) \(UTC\) by `([^`]+)`: a\s+town\s+of\s+([\d,]+)\s+people", text)
        assert made[2] == run_all.COMMAND
        assert made[3] == f"{run_all.PEOPLE:,}"
        rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
        assert len({len(row) for row in rows}) == 1
        assert rows[-1][0].startswith("hushquery")
        assert "\n- " in text
        assert f"({name}.py)" not in text
        assert f"[{name}.py](../examples/attacks/{name}.py)" in page
    assert {path.stem for path in FOLDER.glob("*.py")} == {*run_all.ATTACKS, "run_all", "town", "word_matching"}


def test_writing_replaces_the_numbers_and_nothing_else():
    import run_all

    page = PAGE.read_text(encoding="utf-8")
    new = run_all.written(page, "masked_ids", "numbers of today")
    assert "numbers of today" in new
    assert run_all.between("masked_ids").sub("", new) == run_all.between("masked_ids").sub("", page)
    assert run_all.written(new, "masked_ids", "numbers of today") == new
    with pytest.raises(SystemExit, match="not exactly one place"):
        run_all.written(page.replace("<!-- made: masked_ids -->", ""), "masked_ids", "numbers")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_an_attack_is_short_and_explains_itself(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") < 150
    assert len(ast.get_docstring(ast.parse(source)) or "") > 200
    assert "sys.path" not in source
