"""Blend the opt-in users' and the clients' shares of each head record, weighted by their variances.

``best`` pools the variances; ``paper`` is Theorem 6 with each side's own estimate (Theorem 5 corrected:
docs/errata.md). Standard errors and intervals are ours in both modes (docs/proofs/blend.md). Published shares are
projected on the simplex; sum and average the raw blend instead. All of it is post-processing and costs nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np

from hushquery.core.estimates import project_on_simplex
from hushquery.errors import UsageError
from hushquery.hybrid.clients import ClientShares, Record, TwoStageShares
from hushquery.hybrid.headlist import OptInShares
from hushquery.hybrid.inference import (
    LEAST_VARIANCE,
    ROUNDS,
    Agreement,
    Overshoot,
    Pooled,
    Selected,
    Shares,
    agreement,
    clipped,
    multinomial_variance_of_sum,
    plug_in_weights,
    pool,
)
from hushquery.local.intervals import FloatArray

#: How the two sides are blended.
Mode = Literal["best", "paper"]

# Standard errors of difference between sums of both sides that chance hardly ever makes.
_EVIDENT = 3.0

#: Standard errors of difference up to which the robust blend trusts the opt-in side in full.
TOLERANCE = 2.5


@dataclass(frozen=True, eq=False, repr=False)
class QueryShares:
    """Per query, the sums over its head records; standard errors with every covariance."""

    queries: tuple[str, ...]  #: in the order of their first record
    direct: FloatArray  #: what clients say of the query itself, unknown URLs included; NaN unless in two stages
    blended: FloatArray  #: the sum of raw blended shares
    share: FloatArray  #: the sum of published shares
    stderr: FloatArray  #: the standard error of ``blended``
    low: FloatArray  #: the lower end of an interval for the true share
    high: FloatArray  #: its upper end


@dataclass(frozen=True, eq=False, repr=False)
class Blended:
    """The blend of a head list, record by record; the wildcard is everything else.

    Standard errors are roots of mean squared errors: they include selection, distance from the pooled blend, and shift.
    """

    mode: Mode
    robust: bool  #: whether weights fall toward the clients where the two sides disagree
    records: tuple[Record, ...]  #: the head list
    optin: FloatArray  #: raw opt-in shares
    optin_stderr: FloatArray
    client: FloatArray  #: raw client shares
    client_stderr: FloatArray
    weight: FloatArray  #: the opt-in side's weight
    blended: FloatArray  #: the raw blend: weight times opt-in plus the rest times client
    share: FloatArray  #: what is published: the blend after the steps named in ``marks``
    stderr: FloatArray  #: the standard error of ``blended``
    low: FloatArray  #: the lower end of an interval for the true share
    high: FloatArray  #: its upper end
    shift_z: FloatArray  #: the sides' difference in standard errors, corrected for selection; NaN where not tested
    wildcard: float  #: the published share of the wildcard: 1 minus the sum of ``share``
    wildcard_raw: float  #: before projection; in ``best``, 1 minus the sum of ``blended`` plus its expected excess
    wildcard_stderr: float  #: the standard error of ``wildcard_raw``
    wildcard_low: float  #: the lower end of an interval for the true share
    wildcard_high: float  #: its upper end
    queries: QueryShares  #: the sums per query
    agreement: Agreement  #: the test for population shift
    level: float  #: the coverage of each interval
    marks: tuple[str, ...]  #: what was done to the raw blend


def blend_probabilities(
    records: Sequence[Record],
    optin: OptInShares,
    clients: ClientShares,
    *,
    mode: Mode = "best",
    robust: bool = False,
    level: float = 0.95,
    least: float | None = None,
) -> Blended:
    """Blend both sides' shares of a head list, in its order; mode ``paper`` needs two-stage reports.

    ``level`` is the coverage of each interval; ``least`` the smallest opt-in share listed,
    as for :func:`~hushquery.hybrid.inference.agreement`.
    """
    if mode not in get_args(Mode):
        raise UsageError(f"no mode of blending is called {mode!r}", fix="Use best or paper")
    if not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Use, say, 0.95")
    named = tuple((query, url) for query, url in records)
    two_stage = clients if isinstance(clients, TwoStageShares) else None
    if mode != "best" and two_stage is None:
        raise UsageError(f"mode {mode} needs two-stage reports", fix="Blend these reports in mode best")
    if len(named) != len(clients.values) or (two_stage is not None and two_stage.cells.records != named):
        raise UsageError("these reports are not about this head list", fix="Load the head list that the clients used")

    pooled = pool(optin, clients)
    left, right, z = np.asarray(optin.values, dtype=np.float64), clients.values, pooled.z
    weight = pooled.weight
    if mode == "paper":
        weight = plug_in_weights(optin.variances, clients.variances)
    trusted = pooled.weight
    if robust:
        weight, trusted = robust_weights(weight, z), robust_weights(trusted, z)
    raw, centre = (w * left + (1 - w) * right for w in (weight, trusted))
    selected, overshoot = _selected(optin, clients, trusted, least), Overshoot(optin, least)
    bias, shift = np.zeros_like(raw) if selected is None else selected.bias(centre), np.zeros_like(raw)
    if robust:
        shift = trusted * np.sign(z) * pooled.spread * np.sqrt(np.maximum(z**2 - 1, 0))
        bias = np.where(np.abs(shift) > bias, shift, bias)
        shift = np.where(np.abs(z) > TOLERANCE, shift, 0.0)  # in a sum, what chance does to most records cancels
    sums = _Sums(optin, clients, pooled, trusted, bias)
    reach = NormalDist().inv_cdf((1 + level) / 2)

    of_head, spread_of_head = sums.everything(overshoot, shift)
    wildcard = float(1 - (of_head if mode == "best" else raw.sum()))
    # Leave out the clients' <q, *> and <*, *>: their far larger noise would push the projected records to zero.
    projected = project_on_simplex([*raw.tolist(), wildcard])
    share = np.array(projected[: len(raw)])
    least_rest, most_rest = (np.array([1 - of_head + side * reach * spread_of_head]) for side in (-1, 1))
    wildcard_low, wildcard_high = _around(least_rest, most_rest, np.array(projected[-1:]))

    # Two of a side's standard errors should cover as often as normal ones; a predicted overshoot adds its mean square.
    optin_variance = pooled.optin_variance + overshoot.of_one**2 * (1 + overshoot.relative_variance)
    tested = agreement(optin, clients, pooled, least=least)
    low, high = _interval(sums, centre, reach, level, selected, hull=robust, known=least is not None)
    low, high = _around(low, high, share)
    return Blended(
        mode=mode,
        robust=robust,
        records=named,
        optin=left,
        optin_stderr=np.sqrt(optin_variance) * _longer(reach, sums.fourth, optin_variance) / reach,
        client=right,
        client_stderr=np.sqrt(pooled.client_variance),
        weight=weight,
        blended=raw,
        share=share,
        stderr=np.sqrt(sums.variance + bias**2 + (raw - centre) ** 2),
        low=low,
        high=high,
        shift_z=tested.z,
        wildcard=projected[-1],
        wildcard_raw=wildcard,
        wildcard_stderr=math.hypot(spread_of_head, 1 - of_head - wildcard),
        wildcard_low=float(wildcard_low[0]),
        wildcard_high=float(wildcard_high[0]),
        queries=_per_query(named, sums, raw, share, two_stage, reach),
        agreement=tested,
        level=level,
        marks=("projected on sum 1",),
    )


def robust_weights(weight: FloatArray, z: FloatArray) -> FloatArray:
    """Return weight times min(1, (TOLERANCE/z)^2): the further off the opt-in side is, the less it moves the blend.

    >>> robust_weights(np.array([0.5, 0.5, 0.5]), np.array([1.0, -5.0, 10.0])).tolist()
    [0.5, 0.125, 0.03125]
    """
    fallen: FloatArray = weight * np.minimum(1.0, (TOLERANCE / np.maximum(np.abs(z), TOLERANCE)) ** 2)
    return fallen


@dataclass(frozen=True, eq=False, repr=False)
class _Sums:
    """Standard errors of sums of blended shares: the two sides are independent, records of one side are not."""

    optin: Shares
    clients: ClientShares
    pooled: Pooled
    weight: FloatArray
    bias: FloatArray

    @property
    def blended(self) -> FloatArray:
        """The blend with these weights."""
        return self.weight * self.optin.values + (1 - self.weight) * self.clients.values

    @property
    def variance(self) -> FloatArray:
        """The variance of each blended share."""
        return self.weight**2 * self.pooled.optin_variance + (1 - self.weight) ** 2 * self.pooled.client_variance

    def stderr(self, chosen: FloatArray) -> float:
        """Return the standard error of a sum of ``chosen`` (1, else 0) shares; small biases add up where noise does
        not.
        """
        moved, variance, chance = self._moved(chosen)
        beyond = moved**2 - chance if moved**2 > _EVIDENT**2 * chance else 0.0
        return math.sqrt(max(variance, LEAST_VARIANCE) + max(beyond, float(chosen @ self.bias) ** 2))

    def everything(self, overshoot: Overshoot, shift: FloatArray) -> tuple[float, float]:
        """Return the sum of all true shares and its standard error (docs/proofs/blend.md).

        Large counts were published, so blended shares add up to too much. The excess is predicted from how fast counts
        fall off and measured by the sides' difference; ``shift`` and contradictions beyond chance widen the error.
        """
        if not len(self.weight):
            return 0.0, 0.0
        moved, variance, chance = self._moved(np.ones_like(self.weight))
        predicted, doubt = float(self.weight.sum()) * overshoot.of_one, overshoot.relative_variance
        doubt *= predicted**2
        trust = doubt / max(doubt + chance, LEAST_VARIANCE)  # in what was measured
        excess = predicted + trust * (moved - predicted)
        contradiction = (moved - predicted) ** 2 - (doubt + chance)
        beyond = contradiction if contradiction > (_EVIDENT**2 - 1) * (doubt + chance) else 0.0
        variance = max(variance, LEAST_VARIANCE) + trust * chance + (1 - trust) ** 2 * beyond + float(shift.sum()) ** 2
        return float(self.blended.sum()) - excess, math.sqrt(variance)

    def _moved(self, chosen: FloatArray) -> tuple[float, float, float]:
        """Return what the opt-in side moves a sum by; the variance of the sum, and that of what it is moved by."""
        p, pull = self.pooled.p, chosen * self.weight
        left = multinomial_variance_of_sum(self.optin, pull, p)
        right, moving = (self.clients.variance_of_sum(weights, p) for weights in (chosen - pull, pull))
        return float(pull @ (self.optin.values - self.clients.values)), left + right, left + moving

    def end(self, raw: FloatArray, reach: float | FloatArray) -> FloatArray:
        """Return the share that is ``reach`` of its own standard errors away from each raw blend (a score interval)."""
        at, w = self.pooled.p, self.weight
        for _ in range(ROUNDS + 1):
            at = clipped(at)
            variance = w**2 * self.optin.variance_at(at) + (1 - w) ** 2 * self.clients.variance_at(at) + self.bias**2
            at = raw + reach * np.sqrt(np.maximum(variance, 0.0))
        return at

    @property
    def fourth(self) -> FloatArray:
        """The fourth cumulant of each opt-in share: of its few counts, and of discrete Laplace noise."""
        n, p = self.optin.n, self.pooled.p
        noise = np.maximum(self.pooled.optin_variance * n**2 - n * p * (1 - p), 0.0)
        cumulant: FloatArray = (n * p + noise * (3 * noise + 1)) / n**4
        return cumulant


def _interval(
    sums: _Sums, raw: FloatArray, reach: float, level: float, selected: Selected | None, *, hull: bool, known: bool
) -> tuple[FloatArray, FloatArray]:
    """Return each record's interval: given publication near the cut, a score interval elsewhere; both with ``hull``."""
    far = _longer(reach, sums.weight**4 * sums.fourth, sums.variance)
    low, high = sums.end(raw, -far), sums.end(raw, far)
    if selected is None:
        return low, high
    near, (least, most) = selected.near(raw), selected.interval(raw, level)
    if hull:
        least, most = np.minimum(least, low), np.maximum(most, high)
    low, high = np.where(near, least, low), np.where(near, most, high)
    if not known:
        # Of the smallest count nothing is known but that it is the smallest. The clients' side was not selected.
        last = near & (sums.optin.values == np.min(sums.optin.values))
        alone = dataclasses.replace(sums, weight=np.zeros_like(raw), bias=np.zeros_like(raw))
        least, most = (alone.end(sums.clients.values, side) for side in (-reach, reach))
        low, high = np.where(last, np.minimum(low, least), low), np.where(last, np.maximum(high, most), high)
    return low, high


