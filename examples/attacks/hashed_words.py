"""Why not just hash the words? Frequencies say which hash is which word, and anybody can have his own words hashed.

The release: ids masked, and every word of every query replaced by a keyed hash (HMAC-SHA256) whose key is destroyed.
(A hash without a key needs no attack: hash the dictionary, or the phone book, and compare.) Two attacks:

1. *Frequencies* (Kumar, Novak, Pang and Tomkins 2007). Compare with another search log: ``word_matching.py``. The other
   log here is half as large, of other people who speak the same language: the attacker's good case.
2. *My own searches.* The attacker is a user too. He searches for every word of a dictionary, in an order that he knows,
   and first for a line by which he finds himself in the release; then his row is the key to all others. Knowing three
   searches of somebody, he turns them into hashes and looks who has all three.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from masked_ids import by_query, have_all
from town import Score, Town, build, judge, overheard, released_by_hushquery
from word_matching import habits, match

FREQUENT = 200  # words that attack 1 is about
MARK = "it is me it is me it is me"


@dataclass(frozen=True)
class Found:
    """What the attacks found.

    Attributes:
        words: How many of the most frequent hashes attack 1 was about.
        by_rank: How many of them the order of frequency alone gets right.
        by_company: How many attack 1 gets right.
        uses: The share of all words used in the log that attack 1 reads.
        dictionary: How many hashes attack 2 reads.
        read: The share of all searches that attack 2 reads whole.
        shoulder: Attack 2 on the hashed log, then three searches seen.
        shoulder_ours: The same on the hushquery release; there the dictionary searched for is the attacker's too.
        came_out: How many of the attacker's own lines are in the hushquery release because of him.
    """

    words: int
    by_rank: int
    by_company: int
    uses: float
    dictionary: int
    read: float
    shoulder: Score
    shoulder_ours: Score
    came_out: int

    def table(self) -> list[list[str]]:
        """The result as rows of a table, the first its head."""
        return [
            ["release", "attack", "people tried", "said to be in", "wrongly", "right, in or out"],
            ["hashed words", "own searches, then three seen", *self.shoulder.cells()],
            ["hushquery", "own searches, then three seen", *self.shoulder_ours.cells()],
        ]

    def notes(self) -> list[str]:
        """What the table does not say."""
        return [
            f"Frequencies: of the {self.words:,} most frequent hashes {self.by_company:,} were given the right word, "
            f"where their order alone gives {self.by_rank:,} and guessing 1. That reads {self.uses:.0%} of all words.",
            f"Own searches: {self.dictionary:,} hashes read, and with them {self.read:.0%} of all searches whole.",
            f"In the hushquery release the attacker finds {self.came_out} of his own lines.",
        ]


def publish(log: Mapping[str, Iterable[str]], key: bytes) -> dict[int, list[str]]:
    """Publish a log with numbers for people and hashes for words."""

    def hashed(query: str) -> str:
        return " ".join(hmac.digest(key, word.encode(), "sha256").hex()[:16] for word in query.split())

    return {number: [hashed(query) for query in queries] for number, queries in enumerate(log.values())}


def own_row(release: Mapping[int, list[str]], own: list[str]) -> dict[str, str]:
    """Find the attacker in a release by his first line, three words three times over; read his hashes."""
    for queries in release.values():
        words = queries[0].split()
        if len(queries) == len(own) and len(words) == 9 and words[:3] == words[3:6] == words[6:]:
            return {word: queries[i] for i, word in enumerate(own) if i}
    return {}


def attack(people: int, seed: int, bits: Any = None) -> Found:
    """Hash the log of a town, read it by both attacks, and look for people in it."""
    town: Town = build(people, seed)
    elsewhere = build(people // 2, seed + 1).searches
    ordinary = {word for queries in elsewhere.values() for query in queries for word in query.split()}
    own = [MARK, *sorted(word for word in ordinary if word.isalpha())]
    key = hashlib.sha256(f"a key that is destroyed {seed}".encode()).digest()
    release = publish({**town.log, "the attacker": own}, key)

    attacked, reference = habits(release, FREQUENT), habits(elsewhere, FREQUENT)
    guess = match(attacked, reference)
    dictionary = own_row(release, own)
    truth = {word: publish({"": [word]}, key)[0][0] for word in reference.words}  # to score attack 1
    right = {h for h, word in guess.items() if truth[word] == h}
    searches = [query.split() for number, queries in release.items() if number < len(town.log) for query in queries]

    seen, known = overheard(town, seed), set(dictionary.values())
    told = {p: [" ".join(dictionary.get(w, "?") for w in query.split()) for query in q] for p, q in seen.items()}
    index = by_query({number: set(queries) for number, queries in release.items()})
    ours = released_by_hushquery({**town.log, "the attacker": own}, bits)
    without = {query for queries in town.log.values() for query in queries}
    return Found(
        words=len(guess),
        by_rank=sum(truth[word] == h for h, word in zip(attacked.words, reference.words, strict=True)),
        by_company=len(right),
        uses=sum(word in right for search in searches for word in search) / sum(map(len, searches)),
        dictionary=len(dictionary),
        read=sum(all(word in known for word in search) for search in searches) / len(searches),
        shoulder=judge(town, seen, [p for p, q in told.items() if have_all(index, q)]),
        shoulder_ours=judge(town, seen, [p for p, q in seen.items() if any(query in ours for query in q)]),
        came_out=sum(line in ours and line not in without for line in own),
    )


if __name__ == "__main__":
    found = attack(int(sys.argv[1]) if len(sys.argv) > 1 else 4000, seed=1)
    print("\n".join(" | ".join(row) for row in found.table()), *found.notes(), sep="\n")
