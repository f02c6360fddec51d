"""Plan the head list of a task from the opt-in users' log, with what it costs both populations.

Opt-in users and clients have separate accounts that are never added up. A list that the task keeps is only measured
again in later epochs, and clients whose record did not change repeat their answers (docs/epochs.md).
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hushquery.core.budget import REFUSED_EPSILON, Budget, Relation, Unit, in_full, significant_up
from hushquery.core.calibration import WEIGHT_GRID
from hushquery.core.description import UNDESCRIBED, Description
from hushquery.core.fitting import least_epsilon
from hushquery.core.guarantee import Step
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss, StepParameters
from hushquery.curator.counting import Bound, Keep
from hushquery.errors import AccountMissing, BudgetRefused, UsageError
from hushquery.hybrid.headlist import (
    Method,
    OptInShares,
    calibrate_head,
    check_public_users,
    draw_head,
    estimate_reused,
    fresh_key,
    parallel_loss,
    records_of,
)
from hushquery.hybrid.published import PublishedHead, client_population, described, optin_population
from hushquery.hybrid.remeasure import (
    GuidedSteps,
    calibrate_guided_head,
    calibrate_remeasure,
    calibrate_split,
    draw_guided_head,
    draw_split,
    remeasure,
)
from hushquery.log import Log, read_log
from hushquery.noise.sampler import Bits, KeyedBits
from hushquery.plan import Charge, Paid, Plan, Progress
from hushquery.task import OptInPart, Task

if TYPE_CHECKING:
    from hushquery.core.ledger.ledger import Ledger

# Records of a user that guided selection gives weight to, where the task does not say.
_WEIGHED = 40
_EPOCHS = 12


@runtime_checkable
class SealedRecords(Protocol):
    """Opt-in records that open once they are paid for; their key makes retries draw the same noise and pay once."""

    @property
    def name(self) -> str:
        """What is made of these records, such as the move of an epoch."""

    @property
    def noise_key(self) -> bytes:
        """A secret of 32 bytes that belongs to these records and no others."""

    def open(self) -> AbstractContextManager[Any]:
        """Open the records as rows of a log."""


def plan_head(
    log: Any,
    task: Task | str | Path,
    *,
    keep: Keep = "random",
    head: PublishedHead | None = None,
    description: Description | None = None,
) -> HeadPlan:
    """Plan the head list of a task from the log of opt-in users. Reads no row.

    Args:
        log: Rows of opt-in users only (:func:`hushquery.read_log`, or anything it reads), or :class:`SealedRecords`.
        task: A task with the parts [optin] and [head], or its file.
        keep: Which of a user's records count: ``random`` ones, or the ``first`` by time.
        head: The list of an earlier period, for a task that keeps its list (``[head] keep``): it is measured again.
        description: Its title and period go into the ledger's history; the release of ``blend`` has its own.

    **Guarantee:** per epoch, the task's (epsilon, delta) for one opt-in user, pure epsilon where an earlier list is
    measured again, and the epsilon of its reports for one client. Two populations, both replace-one (unless the task
    says otherwise for the first); epochs add up in the ledger.
    """
    task = task if isinstance(task, Task) else Task.load(task)
    secret = log if isinstance(log, Log | SealedRecords) else read_log(log)
    if task.optin is None or task.head is None:
        raise UsageError(
            "the task makes no head list", why="it has no [optin] or no [head] part", fix="See `hushquery task new`"
        )
    if isinstance(secret, Log) and not secret.normalises:
        raise UsageError(
            "a head list needs a log in normal form",
            why="clients compare their searches with the list in that form",
            fix="Read the log without --no-normalise, or with normalise=True",
        )
    about = description or UNDESCRIBED
    about = about.within(secret.times) if isinstance(secret, Log) else about
    Budget(task.optin.epsilon, 0 if head is not None else task.optin.delta).warn()
    if head is not None:
        _check_earlier(head, task)
    parts = _calibrated(task, task.optin, again=head is not None)
    return HeadPlan(secret, task, task.optin, task.head.size if head is None else len(head), parts, keep, head, about)


def _calibrated(task: Task, optin: OptInPart, *, again: bool) -> tuple[tuple[StepParameters, ...], ...]:
    """Choose the noise on each part of the opt-in users, or that of measuring an earlier list ``again``."""
    common: dict[str, Any] = {
        "epsilon": optin.epsilon,
        "records_per_user": optin.records_per_user,
        "relation": optin.relation,
    }
    if again:
        return ((calibrate_remeasure(**common),),)
    common["delta"] = optin.delta
    if task.head is not None and task.head.algorithm == "guided":
        guided = calibrate_guided_head(**(common | {"records_per_user": task.head.weighed or _WEIGHED}))
        return ((guided.sketch, guided.selection, guided.counts),)
    if task.head is None or task.head.mode == "best":
        return ((calibrate_head(**common),),)
    finding, measuring = calibrate_split(**common)
    return ((finding,), (measuring,))


def client_loss(task: Task) -> Loss:
    """Return what an epoch costs a client at most; the ledger counts each as a new answer."""
    return Loss(pure=(task.client.epsilon,))


def optin_loss(task: Task, *, again: bool) -> Loss:
    """Return what an epoch costs an opt-in user: a new list, or an earlier one measured ``again``."""
    if task.optin is None:
        raise UsageError("the task has no [optin] part", fix="Add one: see `hushquery task new`")
    return parallel_loss(_calibrated(task, task.optin, again=again))


def _threshold(parts: tuple[tuple[StepParameters, ...], ...]) -> float:
    """Return the threshold of a head list in users; 0 where nothing is selected."""
    for step in parts[0]:
        if isinstance(step, GaussianWeights) and step.threshold is not None:
            return step.threshold / WEIGHT_GRID
        if isinstance(step, LaplaceHistogram) and step.threshold is not None:
            return step.threshold
    return 0


def _check_earlier(head: PublishedHead, task: Task) -> None:
    if head.task.id != task.id:
        raise UsageError(
            "the earlier head list is of another task",
            why="clients of this one would not understand it",
            fix="Use a head list of this task, or none",
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


@dataclass(frozen=True, repr=False)
class HeadPlan(Plan[PublishedHead]):
    """The head list with all its numbers; nothing has run. Made by :func:`plan_head`."""

    log: Log | SealedRecords  #: rows of the opt-in users, or records that are opened once they are paid for
    task: Task
    optin: OptInPart  #: the task's part about them
    size: int  #: the most records of the list
    #: The steps on each of the disjoint parts of the opt-in users: one part whose counts are reused, or one that finds
    #: the list and one that measures it.
    parts: tuple[tuple[StepParameters, ...], ...]
    keep: Keep = "random"  #: which of a user's records count
    earlier: PublishedHead | None = None  #: the list of an earlier period that is measured again
    description: Description = UNDESCRIBED  #: for the ledger's history; the period of the opt-in users' rows

    @property
    def population(self) -> str:
        """Those who opted in."""
        return optin_population(self.task)

    @property
    def unit(self) -> Unit:
        """One opt-in user."""
        return Unit("user", self.optin.relation)

    @property
    def budget(self) -> Budget:
        """What the opt-in users may pay for one epoch."""
        return Budget(self.optin.epsilon, self.optin.delta)

    @property
    def method(self) -> Method:
        """``reuse`` the counts that found the list, or ``split``: measure with fresh noise, as every earlier list."""
        return "reuse" if len(self.parts) == 1 and self.earlier is None else "split"

    def _steps(self) -> list[Step]:
        since = None if self.earlier is None else self.earlier.listed
        detail = ", then ".join(described(step, self.method, since) for step in self.parts[0])
        return [Step("headlist", detail, parallel_loss(self.parts))]

    def _explained(self) -> list[str]:
        task, client = self.task, self.task.client
        chosen = "random ones" if self.keep == "random" else "the first by time"
        lines = [f'head list of "{task.task.name}"']
        lines += [f"- {step}" for step in self.log.explained] if isinstance(self.log, Log) else []
        lines.append(f"1. headlist: {self._steps()[0].detail}; {chosen} of each user count")
        if self.earlier is not None:
            lines.append(f"   all {self.size:,} records of the list of epoch {self.earlier.listed} are published again")
        else:
            lines.append(f"   the {self.size:,} records with the largest noisy counts are published")
        if self.method == "split" and self.earlier is None:
            lines.append("2. optin: 95% of the users find the list, the others measure it; nobody does both")
        each = "report" if client.records_per_user == 1 else f"{client.records_per_user} reports together"
        lines.append(
            f"then each client is asked for one period's {each}, at epsilon {float(client.epsilon):g}, replace-one, "
            f'of "{client_population(task)}"; a device loses at most {float(client.lifetime_epsilon):g} in its life'
        )
        if self.earlier is not None:
            lines.append("clients whose record did not change repeat the answer that they have drawn, at no cost")
        if task.task.period is not None:
            lines.append(f"each epoch is charged to both accounts: {self._how_to_open}")
        return lines

    def run(
        self,
        ledger: Ledger | str | Path,
        *,
        create: bool = True,
        new_population: bool = False,
        users: int | None = None,
        anyway: bool = False,
        bits: Bits | None = None,
        progress: Progress | None = None,
        epoch: int | None = None,
    ) -> PublishedHead:
        """Record both spends durably, then read the log, draw the noise and return the head list. A plan runs once.

        Sealed records bring their own noise key, which the payment names: repeating the run pays once and makes the
        same list. ``epoch`` defaults to the present period; ``users`` is the public number of opt-in users, needed
        under add-remove. Missing accounts are opened unless ``create`` is False, the opt-in users' with one epoch's
        budget: open those of a task with a period beforehand. Otherwise as :meth:`hushquery.plan.Plan.run`.
        """
        epoch, once = self._checked_epoch(epoch), None
        self._check_users(users)
        if not isinstance(self.log, Log):
            keyed = KeyedBits(self.log.noise_key)
            bits, once = keyed, f"{self.log.name}:{keyed.name}"
        try:
            return self._run(
                ledger,
                self._charges(epoch),
                lambda paid: self._read(paid, epoch, users),
                create=create,
                new_population=new_population,
                users=users,
                anyway=anyway,
                bits=bits,
                progress=progress,
                once=once,
            )
        except (BudgetRefused, AccountMissing) as error:
            if self.task.task.period is None:
                raise
            raise type(error)(error.what, why=error.why, fix=f"{error.fix}. {self._how_to_open}") from None

    def _ask(self) -> dict[str, Any]:
        if not isinstance(self.log, Log):
            return {}  # what was sealed has the columns of a record
        # Of the opt-in users' counts, those below the list never leave the engine.
        return {"records": records_of(self.log, Bound(self.keep), self.optin.records_per_user)}

    def _charges(self, epoch: int | None = None) -> list[Charge]:
        what = f"epoch {self._checked_epoch(epoch)} of task {self.task.id[:12]}"
        # Clients first: if this is refused, nobody who opted in has paid for a list that is never used.
        return [
            Charge(
                client_population(self.task),
                Relation.REPLACE_ONE,
                client_loss(self.task),
                f"{what}: one period's reports of a client, at most; given the change times",
                Budget(self.task.client.lifetime_epsilon, 0),
            ),
            Charge(
                self.population,
                self.optin.relation,
                self.loss,
                f"{what}: {self._steps()[0].detail}",
                self.budget,
                self.log.paths if isinstance(self.log, Log) else (),
            ),
        ]

    def _promises(self) -> list[Budget]:
        return [self.budget, Budget(self.task.client.epsilon)]

    def _check_data(self) -> None:
        if isinstance(self.log, Log):
            self.log.check_files()

    def _out_of_reach(self, users: int) -> str | None:
        threshold = _threshold(self.parts)
        return f"The threshold for records is {in_full(threshold, 5)} users" if threshold > users else None

    def _loss_at(self, budget: Budget) -> Loss:
        optin = self.optin.model_copy(update={"epsilon": budget.epsilon, "delta": budget.delta})
        return parallel_loss(_calibrated(self.task, optin, again=self.earlier is not None))

    def _least_epsilon(self, users: int, delta: Fraction | None = None) -> float | None:
        optin = self.optin if delta is None else self.optin.model_copy(update={"delta": delta})

        def threshold_at(epsilon: Fraction) -> float:
            return _threshold(_calibrated(self.task, optin.model_copy(update={"epsilon": epsilon}), again=False))

        return None if self.earlier is not None else least_epsilon(threshold_at, users, self.budget.epsilon)

    def _read(self, paid: Paid, epoch: int | None = None, users: int | None = None) -> PublishedHead:
        paid.tell("counting the opt-in users' records", 0.0)
        with self._opened() as log:
            shares = self._draw(log, paid.bits, users)
        paid.tell("publishing the head list", 0.9)
        # A list that a test's noise found protects nobody, whatever measures it now.
        tested = paid.guarantee.test_noise or (self.earlier is not None and self.earlier.test_noise)
        since = None if self.earlier is None else self.earlier.listed
        today = datetime.now(UTC).date()
        return PublishedHead(self.task, shares, self._checked_epoch(epoch), today, tested, since)

    @contextmanager
    def _opened(self) -> Iterator[Log]:
        if isinstance(self.log, Log):
            yield self.log
        else:
            with self.log.open() as rows:
                yield read_log(rows)

    def _draw(self, log: Log, source: Bits, users: int | None) -> OptInShares:
        bound = Bound(self.keep, fresh_key(source))
        match self.parts:
            case ((LaplaceHistogram() as step,),) if self.earlier is not None:
                return remeasure(log, self.earlier.records, step, bound=bound, bits=source, users=users)
            case ((LaplaceHistogram() as step,),):
                return estimate_reused(draw_head(log, step, bound=bound, bits=source, users=users), self.size)
            case ((LaplaceHistogram() as finding,), (LaplaceHistogram() as measuring,)):
                return draw_split(log, finding, measuring, most=self.size, bound=bound, bits=source)
            case ((GaussianWeights() as sketch, GaussianWeights() as selection, GaussianHistogram() as counts),):
                steps = GuidedSteps(sketch, selection, counts)
                guided = draw_guided_head(log, steps, bound=bound, bits=source, users=users)
                return estimate_reused(guided, self.size)
        raise UsageError("these steps make no head list", fix="Make the plan with plan_head")

    def _checked_epoch(self, epoch: int | None) -> int:
        """Return the number of the period, and refuse, before anything is spent, one that the list is not for."""
        epoch = self.task.period_at(time.time()) if epoch is None else epoch
        if type(epoch) is not int or epoch < 0:
            raise UsageError("epoch must be a non-negative integer", fix="Use the number of the task's period")
        earlier = self.earlier
        if earlier is not None and not earlier.epoch < epoch <= earlier.last_epoch:
            raise UsageError(
                f"the earlier head list is not for epoch {epoch}",
                why=f"it was made in epoch {earlier.listed}, last measured in {earlier.epoch}, and the task keeps "
                f"it until {earlier.last_epoch}",
                fix="Use an epoch between, or leave the earlier list out to make a new one",
            )
        return epoch

    def _check_users(self, users: int | None) -> None:
        """Refuse, before anything is spent, a number of users that is missing or not wanted."""
        check_public_users(self.unit.relation, users)
        if users is not None and (type(users) is not int or users < 1 or self.method == "split"):
            raise UsageError(
                "the number of users who opted in does not fit the plan",
                why="users that are split into parts are counted part by part" if self.method == "split" else "",
                fix="Leave it out" if self.method == "split" else "Use a whole number of at least 1",
            )

    @property
    def _how_to_open(self) -> str:
        """How accounts for many epochs are opened."""
        client, optin = (f"`{one}`" for one in account_commands(self.task))
        return (
            f"The accounts of a task with a period are opened before its first epoch, for all of them; for {_EPOCHS}: "
            f"{client} and {optin}. The clients' account is the worst case: each device also keeps to its own "
            "lifetime_epsilon"
        )


def account_commands(task: Task) -> list[str]:
    """Return the commands that open the accounts of a task's clients and opt-in users for all its epochs."""
    if task.optin is None:
        return []
    epochs = 1 if task.task.period is None else _EPOCHS
    lists = math.ceil(epochs / (task.head.keep if task.head else 1))

    def command(population: str, relation: str, epsilon: Fraction, delta: Fraction) -> str:
        return (
            f"hushquery budget open --population {shlex.quote(population)} --relation {relation} "
            f"--epsilon {significant_up(epsilon, 6)} --delta {significant_up(delta, 6, scientific=True)}"
            f"{' --anyway' if epsilon > REFUSED_EPSILON else ''}"
        )

    return [
        command(client_population(task), "replace-one", epochs * task.client.epsilon, Fraction(0)),
        command(optin_population(task), task.optin.relation, epochs * task.optin.epsilon, lists * task.optin.delta),
    ]


def least_listed(task: Task) -> int | None:
    """Return how many of those who opted in must have made a search for it to be listed; None if nobody opts in."""
    if task.optin is None or task.head is None:
        return None
    return math.ceil(_threshold(_calibrated(task, task.optin, again=False)))
