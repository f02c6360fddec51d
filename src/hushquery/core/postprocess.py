"""Post-processing: steps that make noisy numbers nicer, each named in the result, none of which can spend budget.

**Guarantee:** any function of a private result is as private as the result (Dwork and Roth 2014, Proposition 2.1);
these
functions see nothing else. Common sense may go in (a count is not negative), knowledge of the data may not.

Clipping and projecting make numbers plausible and biased; sums and averages of many numbers should start from the raw
ones.
Intervals stay statements about the truth: they are clipped, rounded outwards or kept, never narrowed by wishful
thinking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hushquery.core.estimates import Estimate, Estimates
from hushquery.errors import UsageError

__all__ = ["agree", "clip", "isotonic", "project_on_simplex", "rounded", "simplex"]


def rounded(estimates: Estimates, step: float = 1.0) -> Estimates:
    """Round values to multiples of ``step``; intervals are rounded outwards.

    >>> raw = Estimates.raw(["a"], [-1.6], [1.0])
    >>> [row.value for row in rounded(raw)]
    [-2.0]
    """
    if not step > 0 or math.isinf(step):
        raise UsageError("the step must be a positive number", fix="Give for example 1")

    def to(x: float, whole: Callable[[float], float]) -> float:
        return whole(x / step) * step if math.isfinite(x) else x

    return estimates.changed(
        [
            r._replace(value=to(r.value, round), low=to(r.low, math.floor), high=to(r.high, math.ceil))
            for r in estimates
        ],
        f"rounded to {step:g}",
    )


def clip(estimates: Estimates, low: float = 0.0, high: float = math.inf) -> Estimates:
    """Clip values and intervals to a range that the truth can't leave; -1.6 people become 0.

    >>> raw = Estimates.raw(["a", "b"], [-1.6, 5.0], [1.0, 1.0])
    >>> clip(raw).values
    [0.0, 5.0]
    """
    if not low < high:
        raise UsageError("the range to clip to is empty", fix="Give low < high")

    def into(x: float) -> float:
        return min(max(x, low), high)

    words = f"clipped at {low:g}" if math.isinf(high) else f"clipped to {low:g}..{high:g}"
    return estimates.changed(
        [r._replace(value=into(r.value), low=into(r.low), high=into(r.high)) for r in estimates], words
    )


def isotonic(estimates: Estimates, *, increasing: bool = True) -> Estimates:
    """Make the values monotone in the order of the rows, changing them as little as possible (weighted least squares).

    >>> raw = Estimates.raw(["a", "b", "c"], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0])
    >>> isotonic(raw).values
    [1.0, 2.5, 2.5]
    """
    from scipy.optimize import isotonic_regression

    # A number without noise weighs very much and one without knowledge very little, but both are numbers.
    usual = [r.stderr for r in estimates if 0 < r.stderr < math.inf]
    least, most = (min(usual) / 1e4, max(usual) * 1e4) if usual else (1.0, 1.0)
    weights = [1 / min(max(r.stderr, least), most) ** 2 for r in estimates]
    fitted: list[float] = []
    if len(estimates):
        fitted = isotonic_regression(estimates.values, weights=weights, increasing=increasing).x.tolist()
    return estimates.changed(_moved(estimates, fitted), "made " + ("increasing" if increasing else "decreasing"))


def agree(total: Estimate, parts: Estimates) -> tuple[Estimate, Estimates]:
    """Make a total and its parts add up, by weighted least squares.

    With variances s^2 of the total and v_i of the parts and the gap g = total - sum of parts, the total moves by
    -g s^2/(s^2 + sum v) and part i by g v_i/(s^2 + sum v): linear and unbiased, and each variance v becomes
    v - v^2/(s^2 + sum v). Intervals stay those of the raw numbers, which still hold; they only grow to include the
    new value. Reference: Hay, Rastogi, Miklau and Suciu 2010.

    >>> halves = Estimates.raw(["a", "b"], [4.0, 5.0], [1.0, 1.0])
    >>> whole, parts = agree(Estimate("all", 12.0, 1.0, 10.0, 14.0), halves)
    >>> whole.value, parts.values
    (11.0, [5.0, 6.0])
    """
    spread = total.stderr**2 + math.fsum(r.stderr**2 for r in parts)
    if not len(parts) or not 0 < spread < math.inf:
        raise UsageError("there is nothing to adjust", why="no parts, or no finite uncertainty", fix="Give both")
    gap = total.value - math.fsum(parts.values)

    def moved(row: Estimate, direction: int) -> Estimate:
        variance = row.stderr**2
        value = row.value + direction * gap * variance / spread
        stderr = math.sqrt(max(0.0, variance - variance**2 / spread))
        return Estimate(row.label, value, stderr, min(row.low, value), max(row.high, value))

    return moved(total, -1), parts.changed([moved(r, 1) for r in parts], f"made to add up to {total.label}")


def project_on_simplex(values: Sequence[float], total: float = 1.0) -> list[float]:
    """Give the nearest non-negative numbers with a given sum, in the Euclidean sense.

    Reference: Duchi, Shalev-Shwartz, Singer and Chandra 2008.

    >>> project_on_simplex([0.9, 0.4, -0.2])
    [0.75, 0.25, 0.0]
    """
    if not values or not all(map(math.isfinite, values)) or not 0 < total < math.inf:
        raise UsageError("only finite numbers can be projected, on a positive sum", fix="Give at least one number")
    # Moving all numbers alike does not move the projection; from their largest, sums keep their digits.
    top = max(values)
    ordered = sorted((v - top for v in values), reverse=True)
    running, shift = 0.0, 0.0
    for i, value in enumerate(ordered, 1):
        running += value
        if value - (running - total) / i > 0:
            shift = (running - total) / i
    return [max(v - top - shift, 0.0) for v in values]


def simplex(estimates: Estimates, total: float = 1.0) -> Estimates:
    """Make the values non-negative with sum ``total``, changing them as little as possible.

    Intervals are cut at 0 and ``total``, which the truth can't leave: they hold as often as before.

    >>> [(row.value, row.low) for row in simplex(Estimates.raw(["a", "b"], [1.1, -0.1], [0.1, 0.1]))]
    [(1.0, 0.9040...), (0.0, 0.0)]
    """
    moved = _moved(estimates, project_on_simplex(estimates.values, total))
    cut = [r._replace(low=max(r.low, 0.0), high=max(min(r.high, total), r.value)) for r in moved]
    return estimates.changed(cut, f"projected on sum {total:g}")


def _moved(estimates: Estimates, values: Sequence[float]) -> list[Estimate]:
    """Put new values into the rows; an interval grows where it would leave its own value outside."""
    return [r._replace(value=v, low=min(r.low, v), high=max(r.high, v)) for r, v in zip(estimates, values, strict=True)]
