"""Entries of a ledger, names of populations, and whether a loss would exceed a budget."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, cast

from hushquery.core.budget import Budget, Relation, finite, format_delta, format_epsilon, round_down
from hushquery.core.ledger.store import canonical, corrupt
from hushquery.core.loss import Loss
from hushquery.errors import UsageError

#: The kinds of entries, a closed set (see the evolution policy of :mod:`hushquery.core.ledger.ledger`).
KINDS = ("open", "spend")

# Keys are kept in the plan's text: a version that does not know them reads the entry as it always did, at its cost.
_ONCE = "once: "
_LONGEST_PERIOD = timedelta(days=36525)
_LEAST_USEFUL = Fraction(1, 1000)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def period_length(text: str) -> timedelta:
    """Read the length of a period: a whole number of minutes, hours or days, such as ``90m``, ``12h`` or ``7d``."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([mhd])", text)
    length = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta(0)
    if not match or length > _LONGEST_PERIOD:
        raise UsageError(
            f"no period is {text!r} long",
            why="a period is a whole number of minutes (m), hours (h) or days (d), up to a hundred years",
            fix="Use for example 30m, 12h or 7d",
        )
    return length


@dataclass(frozen=True)
class Terms:
    """What an account may spend, fixed when it was opened: for its lifetime, or in each period with or without a cap.

    >>> print(Terms(Budget(1, 1e-6), "7d"))
    epsilon 1, delta 1e-06 in each 7d
    """

    budget: Budget
    period: str | None = None
    lifetime: Budget | None = None

    def __post_init__(self) -> None:
        if self.period is not None:
            period_length(self.period)
        elif self.lifetime is not None:
            raise UsageError(
                "a lifetime budget beside the budget needs a period",
                why="without periods the budget already is for the lifetime",
                fix="Use a period such as 7d, or only one budget",
            )

    def __str__(self) -> str:
        if self.period is None:
            return f"{self.budget} for its lifetime"
        cap = "" if self.lifetime is None else f"; {self.lifetime} for its lifetime"
        return f"{self.budget} in each {self.period}{cap}"

    def to_json(self) -> dict[str, Any]:
        """Return the terms as plain data with exact fractions."""
        lifetime = None if self.lifetime is None else _budget_json(self.lifetime)
        return {"budget": _budget_json(self.budget), "period": self.period, "lifetime": lifetime}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Terms:
        """Read what :meth:`to_json` wrote; anything unknown is refused."""
        if set(data) != {"budget", "period", "lifetime"}:
            raise UsageError("the terms of an account have unknown parts or lack some")
        lifetime = None if data["lifetime"] is None else _read_budget(data["lifetime"])
        return cls(_read_budget(data["budget"]), data["period"], lifetime)


