"""RAPPOR before it runs: how common a string must be to be seen, and what that costs each client.

The defaults are those of the lecture this follows; 14 million clients show a value that about 14,000 share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

from scipy.special import ndtri

from hushquery.errors import UsageError
from hushquery.local.rappor.decode import TWO_SD, Rule
from hushquery.local.rappor.response import Params, Variant

#: The lecture's parameters: eps infinity 4 ln 3 = 4.39, eps 1 2.04.
LECTURE = Params(128, 2, 128, "1/4", "3/4", "1/2")

#: How often a string must be kept to count as seen; the lecture's 14,000 of 14 million are 13,700 at this power.
POWER = 0.85


@dataclass(frozen=True)
class RapporForecast:
    """What a collection of RAPPOR reports will show, and what it costs a client.

    A value that ``smallest_count`` clients share is kept in ``power`` of all collections; ``std_error`` is that of a
    rare value's count. A report of one metric costs ``epsilon_report``, all of one unchanged value ``epsilon_metric``,
    all metrics together ``epsilon_client``. Reports add up until number ``reports_until_permanent``, where the
    permanent response becomes the better bound.
    """

    params: Params
    variant: Variant
    clients: int
    metrics: int
    candidates: int
    rule: str
    power: float
    smallest_count: int
    smallest_share: float
    std_error: float
    epsilon_report: float
    epsilon_metric: float
    epsilon_client: float
    reports_until_permanent: int | None
    bloom_false_positive_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as plain data; what is infinite is null."""
        params = {name: getattr(self.params, name) for name in "khm"}
        params |= {name: float(getattr(self.params, name)) for name in "pqf"}
        plain = {name: value for name, value in vars(self).items() if name not in ("params", "variant")}
        finite = {name: None if value == math.inf else value for name, value in plain.items()}
        return {"params": params, "variant": self.variant.value, **finite}

    def __str__(self) -> str:
        p = self.params
        chances = f"p={float(p.p):g} q={float(p.q):g} f={float(p.f):g}"
        lines = [
            f"RAPPOR, {self.variant.value}: k={p.k} h={p.h} m={p.m} {chances}",
            f"{self.clients:,} clients show a value that {self.smallest_count:,} of them share "
            f"({self.smallest_share:.3%}), in {self.power:.0%} of all collections",
            f"  rule {self.rule}, {self.candidates:,} candidates, standard error {self.std_error:,.0f}",
            f"one report costs epsilon {self.epsilon_report:.2f}, all reports of one value {self.epsilon_metric:.2f}",
            f"{self.metrics:,} metrics cost a client up to {self.epsilon_client:,.1f} in all",
            f"another value is also in a value's Bloom filter with chance {self.bloom_false_positive_rate:.2g}",
        ]
        if self.smallest_count > self.clients:
            lines.append("nothing can be found: even a value that everybody shares is too rare")
        return "\n".join(lines)


def share_std_error(
    params: Params, clients: int, candidates: int, variant: Variant | str, *, most: bool = False
) -> float:
    """Compute the standard error of a rare candidate's share; with ``most``, the largest over all rates of bits.

    A report has h bits about a value, each of variance p*(1 - p*)/(q* - p*)^2; telling S candidates apart in m k rows
    widens that by m k/(m k - S), with S at most what the decoder fits.
    """
    chances = params.chances(variant)
    gain = float(chances.q_star - chances.p_star)
    if gain <= 0:
        raise UsageError("the permanent response is all noise", why="f is 1", fix="Give an f below 1")
    anywhere = 1 - (1 - 1 / params.k) ** params.h
    if anywhere == 1:
        raise UsageError("a Bloom filter of one bit tells no strings apart", fix="Give k of at least 2")
    rate = float(chances.p_star) + gain * anywhere  # the bits of the others are on that often
    if most:  # a bit's variance is largest where it is on half of the time
        rate = min(max(0.5, float(chances.p_star)), float(chances.q_star))
    rows = params.m * params.k
    widened = rows / (rows - min(candidates, 0.8 * rows))
    # h hashes turn on k * anywhere distinct bits, and a bit that is on anyway tells nothing.
    telling = params.k * anywhere * (1 - anywhere)
    return math.sqrt(rate * (1 - rate) * widened / (clients * telling)) / gain


def forecast(
    clients: int,
    params: Params = LECTURE,
    *,
    metrics: int = 100,
    candidates: int = 100,
    rule: Rule = "two-sd",
    power: float = POWER,
    variant: Variant | str = Variant.NATIVE,
) -> RapporForecast:
    """Forecast what a collection shows and costs; nothing is spent.

    For ``two-sd`` it is the bar that every string has to pass: where most candidates are held by nobody a string needs
    more, which depends on the others and is not forecast. A value of the smallest count is kept with chance ``power``.

    >>> lecture = forecast(14_000_000)
    >>> round(lecture.smallest_count, -3), round(lecture.epsilon_metric, 1), round(lecture.epsilon_report)
    (14000, 4.4, 2)
    """
    for name, value in (("clients", clients), ("metrics", metrics), ("candidates", candidates)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**15:
            raise UsageError(f"the number of {name} is no whole number from 1 to 10^15", fix="Give for example 1000")
    if rule not in get_args(Rule):
        raise UsageError(f"no rule is called {str(rule)!r}", fix="Give two-sd or bonferroni")
    if not 0 < power < 1:
        raise UsageError("the power lies between 0 and 1", fix="Give for example 0.8")
    kind = params.require(variant)
    error = share_std_error(params, clients, candidates, kind)
    needed = TWO_SD if rule == "two-sd" else -float(ndtri(0.05 / candidates))
    share = max(0.0, (needed + float(ndtri(power))) * error)
    one, ever = params.instant_epsilon(kind), params.permanent_epsilon(kind)
    return RapporForecast(
        params=params,
        variant=kind,
        clients=clients,
        metrics=metrics,
        candidates=candidates,
        rule=rule,
        power=power,
        smallest_count=math.ceil(share * clients),
        smallest_share=share,
        std_error=error * clients,
        epsilon_report=one,
        epsilon_metric=ever,
        epsilon_client=ever * metrics,
        reports_until_permanent=math.ceil(ever / one) if math.isfinite(ever) and one > 0 else None,
        bloom_false_positive_rate=params.bloom_false_positive_rate,
    )
