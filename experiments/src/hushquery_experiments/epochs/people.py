"""Simulated people over some epochs: they join, leave, move between the two groups, and change what they search for.

Everybody holds one record at a time, drawn from a power law of queries as in :mod:`hushquery_experiments.blender.law`.
Fashion changes too: queries of the ranks 6 to 10 fade and those of 61 to 65 rise until, in the last epoch, they have
changed places. So there is something for trends to find and for a list that is kept too long to miss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery.local.intervals import IntArray
from hushquery.log import Log, read_log
from hushquery_experiments.blender.law import AOL, URL_SHARES, PowerLaw
from hushquery_experiments.ndcg import Truth

__all__ = ["FADING", "RISING", "Epoch", "World", "history", "name_of", "number_of"]

#: The queries (numbered from 0) that fade, and in the same order those that take their places.
FADING, RISING = tuple(range(5, 10)), tuple(range(60, 65))

_WIDTH = len(URL_SHARES)
_LETTERS = str.maketrans("0123456789", "abcdefghij")
_DIGITS = str.maketrans("abcdefghij", "0123456789")
_MOST_PEOPLE, _MOST_EPOCHS = 2_000_000, 120


@dataclass(frozen=True)
class World:
    """What is assumed of the people.

    Args:
        users: How many there are in each epoch.
        epochs: How many epochs.
        optin: The share of them who opt in.
        moving: The chance that an opt-in user becomes a client from one epoch to the next. As many clients opt in.
        leaving: The chance that somebody leaves. As many newcomers join.
        changing: The chance that somebody has drawn another record since the last epoch.
        law: How frequent queries are; its own number of users does not matter.
    """

    users: int
    epochs: int = 12
    optin: float = 0.05
    moving: float = 0.05
    leaving: float = 0.03
    changing: float = 0.2
    law: PowerLaw = AOL

    def __post_init__(self) -> None:
        if type(self.users) is not int or not 1000 <= self.users <= _MOST_PEOPLE:
            raise UsageError(f"the simulated users are 1,000 to {_MOST_PEOPLE:,}", fix="Give, say, 100000")
        if type(self.epochs) is not int or not 2 <= self.epochs <= _MOST_EPOCHS:
            raise UsageError(f"the simulated epochs are 2 to {_MOST_EPOCHS}", fix="Give, say, 12")
        if not 0 < self.optin < 1:
            raise UsageError("the share of users who opt in is above 0 and below 1", fix="Give, say, 0.05")
        for name in ("moving", "leaving", "changing"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"the chance of {name} is from 0 to 1", fix="Give, say, 0.05")


@dataclass(frozen=True, eq=False)
class Epoch:
    """Everybody who is there in one epoch.

    Args:
        who: The people's numbers; a number stays with a person, and a newcomer has a new one.
        record: The number of the record that each holds.
        optin: Whether each is an opt-in user; all others are clients.
    """

    who: IntArray
    record: IntArray
    optin: npt.NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"Epoch({len(self.who)} people, {int(self.optin.sum())} of them opted in)"

    @property
    def log(self) -> Log:
        """The log of this epoch's opt-in users: one search each."""
        import pyarrow as pa

        names = [name_of(record) for record in self.record[self.optin].tolist()]
        table = {
            "user": [f"p{one}" for one in self.who[self.optin].tolist()],
            "query": [query for query, _ in names],
            "url": [url for _, url in names],
        }
        return read_log(pa.table({name: pa.array(values, pa.string()) for name, values in table.items()}))

    def truth(self, records: list[tuple[str, str]]) -> tuple[Truth, IntArray]:
        """Return the true counts of everybody's records, and the places of some listed ones among them."""
        listed = np.array([number_of(*record) for record in records], dtype=np.int64)
        every, counts = np.unique(np.concatenate([self.record, listed]), return_counts=True)
        places = np.searchsorted(every, listed)
        counts[places] -= 1  # a listed record was counted once though perhaps nobody holds it any more
        queries = np.unique(every // _WIDTH, return_inverse=True)[1]
        return Truth(queries.astype(np.int64), counts.astype(np.int64), len(self.who)), places


def history(world: World, rng: np.random.Generator) -> list[Epoch]:
    """Draw what happens: the first epoch, and from each to the next who leaves, moves, changes and joins."""
    chances = np.cumsum(world.law.probability(np.arange(world.law.queries)))
    people = world.users
    who = np.arange(people)
    record = _draw(world, chances, who, 0, rng)
    optin = rng.random(people) < world.optin
    epochs = [Epoch(who, record, optin)]
    for number in range(1, world.epochs):
        stays = rng.random(len(who)) >= world.leaving
        who, record, optin = who[stays], record[stays].copy(), optin[stays].copy()
        changed = np.flatnonzero(rng.random(len(who)) < world.changing)
        record[changed] = _draw(world, chances, who[changed], number, rng)
        out = np.flatnonzero(optin & (rng.random(len(who)) < world.moving))
        clients = np.flatnonzero(~optin)
        optin[rng.choice(clients, min(len(out), len(clients)), replace=False)] = True
        optin[out] = False
        joined = np.arange(people, people + world.users - len(who))
        people += len(joined)
        who = np.concatenate([who, joined])
        record = np.concatenate([record, _draw(world, chances, joined, number, rng)])
        optin = np.concatenate([optin, rng.random(len(joined)) < world.optin])
        epochs.append(Epoch(who, record, optin))
    return epochs


def _draw(
    world: World, chances: npt.NDArray[np.float64], who: IntArray, epoch: int, rng: np.random.Generator
) -> IntArray:
    """Draw a record for each; who falls outside the law gets one that nobody else ever holds."""
    query = np.searchsorted(chances, rng.random(len(who)), side="right")
    # Of those who would search for a fading query some search for the rising one instead, and the other way round.
    swapped = rng.random(len(who)) < epoch / (world.epochs - 1)
    for old, new in zip(FADING, RISING, strict=True):
        is_old, is_new = swapped & (query == old), swapped & (query == new)
        query[is_old], query[is_new] = new, old
    own = len(chances) + who * world.epochs + epoch
    query = np.where(query < len(chances), query, own)
    return (query * _WIDTH + rng.choice(_WIDTH, len(who), p=URL_SHARES)).astype(np.int64)


def name_of(record: int) -> tuple[str, str]:
    """Return the query and the URL of a record's number.

    >>> name_of(62 * 6 + 1), number_of(*name_of(62 * 6 + 1))
    (('query gc', 'https://site1.example'), 373)
    """
    query, url = divmod(record, _WIDTH)
    # Letters, not digits: a long number would be taken for a telephone's and left out of the log.
    return f"query {str(query).translate(_LETTERS)}", f"https://site{url}.example"


def number_of(query: str, url: str) -> int:
    """Read what :func:`name_of` gave."""
    place = url.removeprefix("https://site").removesuffix(".example")
    return int(query.removeprefix("query ").translate(_DIGITS)) * _WIDTH + int(place)
