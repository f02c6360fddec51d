"""Exact numbers in, safely rounded numbers out.

A privacy parameter is a rational number from the moment a person writes it until a table prints it. Where a
formula is irrational it is evaluated with mpmath at :data:`DIGITS` digits and then rounded in the direction that
can only overstate the loss: epsilon, delta and noise scales up, mu down.
"""

from __future__ import annotations

import math
import numbers
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction

import mpmath

from hushquery.errors import UsageError

__all__ = [
    "DIGITS",
    "GRID",
    "Number",
    "exact",
    "grid_up",
    "precision",
    "rational_mpf",
    "round_down",
    "round_up",
    "smallest_whole",
    "working",
]

#: What a person may hand over as a privacy parameter.
Number = int | float | str | Decimal | Fraction

#: Decimal digits at which irrational formulas are evaluated.
DIGITS = 60

#: Noise scales are multiples of 1/GRID, so that they are short exact rationals.
GRID = 2**32

# mpmath evaluates to DIGITS digits; this relative slack covers its rounding many times over.
_SLACK = mpmath.mpf(10) ** -45

# The smallest double above zero and the largest one.
_TINY = math.nextafter(0.0, 1.0)
_HUGE = sys.float_info.max

# Decimal exponents beyond this make no privacy parameter, only very long numbers.
_MOST_EXPONENT = 400


# mpmath's precision is one global setting: two threads that change it at once would compute with each other's digits.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Evaluate mpmath formulas at ``bits`` binary digits, one thread at a time."""
    with _ONE_AT_A_TIME, mpmath.workprec(bits):
        yield


@contextmanager
def working() -> Iterator[None]:
    """Evaluate mpmath formulas at :data:`DIGITS` decimal digits, one thread at a time."""
    with _ONE_AT_A_TIME, mpmath.workdps(DIGITS):
        yield


def exact(value: Number, name: str = "the number") -> Fraction:
    """Turn what a person wrote into an exact rational.

    A float means the shortest decimal that prints it, so ``0.1`` is one tenth. Text may be a decimal, a fraction
    or ``ln(x)``, which is rounded down because an epsilon that is given must never grow.

    >>> exact(0.1)
    Fraction(1, 10)
    >>> exact("1/3")
    Fraction(1, 3)
    >>> float(exact("ln 10"))
    2.3025850929940455
    """
    given: object = value  # callers without types hand over anything
    try:
        if isinstance(value, str):
            return _from_text(value.strip().lower(), name)
        if isinstance(value, Decimal):
            return _from_text(str(value).lower(), name)
        if isinstance(given, bool) or not isinstance(given, numbers.Real):
            raise TypeError
        if isinstance(given, numbers.Rational):
            return Fraction(int(given.numerator), int(given.denominator))
        return Fraction(repr(float(given)))
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        raise UsageError(
            f"{name} is not a finite number",
            why=f"it is {value!r}" if isinstance(value, int | float | str) else f"it is a {type(value).__name__}",
            fix="Write a number such as 1, 0.5, 1e-6, 1/3 or ln(10)",
        ) from None


def _from_text(text: str, name: str) -> Fraction:
    if text.startswith("ln"):
        inner = text[2:].strip().strip("()").strip()
        if inner.startswith("ln"):
            raise ValueError(inner)
        with working():
            return Fraction(round_down(mpmath.log(rational_mpf(exact(inner, name)))))
    power = text.partition("e")[2]
    if power and abs(int(power)) > _MOST_EXPONENT:
        raise ValueError(text)
    return Fraction(text)


def rational_mpf(value: Fraction) -> mpmath.mpf:
    """Give a rational as an mpmath number at the precision in force."""
    return mpmath.mpf(value.numerator) / value.denominator


def round_up(value: mpmath.mpf | Fraction | float) -> float:
    """Give the smallest double that is certainly not below ``value``."""
    return _directed(value, math.inf)


def round_down(value: mpmath.mpf | Fraction | float) -> float:
    """Give a double that is certainly not above ``value``, and no further below it than needed."""
    return _directed(value, -math.inf)


def _directed(value: mpmath.mpf | Fraction | float, towards: float) -> float:
    """Round in one direction, so that neither the double nor the decimal it prints as falls short."""
    if value != value:
        message = "a formula came out as not a number"
        raise ArithmeticError(message)
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        value = Fraction(value)
    with working():
        outwards, sign = (value > 0) == (towards > 0), 1.0 if value > 0 else -1.0
        if abs(value) < _TINY:  # and its digits may be too many to write down
            return math.copysign(_TINY, sign) if outwards and value != 0 else 0.0
        if abs(value) > _HUGE:
            return math.copysign(math.inf if outwards else _HUGE, sign)
        if isinstance(value, Fraction):
            bound = value
        else:
            slack = abs(value) * _SLACK
            bound = _fraction(value + slack if towards > 0 else value - slack)
        near = bound.numerator / bound.denominator
        while _falls_short(near, bound, towards) or _falls_short(Fraction(repr(near)), bound, towards):
            near = math.nextafter(near, towards)
        return near


def _falls_short(number: float | Fraction, bound: Fraction, towards: float) -> bool:
    return number < bound if towards > 0 else number > bound


def _fraction(value: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)


def smallest_whole(fits: Callable[[int], bool], start: int = 1, most: int = 2**62) -> int | None:
    """Give the smallest whole number from 1 on at which a growing condition holds, by doubling and bisection.

    Args:
        fits: The condition; once true it stays true.
        start: Where to begin to look.
        most: Beyond this, None.

    >>> smallest_whole(lambda n: n * n >= 50)
    8
    """
    low, high = 0, max(1, start)
    while not fits(high):
        low, high = high, high * 2
        if high > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def grid_up(value: mpmath.mpf | Fraction | float) -> Fraction:
    """Round a noise scale up to a multiple of ``1/GRID`` (finer below one, to keep the relative loss tiny)."""
    if isinstance(value, float):
        value = Fraction(value)
    if not value > 0:
        raise UsageError("a noise scale must be above zero", fix="Calibrate it from a budget")
    fine = GRID
    while value * fine < GRID:
        fine *= 2**8
    if isinstance(value, Fraction):
        return Fraction(math.ceil(value * fine), fine)
    with working():
        scaled = mpmath.mpf(value) * fine
        return Fraction(int(mpmath.ceil(scaled + abs(scaled) * _SLACK)), fine)
