"""Amplification by shuffling: local reports gain privacy when nobody can tell who sent which.

This needs, and can't check, a real shuffler, which the reader of the reports does not control and which removes
everything but the report (address, time, order), and n honest reports. **n counts honest reports only**: whoever may be
dropped, forged or known to the attacker hides nobody. The result is a *central* guarantee about the shuffled batch,
under replace-one; towards the shuffler only epsilon0 holds. Statement, formulas and proof: docs/proofs/shuffle.md.

Sums are in doubles and have no negative terms, so nothing cancels. The log-binomials err by less than
:data:`RELATIVE` (n+2) ln(n+2) in all, the bracket of H by less than :data:`ABSOLUTE` (1+e^epsilon); both are added to
delta, as is every tail that is cut (Bernstein's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
import numpy.typing as npt
from scipy import special

from hushquery.core.budget import Budget, Number, rational_mpf, round_down, round_up, working
from hushquery.errors import CalibrationError, UsageError

#: A computed probability is wrong by at most this times (n+2) ln(n+2), relatively: gammaln errs by less than
#: 4 units of 2^-53, and six of them, two powers and the sums stay below 128 = 2^-46/2^-53 with room to spare.
RELATIVE = 2.0**-46

#: The bracket of H is wrong by at most this times (1+e^epsilon), averaged over the histogram.
ABSOLUTE = 2.0**-46

_STEP = 0.002  # cuts are this far apart, relatively: H changes by less than that in epsilon between two of them
_WIDTH = 1e-6  # epsilon is searched to this relative width and the upper end returned
_MOST_REPORTS = 10**9
_LARGEST = 100.0  # above this epsilon the allowance for rounding is more than 1, and nobody hides anybody
_CHUNK = 4096  # rows summed at a time, so that they stay in the processor's cache

_Array = npt.NDArray[np.float64]


def shuffle_krr(epsilon0: Number, k: int, n: int, delta: Number) -> float:
    """Return the epsilon of n shuffled k-ary randomised responses of a local ``epsilon0`` at ``delta``, rounded up.

    **Guarantee:** the shuffled batch is (epsilon, delta)-DP for one reporter under replace-one, against whoever sees it
    and knows all other truths. It needs a real shuffler, and n counts honest reports only. Never above epsilon0.
    **Reference:** Balle, Bell, Gascon and Nissim 2019 (the privacy blanket).

    >>> f"{shuffle_krr(1, 50, 10_000, 1e-6):.4f}"
    '0.0104'
    """
    return _smallest_epsilon(_krr(epsilon0, k, n), _local(epsilon0), _target(delta))


def shuffle_any(epsilon0: Number, n: int, delta: Number) -> float:
    """Return the epsilon of n shuffled reports of any epsilon0-LDP randomizer at ``delta``, rounded up.

    **Guarantee:** as :func:`shuffle_krr`, which is tighter for its case, as long as all n use the same randomizer.
    **Reference:** Feldman, McMillan and Talwar 2021, the reduction to clones.
    """
    return _smallest_epsilon(_clones(epsilon0, n), _local(epsilon0), _target(delta))


def shuffle_closed_form(epsilon0: Number, n: int, delta: Number) -> float:
    """Return the closed form for :func:`shuffle_any`, rounded up; much looser, but one line.

    **Guarantee:** as :func:`shuffle_any`, for ``epsilon0 <= ln(n / (16 ln(2/delta)))``:
    ``epsilon = ln(1 + (e0-1)/(e0+1) (8 sqrt(e0 ln(4/delta)/n) + 8 e0/n))`` with ``e0 = e^epsilon0``.
    **Reference:** Feldman, McMillan and Talwar 2021, their main theorem.
    """
    e, d = Budget(epsilon0).epsilon, Budget(0, delta).delta
    _check_reports(n)
    with working():
        x, y = rational_mpf(e), rational_mpf(d)
        if d == 0 or x > mpmath.log(n / (16 * mpmath.log(2 / y))):
            raise CalibrationError(
                "the closed form does not hold for these numbers",
                why="it was proved for epsilon0 <= ln(n / (16 ln(2/delta))) only",
                fix="Use shuffle_any, which has no such limit, or collect more reports",
            )
        big = mpmath.exp(x)
        noise = 8 * mpmath.sqrt(big * mpmath.log(4 / y) / n) + 8 * big / n
        return round_up(mpmath.log1p((big - 1) / (big + 1) * noise))


def _local(epsilon0: Number) -> float:
    """Read a local epsilon and round it up to a double: a larger one is never more private."""
    value = round_up(Budget(epsilon0).epsilon)
    if value == 0:
        raise UsageError("a local epsilon of 0 sends nothing", fix="Use epsilon0 > 0")
    return value


@dataclass(frozen=True)
class _Blanket:
    """One way to divide reports into those that hide and the rest: what H and the law of G need."""

    values: int  # k, over how many values a hiding report is uniform
    mix: float  # gamma in H: how much of the target's own report is uniform
    others: int  # n-1
    log_hide: float  # ln of the probability that another report hides
    log_show: float  # ln of the probability that it does not

    def delta(self, epsilon: float, tail: float) -> float:
        """Bound delta at ``epsilon`` from above, cutting tails of about ``tail`` and adding them."""
        if epsilon > _LARGEST:
            return 1.0
        low, high = _window(self.others, math.exp(self.log_hide), tail)
        counts = np.arange(low, high + 1, dtype=np.float64)
        law = np.exp(_log_binomial(float(self.others), counts, self.log_hide, self.log_show))
        edges = np.arange(0, len(law), max(1, int(_STEP * low)))
        masses = np.add.reduceat(law, edges)
        total = self._mixture([low + int(i) for i in edges], [float(m) for m in masses], epsilon, tail)
        size = self.others + 3
        total *= 1 + RELATIVE * size * math.log(size)
        return min(1.0, total + 4 * tail + ABSOLUTE * (1 + math.exp(epsilon)))

    def _mixture(self, hiding: list[int], masses: list[float], epsilon: float, tail: float) -> float:
        """Evaluate sum mass H(hiding), up to the errors that :meth:`delta` adds."""
        rows = [self._rows(count, mass, epsilon, tail) for count, mass in zip(hiding, masses, strict=True)]
        columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
        chunks = range(0, len(columns[0]), _CHUNK)
        return sum(_series(*(column[i : i + _CHUNK] for column in columns)) for i in chunks)

    def _rows(self, hiding: int, mass: float, epsilon: float, tail: float) -> tuple[_Array, ...]:
        """Prepare mass H(hiding): for each T = N_a + N_b a series over N_a."""
        # Given T the bracket is linear in N_a and positive beyond some m, so the sum over N_a is b(T, m) times a series
        # of positive terms, with b(T, j+1)/b(T, j) = (T-j)/(j+1).
        size = hiding + 1
        if self.values == 2:
            totals, weights = np.array([float(size)]), np.zeros(1)
        else:
            share = 2 / self.values
            low, high = _window(hiding, share, tail)
            totals = np.arange(low, high + 2, dtype=np.float64)  # the target itself may add one
            weights = _log_binomial(float(size), totals, math.log(share), math.log1p(-share))
        growth = math.exp(epsilon)
        per_value = (1 - self.mix) * self.values / size
        slope = per_value * (1 + growth)
        base = per_value * growth * totals + self.mix * math.expm1(epsilon)
        first = np.floor(base / slope) + 1
        alive = first <= totals
        totals, weights, base, first = totals[alive], weights[alive], base[alive], first[alive]
        half = math.log(0.5)
        scale = mass * np.exp(weights + _log_binomial(totals, first, half, half))
        level = np.maximum(slope * first - base, 0.0)
        return totals - first, first + 1, np.full_like(first, slope), level, scale


def _series(left: _Array, place: _Array, slope: _Array, level: _Array, weight: _Array) -> float:
    """Sum weight (level + slope j) b(T, m+j)/b(T, m) over j >= 0 and rows, with a bound of what is left out."""
    # The ratios fall with j and are below 1, so the rest is below a geometric series.
    weight, level, left, place = weight.copy(), level.copy(), left.copy(), place.copy()
    ratio = np.empty_like(weight)
    total = 0.0
    steps = 0
    while True:
        total += float(np.dot(weight, level))
        np.divide(left, place, out=ratio)
        steps += 1
        if steps % 16 == 0:
            room = 1 - ratio
            rest = float(np.dot(weight, ratio / room * (level + slope / room)))
            if rest <= 1e-9 * total or not rest > 0:
                return total + max(rest, 0.0)
        weight *= ratio
        level += slope
        left -= 1
        np.maximum(left, 0.0, out=left)
        place += 1


def _krr(epsilon0: Number, k: int, n: int) -> _Blanket:
    e = _local(epsilon0)
    _check_reports(n)
    if isinstance(k, bool) or k < 2:
        raise UsageError("a randomised response chooses between at least two values", fix="Use k >= 2")
    # gamma = k/(e^e + k - 1); 1 - gamma = (e^e - 1)/(e^e + k - 1), without cancellation and without overflow
    log_odds = math.log(k) - e - math.log(-math.expm1(-e))  # ln(gamma/(1-gamma))
    log_hide, log_show = -float(np.logaddexp(0, -log_odds)), -float(np.logaddexp(0, log_odds))
    return _Blanket(k, math.exp(log_hide), n - 1, log_hide, log_show)


def _clones(epsilon0: Number, n: int) -> _Blanket:
    e = _local(epsilon0)
    _check_reports(n)
    return _Blanket(2, 2 * math.exp(-e) / (1 + math.exp(-e)), n - 1, -e, math.log(-math.expm1(-e)))


def _smallest_epsilon(blanket: _Blanket, epsilon0: float, delta: float) -> float:
    """Find the least epsilon whose bound is within ``delta``; every value tried is itself a valid bound."""
    tail = delta * 1e-6

    def excess(epsilon: float) -> float:
        return math.log(blanket.delta(epsilon, tail)) - math.log(delta)

    if epsilon0 > _LARGEST:
        return epsilon0
    # The loss is roughly normal; start from a few of its standard deviations and widen.
    size = 1 + blanket.others * math.exp(blanket.log_hide)
    high = min(epsilon0, 3 * (1 - blanket.mix) / blanket.mix * math.sqrt(2 * blanket.values / size))
    below = excess(high)
    while below > 0 and high < epsilon0:
        low, above = high, below
        high = min(epsilon0, high * 1.5)
        below = excess(high)
        if below <= 0:
            return _illinois(excess, (low, above), (high, below))
    # The allowance for rounding grows with e^epsilon: where epsilon0 fails a smaller epsilon may be proved.
    while below > 0:
        high /= 1.5
        if high < epsilon0 / 20:
            return epsilon0  # what holds without a shuffler is all we can promise
        below = excess(high)
    for shrink in (1.5, 1.5, 1.5, 4.0):
        low = high / shrink
        above = excess(low)
        if above > 0:
            return _illinois(excess, (low, above), (high, below))
        high, below = low, above
    above = excess(0.0)
    return _illinois(excess, (0.0, above), (high, below)) if above > 0 else 0.0


def _illinois(excess: Callable[[float], float], first: tuple[float, float], last: tuple[float, float]) -> float:
    """Narrow a bracket with excess(low) > 0 >= excess(high) by the Illinois rule and return its upper end."""
    (low, above), (high, below) = first, last
    side = 0
    while high - low > _WIDTH * high:
        # Never closer to an end than half the width wanted, so that the bracket always shrinks.
        edge = _WIDTH * high / 2
        guess = min(max((low * below - high * above) / (below - above), low + edge), high - edge)
        value = excess(guess)
        if value > 0:
            low, above = guess, value
            below, side = (below / 2 if side > 0 else below), 1
        else:
            high, below = guess, value
            above, side = (above / 2 if side < 0 else above), -1
    return high


def _log_binomial(trials: float | _Array, hits: _Array, log_yes: float, log_no: float) -> _Array:
    """Return ln P(Bin(trials, p) = hits)."""
    misses = trials - hits
    ways = special.gammaln(trials + 1.0) - special.gammaln(hits + 1) - special.gammaln(misses + 1)
    logs: _Array = ways + hits * log_yes + misses * log_no
    return logs


def _window(trials: int, chance: float, tail: float) -> tuple[int, int]:
    """Return (low, high) with P(Bin < low) <= tail and P(Bin > high) <= tail, by Bernstein's inequality."""
    room = -math.log(tail)
    variance = trials * chance * (1 - chance)
    reach = room / 3 + math.sqrt(room * room / 9 + 2 * variance * room)
    centre = trials * chance
    return max(0, math.floor(centre - reach)), min(trials, math.ceil(centre + reach))


def _target(delta: Number) -> float:
    value = Budget(0, delta).delta
    if value == 0:
        raise CalibrationError(
            "shuffling gains nothing at delta 0",
            why="all others may have sent other values",
            fix="Use a delta, often 1e-6",
        )
    return round_down(value)


def _check_reports(n: int) -> None:
    if isinstance(n, bool) or not 1 <= n <= _MOST_REPORTS:
        raise UsageError(
            f"the number of reports must be from 1 to {_MOST_REPORTS:,}",
            fix="Use n, the number of honest reports in a batch",
        )
