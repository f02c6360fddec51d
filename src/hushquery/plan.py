"""Plan: build, explain, spend, run; shared by releases, head lists and statistics.

One place decides what may be published: nothing is read before the spend is durable (docs/decisions/0018).
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hushquery.core.budget import ANYWAY, Budget, PrivacyWarning, Relation, Unit, exact, format_delta, format_epsilon
from hushquery.core.description import UNDESCRIBED, Description
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.ledger.entries import down_text, is_used_up
from hushquery.core.ledger.refusal import advised
from hushquery.core.loss import Loss
from hushquery.errors import BudgetError, BudgetRefused, DataError, HushqueryError, UsageError
from hushquery.noise.sampler import Bits, SystemBits

if TYPE_CHECKING:
    from pathlib import Path

    from hushquery.core.ledger.entries import Account
    from hushquery.core.ledger.ledger import Ledger

__all__ = ["Charge", "Paid", "Plan", "Progress"]

#: Called with what is done next and the fraction that is done.
Progress = Callable[[str, float], None]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Charge:
    """What a plan costs one population."""

    population: str
    relation: Relation | str
    loss: Loss
    what: str  # what will be published
    budget: Budget  # the budget of the plan; a missing account is opened with it as its lifetime budget
    files: Sequence[str | Path] = ()  # what will be read; the ledger notes them in its private part


@dataclass(frozen=True)
class Paid:
    """What a plan reads with. Only a run creates one, after the spend."""

    asked: Mapping[str, Any]  # the expressions for the engine, by name
    guarantee: Guarantee  # what the result promises
    bits: Bits  # the source of its noise
    tell: Progress


class Plan(ABC, Generic[Result]):
    """A plan of something to publish; nothing has run and no row has been read. It runs once.
    A kind of plan is a frozen dataclass (``repr=False``) with population, unit and budget as fields or properties.
    """

    _turn: threading.Lock  # taken by the run that reads, and never given back
    description: Description = UNDESCRIBED  #: what the result says of itself; the ledger keeps title and period
    _checked: bool  # whether the data was looked at as far as it may be before the spend

    if TYPE_CHECKING:  # at run time a property here would be the default of a field of the same name

        @property
        def population(self) -> str:
            """Whose privacy is spent."""

        @property
        def unit(self) -> Unit:
            """Whose presence is hidden, and the relation."""

        @property
        def budget(self) -> Budget:
            """What was asked for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_turn", threading.Lock())
        object.__setattr__(self, "_checked", False)

    @abstractmethod
    def _steps(self) -> Sequence[Step]:
        """Return the randomised steps with their losses."""

    @abstractmethod
    def _explained(self) -> Sequence[str]:
        """Return the lines of :meth:`explain` between its first and its last, generated from the objects that run."""

    @property
    def guarantee(self) -> Guarantee:
        """What running the plan promises, from the exact numbers of its steps."""
        return Guarantee.of(self.population, "curator", self.unit, self._steps(), delta=self.budget.delta)

    @property
    def loss(self) -> Loss:
        """What the ledger will be charged."""
        return self.guarantee.loss

    def check(self, users: int | None = None, *, anyway: bool = False) -> None:
        """Refuse a budget that promises next to nothing; :meth:`run` does so too, before the ledger is touched.

        Args:
            users: How many people there are, a declared figure that is public and never read from the data.
            anyway: Accept an epsilon above 20 or a delta above one over the users. A delta of 0.1 never is.
        """
        for budget in self._promises():
            budget.check_publishable(users, anyway=anyway)

    def check_before_spend(self, users: int | None = None, *, anyway: bool = False) -> None:
        """Refuse whatever would be spent in vain: what :meth:`check` refuses, a threshold that the declared users can't
        reach, and data that plainly can't be read. :meth:`run` begins with it.
        """
        self._check_promises(users, anyway=anyway)
        self._check_data_once()

    def _check_promises(self, users: int | None, *, anyway: bool) -> None:
        self.check(users, anyway=anyway)
        lacking = None if users is None or anyway else self._out_of_reach(users)
        if users is not None and lacking is not None:
            least = self._least_epsilon(users)
            enough = "" if least is None else f" (the least that can release anything is about {format_epsilon(least)})"
            raise UsageError(
                f"{lacking}, and {users:,} users are declared. Nothing was spent",
                why="Next to nothing could be released, and the budget would be gone",
                fix=f"Raise epsilon{enough} or delta, or let fewer records of each user count, or {ANYWAY}",
            )

    def _check_data_once(self) -> None:
        if not self._checked:
            self._check_data()
            object.__setattr__(self, "_checked", True)

    def _promises(self) -> Sequence[Budget]:
        """Return every budget that the plan asks somebody to accept."""
        return [self.budget]

    def _out_of_reach(self, users: int) -> str | None:  # noqa: ARG002  # for kinds of plans that know
        """Return, in words, which threshold the declared users can't reach, so that its budget would buy nothing."""
        return None

    def _loss_at(self, budget: Budget) -> Loss | None:  # noqa: ARG002  # for kinds of plans that know
        """Return what the same plan would cost at another budget, None where that is not known."""
        return None

    def _least_epsilon(self, users: int, delta: Fraction | None = None) -> float | None:  # noqa: ARG002
        """Return an epsilon, hardly above the smallest, at which so many users reach the threshold, where the kind of
        plan knows; at the plan's delta or another.
        """
        return None

    def _check_data(self) -> None:
        """Refuse data that plainly can't be read, with what may be looked at before the spend."""

    def explain(self, users: int | None = None) -> str:
        """Describe every step, its bound, its noise and its cost; generated from the objects that run."""
        head = f'Plan for "{self.population}", protecting {self.unit}:'
        concerns = self.budget.concerns(users)
        if users is not None and (lacking := self._out_of_reach(users)) is not None:
            concerns.append(f"{lacking}, and {users:,} users are declared: next to nothing could be released")
        lines = [*self._explained(), *(f"warning: {concern}" for concern in concerns)]
        lines.append(f"in all: {self.guarantee.summary()}")
        return "\n".join([head, *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.guarantee.summary()}>"

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        return render("notebook/guarantee.html", summary=self.guarantee.summary(), words=self.explain())

    def expressions(self) -> dict[str, Any]:
        """Return what the engine will be asked, by name; what the schema rules out is refused here, for free."""
        try:
            return self._ask()
        except HushqueryError:
            raise
        except Exception as error:
            # Ibis quotes a table in its messages, and a table in memory with its rows.
            raise DataError(
                "The data does not have the columns this plan needs",
                why=type(error).__name__,
                fix="Check the columns, their types and the conditions",
            ) from None

    def sql(self) -> str:
        """Return the SQL that the engine will run; what was released before is a table ``released_queries``."""
        import ibis

        return ";\n\n".join(f"-- {name}\n{ibis.to_sql(expression)}" for name, expression in self.expressions().items())

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
    ) -> Result:
        """Record the spend durably, then read the data, draw the noise and return the result. A plan runs once: another
        run would be another release, with a cost of its own.

        What would be spent in vain is refused before the ledger is touched, unless ``anyway`` insists: what
        :meth:`check` refuses, and a threshold above the declared number of users.

        Args:
            ledger: A ledger, or the path or URL of one.
            create: Whether a missing account may be opened with this plan's budget as its whole lifetime.
            new_population: Whether these are other people than those of an account with nearly the same name, or of
                one that was charged for the same file.
            users: How many people there are, a declared figure that is public and never read from the data.
            anyway: Whether to spend even where that is refused otherwise.
            bits: Test bits; a result drawn from them is marked as not private.
            progress: Called with what is done next.
        """
        return self._run(
            ledger,
            self._charges(),
            self._read,
            create=create,
            new_population=new_population,
            users=users,
            anyway=anyway,
            bits=bits,
            progress=progress,
        )

    @abstractmethod
    def _ask(self) -> dict[str, Any]:
        """Build every expression for the engine, from columns and types alone."""

    def _charges(self) -> Sequence[Charge]:
        """Return what each population is charged, in the order in which they pay."""
        what = "; ".join(step.detail for step in self._steps())
        return [Charge(self.population, self.unit.relation, self.loss, what, self.budget)]

    @abstractmethod
    def _read(self, paid: Paid) -> Result:
        """Read the data, draw the noise and return the result."""

    def _run(
        self,
        ledger: Ledger | str | Path,
        charges: Sequence[Charge],
        read: Callable[[Paid], Result],
        *,
        create: bool,
        new_population: bool = False,
        users: int | None = None,
        anyway: bool = False,
        bits: Bits | None = None,
        progress: Progress | None = None,
        once: str | None = None,
    ) -> Result:
        """Check, spend, read. ``once`` is a key for the ledger; with one, ``bits`` must be the same in each run."""
        from hushquery.core.ledger.ledger import Ledger

        source = bits or SystemBits()
        if not self._turn.acquire(blocking=False):
            raise BudgetError(
                "This plan has run before. Nothing was spent",
                why="Each run is a release of its own, with a cost of its own",
                fix="Make a new plan to publish once more, from what is left of the budget",
            )
        try:
            if source.secret:  # a test's noise publishes nothing
                self._check_promises(users, anyway=anyway)
            expressions = self.expressions()
            guarantee = replace(self.guarantee, test_noise=not source.secret)
            book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
            for charge in charges:
                if not create and not book.accounts(charge.population):  # refused before a large file is looked at
                    book.account(charge.population, charge.relation)
                self._check_names(book, charge, new_population=new_population)
            self._check_data_once()
            for charge in charges:
                book.spend(
                    charge.population,
                    charge.relation,
                    charge.loss,
                    what=charge.what,
                    plan=self.description.for_ledger(),
                    create_with=charge.budget if create else None,
                    new_population=new_population,
                    once=once,
                    files=charge.files,
                )
        except BudgetRefused as error:
            self._turn.release()
            raise self._with_what_fits(error, users) from None
        except BaseException:
            self._turn.release()  # nothing was read
            raise
        return read(Paid(expressions, guarantee, source, progress or (lambda *_: None)))

    def _check_names(self, book: Ledger, charge: Charge, *, new_population: bool) -> None:
        """Refuse a second name for the same people before anybody pays; warn where both names have accounts."""
        if not book.accounts(charge.population):
            book.check_new(charge.population, charge.relation, charge.files, new_population=new_population)
        elif others := ", ".join(f'"{name}"' for name in book.other_names(charge.population, charge.files)):
            warnings.warn(
                f'a file of "{charge.population}" was charged to {others} before (the same path or inode). The same '
                "people under two names have two budgets, and lose both",
                PrivacyWarning,
                stacklevel=4,
            )

    def _with_what_fits(self, error: BudgetRefused, users: int | None) -> BudgetRefused:
        """Return the epsilon that still fits the account, and the least useful one, both at the same delta."""
        account: Account | None = error.account
        if account is None or account.population != self.population:
            return error
        cap, left = account.terms.budget, account.remaining_epsilon
        if is_used_up(cap, left):
            return error
        delta = min(self.budget.delta, Fraction(account.remaining_delta) * Fraction(9, 10))
        delta = Fraction(down_text(float(delta))) if delta < self.budget.delta else delta
        fits = next(filter(None, (self._fitting(account, Budget(text, delta)) for text in _parts_of(left))), None)
        needed, least = "", None
        if users is not None:
            reach = useful_threshold(users)
            with suppress(UsageError):  # no noise has so small a delta
                least = self._least_epsilon(reach, delta)
            if least is not None:
                needed = (
                    f"a useful release of this plan, with a threshold of at most {reach:,} of the {users:,} declared "
                    f"users, needs epsilon {format_epsilon(least)} at that delta"
                )
        if least is not None and (fits is None or fits.epsilon < exact(least)):
            return advised(error, None, f"at delta {format_delta(delta)} {needed.replace(' at that delta', '')}")
        if fits is None:
            return advised(error, "No release of this plan fits into what is left")
        shown = f"This plan fits with epsilon {down_text(float(fits.epsilon))} at delta {format_delta(delta)}"
        return advised(error, f"{shown}; {needed}" if needed else shown)

    def _fitting(self, account: Account, asked: Budget) -> Budget | None:
        try:
            loss = self._loss_at(asked) if asked.epsilon else None
        except UsageError:  # no noise has so small a budget
            return None
        cap = account.terms.budget
        return asked if loss is not None and (account.spent + loss).fits(cap.epsilon, cap.delta) else None


def useful_threshold(users: int) -> int:
    """Return the largest threshold with which a release is of use, by a rule that looks at no data: 1% of the declared
    users; of fewer than 10,000 half, up to 100.

    >>> [useful_threshold(users) for users in (200, 5_000, 10_000, 1_000_000)]
    [100, 100, 100, 10000]
    """
    return max(users // 100, min(users // 2, 100), 1)


def _parts_of(left: float) -> list[str]:
    return [down_text(float(Fraction(left) * part)) for part in (1, Fraction(9, 10), Fraction(3, 4), Fraction(1, 2))]
