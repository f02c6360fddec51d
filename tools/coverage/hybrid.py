"""Intervals of a blend: its records, queries and wildcard, and the two estimates behind each record.

Both groups are drawn anew in every run from one law of records, which is what the intervals are about. The head list is
found and measured with the plan's calibrated noise on counts (:mod:`hushquery_experiments.blender.optin`), every client
goes through its randomizer, and the product's own blend makes the intervals. One setting runs the whole pipeline, log,
engine, ledger and release included: it is slow, so it is judged by fewer kinds of intervals.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from tools.coverage import LEAST_INTERVALS, Cell

from hushquery.hybrid.clients import TwoStageCells
from hushquery.hybrid.published import PublishedHead, blended_shares
from hushquery.hybrid.simulate import send_all, simulate
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.log import read_log
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task
from hushquery_experiments.blender.law import Split
from hushquery_experiments.blender.optin import simulate_optin

__all__ = ["SETTINGS", "Setting", "measure"]

#: A line of so many standard errors is drawn on a page for each group.
_REACH = 2.0
_QUICK = 100


@dataclass(frozen=True)
class Setting:
    """What one row of the page is about.

    Args:
        mode: ``best`` or ``paper``.
        epsilon: Of both groups.
        optin: How many users opt in.
        clients: How many do not.
        size: M.
        exponent: By which power of its rank a query is rarer.
        robust: Whether the blend falls back toward the clients where the groups disagree.
        records: How many records each user has; three are the three URLs of one query, all of which a user clicked.
    """

    mode: str
    epsilon: int
    optin: int
    clients: int
    size: int
    exponent: float = 1.0
    robust: bool = False
    records: int = 1

    def __str__(self) -> str:
        law = "" if self.exponent == 1 else f", shares fall by rank^-{self.exponent:g}"
        return (
            f"{self.mode}{', robust' if self.robust else ''}, epsilon {self.epsilon}, {self.optin:,} of "
            f"{self.optin + self.clients:,} opt in, M = {self.size}{law}"
            f"{f', {self.records} records per user' if self.records > 1 else ''}"
        )

    @property
    def law(self) -> Any:
        """The true share of each record, three URLs to a query."""
        first = {1.0: 0.0267, 0.7: 0.005, 0.5: 0.02}[self.exponent]
        return np.multiply.outer(first / np.arange(1, 301) ** self.exponent, [0.6, 0.3, 0.1]).ravel()

    @property
    def task(self) -> Task:
        """The task that both groups work on."""
        paper = {"oracle": "two-stage", "query_share": "0.85"} if self.mode == "paper" else {}
        return Task.make(
            {
                "task": {"name": "coverage", "population": "nobody"},
                "optin": {"epsilon": self.epsilon, "delta": "1e-5", "records_per_user": self.records},
                "client": {
                    "epsilon": self.epsilon,
                    "lifetime_epsilon": self.epsilon,
                    "records_per_user": self.records,
                    **paper,
                },
                "head": {"size": self.size, "mode": self.mode},
            }
        )


#: Lists that pass the threshold and lists that are cut to their size, clients who tell much and little.
SETTINGS = (
    Setting("best", 4, 5_000, 20_000, 50),
    Setting("best", 4, 5_000, 45_000, 12),
    Setting("best", 1, 20_000, 20_000, 50, exponent=0.7),
    Setting("best", 1, 15_000, 15_000, 50),
    Setting("best", 4, 5_000, 20_000, 50, robust=True),
    Setting("paper", 4, 5_000, 45_000, 50),
    Setting("paper", 1, 20_000, 20_000, 50),
    Setting("paper", 4, 100_000, 40_000, 12),
)
_WHOLE = (
    Setting("best", 4, 3_000, 3_000, 50, exponent=0.5),
    Setting("best", 6, 6_000, 6_000, 60, records=3),
)


def measure(quick: bool) -> Iterator[Cell]:
    """Yield a cell for each kind of interval in each setting."""
    for number, setting in enumerate(SETTINGS):
        yield from _counted(setting, number, _QUICK if quick else LEAST_INTERVALS)
    for number, setting in enumerate(_WHOLE):
        yield from _through_the_log(setting, number, _QUICK if quick else LEAST_INTERVALS)


class _Tallies:
    """How many intervals of each kind were seen, and how many covered."""

    def __init__(self) -> None:
        self._seen: dict[str, list[int]] = {}

    def add(self, kind: str, low: Any, true: Any, high: Any) -> None:
        inside = np.atleast_1d((np.asarray(low) <= true) & (true <= np.asarray(high)))
        tally = self._seen.setdefault(kind, [0, 0])
        tally[0] += inside.size
        tally[1] += int(inside.sum())

    @property
    def least(self) -> int:
        return min((seen for seen, _ in self._seen.values()), default=0)

    def cells(self, setting: str) -> Iterator[Cell]:
        for kind, (intervals, covered) in self._seen.items():
            yield Cell(kind, setting, intervals, covered)


def _counted(setting: Setting, number: int, runs: int) -> Iterator[Cell]:
    rng = np.random.default_rng([14, number])
    law, task = setting.law, setting.task
    bits, tallies, done = SeededBits(1400 + number), _Tallies(), 0
    while done < runs:
        optin, client = (rng.multinomial(n, [*law, 1 - law.sum()])[:-1] for n in (setting.optin, setting.clients))
        alone = setting.optin - int(optin.sum())  # records that nobody else holds
        split = Split(np.arange(len(law)) // 3, optin, client, alone, setting.optin, setting.clients)
        side = simulate_optin(
            split,
            epsilon=setting.epsilon,
            delta="1e-5",
            most=setting.size,
            rng=rng,
            way="reuse" if setting.mode == "best" else "split",
            threshold="tight" if setting.mode == "best" else "paper",
        )
        if not len(side.records):
            continue
        head = PublishedHead(task, side.shares, 0, date(2026, 11, 16), True)
        tally = send_all(head.configuration.oracle, _cells(head, side), bits)
        made = blended_shares(head, tally.support, tally.n, robust=setting.robust)
        true = np.append(law, np.zeros(len(side.split.query) - len(law)))[side.records]
        place = {query: i for i, query in enumerate(made.queries.queries)}
        of_queries = np.bincount([place[query] for query, _ in made.records], true)
        tallies.add("blended shares of records", made.low, true, made.high)
        tallies.add("blended shares of queries", made.queries.low, of_queries, made.queries.high)
        tallies.add("share of everything not listed", made.wildcard_low, 1 - true.sum(), made.wildcard_high)
        for kind, value, stderr in (
            ("opt-in shares, two standard errors", made.optin, made.optin_stderr),
            ("clients' shares, two standard errors", made.client, made.client_stderr),
        ):
            tallies.add(kind, value - _REACH * stderr, true, value + _REACH * stderr)
        done += 1
    yield from tallies.cells(str(setting))


def _cells(head: PublishedHead, side: Any) -> Any:
    """Return how many clients hold each cell; <q, *> holds those of q whose URL is not listed."""
    held, everybody = side.split.client[side.records], side.split.client_records
    if not isinstance(head.configuration.oracle, TwoStage):
        return np.append(held, everybody - held.sum())
    cells = TwoStageCells(head.records)
    counts = np.zeros(cells.k, dtype=np.int64)
    counts[cells.record_cells] = held
    of_query = np.bincount(side.split.query, side.split.client).astype(np.int64)
    numbers = [int(query) for query in cells.queries]
    counts[cells.other_cells] = of_query[numbers] - np.bincount(cells.query_of, held).astype(np.int64)
    counts[-1] = everybody - counts.sum()
    return counts


def _through_the_log(setting: Setting, number: int, intervals: int) -> Iterator[Cell]:
    """Draw a log, split it, run the plan on a ledger, randomise every client, and read the release's tables."""
    rng = np.random.default_rng([14, 99, number])
    law, tallies = setting.law, _Tallies()
    bits = SeededBits(1499 + number)
    names = [(f"query {i // 3}", f"https://{i % 3}.example") for i in range(len(law))]
    if setting.records > 1:  # a user holds all URLs of a query, so each has a third of the query's share
        law = np.repeat(law.reshape(-1, 3).sum(axis=1) / 3, 3)
    share = dict(zip(names, law, strict=True))
    while tallies.least < intervals:
        rows = _drawn(setting, names, law, rng)
        log = pa.table(
            {
                "user": pa.array([user for user, _, _ in rows]),
                "query": pa.array([query for _, query, _ in rows]),
                "url": pa.array([url for _, _, url in rows], pa.string()),
            }
        )
        with tempfile.TemporaryDirectory() as folder:
            made = simulate(read_log(log), setting.task, "0.5", f"{folder}/ledger.db", bits=bits).release
        listed = made.tables["clicks"].to_pylist()
        for row in listed:
            true = share.get((row["query"], row["url"]), 0.0)
            tallies.add("clicks of a whole release", row["low"], true, row["high"])
        for row in made.tables["queries"].to_pylist():
            true = sum(share.get((r["query"], r["url"]), 0.0) for r in listed if r["query"] == row["query"])
            tallies.add("queries of a whole release", row["low"], true, row["high"])
    yield from tallies.cells(str(setting))


def _drawn(setting: Setting, names: Any, law: Any, rng: Any) -> list[tuple[str, str, str | None]]:
    """Return the rows of all users: one record each, or all URLs of one query; or of a search nobody else made."""
    users, step = setting.optin + setting.clients, setting.records
    first = law.reshape(-1, step).sum(axis=1)
    rows: list[tuple[str, str, str | None]] = []
    for user, i in enumerate(rng.choice(len(first) + 1, users, p=[*first, 1 - first.sum()]).tolist()):
        held = names[i * step : (i + 1) * step] if i < len(first) else [(f"of user {user}", None)]
        rows += [(f"u{user}", *record) for record in held]
    return rows
