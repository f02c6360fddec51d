"""Derived values: ratios, differences, ranks and functions of noisy numbers, with intervals, and a warning if steep.

The deck's last caution: counts have low sensitivity, but that does not help if a noisy count goes into a function that
is very sensitive to its parameters. Deriving spends nothing; the uncertainty has to be carried along all the same.

Every interval here holds at the level of the numbers it came from. Differences follow by the square root of the sum of
squared distances to the ends (:func:`difference_ends`), ratios by asking for which ratio r the difference a - r b may
be zero (Fieller 1954). For ranks and for any other function, inputs are widened first so that all of them hold at once
(Bonferroni), then the function's range over that box is taken.

References:
    W. G. Howe, Approximate confidence limits on the mean of X + Y, JASA 69(347), 1974.
    G. Y. Zou and A. Donner, Construction of confidence limits about effect measures, Statistics in Medicine 27, 2008.
    E. C. Fieller, Some problems in interval estimation, JRSS B 16, 1954.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from hushquery.core.estimates import Estimate, Estimates
from hushquery.errors import UsageError

__all__ = [
    "Ends",
    "Rank",
    "SteepWarning",
    "combinable",
    "difference",
    "difference_ends",
    "function_of",
    "quotient",
    "rank",
    "ratio",
]

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


class Ends(NamedTuple):
    """An interval and its centre, as a difference needs them.

    Args:
        low: The lower end.
        centre: The value that is as likely too high as too low.
        high: The upper end.
        bounded: Whether the number can't be below ``low``, whatever the noise.
    """

    low: float
    centre: float
    high: float
    bounded: bool = False


def difference_ends(first: Ends, second: Ends) -> tuple[float, float]:
    """Return the interval of first minus second, from their intervals at the same level; their noise is independent.

    Its lower end is as far from the difference of the centres as the root of the sum of two squares: how far first may
    be below its centre, and second above. That is exact for Gaussian noise, and at levels from 0.92 on a little wide
    for Laplace noise. Where first is bounded from below, it is certain not to be below its lower end, no chance of a
    miss was spent on it, and the end is that bound less the upper end of second. Proof and coverage:
    docs/proofs/intervals.md.

    >>> difference_ends(Ends(7, 10, 13), Ends(0, 4, 8))
    (1.0, 11.0)
    >>> difference_ends(Ends(1, 10, 13, bounded=True), Ends(0, 4, 8))
    (-7, 11.0)
    """
    change = first.centre - second.centre
    low = change - math.hypot(first.centre - first.low, second.high - second.centre)
    high = change + math.hypot(first.high - first.centre, second.centre - second.low)
    return (
        first.low - second.high if first.bounded else low,
        first.high - second.low if second.bounded else high,
    )


def difference(estimates: Estimates, first: str, second: str) -> Estimate:
    """Return first minus second.

    >>> difference(Estimates.raw(["a", "b"], [10.0, 4.0], [1.0, 1.0]), "a", "b").value
    6.0
    """
    if estimates.intervals is not None:
        # Counts of the same reports are not independent: both intervals must hold at once.
        a, b = _jointly(estimates, first, second)
        spread = a.stderr + b.stderr
        return Estimate(f"{first} - {second}", a.value - b.value, spread, a.low - b.high, a.high - b.low)
    a, b = (combinable(estimates, estimates[label]) for label in (first, second))
    low, high = difference_ends(Ends(a.low, a.value, a.high), Ends(b.low, b.value, b.high))
    return Estimate(f"{first} - {second}", a.value - b.value, math.hypot(a.stderr, b.stderr), low, high)


def ratio(estimates: Estimates, first: str, second: str) -> Estimate:
    """Return first over second; where the denominator may be zero the interval has no ends.

    >>> half = ratio(Estimates.raw(["a", "b"], [50.0, 100.0], [1.0, 1.0]), "a", "b")
    >>> half.value, half.low < 0.5 < half.high
    (0.5, True)
    """
    if estimates.intervals is not None:
        return function_of(lambda a, b: a / b, estimates, first, second)
    a, b = (combinable(estimates, estimates[label]) for label in (first, second))
    return quotient(a, b, label=f"{first} / {second}")


def quotient(a: Estimate, b: Estimate, *, label: str) -> Estimate:
    """Return a over b for two numbers with independent noise, from intervals that :func:`combinable` gave.

    The interval holds the ratios r for which ``(a - r b)^2 <= wa^2 + r^2 wb^2``: those for which the difference a - r b
    may be zero. It has no ends where b may be zero.
    """
    wa, wb = ((row.high - row.low) / 2 for row in (a, b))
    if b.value == 0 or b.stderr / abs(b.value) > _STEEP or wb >= abs(b.value):
        _warn(f"{label} divides by a number that the noise may bring near zero")
    if wb >= abs(b.value):
        return Estimate(label, a.value / b.value if b.value else math.nan, math.inf, -math.inf, math.inf)
    value = a.value / b.value
    stderr = math.hypot(a.stderr / b.value, a.value * b.stderr / b.value**2)
    # Over b^2, with x = wb/b and y = wa/b: (1 - x^2) r^2 - 2 value r + value^2 - y^2 <= 0.
    x, y = wb / b.value, wa / b.value
    room = math.sqrt(max(0.0, (value * x) ** 2 + y * y * (1 - x * x)))
    return Estimate(label, value, stderr, (value - room) / (1 - x * x), (value + room) / (1 - x * x))


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


def combinable(estimates: Estimates, row: Estimate) -> Estimate:
    """Return a raw number with an interval that the root of the sum of squares may combine with another.

    Whole steps of noise within ``+-w`` stand for a continuous noise within ``+-(w + 1/2)``, and two of them do not add
    up to whole steps. At levels below 0.92 the middle of Laplace noise is narrower than that of normal noise with the
    same standard error, and that of a sum of two is not.
    """
    _refuse_processed(estimates)
    half_step = float(getattr(estimates.noise, "step", 0)) / 2
    normal = NormalDist().inv_cdf((1 + estimates.level) / 2) * row.stderr
    reach = max((row.high - row.low) / 2 + half_step, normal)
    return row._replace(low=row.value - reach, high=row.value + reach)


def _jointly(estimates: Estimates, *labels: str) -> list[Estimate]:
    if not labels:
        raise UsageError("nothing was named to derive a value from", fix="Name the estimates to use")
    wide = _widened(estimates, len(labels))
    return [wide[label] for label in labels]


def _widened(estimates: Estimates, together: int) -> Estimates:
    """Give intervals that hold for ``together`` numbers at once at the level of the table."""
    if together == 1:
        return estimates
    _refuse_processed(estimates)
    return estimates.at_level(1 - (1 - estimates.level) / together)


def _refuse_processed(estimates: Estimates) -> None:
    if estimates.marks:
        raise UsageError(
            "a value can't be derived from several post-processed numbers",
            why="their intervals no longer widen together",
            fix="Derive it from the raw estimates; post-process last",
        )


def _warn(message: str) -> None:
    warnings.warn(message + "; read the interval, not the value", SteepWarning, stacklevel=3)
