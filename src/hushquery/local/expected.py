"""How large the error of an estimate will be, before anybody has reported: from the mechanism and a number of reports.

Of shares it is the standard error of a value that hardly anybody holds, which is the one that decides what can be told
from nothing; more common values have a little more. Of an average it is the most it can be.
"""

from __future__ import annotations

import math

from hushquery.errors import UsageError
from hushquery.local.chance import ONE
from hushquery.local.channel import Channel, OracleChannel
from hushquery.local.number_channels import HistogramChannel, MeanChannel
from hushquery.local.oracle import Oracle
from hushquery.local.rappor import Variant
from hushquery.local.rappor_channel import RapporChannel
from hushquery.local.rappor_plan import share_std_error
from hushquery.local.two_stage import TwoStage

__all__ = ["expected_error"]

# Texts that will be looked for; RAPPOR's error depends on how many, a little.
_CANDIDATES = 100


def expected_error(channel: Channel, reports: int) -> float:
    """Give the standard error to expect: of the share of a rare value, or at most of an average.

    Args:
        channel: The mechanism.
        reports: How many reports there will be, each of another client.

    >>> from hushquery.local.krr import KRR
    >>> round(expected_error(OracleChannel(KRR.calibrate(4, 1), True), 10_000), 4)
    0.0126
    """
    if reports < 2:
        raise UsageError("an error is forecast for two reports or more", fix="Give the number of clients")
    if isinstance(channel, MeanChannel):
        return ONE / channel.memo.mean.unit / 2 / math.sqrt(reports)
    if isinstance(channel, HistogramChannel):
        keep = channel.flip.keep / ONE
        return math.sqrt(channel.flip.k / (reports * channel.flip.d) * keep * (1 - keep)) / (2 * keep - 1)
    if isinstance(channel, RapporChannel):
        return share_std_error(channel.params, reports, _CANDIDATES, Variant.NATIVE)
    if isinstance(channel, OracleChannel) and isinstance(channel.oracle, Oracle):
        return math.sqrt(channel.oracle.variance() / reports)
    if isinstance(channel, OracleChannel) and isinstance(channel.oracle, TwoStage):
        two = channel.oracle  # its last cell, everything else, is not rare
        return math.sqrt(max(two.variance(cell) for cell in range(two.k - 1)) / reports)
    raise UsageError(f"the error of {channel.name} can't be forecast", fix="Simulate it with hushquery.estimate")
