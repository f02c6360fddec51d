"""Why not just drop rare queries? Because anybody can make a query less rare.

The release: every query that at least k = 10 people searched for. (k-anonymity on queries.) The attacker suspects that
somebody searched for something: a name, an order number. He makes nine accounts and searches for it from each. If it
comes out, a tenth person searched for it: the suspect.

The same attack on a hushquery release is made as strong as it can be: the threshold R of a release is public, so the
attacker searches from R - 1 accounts, and one more count is what decides, up to the noise. Whatever he does, he is
right in at most e^epsilon/(1 + e^epsilon) of the cases (plus delta): that is the guarantee, said as a game.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from town import DELTA, EPSILON, QUERIES_PER_USER, Score, build, in_the_phone_book, judge, released_by_hushquery

import hushquery as hq

K = 10


@dataclass(frozen=True)
class Found:
    """What the attack found.

    Attributes:
        rare_dropped: The attack on the release without rare queries.
        ours: The attack on the hushquery release of at most 20 queries per user.
        ours_one: The same where one query per user counts, so that all of epsilon is spent on it: the worst case.
        thresholds: R of the two.
    """

    rare_dropped: Score
    ours: Score
    ours_one: Score
    thresholds: tuple[int, int]

    @property
    def most(self) -> float:
        """The share of right guesses that no attack on the hushquery releases can exceed on average."""
        return (math.exp(EPSILON) + DELTA) / (1 + math.exp(EPSILON))

    def table(self) -> list[list[str]]:
        """The result as rows of a table, the first its head."""
        most = f"{math.ceil(1000 * self.most) / 10:.1f}%"
        return [
            ["release", "fake accounts", "people tried", "said to be in", "wrongly", "right, in or out", "at most"],
            [f"at least {K} people", str(K - 1), *self.rare_dropped.cells(), "100%"],
            ["hushquery, 20 per user", str(self.thresholds[0] - 1), *self.ours.cells(), most],
            ["hushquery, 1 per user", str(self.thresholds[1] - 1), *self.ours_one.cells(), most],
        ]

    def notes(self) -> list[str]:
        """What the table does not say."""
        return [
            f"The last column is what epsilon {EPSILON} allows to any attack whatever on one person, on average; "
            "what was measured is one draw, and scatters by the standard error that stands beside it."
        ]


def drop_rare(log: Mapping[str, Sequence[str]]) -> set[str]:
    """Publish every query that at least K people searched for."""
    people: dict[str, set[str]] = defaultdict(set)
    for person, queries in log.items():
        for query in queries:
            people[query].add(person)
    return {query for query, who in people.items() if len(who) >= K}


def with_accounts(
    log: Mapping[str, Sequence[str]], suspicions: Sequence[str], accounts: int, each: int
) -> dict[str, list[str]]:
    """Add fake accounts so that every suspicion is searched for from so many of them, at most ``each`` per account."""
    added = {person: list(queries) for person, queries in log.items()}
    for start in range(0, len(suspicions), each):
        for account in range(accounts):
            added[f"fake {start} {account}"] = list(suspicions[start : start + each])
    return added


def threshold(queries_per_user: int) -> int:
    """R of a release: public, and known before any row is read."""
    plan = hq.plan_release(
        {"user": [""], "query": [""]},
        epsilon=EPSILON,
        delta=DELTA,
        queries_per_user=queries_per_user,
        population="a town",
    )
    return int(plan.calibrated.steps()[0].parameters.to_json()["threshold"])


def attack(people: int, seed: int, bits: Any = None) -> Found:
    """Ask for one secret of each person in the phone book, of both releases."""
    town = build(people, seed)
    suspect = {entries[0]: person for person, entries in in_the_phone_book(town).items()}
    # The search suspected counts for sure: it is the person's first.
    log = {p: sorted(queries, key=lambda query: query not in suspect) for p, queries in town.log.items()}
    suspicions = list(suspect)
    targets = suspect.values()

    naive = drop_rare(with_accounts(log, suspicions, K - 1, len(suspicions)))
    scores, thresholds = [], []
    for each in (QUERIES_PER_USER, 1):
        thresholds.append(threshold(each))
        ours = released_by_hushquery(with_accounts(log, suspicions, thresholds[-1] - 1, each), bits, each)
        scores.append(judge(town, targets, [person for query, person in suspect.items() if query in ours]))
    return Found(
        rare_dropped=judge(town, targets, [person for query, person in suspect.items() if query in naive]),
        ours=scores[0],
        ours_one=scores[1],
        thresholds=(thresholds[0], thresholds[1]),
    )


if __name__ == "__main__":
    found = attack(int(sys.argv[1]) if len(sys.argv) > 1 else 4000, seed=1)
    print("\n".join(" | ".join(row) for row in found.table()), *found.notes(), sep="\n")
