"""compose: every rule it offers is valid for what it is offered, and the page of tables is current."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.core.budget import Unit
from hushquery.core.calibration import agd, calibrate_sparse_gaussian, mu_for
from hushquery.core.composition import compose
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.core.pld import LaplaceStep
from hushquery.errors import UsageError


def approximate(epsilon, delta=0):
    return Loss(pure=(epsilon,), threshold_delta=delta)


def gaussian(mu):
    return Loss(mu_squared=Fraction(str(mu)) ** 2)


RULES = ["sequential", "advanced", "KOV", "zCDP", "GDP", "mixed", "PLD"]
ROOT = Path(__file__).parents[2]


def numbers(found):
    return {rule: value for rule, value in found.alternatives.items() if isinstance(value, float)}


def response(epsilon, delta=0.0):
    yes, no = (1 - delta) / (1 + math.exp(-epsilon)), (1 - delta) / (1 + math.exp(epsilon))
    return np.array([delta, yes, no, 0.0]), np.array([0.0, no, yes, delta])


def true_delta(pairs, epsilon):
    p, q = np.ones(1), np.ones(1)
    for a, b in pairs:
        p, q = np.outer(p, a).ravel(), np.outer(q, b).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


# ---- every number is valid -----------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from(["0.1", "0.25", "0.4"]), min_size=1, max_size=5),
    st.sampled_from(["0", "1e-3"]),
    st.floats(5e-3, 0.2),
)
def test_no_rule_is_ever_below_the_truth_for_pure_and_approximate_steps(epsilons, delta, target):
    steps = [approximate(e, delta) for e in epsilons]
    found = compose(steps, target)
    pairs = [response(float(e), float(delta)) for e in epsilons]
    assert list(found.alternatives) == RULES
    for rule, value in numbers(found).items():
        assert true_delta(pairs, value) <= target * (1 + 1e-12), rule
    assert true_delta(pairs, found.epsilon) <= found.delta * (1 + 1e-12)


@pytest.mark.parametrize("times", [1, 4, 25])
def test_no_rule_is_below_the_exact_curve_for_gaussian_steps(times):
    mu = Fraction(1, 7)
    found = compose([Loss(mu_squared=mu**2)] * times, 1e-6)
    for rule, value in numbers(found).items():
        slack = 1 + 1e-12
        assert agd(Fraction(value) * Fraction(10**12 + 1, 10**12), mu * Fraction(math.isqrt(times))) <= 1e-6 * slack, (
            rule
        )
    assert found.epsilon == pytest.approx(Loss(mu_squared=times * mu**2).epsilon(1e-6), rel=1e-12)


def test_no_rule_is_below_the_truth_for_mixed_steps_with_thresholds():
    steps = [Loss(mu_squared="1/16"), Loss(pure=("1/5",)), Loss(pure=("1/10",), threshold_delta="1e-7")] * 3
    exact = sum(steps, Loss())
    found = compose(steps, 1e-5)
    for rule, value in numbers(found).items():
        assert exact.delta(Fraction(value)) <= 1e-5 * (1 + 1e-9), rule
    assert found.rule == "mixed"
    assert set(numbers(found)) == set(RULES) - {"KOV"}


def test_sparse_histograms_are_charged_by_every_rule():
    step = Loss(sparse=(calibrate_sparse_gaussian(5, 1, 1e-6),))
    found = compose([step, Loss(pure=("1/10",))], 1e-5)
    exact = step + Loss(pure=("1/10",))
    for rule, value in numbers(found).items():
        assert exact.delta(Fraction(value)) <= 1e-5 * (1 + 1e-9), rule
    assert found.epsilon == numbers(found)["mixed"] == exact.epsilon(1e-5)


def test_a_general_delta_beside_a_sparse_histogram_is_charged_in_both_worlds():
    sparse = calibrate_sparse_gaussian(1, 1, 1e-3)
    found = compose([Loss(sparse=(sparse,)), approximate(0, 0.05)], 0.1)
    shared = math.sqrt(sparse.mu_squared)
    for rule, value in numbers(found).items():
        assert 0.05 + 0.95 * agd(Fraction(value), shared) <= 0.1 * (1 + 1e-9), rule


# ---- the order that theory promises --------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 10, 100])
def test_tighter_rules_are_tighter(times):
    pure = numbers(compose([approximate(0.1)] * times, 1e-6))
    assert pure["mixed"] <= pure["KOV"] <= pure["sequential"]
    assert pure["mixed"] <= pure["PLD"] <= pure["mixed"] + 1e-3
    assert pure["mixed"] <= min(pure["advanced"], pure["zCDP"], pure["GDP"])
    normal = numbers(compose([gaussian("1/10")] * times, 1e-6))
    assert normal["GDP"] == normal["mixed"] <= normal["zCDP"]
    assert normal["GDP"] <= min(normal["sequential"], normal["advanced"])


def test_only_pld_sees_what_the_noise_really_is():
    found = compose([LaplaceStep(10, 100)] * 100, 1e-6)
    assert found.rule == "PLD"
    assert found.epsilon < 0.99 * numbers(found)["mixed"]


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 12), st.sampled_from(["0.05", "0.3"]), st.floats(1e-8, 1e-3))
def test_more_steps_cost_more_and_more_delta_less(times, epsilon, delta):
    found = compose([approximate(epsilon)] * times, delta)
    assert compose([approximate(epsilon)] * (times + 1), delta).epsilon >= found.epsilon
    assert compose([approximate(epsilon)] * times, delta * 2).epsilon <= found.epsilon
    assert found.epsilon == min(numbers(found).values())


# ---- the split of delta --------------------------------------------------------------------------------------------


def test_sequential_gives_equal_parts_of_delta_to_gaussian_steps_and_says_so():
    mu = mu_for("0.5", "1e-6")
    steps = [Loss(mu_squared=mu**2), Loss(mu_squared=mu**2), Loss(pure=("1/4",), threshold_delta="1e-6")]
    found = compose(steps, "3e-6")
    assert numbers(found)["sequential"] == pytest.approx(1.25, rel=1e-9)
    assert "each of 2 Gaussian steps is given an equal part, 1e-06, of delta" in found.explain()


def test_sequential_keeps_each_threshold_with_its_own_step():
    found = compose([Loss(pure=("1/4",), threshold_delta="9e-7"), Loss(pure=("1/2",), threshold_delta="1e-7")], "1e-6")
    assert numbers(found)["sequential"] == 0.75
    assert found.alternatives["zCDP"] == "nothing of delta is left for it beside the thresholds"


# ---- the form ------------------------------------------------------------------------------------------------------


def test_explain_names_every_rule_and_every_reason():
    text = compose([LaplaceStep(1, 4), gaussian("1/5")], 1e-6).explain()
    for rule in RULES:
        assert f" {rule} " in text
    assert "KOV         -        does not apply: it is for pure steps" in text
    assert sum(line.startswith("*") for line in text.splitlines()) == 1
    uneven = compose([approximate(0.1), approximate(0.2)], 0)
    assert uneven.alternatives["KOV"] == "the epsilons are not all equal"
    assert uneven.alternatives["PLD"] == "it needs a delta above 0"
    assert (uneven.epsilon, uneven.delta, uneven.rule) == (pytest.approx(0.3), 0.0, "sequential")


def test_json_is_plain_data():
    found = compose([approximate(0.1), gaussian("1/5")], 1e-6)
    data = json.loads(json.dumps(found.to_json()))
    assert [row["rule"] for row in data["alternatives"]] == RULES
    assert {row["rule"] for row in data["alternatives"] if row["epsilon"] is None} == {"KOV"}
    assert data["epsilon"] == found.epsilon


def test_steps_of_a_guarantee_and_losses_mean_the_same():
    steps = [
        Step("discrete-laplace", "a count", Loss(pure=("1/2",))),
        Step("gaussian", "a sum", Loss(mu_squared="1/9")),
    ]
    from_steps, from_losses = compose(steps, 1e-6), compose([s.loss for s in steps], 1e-6)
    assert from_steps == from_losses
    promised = Guarantee.of("readers", "curator", Unit("user", "add-remove"), steps, delta=1e-6)
    assert numbers(from_steps)["mixed"] == promised.epsilon


def test_the_order_of_steps_does_not_matter():
    steps = [approximate(0.1), gaussian("1/5"), LaplaceStep(3, 20)]
    found = {compose(list(order), 1e-6).epsilon for order in itertools.permutations(steps)}
    assert max(found) == pytest.approx(min(found), rel=1e-9)


def test_no_steps_cost_nothing():
    assert compose([], 0).epsilon == 0.0
    assert compose([Loss()], 1e-6).epsilon == 0.0


def test_frozen():
    found = compose([approximate(0.1)], 1e-6)
    with pytest.raises(AttributeError):
        found.epsilon = 0.0
    with pytest.raises(TypeError):
        found.alternatives["KOV"] = 0.0


@pytest.mark.parametrize(
    ("steps", "delta"),
    [([gaussian(1)], 0), ([Loss(threshold_delta="1e-3")], 1e-6), ([approximate(1, 1e-3)] * 2, "1e-3")],
)
def test_no_epsilon_at_this_delta_is_an_error_that_says_so(steps, delta):
    with pytest.raises(UsageError, match="no epsilon holds at delta"):
        compose(steps, delta)


# ---- the page ------------------------------------------------------------------------------------------------------


def test_the_page_of_tables_is_current():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "tools" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)

    def undated(text):
        return [line for line in text.splitlines() if not line.startswith("Made on ")]

    written = (ROOT / "docs" / "composition.md").read_text(encoding="utf-8")
    assert undated(written) == undated(tables.page("1970-01-01")), "run `python tools/tables.py`"
    assert "python tools/tables.py" in written
