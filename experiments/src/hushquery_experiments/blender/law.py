"""Populations for BLENDER's experiments: one record per user, from a law like AOL's or Yandex's, or from a log.

The laws: query number r has probability scale * r^-exponent, and each query six URLs. A law ends where its
probabilities reach 1, or at the number of unique queries that the paper names, whichever is first; mass that is left
belongs to records that nobody holds twice. So AOL's law (.0267/r, 4.8 million queries) covers 43% of the users and 57%
hold a record of their own; Yandex's (.02 r^-.85) reaches 1 at query 1.5 million. How a law ends makes no difference to
any frequent record: only records of one opt-in user depend on it, and the threshold stops those.

Counts are drawn from their exact joint law without drawing every user: opt-in users one by one (any of their records
may come out), clients as one multinomial over the records that can matter.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hushquery.engine import execute, md5
from hushquery.errors import DataError, UsageError
from hushquery_experiments.ndcg import Truth

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AOL", "PROFILES", "URL_SHARES", "YANDEX", "LogPopulation", "Population", "PowerLaw", "Split", "optin_size"]

#: How the clicks on a query are divided among its URLs.
URL_SHARES = (0.60, 0.18, 0.09, 0.06, 0.04, 0.03)

# Queries of a law that are always counted. The 20,000th query of either law is about a hundred times rarer than the
# last one of any head list here, so no other one is ever among the truly most frequent.
_COUNTED = 20_000

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """One draw of a population, divided into opt-in users and clients; secret where the log is.

    Args:
        query: The number of each listed record's query.
        optin: How many opt-in users hold the record.
        client: How many clients' records it is.
        singles: How many opt-in users hold a record that is not listed, each a different one that nobody else holds.
        optin_users: How many opt-in users there are.
        client_records: How many records all clients have together: as many as clients, if each has one.
    """

    query: IntArray
    optin: IntArray
    client: IntArray
    singles: int
    optin_users: int
    client_records: int

    def __repr__(self) -> str:
        return f"Split({self.optin_users} opt-in users, {self.client_records} records of clients; counts are secret)"

    @property
    def truth(self) -> Truth:
        """The counts of both groups together."""
        return Truth(self.query, self.optin + self.client, self.optin_users + self.client_records)


class Population(Protocol):
    """Users who hold a record each, and can be divided at random into opt-in users and clients."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        ...

    @property
    def users(self) -> int:
        """How many users there are."""
        ...

    def split(self, optin: float, rng: np.random.Generator, records_per_client: int = 1) -> Split:
        """Draw a population, of which the share ``optin`` opts in."""
        ...

    def label(self, query: int) -> str:
        """Return a query's name."""
        ...


