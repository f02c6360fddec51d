"""Plan: build, explain, spend, run; shared by releases, head lists and statistics.

One place decides what may be published: nothing is read before the spend is durable (docs/decisions/0018).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hushquery.core.budget import Budget, Relation, Unit
from hushquery.core.description import UNDESCRIBED, Description
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.errors import BudgetError, DataError, HushqueryError
from hushquery.noise.sampler import Bits, SystemBits

if TYPE_CHECKING:
    from pathlib import Path

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

    def _steps(self) -> Sequence[Step]:
        raise NotImplementedError

    def _explained(self) -> Sequence[str]:
        """Return the lines of :meth:`explain` between its first and its last, generated from the objects that run."""
        raise NotImplementedError

    @property
    def guarantee(self) -> Guarantee:
        """What running the plan promises, from the exact numbers of its steps."""
        return Guarantee.of(self.population, "curator", self.unit, self._steps(), delta=self.budget.delta)

    @property
    def loss(self) -> Loss:
        """What the ledger will be charged."""
        return self.guarantee.loss

    def explain(self) -> str:
        """Describe every step, its bound, its noise and its cost; generated from the objects that run."""
        head = f'Plan for "{self.population}", protecting {self.unit}:'
        warnings = (f"warning: {concern}" for concern in self.budget.concerns())
        lines = [*self._explained(), *warnings, f"in all: {self.guarantee.summary()}"]
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
        bits: Bits | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Record the spend durably, then read the data, draw the noise and return the result. A plan runs once: another
        run would be another release, with a cost of its own.

        Args:
            ledger: A ledger, or the path or URL of one.
            create: Whether a missing account may be opened with this plan's budget as its whole lifetime.
            new_population: Whether these are other people than those of an account with nearly the same name.
            bits: Test bits; a result drawn from them is marked as not private.
            progress: Called with what is done next.
        """
        return self._run(
            ledger,
            self._charges(),
            self._read,
            create=create,
            new_population=new_population,
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
            if source.secret:
                for charge in charges:
                    charge.budget.check_publishable()
            expressions = self.expressions()
            guarantee = replace(self.guarantee, test_noise=not source.secret)
            book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
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
                )
        except BaseException:
            self._turn.release()  # nothing was read
            raise
        return read(Paid(expressions, guarantee, source, progress or (lambda *_: None)))
