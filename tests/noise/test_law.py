"""Laws against values computed another way: SciPy at double precision, other formulas at a thousand bits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from scipy.stats import binom, dlaplace, geom, norm

from hushquery.errors import UsageError
from hushquery.noise.law import (
    Binomial,
    DiscreteLaplace,
    Geometric,
    RoundedGaussian,
    TailCoin,
    Truncated,
)
from statistical import number, within

SCALES = [Fraction(1, 50), Fraction(1, 3), Fraction(1), Fraction(200, 23), Fraction(115), Fraction(2**30)]
LAPLACE = [DiscreteLaplace(b) for b in SCALES]
GAUSSIAN = [RoundedGaussian(s) for s in SCALES]
NARROW = [Fraction(1, 3), Fraction(1), Fraction(200, 23)]


def reference(law, z):
    """Give P[Z <= z] by another formula than the package's, at the precision in force."""
    if isinstance(law, DiscreteLaplace):
        a = mpmath.exp(-mpmath.mpf(law.b.denominator) / law.b.numerator)
        # (1-a)/(1+a) times a geometric series on either side of zero.
        below = a / (1 - a)
        upto = a ** (-z) / (1 - a) if z < 0 else below + (1 - a ** (z + 1)) / (1 - a)
        return (1 - a) / (1 + a) * upto
    if isinstance(law, RoundedGaussian):
        x = (mpmath.mpf(z) + mpmath.mpf(1) / 2) * law.sigma.denominator / law.sigma.numerator
        half = mpmath.gammainc(mpmath.mpf(1) / 2, x * x / 2) / mpmath.sqrt(mpmath.pi) / 2  # P[N > |x|]
        return half if x < 0 else 1 - half
    if isinstance(law, Geometric):
        return -mpmath.expm1(-mpmath.mpf(z + 1) * law.b.denominator / law.b.numerator) if z >= 0 else mpmath.mpf(0)
    if isinstance(law, Truncated):
        hidden = reference(law.law, law.k - 1)
        return (reference(law.law, z) - hidden) / (1 - hidden) if z >= law.k else mpmath.mpf(0)
    if isinstance(law, TailCoin):
        return mpmath.mpf(0) if z < 0 else reference(law.law, law.k - 1) if z == 0 else mpmath.mpf(1)
    if isinstance(law, Binomial):
        if z >= law.n:
            return mpmath.mpf(1)
        p = 1 - reference(law.coin, 0)
        return mpmath.fsum(math.comb(law.n, i) * p**i * (1 - p) ** (law.n - i) for i in range(z + 1))
    raise TypeError(law)


def certain_floor(law, z, bits):
    """Give floor(F(z) 2^bits) from the other formula, with so many digits to spare that no rounding can matter."""
    with mpmath.workprec(bits + 1000):
        scaled = mpmath.ldexp(reference(law, z), bits)
        edge = mpmath.ldexp(1, -900)
        if scaled < edge or scaled > mpmath.ldexp(1, bits) - edge:
            return 0 if scaled < 1 else 2**bits - 1  # strictly between 0 and 1 wherever the law has no end
        assert abs(scaled - mpmath.nint(scaled)) > edge, "raise the precision of the reference"
        return int(mpmath.floor(scaled))


def near(law):
    """Give the values that matter: the middle, the edges of a 64-bit table, and the tails beyond."""
    scale = law.b if isinstance(law, DiscreteLaplace) else law.sigma
    reach = [0, 1, 2, 3, 7, 15, 30, 44, 45, 46] if isinstance(law, DiscreteLaplace) else [0, 1, 2, 3, 5, 8, 9, 10]
    ends = {sign * math.ceil(r * scale) for r in reach for sign in (1, -1)}
    furthest = 60 if isinstance(law, DiscreteLaplace) else 26
    return sorted(z for z in ends | {z - 1 for z in ends} | {-2, -1, 0, 1, 2} if abs(z + 0.5) <= furthest * scale)


