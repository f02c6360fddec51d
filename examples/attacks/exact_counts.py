"""Why not just publish statistics? Exact numbers can be subtracted from each other.

The release: how many people searched for each query, exactly, of the queries that at least ten people searched for. No
row, no id, nothing rare. The attacker knows the searches of everybody else (or has the same statistic from before the
person joined, which comes to the same) and subtracts: what is left is the person.

Each person is tried on one popular query, and each query with one person. The same attack on a hushquery release
subtracts in the same way from its noisy counts, of the same first 20 queries of each person, which it knows as well.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from town import QUERIES_PER_USER, Score, Town, build, judge, released_by_hushquery

K, MOST = 10, 600


@dataclass(frozen=True)
class Found:
    """What the attack found.

    Attributes:
        exact: The attack on exact counts.
        ours: The attack on the hushquery release.
        with_count: How many of the queries tried have a noisy count there.
    """

    exact: Score
    ours: Score
    with_count: int

    def table(self) -> list[list[str]]:
        """The result as rows of a table, the first its head."""
        return [
            ["release", "attack", "people tried", "said to be in", "wrongly", "right, in or out"],
            ["exact counts", "subtract all others", *self.exact.cells()],
            ["hushquery", "subtract all others", *self.ours.cells()],
        ]

    def notes(self) -> list[str]:
        """What the table does not say."""
        return [
            f"Of the {self.ours.targets:,} queries tried, {self.with_count:,} have a count in the hushquery release."
        ]


def counted(log: Mapping[str, Iterable[str]], most: int | None = None) -> Counter[str]:
    """Count the people who searched for each query, by the first ``most`` different queries of each."""
    return Counter(query for queries in log.values() for query in islice(dict.fromkeys(queries), most))


def tried(town: Town) -> dict[str, str]:
    """Give each of some people one query that is among the person's first, popular, and nobody else's in this game.

    As many people are in the log as not.
    """
    who: dict[str, list[str]] = defaultdict(list)
    for person, queries in town.searches.items():
        for query in islice(dict.fromkeys(queries), QUERIES_PER_USER):
            who[query].append(person)
    chosen: dict[str, str] = {}
    for turn, (query, count) in enumerate(counted(town.log).most_common(MOST)):
        inside = turn % 2 == 0
        free = [p for p in who[query] if (p in town.inside) == inside and p not in chosen]
        if count > K and free:
            chosen[free[0]] = query
    each = min(sum(p in town.inside for p in chosen), sum(p not in town.inside for p in chosen))
    sides = ([p for p in chosen if p in town.inside][:each], [p for p in chosen if p not in town.inside][:each])
    return {person: chosen[person] for side in sides for person in side}


def attack(people: int, seed: int, bits: Any = None) -> Found:
    """Subtract what is known of all others from both releases of a town."""
    town = build(people, seed)
    targets = tried(town)
    true, capped = counted(town.log), counted(town.log, QUERIES_PER_USER)
    exact = {query: count for query, count in true.items() if count >= K}
    ours = released_by_hushquery(town.log, bits)

    def says(release: Mapping[str, int], person: str, query: str, everybody: Counter[str]) -> bool:
        # What the attacker knows: how many others in the log searched for it. It does not look at the person's own row.
        others = everybody[query] - (person in town.inside)
        return query in release and release[query] - others > 0.5

    return Found(
        exact=judge(town, targets, [p for p, query in targets.items() if says(exact, p, query, true)]),
        ours=judge(town, targets, [p for p, query in targets.items() if says(ours, p, query, capped)]),
        with_count=sum(query in ours for query in targets.values()),
    )


if __name__ == "__main__":
    found = attack(int(sys.argv[1]) if len(sys.argv) > 1 else 4000, seed=1)
    print("\n".join(" | ".join(row) for row in found.table()), *found.notes(), sep="\n")
