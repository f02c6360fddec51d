"""Permanent answers of many simulated clients at once, by the rules of :class:`~hushquery.local.device.client.Client`.

The same configuration and the same cell give the same answer, at no cost. A new cell is a new draw and costs the
task's epsilon. When that would take a client over its lifetime budget it gives the empty answer instead, drawn once
for a configuration, at no cost. What a client drew once it keeps, also while it does not report.

All of it is in memory and nobody's secret is used: for simulations only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.intervals import IntArray
from hushquery.local.randomizer import Randomizer
from hushquery.noise.sampler import Bits
from hushquery.task import Task

__all__ = ["Answers", "Memos"]

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """What clients sent in one period.

    Args:
        rows: Their reports, a row for each, as the oracle's ``randomize_many`` gives them.
        drawn: Who drew, and paid for, a new answer.
        empty: Who had nothing left, and sent the answer that says nothing.
    """

    rows: npt.NDArray[Any]
    drawn: BoolArray
    empty: BoolArray


class Memos:
    """What the clients of one task remember, and what they have paid.

    Args:
        task: A task with a list, whose clients report one record each, and all of them in each period.
        clients: How many clients there may be; they are numbered from 0.

    >>> from hushquery.noise.sampler import SeededBits
    >>> from hushquery.task import template
    >>> task = Task.loads(template("setting"))
    >>> memos, cells = Memos(task, 2), np.array([1, 3])
    >>> first = memos.answer(Configuration.of(task), np.array([0, 1]), cells, SeededBits(1))
    >>> again = memos.answer(Configuration.of(task), np.array([0, 1]), cells, SeededBits(2))
    >>> bool((first.rows == again.rows).all()), memos.draws.tolist(), again.drawn.tolist()
    (True, [1, 1], [False, False])
    """

    def __init__(self, task: Task, clients: int) -> None:
        if task.client.records_per_user != 1 or task.client.sampling != 1 or not task.client.enabled:
            raise UsageError(
                "only clients who report one record in each period are simulated",
                fix="Set records_per_user = 1, sampling = 1 and enabled = true",
            )
        self.task = task
        #: How many answers each client has paid for.
        self.draws: IntArray = np.zeros(clients, dtype=np.int64)
        self._books: dict[bytes, _Book] = {}

    @property
    def most(self) -> int:
        """How many answers a client can pay for in its life."""
        return int(Fraction(self.task.client.lifetime_epsilon) // self.task.record_epsilon)

    def spent(self, client: int) -> Fraction:
        """Return what a client has lost, exactly."""
        return int(self.draws[client]) * self.task.record_epsilon

    def answer(self, configuration: Configuration, who: IntArray, cells: IntArray, bits: Bits) -> Answers:
        """Return this period's report of each client.

        Args:
            configuration: What clients run in this period.
            who: Which clients report, each once.
            cells: The cell of each.
            bits: Where the coins come from.
        """
        if configuration.task.id != self.task.id or not configuration.domain.wildcard:
            raise UsageError("these clients have another task", fix="Give a configuration of theirs, with a wildcard")
        if len(np.unique(who)) != len(who) or who.shape != cells.shape:
            raise UsageError("each client reports once in a period", fix="Give each client's number once")
        oracle, k = configuration.oracle, configuration.oracle.k
        book = self._books.setdefault(configuration.digest, _Book.of(oracle))
        at = book.kept.find(who * k + oracle.checked_values(cells))
        drawn = (at < 0) & (self.draws[who] < self.most)
        empty = (at < 0) & ~drawn
        book.kept.add(who[drawn] * k + cells[drawn], oracle.randomize_many(cells[drawn], bits))
        self.draws[who[drawn]] += 1
        first = who[empty][book.empty.find(who[empty]) < 0]
        book.empty.add(first, oracle.randomize_many(np.full(len(first), k - 1), bits))
        rows = book.kept.rows[book.kept.find(who * k + cells)]
        rows[empty] = book.empty.rows[book.empty.find(who[empty])]
        return Answers(rows, drawn, empty)


@dataclass
class _Kept:
    """Rows by a number: sorted numbers, and where the row of each is."""

    rows: npt.NDArray[Any]
    keys: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    place: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def find(self, keys: IntArray) -> IntArray:
        """Return the place of each key's row, or -1."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.place[at], -1)

    def add(self, keys: IntArray, rows: npt.NDArray[Any]) -> None:
        """Keep rows under keys that have none."""
        every = np.concatenate([self.keys, keys])
        place = np.concatenate([self.place, np.arange(len(self.rows), len(self.rows) + len(rows))])
        order = np.argsort(every, kind="stable")
        self.keys, self.place = every[order], place[order]
        self.rows = np.concatenate([self.rows, rows])


@dataclass
class _Book:
    """The answers to one configuration: by client and cell, and the empty ones by client."""

    kept: _Kept
    empty: _Kept

    @classmethod
    def of(cls, oracle: Randomizer) -> _Book:
        none = oracle.unpack_many(np.empty((0, oracle.report_bytes), dtype=np.uint8))
        return cls(_Kept(none), _Kept(none))
