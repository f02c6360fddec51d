"""1BitMean: the average of bounded numbers from one random bit of each client, and its memoised form.

A client with x in 0..m sends 1 with chance ``P0 + unit x`` over 2^53: as likely as not in the middle, never certain at
the ends. Memoised (alpha-point rounding), a client rounds x to one of two neighbouring points of a grid, by an offset
of its own, and answers with a bit for that point which it drew once and for all: sending again reveals nothing new.

Reference: Ding, Kulkarni and Yekhanin 2017, "Collecting telemetry data privately". docs/proofs/onebit.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hushquery.core.estimates import Estimates
from hushquery.core.rounding import Number, working
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.oracles.chance import ONE, checked_epsilon, coins, e_to, fractions_of_one, loss_of_ratio
from hushquery.local.server.intervals import share_interval
from hushquery.noise.sampler import Bits

__all__ = ["AlphaPoint", "BitCount", "OneBitMean"]

_MOST = 2**31


@dataclass(frozen=True)
class OneBitMean:
    """One bit of each client for the average of numbers in 0..m.

    Args:
        most: m, a public bound; numbers are whole, 0..m.
        low: P0, the chance of a 1 at x = 0, over 2^53.
        unit: By how much each step of x raises the chance, over 2^53.

    **Guarantee:** pure epsilon for one report, replace-one: the larger of ln(P(m)/P(0)) and ln((1-P(0))/(1-P(m))) of
    the integers. **Estimator:** (2^53 c/n - P0)/unit for c ones of n, unbiased; variance r(1-r)(2^53/unit)^2/n, at most
    (2^53/(2 unit))^2/n.

    >>> mean = OneBitMean.calibrate(100, "ln 3")
    >>> float(mean.epsilon) <= math.log(3), round(mean.low / ONE, 6)
    (True, 0.25)
    """

    most: int
    low: int
    unit: int

    @classmethod
    def calibrate(cls, most: int, epsilon: Number) -> OneBitMean:
        """Choose the integers: exactly linear in x, so that the estimate is exactly unbiased."""
        wanted = checked_epsilon(epsilon)
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= _MOST:
            raise UsageError("the largest value is a whole number from 1 to 2^31", fix="Give m, a public bound")
        with working():
            unit = int((ONE * (1 - 2 / (e_to(wanted) + 1))) // most)
        while unit > 0:
            made = cls(most, (ONE - unit * most) // 2, unit)
            if made.epsilon <= wanted:
                return made
            unit -= 1
        raise CalibrationError(
            "chances of 53 bits are too coarse for this bound", fix="Give a larger epsilon or round values first"
        )

    @property
    def epsilon(self) -> Fraction:
        """What one report costs, from the integers, rounded up."""
        high = self.low + self.unit * self.most
        return max(loss_of_ratio(high, self.low), loss_of_ratio(ONE - self.low, ONE - high))

    def chance(self, value: int) -> int:
        """Give the chance of a 1, over 2^53."""
        return self.low + self.unit * self.checked([value]).item()

    def checked(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Refuse what is not a whole number in 0..m."""
        given = np.asarray(values)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() > self.most):
            raise UsageError(f"a value is not a whole number in 0..{self.most}", fix="Clamp and round it first")
        return given.astype(np.int64)

    def randomize(self, value: int, bits: Bits) -> int:
        """Give one client's bit."""
        return int(coins(self.chance(value), 1, bits)[0])

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[np.bool_]:
        """Give many clients' bits."""
        whole = self.checked(values)
        thresholds = np.uint64(self.low) + np.uint64(self.unit) * whole.astype(np.uint64)
        ones: npt.NDArray[np.bool_] = fractions_of_one(len(whole), bits) < thresholds
        return ones

    def error_bound(self, n: int, beta: float = 0.05) -> float:
        """Give what the error of the average of n clients exceeds with probability at most beta (Hoeffding)."""
        if n < 1 or not 0 < beta < 1:
            raise UsageError("an error bound needs n >= 1 and 0 < beta < 1")
        return ONE / self.unit * math.sqrt(math.log(2 / beta) / (2 * n))