# ---- against SciPy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAPLACE[1:5], ids=str)
def test_discrete_laplace_is_scipys(law):
    other = dlaplace(float(1 / law.b))
    for z in near(law):
        assert law.pmf(z) == pytest.approx(other.pmf(z), rel=1e-11)
        assert float(law.cdf(z)) == pytest.approx(other.cdf(z), rel=1e-11, abs=1e-300)
        assert float(law.sf(z)) == pytest.approx(other.sf(z), rel=1e-9, abs=1e-15)
    assert law.variance == pytest.approx(other.var(), rel=1e-9)


@pytest.mark.parametrize("law", GAUSSIAN[1:], ids=str)
def test_rounded_gaussian_is_scipys(law):
    s = float(law.sigma)
    for z in near(law):
        assert float(law.cdf(z)) == pytest.approx(norm.cdf((z + 0.5) / s), rel=1e-11, abs=1e-300)
        assert float(law.sf(z)) == pytest.approx(norm.sf((z + 0.5) / s), rel=1e-11, abs=1e-300)
        assert float(law.tail(z)) == pytest.approx(norm.sf((z - 0.5) / s), rel=1e-11, abs=1e-300)


def test_geometric_and_binomial_are_scipys():
    a = math.exp(-1 / 3)
    for z in range(-2, 60):
        assert Geometric(Fraction(3)).pmf(z) == pytest.approx(geom(1 - a, loc=-1).pmf(z), rel=1e-11)
    coin = TailCoin(DiscreteLaplace(Fraction(3)), 2)
    law, other = Binomial(300, coin), binom(300, coin.pmf(1))
    for z in range(-1, 302):
        assert law.pmf(z) == pytest.approx(other.pmf(z), rel=1e-9, abs=1e-45)
        assert float(law.cdf(z)) == pytest.approx(other.cdf(z), rel=1e-9, abs=1e-16)
    centre, spread = law.centre()
    assert abs(centre - other.mean()) <= 0.5
    assert spread == pytest.approx(other.std())


# ---- within themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", NARROW, ids=str)
@pytest.mark.parametrize("kind", [DiscreteLaplace, RoundedGaussian])
def test_probabilities_sum_to_one_and_to_the_stated_variance(kind, scale):
    law = kind(scale)
    reach = law.half_width(1 - 1e-15) + 2
    z = np.arange(-reach, reach + 1)
    pmf = [law.pmf(int(i)) for i in z]
    assert math.fsum(pmf) == pytest.approx(1, abs=1e-14)
    assert math.fsum(pmf * z) == pytest.approx(0, abs=1e-12)
    assert math.fsum(pmf * z**2) == pytest.approx(law.variance, rel=1e-10)


@pytest.mark.parametrize("sigma", ["1/4", "1/2", "1", "199/100", "2", "3"])
def test_variance_of_rounded_gaussian_is_as_near_to_its_formula_as_its_docstring_says(sigma):
    law = RoundedGaussian(Fraction(sigma))
    with mpmath.workprec(300):
        true = 2 * mpmath.fsum((2 * z + 1) * law.sf(z) for z in range(100))
        formula = mpmath.mpf(law.sigma.numerator) ** 2 / law.sigma.denominator**2 + mpmath.mpf(1) / 12
        s = mpmath.mpf(law.sigma.numerator) / law.sigma.denominator
        assert abs(true - formula) <= 4 * mpmath.exp(-2 * mpmath.pi**2 * s**2) * formula
    assert law.variance == pytest.approx(float(true), rel=1e-15)


