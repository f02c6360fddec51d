"""Loss against enumeration: every mechanism here is small enough to list all its outcomes in both worlds.

Why ``f + (1-f) curve(epsilon)`` holds for thresholds that fail with probability at most f, independently of all else
that is released. B, B' are the worlds without the novel keys, with hockey-stick curve(epsilon) between them.

Add-remove, D = D' + one user: A(D) = (1-f) B + f (something), A(D') = B'.
  H(A(D) || A(D')) <= f + (1-f) sup_S[B(S) - e^epsilon/(1-f) B'(S)] <= f + (1-f) curve(epsilon)
  H(A(D') || A(D)) <= sup_S[B'(S) - e^epsilon (1-f) B(S)]
                    = sup_S[(1-f)(B'(S) - e^epsilon B(S)) + f B'(S)] <= (1-f) curve(epsilon) + f
Replace-one: both worlds have novel keys, A >= (1-f) B as measures on both sides:
  H(A(D) || A(D')) <= f + sup_S[(1-f) B(S) - e^epsilon (1-f) B'(S)] = f + (1-f) curve(epsilon)
Independence is used in "A = (1-f) B + ...". Without it the failure can take its mass from where B loses nothing,
which gives f + curve(epsilon) for one world and f (1 + e^epsilon) + curve(epsilon) for two: see the clamp below.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.budget import Relation
from hushquery.core.calibration import SparseGaussian, agd
from hushquery.core.composition import kov
from hushquery.core.loss import Loss
from hushquery.errors import LedgerCorrupt, UsageError

QUICK = settings(max_examples=25, deadline=None)
FEW = settings(max_examples=6, deadline=None)
NEARLY = 1e-11  # what a sum of doubles may differ by


def hockey(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def product(*pairs):
    """Combine independent (P, Q) pairs into one."""
    p, q = np.ones(1), np.ones(1)
    for a, b in pairs:
        p, q = np.outer(p, a).ravel(), np.outer(q, b).ravel()
    return p, q


def response(r):
    yes = 1 / (1 + math.exp(-r))
    return np.array([yes, 1 - yes]), np.array([1 - yes, yes])


def rounded(centre, sigma, low, high):
    edges = np.arange(low, high + 2) - 0.5
    return np.diff(norm.cdf((edges - centre) / sigma))


def gaussian(mu, *, fine=400):
    """Give Gaussian noise on a grid so fine that rounding hides next to nothing (a post-processing: from below)."""
    sigma = fine / mu / 20
    return rounded(sigma * mu, sigma, -round(9 * sigma), round((9 + mu) * sigma)), rounded(
        0, sigma, -round(9 * sigma), round((9 + mu) * sigma)
    )


def either_way(pair, epsilon):
    p, q = pair
    return max(hockey(p, q, epsilon), hockey(q, p, epsilon))


# ---- pure steps ----------------------------------------------------------------------------------------------------


@QUICK
@given(st.lists(st.floats(0.01, 2), min_size=1, max_size=7), st.floats(0, 1))
def test_pure_steps_equal_the_enumeration_of_randomised_responses(pure, part):
    epsilon = part * sum(pure)
    true = hockey(*product(*(response(r) for r in pure)), epsilon)
    assert Loss(pure=tuple(pure)).delta(epsilon) == pytest.approx(true, abs=NEARLY)


@pytest.mark.parametrize(("r", "times"), [("1/10", 9), ("1/2", 10), ("2", 4)])
def test_pure_steps_equal_kov_where_kov_speaks(r, times):
    e = Fraction(r)
    for i in range(times // 2 + 1):
        # a double is read as the shortest decimal that prints it, which may be a hair below
        delta = Loss(pure=(e,) * times).delta((times - 2 * i) * e) * (1 + 1e-12)
        assert kov(e, times, delta) == pytest.approx(float((times - 2 * i) * e))
        if i:  # a little less delta, and the theorem jumps to its next epsilon
            assert kov(e, times, delta * (1 - 1e-9)) == pytest.approx(float((times - 2 * i + 2) * e))


def test_no_pure_mechanism_is_worse_than_the_loss_says():
    rng = np.random.default_rng(5)
    for _ in range(50):
        pairs, pure = [], []
        for _ in range(3):
            p = rng.dirichlet(np.ones(4))
            q = p * np.exp(rng.uniform(-1, 1, 4))
            q /= q.sum()
            pairs.append((p, q))
            pure.append(float(np.abs(np.log(p / q)).max()))
        for epsilon in (0.0, 0.3, 1.0):
            assert hockey(*product(*pairs), epsilon) <= Loss(pure=tuple(pure)).delta(epsilon) + NEARLY


def test_too_many_distinct_epsilons_are_rounded_up_never_down():
    pure = tuple(Fraction(100 + 7 * i, 2000) for i in range(13))  # 2^13 sums
    exact_pair = product(*(response(float(r)) for r in pure))
    for epsilon in (0.2, 0.5, 0.8):
        true, ours = hockey(*exact_pair, epsilon), Loss(pure=pure).delta(epsilon)
        assert true <= ours + NEARLY
        assert ours <= true * 1.1 + NEARLY


@FEW
@given(st.floats(0.01, 3), st.integers(1, 6), st.floats(1e-12, 0.5))
def test_pure_steps_with_thresholds_have_an_epsilon_from_their_thresholds_delta_on(r, times, fail):
    loss, edge = Loss(pure=(r,) * times, threshold_delta=fail), Fraction(repr(fail))
    assert loss.epsilon(edge * (1 + Fraction(1, 10**12))) == pytest.approx(r * times, rel=1e-6)
    assert math.isinf(loss.epsilon(edge * (1 - Fraction(1, 10**9))))


def test_pure_steps_with_thresholds_have_an_epsilon_at_exactly_their_thresholds_delta():
    fail = "0.42845818326207497"
    assert Loss(pure=("0.4375",), threshold_delta=fail).epsilon(fail) == pytest.approx(0.4375)


# ---- pure beside Gaussian ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("pure", [(), (0.5,), (0.2, 0.7, 0.7)])
def test_pure_beside_gaussian_equals_enumeration(mu, pure):
    pair = product(gaussian(mu), *(response(r) for r in pure))
    for epsilon in (0.0, 0.4, 1.5):
        true = hockey(*pair, epsilon)
        ours = Loss(mu_squared=Fraction(repr(mu)) ** 2, pure=pure).delta(epsilon)
        assert true - NEARLY <= ours <= true * 1.01 + NEARLY


@pytest.mark.parametrize(("mu", "pure"), [(0.5, [0.5]), (0.25, [0.1] * 8), (1.0, [0.3, 0.9])])
def test_pure_beside_gaussian_is_between_dp_accountings_two_estimates(mu, pure):
    from dp_accounting.pld import privacy_loss_distribution as pld

    def estimate(*, pessimistic):
        found = pld.from_gaussian_mechanism(
            1 / mu, pessimistic_estimate=pessimistic, use_connect_dots=False, value_discretization_interval=1e-4
        )
        for r in pure:
            found = found.compose(
                pld.from_randomized_response(
                    2 / (1 + math.exp(r)), 2, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4
                )
            )
        return found

    low, high = estimate(pessimistic=False), estimate(pessimistic=True)
    loss = Loss(mu_squared=Fraction(repr(mu)) ** 2, pure=tuple(pure))
    for epsilon in (0.0, 0.5, 1.5, 2.5):
        ours = loss.delta(epsilon)
        below, above = low.get_delta_for_epsilon(epsilon), high.get_delta_for_epsilon(epsilon)
        assert below * (1 - 1e-9) - 1e-13 <= ours <= above * (1 + 1e-9) + 1e-13
        assert above - below < 0.02 * ours + 1e-12


@FEW
@given(st.floats(0, 2), st.lists(st.floats(0.01, 1), max_size=2), st.floats(1e-9, 0.1), st.floats(0, 2))
def test_epsilon_and_delta_are_inverse_and_monotone(mu, pure, delta, more):
    loss = Loss(mu_squared=mu**2, pure=tuple(pure))
    epsilon = loss.epsilon(delta)
    assert loss.delta(epsilon) <= delta * (1 + 1e-12)
    if epsilon > 0:
        assert loss.delta(epsilon * (1 - 1e-6)) > delta
    worse = loss + Loss(pure=(more,))
    assert worse.epsilon(delta) >= epsilon
    assert worse.delta(epsilon) >= loss.delta(epsilon)
    assert loss.delta(epsilon + more) <= loss.delta(epsilon)
    assert loss.fits(Fraction(epsilon), delta)


def test_a_stated_epsilon_fits_when_it_is_typed_back():
    loss, delta = Loss(mu_squared="1.2949093643363379", pure=("0.03417443923788327",)), "1.192092896e-07"
    assert loss.fits(loss.epsilon(delta), delta)


# ---- thresholds ----------------------------------------------------------------------------------------------------


@QUICK
@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 0.6), st.floats(0, 1.5))
def test_independent_failures_cost_f_and_the_rest_of_the_curve_under_both_relations(seed, fail, epsilon):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(5), 2)
    curve = either_way((p, q), epsilon)
    bound = fail + (1 - fail) * curve
    one_sided = (np.array([1 - fail, fail]), np.array([1.0, 0.0]))
    two_sided = (np.array([1 - fail, fail, 0]), np.array([1 - fail, 0, fail]))
    smaller = (np.array([1 - fail, fail, 0]), np.array([1 - fail / 3, 0, fail / 3]))
    for failing in (one_sided, two_sided, smaller):
        assert either_way(product((p, q), failing), epsilon) <= bound + NEARLY
    assert either_way(product((p, q), two_sided), epsilon) == pytest.approx(bound)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_thresholds_beside_pure_and_gaussian_steps_equal_enumeration(epsilon):
    fail, mu, r = 0.01, 0.5, 0.3
    failing = (np.array([1 - fail, fail, 0]), np.array([1 - fail, 0, fail]))
    true = hockey(*product(gaussian(mu), response(r), failing), epsilon)
    ours = Loss(mu_squared="1/4", pure=(r,), threshold_delta=fail).delta(epsilon)
    assert true <= ours <= true * 1.005


def test_an_event_that_depends_on_the_noise_may_not_be_charged_as_a_threshold():
    """Noise clamped at +-T: an event of probability f in each world, but outputs above T tell the worlds apart.

    The true delta is agd + e^epsilon f/2, above f + (1-f) agd as soon as e^epsilon > 2. So ``threshold_delta`` is for
    events that are independent of everything else; a cut tail has to be charged with (1 + e^epsilon) f, or avoided.
    """
    epsilon, sigma, clamp = math.log(10), 2.0, 9.0
    fail = 2 * norm.sf(clamp / sigma)
    best = 0.5 + epsilon * sigma**2  # from here on the likelihood ratio is above e^epsilon, or infinite above T
    assert best > clamp
    true = norm.sf((clamp - 1) / sigma)
    charged = Loss(mu_squared="1/4", threshold_delta=fail).delta(epsilon)
    assert true > 4 * charged
    assert true <= (1 + math.exp(epsilon)) * fail + agd(epsilon, "1/2")


# ---- Gaussian sparse histograms ------------------------------------------------------------------------------------

SIGMA, BAR = 12.0, 44


def novel(sigma=SIGMA, bar=BAR):
    """A key that only the first world holds, once: hidden, or shown (which gives the world away)."""
    shown = norm.sf((bar - 1.5) / sigma)
    return np.array([1 - shown, shown]), np.array([1.0, 0.0])


def shared(count, sigma=SIGMA, bar=BAR):
    """A key that `count` others hold: hidden, or its noisy count."""
    high = round(count + 9 * sigma)
    values = [rounded(c, sigma, bar, high) for c in (count + 1, count)]
    return tuple(np.concatenate(([1 - v.sum()], v)) for v in values)


def swapped(pair):
    return pair[1], pair[0]


def worst(worlds, epsilon):
    return max(either_way(world, epsilon) for world in worlds)


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.25])
@pytest.mark.parametrize("beside", [False, True])
def test_add_remove_curve_with_one_key(epsilon, beside):
    step = SparseGaussian(1, Fraction(12), BAR, Relation.ADD_REMOVE)
    others, extra = [], Loss()
    if beside:  # another Gaussian, a pure step and another threshold
        others = [shared(500, sigma=15.0, bar=0), response(0.05), (np.array([0.999, 0.001]), np.array([1.0, 0.0]))]
        extra = Loss(mu_squared=Fraction(1, 225), pure=("1/20",), threshold_delta="1/1000")
    worlds = [product(key, *others) for key in (novel(), shared(1), shared(40), shared(500))]
    true, ours = worst(worlds, epsilon), (Loss(sparse=(step,)) + extra).delta(epsilon)
    assert true <= ours + NEARLY
    assert ours <= true * 1.08  # integer noise hides a little of what the continuous curve counts


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.25])
def test_add_remove_curve_with_two_keys(epsilon):
    step = SparseGaussian(2, Fraction(12), BAR, Relation.ADD_REMOVE)
    keys = [novel(), shared(30), shared(300)]
    worlds = [product(a, b, response(0.05)) for a, b in itertools.combinations_with_replacement(keys, 2)]
    true, ours = worst(worlds, epsilon), Loss(sparse=(step,), pure=("1/20",)).delta(epsilon)
    assert true <= ours + NEARLY
    assert ours <= true * 1.08  # integer noise hides a little of what the continuous curve counts


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.25])
def test_replace_one_curve_with_one_key(epsilon):
    step = SparseGaussian(1, Fraction(12), BAR, Relation.REPLACE_ONE)
    keys = [novel(), shared(1), shared(40), shared(500)]
    fail = (np.array([0.999, 0.001, 0]), np.array([0.999, 0, 0.001]))
    worlds = [product(a, swapped(b), fail, response(0.05)) for a in keys for b in keys]
    true = worst(worlds, epsilon)
    ours = Loss(sparse=(step,), pure=("1/20",), threshold_delta="1/1000").delta(epsilon)
    assert true <= ours + NEARLY
    assert ours <= true * 1.08  # integer noise hides a little of what the continuous curve counts


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_two_sparse_histograms_are_never_understated(epsilon):
    first = SparseGaussian(1, Fraction(12), BAR, Relation.ADD_REMOVE)
    second = SparseGaussian(1, Fraction(9), 40, Relation.ADD_REMOVE)
    keys = itertools.product(
        [novel(), shared(40), shared(400)], [novel(9.0, 40), shared(40, 9.0, 40), shared(400, 9.0, 40)]
    )
    ours = Loss(sparse=(first, second)).delta(epsilon)
    assert worst([product(a, b) for a, b in keys], epsilon) <= ours + NEARLY


def test_a_delta_that_fails_in_both_worlds_beside_a_sparse_histogram():
    step = SparseGaussian(1, Fraction(2), 8, Relation.ADD_REMOVE)
    fail, epsilon = 0.1, 0.5
    true = fail + (1 - fail) * agd(epsilon, "1/2")  # a shared key, and an (0, 0.1)-DP step that tells all
    assert Loss(sparse=(step,), threshold_delta="1/10").delta(epsilon) >= true


# ---- the form ------------------------------------------------------------------------------------------------------


def test_json_keeps_every_digit_and_refuses_what_it_does_not_know():
    step = SparseGaussian(3, Fraction(22, 7), 12, Relation.REPLACE_ONE)
    loss = Loss("1/3", ("1/7", 0.1), 1e-9, (step,))
    assert Loss.from_json(loss.to_json()) == loss
    for wrong in ({**loss.to_json(), "renyi": "1"}, {"mu_squared": "1"}):
        with pytest.raises(LedgerCorrupt):
            Loss.from_json(wrong)


@pytest.mark.parametrize(
    "wrong", [{"keys_per_user": 3.9}, {"keys_per_user": "3"}, {"threshold": True}, {"sigma": 3.14}, {"relation": None}]
)
def test_a_recorded_histogram_is_written_as_one(wrong):
    """Rounded or cut off, it would be another cost than the one that was recorded."""
    written = Loss(sparse=(SparseGaussian(3, Fraction(22, 7), 12, Relation.REPLACE_ONE),)).to_json()
    (step,) = written["sparse"]
    with pytest.raises(TypeError, match="not written as one"):
        Loss.from_json({**written, "sparse": [{**step, **wrong}]})


def test_a_loss_is_never_negative():
    for wrong in ({"mu_squared": -1}, {"pure": (-1,)}, {"threshold_delta": -1}):
        with pytest.raises(UsageError):
            Loss(**wrong)


def test_certain_failure_promises_nothing():
    assert Loss(threshold_delta=1).delta(5) == 1.0
    assert math.isinf(Loss(mu_squared=1).epsilon(0))
