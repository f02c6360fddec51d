"""Share one budget among a release's tables; core/calibration.py has each one's scale and threshold.

Laplace selectors share epsilon and split delta equally among thresholds. Gaussian ones share mu^2, which adds up where
epsilons would waste, and spend a tenth of delta on thresholds. All tables use the noise of the selector's family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

from hushquery.core.budget import Budget, Number, Relation, exact, smallest_whole
from hushquery.core.calibration import (
    WEIGHT_GRID,
    SparseGaussian,
    calibrate_sparse_gaussian,
    knapsack_threshold,
    laplace_scale,
    laplace_threshold,
    mu_for,
    sigma_for,
)
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss, OptimalSelection
from hushquery.curator.clicks import Clicks
from hushquery.curator.reformulations import Reformulations
from hushquery.curator.selectors import PlannedStep, Selector
from hushquery.curator.selectors.guided import SKETCHED_QUERIES, Guided
from hushquery.curator.selectors.korolova2009 import Korolova, calibrate_korolova
from hushquery.curator.selectors.optimal import Optimal
from hushquery.curator.selectors.thresholded import ThresholdedCounts
from hushquery.curator.selectors.weighted import Weighted, weighted_threshold
from hushquery.errors import CalibrationError, UsageError

__all__ = ["DEFAULT_SHARES", "SELECTORS", "ReleaseSpec", "ReleaseSteps", "SelectorName", "calibrate"]

#: The selectors, by name; ``auto`` takes whichever of laplace and gaussian has the lower threshold.
SelectorName = Literal["auto", "laplace", "gaussian", "korolova2009", "optimal", "weighted", "guided"]
#: Their names, ``auto`` first.
SELECTORS: tuple[SelectorName, ...] = get_args(SelectorName)
_LAPLACE = ("laplace", "korolova2009", "optimal")

#: How a budget is shared among the tables of a release, before shares of tables that are not made are left out.
DEFAULT_SHARES: Mapping[str, Fraction] = {
    "queries": Fraction(3, 5),
    "clicks": Fraction(2, 5),
    "reformulations": Fraction(1, 5),
}

# Within `queries`; measured by `hushquery experiment korolova2009` (docs/experiments/korolova2009.md).
_KOROLOVA_SELECTION = Fraction(76, 100)
_SELECTION = Fraction(7, 10)
_GUIDED = (Fraction(2, 10), Fraction(5, 10), Fraction(3, 10))
_GUIDED_SELECT_ONLY = (Fraction(35, 100), Fraction(65, 100), Fraction(0))
_THRESHOLDS_SHARE_OF_DELTA = Fraction(1, 10)
_MOST_KEYS = 10_000
_LEAST_DELTA = Fraction(1, 10**300)


@dataclass(frozen=True)
class ReleaseSpec:
    """What a release contains and how its budget is shared; None omits a table, shares are of the tables made."""

    budget: Budget
    queries_per_user: int
    clicks_per_user: int | None = None
    reformulations_per_user: int | None = None
    selector: SelectorName = "auto"
    shares: Mapping[str, Number] | None = None
    select_only: bool = False
    has_public_pairs: bool = False

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise UsageError(f"no selector is called {self.selector!r}", fix=f"Give one of {', '.join(SELECTORS)}")
        if self.budget.epsilon <= 0 or not 0 < self.budget.delta < 1:
            raise UsageError(
                "a release needs epsilon > 0 and 0 < delta < 1",
                why="a query that only one person posed may always come out with some probability",
                fix="Give, say, --epsilon 1 --delta 1e-7, or epsilon=1, delta=1e-7",
            )
        if self.budget.delta < _LEAST_DELTA:
            raise UsageError("a delta below 1e-300 can't be told from zero", fix="Give --delta or delta= of 1e-12, say")
        limits = {
            "queries": self.queries_per_user,
            "clicks": self.clicks_per_user,
            "reformulations": self.reformulations_per_user,
        }
        for name, most in limits.items():
            if most is not None and not 1 <= most <= _MOST_KEYS:
                raise UsageError(
                    f"{name} per user must be from 1 to {_MOST_KEYS:,}", fix=f"Give, say, --{name}-per-user 20"
                )

    def normalised_shares(self) -> dict[str, Fraction]:
        """Return the share of each table that is made; they add up to one.

        >>> ReleaseSpec(Budget(1, 1e-6), 20, clicks_per_user=5).normalised_shares()
        {'queries': Fraction(3, 5), 'clicks': Fraction(2, 5)}
        """
        tables = ["queries"]
        if not self.select_only:
            tables += ["clicks"] * (self.clicks_per_user is not None)
            tables += ["reformulations"] * (self.reformulations_per_user is not None)
        given = dict(DEFAULT_SHARES)
        for name, share in (self.shares or {}).items():
            if name not in given:
                raise UsageError(f"no table is called {name!r}", fix=f"Share among {', '.join(given)}")
            given[name] = exact(share, "a share")
        chosen = {name: given[name] for name in tables}
        if min(chosen.values()) <= 0:
            raise UsageError(
                "the share of a table that is made must be above zero", fix="Give, say, queries=.6,clicks=.4"
            )
        return {name: share / sum(chosen.values()) for name, share in chosen.items()}


@dataclass(frozen=True)
class ReleaseSteps:
    """The steps of a release with all their numbers; nothing has run."""

    selector: Selector
    clicks: Clicks | None
    reformulations: Reformulations | None
    shares: Mapping[str, Fraction]

    def steps(self) -> list[PlannedStep]:
        """Return every randomised step in order."""
        return self.selector.steps() + [table.planned() for table in (self.clicks, self.reformulations) if table]

    @property
    def loss(self) -> Loss:
        """What all steps cost together."""
        return sum((step.parameters.loss for step in self.steps()), Loss())


def calibrate(
    spec: ReleaseSpec, *, public_pairs: Any = None, session_gap: float = 1800.0, expected_false_pairs: float = 1.0
) -> ReleaseSteps:
    """Choose every scale and threshold for a release, so that all steps together fit its budget.

    >>> steps = calibrate(ReleaseSpec(Budget("ln 10", 1e-5), 20))
    >>> steps.selector.name, steps.selector.threshold
    ('gaussian', 40.0)
    """
    if spec.selector == "auto":
        given = {"public_pairs": public_pairs, "session_gap": session_gap, "expected_false_pairs": expected_false_pairs}
        options = [calibrate(replace(spec, selector=name), **given) for name in ("laplace", "gaussian")]
        return min(options, key=lambda option: option.selector.threshold)
    budget, shares = spec.budget, spec.normalised_shares()
    secret_pairs = "clicks" in shares and not spec.has_public_pairs
    if spec.selector in _LAPLACE:
        total, delta = budget.epsilon, budget.delta
        noise: Callable[[int, Fraction, Fraction | None], LaplaceHistogram | GaussianHistogram] = _laplace
    else:
        total = mu_for(budget.epsilon, budget.delta * (1 - _THRESHOLDS_SHARE_OF_DELTA)) ** 2
        delta, noise = budget.delta * _THRESHOLDS_SHARE_OF_DELTA, _gaussian
    delta = delta / (2 if secret_pairs else 1)  # queries and pairs have a threshold each
    clicks = reformulations = None
    if "clicks" in shares and spec.clicks_per_user:
        step = noise(spec.clicks_per_user, total * shares["clicks"], delta if secret_pairs else None)
        clicks = Clicks(step, public_pairs)
    if "reformulations" in shares and spec.reformulations_per_user:
        step = noise(spec.reformulations_per_user, total * shares["reformulations"], None)
        reformulations = Reformulations(step, session_gap, expected_false_pairs)
    beside = sum((table.step.loss for table in (clicks, reformulations) if table), Loss())
    steps = ReleaseSteps(_selector(spec, total * shares["queries"], delta, beside), clicks, reformulations, shares)
    if not steps.loss.fits(budget.epsilon, budget.delta):
        raise CalibrationError(  # a seat belt: every selector is calibrated to fit
            "the calibrated steps do not fit the budget", fix="This is a defect of hushquery; please report it"
        )
    return steps


def _selector(spec: ReleaseSpec, part: Fraction, delta: Fraction, beside: Loss) -> Selector:
    """Calibrate the selector for its part of epsilon or mu^2 and its threshold's delta, given all other tables."""
    d, counted = spec.queries_per_user, not spec.select_only
    if spec.selector == "laplace":
        return ThresholdedCounts("laplace", _laplace(d, part, delta), counted)
    if spec.selector == "gaussian":
        return ThresholdedCounts("gaussian", _lowest_threshold(d, part, beside, spec.budget), counted)
    if spec.selector == "guided":
        for_sketch, for_selection, for_counts = _GUIDED if counted else _GUIDED_SELECT_ONLY
        sketch = GaussianWeights(SKETCHED_QUERIES, sigma_for(WEIGHT_GRID**2, part * for_sketch))
        sigma = sigma_for(WEIGHT_GRID**2, part * for_selection)
        selection = GaussianWeights(d, sigma, knapsack_threshold(sigma / WEIGHT_GRID, d, delta))
        return Guided(sketch, selection, _gaussian(d, part * for_counts, None) if counted else None)
    share = Fraction(1) if not counted else _KOROLOVA_SELECTION if spec.selector == "korolova2009" else _SELECTION
    if spec.selector == "weighted":
        weights = weighted_threshold(d, sigma_for(WEIGHT_GRID**2, part * share), delta)
        return Weighted(weights, _gaussian(d, part * (1 - share), None) if counted else None)
    counts = _laplace(d, part * (1 - share), None) if counted else None
    if spec.selector == "korolova2009":
        return Korolova(calibrate_korolova(d, part * share, delta), counts)
    return Optimal(OptimalSelection(d, part * share / d, delta / d), counts)


