"""A task over many epochs, simulated: what its people lose in all, how good each epoch is, and who has fallen silent.

The opt-in half is the real one (plan, ledger, exact noise); every client goes through the real randomizer and keeps its
answers by the rules of the real client (:mod:`hushquery_experiments.epochs.memo`). Only files and HTTP are left out.

Somebody who moves is one person in two roles. Each role has its own account and its own kind of guarantee, so the two
numbers are shown apart. For the person behind both they add up (basic composition: both are functions of this person's
records, drawn with independent coins), and that sum is shown as such and as nothing else. All numbers are for
replace-one, given when the person was in which group and, for clients, given the change times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Budget, round_up
from hushquery.hybrid.plan import plan_head
from hushquery.hybrid.published import (
    PublishedHead,
    blended_release,
    blended_shares,
    client_population,
    optin_population,
)
from hushquery.local.intervals import IntArray
from hushquery.noise.sampler import Bits, SeededBits
from hushquery.publish.trends import query_trends
from hushquery.task import Task
from hushquery_experiments.epochs.memo import Memos
from hushquery_experiments.epochs.people import Epoch, number_of
from hushquery_experiments.ndcg import list_scores

if TYPE_CHECKING:
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.release import Release

__all__ = [
    "ChangeRow",
    "EpochRow",
    "Followed",
    "Spending",
    "Total",
    "changes",
    "epochs_task",
    "follow",
    "open_accounts",
]

#: Told what is done next, and the fraction that is done.
Progress = Callable[[str, float], None]


def epochs_task(
    keep: int,
    *,
    epsilon: Fraction = Fraction(2),
    delta: Fraction = Fraction(1, 100_000),
    lifetime: Fraction = Fraction(8),
    size: int = 20,
) -> Task:
    """Return the task that is simulated: a weekly list that is kept for ``keep`` periods.

    Args:
        keep: For how many periods one list stays.
        epsilon: Of one period, for an opt-in user and for a client.
        delta: Of a period with a new list, for an opt-in user.
        lifetime: What a device may lose in its life.
        size: The most records of a list.
    """
    return Task.make(
        {
            "task": {"name": "weekly-searches", "population": "simulated people", "period": "7d"},
            "optin": {"epsilon": str(epsilon), "delta": str(delta)},
            "client": {"epsilon": str(epsilon), "lifetime_epsilon": str(lifetime)},
            "head": {"size": size, "keep": keep},
        }
    )


def open_accounts(ledger: Ledger, task: Task, epochs: int) -> None:
    """Open both accounts with what so many epochs may cost at most, as a steward does before the first one."""
    if task.optin is None:
        raise ValueError(task)
    ledger.open_account(client_population(task), "replace-one", Budget(epochs * task.client.epsilon, 0))
    whole = Budget(epochs * task.optin.epsilon, epochs * task.optin.delta)
    ledger.open_account(optin_population(task), task.optin.relation, whole)


@dataclass(frozen=True)
class EpochRow:
    """One epoch.

    Attributes:
        epoch: Its number, from 0.
        listed: The epoch that its head list was made in.
        records: The length of the list.
        optin_users: How many opt-in users there are.
        clients: How many clients there are.
        drawn: How many clients drew, and paid for, a new answer.
        silent: How many clients had nothing left and sent the answer that says nothing.
        l1: The distance of the blended shares from the true ones.
        ndcg: The paper's NDCG of the list.
        hit_rate: The share of searches that are for a listed record.
        typical: The epsilon that the median of those who have always been clients has spent so far.
        worst: The most that any of them has spent so far.
    """

    epoch: int
    listed: int
    records: int
    optin_users: int
    clients: int
    drawn: int
    silent: int
    l1: float
    ndcg: float
    hit_rate: float
    typical: float
    worst: float


@dataclass(frozen=True)
class Total:
    """What a group of people lost over all epochs: the two roles apart, and the sum for the person.

    Attributes:
        group: Which people.
        people: How many there are.
        optin_typical: The median epsilon that they lost as opt-in users.
        optin_worst: The most.
        optin_delta: The largest delta of one of them.
        client_typical: The median epsilon that they lost as clients.
        client_worst: The most.
        person_typical: The median of a person's sum.
        person_worst: The most.
    """

    group: str
    people: int
    optin_typical: float
    optin_worst: float
    optin_delta: float
    client_typical: float
    client_worst: float
    person_typical: float
    person_worst: float


@dataclass(frozen=True)
class Followed:
    """What came of a task over all epochs.

    Attributes:
        keep: For how many periods one list stays.
        epochs: Each epoch.
        totals: What people lost.
        client_account: The epsilon that the ledger charged clients: the worst case.
        optin_account: The epsilon that the ledger charged opt-in users.
        optin_delta: At this delta.
        releases: The blended release of each epoch.
        true_shares: The true shares of each epoch's listed records.
    """

    keep: int
    epochs: tuple[EpochRow, ...]
    totals: tuple[Total, ...]
    client_account: float
    optin_account: float
    optin_delta: float
    releases: tuple[Release, ...]
    true_shares: tuple[dict[tuple[str, str], float], ...]


class Spending:
    """What each person has lost, in both roles, in whole steps: exact, however many epochs there are.

    Args:
        task: The task.
        people: How many people there may be.
    """

    def __init__(self, task: Task, people: int) -> None:
        self.memos = Memos(task, people)
        #: In how many epochs each person was there.
        self.present = np.zeros(people, dtype=np.int64)
        #: In how many epochs each person was an opt-in user.
        self.opted = np.zeros(people, dtype=np.int64)
        self._paid: list[tuple[Fraction, Fraction]] = []
        self._groups: list[IntArray] = []

    def add(self, epoch: Epoch, epsilon: Fraction, delta: Fraction) -> None:
        """Charge one epoch to its opt-in users, and note who was there."""
        users = epoch.who[epoch.optin]
        self.present[epoch.who] += 1
        self.opted[users] += 1
        self._paid.append((epsilon, delta))
        self._groups.append(users)

    @property
    def always_clients(self) -> IntArray:
        """Those who were there from the first epoch on and never opted in."""
        return np.flatnonzero((self.present == len(self._paid)) & (self.opted == 0))

    def client(self, who: IntArray) -> npt.NDArray[np.float64]:
        """Return what people lost as clients, rounded up."""
        steps = [round_up(n * self.memos.task.record_epsilon) for n in range(self.memos.most + 1)]
        return np.array(steps)[self.memos.draws[who]]

    def totals(self) -> tuple[Total, ...]:
        """Sum up over all epochs, group by group."""
        last, moved = len(self._paid), (self.opted > 0) & (self.opted < self.present)
        stayed = self.present == last
        groups = {
            "clients all the time": stayed & (self.opted == 0),
            "opt-in users all the time": stayed & (self.opted == last),
            "moved, and there all the time": stayed & moved,
            "everybody who was ever there": self.present > 0,
        }
        return tuple(self._total(name, np.flatnonzero(chosen)) for name, chosen in groups.items() if chosen.any())

    def _total(self, group: str, who: IntArray) -> Total:
        epsilon, delta = self._optin()
        optin, client = epsilon[who], self.client(who)
        both = optin + client
        return Total(
            group,
            len(who),
            _median(optin),
            float(optin.max()),
            float(delta[who].max()),
            _median(client),
            float(client.max()),
            _median(both),
            float(both.max()),
        )

    def _optin(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return what each person lost as an opt-in user, rounded up: the epochs' costs, each so many times."""
        kinds = sorted(set(self._paid))
        times = np.zeros((len(self.present), len(kinds)), dtype=np.int64)
        for paid, users in zip(self._paid, self._groups, strict=True):
            times[users, kinds.index(paid)] += 1
        found, of = np.unique(times, axis=0, return_inverse=True)
        sums = [
            [
                round_up(sum((int(n) * kind[i] for n, kind in zip(row, kinds, strict=True)), Fraction(0)))
                for row in found
            ]
            for i in (0, 1)
        ]
        return np.array(sums[0])[of.ravel()], np.array(sums[1])[of.ravel()]