def _selected(optin: Shares, clients: ClientShares, weight: FloatArray, least: float | None) -> Selected | None:
    """Return the law of what was published; where no cut is known, the smallest count is one for all others."""
    if not len(weight) or least == -np.inf:
        return None
    smallest = float(np.min(optin.values))
    return Selected(optin, clients, weight, round(optin.n * (smallest if least is None else min(least, smallest))))


def _per_query(
    records: tuple[Record, ...],
    sums: _Sums,
    raw: FloatArray,
    share: FloatArray,
    two_stage: TwoStageShares | None,
    reach: float,
) -> QueryShares:
    queries = tuple(dict.fromkeys(query for query, _ in records))
    number = {query: i for i, query in enumerate(queries)}
    of = np.array([number[query] for query, _ in records], dtype=np.int64)
    stderr = np.array([sums.stderr((of == i).astype(np.float64)) for i in range(len(queries))])

    def total(values: FloatArray) -> FloatArray:
        return np.bincount(of, values, len(queries)).astype(np.float64)

    centre = total(sums.blended)
    far = _longer(reach, total(sums.weight**4 * sums.fourth), stderr**2) * stderr
    low, high = _around(centre - far, centre + far, total(share))
    return QueryShares(
        queries=queries,
        direct=np.full(len(queries), np.nan) if two_stage is None else two_stage.query_values,
        blended=total(raw),
        share=total(share),
        stderr=np.hypot(stderr, total(raw) - centre),
        low=low,
        high=high,
    )


def _longer(reach: float, fourth: FloatArray, variance: FloatArray) -> FloatArray:
    """Lengthen a normal reach for an error of this fourth cumulant, by the kurtosis term of the Cornish-Fisher series.

    >>> _longer(1.96, np.array([0.0, 3.0]), np.ones(2)).round(3).tolist()  # no tails, and Laplace's: exactly 2.118
    [1.96, 2.166]
    """
    more: FloatArray = reach + max(reach**3 - 3 * reach, 0.0) / 24 * fourth / variance**2
    return more


def _around(low: FloatArray, high: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return an interval within 0..1, grown where it would leave the published share outside."""
    return np.minimum(np.clip(low, 0.0, 1.0), share), np.maximum(np.clip(high, 0.0, 1.0), share)
