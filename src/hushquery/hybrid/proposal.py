"""The next epoch's head list, kept or new: what each would cost both populations, and which is advised.

Nothing here reads a record or spends anything: costs are those that :meth:`HeadPlan.run` would charge, and what the
list misses is taken from published releases, so it is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from hushquery.core.budget import Relation, finite
from hushquery.core.ledger.entries import Account
from hushquery.core.loss import Loss
from hushquery.errors import UsageError
from hushquery.hybrid.plan import client_loss, optin_loss
from hushquery.hybrid.published import PublishedHead, client_population, optin_population
from hushquery.task import Task

__all__ = ["Choice", "Cost", "Proposal", "propose"]

Kind = Literal["keep", "new"]
_MOST_TIMES = 100  # an account that allows so many epochs is not counted further

_SILENT = "devices that have answered every list have no answer left for a new one, and would count as everything else"
_CHANGE = (
    "[head] keep is part of the task's id: a task file with another keep is a new task, for which every device answers "
    "anew"
)


@dataclass(frozen=True)
class Cost:
    """What one epoch costs a population, and its account, if there is one."""

    population: str
    loss: Loss  #: exactly what the ledger will record
    delta: Fraction  #: the delta at which its epsilon is stated
    account: Account | None

    @property
    def fits(self) -> bool:
        """Whether the account allows it."""
        return self.account is not None and self.account.allows(self.loss)

    @property
    def times(self) -> int:
        """How many such epochs the account allows, counted up to 100."""
        account, many = self.account, 0
        while account is not None and many < _MOST_TIMES and account.allows(self.loss):
            account, many = account.after(self.loss), many + 1
        return many

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data: the cost, and what it would leave of the account."""
        after = self.account.after(self.loss) if self.account is not None and self.fits else None
        return {
            "population": self.population,
            "epsilon": finite(self.loss.epsilon(self.delta)),
            "delta": float(self.delta),
            "has_account": self.account is not None,
            "fits": self.fits,
            "epochs": self.times,
            "left_epsilon": None if after is None else after.remaining_epsilon,
            "left_delta": None if after is None else after.remaining_delta,
        }


@dataclass(frozen=True)
class Choice:
    """One way to get the next epoch's list."""

    kind: Kind
    optin: Cost
    clients: Cost  #: the account's worst case: each epoch counts as a new answer
    why_not: str  #: why the task does not allow it; empty if it does

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "optin": self.optin.to_json(),
            "clients": self.clients.to_json(),
            "possible": not self.why_not,
            "why_not": self.why_not or None,
        }


@dataclass(frozen=True)
class Missed:
    """The share of searches that a list did not have, as the release of an epoch says."""

    epoch: int
    share: float
    low: float
    high: float

    @classmethod
    def read(cls, manifest: Mapping[str, Any]) -> Missed | None:
        """Read it from the manifest of a blended release; None where an earlier hushquery did not state it."""
        stated = manifest.get("parameters", {})
        if not {"epoch", "rest", "rest_low", "rest_high"} <= stated.keys():
            return None
        return cls(stated["epoch"], stated["rest"], stated["rest_low"], stated["rest_high"])


