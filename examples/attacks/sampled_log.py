"""Why not just publish a sample? Whoever is in the sample is exposed in full, and somebody always is.

The release: some people of the log drawn at random, or some of all searches, as they are. "Nobody knows who was drawn"
does not help those who were: the attacker looks for the entries of a phone book (see ``masked_ids.py``) and is never
wrong about those whom it finds.

In the words of differential privacy: a text that only one person searches for is in the release with probability p if
that person is in the log, and never if not. So delta is at least p whatever epsilon is, and for a sample p is the
sampling rate: 0.01 where 0.000001 is decent. The attack measures p, by a lower bound that holds with confidence 99.9%.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from town import DELTA, Score, Town, build, in_the_phone_book, judge, released_by_hushquery

RATES = (0.01, 0.1)
CONFIDENCE = 0.999


@dataclass(frozen=True)
class Exposed:
    """How one release did.

    Attributes:
        release: What was published.
        score: The phone book against it.
        searches: How many searches of the people found can be read.
        stated: The delta that the release states, or None.
    """

    release: str
    score: Score
    searches: int
    stated: float | None = None

    @property
    def exposed(self) -> int:
        """How many people of the log were found, rightly."""
        return self.score.named - self.score.wrong

    @property
    def least_delta(self) -> float:
        """What delta is at least, by the people found among those who could be; Clopper and Pearson's bound."""
        in_the_log = self.score.targets // 2
        if not self.exposed:
            return 0.0
        return float(stats.beta.ppf(1 - CONFIDENCE, self.exposed, in_the_log - self.exposed + 1))


@dataclass(frozen=True)
class Found:
    """What the attack found in each release."""

    samples: list[Exposed]
    ours: Exposed

    def table(self) -> list[list[str]]:
        """The result as rows of a table, the first its head."""
        head = ["release", "people of the log tried", "found", "wrongly", "their searches", "delta at least", "stated"]
        rows = []
        for one in [*self.samples, self.ours]:
            numbers = [one.score.targets // 2, one.exposed, one.score.wrong, one.searches]
            stated = "none" if one.stated is None else f"{one.stated:.0e}"
            rows.append([one.release, *(f"{n:,}" for n in numbers), f"{one.least_delta:.2g}", stated])
        return [head, *rows]

    def notes(self) -> list[str]:
        """What the table does not say."""
        return ["Nobody was found wrongly: who is found in a sample is found for certain."]


def some_people(log: Mapping[str, Sequence[str]], rate: float, seed: int) -> dict[str, list[str]]:
    """Publish each person with this probability, with all searches."""
    lucky = np.random.default_rng([seed, 4]).random(len(log)) >= rate
    return {person: list(queries) for (person, queries), out in zip(log.items(), lucky, strict=True) if not out}


def some_searches(log: Mapping[str, Sequence[str]], rate: float, seed: int) -> dict[str, list[str]]:
    """Publish each search with this probability."""
    rng = np.random.default_rng([seed, 5])
    return {person: [query for query in queries if rng.random() < rate] for person, queries in log.items()}


def look(town: Town, release: str, rows: Mapping[str, Sequence[str]]) -> Exposed:
    """Look for the phone book in published rows. Whose rows they are (the keys) is not used to find them."""
    book = in_the_phone_book(town)
    owner = {entry: person for person, entries in book.items() for entry in entries}
    named: dict[str, int] = {}
    for queries in rows.values():
        for person in {owner[query] for query in queries if query in owner}:
            named[person] = len(queries)
    return Exposed(release, judge(town, book, named), sum(named.values()))


def attack(people: int, seed: int, bits: Any = None) -> Found:
    """Sample the log of a town in four ways, publish it by hushquery, and look for the phone book in each."""
    town = build(people, seed)
    samples = [look(town, f"{rate:.0%} of the people", some_people(town.log, rate, seed)) for rate in RATES]
    samples += [look(town, f"{rate:.0%} of the searches", some_searches(town.log, rate, seed)) for rate in RATES]
    ours = look(town, "hushquery", {"": list(released_by_hushquery(town.log, bits))})
    return Found(samples, Exposed(ours.release, ours.score, ours.searches, DELTA))


if __name__ == "__main__":
    found = attack(int(sys.argv[1]) if len(sys.argv) > 1 else 4000, seed=1)
    print("\n".join(" | ".join(row) for row in found.table()), *found.notes(), sep="\n")
