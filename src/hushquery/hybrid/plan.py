"""HeadPlan: from the log of the opt-in users to a published head list, with what it costs both populations.

The opt-in users pay for the head list and its counts; clients pay for the reports that the list will ask of them. These
are two populations with two accounts, and nothing adds one to the other.

A task with a period does this anew in each epoch. A list that the task keeps for some epochs is only measured again in
the later ones: its records are public already, and clients whose record did not change repeat their answers.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hushquery.core.budget import Budget, Relation, Unit, significant_up
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss, StepParameters
from hushquery.curator.counting import Bound, Keep
from hushquery.errors import AccountMissing, BudgetRefused, UsageError
from hushquery.hybrid.guided_head import GuidedSteps, calibrate_guided_head, draw_guided_head
from hushquery.hybrid.headlist import calibrate_head, draw_head
from hushquery.hybrid.optin import OptInShares, Way, calibrate_split, draw_split, estimate_reused, in_parallel
from hushquery.hybrid.published import PublishedHead, client_population, optin_population, step_in_words
from hushquery.hybrid.records import fresh_key, records_of
from hushquery.hybrid.remeasure import calibrate_kept, measure_kept
from hushquery.log import Log, read_log
from hushquery.noise.sampler import Bits, KeyedBits
from hushquery.plan import Charge, Paid, Plan, Progress
from hushquery.task import OptInPart, Task

if TYPE_CHECKING:
    from hushquery.core.ledger.ledger import Ledger

__all__ = ["HeadPlan", "Sealed", "plan_head"]

# Records of a user that guided selection gives weight to, where the task does not say.
_WEIGHED = 40
# What a refusal shows how to open accounts for.
_EPOCHS = 12


def plan_head(log: Any, task: Task, *, keep: Keep = "random", head: PublishedHead | None = None) -> HeadPlan:
    """Plan the head list of a task from the log of those who opted in. Reads no row.

    Args:
        log: What :func:`hushquery.log.read_log` gives, or anything it reads: rows of opt-in users and nobody else.
        task: A task with the parts [optin] and [head].
        keep: Which of a user's records count: ``random`` ones, or the ``first`` by time.
        head: The list of an earlier period, for a task that keeps its list (``[head] keep``): it is measured again.

    **Guarantee:** for one opt-in user the (epsilon, delta) of :func:`~hushquery.hybrid.headlist.calibrate_head`, or
    for a kept list the pure epsilon of :func:`~hushquery.hybrid.remeasure.calibrate_kept`; for one client the epsilon
    of the task's reports. Two populations, both replace-one (unless the task says otherwise for the first). All of it
    is for one epoch; those of several epochs add up in the ledger.
    """
    secret = log if isinstance(log, Log) else read_log(log)
    if task.optin is None or task.head is None:
        raise UsageError(
            "the task makes no head list", why="it has no [optin] or no [head] part", fix="See `hushquery task new`"
        )
    if not secret.normalises:
        raise UsageError(
            "a head list needs a log in normal form",
            why="clients compare their searches with the list in that form",
            fix="Read the log without --no-normalise, or with normalise=True",
        )
    Budget(task.optin.epsilon, 0 if head is not None else task.optin.delta).warn()
    asked: dict[str, Any] = {
        "epsilon": task.optin.epsilon,
        "records_per_user": task.optin.records_per_user,
        "relation": task.optin.relation,
    }
    if head is not None:
        _check_kept(head, task)
        return HeadPlan(secret, task, task.optin, len(head), ((calibrate_kept(**asked),),), keep, head)
    asked["delta"] = task.optin.delta
    parts: tuple[tuple[StepParameters, ...], ...]
    if task.head.algorithm == "guided":
        guided = calibrate_guided_head(**(asked | {"records_per_user": task.head.weighed or _WEIGHED}))
        parts = ((guided.sketch, guided.selection, guided.counts),)
    elif task.head.mode == "best":
        parts = ((calibrate_head(**asked),),)
    else:
        finding, measuring = calibrate_split(**asked)
        parts = ((finding,), (measuring,))
    return HeadPlan(secret, task, task.optin, task.head.size, parts, keep)


def _check_kept(head: PublishedHead, task: Task) -> None:
    if head.task.id != task.id:
        raise UsageError(
            "the earlier head list is of another task",
            why="clients of this one would not understand it",
            fix="Give a head list of this task, or none",
        )
    if not head.records:
        raise UsageError(
            "the earlier head list is empty, so there is nothing to measure again",
            fix="Leave it out, and a new list is made",
        )
    if head.last_epoch == head.epoch:
        raise UsageError(
            f"the head list of epoch {head.listed} is not kept beyond epoch {head.epoch}",
            why="[head] keep of the task says for how many periods one list stays",
            fix="Leave the earlier list out, and a new one is made",
        )


class Sealed(Protocol):
    """Records that can't be read yet: paid for once, opened after that, with noise that belongs to them.

    Whoever repeats the work after a crash gets the same noise, pays for this noise once, and makes the same list; other
    records have another key, so another price and other noise.
    """

    @property
    def name(self) -> str:
        """What is made of these records, such as the move of an epoch."""

    @property
    def noise_key(self) -> bytes:
        """A secret of 32 bytes that belongs to these records and no others."""

    def open(self) -> AbstractContextManager[Any]:
        """Open the records as rows of a log."""


@dataclass(frozen=True)
class HeadPlan(Plan[PublishedHead]):
    """The head list with all its numbers; nothing has run. Made by :func:`plan_head`.

    Args:
        log: The secret rows of the opt-in users.
        task: The task.
        optin: Its part about them.
        size: The most records of the list.
        parts: The steps on each of the disjoint parts of the opt-in users: one part whose counts are reused, or one
            that finds the list and one that measures it.
        keep: Which of a user's records count.
        kept: The list of an earlier period that is measured again, or None for a new list.
    """

    log: Log = field(repr=False)
    task: Task
    optin: OptInPart
    size: int
    parts: tuple[tuple[StepParameters, ...], ...]
    keep: Keep = "random"
    kept: PublishedHead | None = field(default=None, repr=False)

    @property
    def way(self) -> Way:
        """``reuse`` the counts that found the list, or measure with fresh noise, as one part of ``split`` users does.

        A kept list is measured by everybody: it was found before.
        """
        return "reuse" if len(self.parts) == 1 and self.kept is None else "split"

    @property
    def loss(self) -> Loss:
        """What the opt-in users' account will be charged."""
        return in_parallel([sum((step.loss for step in part), Loss()) for part in self.parts])

    @property
    def client_loss(self) -> Loss:
        """What the clients' account will be charged: the reports of one period, at the task's epsilon."""
        return Loss(pure=(self.task.client.epsilon,))

    @property
    def guarantee(self) -> Guarantee:
        """What the opt-in users are promised for this epoch."""
        detail = self._in_words
        unit = Unit("user", self.optin.relation)
        return Guarantee.of(
            optin_population(self.task),
            "curator",
            unit,
            [Step("headlist", detail, self.loss)],
            delta=self.optin.delta,
        )

    def explain(self) -> str:
        """Describe every step and its cost, for both populations."""
        task, client = self.task, self.task.client
        lines = [f'Plan for the head list of "{task.task.name}":']
        lines += [f"  - {step}" for step in self.log.steps]
        lines.append(
            f"  1. headlist: {self._in_words}; "
            f"{'random ones' if self.keep == 'random' else 'the first by time'} of each user count"
        )
        if self.kept is not None:
            lines.append(f"     all {self.size:,} records of the list of epoch {self.kept.listed} are published again")
        else:
            lines.append(f"     the {self.size:,} records with the largest noisy counts are published")
        if self.way == "split" and self.kept is None:
            lines.append("  2. optin: 95% of the users find the list, the others measure it; nobody does both")
        lines.append(f"  it promises: {self.guarantee.summary()}")
        lines += [f"  warning: {concern}" for concern in self.guarantee.concerns]
        each = "report" if client.records_per_user == 1 else f"{client.records_per_user} reports together"
        lines.append(
            f"  then each client is asked for one period's {each}, at epsilon {float(client.epsilon):g}, replace-one, "
            f'of "{client_population(task)}"; a device loses at most {float(client.lifetime_epsilon):g} in its life'
        )
        if self.kept is not None:
            lines.append("  clients whose record did not change repeat the answer that they have drawn, at no cost")
        if task.task.period is not None:
            lines.append(f"  each epoch is charged to both accounts: {self._how_to_open}")
        return "\n".join(lines)

    def run(
        self,
        ledger: Ledger | str | Path,
        *,
        create: bool = True,
        new_population: bool = False,
        bits: Bits | None = None,
        progress: Progress | None = None,
        epoch: int | None = None,
        users: int | None = None,
    ) -> PublishedHead:
        """Record both spends durably, then read the log, draw the noise and return the head list. A plan runs once.

        Args:
            ledger: A ledger, or the path or URL of one.
            create: Whether missing accounts may be opened: the opt-in users' with this budget as its lifetime, the
                clients' with the task's ``lifetime_epsilon``. For a task with a period that is one epoch of the
                former: open the accounts beforehand.
            new_population: Whether these are other people than those of an account with nearly the same name.
            bits: Test bits; a list made from them is marked as not private.
            progress: Told what is done next.
            epoch: The number of the task's period; the present one by default.
            users: How many users opted in, where that is public; needed under add-remove.
        """
        number = self._checked_epoch(epoch)
        self._check_users(users)
        with self._told_how_to_open():
            return self._run(
                ledger,
                self._charges(number),
                lambda paid: self._read(paid, number, users),
                create=create,
                new_population=new_population,
                bits=bits,
                progress=progress,
            )

    def run_sealed(
        self, ledger: Ledger | str | Path, sealed: Sealed, *, epoch: int, create: bool = True
    ) -> PublishedHead:
        """Run on records that are opened after both spends; the plan's own log only has their columns.

        Each account pays once for the same records, however often this is repeated. The noise comes from their own key,
        which the payment names, so that the same list is made each time: one payment never buys two.

        Args:
            ledger: A ledger, or the path or URL of one.
            sealed: The records.
            epoch: The number of the task's period.
            create: As for :meth:`run`.
        """
        number = self._checked_epoch(epoch)
        self._check_users(None)

        def read(paid: Paid) -> PublishedHead:
            with sealed.open() as rows:
                return replace(self, log=read_log(rows))._read(paid, number, None)

        bits = KeyedBits(sealed.noise_key)
        with self._told_how_to_open():
            return self._run(
                ledger, self._charges(number), read, create=create, bits=bits, once=f"{sealed.name}:{bits.name}"
            )

    def _ask(self) -> dict[str, Any]:
        # Of the opt-in users' counts, those below the list never leave the engine.
        return {"records": records_of(self.log, Bound(self.keep), self.optin.records_per_user)}

    def _charges(self, epoch: int | None = None) -> list[Charge]:
        what = f"epoch {self._checked_epoch(epoch)} of task {self.task.id[:12]}"
        # Clients first: if this is refused, nobody who opted in has paid for a list that is never used.
        return [
            Charge(
                client_population(self.task),
                Relation.REPLACE_ONE,
                self.client_loss,
                f"{what}: one period's reports of a client, at most; given the change times",
                Budget(self.task.client.lifetime_epsilon, 0),
            ),
            Charge(
                optin_population(self.task),
                self.optin.relation,
                self.loss,
                f"{what}: {self._in_words}",
                Budget(self.optin.epsilon, self.optin.delta),
            ),
        ]

    def _read(self, paid: Paid, epoch: int | None = None, users: int | None = None) -> PublishedHead:
        paid.tell("counting the opt-in users' records", 0.0)
        shares = self._draw(paid.bits, users)
        paid.tell("publishing the head list", 0.9)
        # A list that a test's noise found protects nobody, whatever measures it now.
        tested = paid.guarantee.test_noise or (self.kept is not None and self.kept.test_noise)
        since = None if self.kept is None else self.kept.listed
        today = datetime.now(UTC).date()
        return PublishedHead(self.task, shares, self._checked_epoch(epoch), today, tested, since)

    @contextmanager
    def _told_how_to_open(self) -> Iterator[None]:
        """Add to a refusal of a task with a period how its accounts are opened."""
        try:
            yield
        except (BudgetRefused, AccountMissing) as error:
            if self.task.task.period is None:
                raise
            raise type(error)(error.what, why=error.why, fix=f"{error.fix}. {self._how_to_open}") from None

    def _checked_epoch(self, epoch: int | None) -> int:
        """Return the number of the period, and refuse, before anything is spent, one that the list is not for."""
        epoch = self.task.period_at(time.time()) if epoch is None else epoch
        if type(epoch) is not int or epoch < 0:
            raise UsageError("epoch must be a non-negative integer", fix="Use the number of the task's period")
        if self.kept is not None and not self.kept.epoch < epoch <= self.kept.last_epoch:
            raise UsageError(
                f"the earlier head list is not for epoch {epoch}",
                why=f"it was made in epoch {self.kept.listed}, last measured in {self.kept.epoch}, and the task keeps "
                f"it until {self.kept.last_epoch}",
                fix="Use an epoch between, or leave the earlier list out to make a new one",
            )
        return epoch

    def _check_users(self, users: int | None) -> None:
        """Refuse, before anything is spent, a number of users that is missing or not wanted."""
        if users is None and Relation.of(str(self.optin.relation)) is Relation.ADD_REMOVE:
            raise UsageError(
                "how many users opted in must be given",
                why="under add-remove the number of users in the log is itself a secret of the log",
                fix="Give --users, or users=, from the public list of members, or use replace-one",
            )
        if users is not None and (type(users) is not int or users < 1 or self.way == "split"):
            raise UsageError(
                "the number of users who opted in does not fit the plan",
                why="users that are split into parts are counted part by part" if self.way == "split" else "",
                fix="Leave it out" if self.way == "split" else "Give a whole number of at least 1",
            )

    @property
    def _in_words(self) -> str:
        since = None if self.kept is None else self.kept.listed
        return ", then ".join(step_in_words(step, self.way, since) for step in self.parts[0])

    @property
    def _how_to_open(self) -> str:
        """Say how accounts for many epochs are opened: what one epoch may cost, so many times."""
        lists = math.ceil(_EPOCHS / (self.task.head.keep if self.task.head else 1))
        client, optin = _EPOCHS * self.task.client.epsilon, _EPOCHS * self.optin.epsilon
        return (
            f"The accounts of a task with a period are opened before its first epoch, for all of them; for {_EPOCHS}: "
            + _command(client_population(self.task), "replace-one", client, Fraction(0))
            + " and "
            + _command(optin_population(self.task), self.optin.relation, optin, lists * self.optin.delta)
            + ". The clients' account is the worst case: each device also keeps to its own lifetime_epsilon"
        )

    def _draw(self, source: Bits, users: int | None) -> OptInShares:
        bound = Bound(self.keep, fresh_key(source))
        match self.parts:
            case ((LaplaceHistogram() as measuring,),) if self.kept is not None:
                return measure_kept(self.log, self.kept.records, measuring, bound=bound, bits=source, users=users)
            case ((LaplaceHistogram() as step,),):
                return estimate_reused(draw_head(self.log, step, bound=bound, bits=source, users=users), self.size)
            case ((LaplaceHistogram() as finding,), (LaplaceHistogram() as measuring,)):
                return draw_split(self.log, finding, measuring, most=self.size, bound=bound, bits=source)
            case ((GaussianWeights() as sketch, GaussianWeights() as selection, GaussianHistogram() as counts),):
                steps = GuidedSteps(sketch, selection, counts)
                found = draw_guided_head(self.log, steps, bound=bound, bits=source, users=users)
                return estimate_reused(found, self.size)
        raise UsageError("these steps make no head list", fix="Make the plan with plan_head")


def _command(population: str, relation: str, epsilon: Fraction, delta: Fraction) -> str:
    return (
        f"`hushquery budget open --population {shlex.quote(population)} --relation {relation} "
        f"--epsilon {significant_up(epsilon, 6)} --delta {significant_up(delta, 6, scientific=True)}`"
    )