@dataclass(frozen=True)
class Entry:
    """One line of the ledger; it is never changed and never deleted."""

    seq: int  # counted from 1 over the whole ledger
    kind: Literal["open", "spend"]
    population: str
    relation: Relation
    what: str  # what was released
    plan: str  # the plan it came from
    period: int  # the index of the account's period
    time: datetime
    terms: Terms | None  # set for ``open``
    loss: Loss | None  # set for ``spend``
    prev_hash: str
    hash: str
    created: bool = field(default=False, compare=False)  # whether this spend opened the account

    @property
    def once(self) -> str | None:
        """The key under which this was spent once, where it had one: the last line of ``plan``."""
        last = self.plan.rpartition("\n")[2]
        return last.removeprefix(_ONCE) if last.startswith(_ONCE) else None

    @classmethod
    def from_row(cls, row: Mapping[str, Any], ledger: str) -> Entry:
        """Read a row of the store whose hash was verified; what this version can't understand is refused."""
        kind = row["kind"]
        if kind not in KINDS:
            raise corrupt(
                ledger,
                f"entry {row['seq']} is of the kind {kind!r}, which this version does not know",
                "Upgrade hushquery to the version that wrote it",
            )
        try:
            data = json.loads(row["data"])
            terms = Terms.from_json(data) if kind == "open" else None
            loss = Loss.from_json(data) if kind == "spend" else None
            relation = Relation.of(row["relation"])
            time = datetime.fromisoformat(row["time"])
            if time.tzinfo is None or (loss is not None and any(s.relation is not relation for s in loss.sparse)):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            raise corrupt(ledger, f"entry {row['seq']} does not say what this version needs to know") from None
        same = ("seq", "kind", "population", "what", "plan", "period", "prev_hash", "hash")
        return cls(relation=relation, time=time, terms=terms, loss=loss, **{name: row[name] for name in same})

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain data, the same for the same entry."""
        return {name.name: getattr(self, name.name) for name in fields(self) if name.name != "created"} | {
            "relation": self.relation.value,
            "time": time_text(self.time),
            "terms": None if self.terms is None else self.terms.to_json(),
            "loss": None if self.loss is None else self.loss.to_json(),
        }

    @property
    def account(self) -> str:
        """The account in words."""
        return account_name(self.population, self.relation)

    def cost(self) -> str:
        """Describe in a few words what the entry costs or allows."""
        if self.terms is not None:
            return f"may spend {self.terms}"
        loss = cast(Loss, self.loss)
        parts = [f"mu^2 {float(loss.mu_squared):.3g}"] if loss.mu_squared else []
        if loss.pure:
            parts.append(f"epsilon {format_epsilon(sum(loss.pure, Fraction(0)))}")
        if loss.threshold_delta:
            parts.append(f"delta {format_delta(loss.threshold_delta)}")
        parts.extend(f"sparse histogram of {s.keys_per_user} keys, sigma {float(s.sigma):.3g}" for s in loss.sparse)
        return " + ".join(parts) or "nothing"


class _Sum:
    """A growing sum of losses; added in pairs, because one by one is quadratic in their number."""

    def __init__(self) -> None:
        self._parts: list[Loss] = []

    def add(self, loss: Loss) -> None:
        self._parts.append(loss)

    @property
    def total(self) -> Loss:
        while len(self._parts) > 1:
            pairs = zip(self._parts[::2], self._parts[1::2], strict=False)
            self._parts = [a + b for a, b in pairs] + self._parts[len(self._parts) // 2 * 2 :]
        return self._parts[0] if self._parts else Loss()


class AccountTotals:
    """What the entries of one account add up to."""

    def __init__(self, terms: Terms, opened: datetime) -> None:
        self.terms, self.opened, self.last_period = terms, opened, 0
        self.ever = _Sum()
        self.periods: dict[int, _Sum] = {}

    def add(self, entry: Entry) -> None:
        """Add a spend."""
        self.last_period = entry.period
        for part in (self.ever, self.periods.setdefault(entry.period, _Sum())):
            part.add(cast(Loss, entry.loss))

    def period_at(self, now: datetime) -> int:
        """Return the period a spend belongs to: never one before the last that was used."""
        if self.terms.period is None:
            return 0
        return max(self.last_period, (now - self.opened) // period_length(self.terms.period))

    def spent(self, period: int) -> Loss:
        """Return what was spent in a period."""
        return self.periods[period].total if period in self.periods else Loss()

    def exceeded(self, period: int, loss: Loss) -> tuple[Budget, Loss] | None:
        """Return the budget that ``loss`` would exceed and what was spent of it, if there is one."""
        return _exceeded(self.terms, self.spent(period), self.ever.total, loss)

    def overspent(self) -> bool:
        """Whether a budget is exceeded already, which no spend allows: two ledgers were joined, or worse."""
        return any(self.exceeded(period, Loss()) for period in self.periods)


@dataclass(frozen=True)
class Account:
    """An account at one moment: what it may spend, what it spent, what remains."""

    population: str
    relation: Relation
    terms: Terms
    opened: datetime
    period: int  # the index of the current period
    spent: Loss  # in the current period, or in the lifetime where there are no periods
    spent_ever: Loss  # in all periods

    @property
    def name(self) -> str:
        """The account in words."""
        return account_name(self.population, self.relation)

    @cached_property
    def spent_epsilon(self) -> float:
        """The epsilon spent in this period at the budget's delta, rounded up; infinite if there is none."""
        return self.spent.epsilon(self.terms.budget.delta)

    @cached_property
    def remaining_epsilon(self) -> float:
        """The budget's epsilon less the spent one, rounded down, never negative; more may fit if steps are Gaussian."""
        return _remaining(self.terms.budget, self.spent, self.spent_epsilon)

    @cached_property
    def remaining_delta(self) -> float:
        """The budget's delta less what is spent of it at the budget's epsilon, rounded down, never negative.
        No later release may need more of it; one that needs less still has to fit together with all others.
        """
        return _remaining_delta(self.terms.budget, self.spent)

    @cached_property
    def lifetime_spent_epsilon(self) -> float:
        """The epsilon spent in all periods, at the lifetime budget's delta (else at the budget's)."""
        if self.terms.period is None:
            return self.spent_epsilon
        return self.spent_ever.epsilon((self.terms.lifetime or self.terms.budget).delta)

    @property
    def _cap(self) -> Budget | None:
        return self.terms.lifetime if self.terms.period else self.terms.budget

    @cached_property
    def lifetime_remaining_epsilon(self) -> float | None:
        """What remains of the lifetime budget; None where periods have no such cap."""
        return None if self._cap is None else _remaining(self._cap, self.spent_ever, self.lifetime_spent_epsilon)

    @cached_property
    def lifetime_remaining_delta(self) -> float | None:
        """What remains of the lifetime budget's delta; None where periods have no such cap."""
        return None if self._cap is None else _remaining_delta(self._cap, self.spent_ever)

    def allows(self, loss: Loss) -> bool:
        """Return whether the ledger would record this loss now; nothing is spent."""
        return _exceeded(self.terms, self.spent, self.spent_ever, loss) is None

    def after(self, loss: Loss) -> Account:
        """Return the account as this loss would leave it; nothing is spent."""
        return replace(self, spent=self.spent + loss, spent_ever=self.spent_ever + loss)

    @property
    def period_ends(self) -> datetime | None:
        """When the next period begins; None where there are no periods."""
        if self.terms.period is None:
            return None
        try:
            return self.opened + (self.period + 1) * period_length(self.terms.period)
        except OverflowError:  # beyond the year 9999
            return None

    def __str__(self) -> str:
        left = left_text(self.terms.budget, self.remaining_epsilon, self.remaining_delta, "remaining ")
        return f"{self.name}: {self.terms}; spent {epsilon_text(self.spent_epsilon)}, {left}"

    @property
    def counted(self) -> str:
        """Why the spent epsilon is not the sum of the releases' own, in a clause; empty where it is."""
        if self.spent.is_pure or not self.terms.budget.delta:
            return ""
        delta = format_delta(self.terms.budget.delta)
        return (
            f"spent is counted for all releases together at the account's delta, {delta}: at a larger delta than a "
            "release's own, the same noise counts as less epsilon"
        )

    def after_spend(self, *, created: bool = False) -> str:
        """Return, after a spend, what the account has spent and what is left of it, in one line."""
        terms, spent = self.terms, epsilon_text(self.spent_epsilon)
        left = left_text(terms.budget, self.remaining_epsilon, self.remaining_delta, "Left: ")
        if created:  # by the spend itself, so for its lifetime
            return f"Created account {self.name} with a lifetime budget of {terms.budget}. Spent: {spent}. {left}"
        each = "" if terms.period is None else f" for period {self.period}"
        cap = ""
        if terms.lifetime is not None:
            cap_left = self.lifetime_remaining_epsilon or 0.0, self.lifetime_remaining_delta or 0.0
            cap = f", and {left_text(terms.lifetime, *cap_left)} for its lifetime"
        return f"Account {self.name} has spent {spent} of {terms.budget}{each}. {left}{cap}"

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain data; an infinite epsilon is null."""
        ends = self.period_ends
        return {
            "population": self.population,
            "relation": self.relation.value,
            "terms": self.terms.to_json(),
            "opened": time_text(self.opened),
            "epsilon": float(self.terms.budget.epsilon),
            "delta": float(self.terms.budget.delta),
            "spent_epsilon": finite(self.spent_epsilon),
            "remaining_epsilon": self.remaining_epsilon,
            "remaining_delta": self.remaining_delta,
            "period": self.period,
            "period_ends": None if ends is None else time_text(ends),
            "lifetime_spent_epsilon": finite(self.lifetime_spent_epsilon),
            "lifetime_remaining_epsilon": self.lifetime_remaining_epsilon,
            "lifetime_remaining_delta": self.lifetime_remaining_delta,
        }


def _exceeded(terms: Terms, spent: Loss, ever: Loss, loss: Loss) -> tuple[Budget, Loss] | None:
    caps = [(terms.budget, spent), (terms.lifetime, ever)]
    return next(((cap, spent) for cap, spent in caps if cap and not (spent + loss).fits(cap.epsilon, cap.delta)), None)


def account_name(population: str, relation: Relation) -> str:
    """Name an account in a message."""
    return f'"{population}" ({relation.value})'


def plan_text(plan: str, once: str | None) -> str:
    """Write the plan as the ledger keeps it, with the key under which the entry is spent once."""
    plan = clean_text(plan, "the plan", lines=True, empty=True)
    if any(line.startswith(_ONCE.strip()) for line in plan.splitlines()):
        raise UsageError(f"a line of the plan begins with {_ONCE!r}", fix="Use the key with once=")
    return plan if once is None else f"{plan}\n{_ONCE}{once}".strip()


def loss_text(loss: Loss, relation: Relation) -> str:
    """Write a loss as the ledger keeps it, and make sure that it will be read back as the same loss."""
    if any(s.relation is not relation for s in loss.sparse):
        raise UsageError(
            f"a loss is not stated under {relation.value}, the relation of the account",
            fix="State it under the relation of the account",
        )
    try:
        text = canonical(loss.to_json())
        same = Loss.from_json(json.loads(text)) == loss
    except (TypeError, ValueError):
        same = False
    if not same:
        raise UsageError("a loss can't be written down exactly", fix="This is a defect of the mechanism that stated it")
    return text


def time_text(time: datetime) -> str:
    """Write a moment in UTC, always with the same number of digits: 2026-01-02T00:00:00.000000Z."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def epsilon_text(epsilon: float) -> str:
    """Print a spent epsilon, rounded up; it is infinite when the delta does not suffice for any."""
    return format_epsilon(epsilon) if math.isfinite(epsilon) else "infinite"


