"""Estimates and what is made of them: intervals that cover, steps that are named, and no way to spend budget."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom

from hushquery.core.budget import Unit
from hushquery.core.estimates import (
    Estimate,
    Estimates,
    Rank,
    SteepWarning,
    clip,
    difference,
    function_of,
    project_on_simplex,
    quotient,
    rank,
    ratio,
    simplex,
)
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.errors import UsageError
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import SeededBits, sampler
from hushquery.statistics.plan import Noise

QUICK = settings(max_examples=120, deadline=None)

#: One false alarm in a thousand million, for each check of a random quantity.
ALPHA = 1e-9
FAR = -NormalDist().inv_cdf(ALPHA / 2)

numbers = st.floats(-1e6, 1e6)
GUARANTEE = Guarantee.of(
    "readers", "curator", Unit("user", "add-remove"), [Step("laplace", "a count", Loss(pure=("1/2",)))]
)


@cache
def half_width(law, level):
    return Noise(law, Fraction(1), Loss(), "test").half_width(level)


@dataclass(frozen=True)
class Remembered:
    """The noise of a law as estimates see it; each width is computed once, because thousands of tables ask for it."""

    law: DiscreteLaplace | RoundedGaussian

    def half_width(self, level):
        return half_width(self.law, level)


noise_of = Remembered


def draw(law, n, seed):
    return sampler(law).draw(n, SeededBits(seed)).astype(float)


def covers(hits, level):
    """Whether so many hits are likely enough for intervals that hold at their level."""
    return binom.cdf(int(np.sum(hits)), np.size(hits), level) > ALPHA


def table(values, stderrs=None, **more):
    labels = [chr(ord("a") + i) for i in range(len(values))]
    return Estimates.raw(labels, values, stderrs or [1.0] * len(values), guarantee=GUARANTEE, **more)


# ---- estimates -------------------------------------------------------------------------------------------------------

LAWS = [
    DiscreteLaplace(Fraction(1, 5)),
    DiscreteLaplace(Fraction(2)),
    DiscreteLaplace(Fraction(40)),
    RoundedGaussian(Fraction(1, 3)),
    RoundedGaussian(Fraction(7)),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_raw_intervals_cover_at_their_level_and_are_no_wider_than_needed(law, level):
    errors = draw(law, 20_000, f"{law} {level}")
    row = Estimates.raw(["x"], [0.0], [law.variance**0.5], level=level, noise=noise_of(law)).rows[0]
    assert covers((row.low <= errors) & (errors <= row.high), level)
    narrower = np.abs(errors) <= row.high - 1
    assert binom.sf(int(narrower.sum()) - 1, narrower.size, level) > ALPHA  # one step less would not be enough


def test_without_a_noise_intervals_are_normal():
    row = table([10.0], [2.0], level=0.9).rows[0]
    assert math.isclose(row.high - 10, NormalDist().inv_cdf(0.95) * 2)
    assert math.isclose(10 - row.low, row.high - 10)


def test_another_level_uses_the_same_noise():
    law = DiscreteLaplace(Fraction(10))
    raw = table([5.0, 6.0], [law.variance**0.5] * 2, noise=noise_of(law))
    wide = raw.at_level(0.999)
    assert (wide.level, wide.guarantee, wide.values) == (0.999, GUARANTEE, [5.0, 6.0])
    assert wide.rows[0].high - 5 == law.half_width(0.999)
    assert wide.at_level(0.95) == raw


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_a_level_lies_between_zero_and_one(level):
    with pytest.raises(UsageError):
        table([1.0]).at_level(level)


def test_estimates_are_found_by_label():
    found = table([1.0, 2.0])
    assert (found["b"].value, len(found), [r.label for r in found]) == (2.0, 2, ["a", "b"])
    with pytest.raises(UsageError, match="'z'"):
        found["z"]
    for uneven in ((["a"], [1.0, 2.0], [1.0]), (["a", "b"], [1.0, 2.0], [1.0]), ([], [1.0], [1.0])):
        with pytest.raises(UsageError, match="equally many"):
            Estimates.raw(*uneven)


def test_text_json_and_html_carry_guarantee_and_marks():
    shown = clip(table([-1.6, 5.0]))
    for text in (str(shown), shown._repr_html_()):
        assert "clipped at 0" in text
        assert GUARANTEE.unit.name in text
        assert "add-remove" in text
    data = json.loads(json.dumps(shown.to_json(), allow_nan=False))
    assert data["post_processing"] == ["clipped at 0"]
    assert (data["guarantee"]["unit"], data["guarantee"]["relation"]) == ("user", "add-remove")
    assert "<i>" not in Estimates.raw(["<i>"], [1.0], [1.0])._repr_html_()


@pytest.mark.parametrize(("level", "text"), [(0.95, "95%"), (0.999, "99.9%"), (0.995, "99.5%"), (0.5, "50%")])
def test_a_level_is_not_printed_as_certainty(level, text):
    assert f"({text} intervals)" in str(table([1.0], level=level))


def test_json_has_no_number_that_json_does_not_know():
    odd = Estimates((Estimate("a", math.nan, math.inf, -math.inf, math.inf),))
    (row,) = json.loads(json.dumps(odd.to_json(), allow_nan=False))["estimates"]
    assert row == {"label": "a", "estimate": None, "stderr": None, "low": None, "high": None}


# ---- post-processing -------------------------------------------------------------------------------------------------


def test_steps_are_named_in_order_and_the_guarantee_stays():
    done = simplex(clip(table([3.0, -1.0])), total=2)
    assert done.marks == ("clipped at 0", "projected on sum 2")
    assert done.guarantee is GUARANTEE
    with pytest.raises(UsageError, match="raw"):
        done.at_level(0.9)
    for derive in (lambda: difference(done, "a", "b"), lambda: rank(done)):
        with pytest.raises(UsageError, match="post-processed"):
            derive()


@given(st.lists(numbers, min_size=1, max_size=6), numbers, st.floats(0.001, 1e6))
@QUICK
def test_clipping_keeps_order_and_never_excludes_a_truth_in_the_range(values, low, width):
    raw = table(values)
    for before, after in zip(raw, clip(raw, low, low + width), strict=True):
        assert low <= after.low <= after.value <= after.high <= low + width
        truths = np.linspace(low, low + width, 7)
        inside = (before.low <= truths) & (truths <= before.high)
        assert np.all((after.low <= truths[inside]) & (truths[inside] <= after.high))


def test_minus_one_point_six_people_are_none():
    assert clip(table([-1.6])).values == [0.0]
    with pytest.raises(UsageError):
        clip(table([1.0]), 2, 2)


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    st.one_of(st.floats(1e-3, 1e3), st.sampled_from([1.0, 100.0])),
)
@QUICK
def test_the_simplex_projection_meets_the_conditions_of_kuhn_and_tucker(values, total):
    nearest = np.array(project_on_simplex(values, total))
    scale = max(1.0, total, *map(abs, values))
    assert np.all(nearest >= 0)
    assert math.isclose(math.fsum(nearest), total, abs_tol=1e-9 * scale)
    moved = np.array(values) - nearest  # equal to one shift where positive, at most the shift where zero
    shift = moved[nearest > 0]
    assert np.ptp(shift) <= 1e-9 * scale
    assert np.all(moved <= shift[0] + 1e-9 * scale)


@pytest.mark.parametrize("values", [[0.9, 0.4, -0.2], [3.0, 2.9, 2.8, -5.0], [0.1, 0.1], [-1.0, -2.0]])
def test_the_simplex_projection_is_what_quadratic_programming_finds(values):
    start = np.full(len(values), 1 / len(values))
    found = minimize(
        lambda x: np.sum((x - values) ** 2),
        start,
        jac=lambda x: 2 * (x - values),
        bounds=[(0, None)] * len(values),
        constraints={"type": "eq", "fun": lambda x: np.sum(x) - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(project_on_simplex(values), found.x, atol=1e-6)


def test_the_simplex_projection_keeps_its_sum_for_large_numbers():
    assert project_on_simplex([1e20, 1.0]) == [1.0, 0.0]
    assert math.isclose(sum(project_on_simplex([1e12, 1e12, 0.0], 1.0)), 1.0)


@pytest.mark.parametrize(
    ("values", "total"),
    [([], 1.0), ([1.0], 0.0), ([1.0], -1.0), ([1.0, math.nan], 1.0), ([math.inf], 1.0), ([1.0], math.nan)],
)
def test_what_has_no_projection_is_refused(values, total):
    with pytest.raises(UsageError):
        project_on_simplex(values, total)


# ---- derived values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(5)), RoundedGaussian(Fraction(6))], ids=str)
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_derived_intervals_cover(law, level):
    """Difference, ratio, a function and all ranks at once, each at least at the level of what it came from."""
    runs = 1500
    truth = np.array([100.0, 220.0, 225.0, 400.0])
    noisy = truth + draw(law, runs * 4, f"derived {law} {level}").reshape(runs, 4)
    ranks = {"a": 4, "b": 3, "c": 2, "d": 1}
    hits = {"difference": [], "ratio": [], "function": [], "ranks": []}
    for values in noisy:
        raw = Estimates.raw("abcd", list(values), [law.variance**0.5] * 4, level=level, noise=noise_of(law))
        apart = difference(raw, "d", "a")
        hits["difference"].append(apart.low <= 300 <= apart.high)
        share = ratio(raw, "a", "d")
        hits["ratio"].append(share.low <= 0.25 <= share.high)
        product = function_of(lambda x, y: x * math.log(y), raw, "a", "b", steps=2)
        hits["function"].append(product.low <= 100 * math.log(220) <= product.high)
        hits["ranks"].append(all(r.best <= ranks[r.label] <= r.worst for r in rank(raw)))
    for name, seen in hits.items():
        assert covers(seen, level), name


def test_standard_errors_follow_the_tangent():
    raw = table([50.0, 200.0], [3.0, 4.0])
    assert math.isclose(difference(raw, "a", "b").stderr, 5.0)
    expected = math.hypot(3 / 200, 50 * 4 / 200**2)
    assert math.isclose(ratio(raw, "a", "b").stderr, expected)
    assert math.isclose(function_of(lambda x, y: x / y, raw, "a", "b").stderr, expected, rel_tol=1e-2)


@pytest.mark.parametrize(
    "law", [DiscreteLaplace(Fraction(1, 2)), DiscreteLaplace(Fraction(1)), RoundedGaussian(Fraction(1))]
)
def test_differences_and_ratios_of_numbers_with_little_noise_cover(law):
    """Summed from the law: the root of the sum of two squared half widths alone covers 92% with b = 1/2."""
    noise = Noise(law, Fraction(1), Loss(), "test")
    reach, values = range(-8, 9), {"a": 200.0, "b": 200.0}
    covered = dict.fromkeys(("difference", "ratio"), 0.0)
    for x in reach:
        for y in reach:
            raw = Estimates.raw(["a", "b"], [200.0 + x, 200.0 + y], [noise.stderr] * 2, noise=noise)
            chance = law.pmf(x) * law.pmf(y)
            less, over = difference(raw, "a", "b"), ratio(raw, "a", "b")
            covered["difference"] += chance * (less.low <= values["a"] - values["b"] <= less.high)
            covered["ratio"] += chance * (over.low <= values["a"] / values["b"] <= over.high)
    assert min(covered.values()) >= 0.94, covered


@given(st.floats(1, 1e3), st.floats(0.01, 10), st.floats(-1e3, -1), st.floats(0.01, 10))
@QUICK
def test_a_quotient_holds_every_ratio_whose_difference_may_be_zero(x, wx, y, wy):
    """The interval is all r with (a - r b)^2 <= wa^2 + r^2 wb^2, and nothing else."""
    a, b = Estimate("a", x, wx / 4, x - wx, x + wx), Estimate("b", y, wy / 400, y - wy / 100, y + wy / 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteepWarning)
        found = quotient(a, b, label="a / b")
    if abs(y) <= wy / 100:
        assert (found.low, found.high) == (-math.inf, math.inf)
        return
    width = found.high - found.low
    for share in (-0.5, -0.01, 0.01, 0.3, 0.7, 0.99, 1.01, 1.5):
        r = found.low + share * width
        assert ((x - r * y) ** 2 <= wx**2 + (r * wy / 100) ** 2) is (0 < share < 1), share


def test_dividing_by_what_may_be_zero_has_no_end_and_warns():
    with pytest.warns(SteepWarning, match="near zero"):
        found = ratio(table([5.0, 1.0]), "a", "b")
    assert (found.low, found.high, found.stderr) == (-math.inf, math.inf, math.inf)
    with pytest.warns(SteepWarning):
        assert math.isnan(ratio(table([5.0, 0.0]), "a", "b").value)


def test_a_denominator_with_a_quarter_of_noise_warns():
    with pytest.warns(SteepWarning):
        ratio(table([5.0, 10.0], [0.1, 2.6]), "a", "b")


STEEP = {
    "a square at zero": (lambda x: x * x, 0.0, 1.0),
    "an absolute value at zero": (abs, 0.0, 1.0),
    "an exponential": (lambda x: math.exp(x), 5.0, 1.0),
    "near a pole": (lambda x: 1 / x, 2.0, 1.5),
    "a count minus nearly the same": (lambda x: x - 99.0, 100.0, 1.0),
    "not everywhere there": (math.log, 1.0, 1.0),
    "a pole inside": (lambda x: 1 / x, 1.0, 1.0),
}


@pytest.mark.parametrize(("function", "value", "stderr"), STEEP.values(), ids=STEEP)
def test_steep_functions_warn(function, value, stderr):
    """The deck's last caution: low sensitivity does not help a number that goes into a very sensitive function."""
    with pytest.warns(SteepWarning, match="interval"):
        function_of(function, table([value], [stderr]), "a")


