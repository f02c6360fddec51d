"""Budget, Unit, Relation, and exact numbers that are rounded and printed in the safe direction.

Parameters stay rational. Irrational formulas are evaluated at :data:`DIGITS` digits and rounded so that the loss can
only be overstated: epsilon, delta and noise scales up, mu down.
"""

from __future__ import annotations

import math
import numbers
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

import mpmath

from hushquery.errors import UsageError

#: What a privacy parameter may be written as.
Number = int | float | str | Decimal | Fraction

#: Decimal digits at which irrational formulas are evaluated.
DIGITS = 60

#: Noise scales are multiples of 1/GRID, so that they are short exact rationals.
GRID = 2**32

# mpmath evaluates to DIGITS digits; this relative slack covers its rounding many times over.
_SLACK = mpmath.mpf(10) ** -45

_TINY, _HUGE = math.nextafter(0.0, 1.0), sys.float_info.max  # the smallest double above zero and the largest

# Decimal exponents beyond this make no privacy parameter, only very long numbers.
_MOST_EXPONENT = 400

_MOST_SEARCHED = 2**20  # no epsilon beyond this is looked for
_LOSS_GRID = 10**30  # the epsilons that local randomizers claim are multiples of one over this

#: Above this, epsilon promises so little that the user is warned.
UNUSUAL_EPSILON = 5

#: Above this, delta permits publishing a person in full in any log of more than 10,000; smaller ones publish little.
UNUSUAL_DELTA = Fraction(1, 10_000)

#: At or above this, delta is no promise at all, and nothing is published from real data.
REFUSED_DELTA = Fraction(1, 10)

#: Above this, epsilon promises next to nothing, and nothing is planned or published unless somebody insists.
REFUSED_EPSILON = 20

#: How to insist, in the words of an error.
ANYWAY = "--anyway (anyway=True) if you mean it"

#: Above this, epsilon promises nothing and formulas overflow.
LARGEST_EPSILON = 1000


class Relation(StrEnum):
    """Which two data sets may not be told apart."""

    ADD_REMOVE = "add-remove"
    """One unit is there or is not there at all."""
    REPLACE_ONE = "replace-one"
    """One unit's data is exchanged for any other data; the number of units is public."""

    @classmethod
    def of(cls, text: str) -> Relation:
        """Read a relation from text."""
        try:
            return cls(text)
        except ValueError:
            raise UsageError(
                f"no relation is called {text!r}",
                fix="Use add-remove (a person is in the data or not) or replace-one (a person's data is exchanged)",
            ) from None


@dataclass(frozen=True)
class Unit:
    """The unit of protection: the column that identifies it, such as ``user``, and the neighbouring relation.

    >>> print(Unit("household", "add-remove"))
    one household, present or absent (add-remove)
    """

    name: str
    relation: Relation

    def __init__(self, name: str, relation: Relation | str) -> None:
        if not name or not name.strip():
            raise UsageError(
                "the unit of protection has no name", fix="Name the column that identifies a person, such as user"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "relation", Relation.of(str(relation)))

    @classmethod
    def of(cls, unit: Unit | str, relation: Relation | str | None = None) -> Unit:
        """Return a unit from a unit, or from the name of its column; add-remove by default."""
        if not isinstance(unit, Unit):
            return cls(unit, Relation.ADD_REMOVE if relation is None else relation)
        if relation is not None and Relation.of(str(relation)) is not unit.relation:
            raise UsageError(
                f"the unit is protected under {unit.relation.value}, not {relation}",
                fix="Leave the relation out, or name the unit by its column alone",
            )
        return unit

    def __str__(self) -> str:
        change = "present or absent" if self.relation is Relation.ADD_REMOVE else "with its data exchanged"
        return f"one {self.name}, {change} ({self.relation.value})"