@dataclass(frozen=True)
class Proposal:
    """Both choices for an epoch's head list; made by :func:`propose`."""

    task: Task
    epoch: int
    head: PublishedHead | None  #: the latest list
    keep: Choice
    new: Choice
    lists: int  #: how many lists were published so far
    first: Missed | None  #: what the latest list missed in its first release
    last: Missed | None  #: what it missed in its latest
    begun: bool = False  #: whether the list is being made, so that it may be paid for already

    @property
    def will(self) -> Kind:
        """What the collector will do, by the task."""
        return "new" if self.keep.why_not else "keep"

    @property
    def answers_left(self) -> int:
        """How many new answers a device has left that has answered every list once."""
        client = self.task.client
        return max(0, int(client.lifetime_epsilon / client.epsilon) - self.lists)

    @property
    def advice(self) -> tuple[Kind, str]:
        """Which list is advised, and why."""
        if self.keep.why_not:
            return "new", self.keep.why_not + ("" if self.answers_left else f"; but {_SILENT}")
        if not self.answers_left:
            return "keep", _SILENT
        if self.keep.optin.fits and not (self.new.optin.fits and self.new.clients.fits):
            return "keep", "the accounts do not allow a new list"
        if self.last is None or self.first is None or self.last.epoch == self.first.epoch:
            return "keep", "no release shows yet that the list has aged, and a new one costs every device an answer"
        before, now = f"{self.first.low:.0%} to {self.first.high:.0%}", f"{self.last.low:.0%} to {self.last.high:.0%}"
        if self.last.low > self.first.high:
            return "new", f"the list misses more searches than when it was made ({now} of them, and {before} at first)"
        return "keep", (
            f"no release shows that the list misses more searches than when it was made ({now} of them, and {before} "
            "at first), and a new one costs every device an answer"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        client, head = self.task.client, self.head
        advised, why = self.advice
        listed = None
        if head is not None:
            listed = {"made": head.listed, "kept_until": head.last_epoch, "records": len(head), "lists": self.lists}
        return {
            "epoch": self.epoch,
            "begun": self.begun,
            "will": self.will,
            "advice": advised,
            "why": why,
            "change": None if advised == self.will else _CHANGE,
            "list": listed,
            "missed": None if self.last is None else vars(self.last),
            "missed_at_first": None if self.first is None else vars(self.first),
            "device": {
                "answer_epsilon": float(client.epsilon),
                "lifetime_epsilon": float(client.lifetime_epsilon),
                "answers_left": self.answers_left,
            },
            "keep": self.keep.to_json(),
            "new": self.new.to_json(),
        }


def propose(
    task: Task,
    epoch: int,
    *,
    head: PublishedHead | None = None,
    lists: int = 0,
    manifests: Sequence[Mapping[str, Any]] = (),
    accounts: Iterable[Account] = (),
    begun: bool = False,
) -> Proposal:
    """Compare keeping the latest head list in an epoch with making a new one. Spends nothing and reads no record.

    Args:
        task: A task with the parts [optin] and [head].
        epoch: The number of the period that the list is for.
        head: The latest published list.
        lists: How many different lists were published so far.
        manifests: Those of the releases made with the latest list, oldest first.
        accounts: The ledger's accounts; others than those of the task's two populations are passed over.
        begun: Whether the list is being made already.

    >>> from hushquery.task import template
    >>> task = Task.loads(template("searches"))
    >>> made = propose(task, 7)
    >>> made.advice[0], made.new.optin.loss.fits(task.optin.epsilon, task.optin.delta)
    ('new', True)
    """
    if task.optin is None or task.head is None:
        raise UsageError(
            "the task has no head list", why="it has no [optin] or no [head] part", fix="Its list is its domain"
        )
    known = {(account.population, account.relation): account for account in accounts}
    optin, delta = (optin_population(task), Relation.of(task.optin.relation)), task.optin.delta
    clients = (client_population(task), Relation.REPLACE_ONE)
    of_client = Cost(clients[0], client_loss(task), Fraction(0), known.get(clients))

    def choice(kind: Kind, why_not: str = "") -> Choice:
        loss = optin_loss(task, again=kind == "keep")
        cost = Cost(optin[0], loss, Fraction(0) if loss.is_pure else delta, known.get(optin))
        return Choice(kind, cost, of_client, why_not)

    missed = [found for one in manifests if (found := Missed.read(one))]
    return Proposal(
        task=task,
        epoch=epoch,
        head=head,
        keep=choice("keep", _why_not(task, head, epoch)),
        new=choice("new"),
        lists=lists,
        first=missed[0] if missed else None,
        last=missed[-1] if missed else None,
        begun=begun,
    )


def _why_not(task: Task, head: PublishedHead | None, epoch: int) -> str:
    """Return why no list is kept for an epoch; as the collector decides (``EpochWork.publish_head``)."""
    if head is None:
        return "no list has been published yet"
    if not head.records:
        return "the latest list is empty"
    if epoch > head.last_epoch:
        keep = task.head.keep if task.head else 1
        return f"the task keeps a list for {keep} period{'s' if keep > 1 else ''} ([head] keep)"
    return ""