FLAT = {
    "a square far from zero": (lambda x: x * x, 100.0, 1.0),
    "a straight line": (lambda x: 3 * x + 1, 100.0, 1.0),
    "a logarithm of a large count": (math.log, 1000.0, 5.0),
    "a constant": (lambda _: 7.0, 5.0, 1.0),
}


@pytest.mark.parametrize(("function", "value", "stderr"), FLAT.values(), ids=FLAT)
def test_flat_functions_do_not_warn(function, value, stderr):
    found = function_of(function, table([value], [stderr]), "a")  # a warning would be an error here
    assert found.low <= found.value <= found.high
    assert ratio(table([50.0, 100.0]), "a", "b").value == 0.5
    assert difference(table([2.0, 1.0]), "a", "b").value == 1.0


def test_a_function_that_does_not_exist_everywhere_has_no_end():
    with pytest.warns(SteepWarning):
        found = function_of(math.log, table([1.0], [1.0]), "a")
    assert (found.low, found.high, found.stderr) == (-math.inf, math.inf, math.inf)


def test_ranks_allow_what_the_noise_allows():
    assert rank(table([10.0, 100.0, 50.0])) == [Rank("b", 1, 1, 1), Rank("c", 2, 2, 2), Rank("a", 3, 3, 3)]
    assert rank(table([5.0])) == [Rank("a", 1, 1, 1)]
    assert rank(Estimates(())) == []
    with pytest.warns(SteepWarning, match="mostly noise"):
        found = rank(table([1.0, 2.0, 3.0, 2.5], [50.0] * 4))
    assert {(r.best, r.worst) for r in found} == {(1, 4)}


def test_deriving_from_nothing_is_refused():
    with pytest.raises(UsageError):
        function_of(lambda: 1.0, table([1.0]))
    with pytest.raises(UsageError, match="'z'"):
        ratio(table([1.0]), "a", "z")
