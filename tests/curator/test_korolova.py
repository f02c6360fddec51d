"""Theorem 1 of Korolova et al. 2009: the slides' table, both directions, and the exact delta of what runs."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from hushquery.core.calibration import laplace_delta
from hushquery.core.loss import LaplaceHistogram
from hushquery.curator.counting import Bound, searches
from hushquery.curator.selectors.korolova2009 import Korolova, Theorem1, calibrate_korolova
from hushquery.errors import CalibrationError
from hushquery.noise.law import DiscreteLaplace
from search_logs import kept, log
from statistical import number

#: Slide 85: d, then K and b at e^epsilon = 10 and delta = 1e-5.
SLIDES = {
    1: ("5.70", "0.43"),
    5: ("31.99", "2.17"),
    10: ("66.99", "4.34"),
    20: ("140.00", "8.69"),
    40: ("292.04", "17.37"),
    80: ("608.16", "34.74"),
    160: ("1264.49", "69.49"),
}

#: With continuous noise: the exact delta at the paper's K, and the K that is enough.
EXACT = {
    1: (1.00e-5, 5.70),
    5: (2.00e-6, 28.49),
    10: (1.26e-6, 57.99),
    20: (1.12e-6, 121.0),
    40: (1.06e-6, 253.0),
    160: (1.01e-6, 1105),
}


@pytest.mark.parametrize("d", SLIDES)
def test_the_table_of_the_slides_to_the_last_digit(d):
    theorem = calibrate_korolova(d, "ln 10", 1e-5)
    assert (f"{float(theorem.threshold):.2f}", f"{float(theorem.scale):.2f}") == SLIDES[d]


@pytest.mark.parametrize("d", SLIDES)
def test_the_other_direction_gives_the_budget_back(d):
    made = calibrate_korolova(d, "ln 10", 1e-5)
    back = Theorem1(d, made.threshold, made.scale)
    assert f"{back.epsilon_alg:.5f} {back.delta_alg:.3e}" == "2.30259 1.000e-05"
    # ... and so do the slides' own two decimals, as far as two decimals go.
    printed = Theorem1(d, *(Fraction(number) for number in SLIDES[d]))
    assert printed.epsilon_alg == pytest.approx(math.log(10), rel=0.02)
    assert printed.delta_alg == pytest.approx(1e-5, rel=0.3)


def test_counts_and_clicks_add_what_their_noise_costs():
    selection = Theorem1(20, Fraction(140), Fraction(9))
    everything = Theorem1(20, Fraction(140), Fraction(9), Fraction(40), 5, Fraction(10))
    assert everything.epsilon_alg == pytest.approx(selection.epsilon_alg + 20 / 40 + 5 / 10, abs=1e-15)
    assert everything.delta_alg == selection.delta_alg
    assert everything.delta_exact == selection.delta_exact


def test_alpha_is_the_larger_of_two_and_its_minus_one_is_not_in_the_exponent():
    d, k, b = 160, 160.0, 69.49
    loose = Theorem1(d, Fraction(160), Fraction("69.49"))
    alpha = 1 + 1 / (2 * math.exp((k - 1) / b) - 1)
    assert alpha > math.exp(1 / b)
    assert loose.epsilon_alg == pytest.approx(d * math.log(alpha), rel=1e-12)
    # What is charged covers the law that runs, where a missing key tells more than e^(1/b).
    missing = -math.log1p(-laplace_delta("69.49", 1, 161))
    assert float(loose.step().loss.pure[0]) >= d * max(missing, 1 / b)


@pytest.mark.parametrize("d", SLIDES)
def test_the_naive_bound_of_the_slides(d):
    theorem = calibrate_korolova(d, "ln 10", 1e-5)
    k, b = float(theorem.threshold), float(theorem.scale)
    alpha = math.exp(1 / b)
    naive = 0.5 * math.exp((1 - k) / b) * sum(alpha**i for i in range(d))
    assert theorem.delta_naive == pytest.approx(naive, rel=1e-9)


# ---- the exact delta -----------------------------------------------------------------------------------------------


def worst_split(d, chance):
    """Give the largest chance that some query shows, over all ways to spend at most d searches, by dynamic programming.

    ``hidden[k]`` is the smallest log-probability that all queries stay hidden when k searches are spent.
    """
    hidden = [0.0] * (d + 1)
    for spent in range(1, d + 1):
        hidden[spent] = min(hidden[spent - m] + math.log1p(-chance(m)) for m in range(1, spent + 1))
    return -math.expm1(min(hidden))


@pytest.mark.parametrize("d", SLIDES)
def test_the_exact_delta_is_that_of_the_worst_split(d):
    theorem = calibrate_korolova(d, "ln 10", 1e-5)
    law, at = DiscreteLaplace(theorem.scale), theorem.release_at
    tails = {m: float(law.tail(at - m)) for m in range(1, d + 1)}
    assert theorem.delta_exact == pytest.approx(worst_split(d, tails.get), rel=1e-11)
    assert theorem.delta_exact == laplace_delta(theorem.scale, d, at, row_counts=True)


@seed(number("splits"))
@settings(max_examples=60, deadline=None, database=None)
@given(st.integers(1, 25), st.fractions("1/4", 30, max_denominator=64), st.integers(0, 40))
def test_the_closed_form_is_that_of_the_worst_split_for_any_threshold_from_d_on(d, b, above):
    law, at = DiscreteLaplace(b), d + 1 + above
    tails = {m: float(law.tail(at - m)) for m in range(1, d + 1)}
    assert laplace_delta(b, d, at, row_counts=True) == pytest.approx(worst_split(d, tails.get), rel=1e-11)


@pytest.mark.parametrize("d", EXACT)
def test_the_exact_delta_of_continuous_noise_and_the_threshold_that_is_enough(d):
    b = d / math.log(10)

    def delta(threshold):
        return worst_split(d, lambda m: 0.5 * math.exp((m - threshold) / b))

    paper = d * (1 - math.log(2e-5 / d) / math.log(10))
    enough = max(1 + b * math.log(d / 2e-5), d + b * math.log(1 / 2e-5))
    expected, tight = EXACT[d]
    assert delta(paper) == pytest.approx(expected, rel=5e-3)
    assert enough == pytest.approx(tight, rel=5e-4)
    assert delta(enough) == pytest.approx(1e-5, rel=2e-5)
    one_at_once = 0.5 * math.exp((d - paper) / b)
    assert (one_at_once >= delta(paper) * (1 - 1e-9)) == (d <= 7)


def test_a_real_threshold_on_integer_noise_is_raised_where_it_must_be():
    """At d = 1, e^epsilon = 5, delta = 1e-5 the paper's K would let 1.07e-5 through."""
    b = 1 / math.log(5)
    paper = 1 + b * math.log(1 / 2e-5)
    assert f"{laplace_delta(b, 1, math.floor(paper) + 1):.2e}" == "1.07e-05"
    made = calibrate_korolova(1, "ln 5", 1e-5)
    assert made.delta_exact <= 1e-5
    assert made.threshold > paper


