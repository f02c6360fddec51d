"""A law whose CDF is rational: its ties with random bits are exact, which no law of the package's noise has."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import mpmath

from hushquery.noise.law import Law


@dataclass(frozen=True)
class RationalCoin(Law):
    """1 with a rational probability p, else 0."""

    p: Fraction
    lowest = 0
    highest = 1

    def sf(self, z):
        return mpmath.mpf(self.p.numerator) / self.p.denominator if z == 0 else mpmath.mpf(z < 0)

    def cdf_floor(self, z, bits):
        if z != 0:
            return super().cdf_floor(z, bits)
        numerator = (self.p.denominator - self.p.numerator) << bits
        return numerator // self.p.denominator, numerator % self.p.denominator == 0
