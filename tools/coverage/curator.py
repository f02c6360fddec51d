"""Coverage of the curator's intervals: counts of queries, clicks and reformulations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from tools.coverage import Cell
from tools.coverage._copies import WHOLE, calibrated, held, many, names, published, searches

from hushquery.curator.counting import law_of
from hushquery.release import Release

_DELTA = "1e-6"
_D = 10
#: A true count that many standard deviations above its threshold is not touched by it.
_FAR = 6
_LOWEST = (
    "A count at its threshold is published with the lowest value there is in more than 2.5% of cases, so no value is "
    "surprisingly low and only the lower end of the interval can miss."
)


def measure(quick: bool) -> Iterator[Cell]:
    """Yield a cell for every way to publish a count."""
    for selector in ("laplace", "gaussian", "korolova2009", "optimal", "weighted", "guided"):
        yield from _queries(selector, "1", quick)
    yield from _queries("laplace", "8", quick, per_user=1)
    yield from _queries("gaussian", "8", quick, per_user=1)
    for selector in ("laplace", "gaussian"):
        yield from _clicks(selector, quick)
        yield from _reformulations(selector, quick)


def cell(shown: str, setting: str, release: Release, table: str, truth: int, note: str = "") -> Cell:
    """Count the rows of a table whose interval contains the truth."""
    rows = release.tables[table]
    covered = held(rows["low"].to_numpy(), rows["high"].to_numpy(), truth)
    return Cell(shown, setting, rows.num_rows, covered, note=note)


def _queries(selector: str, epsilon: str, quick: bool, per_user: int = _D) -> Iterator[Cell]:
    made = calibrated(epsilon, _DELTA, per_user, selector=selector).selector
    # Weighted and guided: each of a user's queries weighs 1 over the root of their number.
    users = made.threshold * (math.sqrt(per_user) if selector in ("weighted", "guided") else 1)
    noise = math.sqrt(law_of(made.counts).variance) if made.counts else 0.0
    for where, count, share in (("at the threshold", round(users), 0.4), ("far above", round(users + _FAR * noise), 1)):
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": _DELTA, "queries_per_user": per_user}
        release = published(searches("query", many(quick, share), count, per_user), selector=selector, **asked)
        note = WHOLE if noise < 0.5 else _LOWEST if where == "at the threshold" else ""
        setting = f"{selector}, epsilon {epsilon}, d {per_user}: {count} users, {where}"
        yield cell("released query counts", setting, release, "queries", count, note)


def _clicks(selector: str, quick: bool) -> Iterator[Cell]:
    """Every query is far above its threshold; of its users the first some clicked."""
    asked: dict[str, Any] = {"epsilon": "2", "delta": _DELTA, "queries_per_user": _D, "clicks_per_user": _D}
    for public in (False, True):
        made = calibrated("2", _DELTA, _D, clicks_per_user=_D, selector=selector, has_public_pairs=public)
        if made.clicks is None:
            raise ValueError(selector)
        step = made.clicks.step
        noise = math.sqrt(law_of(step).variance)
        users = round(made.selector.threshold + _FAR * math.sqrt(law_of(made.selector.counts).variance))  # type: ignore[arg-type]
        at = step.threshold or 20
        for where, count, share in (("at the threshold", at, 0.4), ("far above", round(at + _FAR * noise), 1.0)):
            if public and where == "far above":
                continue
            log = searches("query", many(quick, 1 if public else share), max(users, count), _D)
            holder = np.array([int(user.rsplit("x", 1)[1]) for user in log["user"].to_pylist()])
            queries = log["query"].to_pylist()
            clicked = zip(queries, (holder < count).tolist(), strict=True)
            urls = [f"https://{query.replace(' ', '-')}.example/" if yes else None for query, yes in clicked]
            log = log.append_column("url", pa.array(urls, pa.string()))
            listed = pa.table({"query": queries, "url": urls}).drop_null().group_by(["query", "url"]).aggregate([])
            release = published(log, selector=selector, public_pairs=listed if public else None, **asked)
            setting = f"{selector}, epsilon 2, d 10: {count} users" + (", public list" if public else f", {where}")
            note = _LOWEST if where == "at the threshold" and not public else ""
            yield cell("clicks", setting, release, "clicks", count, note)


def _reformulations(selector: str, quick: bool) -> Iterator[Cell]:
    """Some queries, and users who go from one to another: one pair each."""
    asked: dict[str, Any] = {"epsilon": "2", "delta": _DELTA, "queries_per_user": 2, "reformulations_per_user": 1}
    made = calibrated("2", _DELTA, 2, reformulations_per_user=1, selector=selector).reformulations
    if made is None:
        raise ValueError(selector)
    noise = math.sqrt(law_of(made.step).variance)
    for where, share in (("at the threshold", 0.4), ("far above", 1.0)):
        size = math.ceil(math.sqrt(many(quick, share))) + 1
        queries = names("query", size)
        count = round(made.publish_from(size) + (_FAR * noise if where == "far above" else 0))
        first, second, user = np.indices((size, size, count)).reshape(3, -1)
        kept = first != second
        first, second, user = first[kept], second[kept], user[kept]
        who = [f"u{a}x{b}x{c}" for a, b, c in zip(first.tolist(), second.tolist(), user.tolist(), strict=True)]
        log = pa.table(
            {
                "user": pa.array(who * 2),
                "time": pa.array([0] * len(who) + [60_000_000] * len(who), pa.int64()).cast(pa.timestamp("us")),
                "query": pa.array(np.array(queries, dtype=object)[np.concatenate([first, second])].tolist()),
            }
        )
        release = published(log, selector=selector, **asked)
        setting = f"{selector}, epsilon 2, one per user: {count} users, {where}"
        note = _LOWEST if where == "at the threshold" else ""
        yield cell("reformulations", setting, release, "reformulations", count, note)
