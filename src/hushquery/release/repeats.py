"""Bound how much the difference between two periods' estimates varies, where devices repeat the answers they keep.

A repeated answer has the same noise in both periods, which cancels. The server can't link reports, so how many repeat
is declared, never measured. docs/proofs/series.md derives every formula here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hushquery.errors import DataError

_ONE = 2**53
# So many reports are taken not to repeat, whatever is declared: the law of fewer is not close to normal.
_LEAST_FRESH = 10


@dataclass(frozen=True)
class Spread:
    """How much one report's share in an estimate varies, given the value of its device; ``unit`` is what a 1 counts.

    ``held`` is the variance for a device that holds the cell, ``other`` the largest and ``least`` the smallest for any.
    """

    held: float
    other: float
    least: float
    unit: float = 1.0

    @property
    def most(self) -> float:
        """The largest variance of a report whose device holds the cell with any chance f: none + slope f - f^2."""
        slope = self.held - self.other + 1
        share = min(max(slope / 2, 0.0), 1.0)
        return self.unit**2 * (self.other + slope * share - share**2)

    @property
    def fresh(self) -> float:
        """The most that a report which does not repeat adds: its device moved, or another device replaced it."""
        moved = max(self.held + self.other + 1, 2 * self.other)
        return max(self.unit**2 * moved, 2 * self.most)

    def difference(self, reports: tuple[int, int], variances: tuple[float, float], repeated: float) -> float:
        """Bound the variance of the difference of two estimates, each from so many reports and with this variance.

        ``repeated`` is the least share of the smaller period's reports that repeat answers of the other.
        """
        few, many = min(reports), max(reports)
        if few < 1:
            return sum(variances)
        uneven, share = 1 - few / many, min(repeated, 1 - _LEAST_FRESH / few)
        if share <= 0:
            return sum(variances)
        of_few = variances[reports.index(few)]
        kept = of_few * uneven + ((1 - share) * self.fresh + uneven * (self.most - self.unit**2 * self.least)) / many
        return min(sum(variances), kept)


def spread_of(oracle: Mapping[str, Any], cell: int) -> Spread | None:
    """Return the spread of a cell from the integers of a mechanism; None for one that draws anew for each report."""
    try:
        if oracle["name"] == "two-stage":
            return _two_stage(oracle, cell)
        chances = _chances(oracle)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise DataError("the integers of a release's mechanism make no sense", fix="Download it again") from None
    if chances is None:
        return None
    p, q = chances
    held, other = p * (1 - p) / (p - q) ** 2, q * (1 - q) / (p - q) ** 2
    return Spread(held, other, min(held, other), float(oracle["most"]) if oracle["name"] == "onebit" else 1.0)


def _chances(oracle: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the chances that a report supports the cell of its device, and any other given cell."""
    name = oracle["name"]
    if name == "krr":
        return 1 - (oracle["k"] - 1) * oracle["lie"] / _ONE, oracle["lie"] / _ONE
    if name == "oue":
        return 0.5, oracle["lie"] / _ONE
    if name == "hadamard":
        return 1 - oracle["lie"] / _ONE, 0.5
    if name == "olh":
        g, prime, lie = oracle["g"], oracle["prime"], oracle["lie"] / _ONE
        truth = 1 - (g - 1) * lie
        full, wide = divmod(prime, g)
        same = (wide * (full + 1) ** 2 + (g - wide) * full**2) / prime**2
        return truth, same * truth + (1 - same) * lie
    if name == "subset":
        truth, size = oracle["truth"] / _ONE, oracle["omega"]
        return truth, (truth * (size - 1) + (1 - truth) * size) / (oracle["k"] - 1)
    if name == "dbitflip":
        return oracle["keep"] / _ONE, 1 - oracle["keep"] / _ONE
    if name == "onebit":
        return (oracle["low"] + oracle["unit"] * oracle["most"]) / _ONE, oracle["low"] / _ONE
    return None


def _two_stage(oracle: Mapping[str, Any], cell: int) -> Spread:
    """Return the spread for a record: a report names it, another URL of its query, or another query."""
    sizes = [*(count + 1 for count in oracle["urls"]), 1]
    size = next(size for size, end in zip(sizes, _ends(sizes), strict=True) if cell < end)
    base, lie = oracle["query_lie"] / _ONE, dict(oracle["url_lies"]).get(size, 0) / _ONE
    kept, truth = 1 - (len(sizes) - 1) * base, 1 - (size - 1) * lie
    gap, outside, inside = kept - base, base / size, kept * lie
    away = (outside - inside) / gap
    # What a report counts that names the record, another URL of its query, or another query, up to a constant.
    counts = (1 + away, away, 0.0)

    def variance(here: float, query: float) -> float:
        laws = list(zip((here, query - here, 1 - query), counts, strict=True))
        mean = sum(chance * count for chance, count in laws)
        spread: float = sum(chance * (count - mean) ** 2 for chance, count in laws) / (kept * (truth - lie)) ** 2
        return spread

    held, others = variance(kept * truth, kept), [variance(outside, base)]
    if size > 1:
        others.append(variance(inside, kept))
    return Spread(held, max(others), min(held, *others))


def _ends(sizes: list[int]) -> list[int]:
    ends, end = [], 0
    for size in sizes:
        end += size
        ends.append(end)
    return ends
