"""Coverage of the changes between two releases, as `hushquery trends` and the site show them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tools.coverage import Cell
from tools.coverage._copies import calibrated, held, many, published, searches

from hushquery.curator.counting import law_of
from hushquery.noise.law import most_unreleased
from hushquery.publish.trends import query_trends

_DELTA = "1e-6"
_D = 10
_ANY_COUNT = (
    "A published count near its threshold may be any number down to one user, and the interval of the change has to "
    "hold for each: for those in the middle it is wide."
)


def measure(quick: bool) -> Iterator[Cell]:
    """Yield a cell for every pair of places relative to the threshold."""
    for selector in ("laplace", "gaussian", "optimal"):
        asked: dict[str, Any] = {"epsilon": "1", "delta": _DELTA, "queries_per_user": _D, "selector": selector}
        made = calibrated("1", _DELTA, _D, selector=selector).selector
        if made.counts is None:
            raise ValueError(selector)
        noise, at = math.sqrt(law_of(made.counts).variance), round(made.threshold)
        # Where the count is, in standard deviations of its noise, and how many of such queries are published at least.
        places = {"below": (-0.5, 0.2), "at": (0.0, 0.4), "just above": (1.5, 0.8), "far above": (6.0, 0.99)}
        pairs = [("far above", "far above")]
        if selector != "optimal":  # its counts get noise of their own
            pairs += [("just above", "just above"), ("far above", "at"), ("at", "just above"), ("at", "at")]
            pairs += [("far above", "below")]
        for first, last in pairs:
            number = many(quick, places[first][1] * places[last][1])
            counts = [round(at + places[where][0] * noise) for where in (first, last)]
            if first == last:
                counts[1] += 3
            releases = [published(searches("query", number, count, _D), **asked) for count in counts]
            rows = query_trends(releases, number).changes
            covered = held([row.low for row in rows], [row.high for row in rows], counts[1] - counts[0])
            setting = f"{selector}, epsilon 1: {counts[0]} to {counts[1]} users, {first} to {last} the threshold"
            note = _ANY_COUNT if last in ("below", "at") else ""
            yield Cell("change between releases", setting, len(rows), covered, note=note)
        if selector != "optimal":
            count = most_unreleased(at, law_of(made.counts)) + 1
            number = many(quick)
            release = published(searches("query", number, count, _D), **asked)
            limit = query_trends([release, release]).most_missing[0]
            if limit is None or limit >= count:
                raise ValueError(limit)
            setting = f"{selector}, epsilon 1: {count} users, one more than the limit"
            yield Cell("upper limit of a missing query", setting, number, release.tables["queries"].num_rows)