@dataclass(frozen=True)
class PowerLaw:
    """Users who each draw a record from a power law of queries.

    Args:
        name: What it is called.
        users: How many users there are.
        scale: The probability of the most frequent query.
        exponent: By which power of its rank a query is rarer.
        most_queries: No query has a higher number.

    >>> split = AOL.split(0.05, np.random.default_rng(1))
    >>> split
    Split(26000 opt-in users, 494000 records of clients; counts are secret)
    >>> round(float(split.truth.queries[0]) / AOL.users, 3)
    0.027
    """

    name: str
    users: int
    scale: float
    exponent: float
    most_queries: int

    def __post_init__(self) -> None:
        if not (self.users >= 2 and 0 < self.scale < 1 and self.exponent > 0 and self.most_queries >= 1):
            raise UsageError("a power law needs users, queries, 0 < scale < 1 and an exponent above 0")

    @property
    def queries(self) -> int:
        """How many queries the law has."""
        return len(self._cumulative())

    @property
    def tail(self) -> float:
        """The share of users who hold a record of their own."""
        return max(0.0, 1 - float(self._cumulative()[-1]))

    def probability(self, query: IntArray) -> FloatArray:
        """Return the probabilities of queries by their number, from 0 on."""
        law = self.scale * (query + 1.0) ** -self.exponent
        return law.astype(np.float64)

    def split(self, optin: float, rng: np.random.Generator, records_per_client: int = 1) -> Split:
        """Draw everybody's record, and who opts in; with several records per client, all are independent."""
        group = optin_size(self.users, optin)
        records = (self.users - group) * records_per_client
        width, counted = len(URL_SHARES), min(_COUNTED, self.queries)
        drawn = np.searchsorted(self._cumulative(), rng.random(group), side="right")
        known = drawn[drawn < self.queries]
        cells = known * width + rng.choice(width, len(known), p=URL_SHARES)
        rare, rare_counts = np.unique(cells[cells >= counted * width], return_counts=True)
        often = np.bincount(cells[cells < counted * width], minlength=counted * width)
        chances = np.outer(self.probability(np.arange(counted)), URL_SHARES).ravel()
        client, beyond = _with_rest(records, chances, rng)
        rare_chances = self.probability(rare // width) * np.array(URL_SHARES)[rare % width]
        rare_client, _ = _with_rest(beyond, rare_chances / max(1 - chances.sum(), 1e-300), rng)
        return Split(
            # Rare queries are numbered anew, after the counted ones.
            query=np.unique(np.concatenate([np.arange(counted * width), rare]) // width, return_inverse=True)[1],
            optin=np.concatenate([often, rare_counts]).astype(np.int64),
            client=np.concatenate([client, rare_client]).astype(np.int64),
            singles=group - len(known),
            optin_users=group,
            client_records=records,
        )

    def label(self, query: int) -> str:
        """Return a query's name: its rank, from 1 on."""
        return f"query {query + 1}" if query < _COUNTED else "a rare query"

    def _cumulative(self) -> FloatArray:
        return _cumulative(self.scale, self.exponent, self.most_queries)


#: Like AOL's log of 2006.
AOL = PowerLaw("aol", 520_000, 0.0267, 1.0, 4_800_000)
#: Like Yandex's log of 2013.
YANDEX = PowerLaw("yandex", 5_000_000, 0.02, 0.85, 13_200_000)
#: The laws by name.
PROFILES = {law.name: law for law in (AOL, YANDEX)}


class LogPopulation:
    """The users of a log, each with one of its different records.

    A search without a click is a record with an empty URL, as in :mod:`hushquery.hybrid.headlist`. Everything measured
    on it is as secret as the log.

    Args:
        counts: A table of (query, url, n): how many users hold each record.
        users: How many users there are.
        name: What it is called in results.
    """

    def __init__(self, counts: pa.Table, users: int, name: str) -> None:
        if users < 4 or not counts.num_rows:
            raise DataError("the log has too few users to divide", fix="Give a larger log")
        coded = counts["query"].combine_chunks().dictionary_encode()
        self._names = coded.dictionary
        self._query = np.asarray(coded.indices, dtype=np.int64)
        self._count = np.asarray(counts["n"], dtype=np.int64)
        self._name, self._users = name, users

    @classmethod
    def of_log(cls, log: Any, name: str = "log", seed: int = 0) -> LogPopulation:
        """Take one record of each user, by a keyed hash: any of them with the same chance, and always the same one.

        Args:
            log: What :func:`hushquery.log.read_log` gives, or anything it reads.
            name: What it is called in results.
            seed: The key of the hash.
        """
        from hushquery_experiments.coverage import rows_of

        rows = rows_of(log)
        everybody = execute(rows.agg(users=rows.user.nunique())).to_pylist()[0]["users"]
        return cls(_one_each(rows, seed), int(everybody), name)

    @classmethod
    def synthetic(cls, profile: str = "aol", users: int = 520_000, seed: int = 0) -> LogPopulation:
        """Make a synthetic log, a chunk of users at a time, and keep one record of each user.

        >>> LogPopulation.synthetic("tiny", users=200)
        LogPopulation(synthetic tiny; records are secret)
        """
        import ibis
        import pyarrow as pa

        from hushquery.log.synthetic.logs import batches

        parts = [
            _one_each(ibis.memtable(pa.Table.from_batches([batch])), seed) for batch in batches(profile, users, seed)
        ]
        added = pa.concat_tables(parts).group_by(["query", "url"]).aggregate([("n", "sum")])
        named = added.rename_columns({"n_sum": "n"}).sort_by([("query", "ascending"), ("url", "ascending")])
        return cls(named, users, f"synthetic {profile}")

    def __repr__(self) -> str:
        return f"LogPopulation({self._name}; records are secret)"

    @property
    def name(self) -> str:
        """What it is called in results."""
        return self._name

    @property
    def users(self) -> int:
        """How many users there are."""
        return self._users

    def split(self, optin: float, rng: np.random.Generator, records_per_client: int = 1) -> Split:
        """Choose at random who opts in."""
        if records_per_client != 1:
            raise UsageError("a log's users have one record each here", fix="Use a profile for several per client")
        group = optin_size(self.users, optin)
        without = self.users - int(self._count.sum())
        chosen = rng.multivariate_hypergeometric([*self._count.tolist(), without], group, method="marginals")[:-1]
        return Split(self._query, chosen.astype(np.int64), self._count - chosen, 0, group, self.users - group)

    def label(self, query: int) -> str:
        """Return a query; as secret as the log."""
        return str(self._names[query])


def _one_each(rows: Any, seed: int) -> pa.Table:
    """Keep one of each user's different records, and count how many users hold which."""
    import ibis

    url = rows.url.fill_null("") if "url" in rows.columns else ibis.literal("")
    held = rows.select(user=rows.user.cast("string"), query=rows.query, url=url).distinct()
    key = md5(ibis.literal(f"{seed}|") + held.user + "|" + held.query + "|" + held.url)
    placed = held.mutate(
        place=ibis.row_number().over(ibis.window(group_by="user", order_by=[key, held.query, held.url]))
    )
    one = placed.filter(placed.place == 0)
    return execute(one.group_by("query", "url").agg(n=one.count()).order_by("query", "url"))


def optin_size(users: int, share: float) -> int:
    """Return how many users opt in; refuses a share that leaves one of the groups with fewer than two."""
    if not (isinstance(share, int | float) and math.isfinite(share) and 2 <= round(users * share) <= users - 2):
        raise UsageError("the share that opts in leaves both groups at least two users", fix="Give for example 0.05")
    return round(users * share)


def _with_rest(n: int, chances: FloatArray, rng: np.random.Generator) -> tuple[IntArray, int]:
    """Draw a multinomial, and how many fell into none of its cells."""
    drawn = rng.multinomial(n, np.append(chances, max(0.0, 1 - chances.sum())))
    return drawn[:-1], int(drawn[-1])


@functools.lru_cache(maxsize=4)
def _cumulative(scale: float, exponent: float, most: int) -> FloatArray:
    sums: FloatArray = np.cumsum(scale * np.arange(1.0, most + 1) ** -exponent)
    end = int(np.searchsorted(sums, 1.0))
    if end < most:
        sums = sums[: end + 1].copy()
        sums[-1] = 1.0
    sums.flags.writeable = False
    return sums
