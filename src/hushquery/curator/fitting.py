"""Fit a release to its people and to a series: thresholds out of reach, the least useful epsilon, equal parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hushquery.core import fitting
from hushquery.core.budget import Budget, in_full

if TYPE_CHECKING:
    from hushquery.curator.plan import ReleaseSpec, ReleaseSteps, SelectorName


def farthest(steps: ReleaseSteps, users: int) -> float:
    """Return the largest threshold of a release, as a multiple of what so many users can reach."""
    most = users * (steps.selector.queries_per_user if steps.selector.name == "korolova2009" else 1)
    return max(steps.selector.threshold / most, _clicks(steps) / users)


def out_of_reach(steps: ReleaseSteps, users: int) -> str | None:
    """Return, in words, which threshold is above what so many users can reach, if one is."""
    if farthest(steps, users) <= 1:
        return None
    if _clicks(steps) > users:
        return f"The threshold for clicks is {in_full(_clicks(steps), 5)} users"
    unit = "searches" if steps.selector.name == "korolova2009" else "users"
    return f"The threshold for queries is {in_full(steps.selector.threshold, 5)} {unit}"


def least_epsilon(at: Callable[[Budget], ReleaseSteps], budget: Budget, users: int) -> float | None:
    """Return an epsilon, hardly above the least, at which so many users reach every threshold; None up to 20."""
    return fitting.least_epsilon(lambda epsilon: farthest(at(Budget(epsilon, budget.delta)), users), 1, budget.epsilon)


def divided(spec: ReleaseSpec, times: int, calibrate: Callable[[ReleaseSpec], ReleaseSteps]) -> ReleaseSpec:
    """Return one of so many equal releases that together cost what ``spec`` may cost; ``auto`` is decided here.

    >>> from hushquery.curator.plan import ReleaseSpec, calibrate
    >>> each = divided(ReleaseSpec(Budget(1, 1e-6), 20, selector="laplace"), 4, calibrate)
    >>> str(each.budget)
    'epsilon 0.25, delta 1.3e-07'
    """
    if times == 1:
        return spec
    names: tuple[SelectorName, ...] = ("laplace", "gaussian") if spec.selector == "auto" else (spec.selector,)

    def part(name: SelectorName) -> ReleaseSpec:
        one = replace(spec, selector=name)
        return replace(one, budget=fitting.divide(one.budget, times, lambda b: calibrate(replace(one, budget=b)).loss))

    return min(map(part, names), key=lambda each: calibrate(each).selector.threshold)


def _clicks(steps: ReleaseSteps) -> int:
    return (steps.clicks.step.threshold or 0) if steps.clicks else 0
