"""Numbers in are exact; numbers out are rounded in the one direction that can only overstate the loss."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushquery.core.budget import GRID, exact, grid_up, rational_mpf, round_down, round_up, working
from hushquery.errors import UsageError

QUICK = settings(max_examples=150, deadline=None)

finite = st.floats(allow_nan=False, allow_infinity=False)
rationals = st.builds(
    lambda n, d, e: Fraction(n, d) * Fraction(2) ** e,
    st.integers(-(10**30), 10**30),
    st.integers(1, 10**30),
    st.integers(-1000, 900),
)


def steps_between(low, high):
    """How many doubles lie between two, counted up to ten."""
    for steps in range(10):
        if low >= high:
            return steps
        low = math.nextafter(low, math.inf)
    return math.inf


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),
        (1e-6, Fraction(1, 10**6)),
        (-2.5, Fraction(-5, 2)),
        ("1/3", Fraction(1, 3)),
        (" 0.25 ", Fraction(1, 4)),
        ("1e-6", Fraction(1, 10**6)),
        ("1E3", Fraction(1000)),
        (Decimal("0.3"), Fraction(3, 10)),
        (Fraction(2, 7), Fraction(2, 7)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
        (5e-324, Fraction("5e-324")),
    ],
)
def test_what_a_person_wrote_is_what_is_meant(written, meant):
    assert exact(written) == meant


@given(finite)
@QUICK
def test_a_float_is_the_decimal_it_prints_as(x):
    assert exact(x) == Fraction(repr(x)) == exact(repr(x))
    assert float(exact(x)) == x


@given(st.integers(-(10**40), 10**40), st.integers(1, 10**40))
@QUICK
def test_a_fraction_in_text_is_kept_digit_by_digit(n, d):
    assert exact(f"{n}/{d}") == Fraction(n, d) == exact(Fraction(n, d))


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**6))
@QUICK
def test_ln_is_rounded_down_and_no_further_than_needed(x):
    given_epsilon = exact(f"ln({x})")
    with mpmath.workdps(80):
        true = mpmath.log(rational_mpf(x))
        assert rational_mpf(given_epsilon) <= true
        above = math.nextafter(math.nextafter(float(given_epsilon), math.inf), math.inf)
        assert x == 1 or rational_mpf(Fraction(above)) > true


@pytest.mark.parametrize("text", ["ln(10)", "ln 10", "LN(10)", " ln( 10 ) ", "ln10", "ln(20/2)"])
def test_ln_may_be_written_in_several_ways(text):
    assert exact(text) == exact("ln(10)")
    assert math.isclose(exact(text), math.log(10))


GARBAGE = [
    math.nan,
    math.inf,
    -math.inf,
    "nan",
    "inf",
    "-Infinity",
    "",
    "  ",
    "much",
    "1/0",
    "1/2/3",
    "1 2",
    "0x10",
    "ln",
    "ln()",
    "ln(0)",
    "ln(-1)",
    "ln(much)",
    "1,5",
    True,
    False,
    None,
    [1],
    {},
    1j,
    b"1",
    object(),
    Decimal("NaN"),
    Decimal("Infinity"),
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_is_no_finite_number_is_refused(garbage):
    with pytest.raises(UsageError) as refused:
        exact(garbage, "epsilon")
    assert refused.value.what.startswith("epsilon")
    assert refused.value.fix
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "call",
    [
        "exact('1e-999999999')",
        "exact('1e999999999')",
        "exact('1/1e999999999')",
        "exact(Decimal('1e999999'), 'x') and exact(Decimal('1e-99999999'))",
        "exact('ln' * 5000 + '10')",
        "grid_up(Fraction(0))",
        "grid_up(Fraction(-1))",
    ],
)
def test_nothing_written_makes_it_hang_or_fill_the_memory(call):
    """In a process of its own, that can be stopped: one of these once counted to 10^999999999."""
    program = (
        "from decimal import Decimal\nfrom fractions import Fraction\nfrom hushquery.errors import UsageError\n"
        f"from hushquery.core.budget import exact, grid_up\ntry:\n    {call}\n"
        "except UsageError:\n    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == ("refused\n", "")


@given(rationals)
@example(Fraction(1, 3))
@example(Fraction(1, 10**400))
@example(Fraction(-1, 10**400))
@example(Fraction(2**53 + 1))
@QUICK
def test_rounding_a_rational_is_safe_and_goes_no_further_than_needed(x):
    up, down = round_up(x), round_down(x)
    # The double itself, and the decimal that it prints as and that a person will copy.
    assert max(Fraction(down), Fraction(repr(down))) <= x <= min(Fraction(up), Fraction(repr(up)))
    assert steps_between(down, up) <= 4


@given(rationals)
@QUICK
def test_rounding_up_an_mpmath_number_never_falls_below(x):
    with working():
        value = rational_mpf(x)
    with mpmath.workprec(4000):  # the numbers themselves, without any rounding
        up, down = mpmath.mpf(round_up(value)), mpmath.mpf(round_down(value))
        assert down <= value <= up
    assert steps_between(float(down), float(up)) <= 4


@given(finite)
@QUICK
def test_a_double_is_its_own_rounding(x):
    assert round_up(x) == round_down(x) == x


@given(st.integers(-(2**80), 2**80))
@example(2**53 + 1)
@example(-(2**53) - 1)
@QUICK
def test_a_whole_number_beyond_the_doubles_is_rounded_in_the_right_direction_too(n):
    assert Fraction(round_down(n)) <= n <= Fraction(round_up(n))


@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_the_largest_double_up_is_infinite_and_down_is_not(sign):
    with working():
        for huge in (Fraction(sign * 10**400), sign * mpmath.mpf(10) ** 400):
            up, down = round_up(huge), round_down(huge)
            assert (math.isinf(up), math.isinf(down)) == ((True, False) if sign > 0 else (False, True))
            assert down < up


@given(st.one_of(rationals.map(abs), st.floats(1e-300, 1e300)).filter(bool))
@QUICK
def test_noise_scales_are_rounded_up_to_short_rationals_and_hardly_grow(x):
    scale = grid_up(x)
    assert scale >= Fraction(x)
    assert scale <= Fraction(x) * (1 + Fraction(2, GRID))
    assert scale.denominator & (scale.denominator - 1) == 0  # a power of two


@given(rationals.map(abs).filter(lambda x: x > Fraction(1, 10**40)))
@QUICK
def test_noise_scales_from_mpmath_are_rounded_up(x):
    with working():
        value = mpmath.sqrt(rational_mpf(x))
        assert grid_up(value) ** 2 >= x
