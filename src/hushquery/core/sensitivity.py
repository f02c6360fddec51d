"""Global sensitivity: how much one protected unit can change an answer, and why.

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


def of_rows(rows_per_user: int) -> Bounds:
    """Bound a count of rows of which each unit contributes at most m: it adds up to m, or changes between 0 and m."""
    m = Fraction(_at_least_one(rows_per_user, "rows per user"))
    return Bounds(m, m * m, f"a unit counts at most {rows_per_user} row(s)")


def of_counts(keys_per_user: int, relation: Relation) -> Bounds:
    """Bound a histogram, counts of units per key, each unit in at most d of them, once in each: d, or 2d where a unit
    may leave d keys for d others.

    >>> [of_counts(1, relation).l1 for relation in (Relation.ADD_REMOVE, Relation.REPLACE_ONE)]
    [Fraction(1, 1), Fraction(2, 1)]
    """
    keys = _at_least_one(keys_per_user, "keys per user")
    changed = Fraction(keys * (2 if relation is Relation.REPLACE_ONE else 1))
    return Bounds(changed, changed, f"a unit changes at most {changed} count(s) by one")


def of_overlapping(queries: int, at_most: int | None, relation: Relation) -> Bounds:
    """Bound counting queries that may overlap: a unit can be in all of them, or in ``at_most`` of them."""
    most = _at_least_one(queries, "queries")
    cap = most if at_most is None else min(most, _at_least_one(at_most, "at_most"))
    changed = Fraction(min(most, 2 * cap) if relation is Relation.REPLACE_ONE else cap)
    return Bounds(changed, changed, f"a unit changes at most {changed} of {queries} count(s) by one")


def of_clamped_sum(lower: Number, upper: Number, relation: Relation) -> Bounds:
    """Bound a sum to which each unit contributes a value clamped to ``lower..upper``: by the largest absolute value
    (add-remove) or the width (replace-one) of the clamp.

    >>> of_clamped_sum(-1, 3, Relation.REPLACE_ONE).l1
    Fraction(4, 1)
    """
    low, high = checked_clamp(lower, upper)
    if relation is Relation.ADD_REMOVE:
        change, why = max(abs(low), abs(high)), "a unit adds at most the larger bound"
    else:
        change, why = high - low, "a unit moves the sum by at most the width of the bounds"
    return Bounds(change, change * change, why)


def checked_clamp(lower: Number, upper: Number) -> tuple[Fraction, Fraction]:
    """Return the ends of a clamp as exact numbers; refuse two that are not in order."""
    low, high = exact(lower, "the lower bound"), exact(upper, "the upper bound")
    if low >= high:
        raise UsageError(
            "the lower bound must be below the upper bound",
            why="values are clamped to the range between them",
            fix="Use bounds that you know without looking at the data",
        )
    return low, high


def _at_least_one(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31:
        raise UsageError(f"{name} must be a whole number of at least 1", fix=f"Use for example {name} = 1")
    return value
