"""Compute intervals of published numbers at any level, from the manifest's noise and threshold, or by scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hushquery.core.estimates import Ends, difference_ends
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, step_from
from hushquery.errors import HushqueryError
from hushquery.noise.law import LEVEL, DiscreteLaplace, RoundedGaussian, given_release, most_unreleased, on_public_keys
from hushquery.release.manifest import SHARE_SCALE

# What a count that passed a threshold has at least: somebody holds the key.
_LEAST = 1
_NO_CHANCE = 1e-9

_Law = DiscreteLaplace | RoundedGaussian
_Column = npt.NDArray[np.float64]
# The law of the noise in a table, the threshold that it met, and the least count there can be.
_Noise = tuple[_Law | None, int | None, int]
_NO_LAW: _Noise = None, None, _LEAST


@dataclass(frozen=True)
class Published:
    """A table's numbers with intervals as released, their noise ``law`` if known, and the threshold it met, if any.

    ``threshold`` is in users; ``least`` is the smallest true count that is ever published.
    """

    measure: Literal["count", "share"]
    value: _Column
    stderr: _Column
    low: _Column
    high: _Column
    level: float = LEVEL
    law: _Law | None = None
    threshold: int | None = None
    least: int = _LEAST

    @property
    def weight(self) -> _Column:
        """What ranks and walks weigh a row by: a count, or a share as a count; never below zero."""
        return np.maximum(self.value, 0.0) * (SHARE_SCALE if self.measure == "share" else 1.0)

    def row(self, index: int) -> tuple[int | None, float, float]:
        """Return the count of a row (None for a share) and its interval, as released."""
        count = int(self.value[index]) if self.measure == "count" else None
        return count, float(self.low[index]), float(self.high[index])

    def share(self, index: int) -> float | None:
        """Return the share of a row; None where counts were released."""
        return float(self.value[index]) if self.measure == "share" else None

    def ends(self, level: float) -> list[Ends]:
        """Return the interval of each number at a level, with a centre that is as likely too high as too low."""
        bounded = np.zeros(len(self.value), dtype=np.bool_)
        centre, low, high, widen = self.value, self.low, self.high, 1.0
        if self.law is None:
            centre = np.clip(centre, low, high)
            widen = half_widths(level) / half_widths(self.level)
        else:
            noisy, widen = self.value.astype(np.int64), _stretch(self.law, level)
            if self.threshold is None:
                ends = on_public_keys(noisy, self.law, level)
            else:
                ends = given_release(noisy, self.threshold, self.law, level, least=self.least)
                # Half a chance to either side: the middle of an interval that covers with no chance at all.
                below, above = given_release(noisy, self.threshold, self.law, _NO_CHANCE, least=self.least)
                centre, bounded = (below + above) / 2, ends[0] <= self.least
            low, high = (end.astype(np.float64) for end in ends)
        low, high = centre - widen * (centre - low), centre + widen * (high - centre)
        low = np.where(bounded, self.least, low)
        columns = (column.tolist() for column in (low, centre, high, bounded))
        return [Ends(*row) for row in zip(*columns, strict=True)]

    def most_missing(self, level: float) -> int | None:
        """Return how many a key without a row had at most; with more, its chance to be missing is below 1 - level."""
        if self.law is None or self.threshold is None:
            return None
        return max(self.least - 1, most_unreleased(self.threshold, self.law, level))


def published(table: pa.Table, name: str = "", manifest: Mapping[str, Any] | None = None) -> Published:
    """Read the counts or shares of a table; with its name and the manifest, also what noise is in them."""
    measure: Literal["count", "share"] = "share" if "share" in table.column_names else "count"
    columns = (measure, "stderr", "low", "high")
    value, stderr, low, high = (np.asarray(table[column].to_numpy(), dtype=np.float64) for column in columns)
    manifest, noise = manifest or {}, _NO_LAW
    if measure == "count" and name:
        noise = _noise_of(float(stderr[0]) if len(stderr) else None, name, manifest)
    return Published(measure, value, stderr, low, high, float(manifest.get("interval_level", LEVEL)), *noise)


def _noise_of(stderr: float | None, name: str, manifest: Mapping[str, Any]) -> _Noise:
    """Find the step whose noise is in a table: one that names the table, else one with that standard error."""
    for ran in manifest.get("steps", ()):
        parameters = ran["parameters"]
        try:
            step = step_from(parameters)
        except (HushqueryError, ValueError, TypeError, ArithmeticError):
            continue  # of a version to come, or written by hand
        if not isinstance(step, LaplaceHistogram | GaussianHistogram):
            continue
        law = DiscreteLaplace(step.scale) if isinstance(step, LaplaceHistogram) else RoundedGaussian(step.sigma)
        named = parameters.get("table") == name
        fits = named if stderr is None else math.isclose(math.sqrt(law.variance), stderr, rel_tol=1e-9)
        if fits and (named or step.threshold is None):
            return law, None if step.threshold is None else step.threshold + step.min_users - 1, step.min_users
    return _NO_LAW


def change_ends(before: Ends, after: Ends, *, whole: bool) -> tuple[float, float]:
    """Return the interval of a change, from those of both releases; a change of whole numbers has whole ends."""
    low, high = difference_ends(after, before)
    return (math.floor(low), math.ceil(high)) if whole else (low, high)


def independent_change(before: Mapping[str, Any], after: Mapping[str, Any], by: float = 1.0) -> tuple[float, float]:
    """Return the interval of the change between two rows of estimates, its distances from the change times ``by``."""
    ends = (Ends(row["low"], row["estimate"], row["high"]) for row in (after, before))
    change = after["estimate"] - before["estimate"]
    low, high = difference_ends(*ends)
    return change - by * (change - low), change + by * (high - change)


def half_widths(level: float) -> float:
    """Return how many standard errors an interval reaches to either side, for Gaussian and for Laplace noise.

    >>> round(half_widths(0.95), 3), round(half_widths(0.5), 3)
    (2.118, 0.674)
    """
    miss = 1 - level
    return max(-NormalDist().inv_cdf(miss / 2), -math.log(miss) / math.sqrt(2))


def _stretch(law: _Law, level: float) -> float:
    """Return how much to widen an interval so that root-sum-of-squares holds for two; Laplace noise needs it."""
    if isinstance(law, RoundedGaussian):
        return 1.0
    return half_widths(level) * math.sqrt(2) / -math.log(1 - level)