def down_text(epsilon: float) -> str:
    """Print a remaining epsilon with three significant digits, rounded down."""
    if epsilon <= 0:
        return "0"
    value = Fraction(epsilon)
    unit = Fraction(10) ** (int(f"{epsilon:e}".split("e")[1]) - 2)
    # A double that merely stands for a decimal (0.3) must not print as the one before (0.299).
    return f"{float((value + value / 10**14) // unit * unit):.3g}"


def is_used_up(budget: Budget, epsilon: float) -> bool:
    """Whether so little epsilon is left that nothing useful can be bought: below 0.001, and a tenth of the budget."""
    return epsilon < min(_LEAST_USEFUL, budget.epsilon / 10)


def left_text(budget: Budget, epsilon: float, delta: float, before: str = "") -> str:
    """Print what remains of a budget, rounded down, ``before`` it a word; delta only where the budget has one.

    >>> left_text(Budget(2, 2e-6), 1.04, 1.1e-6, "Left: "), left_text(Budget(2, 2e-6), 5e-7, 4e-7, "Left: ")
    ('Left: 1.04 and delta 1.1e-06', 'Nothing useful is left')
    """
    if epsilon > 0 and is_used_up(budget, epsilon):
        return f"{'N' if before[:1].isupper() else 'n'}othing useful is left"
    return before + down_text(epsilon) + (f" and delta {down_text(delta)}" if budget.delta else "")