class PrivacyWarning(UserWarning):
    """A legal but unusual choice that weakens somebody's privacy."""


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) that may be spent on one population under one relation, both exact rationals.
    A float means the decimal it prints as. There is no default budget: somebody must decide what privacy is worth.

    >>> budget = Budget(0.3, 1e-6)
    >>> budget.epsilon, str(budget)
    (Fraction(3, 10), 'epsilon 0.3, delta 1e-06')
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number = 0) -> None:
        e, d = exact(epsilon, "epsilon"), exact(delta, "delta")
        for wrong, what, why in (
            (e < 0, "epsilon is negative", "a privacy loss can't be"),
            (e > LARGEST_EPSILON, f"epsilon is above {LARGEST_EPSILON}", "such a number promises nothing"),
            (d < 0, "delta is negative", "it is a probability"),
            (d >= 1, "delta is 1 or more", "then everything may be revealed"),
        ):
            if wrong:
                raise UsageError(what, why=why, fix="Use epsilon > 0, often 0.1 to 4; delta < 1, often 1e-6")
        object.__setattr__(self, "epsilon", e)
        object.__setattr__(self, "delta", d)

    @classmethod
    def of(cls, budget: Budget | None = None, epsilon: Number | None = None, delta: Number | None = None) -> Budget:
        """Return a budget from a budget, or from plain numbers; delta is 0 by default."""
        if budget is None and epsilon is not None:
            return cls(epsilon, 0 if delta is None else delta)
        if isinstance(budget, cls) and epsilon is None and delta is None:
            return budget
        raise UsageError(
            "the privacy budget is missing" if budget is None else "the privacy budget is not clear",
            fix="Use either budget=Budget(EPSILON, DELTA), or epsilon= and delta= as numbers",
        )

    def __str__(self) -> str:
        return f"epsilon {format_epsilon(self.epsilon)}, delta {format_delta(self.delta)}"

    def __repr__(self) -> str:
        return f"Budget({float(self.epsilon)!r}, {float(self.delta)!r})"

    def concerns(self, users: int | None = None) -> list[str]:
        """Return what is unusual about this budget; ``users`` is a public figure, never one read from a log."""
        return concerns(self.epsilon, self.delta, users)

    def warn(self, users: int | None = None) -> None:
        """Warn (:class:`PrivacyWarning`) of everything :meth:`concerns` finds."""
        for concern in self.concerns(users):
            warnings.warn(concern, PrivacyWarning, stacklevel=3)

    def check_publishable(self, users: int | None = None, *, anyway: bool = False) -> None:
        """Refuse what nobody should promise to real people; called before anything is spent.

        A delta of :data:`REFUSED_DELTA` or more is refused always. An epsilon above :data:`REFUSED_EPSILON`, or a delta
        above one over the declared number of ``users``, is refused unless the caller insists (``anyway``).

        >>> Budget(30, 0).check_publishable(anyway=True)
        >>> Budget(1, 1e-3).check_publishable(users=900)
        """
        if self.delta >= REFUSED_DELTA:
            raise UsageError(
                f"delta {format_delta(self.delta)} is too large to publish anything",
                why=f"from {float(REFUSED_DELTA):g} on it is no promise: {_in_full(self.delta)}",
                fix="Use a delta well below one over the number of users, often 1e-6 or less",
            )
        check_users(users)
        if anyway:
            return
        if self.epsilon > REFUSED_EPSILON:
            raise UsageError(
                f"epsilon {format_epsilon(self.epsilon)} is above {REFUSED_EPSILON}. Nothing was spent",
                why="It promises next to nothing: an attacker's odds about a person may grow more than a million times",
                fix=f"Use a smaller epsilon, often 0.1 to 4, or {ANYWAY}",
            )
        if users is not None and self.delta * users > 1:
            raise UsageError(
                f"delta {format_delta(self.delta)} is above one over the {users:,} declared users. Nothing was spent",
                why=f"Publishing {math.ceil(self.delta * users):,} people in full would be within it",
                fix=f"Use a delta of {suggested_delta(users):.0e} or less, or {ANYWAY}",
            )


def check_users(users: int | None) -> None:
    """Refuse a declared number of users that can't be one."""
    if users is not None and not 1 <= users <= 10**11:
        raise UsageError("the number of users must be from 1 to 10^11", fix="Declare --users (users=), a public figure")


def concerns(epsilon: Fraction, delta: Fraction, users: int | None = None) -> list[str]:
    """Return what is unusual about a promise, a clause each; ``users`` is a public figure, not read from a log."""
    clauses = []
    if epsilon > UNUSUAL_EPSILON:
        grow = "more than a million" if epsilon > 14 else f"{math.ceil(math.exp(epsilon)):,}"
        clauses.append(
            f"epsilon {format_epsilon(epsilon)} is above {UNUSUAL_EPSILON}: an attacker's odds about a person "
            f"may grow {grow} times"
        )
    if users is not None and delta * users > 1:
        clauses.append(
            f"delta {format_delta(delta)} is above one over the {users:,} users: publishing "
            f"{math.ceil(delta * users):,} people in full would be within it; use at most {suggested_delta(users):.0e}"
        )
    elif delta > UNUSUAL_DELTA:
        clauses.append(
            f"delta {format_delta(delta)} is above {format_delta(UNUSUAL_DELTA)}: with this probability everything of "
            f"a person may be published; {_in_full(delta)}"
        )
    return clauses


