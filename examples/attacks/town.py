"""An invented town for the attacks of this folder: who searched what, who is in the log, and what an attacker knows.

Nobody in it exists: ``hushquery.log.synthetic.logs`` makes the searches. A coin puts exactly half of the people into
the log; the attacker does not know which half. Every attack ends in a guess per person, in the log or not, so guessing
blindly is right in 50%. What an attacker knows is what a phone book or a curious colleague knows; the truth is used to
score the attack and for nothing else.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import hushquery as hq
from hushquery.log.synthetic.logs import batches, which_private

EPSILON, DELTA, QUERIES_PER_USER = 1, 1e-6, 20


@dataclass(frozen=True)
class Town:
    """The people, and which of them are in the log.

    Attributes:
        searches: Each person's searches in the order of time, of everybody.
        secrets: Each person's searches that can only be theirs: a name, a phone number, an address, an order.
        inside: Who is in the log.
    """

    searches: dict[str, list[str]]
    secrets: dict[str, list[str]]
    inside: frozenset[str]

    @property
    def log(self) -> dict[str, list[str]]:
        """The searches of those who are in the log: what the steward holds."""
        return {person: queries for person, queries in self.searches.items() if person in self.inside}


def build(people: int, seed: int) -> Town:
    """Make a town; the same seed makes the same town."""
    table = pa.Table.from_batches(batches("aol", people, seed))
    private = which_private(table["query"])
    searches: dict[str, list[str]] = defaultdict(list)
    secrets: dict[str, list[str]] = defaultdict(list)
    for person, query, own in zip(table["user"].to_pylist(), table["query"].to_pylist(), private.tolist(), strict=True):
        searches[person].append(query)
        if own and query not in secrets[person]:
            secrets[person].append(query)
    # Half of those with secrets and half of the others, so that every game below is even.
    rng, inside = np.random.default_rng([seed, 1]), set()
    for group in (sorted(secrets), sorted(set(searches) - set(secrets))):
        inside |= {str(person) for person in rng.permutation(group)[: len(group) // 2]}
    return Town(dict(searches), {p: s for p, s in secrets.items() if s}, frozenset(inside))


def in_the_phone_book(town: Town) -> dict[str, list[str]]:
    """What a directory says of people: texts that belong to one person; as many people inside the log as outside."""
    return even(town, sorted(town.secrets), town.secrets)


def overheard(town: Town, seed: int, most: int = 1000) -> dict[str, list[str]]:
    """Three searches of each of some people, seen over their shoulder: any three, of people with at least ten."""
    rng = np.random.default_rng([seed, 2])
    known = {p: sorted(set(q)) for p, q in town.searches.items() if len(set(q)) >= 10}
    chosen = even(town, [str(p) for p in rng.permutation(sorted(known))], known, most)
    return {person: [str(q) for q in rng.choice(queries, 3, replace=False)] for person, queries in chosen.items()}


def even(town: Town, people: Iterable[str], known: Mapping[str, list[str]], most: int = 10**9) -> dict[str, list[str]]:
    """Keep as many people from inside the log as from outside."""
    sides: tuple[list[str], list[str]] = ([], [])
    for person in people:
        sides[person in town.inside].append(person)
    each = min(len(sides[0]), len(sides[1]), most // 2)
    return {person: known[person] for person in sides[0][:each] + sides[1][:each]}


def released_by_hushquery(
    log: Mapping[str, Sequence[str]], bits: Any = None, queries_per_user: int = QUERIES_PER_USER
) -> dict[str, int]:
    """Publish a log by hushquery: queries, noisy counts. The filter of personal text is off: noise alone protects."""
    rows = [(person, query, second) for person, queries in log.items() for second, query in enumerate(queries)]
    table = dict(zip(("user", "query", "time"), map(list, zip(*rows, strict=True)), strict=True))
    plan = hq.plan_release(
        hq.read_log(table, patterns=False),
        epsilon=EPSILON,
        delta=DELTA,
        queries_per_user=queries_per_user,
        population="a town",
    )
    with tempfile.TemporaryDirectory() as folder:
        queries = plan.run(Path(folder) / "ledger.db", bits=bits).tables["queries"]
    return dict(zip(queries["query"].to_pylist(), queries["count"].to_pylist(), strict=True))


@dataclass(frozen=True)
class Score:
    """How an attack did: ``named`` of ``targets`` people said to be in the log, ``right`` guesses among all targets."""

    targets: int
    named: int
    wrong: int
    right: int

    @property
    def accuracy(self) -> float:
        """The share of right guesses, in the log or not; 0.5 is what guessing blindly has."""
        return self.right / self.targets

    def cells(self) -> list[str]:
        """The score as cells of a table, with the standard error of a share that is left to chance."""
        error = (self.accuracy * (1 - self.accuracy) / self.targets) ** 0.5
        share = f"{self.accuracy:.1%} ± {error:.1%}" if self.named and error else f"{self.accuracy:.1%}"
        return [f"{self.targets:,}", f"{self.named:,}", f"{self.wrong:,}", share]


def judge(town: Town, targets: Iterable[str], named: Iterable[str]) -> Score:
    """Compare who an attack says is in the log with who is."""
    asked, said = set(targets), set(named)
    right = sum((person in said) == (person in town.inside) for person in asked)
    return Score(len(asked), len(said), len(said - town.inside), right)
