"""Forecast a release from a model of an ordinary log, before a row is read or a budget is spent.

The number of released queries is a 90% range, at most four times wide, that starts at 0 where it ends at ten or less;
docs/forecasts.md compares it with actual releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from hushquery.core.budget import Budget, check_users, suggested_delta
from hushquery.core.calibration import WEIGHT_GRID
from hushquery.core.iterated import IteratedSelection
from hushquery.core.loss import (
    GaussianHistogram,
    GaussianWeights,
    LaplaceHistogram,
    OptimalSelection,
)
from hushquery.curator.counting import law_of, released_from
from hushquery.curator.plan import SELECTORS, ReleaseSpec, ReleaseSteps, SelectorName, calibrate
from hushquery.curator.selectors import Selector
from hushquery.curator.selectors.guided import ENOUGH, LEAST_SHARE, LOOKS_EMPTY, Guided
from hushquery.curator.selectors.iterated import Iterated
from hushquery.curator.selectors.korolova2009 import Theorem1
from hushquery.errors import UsageError

#: Distinct queries of a typical user in a month, on average.
TYPICAL_QUERIES = 34
#: The values of d that are compared.
BOUNDS = (1, 2, 5, 10, 20, 40, 80, 160)
# Of searches half lead to a page, and of the clicks on a query half to its first page: enough to weigh tables.
_CLICKED, _FIRST_PAGE = 0.5, 0.5
# Of the logarithm of that number among users; few search a lot, many a little.
_SPREAD = 1.2
# By how much results may be below and above what the model expects, besides chance.
_BELOW, _ABOVE = 1.25, 1.6
# Nine of ten results lie within this many standard deviations.
_NINE_OF_TEN = NormalDist().inv_cdf(0.95)
#: A range is at most this many times wide, unless it ends at `_FEW` or less: it then begins at nothing.
_WIDEST, _FEW, _FEWEST = 4, 10, 3
_A_MILLION = 1_000_000
# Expected near-unique queries above which a warning is due.
_NOT_SMALL = 0.1

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LogModel:
    """A kind of log: query shares at ranks 1, 10, 100, ...; mean and deviation of log distinct queries and searches."""

    popularity: tuple[float, ...]
    distinct: tuple[float, float]
    searches: tuple[float, float]


#: The synthetic profiles, measured on 100,000 made-up users each; tests/curator/test_forecast.py measures again.
LOGS: dict[str, LogModel] = {
    "aol": LogModel((1.15e-2, 2.3e-3, 3.8e-4, 6.6e-5, 6.3e-6, 1.2e-6, 1e-7), (2.44, 1.21), (2.60, 1.25)),
    "yandex": LogModel((1.06e-2, 2.1e-3, 3.0e-4, 4.3e-5, 6.2e-6, 1.2e-6, 1e-7), (2.44, 1.21), (2.60, 1.25)),
    "tiny": LogModel((4.1e-2, 8.5e-3, 1.26e-3, 1.28e-4, 1.2e-5, 1e-9, 1e-13), (2.38, 0.96), (2.60, 1.00)),
}


@dataclass(frozen=True)
class Forecast:
    """What to expect of a plan with ``users`` users.

    ``threshold`` is in users (searches for korolova2009, weights for weighted, guided and iterated), ``scale`` is None
    for coins.
    At most ``expected_rare`` near-unique queries (of one user, or of as few as a floor lets through) are expected to
    come out; ``released_low`` to ``released_high`` is a 90% range; ``untouched`` is the share of typical users with at
    most d queries. ``expected`` is what the model alone expects, ``click_threshold`` is for a query's page, in users.
    """

    selector: str
    queries_per_user: int
    threshold: float
    scale: float | None
    noise: float | None
    expected_rare: float
    users: int
    released_low: int
    released_high: int
    untouched: float
    warnings: tuple[str, ...]
    expected: float
    clicks_per_user: int | None = None
    click_threshold: float | None = None
    expected_clicks: float = 0.0


def forecast(
    spec: ReleaseSpec,
    users: int | None = None,
    steps: ReleaseSteps | None = None,
    like: str = "aol",
    searches: float | None = None,
) -> Forecast:
    """Compute what a release will be like; data-free.

    ``users`` is a public figure, by default a million; ``like`` is the kind of log, one of :data:`LOGS`; ``searches``
    is how many a user makes on average, by default as in that kind of log.

    >>> seen = forecast(ReleaseSpec(Budget("ln 10", 1e-5), 20), users=65_000)
    >>> seen.selector, seen.threshold, f"{seen.expected_rare:.2f}", seen.released_low, seen.released_high
    ('gaussian', 40.0, '0.64', 1013, 2211)
    """
    people = checked_users(users)
    if like not in LOGS:
        raise UsageError(f"no kind of log is called {like!r}", fix=f"Use one of {', '.join(LOGS)}")
    steps = steps or calibrate(spec)
    selector, clicks = steps.selector, None if steps.clicks is None else steps.clicks.step
    rare = people * selector.rare_chance()
    warnings = []
    if rare > _NOT_SMALL or people * float(spec.budget.delta) > _NOT_SMALL:
        warnings.append(
            f"delta {float(spec.budget.delta):.3g} is not small for {people:,} users"
            f"{'' if users else ' (give --users if there are fewer)'}: up to {rare:.3g} queries that only "
            f"{few_people(spec.min_users)} posed may come out; consider --delta {suggested_delta(people):.0e}"
        )
    log = _of_length(LOGS[like], searches)
    expected = _expected(selector, people, log)
    return Forecast(
        selector.name,
        selector.queries_per_user,
        selector.threshold,
        _scale(selector),
        None if selector.counts is None else math.sqrt(law_of(selector.counts).variance),
        rare,
        people,
        *_range(expected),
        untouched_share(selector.queries_per_user),
        tuple(warnings),
        expected,
        None if clicks is None else clicks.keys_per_user,
        None if clicks is None or clicks.threshold is None else float(released_from(clicks)),
        0.0 if clicks is None else _expected_clicks(clicks, people, log),
    )


def few_people(min_users: int = 1) -> str:
    """Name the fewest people whose query may come out: one, or those of a floor."""
    return "one person" if min_users == 1 else f"{min_users:,} people (the floor)"


def _of_length(log: LogModel, searches: float | None) -> LogModel:
    """Return a kind of log whose users make so many searches on average, fewer or more different ones with them."""
    if searches is None:
        return log
    centre, spread = log.searches
    shift = math.log(max(1.0, searches)) - centre - spread**2 / 2
    return replace(log, searches=(centre + shift, spread), distinct=(log.distinct[0] + shift, log.distinct[1]))


def checked_users(users: int | None) -> int:
    """Return the number of users to forecast for: the public figure given, or a million."""
    check_users(users)
    return users or _A_MILLION


def compare(
    budget: Budget,
    users: int | None = None,
    queries_per_user: Sequence[int] = BOUNDS,
    selectors: Sequence[SelectorName] = SELECTORS[1:],
    like: str = "aol",
    searches: float | None = None,
    **spec: Any,
) -> list[Forecast]:
    """Forecast every selector at several values of d, for a log of a given size; data-free. See :func:`forecast`.

    >>> [f.threshold for f in compare(Budget("ln 10", 1e-5), 65_000, (5, 20), ("laplace", "gaussian"))]
    [29.0, 122.0, 20.0, 40.0]
    """
    base = ReleaseSpec(budget, 1, **spec)
    return [
        forecast(replace(base, selector=selector, queries_per_user=d), users, like=like, searches=searches)
        for selector in selectors
        for d in queries_per_user
    ]


def untouched_share(queries_per_user: int) -> float:
    """Return the share of typical users with at most d distinct queries a month: a log-normal model, not a measurement.

    >>> f"{untouched_share(20):.2f}"
    '0.57'
    """
    centre = math.log(TYPICAL_QUERIES) - _SPREAD**2 / 2
    return NormalDist(centre, _SPREAD).cdf(math.log(queries_per_user + 0.5))


def _expected(selector: Selector, users: int, log: LogModel) -> float:
    """Compute how many queries of such a log pass, in expectation."""
    popularity, many = _ranks(log)
    sums, spread = _sums(selector, users, log, popularity, many)
    there = -np.expm1(-sums)  # of the rarest queries of such a log most are nobody's
    return float((there * many * ndtr((sums - selector.threshold) / spread)).sum())


def _expected_clicks(step: LaplaceHistogram | GaussianHistogram, users: int, log: LogModel) -> float:
    """Compute about how many first pages of queries pass: a rough model, only to weigh one plan against another."""
    popularity, many = _ranks(log)
    kept = np.minimum(_CLICKED * _people(log.distinct), step.keys_per_user).mean()
    sums = users * kept * _FIRST_PAGE * popularity
    spread = np.sqrt(sums + law_of(step).variance)
    passes = 1.0 if step.threshold is None else ndtr((sums - float(released_from(step))) / spread)
    return float((-np.expm1(-sums) * many * passes).sum())


def _ranks(log: LogModel) -> tuple[_Floats, _Floats]:
    """Return popularity at ranks in steps of one percent or of one, and how many ranks each stands for."""
    edges = np.unique(np.geomspace(1, 10 ** (len(log.popularity) - 1), 1400).astype(np.int64))
    ranks, many = (edges[:-1] + edges[1:] - 1) / 2, np.diff(edges)
    return 10 ** np.interp(np.log10(ranks), range(len(log.popularity)), np.log10(log.popularity)), many


def _sums(selector: Selector, users: int, log: LogModel, popularity: _Floats, many: _Floats) -> tuple[_Floats, _Floats]:
    """Compute what a selector compares with its threshold: mean and standard deviation for the query of each rank."""
    if isinstance(selector, Iterated):
        return _evidence(selector, users, _people(log.distinct), popularity, many)
    step, d = selector.selection, selector.queries_per_user
    distinct = _people(log.searches if selector.name == "korolova2009" else log.distinct)
    if isinstance(selector, Guided):
        sums = users * _guided_weight(selector, users, distinct, popularity, many) * popularity
    else:
        kept = np.minimum(distinct, d)
        sums = users * (np.sqrt(kept) if isinstance(step, GaussianWeights) else kept).mean() * popularity
    noise = 0.0
    if isinstance(step, OptimalSelection):
        noise = math.pi / math.sqrt(3) / float(step.epsilon)  # its coin is nearly a logistic curve
    elif isinstance(step, GaussianWeights):
        noise = float(step.sigma) / WEIGHT_GRID
    elif isinstance(step, LaplaceHistogram | GaussianHistogram):
        noise = math.sqrt(law_of(step).variance)
    return sums, np.sqrt(sums + noise**2)


def _scale(selector: Selector) -> float | None:
    """Return the scale of the noise that meets the threshold; None for coins."""
    step = selector.selection
    if isinstance(step, OptimalSelection):
        return None
    if isinstance(step, LaplaceHistogram):
        return float(step.scale)
    if isinstance(step, IteratedSelection):
        parts = zip(step.evidence, step.sigmas, strict=True)
        return math.hypot(*(weight * float(sigma) for weight, sigma in parts)) / (sum(step.evidence) * step.grid)
    return float(step.sigma) / (WEIGHT_GRID if isinstance(step, GaussianWeights) else 1)


def _guided_weight(selector: Guided, users: int, distinct: _Floats, popularity: _Floats, many: _Floats) -> _Floats:
    """Compute the weight that a user gives to the query of each rank, over its popularity."""
    sketched = np.sqrt(np.minimum(distinct, selector.sketch.keys_per_user)).mean() * users * popularity
    alive = ndtr(sketched * WEIGHT_GRID / float(selector.sketch.sigma) - LOOKS_EMPTY)
    share = np.clip(ENOUGH * selector.threshold / sketched, LEAST_SHARE, 1.0)
    unknown = float(ndtr(-LOOKS_EMPTY))
    return _weight(share, alive, unknown, distinct, selector.queries_per_user, popularity, many)


def _weight(
    share: _Floats, alive: _Floats, unknown: float, distinct: _Floats, most: int, popularity: _Floats, many: _Floats
) -> _Floats:
    """Compute the weight that users give to the query of each rank, over its popularity, given which are alive."""
    # Of the queries that nobody else has, some look alive by chance, and those take weight too.
    unknown *= max(0.0, 1 - float((many * popularity).sum()))
    looks_alive = float((many * popularity * alive).sum()) + unknown
    squares = (float((many * popularity * alive * share**2).sum()) + unknown) / looks_alive
    kept = np.minimum(distinct * looks_alive, most)
    each = (kept / looks_alive / np.sqrt(np.maximum(kept, 1) * squares)).mean()
    return np.asarray(each * alive * share, dtype=np.float64)


def _evidence(
    selector: Iterated, users: int, distinct: _Floats, popularity: _Floats, many: _Floats
) -> tuple[_Floats, _Floats]:
    """Compute the evidence of the query of each rank after the last round, in users' weights: mean and deviation."""
    step = selector.selection
    unit = sum(step.evidence) * step.grid
    alive, unknown, share = np.ones_like(popularity), 1.0, np.ones_like(popularity)
    evidence, noise = np.zeros_like(popularity), 0.0
    for r, (cut, sigma) in enumerate(zip((*step.cuts, step.threshold), map(float, step.sigmas), strict=True)):
        weight = _weight(share, alive, unknown, distinct, step.keys_per_user, popularity, many)
        evidence = evidence + step.evidence[r] * step.grid * users * weight * popularity
        noise = math.hypot(noise, step.evidence[r] * sigma)
        if r < len(step.cuts):
            alive = ndtr((evidence - cut) / noise)
            # A query that one user has is alive by the noise alone, or nearly so.
            unknown = float(ndtr(-cut / noise))
            share = selector.shares(np.maximum(evidence, cut), r + 1) / 2**20
    # What died on the way is far from the threshold too.
    return evidence / unit, np.sqrt(evidence / unit + (noise / unit) ** 2)