def _in_full(delta: Fraction) -> str:
    return f"of 10,000 people, publishing {math.ceil(delta * 10_000):,} in full would be within it"


def format_epsilon(epsilon: Fraction | float) -> str:
    """Print epsilon with three significant digits, rounded up."""
    return significant_up(Fraction(epsilon), 3)


def format_delta(delta: Fraction | float) -> str:
    """Print delta in scientific notation, rounded up; never a 0.000 that is not zero."""
    return "0" if delta == 0 else significant_up(Fraction(delta), 2, scientific=True)


def in_full(value: float, digits: int = 6) -> str:
    """Print a number with some significant digits, and one that has more before its point in full, never as a power.

    >>> in_full(38.0), in_full(8.125, 3), in_full(9503537.25), in_full(99999.7, 5)
    ('38', '8.12', '9,503,537', '100,000')
    """
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def significant_up(value: Fraction, digits: int, *, scientific: bool = False) -> str:
    """Print a number with some significant digits, rounded up: 1/3 with two is 0.34."""
    if value == 0:
        return "0"
    exponent = len(str(value.numerator)) - len(str(value.denominator))
    exponent -= value < Fraction(10) ** exponent
    place = exponent - digits + 1
    # A double that merely stands for a decimal (1e-06) must not print as the next one (1.1e-06).
    steps = math.ceil((value - value / 10**14) / Fraction(10) ** place)
    shown = Decimal(steps).scaleb(place).normalize()
    if scientific or not -5 < exponent < 6:
        mantissa, power = f"{shown:e}".split("e")
        return f"{mantissa}e{int(power):+03d}"
    return f"{shown:f}"


def finite(number: float) -> float | None:
    """Return None for what is no finite number: JSON has none."""
    return number if math.isfinite(number) else None


def suggested_delta(users: int) -> float:
    """Return the delta advised for so many people: the power of ten at or below 1/(100 users)."""
    return float(Fraction(1, 10 ** len(str(100 * users - 1))))


# mpmath's precision is one global setting: two threads that change it at once would compute with each other's digits.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Evaluate mpmath formulas at ``bits`` binary digits, one thread at a time."""
    with _ONE_AT_A_TIME, mpmath.workprec(bits):
        yield


@contextmanager
def working() -> Iterator[None]:
    """Evaluate mpmath formulas at :data:`DIGITS` decimal digits, one thread at a time."""
    with _ONE_AT_A_TIME, mpmath.workdps(DIGITS):
        yield


def exact(value: Number, name: str = "the number") -> Fraction:
    """Return what a person wrote as an exact rational. A float means the shortest decimal that prints it. Text may be
    a decimal, a fraction or ``ln(x)``, which is rounded down because a given epsilon must never grow.

    >>> exact(0.1), exact("1/3"), float(exact("ln 10"))
    (Fraction(1, 10), Fraction(1, 3), 2.3025850929940455)
    """
    given: object = value  # callers without types hand over anything
    try:
        if isinstance(value, str | Decimal):
            return _from_text(str(value).strip().lower(), name)
        if isinstance(given, bool) or not isinstance(given, numbers.Real):
            raise TypeError
        if isinstance(given, numbers.Rational):
            return Fraction(int(given.numerator), int(given.denominator))
        return Fraction(repr(float(given)))
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        raise UsageError(
            f"{name} is not a finite number",
            why=f"it is {value!r}" if isinstance(value, int | float | str) else f"it is a {type(value).__name__}",
            fix="Write a number such as 1, 0.5, 1e-6, 1/3 or ln(10)",
        ) from None


def _from_text(text: str, name: str) -> Fraction:
    if text.startswith("ln"):
        inner = text[2:].strip().strip("()").strip()
        if inner.startswith("ln"):
            raise ValueError(inner)
        with working():
            return Fraction(round_down(mpmath.log(rational_mpf(exact(inner, name)))))
    power = text.partition("e")[2]
    if power and abs(int(power)) > _MOST_EXPONENT:
        raise ValueError(text)
    return Fraction(text)


def rational_mpf(value: Fraction) -> mpmath.mpf:
    """Return a rational as an mpmath number at the precision in force."""
    return mpmath.mpf(value.numerator) / value.denominator


def round_up(value: mpmath.mpf | Fraction | float) -> float:
    """Return the smallest double that is certainly not below ``value``."""
    return _directed(value, math.inf)