def _median(values: npt.NDArray[np.float64]) -> float:
    """Return a median that somebody really has, the higher one of two."""
    return float(np.sort(values)[len(values) // 2])


def follow(
    epochs: Sequence[Epoch], task: Task, ledger: Ledger, *, bits: Bits | None = None, progress: Progress | None = None
) -> Followed:
    """Run a task over all epochs of some people: head list, clients' reports, blend, one after the other.

    Args:
        epochs: From :func:`hushquery_experiments.epochs.people.history`.
        task: From :func:`epochs_task`, or one like it.
        ledger: With accounts that last for all epochs; see :func:`open_accounts`.
        bits: Where the noise comes from; a seed by default, as nobody is to be protected here.
        progress: Told what is done next.
    """
    source, tell = bits or SeededBits(0), progress or (lambda *_: None)
    people = 1 + max(int(epoch.who.max()) for epoch in epochs)
    spending = Spending(task, people)
    head: PublishedHead | None = None
    rows, releases, shares = [], [], []
    for number, epoch in enumerate(epochs):
        tell(f"list kept {task.head.keep if task.head else 1}: epoch {number + 1}", number / len(epochs))
        kept = head if head is not None and number <= head.last_epoch else None
        plan = plan_head(epoch.log, task, head=kept)
        head = plan.run(ledger, epoch=number, create=False, bits=source)
        spending.add(epoch, sum(plan.loss.pure, Fraction(0)), plan.loss.threshold_delta)
        asked = ~epoch.optin
        cells = _cells(head, epoch.record[asked])
        answers = spending.memos.answer(head.configuration, epoch.who[asked], cells, source)
        support = head.configuration.oracle.support(answers.rows)
        blended = blended_shares(head, support, len(cells))
        truth, places = epoch.truth(head.records)
        scores = list_scores(truth, places, blended.share)
        spent = spending.client(spending.always_clients)
        rows.append(
            EpochRow(
                epoch=number,
                listed=head.listed,
                records=len(head),
                optin_users=int(epoch.optin.sum()),
                clients=len(cells),
                drawn=int(answers.drawn.sum()),
                silent=int(answers.empty.sum()),
                l1=scores.l1,
                ndcg=scores.ndcg,
                hit_rate=scores.hit_rate,
                typical=_median(spent),
                worst=float(spent.max()),
            )
        )
        releases.append(blended_release(head, blended))
        true = truth.count[places] / truth.users
        shares.append(dict(zip(head.records, true.tolist(), strict=True)))
    if task.optin is None or task.head is None:
        raise ValueError(task)
    clients = ledger.account(client_population(task), "replace-one").spent
    optin = ledger.account(optin_population(task), task.optin.relation)
    delta = optin.terms.budget.delta
    return Followed(
        task.head.keep,
        tuple(rows),
        spending.totals(),
        clients.epsilon(0),
        optin.spent.epsilon(delta),
        round_up(delta),
        tuple(releases),
        tuple(shares),
    )


def _cells(head: PublishedHead, records: IntArray) -> IntArray:
    """Return the cell of each client's record: that of the list, or the wildcard."""
    domain = head.configuration.domain
    listed = np.array([number_of(*record) for record in head.records], dtype=np.int64)
    cell = np.array([domain.cell(*record) for record in head.records], dtype=np.int64)
    order = np.argsort(listed)
    at = np.minimum(np.searchsorted(listed[order], records), len(listed) - 1)
    return np.where(listed[order][at] == records, cell[order][at], len(domain) - 1)


@dataclass(frozen=True)
class ChangeRow:
    """How the share of a query changed from the first epoch to the last, as ``trends`` says and in truth.

    Attributes:
        query: The query.
        true: How the true share of its listed records changed.
        change: The estimate.
        stderr: Its standard error, as ``trends`` gives it.
        low: The lower end of the interval.
        high: The upper end.
        significant: Whether the interval leaves out zero.
    """

    query: str
    true: float
    change: float
    stderr: float
    low: float
    high: float
    significant: bool

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.true <= self.high


def changes(followed: Followed, first: int = 0, last: int = -1, *, level: float = 0.95) -> tuple[ChangeRow, ...]:
    """Compare two epochs' releases by ``trends`` and set the truth beside it, the surest changes first.

    Args:
        followed: From :func:`follow`.
        first: The earlier epoch.
        last: The later one.
        level: The coverage of the intervals.
    """
    found = query_trends([followed.releases[first], followed.releases[last]], limit=10_000, level=level)
    before, after = (_by_query(followed.true_shares[i]) for i in (first, last))
    return tuple(
        ChangeRow(
            row.query,
            after[row.query] - before[row.query],
            row.change,
            row.stderr,
            row.low,
            row.high,
            row.significant,
        )
        for row in found.changes
    )


def _by_query(shares: dict[tuple[str, str], float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (query, _), share in shares.items():
        sums[query] = sums.get(query, 0.0) + share
    return sums