def _people(logarithm: tuple[float, float]) -> _Floats:
    """Compute how much each of 400 typical users searches, given mean and standard deviation of the logarithm."""
    normal = NormalDist(*logarithm)
    return np.array([max(1.0, math.exp(normal.inv_cdf((i + 0.5) / 400))) for i in range(400)])


def _range(expected: float) -> tuple[int, int]:
    """Turn an expected number into a 90% range, at most four times wide; from nothing where it is small.

    >>> _range(0.01), _range(2.0), _range(20.0), _range(2000.0)
    ((0, 3), (0, 7), (11, 44), (1534, 3294))
    """
    least, most = expected / _BELOW, expected * _ABOVE
    low = max(0, math.floor(least - _NINE_OF_TEN * math.sqrt(least)))
    high = max(_FEWEST, math.ceil(most + _NINE_OF_TEN * math.sqrt(most)))
    if high <= _FEW:
        return 0, high
    if high > _WIDEST * low:
        low = max(1, round(math.sqrt(least * most / _WIDEST)))
        high = _WIDEST * low
    return low, high


def theorem_table(theorem: Theorem1) -> dict[str, float]:
    """Return the numbers of Theorem 1 as plain data."""
    return {
        "threshold": float(theorem.threshold),
        "scale": float(theorem.scale),
        "delta_alg": theorem.delta_alg,
        "delta_exact": theorem.delta_exact,
        "delta_naive": theorem.delta_naive,
    }