def _remaining(budget: Budget, spent: Loss, epsilon: float) -> float:
    if spent.is_pure and budget.delta == 0:  # exact: half of a budget of 1 leaves 0.5
        left = budget.epsilon - sum(spent.pure, Fraction(0))
    else:
        left = budget.epsilon - Fraction(epsilon) if math.isfinite(epsilon) else Fraction(0)
    return round_down(max(left, Fraction(0)))


def _remaining_delta(budget: Budget, spent: Loss) -> float:
    used = Fraction(spent.delta(budget.epsilon)) if budget.delta else Fraction(0)
    return round_down(max(budget.delta - used, Fraction(0)))


def _budget_json(budget: Budget) -> dict[str, str]:
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}


def _read_budget(data: Mapping[str, str]) -> Budget:
    if set(data) != {"epsilon", "delta"}:
        raise UsageError("a budget has unknown parts or lacks some")
    return Budget(data["epsilon"], data["delta"])


def clean_text(text: str, meaning: str, *, lines: bool = False, empty: bool = False) -> str:
    """Return a text in the one form in which it is stored and safe to print: composed (NFC), stripped, printable."""
    clean = unicodedata.normalize("NFC", text).strip()
    allowed = "\n\t" if lines else ""
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in allowed for c in clean):
        raise UsageError(f"{meaning} has control characters in it", fix="Use plain text")
    if not clean and not empty:
        raise UsageError(f"{meaning} is empty", fix="Use a few words, such as 'readers of example.org'")
    return clean
