"""Laws: distributions on the integers, known through their CDF to any precision; and intervals of noisy counts.

A law draws nothing; :mod:`hushquery.noise.sampler` does. A count published because it passed a threshold is known to
have passed, so the plain interval ``v +- w`` misses too often. The interval here inverts the test given the release and
covers at its level whatever the count is (docs/proofs/intervals.md). No estimator can undo the bias itself, so the
noisy count is published as it is, beside its interval.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import precision
from hushquery.core.calibration import optimal_selection_mpf
from hushquery.errors import UsageError

# Stop certifying a floor at this many guard digits: no irrational CDF comes this close to a binary fraction.
_MOST_GUARD = 2**20

# Digits after the 64 of a table's entry, and how many of them decide nothing, where a table is made by stepping.
_STEPPED, _DOUBTFUL = 160, 60
# Narrower Gaussian noise has a small table.
_WORTH_STEPPING = 16

# Wider noise than this would leave 64-bit integers with a probability worth naming.
_LARGEST_SCALE = 2**40

#: The coverage of every interval of a release.
LEVEL = 0.95

_Integers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


class Law(ABC):
    """A distribution on the integers. Methods that return mpmath numbers evaluate at the precision in force and are
    good to a few units in the last place: :meth:`sf` relatively (also far in the tail), :meth:`cdf` absolutely.
    """

    #: The smallest and largest value with any probability; None where there is no end.
    lowest: int | None = None
    highest: int | None = None
    #: Whether P[Z = z] = P[Z = -z], which halves the work of building a table.
    symmetric: bool = False

    @abstractmethod
    def sf(self, z: int) -> mpmath.mpf:
        """Return P[Z > z]."""

    def cdf(self, z: int) -> mpmath.mpf:
        """Return P[Z <= z]; by symmetry P[Z > -z-1]."""
        return self.sf(-z - 1) if self.symmetric else 1 - self.sf(z)

    def tail(self, k: int) -> mpmath.mpf:
        """Return P[Z >= k]."""
        return self.sf(k - 1)

    def pmf(self, z: int) -> float:
        """Return P[Z = z] as a float, from the tail on its own side, where nothing cancels."""
        with precision(200):
            return float(self.sf(z - 1) - self.sf(z) if z > 0 else self.cdf(z) - self.cdf(z - 1))

    def cdf_floor(self, z: int, bits: int) -> tuple[int, bool]:
        """Return floor(P[Z <= z] 2^bits), certified, and whether the floor is the exact value."""
        if self.lowest is not None and z < self.lowest:
            return 0, True
        if self.highest is not None and z >= self.highest:
            return 1 << bits, True
        guard = 64
        while True:
            # Certified when two precisions agree and neither comes near an integer, measured by the digits kept in
            # guard. Near 0 and near 2^bits nothing is doubtful: here F is above 0 or at least 0, and below 1.
            margin = mpmath.ldexp(1, -guard // 2)
            floors = []
            for digits in (bits + guard, bits + 2 * guard):
                with precision(digits):
                    scaled = mpmath.ldexp(self.cdf(z), bits)
                    if scaled < 0.5:
                        floors.append((0, True))
                    elif (1 << bits) - scaled < 0.5:
                        floors.append(((1 << bits) - 1, True))
                    else:
                        whole = mpmath.floor(scaled)
                        floors.append((int(whole), bool(margin < scaled - whole < 1 - margin)))
            if floors[0] == floors[1] and floors[0][1]:
                return floors[0][0], False
            guard *= 2
            if guard > _MOST_GUARD:
                # Every law here has a transcendental CDF or declares it rational, so this is a defect, not bad luck.
                message = "a CDF value seems to be a multiple of a power of two; its law must say so"
                raise ArithmeticError(message)

    def cdf_floors(self, points: range, bits: int) -> list[int]:
        """Return :meth:`cdf_floor` at every point, without whether it is exact."""
        if not self.symmetric:
            return [self.cdf_floor(z, bits)[0] for z in points]
        known: dict[int, int] = {}
        for z in points:
            # F(z) = 1 - F(-z-1), and neither is a multiple of 2^-bits, so the floors add up to 2^bits - 1.
            mirrored = known.get(-z - 1)
            known[z] = self.cdf_floor(z, bits)[0] if mirrored is None else (1 << bits) - 1 - mirrored
        return list(known.values())

    def centre(self) -> tuple[int, float]:
        """Return where to begin looking for the ends of a table, and in steps of what size."""
        return self.lowest or 0, 1.0

    def half_width(self, level: float) -> int:
        """Return the smallest w with ``P[|Z| <= w] >= level``, for a law symmetric about zero."""
        if not self.symmetric or not 0 < level < 1:
            raise UsageError("an interval needs a symmetric law and a level between 0 and 1")
        tail = (1 - level) / 2
        low, high = -1, 1
        while self.sf(high) > tail:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.sf(middle) <= tail else (middle, high)
        return high


def _checked_scale(scale: Fraction, name: str) -> Fraction:
    scale = Fraction(scale)
    if not 0 < scale <= _LARGEST_SCALE:
        raise UsageError(
            f"the noise scale {name} must be above 0 and at most 2^40",
            why="it is measured in grid steps of an integer sampler",
            fix="Use a coarser grid or a larger epsilon",
        )
    return scale


@dataclass(frozen=True)
class DiscreteLaplace(Law):
    """P[Z = z] = (1-a)/(1+a) a^|z| with a = e^(-1/b): the two-sided geometric law.

    **Guarantee:** added to integers with L1 sensitivity s, pure epsilon = s/b, exactly: the tail has no end.
    **Variance:** 2a/(1-a)^2.
    **Reference:** Ghosh, Roughgarden and Sundararajan 2009; Canonne, Kamath and Steinke 2020.

    >>> round(DiscreteLaplace(Fraction(2)).pmf(0), 6)
    0.244919
    """

    b: Fraction
    symmetric = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", _checked_scale(self.b, "b"))

    def _power(self, k: int) -> mpmath.mpf:
        return mpmath.exp(mpmath.mpf(-k * self.b.denominator) / self.b.numerator)

    def sf(self, z: int) -> mpmath.mpf:
        """Return P[Z > z] = a^(z+1)/(1+a) for z >= -1, and 1 - a^(-z)/(1+a) below."""
        normaliser = 1 + self._power(1)
        return self._power(z + 1) / normaliser if z >= -1 else 1 - self._power(-z) / normaliser

    @property
    def variance(self) -> float:
        """The variance, 2a/(1-a)^2."""
        with precision(200):
            a = self._power(1)
            return float(2 * a / (1 - a) ** 2)


@dataclass(frozen=True)
class Geometric(Law):
    """P[Z = z] = (1-a) a^z for z >= 0, a = e^(-1/b): what remains of discrete Laplace noise above any level."""

    b: Fraction
    lowest = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", _checked_scale(self.b, "b"))

    def sf(self, z: int) -> mpmath.mpf:
        """Return P[Z > z] = a^(z+1)."""
        return mpmath.exp(mpmath.mpf(-(z + 1) * self.b.denominator) / self.b.numerator) if z >= 0 else mpmath.mpf(1)


@dataclass(frozen=True)
class RoundedGaussian(Law):
    """Z = round(N(0, sigma^2)): P[Z = z] = Phi((z+1/2)/sigma) - Phi((z-1/2)/sigma).

    **Guarantee:** added to integers, the result is exactly a rounding of the continuous Gaussian mechanism, so its
    curve (:func:`hushquery.core.calibration.agd` with mu = L2 sensitivity / sigma) holds unchanged. No tail is cut.
    **Variance:** sigma^2 + 1/12 up to 4 e^(-2 pi^2 sigma^2) relative; computed by summation below sigma = 2.

    >>> round(RoundedGaussian(Fraction(3)).variance, 6)
    9.083333
    """

    sigma: Fraction
    symmetric = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _checked_scale(self.sigma, "sigma"))

    def sf(self, z: int) -> mpmath.mpf:
        """Return P[Z > z] = Q((z + 1/2)/sigma)."""
        x = mpmath.mpf((2 * z + 1) * self.sigma.denominator) / (2 * self.sigma.numerator)
        beyond = mpmath.erfc(abs(x) / mpmath.sqrt(2)) / 2
        return beyond if x >= 0 else 1 - beyond

    def cdf_floors(self, points: range, bits: int) -> list[int]:
        """Return :meth:`cdf_floor` at every point; of neighbours by stepping from one to the next."""
        if points.step != 1 or not points or self.sigma < _WORTH_STEPPING:
            return super().cdf_floors(points, bits)
        stepped = self._stepped_floors(max(points[-1], -points[0] - 1), bits)
        return [stepped[z] if z >= 0 else (1 << bits) - 1 - stepped[-z - 1] for z in points]

    def _stepped_floors(self, last: int, bits: int) -> list[int]:
        """Return the floors at 0..last in fixed point; certified as docs/proofs/sampler.md says."""
        # With h = 1/sigma and x = (z + 1/2) h: phi(x + h) = phi(x) e^(-xh - h^2/2), and the integral of phi from x to
        # x + h is phi(x) times the sum of b_n = (-1)^n He_n(x) h^(n+1)/(n+1)!, where He_(n+1) = x He_n - n He_(n-1).
        digits = bits + _STEPPED
        with precision(digits + 64):
            h = mpmath.mpf(self.sigma.denominator) / self.sigma.numerator
            height, below = mpmath.npdf(h / 2), mpmath.ncdf(h / 2)
            step, square, shrink = h, h * h, mpmath.exp(-h * h)
            height, below, step, square, shrink = (
                int(mpmath.ldexp(value, digits)) for value in (height, below, step, square, shrink)
            )
        falls, product = shrink, square // 2  # e^(-xh - h^2/2) and xh at z = 0
        doubtful, whole = 1 << _DOUBTFUL, 1 << _STEPPED
        floors = []
        for z in range(last + 1):
            rest = below & (whole - 1)
            certain = doubtful < rest < whole - doubtful
            floors.append(below >> _STEPPED if certain else self.cdf_floor(z, bits)[0])
            before, term, total, n = 0, step, step, 0
            while not (-4 < term < 4 and -4 < before < 4):
                after = -(product * term >> digits) // (n + 2) - (square * before >> digits) * n // ((n + 1) * (n + 2))
                before, term, n = term, after, n + 1
                total += term
            below += height * total >> digits
            height, falls, product = height * falls >> digits, falls * shrink >> digits, product + square
        return floors

    @property
    def variance(self) -> float:
        """The variance of the rounded noise."""
        if self.sigma >= 2:
            return float(self.sigma**2 + Fraction(1, 12))
        with precision(120):
            reach = int(self.sigma * 20) + 2
            return float(2 * mpmath.fsum((2 * z + 1) * self.sf(z) for z in range(reach)))


Noise = DiscreteLaplace | RoundedGaussian


@dataclass(frozen=True)
class Truncated(Law):
    """Z given Z >= k, for a law whose upper tail is known to relative precision."""

    law: Noise
    k: int

    @property
    def lowest(self) -> int:  # type: ignore[override]
        """The smallest value, k."""
        return self.k

    def sf(self, z: int) -> mpmath.mpf:
        """Return P[Z > z | Z >= k]."""
        return self.law.sf(z) / self.law.sf(self.k - 1) if z >= self.k else mpmath.mpf(1)


class _Coin(Law):
    """1 with some probability, else 0."""

    lowest = 0
    highest = 1

    @abstractmethod
    def chance(self) -> mpmath.mpf:
        """Return the probability of a 1."""

    def sf(self, z: int) -> mpmath.mpf:
        return self.chance() if z == 0 else mpmath.mpf(z < 0)


@dataclass(frozen=True)
class TailCoin(_Coin):
    """1 with probability P[Z >= k] of another law, else 0: does this noise carry a count over a threshold?"""

    law: Noise
    k: int

    def chance(self) -> mpmath.mpf:
        """Return P[Z >= k]."""
        return self.law.tail(self.k)

    def cdf(self, z: int) -> mpmath.mpf:
        """Return P[coin <= z], to relative precision."""
        return self.law.cdf(self.k - 1) if z == 0 else mpmath.mpf(z > 0)


@dataclass(frozen=True)
class SelectionCoin(_Coin):
    """1 with the largest possible chance to publish a key that ``count`` users hold, at (epsilon, delta) per key."""

    count: int
    epsilon: Fraction
    delta: Fraction

    def chance(self) -> mpmath.mpf:
        """Return the chance that the key is published (docs/proofs/optimal.md)."""
        return optimal_selection_mpf(self.count, self.epsilon, self.delta)

    @property
    def certain(self) -> bool:
        """Whether the coin always falls on 1 (or always on 0)."""
        with precision(200):
            return self.chance() in (0, 1)


@dataclass(frozen=True)
class Binomial(Law):
    """The number of ones among n independent coins; its sf is 1 - cdf, so it is precise absolutely only."""

    # The CDF is summed outwards from the mode until the terms left out are below the precision in force; they fall
    # faster than a geometric series, so the cut is certified by the same two precisions as every other floor.

    n: int
    coin: TailCoin | SelectionCoin
    lowest = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n <= 2**40:
            raise UsageError("a binomial needs 1 to 2^40 trials")

    @property
    def highest(self) -> int:  # type: ignore[override]
        """The largest value, n."""
        return self.n

    def sf(self, z: int) -> mpmath.mpf:
        """Return P[more than z ones]."""
        return 1 - self.cdf(z)

    def cdf(self, z: int) -> mpmath.mpf:
        """Return P[at most z ones]."""
        first, sums = _binomial_sums(self.n, self.coin, mpmath.mp.prec)
        if z < first:
            return mpmath.mpf(0)
        return sums[min(z - first, len(sums) - 1)]

    def centre(self) -> tuple[int, float]:
        """Return the mean, rounded, and the standard deviation."""
        p = float(self.coin.sf(0))
        return round(self.n * p), (self.n * p * (1 - p)) ** 0.5


@lru_cache(maxsize=8)
def _binomial_sums(n: int, coin: TailCoin | SelectionCoin, digits: int) -> tuple[int, list[mpmath.mpf]]:
    """Return the first index and the cumulative probabilities, all to ``digits`` bits."""
    with precision(digits + n.bit_length() + 40):
        p, q = coin.sf(0), coin.cdf(0)
        odds = p / q
        mode = min(n, int((n + 1) * p))
        peak = mpmath.binomial(n, mode) * mpmath.exp(mode * mpmath.log(p) + (n - mode) * mpmath.log(q))
        tiny = mpmath.ldexp(1, -(digits + 24))
        below, term, k = [], peak, mode
        while k > 0 and term > tiny:
            term *= k / ((n - k + 1) * odds)
            k -= 1
            below.append(term)
        above, term, j = [], peak, mode
        while j < n and term > tiny:
            term *= (n - j) * odds / (j + 1)
            j += 1
            above.append(term)
        sums, total = [], mpmath.mpf(0)
        for probability in [*reversed(below), peak, *above]:
            total += probability
            sums.append(total)
        return k, sums


# ---- intervals -------------------------------------------------------------------------------------------------------


def given_release(
    noisy: _Integers, threshold: int, law: Noise, level: float = LEVEL, *, least: int = 1
) -> tuple[_Integers, _Integers]:
    """Return the lowest and highest count for which such a noisy count, once released, is not surprising.
    It covers at ``level`` or more, because counts are whole. ``least`` is the smallest count there can be: one where
    only keys that somebody holds can be released, zero where empty keys get noise too.

    >>> low, high = given_release(np.array([40, 60, 300]), 40, RoundedGaussian(Fraction(8)))
    >>> low.tolist(), high.tolist()
    ([1, 43, 284], [50, 76, 316])
    """
    distinct, back = np.unique(noisy, return_inverse=True)
    tail = (1 - level) / 2
    log_tail = _log_tail(law)
    floor = np.full_like(distinct, least)

    def at_least(c: _Integers, v: _Integers) -> _Floats:
        """Ln Pr[V >= v | V >= R] for a true count c; grows with c."""
        return log_tail(v - c) - log_tail(threshold - c)

    far = 1 + int(law.half_width(1 - tail / 4))  # beyond this the threshold makes no difference
    low = _first(lambda c: at_least(c, distinct) >= np.log(tail), floor, distinct + 1)
    high = _first(lambda c: at_least(c, distinct + 1) > np.log1p(-tail), floor, distinct + 2 * far) - 1
    return low[back], np.maximum(high, low)[back]


def on_public_keys(noisy: _Integers, law: Noise, level: float = LEVEL) -> tuple[_Integers, _Integers]:
    """Return the interval of counts that are published for every public key: ``v +- w``."""
    width = law.half_width(level)
    return noisy - width, noisy + width


def most_unreleased(threshold: int, law: Noise, level: float = LEVEL) -> int:
    """Return the highest count that stays below a threshold with a chance of at least ``1 - level``."""
    log_tail = _log_tail(law)
    least = np.zeros(1, dtype=np.int64)
    first = _first(lambda c: log_tail(threshold - c) > np.log(level), least, least + 2 * threshold)
    return max(0, int(first[0]) - 1)


def _first(holds: Callable[[_Integers], npt.NDArray[np.bool_]], low: _Integers, high: _Integers) -> _Integers:
    """Return, position by position, the smallest whole number from ``low`` on where a growing condition holds."""
    low, high = low.copy(), np.maximum(high, low)
    while not (reached := holds(high)).all():
        high = np.where(reached, high, 2 * high + 1)
    while (low < high).any():
        middle = (low + high) // 2
        yes = holds(middle)
        low, high = np.where(yes, low, np.minimum(middle + 1, high)), np.where(yes, middle, high)
    return high


def _log_tail(law: Noise) -> Callable[[_Integers], _Floats]:
    """Return ln P[Z >= k] as a function of k."""
    from scipy.special import log_ndtr

    if isinstance(law, RoundedGaussian):
        sigma = float(law.sigma)
        return lambda k: np.asarray(log_ndtr(-(k - 0.5) / sigma), dtype=np.float64)
    inverse = 1 / float(law.b)
    normaliser = np.log1p(np.exp(-inverse))

    def laplace(k: _Integers) -> _Floats:
        # Each half is right on its own side; on the other it may be the logarithm of zero.
        with np.errstate(divide="ignore"):
            below = np.log1p(-np.exp(np.minimum(0.0, (k - 1.0) * inverse) - normaliser))
        return np.asarray(np.where(k >= 0, -k * inverse - normaliser, below), dtype=np.float64)

    return laplace
