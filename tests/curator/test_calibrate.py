"""One budget for all tables: golden values, shares, and that every combination fits and uses what it is given."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from hushquery.core.budget import Budget
from hushquery.core.calibration import WEIGHT_GRID, agd
from hushquery.core.loss import GaussianWeights, loss_from
from hushquery.core.registry import find, names
from hushquery.curator.plan import DEFAULT_SHARES, SELECTORS, ReleaseSpec, calibrate
from hushquery.curator.selectors.optimal import Optimal
from hushquery.curator.selectors.thresholded import ThresholdedCounts
from hushquery.errors import UsageError
from hushquery.noise.law import DiscreteLaplace
from statistical import number

GOLDEN = Budget("ln 10", 1e-5)
NAMED = [name for name in SELECTORS if name != "auto"]
GAUSSIAN = ["gaussian", "weighted", "guided"]


def made(selector, d, budget=GOLDEN, **more):
    return calibrate(ReleaseSpec(budget, d, selector=selector, **more))


# ---- golden values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "sigma", "threshold"),
    [(1, "1.7589", 10), (5, "3.9331", 20), (10, "5.5622", 28), (20, "7.8662", 40), (40, "11.1244", 58)],
)
def test_golden_gaussian_histograms(d, sigma, threshold):
    step = made("gaussian", d).selector.selection
    assert (f"{float(step.sigma):.4f}", step.threshold) == (sigma, threshold)
    assert f"{step.loss.delta('ln 10'):.3e}" == "9.905e-06"


@pytest.mark.parametrize("d", [1, 5, 10, 20, 40])
def test_laplace_thresholds_by_the_formula(d):
    step, b = made("laplace", d).selector.selection, d / math.log(10)
    assert float(step.scale) == pytest.approx(b, rel=1e-14)
    assert step.threshold == 1 + math.ceil(b * math.log(d / (1e-5 * (1 + math.exp(-1 / b)))))
    # One less would not do, by the law itself.
    passes = float(DiscreteLaplace(step.scale).tail(step.threshold - 1))
    below = float(DiscreteLaplace(step.scale).tail(step.threshold - 2))
    assert -math.expm1(d * math.log1p(-passes)) <= 1e-5
    assert d * below > 1e-5


@pytest.mark.parametrize(("d", "rho"), [(1, 11.4225), (5, 11.5796), (20, 11.9030), (40, 12.1106)])
def test_golden_thresholds_of_guided_weights(d, rho):
    guided = made("guided", d, select_only=True).selector
    assert float(guided.selection.sigma) / WEIGHT_GRID == pytest.approx(2.193, abs=5e-4)
    # rho is for real weights; on the grid of 1/64 the worst user is a little weaker.
    most = math.ceil(WEIGHT_GRID * rho + 0.5)
    assert most - 2 <= guided.selection.threshold <= most
    assert guided.selection.threshold_delta() <= Fraction(1, 10**6)
    assert replace(guided.selection, threshold=guided.selection.threshold - 1).threshold_delta() > Fraction(1, 10**6)


def test_a_threshold_for_equal_weights_is_not_enough_for_unequal_ones():
    """Row 5's rho at d = 5 lets 1.043e-6 through where weights may differ."""
    sigma = made("guided", 5, select_only=True).selector.selection.sigma
    s = float(sigma) / WEIGHT_GRID
    rho = max(1 / math.sqrt(t) + s * stats.norm.isf(-math.expm1(math.log1p(-1e-6) / t)) for t in range(1, 6))
    assert f"{rho:.4f}" == "11.5615"
    two_ways = optimize.minimize_scalar(
        lambda w: -(stats.norm.sf((rho - w) / s) + 4 * stats.norm.sf((rho - math.sqrt((1 - w * w) / 4)) / s)),
        bounds=(0.5, 1),
        method="bounded",
    )
    assert -two_ways.fun == pytest.approx(1.043e-6, rel=3e-3)
    equal = GaussianWeights(5, sigma, math.ceil(WEIGHT_GRID * rho + 0.5), equal=True)
    assert equal.threshold_delta() <= Fraction(1, 10**6) < replace(equal, equal=False).threshold_delta()