@dataclass(frozen=True)
class BitCount:
    """The server's side: how many bits came, and how many were 1. Counts of shards add up.

    >>> mean = OneBitMean.calibrate(10, 1)
    >>> from hushquery.noise.sampler import SeededBits
    >>> count = BitCount().add_many(mean.randomize_many([3] * 40_000, SeededBits(1)))
    >>> round(count.estimate(mean).rows[0].value)
    3
    """

    reports: int = 0
    ones: int = 0

    def add(self, bit: int) -> BitCount:
        """Count one report; refuses what is no bit."""
        if bit not in (0, 1):
            raise DataError("this is no 1-bit report", fix="Reject it; clients of this task never send it")
        return BitCount(self.reports + 1, self.ones + int(bit))

    def add_many(self, ones: npt.NDArray[np.bool_]) -> BitCount:
        """Count many reports."""
        return BitCount(self.reports + len(ones), self.ones + int(np.count_nonzero(ones)))

    def merge(self, other: BitCount) -> BitCount:
        """Give the count of both."""
        return BitCount(self.reports + other.reports, self.ones + other.ones)

    def estimate(self, mean: OneBitMean, level: float = 0.95, *, repeats: int = 1) -> Estimates:
        """Give the raw, unbiased average; it may lie outside 0..m.

        Of clients drawn at random the ones are binomial, with a rate that is linear in the average: the interval is
        that of the rate, mapped.

        Args:
            mean: The randomizer.
            level: The coverage of the interval.
            repeats: In how many periods a client reports.
        """
        n = self.reports
        if n < 2:
            raise DataError("an average needs at least two reports", fix="Wait for more")
        share, low, unit = self.ones / n, mean.low / ONE, mean.unit / ONE
        # A bit is on with a chance that is never beyond those at 0 and at m.
        rate = min(max(share, low), low + unit * mean.most)

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            ends = share_interval([self.ones], n, wanted, low, unit, repeats=repeats)
            return ends[0].tolist(), ends[1].tolist()

        stderr = math.sqrt(rate * (1 - rate) * repeats / (n - 1)) / unit
        return Estimates.raw(["mean"], [(share - low) / unit], [stderr], level=level, intervals=intervals)


@dataclass(frozen=True)
class AlphaPoint:
    """Memoised 1BitMean: round to a grid by the client's own offset, answer with a bit kept for that grid point.

    Args:
        mean: The randomizer.
        step: s, which divides m: the distance of grid points.

    The offset and every kept bit are functions of the device's secret and the task, so nothing has to be stored and
    asking again gives the same answer.

    **Guarantee:** pure epsilon for each grid point ever used; epsilon times the number of points used bounds the loss
    between two histories that change at the same times. The change times themselves are not protected.
    **Estimator:** that of 1BitMean; unbiased over the offset too.

    >>> memo = AlphaPoint(OneBitMean.calibrate(100, 1), 25)
    >>> memo.respond(b"secret", b"task", 37) == memo.respond(b"secret", b"task", 37)
    True
    """

    mean: OneBitMean
    step: int

    def __post_init__(self) -> None:
        if not 1 <= self.step <= self.mean.most or self.mean.most % self.step:
            raise UsageError("the step of the grid must divide the largest value", fix="Give, say, m itself or m/4")

    def offset(self, secret: bytes, task: bytes) -> int:
        """Give alpha, uniform on 0..s-1, once per device and task."""
        attempt = 0
        while True:  # without modulo bias
            word = _word(secret, task, b"alpha", attempt)
            if word < ONE // self.step * self.step:
                return word % self.step
            attempt += 1

    def point(self, secret: bytes, task: bytes, value: int) -> int:
        """Round a value to its grid point: up where value + alpha reaches it."""
        whole = self.mean.checked([value]).item()
        left = whole // self.step * self.step
        return left + self.step if whole + self.offset(secret, task) >= left + self.step else left

    def respond(self, secret: bytes, task: bytes, value: int, coins: bytes | None = None) -> int:
        """Return the kept bit of the value's grid point; ``coins`` is the key of its coin, by default the secret."""
        point = self.point(secret, task, value)
        return int(_word(secret if coins is None else coins, task, b"bit", point) < self.mean.chance(point))

    def whole(self, secret: bytes, task: bytes, value: float) -> int:
        """Round a real value to a whole number, unbiased, by a coin kept for that value."""
        if not math.isfinite(value) or not 0 <= value <= self.mean.most:
            raise UsageError(f"a value is not in 0..{self.mean.most}", fix="Clamp it first")
        low = math.floor(value)
        kept = _word(secret, task, b"round:" + repr(float(value)).encode(), 0)
        return min(self.mean.most, low + int(kept < (Fraction(value) - low) * ONE))


def _word(secret: bytes, task: bytes, what: bytes, number: int) -> int:
    """Give 53 bits that only the device can compute, the same each time."""
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (task, what)) + number.to_bytes(8, "big")
    return int.from_bytes(hmac.digest(secret, message, hashlib.sha256)[:8], "big") >> 11