def round_down(value: mpmath.mpf | Fraction | float) -> float:
    """Return a double that is certainly not above ``value``, and no further below it than needed."""
    return _directed(value, -math.inf)


def _directed(value: mpmath.mpf | Fraction | float, towards: float) -> float:
    """Round in one direction, so that neither the double nor the decimal it prints as falls short."""
    if value != value:
        raise ArithmeticError("a formula came out as not a number")
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        value = Fraction(value)
    with working():
        outwards, sign = (value > 0) == (towards > 0), 1.0 if value > 0 else -1.0
        if abs(value) < _TINY:  # and its digits may be too many to write down
            return math.copysign(_TINY, sign) if outwards and value != 0 else 0.0
        if abs(value) > _HUGE:
            return math.copysign(math.inf if outwards else _HUGE, sign)
        if isinstance(value, Fraction):
            bound = value
        else:
            slack = abs(value) * _SLACK
            bound = _fraction(value + slack if towards > 0 else value - slack)
        near = bound.numerator / bound.denominator
        while _falls_short(near, bound, towards) or _falls_short(Fraction(repr(near)), bound, towards):
            near = math.nextafter(near, towards)
        return near


def _falls_short(number: float | Fraction, bound: Fraction, towards: float) -> bool:
    return number < bound if towards > 0 else number > bound


def _fraction(value: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)


def smallest_whole(fits: Callable[[int], bool], start: int = 1) -> int | None:
    """Return the smallest positive integer at which ``fits`` becomes and stays true; None if that is above 2^62."""
    low, high = 0, max(1, start)
    while not fits(high):
        low, high = high, high * 2
        if high > 2**62:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def smallest_root(delta: Callable[[Any], mpmath.mpf], goal: mpmath.mpf) -> mpmath.mpf | None:
    """Find the smallest epsilon, to one part in 10^15 and from above, at which a falling curve is at most ``goal``."""
    # Regula falsi on the logarithm (Illinois rule), with a bisection whenever three steps did not halve the bracket: a
    # tenth of the evaluations. The upper end of the bracket was evaluated and holds, whatever the curve looks like.
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    below, above = delta(low), delta(high)
    while above > goal:
        low, below, high = high, above, high * 2
        if high > _MOST_SEARCHED:
            return None
        above = delta(high)
    tolerance = mpmath.mpf(10) ** -15
    # What the end that stays is multiplied with, so that it comes nearer too.
    low_weight = high_weight = mpmath.mpf(1)
    last, width, slow = 0, high - low, 0
    while high - low > high * tolerance:
        if slow == 3 or above <= 0:
            at, slow = (low + high) / 2, 0
        else:
            left, right = low_weight * mpmath.log(below / goal), high_weight * mpmath.log(above / goal)
            at = (low * right - high * left) / (right - left)
            # Never nearer to an end than half of what is asked for.
            at = min(max(at, low + high * tolerance / 2), high - high * tolerance / 2)
        value = delta(at)
        if value <= goal:
            high, above, high_weight = at, value, mpmath.mpf(1)
            low_weight, last = (low_weight / 2 if last == 1 else low_weight), 1
        else:
            low, below, low_weight = at, value, mpmath.mpf(1)
            high_weight, last = (high_weight / 2 if last == -1 else high_weight), -1
        slow, width = (0, high - low) if high - low <= width / 2 else (slow + 1, width)
    return high


def grid_up(value: mpmath.mpf | Fraction | float) -> Fraction:
    """Round a noise scale up to a multiple of ``1/GRID`` (finer below one, to keep the relative loss tiny)."""
    if isinstance(value, float):
        value = Fraction(value)
    if not value > 0:
        raise UsageError("a noise scale must be above zero", fix="Calibrate it from a budget")
    fine = GRID
    while value * fine < GRID:
        fine *= 2**8
    if isinstance(value, Fraction):
        return Fraction(math.ceil(value * fine), fine)
    with working():
        scaled = mpmath.mpf(value) * fine
        return Fraction(int(mpmath.ceil(scaled + abs(scaled) * _SLACK)), fine)


def loss_of_ratio(ratio: Fraction) -> Fraction:
    """Return ln of a ratio of two chances, rounded up; the randomizers claim their epsilon by this too."""
    if ratio == 1:
        return Fraction(0)
    with working():
        scaled = mpmath.log(rational_mpf(ratio)) * _LOSS_GRID
        return Fraction(int(mpmath.ceil(scaled + mpmath.mpf(10) ** -10)), _LOSS_GRID)
