"""Forecast: what a release will be like, before a row is read and a budget spent.

The threshold in users, the noise, and the number of near-unique queries that delta lets through: a delta of 1e-5 on
millions of users is not small. What is said about a log here is computed from a model of an ordinary one, never from
the steward's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from hushquery.curator.calibrate import SELECTORS, Calibrated, Request, SelectorName, calibrate
from hushquery.curator.count import law_of
from hushquery.curator.guided import Guided
from hushquery.curator.korolova import Theorem1
from hushquery.curator.select import Korolova, Reused
from hushquery.curator.weighted import Weighted
from hushquery.errors import UsageError
from hushquery.privacy.budget import Budget, suggested_delta
from hushquery.privacy.thresholds import WEIGHT_GRID

__all__ = [
    "TYPICAL_QUERIES",
    "Forecast",
    "checked_users",
    "compare",
    "forecast",
    "theorem_table",
    "untouched_share",
]

#: Distinct queries of a typical user in a month, on average.
TYPICAL_QUERIES = 34
# Of the logarithm of that number among users; few search a lot, many a little.
_SPREAD = 1.2
# Of an ordinary log: p proportional to (rank + shift)^-exponent.
_EXPONENT, _SHIFT, _VOCABULARY = 0.92, 1.5, 8_000_000
_A_MILLION = 1_000_000
# Expected near-unique queries above which a warning is due.
_NOT_SMALL = 0.1


@dataclass(frozen=True)
class Forecast:
    """What to expect of a plan.

    Args:
        selector: Its name.
        queries_per_user: d.
        threshold: In users (searches for korolova2009; weights of users for weighted and guided).
        scale: Of the noise that meets the threshold: b, or sigma; None for coins.
        noise: Standard deviation of the published counts; None where there are none.
        expected_rare: Near-unique queries that come out, at most, in expectation.
        users: For how many users that is.
        released: Queries that come out of an ordinary log of so many users, roughly.
        untouched: The share of typical users whom d does not touch.
        warnings: What the steward should know.
    """

    selector: str
    queries_per_user: int
    threshold: float
    scale: float | None
    noise: float | None
    expected_rare: float
    users: int
    released: int
    untouched: float
    warnings: tuple[str, ...]


def forecast(request: Request, users: int | None = None, made: Calibrated | None = None) -> Forecast:
    """Say what a release will be like; data-free.

    Args:
        request: What is asked for.
        users: How many users the log has, a public figure; a million when it is not given.
        made: Its calibration, where it is at hand.

    >>> seen = forecast(Request(Budget("ln 10", 1e-5), 20), users=65_000)
    >>> seen.selector, seen.threshold, f"{seen.expected_rare:.2f}"
    ('gaussian', 40.0, '0.64')
    """
    people = checked_users(users)
    made = made or calibrate(request)
    selector = made.selector
    rare = people * selector.rare_chance()
    warnings = []
    if rare > _NOT_SMALL or people * float(request.budget.delta) > _NOT_SMALL:
        warnings.append(
            f"delta {float(request.budget.delta):.3g} is not small for {people:,} users"
            f"{'' if users else ' (give --users if there are fewer)'}: up to {rare:.3g} queries that only one person "
            f"posed may come out; consider --delta {suggested_delta(people):.0e}"
        )
    law = None
    if isinstance(selector, Reused):
        law = law_of(selector.step)
    elif isinstance(selector, Korolova):
        law = law_of(selector.theorem.step())
    scale = float(law.b if hasattr(law, "b") else law.sigma) if law else None
    if isinstance(selector, Weighted | Guided):
        scale = float(selector.selection.sigma) / WEIGHT_GRID
    return Forecast(
        selector.name,
        selector.queries_per_user,
        selector.threshold,
        scale,
        None if selector.counts is None else math.sqrt(law_of(selector.counts).variance),
        rare,
        people,
        _released(made, people),
        untouched_share(selector.queries_per_user),
        tuple(warnings),
    )


def checked_users(users: int | None) -> int:
    """Give the number of users to forecast for: the public figure given, or a million.

    >>> checked_users(None)
    1000000
    """
    if users is not None and not 1 <= users <= 10**11:
        raise UsageError("the number of users must be from 1 to 10^11", fix="Give --users (users=), a public figure")
    return users or _A_MILLION


def compare(
    budget: Budget,
    users: int | None = None,
    queries_per_user: Sequence[int] = (1, 5, 10, 20, 40, 80, 160),
    selectors: Sequence[SelectorName] = SELECTORS[1:],
    **request: Any,
) -> list[Forecast]:
    """Forecast every selector at several values of d, for a log of a given size; data-free.

    >>> [f.threshold for f in compare(Budget("ln 10", 1e-5), 65_000, (5, 20), ("laplace", "gaussian"))]
    [29.0, 122.0, 20.0, 40.0]
    """
    base = Request(budget, 1, **request)
    return [
        forecast(replace(base, selector=selector, queries_per_user=d), users)
        for selector in selectors
        for d in queries_per_user
    ]


def untouched_share(queries_per_user: int) -> float:
    """Give the share of typical users with at most d distinct queries a month.

    A model, not a measurement: log-normal with a mean of 34 and a standard deviation of the logarithm of 1.2.

    >>> f"{untouched_share(20):.2f}"
    '0.57'
    """
    centre = math.log(TYPICAL_QUERIES) - _SPREAD**2 / 2
    return NormalDist(centre, _SPREAD).cdf(math.log(queries_per_user + 0.5))


def _released(made: Calibrated, users: int) -> int:
    """Estimate how many queries of an ordinary log of so many users pass."""
    selector, d = made.selector, made.selector.queries_per_user
    quantiles = (np.arange(2000) + 0.5) / 2000
    activity = np.exp(
        math.log(TYPICAL_QUERIES) - _SPREAD**2 / 2 + _SPREAD * np.array([NormalDist().inv_cdf(x) for x in quantiles])
    )
    ranks = np.unique(np.geomspace(1, _VOCABULARY, 4000).astype(np.int64))
    chances = (ranks + _SHIFT) ** -_EXPONENT
    total = ((_VOCABULARY + _SHIFT) ** (1 - _EXPONENT) - (1 + _SHIFT) ** (1 - _EXPONENT)) / (1 - _EXPONENT)
    chances /= total
    if isinstance(selector, Weighted):
        mass = float(np.sqrt(np.minimum(activity, d)).mean())
    elif isinstance(selector, Guided):
        # Users keep only what is popular enough; what that is depends on what is kept, so iterate.
        mass, alive = 0.0, 1.0
        for _ in range(20):
            kept = np.clip(activity * alive, 1e-9, d)
            mass = float((activity * np.minimum(1, d / (activity * alive)) / np.sqrt(np.maximum(kept, 1))).mean())
            passing = users * mass * chances >= selector.threshold
            last = int(ranks[passing][-1]) if passing.any() else 1
            alive = ((last + _SHIFT) ** (1 - _EXPONENT) - (1 + _SHIFT) ** (1 - _EXPONENT)) / (1 - _EXPONENT) / total
            alive = max(alive, 1e-3)
    else:
        mass = float(np.minimum(activity, d).mean())
    passing = users * mass * chances >= selector.threshold
    return int(ranks[passing][-1]) if passing.any() else 0


def theorem_table(theorem: Theorem1) -> dict[str, float]:
    """Give the numbers of Theorem 1 as plain data."""
    return {
        "threshold": float(theorem.threshold),
        "scale": float(theorem.scale),
        "delta_alg": theorem.delta_alg,
        "delta_exact": theorem.delta_exact,
        "delta_naive": theorem.delta_naive,
    }