ALL = [
    *LAPLACE,
    *GAUSSIAN,
    Geometric(Fraction(1, 3)),
    Geometric(Fraction(200, 23)),
    Truncated(RoundedGaussian(Fraction(10)), 1),
    Truncated(RoundedGaussian(Fraction(10)), 100),
    Truncated(DiscreteLaplace(Fraction(3)), -4),
    Truncated(DiscreteLaplace(Fraction(3)), 200),
    TailCoin(RoundedGaussian(Fraction(3)), 2),
    TailCoin(DiscreteLaplace(Fraction(3)), -2),
    Binomial(12, TailCoin(DiscreteLaplace(Fraction(2)), 3)),
    Binomial(40, TailCoin(RoundedGaussian(Fraction(2)), 1)),
]


@pytest.mark.parametrize("law", ALL, ids=str)
def test_tail_survival_and_cdf_are_one_thing(law):
    for z in [-5, -2, -1, 0, 1, 2, 3, 10, 31, 35, 200, 210]:
        assert float(law.cdf(z) + law.sf(z)) == pytest.approx(1, abs=1e-15)
        assert law.tail(z) == law.sf(z - 1)
        assert 0 <= law.pmf(z) <= 1
        assert law.cdf(z) >= law.cdf(z - 1)
        if law.lowest is not None and z < law.lowest:
            assert law.cdf(z) == 0
        if law.highest is not None and z >= law.highest:
            assert float(law.cdf(z)) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN], ids=str)
def test_symmetry(law):
    for z in near(law):
        assert law.cdf(z) == law.sf(-z - 1)


def reference_survival(law, z):
    """Give P[Z > z] without subtracting from one, for z >= 0 within the law."""
    if isinstance(law, RoundedGaussian):
        x = (mpmath.mpf(z) + mpmath.mpf(1) / 2) * law.sigma.denominator / law.sigma.numerator
        return mpmath.gammainc(mpmath.mpf(1) / 2, x * x / 2) / mpmath.sqrt(mpmath.pi) / 2
    if isinstance(law, DiscreteLaplace):
        return mpmath.exp(-mpmath.mpf(2 * z + 1) * law.b.denominator / (2 * law.b.numerator)) / (
            2 * mpmath.cosh(mpmath.mpf(law.b.denominator) / (2 * law.b.numerator))
        )
    if isinstance(law, Geometric):
        return mpmath.exp(-mpmath.mpf(z + 1) * law.b.denominator / law.b.numerator)
    return reference_survival(law.law, z) / (1 - reference(law.law, law.k - 1))


@pytest.mark.parametrize("law", [law for law in ALL if law.highest is None], ids=str)
def test_survival_is_relatively_exact_far_in_the_tail(law):
    """What a truncated law divides by: at 120 bits, sf agrees with many more to 100 bits, however small it is."""
    start = max(law.lowest or 0, 0)
    scale = getattr(law, "b", None) or getattr(law, "sigma", None) or Fraction(3)
    for far in (1, 5, 20, 35):
        z = start + math.ceil(far * scale)
        with mpmath.workprec(120):
            ours = law.sf(z)
        with mpmath.workprec(700):
            assert abs(ours / reference_survival(law, z) - 1) < mpmath.ldexp(1, -100)


# ---- certified digits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [*LAPLACE, *GAUSSIAN], ids=str)
@pytest.mark.parametrize("bits", [64, 128, 320])
def test_floors_of_the_cdf_are_those_of_a_thousand_more_bits(law, bits):
    with within(20):
        for z in near(law)[:: 1 if bits == 64 else 5]:
            assert law.cdf_floor(z, bits) == (certain_floor(law, z, bits), False)


@pytest.mark.parametrize("law", ALL[12:], ids=str)
@pytest.mark.parametrize("bits", [64, 128])
def test_floors_of_conditional_laws_and_coins(law, bits):
    with within(20):
        for z in [-4, -3, -1, 0, 1, 2, 5, 11, 12, 30, 31, 40, 200, 203]:
            floor, exact = law.cdf_floor(z, bits)
            below = law.lowest is not None and z < law.lowest
            above = law.highest is not None and z >= law.highest
            if below or above:
                assert (floor, exact) == (0 if below else 2**bits, True)
            else:
                assert (floor, exact) == (certain_floor(law, z, bits), False)


