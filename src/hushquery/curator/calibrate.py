"""Calibrate: one budget, shared among the tables of a release; data-free.

Selectors come in two families. With Laplace noise (``laplace``, ``korolova2009``, ``optimal``) shares are shares of
epsilon, and delta is split equally among the thresholds. With Gaussian noise (``gaussian``, ``weighted``, ``guided``)
shares are shares of mu^2, which adds where epsilons would waste, and a tenth of delta goes to the thresholds. Every
table of a release uses the noise of its selector's family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from hushquery.curator.select import Korolova, Optimal, PlannedStep, Reused, Selector
from hushquery.curator.selectors.guided import SKETCHED_QUERIES, Guided
from hushquery.curator.selectors.korolova import calibrate_korolova
from hushquery.curator.selectors.weighted import Weighted, weighted_threshold
from hushquery.errors import CalibrationError, UsageError

__all__ = ["DEFAULT_SHARES", "SELECTORS", "Calibrated", "Request", "SelectorName", "calibrate"]

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

# Within `queries`. Measured: ALGORITHMS A6 and B2, and `hushquery experiment korolova2009`.
_KOROLOVA_SELECTION = Fraction(76, 100)
_SELECTION = Fraction(7, 10)
_GUIDED = (Fraction(2, 10), Fraction(5, 10), Fraction(3, 10))
_GUIDED_SELECT_ONLY = (Fraction(35, 100), Fraction(65, 100), Fraction(0))
_THRESHOLDS_SHARE_OF_DELTA = Fraction(1, 10)
_MOST_KEYS = 10_000
_LEAST_DELTA = Fraction(1, 10**300)


@dataclass(frozen=True)
class Request:
    """What a release shall hold and how its budget is shared; everything here is chosen without looking at the log.

    Args:
        budget: (epsilon, delta) of the whole release, for one user, add-remove.
        queries_per_user: d.
        clicks_per_user: d_c; None for no table of clicks.
        reformulations_per_user: d_r; None for no table of reformulations.
        selector: The selector's name.
        shares: Of the tables; renormalised over those that are made.
        select_only: Whether only the list of queries is made, without counts.
        public_results: Whether a public list of (query, URL) pairs is given, so that clicks need no threshold.
    """

    budget: Budget
    queries_per_user: int
    clicks_per_user: int | None = None
    reformulations_per_user: int | None = None
    selector: SelectorName = "auto"
    shares: Mapping[str, Number] | None = None
    select_only: bool = False
    public_results: bool = False

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
        """Give the share of each table that is made; they add up to one.

        >>> Request(Budget(1, 1e-6), 20, clicks_per_user=5).normalised_shares()
        {'queries': Fraction(3, 5), 'clicks': Fraction(2, 5)}
        """
        made = ["queries"]
        if not self.select_only:
            made += ["clicks"] * (self.clicks_per_user is not None)
            made += ["reformulations"] * (self.reformulations_per_user is not None)
        given = dict(DEFAULT_SHARES)
        for name, share in (self.shares or {}).items():
            if name not in given:
                raise UsageError(f"no table is called {name!r}", fix=f"Share among {', '.join(given)}")
            given[name] = exact(share, "a share")
        chosen = {name: given[name] for name in made}
        if min(chosen.values()) <= 0:
            raise UsageError(
                "the share of a table that is made must be above zero", fix="Give, say, queries=.6,clicks=.4"
            )
        return {name: share / sum(chosen.values()) for name, share in chosen.items()}


@dataclass(frozen=True)
class Calibrated:
    """The steps of a release with all their numbers; nothing has run."""

    selector: Selector
    clicks: Clicks | None
    reformulations: Reformulations | None
    shares: Mapping[str, Fraction]

    def steps(self) -> list[PlannedStep]:
        """Give every randomised step in order."""
        steps = self.selector.steps()
        steps += [self.clicks.planned()] if self.clicks else []
        return steps + ([self.reformulations.planned()] if self.reformulations else [])

    @property
    def loss(self) -> Loss:
        """What all steps cost together."""
        total = Loss()
        for step in self.steps():
            total += step.parameters.loss
        return total


def calibrate(
    request: Request, *, results: Any = None, session_gap: float = 1800.0, false_edges: float = 1.0
) -> Calibrated:
    """Choose every scale and threshold for a request, so that all steps together fit its budget.

    >>> made = calibrate(Request(Budget("ln 10", 1e-5), 20))
    >>> made.selector.name, made.selector.threshold
    ('gaussian', 40.0)
    """
    if request.selector == "auto":
        from dataclasses import replace

        options = [
            calibrate(
                replace(request, selector=name), results=results, session_gap=session_gap, false_edges=false_edges
            )
            for name in ("laplace", "gaussian")
        ]
        return min(options, key=lambda option: option.selector.threshold)
    build = _laplace_family if request.selector in _LAPLACE else _gaussian_family
    selector, click_step, walk_step = build(request)
    made = Calibrated(
        selector,
        Clicks(click_step, results) if click_step else None,
        Reformulations(walk_step, session_gap, false_edges) if walk_step else None,
        request.normalised_shares(),
    )
    if not made.loss.fits(request.budget.epsilon, request.budget.delta):
        raise CalibrationError(  # a seat belt: every family below is calibrated to fit
            "the calibrated steps do not fit the budget", fix="This is a defect of hushquery; please report it"
        )
    return made


def _laplace_family(request: Request) -> tuple[Selector, LaplaceHistogram | None, LaplaceHistogram | None]:
    shares, budget, d = request.normalised_shares(), request.budget, request.queries_per_user
    epsilon = {name: budget.epsilon * share for name, share in shares.items()}
    secret_clicks = "clicks" in shares and not request.public_results
    delta = budget.delta / (2 if secret_clicks else 1)
    clicks = walks = None
    if "clicks" in shares and request.clicks_per_user:
        clicks = _laplace(request.clicks_per_user, epsilon["clicks"], delta if secret_clicks else None)
    if "reformulations" in shares and request.reformulations_per_user:
        walks = _laplace(request.reformulations_per_user, epsilon["reformulations"], None)
    if request.selector == "laplace":
        return Reused("laplace", _laplace(d, epsilon["queries"], delta), not request.select_only), clicks, walks
    selection = _KOROLOVA_SELECTION if request.selector == "korolova2009" else _SELECTION
    if request.select_only:
        selection = Fraction(1)
    counts = None if request.select_only else _laplace(d, epsilon["queries"] * (1 - selection), None)
    if request.selector == "korolova2009":
        return Korolova(calibrate_korolova(d, epsilon["queries"] * selection, delta), counts), clicks, walks
    return Optimal(OptimalSelection(d, epsilon["queries"] * selection / d, delta / d), counts), clicks, walks


def _laplace(keys: int, epsilon: Fraction, delta: Fraction | None) -> LaplaceHistogram:
    scale = laplace_scale(keys, epsilon)
    return LaplaceHistogram(keys, scale, None if delta is None else laplace_threshold(scale, keys, delta))


def _gaussian_family(request: Request) -> tuple[Selector, GaussianHistogram | None, GaussianHistogram | None]:
    shares, budget, d = request.normalised_shares(), request.budget, request.queries_per_user
    if list(shares) == ["queries"] and request.selector == "gaussian":
        alone = calibrate_sparse_gaussian(d, budget.epsilon, budget.delta)
        return (
            Reused("gaussian", GaussianHistogram(d, alone.sigma, alone.threshold), not request.select_only),
            None,
            None,
        )
    secret_clicks = "clicks" in shares and not request.public_results
    threshold_delta = budget.delta * _THRESHOLDS_SHARE_OF_DELTA / (2 if secret_clicks else 1)
    mu_squared = mu_for(budget.epsilon, budget.delta * (1 - _THRESHOLDS_SHARE_OF_DELTA)) ** 2
    part = {name: mu_squared * share for name, share in shares.items()}
    clicks = walks = None
    if "clicks" in shares and request.clicks_per_user:
        clicks = _gaussian(request.clicks_per_user, part["clicks"], threshold_delta if secret_clicks else None)
    if "reformulations" in shares and request.reformulations_per_user:
        walks = _gaussian(request.reformulations_per_user, part["reformulations"], None)
    if request.selector == "gaussian":
        beside = Loss()
        for step in (clicks, walks):
            beside += step.loss if step else Loss()
        step = _lowest_threshold(_gaussian(d, part["queries"], threshold_delta), beside, budget)
        return Reused("gaussian", step), clicks, walks
    if request.selector == "weighted":
        share = Fraction(1) if request.select_only else _SELECTION
        sigma = sigma_for(WEIGHT_GRID**2, part["queries"] * share)
        counts = None if request.select_only else _gaussian(d, part["queries"] * (1 - share), None)
        return Weighted(weighted_threshold(d, sigma, threshold_delta), counts), clicks, walks
    for_sketch, for_selection, for_counts = _GUIDED_SELECT_ONLY if request.select_only else _GUIDED
    sketch = GaussianWeights(SKETCHED_QUERIES, sigma_for(WEIGHT_GRID**2, part["queries"] * for_sketch))
    sigma = sigma_for(WEIGHT_GRID**2, part["queries"] * for_selection)
    release_at = knapsack_threshold(sigma / WEIGHT_GRID, d, threshold_delta)
    counts = None if request.select_only else _gaussian(d, part["queries"] * for_counts, None)
    return Guided(sketch, GaussianWeights(d, sigma, release_at), counts), clicks, walks


def _gaussian(keys: int, mu_squared: Fraction, delta: Fraction | None) -> GaussianHistogram:
    sigma = sigma_for(keys, mu_squared)
    if delta is None:
        return GaussianHistogram(keys, sigma)

    def fits(threshold: int) -> bool:
        return exact(SparseGaussian(keys, sigma, threshold, Relation.ADD_REMOVE).threshold_delta()) <= delta

    return GaussianHistogram(keys, sigma, _threshold(fits))


def _lowest_threshold(step: GaussianHistogram, beside: Loss, budget: Budget) -> GaussianHistogram:
    """Lower the threshold as far as the exact curve of the histogram, with all other steps beside it, allows."""

    def fits(threshold: int) -> bool:
        trial = GaussianHistogram(step.keys_per_user, step.sigma, threshold)
        return (trial.loss + beside).fits(budget.epsilon, budget.delta)

    return GaussianHistogram(step.keys_per_user, step.sigma, _threshold(fits))


def _threshold(fits: Callable[[int], bool]) -> int:
    found = smallest_whole(fits)
    if found is None:
        raise CalibrationError("no threshold makes this noise private enough", fix="Raise delta or epsilon")
    return found
