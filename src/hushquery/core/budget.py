"""Budget: an (epsilon, delta) that may be spent, in exact arithmetic."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hushquery.core.rounding import Number, exact
from hushquery.errors import UsageError

__all__ = [
    "Budget",
    "PrivacyWarning",
    "concerns",
    "format_delta",
    "format_epsilon",
    "in_full",
    "significant_up",
    "suggested_delta",
]

#: Above this, epsilon promises so little that a person should be told.
UNUSUAL_EPSILON = 5

#: Above this, delta is large however few people there are: a log of fewer than 10,000 publishes next to nothing, and in
#: any larger one publishing a person in full would be within it.
UNUSUAL_DELTA = Fraction(1, 10_000)

#: From this on, delta is no promise at all, and nothing is published from real data.
REFUSED_DELTA = Fraction(1, 10)

#: Above this, epsilon promises nothing and formulas leave the range of any use.
LARGEST_EPSILON = 1000


class PrivacyWarning(UserWarning):
    """A legal but unusual choice that weakens somebody's privacy."""


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) that may be spent on one population under one relation.

    Both numbers are exact rationals: a float means the decimal it prints as. There is no default budget anywhere
    in hushquery; somebody has to decide what people's privacy is worth.

    Args:
        epsilon: At least 0, at most 1000.
        delta: At least 0, below 1.

    >>> budget = Budget(0.3, 1e-6)
    >>> budget.epsilon, budget.delta
    (Fraction(3, 10), Fraction(1, 1000000))
    >>> sum(part.epsilon for part in budget.split([1, 1, 1])) == budget.epsilon
    True
    >>> print(budget)
    epsilon 0.3, delta 1e-06
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number = 0) -> None:
        exact_epsilon, exact_delta = exact(epsilon, "epsilon"), exact(delta, "delta")
        if exact_epsilon < 0:
            raise UsageError(
                "epsilon is negative", why="a privacy loss can't be", fix="Give epsilon > 0, often 0.1 to 4"
            )
        if exact_epsilon > LARGEST_EPSILON:
            raise UsageError(
                f"epsilon is above {LARGEST_EPSILON}",
                why="such a number promises nothing",
                fix="Give epsilon > 0, often 0.1 to 4",
            )
        if exact_delta < 0:
            raise UsageError(
                "delta is negative", why="it is a probability", fix="Give 0 <= delta < 1, often 1e-6 or less"
            )
        if exact_delta >= 1:
            raise UsageError(
                "delta is 1 or more",
                why="then everything may be revealed",
                fix="Give 0 <= delta < 1, often 1e-6 or less",
            )
        object.__setattr__(self, "epsilon", exact_epsilon)
        object.__setattr__(self, "delta", exact_delta)

    @classmethod
    def of(cls, budget: Budget | None = None, epsilon: Number | None = None, delta: Number | None = None) -> Budget:
        """Return the budget that a caller gave as a whole, or as plain numbers; delta is 0 where it is left out.

        >>> Budget.of(Budget(1, 1e-6)) == Budget.of(epsilon=1, delta=1e-6)
        True
        """
        if budget is None and epsilon is not None:
            return cls(epsilon, 0 if delta is None else delta)
        if isinstance(budget, cls) and epsilon is None and delta is None:
            return budget
        raise UsageError(
            "the privacy budget is missing" if budget is None else "the privacy budget is not clear",
            fix="Give either budget=Budget(EPSILON, DELTA), or epsilon= and delta= as numbers",
        )

    def __str__(self) -> str:
        return f"epsilon {format_epsilon(self.epsilon)}, delta {format_delta(self.delta)}"

    def __repr__(self) -> str:
        return f"Budget({float(self.epsilon)!r}, {float(self.delta)!r})"

    def split(self, shares: Sequence[Number] | Mapping[str, Number]) -> list[Budget]:
        """Cut the budget into parts in proportion to ``shares``; the parts add up to it exactly.

        >>> Budget(1, 0).split({"selection": 3, "counts": 1})
        [Budget(0.75, 0.0), Budget(0.25, 0.0)]
        """
        values = list(shares.values()) if isinstance(shares, Mapping) else list(shares)
        weights = [exact(share, "a share") for share in values]
        total = sum(weights, Fraction(0))
        if total <= 0 or min(weights) < 0:
            raise UsageError("shares must be non-negative and not all zero", fix="Give for example [3, 1]")
        return [Budget(self.epsilon * w / total, self.delta * w / total) for w in weights]

    def concerns(self, users: int | None = None) -> list[str]:
        """Say what is unusual about this budget; ``users`` is a public figure, never one read from a log."""
        return concerns(self.epsilon, self.delta, users)

    def warn(self, users: int | None = None) -> None:
        """Warn (:class:`PrivacyWarning`) of everything :meth:`concerns` finds."""
        for concern in self.concerns(users):
            warnings.warn(concern, PrivacyWarning, stacklevel=3)

    def check_publishable(self) -> None:
        """Refuse a delta with which nothing may be published from real data; called before anything is spent."""
        if self.delta >= REFUSED_DELTA:
            raise UsageError(
                f"delta {format_delta(self.delta)} is too large to publish anything",
                why=f"from {float(REFUSED_DELTA):g} on it is no promise: {_in_full(self.delta)}",
                fix="Give a delta well below one over the number of users, often 1e-6 or less",
            )


