"""Why not just mask the user ids? The searches themselves say who you are.

The release: every search of everybody in the log, each person's under a random number, as AOL did in 2006. Two attacks:

1. *Phone book.* People search for their own name, number, address or order. Look for the entries of a directory in the
   release; whoever searched for an entry is that person, and the random number ties all other searches to it.
2. *Over the shoulder.* Know any three searches of somebody, by chance. Look for random numbers that have all three.

The same attacks on a hushquery release: it has queries and noisy counts, and nothing that ties two searches together.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from town import Score, Town, build, in_the_phone_book, judge, overheard, released_by_hushquery


@dataclass(frozen=True)
class Found:
    """What the attacks found.

    Attributes:
        phone_book: Attack 1 on the masked log.
        shoulder: Attack 2 on the masked log.
        shoulder_right: To how many people in the log attack 2 gave the right random number.
        exposed: How many other searches of a person found by attack 1 can be read, in the median.
        phone_book_ours: Attack 1 on the hushquery release.
        shoulder_ours: Attack 2 on the hushquery release.
        released: How many queries the hushquery release has.
    """

    phone_book: Score
    shoulder: Score
    shoulder_right: int
    exposed: float
    phone_book_ours: Score
    shoulder_ours: Score
    released: int

    def table(self) -> list[list[str]]:
        """The result as rows of a table, the first its head."""
        return [
            ["release", "attack", "people tried", "said to be in", "wrongly", "right, in or out"],
            ["masked ids", "phone book", *self.phone_book.cells()],
            ["masked ids", "three searches seen", *self.shoulder.cells()],
            ["hushquery", "phone book", *self.phone_book_ours.cells()],
            ["hushquery", "three searches seen", *self.shoulder_ours.cells()],
        ]

    def notes(self) -> list[str]:
        """What the table does not say."""
        return [
            f"In the masked log the phone book ties a name to all searches of {self.phone_book.named:,} people: "
            f"in the median {self.exposed:.0f} further searches each.",
            f"Three searches point to exactly one random number, the right one, for {self.shoulder_right:,} of "
            f"{self.shoulder.targets // 2:,} people in the log.",
            f"The hushquery release has {self.released:,} queries, none of them in the phone book.",
        ]


def mask(log: Mapping[str, Sequence[str]], seed: int) -> tuple[dict[int, set[str]], dict[int, str]]:
    """Publish a log under random numbers. The second value, who is who, is secret: it scores the attack."""
    numbers = np.random.default_rng([seed, 3]).permutation(len(log)).tolist()
    return (
        {number: set(queries) for number, queries in zip(numbers, log.values(), strict=True)},
        dict(zip(numbers, log, strict=True)),
    )


def by_query(masked: Mapping[int, set[str]]) -> dict[str, set[int]]:
    """Which random numbers searched for each query."""
    found: dict[str, set[int]] = defaultdict(set)
    for number, queries in masked.items():
        for query in queries:
            found[query].add(number)
    return found


def have_all(index: Mapping[str, set[int]], queries: Sequence[str]) -> set[int]:
    """Which random numbers searched for all of these queries."""
    return set.intersection(*(index.get(query, set()) for query in queries))


def attack(people: int, seed: int, bits: Any = None) -> Found:
    """Run both attacks on both releases of a town."""
    town: Town = build(people, seed)
    masked, who_is_who = mask(town.log, seed)
    index = by_query(masked)

    book = in_the_phone_book(town)
    by_book = {p: {n for entry in entries for n in index.get(entry, ())} for p, entries in book.items()}
    exposed = [len(masked[n]) - 1 for numbers in by_book.values() for n in numbers]

    seen = overheard(town, seed)
    by_sight = {person: have_all(index, queries) for person, queries in seen.items()}
    single = {person: next(iter(numbers)) for person, numbers in by_sight.items() if len(numbers) == 1}

    ours = released_by_hushquery(town.log, bits)
    return Found(
        phone_book=judge(town, book, [p for p, numbers in by_book.items() if numbers]),
        shoulder=judge(town, seen, [p for p, numbers in by_sight.items() if numbers]),
        shoulder_right=sum(who_is_who[number] == person for person, number in single.items()),
        exposed=median(exposed) if exposed else 0,
        phone_book_ours=judge(town, book, [p for p, entries in book.items() if any(e in ours for e in entries)]),
        # No numbers to compare, so the best there is: were the searches seen popular enough to come out?
        shoulder_ours=judge(town, seen, [p for p, queries in seen.items() if any(q in ours for q in queries)]),
        released=len(ours),
    )


if __name__ == "__main__":
    found = attack(int(sys.argv[1]) if len(sys.argv) > 1 else 4000, seed=1)
    print("\n".join(" | ".join(row) for row in found.table()), *found.notes(), sep="\n")