@seed(number("korolova"))
@settings(max_examples=60, deadline=None, database=None)
@given(
    st.integers(1, 60),
    st.fractions("1/20", 8, max_denominator=100),
    st.integers(2, 10).map(lambda k: Fraction(1, 10**k)),
)
def test_calibration_fits_in_theory_and_in_what_runs(d, epsilon, delta):
    made = calibrate_korolova(d, epsilon, delta)
    step = made.step()
    assert step.loss.fits(epsilon, delta)
    assert step.threshold == made.release_at == math.floor(made.threshold) + 1
    # ... and nothing is wasted: the threshold is the paper's, or the least that integers allow.
    lower = Theorem1(d, made.threshold - 1, made.scale) if made.threshold - 1 >= d else None
    assert lower is None or not lower.step().loss.fits(epsilon, delta)
    assert step.loss.pure == (d / made.scale,)
    assert d / made.scale == epsilon


def test_the_larger_of_both_deltas_is_charged():
    paper = Theorem1(20, Fraction(140), Fraction(20) / Fraction("2.302585"))
    assert paper.delta_alg > paper.delta_exact
    assert float(paper.step().loss.threshold_delta) == pytest.approx(paper.delta_alg, rel=1e-12)
    one = Theorem1(1, Fraction("5.99"), Fraction(1) / Fraction("2.302585"))  # noisy > 5.99 is noisy >= 6
    assert one.delta_exact > one.delta_alg
    assert float(one.step().loss.threshold_delta) == pytest.approx(one.delta_exact, rel=1e-12)


def test_above_k_means_the_next_integer_also_for_a_whole_k():
    assert Theorem1(2, Fraction(7), Fraction(1)).release_at == 8
    assert Theorem1(2, Fraction("7.01"), Fraction(1)).release_at == 8
    assert Theorem1(2, Fraction("6.99"), Fraction(1)).release_at == 7


def test_parameters_that_the_theorem_is_not_about_are_refused():
    for bad in ((0, 5, 1, None, 0, None), (2, 1, 1, None, 0, None), (2, 5, 0, None, 0, None), (2, 5, 1, -1, 0, None)):
        with pytest.raises(CalibrationError):
            Theorem1(*(Fraction(x) if isinstance(x, int) and i else x for i, x in enumerate(bad)))
    for epsilon, delta in ((0, 1e-5), (1, 0), (1, 1)):
        with pytest.raises(CalibrationError):
            calibrate_korolova(2, epsilon, delta)


# ---- what is counted -----------------------------------------------------------------------------------------------


def test_a_search_counts_as_often_as_it_is_made_and_several_clicks_do_not_make_it_two():
    table = log(
        ("zoe", 3, "ant", "x"),
        ("zoe", 1, "cow", "x"),
        ("zoe", 1, "cow", "y"),
        ("zoe", 2, "cow", None),
        ("zoe", 4, "ant", None),
        ("bob", 9, "ant", None),
        ("bob", None, "bee", None),
        ("bob", None, "bee", "x"),
    )
    assert kept(searches(table, Bound(), 3)) == [
        ("bob", "ant"),
        ("bob", "bee"),
        *[("zoe", "ant")],
        *[("zoe", "cow")] * 2,
    ]
    assert kept(searches(table, Bound(), 1)) == [("bob", "ant"), ("zoe", "cow")]
    assert len(kept(searches(table, Bound("random", "key"), 3))) == 5
    timeless = table.drop("time")
    assert kept(searches(timeless, Bound(), 9)) == [("bob", "ant"), ("bob", "bee"), ("zoe", "ant"), ("zoe", "cow")]


def test_published_counts_are_the_selecting_ones_with_fresh_noise():
    made = Korolova(calibrate_korolova(2, 1, 1e-5), LaplaceHistogram(2, Fraction(2)))
    first, second = made.steps()
    assert (first.parameters.threshold, first.final) == (made.theorem.release_at, False)
    assert (second.parameters.threshold, second.final) == (None, True)