def concerns(epsilon: Fraction, delta: Fraction, users: int | None = None) -> list[str]:
    """Say what is unusual about a promise, a clause each; ``users`` is a public figure, never one read from a log."""
    found = []
    if epsilon > UNUSUAL_EPSILON:
        grow = "more than a million" if epsilon > 14 else f"{math.ceil(math.exp(epsilon)):,}"
        found.append(
            f"epsilon {format_epsilon(epsilon)} is above {UNUSUAL_EPSILON}: an attacker's odds about a person "
            f"may grow {grow} times"
        )
    if users is not None and delta * users > 1:
        found.append(
            f"delta {format_delta(delta)} is above one over the {users:,} users: publishing "
            f"{float(delta * users):,.1f} people in full would be within it; give at most {suggested_delta(users):.0e}"
        )
    elif delta > UNUSUAL_DELTA:
        found.append(
            f"delta {format_delta(delta)} is above {format_delta(UNUSUAL_DELTA)}: with this probability everything of "
            f"a person may be published; {_in_full(delta)}"
        )
    return found


def _in_full(delta: Fraction) -> str:
    return f"of 10,000 people, publishing {math.ceil(delta * 10_000):,} in full would be within it"


def format_epsilon(epsilon: Fraction | float) -> str:
    """Print epsilon with three significant digits, rounded up."""
    return significant_up(Fraction(epsilon), 3)


def format_delta(delta: Fraction | float) -> str:
    """Print delta in scientific notation, rounded up; never a 0.000 that is not zero.

    >>> format_delta(1e-6), format_delta(0)
    ('1e-06', '0')
    """
    return "0" if delta == 0 else significant_up(Fraction(delta), 2, scientific=True)


def in_full(value: float, digits: int = 6) -> str:
    """Print a number with some significant digits, and one that has more before its point in full, never as a power.

    >>> in_full(38.0), in_full(8.125, 3), in_full(9503537.25), in_full(99999.7, 5)
    ('38', '8.12', '9,503,537', '100,000')
    """
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def significant_up(value: Fraction, digits: int, *, scientific: bool = False) -> str:
    """Format with some significant digits, stepping up by one in the last place where the text fell below.

    >>> significant_up(Fraction(1, 3), 2)
    '0.34'
    """
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


def suggested_delta(users: int) -> float:
    """Give the delta that hushquery advises for so many people: the power of ten at or below 1/(100 users).

    Then a hundredth of a person, at most, is expected to be shown in full among all of them.

    >>> suggested_delta(65_000), suggested_delta(10_000)
    (1e-07, 1e-06)
    """
    return float(Fraction(1, 10 ** len(str(100 * users - 1))))
