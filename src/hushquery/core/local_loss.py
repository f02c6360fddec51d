"""The cost of one answer of a local randomizer, computed from the integers in its manifest.

Randomizers know their own epsilon; this second computation lets ``hushquery verify`` check a release without them.
Chances are integers over 2^53. For each oracle the worst report is the one whose chances under two values differ most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from hushquery.core.budget import Relation, loss_of_ratio
from hushquery.core.loss import Loss, StepParameters
from hushquery.errors import DataError

_ONE = 2**53
_MOST = 2**31  # more URLs per query than any head list has


def report_epsilon(oracle: Mapping[str, Any]) -> Fraction:
    """Return the epsilon of one permanent answer, replace-one: ln of :func:`worst_ratio`, rounded up."""
    ratio, times = _ratio_of_a_bit(oracle)
    return times * loss_of_ratio(ratio)


def worst_ratio(oracle: Mapping[str, Any]) -> Fraction:
    """Return how many times likelier any one answer is under one value than under another, exactly."""
    ratio, times = _ratio_of_a_bit(oracle)
    return ratio**times


def _ratio_of_a_bit(oracle: Mapping[str, Any]) -> tuple[Fraction, int]:
    """Return the worst ratio of one independent part of an answer, and in how many parts two values differ at most."""
    name = oracle.get("name") if isinstance(oracle, Mapping) else None
    channel = CHANNELS.get(name) if isinstance(name, str) else None
    if channel is None:
        raise DataError(
            "a local step names a randomizer this version does not know",
            fix="Upgrade hushquery to the version that wrote it",
        )
    times = 1
    try:
        if isinstance(name, str) and name in _PARTS:
            times = _PARTS[name](oracle)
        # A single value can't be distinguished from another; two-stage has its own count of them.
        alone = name not in ("two-stage", "onebit", "rappor") and _whole(oracle, "k") == 1
        ratio = Fraction(1) if alone else channel(oracle)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        ratio = Fraction(0)
    if ratio < 1:
        raise DataError(f"the integers of a {name} randomizer make no sense", fix="Get the release again")
    return ratio, times


def _whole(oracle: Mapping[str, Any], name: str, most: int = _ONE) -> int:
    value = oracle[name]
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(name)
    return value


def _response(cells: int, lie: int) -> Fraction:
    """The own cell against another: truth/lie, where the lies to all others leave the truth."""
    return Fraction(_ONE - (cells - 1) * lie, lie)


def _krr(oracle: Mapping[str, Any]) -> Fraction:
    return _response(_whole(oracle, "k"), _whole(oracle, "lie"))


def _olh(oracle: Mapping[str, Any]) -> Fraction:
    """The seed does not depend on the value; the hashed cell is answered by randomised response over g."""
    return _response(_whole(oracle, "g"), _whole(oracle, "lie"))


def _bit(oracle: Mapping[str, Any]) -> Fraction:
    """OUE: two bits differ, p(1-q)/((1-p)q) with p = 1/2. Hadamard: one bit, kept with 1 - q."""
    return _response(2, _whole(oracle, "lie"))


def _subset(oracle: Mapping[str, Any]) -> Fraction:
    """A set with the own cell, p/C(k-1, w-1), against the same set without it, (1-p)/C(k-1, w)."""
    cells, size, truth = (_whole(oracle, name) for name in ("k", "omega", "truth"))
    return Fraction(truth * (cells - size), (_ONE - truth) * size)


def _two_stage(oracle: Mapping[str, Any]) -> Fraction:
    """Compare a true record with one that another query sends, or another URL of the same query."""
    # That is the worst case only while no stage's truth is rarer than a lie; anything else is refused.
    urls, lies = oracle["urls"], dict(oracle["url_lies"])
    if not all(type(count) is int and 0 <= count < _MOST for count in urls) or len(lies) != len(oracle["url_lies"]):
        raise ValueError("urls")
    if oracle["k"] != sum(urls) + len(urls) + 1:
        raise ValueError("k")
    if not urls:  # nothing but the wildcard
        return Fraction(1)
    query_lie = _whole(oracle, "query_lie")
    query_truth = _ONE - len(urls) * query_lie  # the wildcard is one more query
    if query_truth < query_lie:
        raise ValueError("query_lie")
    worst = Fraction(0)
    for size in {1, *(count + 1 for count in urls)}:  # each query has a wildcard URL; the wildcard has nothing else
        lie = lies[size] if size > 1 else 0
        truth = _ONE - (size - 1) * lie
        if type(lie) is not int or lie < 0 or truth < lie:
            raise ValueError("url_lies")
        worst = max(worst, Fraction(query_truth * truth * size, query_lie * _ONE))
        if size > 1:
            worst = max(worst, Fraction(truth, lie))
    return worst


def _onebit(oracle: Mapping[str, Any]) -> Fraction:
    """The chance of a 1 grows linearly from ``low`` to that of the largest value; the worse of a 1 and a 0 counts."""
    most, low, unit = (_whole(oracle, name) for name in ("most", "low", "unit"))
    high = low + unit * most
    if high >= _ONE:
        raise ValueError("unit")
    return max(Fraction(high, low), Fraction(_ONE - low, _ONE - high))


def _kept_bit(oracle: Mapping[str, Any]) -> Fraction:
    """dBitFlip: a bit is true with chance ``keep``."""
    keep = _whole(oracle, "keep", _ONE - 1)
    return Fraction(keep, _ONE - keep)


def _differing_buckets(oracle: Mapping[str, Any]) -> int:
    """Two values differ in both their buckets, where two bits are answered; one bit can be only one of them."""
    if not _whole(oracle, "d") <= _whole(oracle, "k"):
        raise ValueError("d")
    return 1 if oracle["d"] == 1 else 2


def _flipped_bit(oracle: Mapping[str, Any]) -> Fraction:
    """RAPPOR's permanent response: a bit is false with chance ``flip``, f/2."""
    if oracle["variant"] != "native":
        raise ValueError("variant")
    return _response(2, _whole(oracle, "flip"))


