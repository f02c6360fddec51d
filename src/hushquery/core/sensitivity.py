"""Global sensitivity as objects: how much one protected unit can change an answer, and why.

The L1 sensitivity calibrates Laplace noise, the L2 sensitivity Gaussian noise; both depend on the relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hushquery.core.budget import Number, Relation, exact
from hushquery.errors import UsageError


@dataclass(frozen=True)
class Bounds:
    """What one unit can change: the L1 norm, the squared L2 norm, and the reason in words."""

    l1: Fraction
    l2_squared: Fraction
    because: str


@dataclass(frozen=True)
class RowCount:
    """A count of rows of which each unit contributes at most ``rows_per_user``."""

    rows_per_user: int = 1

    def __post_init__(self) -> None:
        _at_least_one(self.rows_per_user, "rows per user")

    def bounds(self, relation: Relation) -> Bounds:
        """Return m: a unit adds up to m rows, or changes between none and m."""
        del relation
        m = Fraction(self.rows_per_user)
        return Bounds(m, m * m, f"a unit counts at most {self.rows_per_user} row(s)")


@dataclass(frozen=True)
class Counts:
    """A histogram: counts of units per key, each unit in at most ``keys_per_user`` of them, once in each.

    >>> [Counts(keys_per_user=1).bounds(relation).l1 for relation in (Relation.ADD_REMOVE, Relation.REPLACE_ONE)]
    [Fraction(1, 1), Fraction(2, 1)]
    """

    keys_per_user: int = 1

    def __post_init__(self) -> None:
        _at_least_one(self.keys_per_user, "keys per user")

    def bounds(self, relation: Relation) -> Bounds:
        """Return d, or 2d where a unit may leave d keys for d others."""
        changed = Fraction(self.keys_per_user * (2 if relation is Relation.REPLACE_ONE else 1))
        return Bounds(changed, changed, f"a unit changes at most {changed} count(s) by one")


@dataclass(frozen=True)
class OverlappingCounts:
    """A vector of counting queries that may overlap: a unit can be in all of them, or in ``at_most`` of them."""

    queries: int
    at_most: int | None = None

    def __post_init__(self) -> None:
        _at_least_one(self.queries, "queries")
        if self.at_most is not None:
            _at_least_one(self.at_most, "at_most")

    def bounds(self, relation: Relation) -> Bounds:
        """Return the number of counts a unit can change by one."""
        cap = min(self.queries, self.at_most or self.queries)
        changed = Fraction(min(self.queries, 2 * cap) if relation is Relation.REPLACE_ONE else cap)
        return Bounds(changed, changed, f"a unit changes at most {changed} of {self.queries} count(s) by one")


@dataclass(frozen=True)
class ClampedSum:
    """A sum to which each unit contributes a value clamped to ``lower..upper``.

    >>> ClampedSum(-1, 3).bounds(Relation.REPLACE_ONE).l1
    Fraction(4, 1)
    """

    lower: Fraction
    upper: Fraction

    def __init__(self, lower: Number, upper: Number) -> None:
        low, high = _ordered(lower, upper)
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)

    def bounds(self, relation: Relation) -> Bounds:
        """Return the largest absolute value (add-remove) or the width (replace-one) of the clamp."""
        if relation is Relation.ADD_REMOVE:
            change, why = max(abs(self.lower), abs(self.upper)), "a unit adds at most the larger bound"
        else:
            change, why = self.upper - self.lower, "a unit moves the sum by at most the width of the bounds"
        return Bounds(change, change * change, why)


def _at_least_one(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31:
        raise UsageError(f"{name} must be a whole number of at least 1", fix=f"Use for example {name} = 1")


def _ordered(lower: Number, upper: Number) -> tuple[Fraction, Fraction]:
    low, high = exact(lower, "the lower bound"), exact(upper, "the upper bound")
    if low >= high:
        raise UsageError(
            "the lower bound must be below the upper bound",
            why="values are clamped to the range between them",
            fix="Use bounds that you know without looking at the data",
        )
    return low, high
