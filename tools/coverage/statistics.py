"""Coverage of the private statistics: counts, sums, averages, histograms, and what is derived from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tools.coverage import Cell
from tools.coverage._copies import WHOLE, held, many, names, repeated

from hushquery.core.estimates import Estimate, Estimates, SteepWarning, difference, ratio
from hushquery.statistics import plan_count, plan_histogram, plan_mean, plan_sum

_LAPLACE: dict[str, Any] = {"epsilon": 1, "noise": "laplace"}
_GAUSSIAN: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "noise": "gaussian"}


def measure(quick: bool) -> Iterator[Cell]:
    """Yield a cell for each statistic, with Laplace and with Gaussian noise, on few people and on many."""
    for users in (30, 3_000):
        people: dict[str, list[Any]] = {"user": list(range(users)), "x": [0.1 * (i % 40) for i in range(users)]}
        whole = {"user": people["user"], "x": [i % 4 for i in range(users)]}
        for kind, budget in (("laplace, epsilon 1", _LAPLACE), ("gaussian, epsilon 1", _GAUSSIAN)):
            setting = f"{kind}, {users:,} users"
            plan = plan_count(people, unit="user", population="made-up people", **budget)
            yield _cell("count", setting, plan, users, quick)
            plan = plan_sum(whole, "x", lower=0, upper=3, unit="user", population="made-up people", **budget)
            yield _cell("sum", f"{setting}, whole values 0 to 3", plan, sum(whole["x"]), quick)
            plan = plan_sum(people, "x", lower=0, upper=2.5, unit="user", population="made-up people", **budget)
            yield _cell("sum", f"{setting}, values 0 to 2.5", plan, float(np.minimum(people["x"], 2.5).sum()), quick)
            plan = plan_mean(people, "x", lower=0, upper=5, unit="user", population="made-up people", **budget)
            yield _cell("mean", setting, plan, float(np.mean(people["x"])), quick)
            options: dict[str, Any] = {"relation": "replace-one", "users": users, "population": "made-up people"}
            plan = plan_mean(people, "x", lower=0, upper=5, unit="user", **options, **budget)
            yield _cell("mean", f"{setting}, replace-one", plan, float(np.mean(people["x"])), quick)
    for epsilon, note in ((0.05, ""), (2, ""), (3, WHOLE)):
        plan = plan_count({"user": [1, 2]}, unit="user", population="made-up people", epsilon=epsilon)
        yield _cell("count", f"laplace, epsilon {epsilon}, 2 users", plan, 2, quick, note)
    for size, epsilon in ((12, 1), (80, 1), (12, 2)):
        for kind in ("laplace", "gaussian"):
            yield from _histogram(kind, epsilon, size, quick)


def _cell(shown: str, setting: str, plan: Any, truth: float, quick: bool, note: str = "") -> Cell:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteepWarning)
        rows = [estimates.rows[0] for estimates in repeated(plan, many(quick))]
    covered = held([row.low for row in rows], [row.high for row in rows], truth)
    return Cell(shown, setting, len(rows), covered, note=note)


def _histogram(kind: str, epsilon: float, size: int, quick: bool) -> Iterator[Cell]:
    """Yield values of a histogram that ``size`` users hold, and pairs of them with values that twice as many hold."""
    half = 200
    keys = names("value", 2 * half)
    holders = np.repeat([size, 2 * size], half)
    values = np.repeat(np.array(keys, dtype=object), holders).tolist()
    table = {"user": list(range(len(values))), "value": values}
    budget = (_LAPLACE if kind == "laplace" else _GAUSSIAN) | {"epsilon": epsilon}
    plan = plan_histogram(table, "value", keys, unit="user", population="made-up people", **budget)
    tables = list(repeated(plan, -(-many(quick) // half)))
    pairs = [pair for table in tables for pair in zip(table.rows[:half], table.rows[half:], strict=True)]
    setting = f"{kind}, epsilon {epsilon}, {size} users"
    note = WHOLE if kind == "laplace" and epsilon > 1 else ""
    covered = held([row.low for row, _ in pairs], [row.high for row, _ in pairs], size)
    yield Cell("histogram", setting, len(pairs), covered)
    derived: tuple[tuple[str, Callable[..., Estimate], float], ...] = (
        ("difference of two counts", difference, -size),
        ("ratio of two counts", ratio, 0.5),
    )
    for shown, function, truth in derived:
        lows, highs = [], []
        for a, b in pairs:
            # A table of two, so that finding a row does not take longer than the row.
            pair = Estimates((a, b), tables[0].level, noise=tables[0].noise)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SteepWarning)
                one = function(pair, a.label, b.label)
            lows.append(one.low)
            highs.append(one.high)
        yield Cell(shown, f"{setting} and {2 * size}", len(pairs), held(lows, highs, truth), note=note)