def _laplace(keys: int, epsilon: Fraction, delta: Fraction | None) -> LaplaceHistogram:
    scale = laplace_scale(keys, epsilon)
    return LaplaceHistogram(keys, scale, None if delta is None else laplace_threshold(scale, keys, delta))


def _gaussian(keys: int, mu_squared: Fraction, delta: Fraction | None) -> GaussianHistogram:
    sigma = sigma_for(keys, mu_squared)
    if delta is None:
        return GaussianHistogram(keys, sigma)

    def fits(threshold: int) -> bool:
        return exact(SparseGaussian(keys, sigma, threshold, Relation.ADD_REMOVE).threshold_delta()) <= delta

    return GaussianHistogram(keys, sigma, _smallest(fits))


def _lowest_threshold(keys: int, mu_squared: Fraction, beside: Loss, budget: Budget) -> GaussianHistogram:
    """Lower the threshold as far as the exact curve of the histogram, with all other steps beside it, allows."""
    if beside == Loss():
        alone = calibrate_sparse_gaussian(keys, budget.epsilon, budget.delta)
        return GaussianHistogram(keys, alone.sigma, alone.threshold)
    sigma = sigma_for(keys, mu_squared)

    def fits(threshold: int) -> bool:
        return (GaussianHistogram(keys, sigma, threshold).loss + beside).fits(budget.epsilon, budget.delta)

    return GaussianHistogram(keys, sigma, _smallest(fits))


def _smallest(fits: Callable[[int], bool]) -> int:
    threshold = smallest_whole(fits)
    if threshold is None:
        raise CalibrationError("no threshold makes this noise private enough", fix="Raise delta or epsilon")
    return threshold