@seed(number("cdf_floor"))
@settings(max_examples=150, deadline=None, database=None)
@given(
    st.sampled_from([DiscreteLaplace, RoundedGaussian]),
    st.fractions(Fraction(1, 20), 1000, max_denominator=1000),
    st.floats(-12, 12),
    st.integers(1, 200),
)
def test_floors_at_any_scale_and_place(kind, scale, place, bits):
    law, z = kind(scale), round(place * float(scale))
    assert law.cdf_floor(z, bits) == (certain_floor(law, z, bits), False)


@pytest.mark.parametrize("z", [-4000, -300, 300, 4000])
@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(1, 2)), Geometric(Fraction(1, 2))], ids=str)
def test_floors_far_out_are_found_in_time(law, z):
    with within(10):
        expected = (0, law.lowest is not None) if z < 0 else (2**64 - 1, False)
        assert law.cdf_floor(z, 64) == expected


@pytest.mark.parametrize(
    ("law", "z"),
    [
        (DiscreteLaplace(Fraction(1, 10**5)), -1),
        (DiscreteLaplace(Fraction(1, 10**6)), -1),
        (RoundedGaussian(Fraction(1, 200)), -1),
        (RoundedGaussian(Fraction(3)), -3000),
        (TailCoin(RoundedGaussian(Fraction(1)), 300), 0),
        (Binomial(20_000, TailCoin(RoundedGaussian(Fraction(1)), 100)), 0),
    ],
    ids=str,
)
def test_floors_of_the_smallest_tails_are_found_in_time(law, z):
    with within(20):
        assert law.cdf_floor(z, 64) == (0 if z < 0 else 2**64 - 1, False)


def test_probabilities_are_symmetric_far_out():
    law = DiscreteLaplace(Fraction(1))
    assert law.pmf(-150) == pytest.approx(law.pmf(150), rel=1e-12, abs=0)


def test_a_binomial_of_nearly_certain_coins():
    assert Binomial(10, TailCoin(DiscreteLaplace(Fraction(1)), -1000)).cdf_floor(9, 64) == (0, False)


# ---- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0, -1, Fraction(-1, 3), 2**40 + 1, Fraction(2**41)])
@pytest.mark.parametrize("kind", [DiscreteLaplace, RoundedGaussian, Geometric])
def test_impossible_scales_are_refused(kind, scale):
    with pytest.raises(UsageError, match="scale"):
        kind(scale)


def test_impossible_binomials_are_refused():
    for n in (0, -1, 2**53 + 1):
        with pytest.raises(UsageError):
            Binomial(n, TailCoin(DiscreteLaplace(Fraction(1)), 0))


@seed(number("half_width"))
@settings(max_examples=60, deadline=None, database=None)
@given(
    st.sampled_from([DiscreteLaplace, RoundedGaussian]),
    st.fractions(Fraction(1, 20), 50, max_denominator=50),
    st.floats(0.01, 1 - 1e-12),
)
def test_half_width_is_the_smallest(kind, scale, level):
    law = kind(scale)
    w = law.half_width(level)

    def inside(width):
        return 1 - 2 * law.sf(width)

    assert w >= 0
    assert inside(w) >= level - 1e-15
    assert w == 0 or inside(w - 1) <= level + 1e-15


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_half_width_refuses_levels_outside_zero_and_one(level):
    with pytest.raises(UsageError):
        DiscreteLaplace(Fraction(1)).half_width(level)
    with pytest.raises(UsageError):
        Geometric(Fraction(1)).half_width(0.9)


def test_largest_scale_stays_within_64_bit_integers():
    """P[|Z| > 2^62] at the largest scale: nothing worth naming."""
    for law in (DiscreteLaplace(Fraction(2**40)), RoundedGaussian(Fraction(2**40))):
        assert float(law.sf(2**62)) == 0.0
