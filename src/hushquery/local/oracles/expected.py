"""How large the error of an estimate will be, before anybody has reported: from the mechanism and a number of reports.

Of shares there are two: the standard error of a value that hardly anybody holds, which is the one that decides what
can be told from nothing, and the most that any value can have. With a small epsilon they are nearly the same; with a
large one the noise is small, so that which clients happened to be asked decides, and a value that half of them hold has
a multiple of a rare one's. Of an average it is the most it can be.
"""

from __future__ import annotations

import math

from hushquery.errors import UsageError
from hushquery.local.channel import Channel, OracleChannel
from hushquery.local.numbers.channels import HistogramChannel, MeanChannel
from hushquery.local.oracles.chance import ONE
from hushquery.local.oracles.oracle import Oracle
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.rappor.channel import RapporChannel
from hushquery.local.rappor.plan import share_std_error
from hushquery.local.rappor.response import Variant

__all__ = ["expected_error", "largest_error"]

# Texts that will be looked for; RAPPOR's error depends on how many, a little.
_CANDIDATES = 100


def expected_error(channel: Channel, reports: int) -> float:
    """Give the standard error to expect: of the share of a rare value, or at most of an average.

    Args:
        channel: The mechanism.
        reports: How many reports there will be, each of another client.

    >>> from hushquery.local.oracles.krr import KRR
    >>> round(expected_error(OracleChannel(KRR.calibrate(4, 1), True), 10_000), 4)
    0.0126
    """
    _check(reports)
    if isinstance(channel, MeanChannel):
        return ONE / channel.memo.mean.unit / 2 / math.sqrt(reports)
    if isinstance(channel, HistogramChannel):
        return math.sqrt(_of_bucket(channel, 0.0) / _who_sampled(channel, reports))
    if isinstance(channel, RapporChannel):
        return share_std_error(channel.params, reports, _CANDIDATES, Variant.NATIVE)
    if isinstance(channel, OracleChannel) and isinstance(channel.oracle, Oracle):
        return math.sqrt(channel.oracle.variance() / reports)
    if isinstance(channel, OracleChannel) and isinstance(channel.oracle, TwoStage):
        two = channel.oracle
        return math.sqrt(max((two.variance(cell) for cell in _cells(two).values()), default=0.0) / reports)
    raise _unknown(channel)


def largest_error(channel: Channel, reports: int) -> float:
    """Give the largest standard error that a share can have, whatever clients hold, or that an average can have.

    Of clients drawn at random. For two-stage also over the share of the value's query.

    Args:
        channel: The mechanism.
        reports: How many reports there will be, each of another client.

    >>> from hushquery.local.oracles.krr import KRR
    >>> channel = OracleChannel(KRR.calibrate(4, 8), True)
    >>> round(expected_error(channel, 10_000), 5), round(largest_error(channel, 10_000), 5)
    (0.00018, 0.00501)
    """
    _check(reports)
    if isinstance(channel, MeanChannel):
        return expected_error(channel, reports)
    if isinstance(channel, HistogramChannel):
        peak = _peak(_of_bucket(channel, 0.0), _of_bucket(channel, 1.0))
        return math.sqrt(peak / _who_sampled(channel, reports))
    if isinstance(channel, RapporChannel):
        noise = share_std_error(channel.params, reports, _CANDIDATES, Variant.NATIVE, most=True)
        return math.hypot(noise, 0.5 / math.sqrt(reports))  # and who was asked
    if isinstance(channel, OracleChannel) and isinstance(channel.oracle, Oracle):
        return math.sqrt(_peak(channel.oracle.variance(0.0), channel.oracle.variance(1.0)) / reports)
    if isinstance(channel, OracleChannel) and isinstance(channel.oracle, TwoStage):
        two = channel.oracle  # the variance is linear in the share of the query, which is the value's or more
        peaks = (
            _peak(two.variance(cell, 0.0, query), two.variance(cell, 1.0, 1.0))
            for size, cell in _cells(two).items()
            for query in ((0.0, 1.0) if size > 1 else (0.0,))
        )
        return math.sqrt(max(peaks, default=0.0) / reports)
    raise _unknown(channel)


def _check(reports: int) -> None:
    if reports < 2:
        raise UsageError("an error is forecast for two reports or more", fix="Give the number of clients")


def _unknown(channel: Channel) -> UsageError:
    return UsageError(f"the error of {channel.name} can't be forecast", fix="Simulate it with hushquery.estimate")


def _peak(none: float, everybody: float) -> float:
    """Give the largest variance of one report's share of a value that a fraction f of clients hold.

    A report's estimate has the mean f and a second moment linear in f, so its variance is none + slope f - f^2.

    >>> _peak(0.0, 0.0), _peak(2.0, 0.0), _peak(1.0, 4.0)
    (0.25, 2.0, 4.0)
    """
    slope = everybody - none + 1
    share = min(max(slope / 2, 0.0), 1.0)
    return none + slope * share - share**2


def _of_bucket(channel: HistogramChannel, share: float) -> float:
    """The variance of the estimate of a bucket from one client that sampled it."""
    keep = channel.flip.keep / ONE
    flipped, gap = 1 - keep, 2 * keep - 1
    ones = flipped + share * gap
    return ones * (1 - ones) / gap**2


def _who_sampled(channel: HistogramChannel, reports: int) -> float:
    """How many of so many clients are expected to have sampled a bucket."""
    return reports * channel.flip.d / channel.flip.k


def _cells(two: TwoStage) -> dict[int, int]:
    """One cell for each size of a query: those of one size are alike. The last, everything else, is not rare."""
    return dict(zip(two.sizes.tolist()[:-1], two.starts.tolist()[:-1], strict=True))