def test_golden_mu():
    guided = made("guided", 20, select_only=True).selector
    squares = [float(WEIGHT_GRID**2 / step.sigma**2) for step in (guided.sketch, guided.selection)]
    assert math.sqrt(sum(squares)) == pytest.approx(0.5656901396, abs=1e-9)
    assert squares[0] / sum(squares) == pytest.approx(0.35, abs=1e-7)
    gaussian = made("gaussian", 20).selector.selection
    assert math.sqrt(20) / float(gaussian.sigma) * 1.0005 == pytest.approx(0.5688118676, abs=1e-8)
    tenth = made("weighted", 20, Budget("ln 10", "1/900000"), select_only=True).selector.selection
    assert WEIGHT_GRID / float(tenth.sigma) == pytest.approx(0.5097794006, abs=1e-8)


def test_the_optimal_coin_is_the_recursion():
    selector = made("optimal", 3, Budget(2, 1e-3)).selector
    assert isinstance(selector, Optimal)
    epsilon, delta = float(selector.selection.epsilon), float(selector.selection.delta)
    assert (selector.selection.epsilon, selector.selection.delta) == (2 * Fraction(7, 10) / 3, Fraction(1, 3000))
    chance = 0.0
    for count in range(1, 60):
        chance = min(math.exp(epsilon) * chance + delta, 1 - math.exp(-epsilon) * (1 - chance - delta), 1.0)
        assert float(selector.coin(count).sf(0)) == pytest.approx(chance, abs=1e-12), count
        assert (chance >= 0.5) == (count >= selector.threshold)
    assert selector.coin(0).certain
    assert float(selector.coin(0).sf(0)) == 0


# ---- shares --------------------------------------------------------------------------------------------------------


def test_shares_of_epsilon_with_laplace_noise():
    shares = {"queries": "0.5", "clicks": "0.3", "reformulations": "0.2"}
    plan = made("laplace", 20, Budget(2, 1e-5), clicks_per_user=5, reformulations_per_user=3, shares=shares)
    assert 20 / plan.selector.selection.scale == 1
    assert 5 / plan.clicks.step.scale == Fraction(3, 5)
    assert 3 / plan.reformulations.step.scale == Fraction(2, 5)
    assert sum(plan.loss.pure) == 2


@pytest.mark.parametrize("selector", GAUSSIAN)
def test_shares_of_mu_squared_with_gaussian_noise(selector):
    plan = made(selector, 20, Budget(2, 1e-5), clicks_per_user=5, reformulations_per_user=3)
    spent = dict.fromkeys(DEFAULT_SHARES, 0.0)
    for step in plan.steps():
        size = WEIGHT_GRID**2 if isinstance(step.parameters, GaussianWeights) else step.parameters.keys_per_user
        spent[step.table] += float(size / step.parameters.sigma**2)
    for table, share in DEFAULT_SHARES.items():
        assert spent[table] / sum(spent.values()) == pytest.approx(
            float(share / sum(DEFAULT_SHARES.values())), abs=1e-6
        )
    assert agd(2, math.sqrt(sum(spent.values()))) == pytest.approx(0.9e-5, rel=1e-4)


def test_shares_within_the_table_of_queries():
    korolova = made("korolova2009", 20, Budget(2, 1e-5)).selector
    assert (20 / korolova.theorem.scale, 20 / korolova.counts.scale) == (2 * Fraction(76, 100), 2 * Fraction(24, 100))
    optimal = made("optimal", 20, Budget(2, 1e-5)).selector
    assert (20 * optimal.selection.epsilon, 20 / optimal.counts.scale) == (Fraction(7, 5), Fraction(3, 5))
    weighted = made("weighted", 20, Budget(2, 1e-5)).selector
    guided = made("guided", 20, Budget(2, 1e-5)).selector
    total = float(WEIGHT_GRID**2 / weighted.selection.sigma**2 + 20 / weighted.counts.sigma**2)
    assert float(20 / weighted.counts.sigma**2) == pytest.approx(0.3 * total, rel=1e-7)
    for step, share in ((guided.sketch, 0.2), (guided.selection, 0.5)):
        assert float(WEIGHT_GRID**2 / step.sigma**2) == pytest.approx(share * total, rel=1e-7)
    assert float(20 / guided.counts.sigma**2) == pytest.approx(0.3 * total, rel=1e-7)


def test_shares_are_renormalised_over_the_tables_that_are_made():
    only = ReleaseSpec(GOLDEN, 20, shares={"queries": 0.1, "clicks": 0.7})
    assert only.normalised_shares() == {"queries": 1}
    two = replace(only, clicks_per_user=5)
    assert two.normalised_shares() == {"queries": Fraction(1, 8), "clicks": Fraction(7, 8)}
    assert replace(two, select_only=True).normalised_shares() == {"queries": 1}


