"""Derived values: ratios, differences, ranks and functions of noisy numbers, with intervals, and a warning if steep.

The deck's last caution: counts have low sensitivity, but that does not help if a noisy count goes into a function
that is
very sensitive to its parameters. Deriving spends nothing; the uncertainty has to be carried along all the same.

Every interval here holds at the level of the numbers it came from: inputs are widened first so that all of them hold at
once (Bonferroni), then the function's range over that box is taken.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hushquery.errors import UsageError
from hushquery.privacy.estimates import Estimate, Estimates

__all__ = ["Rank", "SteepWarning", "difference", "function_of", "quotient", "rank", "ratio"]

# Relative uncertainty of a denominator, or relative departure from a straight line, above which a result is called
# steep.
_STEEP = 0.25


class SteepWarning(UserWarning):
    """A derived value depends so strongly on its noisy inputs that it says little."""


@dataclass(frozen=True)
class Rank:
    """The rank of one number among others, and the ranks that the noise allows for it."""

    label: str
    rank: int
    best: int
    worst: int


def difference(estimates: Estimates, first: str, second: str) -> Estimate:
    """Give first minus second.

    >>> difference(Estimates.raw(["a", "b"], [10.0, 4.0], [1.0, 1.0]), "a", "b").value
    6.0
    """
    a, b = _jointly(estimates, first, second)
    stderr = math.hypot(a.stderr, b.stderr)
    return Estimate(f"{first} - {second}", a.value - b.value, stderr, a.low - b.high, a.high - b.low)


def ratio(estimates: Estimates, first: str, second: str) -> Estimate:
    """Give first over second; where the denominator may be zero the interval has no ends.

    >>> half = ratio(Estimates.raw(["a", "b"], [50.0, 100.0], [1.0, 1.0]), "a", "b")
    >>> half.value, half.low < 0.5 < half.high
    (0.5, True)
    """
    return quotient(*_jointly(estimates, first, second), label=f"{first} / {second}")


def quotient(a: Estimate, b: Estimate, *, label: str) -> Estimate:
    """Give a over b for two numbers whose intervals already hold at once."""
    if b.value == 0 or b.stderr / abs(b.value) > _STEEP or b.low <= 0 <= b.high:
        _warn(f"{label} divides by a number that the noise may bring near zero")
    if b.low <= 0 <= b.high:
        return Estimate(label, a.value / b.value if b.value else math.nan, math.inf, -math.inf, math.inf)
    corners = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
    value = a.value / b.value
    stderr = math.hypot(a.stderr / b.value, a.value * b.stderr / b.value**2)
    return Estimate(label, value, stderr, min(corners), max(corners))


def rank(estimates: Estimates) -> list[Rank]:
    """Rank all numbers, largest first, with the best and worst rank that the noise allows; all ranges hold at once.

    >>> rank(Estimates.raw(["a", "b"], [10.0, 9.5], [1.0, 1.0]))
    [Rank(label='a', rank=1, best=1, worst=2), Rank(label='b', rank=2, best=1, worst=2)]
    """
    wide = _widened(estimates, max(1, len(estimates)))
    order = sorted(wide, key=lambda r: -r.value)
    out = [
        Rank(r.label, place, 1 + sum(o.low > r.high for o in wide), len(order) - sum(o.high < r.low for o in wide))
        for place, r in enumerate(order, 1)
    ]
    if out and sum(r.worst - r.best for r in out) / len(out) > len(out) / 2:
        _warn("the ranking is mostly noise: a typical rank may lie anywhere in more than half of the list")
    return out


def function_of(function: Callable[..., float], estimates: Estimates, *labels: str, steps: int = 8) -> Estimate:
    """Give any function of some of the numbers; its range is scanned over a grid of the box of their intervals.

    The standard error is that of the tangent; the scan finds the range of a function that is monotone in each input
    exactly, and of others as closely as its ``steps`` allow.

    >>> function_of(lambda x: x * x, Estimates.raw(["a"], [10.0], [0.1]), "a").value
    100.0
    """
    rows = _jointly(estimates, *labels)
    values = [r.value for r in rows]
    label = f"f({', '.join(labels)})"
    centre = _value(function, values)
    gradient, bent = [], 0.0
    for i, row in enumerate(rows):
        up, down = (
            _value(function, [*values[:i], v, *values[i + 1 :]])
            for v in (row.value + row.stderr, row.value - row.stderr)
        )
        slope, bend = (up - down) / 2, abs(up + down - 2 * centre) / 2
        gradient.append(slope)
        bent = max(bent, bend / abs(slope) if slope else math.inf if bend else 0.0)
    axes = [[r.low + (r.high - r.low) * k / steps for k in range(steps + 1)] for r in rows]
    seen = [_value(function, point) for point in itertools.product(*axes)]
    stderr = math.hypot(*gradient)
    if not all(map(math.isfinite, [*seen, centre, stderr])):
        _warn(f"{label} does not exist everywhere within the intervals of its inputs")
        return Estimate(label, centre, math.inf, -math.inf, math.inf)
    if bent > _STEEP or (centre and stderr / abs(centre) > _STEEP):
        _warn(f"{label} is steep or bent within one standard error of its inputs")
    return Estimate(label, centre, stderr, min(*seen, centre), max(*seen, centre))


def _value(function: Callable[..., float], point: Sequence[float]) -> float:
    """Give the function at a point; not a number where it does not exist."""
    try:
        return float(function(*point))
    except (ValueError, ZeroDivisionError, OverflowError):
        return math.nan


def _jointly(estimates: Estimates, *labels: str) -> list[Estimate]:
    if not labels:
        raise UsageError("nothing was named to derive a value from", fix="Name the estimates to use")
    wide = _widened(estimates, len(labels))
    return [wide[label] for label in labels]


def _widened(estimates: Estimates, together: int) -> Estimates:
    """Give intervals that hold for ``together`` numbers at once at the level of the table."""
    if together == 1:
        return estimates
    if estimates.marks:
        raise UsageError(
            "a value can't be derived from several post-processed numbers",
            why="their intervals no longer widen together",
            fix="Derive it from the raw estimates; post-process last",
        )
    return estimates.at_level(1 - (1 - estimates.level) / together)


def _warn(message: str) -> None:
    warnings.warn(message + "; read the interval, not the value", SteepWarning, stacklevel=3)