CHANNELS: Mapping[str, Callable[[Mapping[str, Any]], Fraction]] = {
    "krr": _krr,
    "subset": _subset,
    "oue": _bit,
    "olh": _olh,
    "hadamard": _bit,
    "two-stage": _two_stage,
    "onebit": _onebit,
    "dbitflip": _kept_bit,
    "rappor": _flipped_bit,
}

# The filters of two texts differ in at most 2h bits.
_PARTS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "dbitflip": _differing_buckets,
    "rappor": lambda oracle: 2 * _whole(oracle, "h"),
}


@dataclass(frozen=True)
class LocalChannel(StepParameters):
    """Reports of one client, each randomised on the device by the same randomizer.

    **Guarantee:** (reports * epsilon, 0) for one client, replace-one, with e^epsilon the largest ratio of the chances
    of any one report under two values (:mod:`hushquery.core.local_loss`). A device that stops at a ``lifetime`` budget
    loses no more than that, given the times at which its value changed.
    """

    kind: ClassVar[str] = "local-channel"

    oracle: Mapping[str, Any]  # what ``describe()`` of the randomizer says: its name, domain and integers
    reports: int = 1  # the number of reports of one client
    relation: Relation = Relation.REPLACE_ONE  # a local randomizer knows no other
    lifetime: Fraction | None = None  # the budget that ends a device's reports, where they are of several periods

    @property
    def loss(self) -> Loss:
        """Pure epsilon, once per report, or the lifetime budget where that is less."""
        if type(self.reports) is not int or self.reports < 1 or self.relation is not Relation.REPLACE_ONE:
            raise DataError("a local step has at least one report, under replace-one", fix="Get the release again")
        one = report_epsilon(self.oracle)
        if self.lifetime is None:
            return Loss(pure=(one,) * self.reports)
        return Loss(pure=(min(self.reports * one, self.lifetime),))

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain data; a budget that ends nothing is not named."""
        return {name: value for name, value in super().to_json().items() if name != "lifetime" or value is not None}
