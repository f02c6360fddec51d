"""1BitMean: the average of bounded numbers from one random bit of each client, memoised.

A client with x in 0..m sends 1 with chance ``low + unit x`` over 2^53. Memoised, it rounds x to a neighbouring grid
point by an offset of its own and answers with that point's one bit; both are functions of its secret and the task.
Reference: Ding, Kulkarni and Yekhanin 2017, "Collecting telemetry data privately". docs/proofs/onebit.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, working
from hushquery.core.estimates import Estimates
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.intervals import IntArray, share_interval
from hushquery.local.randomizer import (
    ONE,
    Channel,
    Device,
    check_reports,
    checked_epsilon,
    coins,
    e_to,
    fractions_of_one,
    loss_of_ratio,
)
from hushquery.noise.sampler import Bits

_MOST = 2**31


@dataclass(frozen=True)
class OneBitMean(Channel):
    """One bit of each client for the average of whole numbers in 0..m (``most``); a memo class is a grid point.

    ``step`` is the distance of grid points, ``low`` the chance of a 1 at x = 0, ``unit`` what each x adds, over 2^53.

    **Guarantee:** pure epsilon for each grid point ever used, replace-one: the larger of ln(P(m)/P(0)) and
    ln((1-P(0))/(1-P(m))) of the integers. Over time, epsilon times the number of points used bounds the loss between
    two histories that change at the same times; the change times themselves are not protected.
    **Estimator:** (2^53 c/n - low)/unit for c ones of n, unbiased, over the offset too; variance r(1-r)(2^53/unit)^2/n,
    at most (2^53/(2 unit))^2/n.

    >>> mean = OneBitMean.calibrate(100, "ln 3")
    >>> float(mean.epsilon) <= math.log(3), round(mean.low / ONE, 6)
    (True, 0.25)
    """

    most: int
    step: int
    low: int
    unit: int

    name: ClassVar[str] = "onebit"

    def __post_init__(self) -> None:
        if not 1 <= self.step <= self.most or self.most % self.step:
            raise UsageError("the step of the grid must divide the largest value", fix="Use, say, m itself or m/4")

    @classmethod
    def calibrate(cls, most: int, epsilon: Number, step: int | None = None) -> OneBitMean:
        """Choose the integers, exactly linear in x so that the estimate is unbiased; the default grid is 0 and m."""
        wanted = checked_epsilon(epsilon)
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= _MOST:
            raise UsageError("the largest value is a whole number from 1 to 2^31", fix="Set m, a public bound")
        with working():
            unit = int((ONE * (1 - 2 / (e_to(wanted) + 1))) // most)
        while unit > 0:
            mean = cls(most, most if step is None else step, (ONE - unit * most) // 2, unit)
            if mean.epsilon <= wanted:
                return mean
            unit -= 1
        raise CalibrationError(
            "chances of 53 bits are too coarse for this bound", fix="Use a larger epsilon or round values first"
        )

    @property
    def epsilon(self) -> Fraction:
        """What one bit costs, from the integers, rounded up."""
        high = self.low + self.unit * self.most
        return max(loss_of_ratio(high, self.low), loss_of_ratio(ONE - self.low, ONE - high))

    @property
    def report_bytes(self) -> int:
        """One byte, 0 or 1."""
        return 1

    @property
    def length(self) -> int:
        """How many zeros, and how many ones."""
        return 2

    @property
    def note(self) -> str:
        """Classes and error."""
        points, width = self.most // self.step + 1, ONE / self.unit / 2
        return f"at most {points:,} answers per device; standard error of the average at most {width:,.4g}/sqrt(n)"

    def expected_errors(self, reports: int) -> tuple[float, float]:
        """Compute the largest standard error of the average, twice."""
        check_reports(reports)
        return (ONE / self.unit / 2 / math.sqrt(reports),) * 2

    def error_bound(self, n: int, beta: float = 0.05) -> float:
        """Compute what the error of the average of n clients exceeds with probability at most beta (Hoeffding)."""
        if n < 1 or not 0 < beta < 1:
            raise UsageError("an error bound needs n >= 1 and 0 < beta < 1")
        return ONE / self.unit * math.sqrt(math.log(2 / beta) / (2 * n))

    def chance(self, value: int) -> int:
        """Compute the chance of a 1, over 2^53."""
        return self.low + self.unit * self.checked([value]).item()

    def checked(self, values: npt.ArrayLike) -> IntArray:
        """Refuse what is not a whole number in 0..m."""
        given = np.asarray(values)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() > self.most):
            raise UsageError(f"a value is not a whole number in 0..{self.most}", fix="Clamp and round it first")
        return given.astype(np.int64)

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[np.bool_]:
        """Draw many clients' bits, without a memo."""
        whole = self.checked(values)
        thresholds = np.uint64(self.low) + np.uint64(self.unit) * whole.astype(np.uint64)
        ones: npt.NDArray[np.bool_] = fractions_of_one(len(whole), bits) < thresholds
        return ones

    def offset(self, device: Device) -> int:
        """Return alpha, uniform on 0..step-1, once per device and task."""
        attempt = 0
        while True:  # without modulo bias
            word = _word(device.secret, device.task, b"alpha", attempt)
            if word < ONE // self.step * self.step:
                return word % self.step
            attempt += 1

    def point(self, value: int, device: Device) -> int:
        """Round a value to its grid point: up where value + alpha reaches it."""
        whole = self.checked([value]).item()
        left = whole // self.step * self.step
        return left + self.step if whole + self.offset(device) >= left + self.step else left

    def respond(self, value: int, device: Device) -> int:
        """Return the kept bit of the value's grid point."""
        point = self.point(value, device)
        return int(_word(device.coins, device.task, b"bit", point) < self.chance(point))

    def memo_class(self, value: int, device: Device) -> int:
        """The number of the grid point."""
        return self.point(value, device) // self.step

    def answer(self, value: int, device: Device, bits: Bits) -> bytes:
        """The bit that the secret gives to the grid point."""
        del bits
        return self.pack(self.respond(value, device))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """A fair coin: it counts as half of the highest number."""
        del device
        return self.pack(int(coins(ONE // 2, 1, bits)[0]))

    def encode(self, answer: int) -> bytes:
        """One byte."""
        return bytes([answer])

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The bits."""
        if (payloads > 1).any():
            raise self.malformed("it is neither 0 nor 1")
        return payloads[:, 0]

    def support(self, rows: npt.NDArray[np.uint8]) -> IntArray:
        """Count zeros and ones."""
        return np.bincount(rows, minlength=2).astype(np.int64)

    def adds_up(self, support: IntArray, n: int) -> bool:
        """Each report is a zero or a one."""
        return super().adds_up(support, n) and int(support.sum()) == n

    def table(
        self, support: IntArray, n: int, level: float, labels: Sequence[str], *, records: int = 1, repeats: int = 1
    ) -> Estimates:
        """Estimate the raw, unbiased average, which may lie outside 0..m; the interval is that of the rate, mapped."""
        del labels, records
        if n < 2:
            raise DataError("an average needs at least two reports", fix="Wait for more")
        ones = int(support[1])
        share, low, unit = ones / n, self.low / ONE, self.unit / ONE
        # A bit is on with a chance that is never beyond those at 0 and at m.
        rate = min(max(share, low), low + unit * self.most)

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            ends = share_interval([ones], n, wanted, low, unit, repeats=repeats)
            return ends[0].tolist(), ends[1].tolist()

        stderr = math.sqrt(rate * (1 - rate) * repeats / (n - 1)) / unit
        return Estimates.raw(["mean"], [(share - low) / unit], [stderr], level=level, intervals=intervals)

    def estimate(self, ones: npt.NDArray[np.bool_], level: float = 0.95) -> Estimates:
        """Estimate the average from the bits of :meth:`randomize_many`.

        >>> from hushquery.noise.sampler import SeededBits
        >>> mean = OneBitMean.calibrate(10, 1)
        >>> round(mean.estimate(mean.randomize_many([3] * 40_000, SeededBits(1))).rows[0].value)
        3
        """
        return self.table(self.support(ones.astype(np.uint8)), len(ones), level, [])


def _word(secret: bytes, task: bytes, what: bytes, number: int) -> int:
    """Compute 53 bits that only the device can, the same each time."""
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (task, what)) + number.to_bytes(8, "big")
    return int.from_bytes(hmac.digest(secret, message, hashlib.sha256)[:8], "big") >> 11