@pytest.mark.parametrize("shares", [{"queries": 0}, {"clicks": -1}, {"urls": 1}, {"queries": "many"}])
def test_shares_that_make_no_sense_are_refused(shares):
    with pytest.raises(UsageError):
        made("laplace", 20, clicks_per_user=5, shares=shares)


@pytest.mark.parametrize("selector", NAMED)
def test_a_list_without_counts_spends_everything_on_the_selection(selector):
    plan = made(selector, 20, select_only=True, clicks_per_user=5, reformulations_per_user=3)
    assert plan.selector.counts is None
    assert plan.clicks is None
    assert plan.reformulations is None
    assert plan.selector.threshold < made(selector, 20, clicks_per_user=5).selector.threshold


def test_a_public_list_of_results_needs_no_threshold_and_leaves_its_delta_to_the_queries():
    secret, public = (made("laplace", 20, clicks_per_user=5, has_public_pairs=listed) for listed in (False, True))
    assert secret.clicks.step.threshold
    assert public.clicks.step.threshold is None
    assert secret.clicks.step.scale == public.clicks.step.scale
    assert public.selector.threshold < secret.selector.threshold


# ---- auto ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["1/10", "1", "ln 10", "8"])
def test_auto_takes_the_lower_threshold(epsilon):
    chosen = set()
    for d in (1, 2, 3, 5, 8, 13, 40):
        both = {name: made(name, d, Budget(epsilon, 1e-5)).selector.threshold for name in ("laplace", "gaussian")}
        auto = made("auto", d, Budget(epsilon, 1e-5)).selector
        assert isinstance(auto, ThresholdedCounts)
        assert auto.threshold == min(both.values())
        assert auto.threshold == both[auto.name]
        chosen.add(auto.name)
    assert chosen == {"laplace", "gaussian"}


# ---- every combination ---------------------------------------------------------------------------------------------

REQUESTS = st.builds(
    ReleaseSpec,
    budget=st.builds(
        Budget,
        st.fractions("1/20", 8, max_denominator=200),
        st.tuples(st.integers(1, 99), st.integers(4, 11)).map(lambda x: Fraction(x[0], 10 ** x[1])),
    ),
    queries_per_user=st.integers(1, 30),
    clicks_per_user=st.none() | st.integers(1, 20),
    reformulations_per_user=st.none() | st.integers(1, 20),
    selector=st.sampled_from(SELECTORS),
    shares=st.none() | st.fixed_dictionaries({name: st.integers(1, 20) for name in DEFAULT_SHARES}),
    select_only=st.booleans(),
    has_public_pairs=st.booleans(),
)


@seed(number("requests"))
@settings(max_examples=50, deadline=None, database=None)
@given(REQUESTS)
def test_all_steps_fit_the_budget_together_and_use_it(request):
    plan, budget = calibrate(request), request.budget
    assert plan.loss.fits(budget.epsilon, budget.delta)
    assert plan.loss.epsilon(budget.delta) >= 0.9 * float(budget.epsilon)
    # The cost that a manifest's reader computes is the same.
    again = [loss_from(step.parameters.to_json()) for step in plan.steps()]
    assert again == [step.parameters.loss for step in plan.steps()]
    assert 0 < plan.selector.rare_chance() <= 1.1 * float(budget.delta)


@pytest.mark.parametrize("selector", NAMED)
def test_every_step_names_a_registered_mechanism_of_its_kind(selector):
    """What selects keys is a selector there; what adds noise to public keys is not."""
    for public in (False, True):
        plan = made(selector, 3, clicks_per_user=2, reformulations_per_user=2, has_public_pairs=public)
        if plan.clicks and public:
            plan = replace(plan, clicks=replace(plan.clicks, public_pairs=[]))
        for step in plan.steps():
            assert step.name in names()
            secret_keys = getattr(step.parameters, "threshold", 1) is not None
            if secret_keys:
                assert find(step.name).kind == "selector", step.name


def test_requests_that_make_no_sense_are_refused():
    for bad in (
        {"queries_per_user": 0},
        {"queries_per_user": 10**6},
        {"clicks_per_user": 0},
        {"selector": "best"},
        {"budget": Budget(1, 0)},
        {"budget": Budget(0, 1e-5)},
    ):
        with pytest.raises(UsageError):
            ReleaseSpec(**({"budget": GOLDEN, "queries_per_user": 20} | bad))
