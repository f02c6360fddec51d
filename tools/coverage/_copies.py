"""Logs and tables in which thousands of keys have the same true count, and what production publishes of them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from tools.coverage import LEAST_INTERVALS

from hushquery import PrivacyWarning
from hushquery.core.budget import Budget
from hushquery.core.estimates import Estimates
from hushquery.core.loss import Loss
from hushquery.curator.plan import ReleaseSpec, ReleaseSteps, calibrate, plan_release
from hushquery.engine import execute
from hushquery.release import Release
from hushquery.statistics import plan as statistic_plan

__all__ = ["WHOLE", "calibrated", "held", "many", "names", "published", "repeated", "searches"]

#: Why an interval of a count with little noise covers more.
WHOLE = (
    "The noise is so small that its interval is one or three whole numbers: the next shorter one covers less than 94%, "
    "or is none."
)

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MINUTE = 60_000_000


def many(quick: bool, share: float = 1.0) -> int:
    """Return how many keys to make so that enough are published where ``share`` of them pass."""
    return round((400 if quick else 1.25 * LEAST_INTERVALS) / share)


def names(kind: str, number: int) -> list[str]:
    """Return so many queries that no rule of normalising or dropping touches."""
    return [f"{kind} {''.join(_LETTERS[i // 26**k % 26] for k in range(4))}" for i in range(number)]


def searches(kind: str, number: int, holders: int, per_user: int) -> pa.Table:
    """Return a log of ``number`` queries with ``holders`` users each, every user with ``per_user`` of them.

    No cap of ``per_user`` or more touches anybody, so the capped count of each query is ``holders``.
    """
    blocks = -(-number // per_user)
    queries = np.array(names(kind, blocks * per_user), dtype=object).reshape(blocks, per_user)
    block, holder, place = np.indices((blocks, holders, per_user)).reshape(3, -1)
    return pa.table(
        {
            "user": pa.array([f"{kind}{b}x{h}" for b, h in zip(block.tolist(), holder.tolist(), strict=True)]),
            "time": pa.array(place * 10 * _MINUTE, pa.int64()).cast(pa.timestamp("us")),
            "query": pa.array(queries[block, place].tolist(), pa.string()),
        }
    )


def published(log: pa.Table, **asked: Any) -> Release:
    """Publish a log with real noise, through a ledger, as `hushquery release` does."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        plan = plan_release(log, population="made-up people", **asked)
        return plan.run(Path(folder) / "ledger.db")


def calibrated(epsilon: str, delta: str, queries_per_user: int, **asked: Any) -> ReleaseSteps:
    """Return the numbers of the plan that :func:`published` will run, to place true counts by its thresholds."""
    return calibrate(ReleaseSpec(Budget(epsilon, delta), queries_per_user, **asked))


class _Once:
    """A question that is put to the engine once, however often it is asked: the answer has no noise yet."""

    def __init__(self, question: Any) -> None:
        self._question, self._expression = question, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._question, name)

    def ask(self, *about: Any) -> Any:
        if self._expression is None:
            self._expression = self._question.ask(*about)
        return self._expression


def repeated(plan: Any, times: int) -> Iterator[Estimates]:
    """Yield what a plan of a statistic gives, ``times`` times with fresh noise: one run with as many copies.

    The copies cost nothing in the ledger, which would refuse the sum of them; their noise is that of the plan.
    """
    asked = [_Once(question) for question in plan.questions]
    collected: list[Estimates] = []

    def keep(measured: list[Estimates]) -> Estimates:
        collected.extend(measured)
        return measured[0]

    free = [replace(noise, loss=Loss()) for noise in plan.noises]
    copies = replace(plan, questions=tuple(asked * times), noises=tuple(free * times), finish=keep)
    answers: dict[int, Any] = {}

    def once(expression: Any) -> Any:
        if id(expression) not in answers:
            answers[id(expression)] = execute(expression)
        return answers[id(expression)]

    with tempfile.TemporaryDirectory() as folder, patch.object(statistic_plan, "execute", once):
        copies.run(Path(folder) / "ledger.db")
    size = len(asked)
    for start in range(0, len(collected), size):
        yield plan.finish(collected[start : start + size])


def held(lows: Sequence[float], highs: Sequence[float], truth: float) -> int:
    """Count the intervals that contain the truth."""
    return int(np.sum((np.asarray(lows) <= truth) & (truth <= np.asarray(highs))))
