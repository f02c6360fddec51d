"""Releases of client estimates, of every kind and of several periods, from the integers that reports add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from hushquery.local.configuration import Configuration
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.response import Variant, bloom_bits
from hushquery.local.server.estimate import estimate_support
from hushquery.local.server.published import release_of
from hushquery.release import Release
from hushquery.task import Task
from statistical import bits

WEEK = 7 * 86400
FIRST = 2960  # the week that began on 2026-09-24

CLIENT = {"epsilon": 1, "lifetime_epsilon": 4}
NUMBER = {"name": "minutes a day", "population": "app users", "kind": "number", "period": "7d", "highest": 60}
RAPPOR = {"k": 64, "h": 2, "m": 8, "p": 0.1, "q": 0.9, "f": 0.25}
TASKS: dict[str, dict[str, Any]] = {
    "setting": {
        "task": {"name": "theme", "population": "app users", "kind": "setting", "period": "7d"}
        | {"domain": ["dark", "light", "system"]},
        "client": CLIENT,
    },
    "mean": {"task": NUMBER, "client": {**CLIENT, "oracle": "onebit", "step": 60}},
    "histogram": {
        "task": {**NUMBER, "name": "open tabs", "highest": 59},
        "client": {**CLIENT, "oracle": "dbitflip", "buckets": 6, "bits": 3},
    },
    "text": {
        "task": {"name": "home page", "population": "app users", "kind": "text", "period": "7d"},
        "client": {"epsilon": 16, "lifetime_epsilon": 32, "rappor": RAPPOR},
    },
    "searches": {
        "task": {"name": "guides", "population": "readers", "kind": "searches", "period": "7d"}
        | {"domain": [["opening hours", ""], ["opening hours", "https://library.example/hours"], ["loans", ""]]},
        "client": {**CLIENT, "epsilon": 2},
    },
}
#: What devices hold in a week, by kind: the share of each value, which changes with the week.
HELD: Mapping[str, Any] = {
    "setting": lambda week: {"dark": 0.4 + 0.03 * week, "light": 0.35 - 0.02 * week, "system": 0.2, "sepia": 0.05},
    "mean": lambda week: {15 + week: 0.5, 45: 0.5},
    "histogram": lambda week: {5: 0.5 - 0.02 * week, 25: 0.3 + 0.02 * week, 55: 0.2},
    "text": lambda week: {"news.example": 0.5, "weather.example": 0.3 - 0.02 * week, "rare.example": 0.2 + 0.02 * week},
    "searches": lambda week: {
        ("opening hours", "https://library.example/hours"): 0.6,
        ("loans", ""): 0.2 + 0.02 * week,
        ("nothing", ""): 0.2,
    },
}
CANDIDATES = ("news.example", "weather.example", "nobody.example")


def configuration(kind: str, **changes: Mapping[str, Any]) -> Configuration:
    """Give what clients of a kind run; `changes` are by part of the task."""
    parts = {part: {**TASKS[kind].get(part, {}), **changes.get(part, {})} for part in ("task", "client", "collect")}
    return Configuration.of(Task.make(parts))


def counted(fixed: Configuration, values: Sequence[Any], name: str) -> np.ndarray[Any, Any]:
    """Give the integers that the reports of as many devices as there are values add up to."""
    channel, coins = fixed.channel, bits(name, fixed.channel.name)
    if isinstance(channel, OneBitMean):
        return channel.support(channel.randomize_many(np.array(values), coins).astype(np.uint8))
    if isinstance(channel, DBitFlip):
        sampled = channel.sample(len(values), coins)
        own = np.array([channel.bucket(value) for value in values])
        return channel.support(np.concatenate([sampled, channel.randomize_many(own, sampled, coins)], axis=1))
    if isinstance(channel, Rappor):
        return _texts(channel, values, coins)
    cells = [fixed.space.cell(*value) if isinstance(value, tuple) else fixed.space.cell(value) for value in values]
    return fixed.oracle.support(fixed.oracle.randomize_many(np.array(cells), coins))


def _texts(channel: Rappor, values: Sequence[str], coins: Any) -> np.ndarray[Any, Any]:
    params, chances = channel.params, channel.params.chances(Variant.NATIVE)

    def fractions(size: int) -> Any:
        return (coins.words(size) >> np.uint64(11)).astype(float) / 2.0**53

    rows = np.zeros((len(values), params.k + 1), dtype=np.uint16)
    for number, value in enumerate(values):
        cohort = number % params.m
        held = np.zeros(params.k, dtype=bool)
        held[list(bloom_bits(params, Variant.NATIVE, cohort, value.encode()))] = True
        kept = held ^ (fractions(params.k) < float(chances.f) / 2)
        rows[number, 0] = cohort
        rows[number, 1:] = fractions(params.k) < np.where(kept, float(chances.q), float(chances.p))
    return channel.support(rows)


def period(kind: str, week: int, n: int = 2000, **changes: Mapping[str, Any]) -> Release:
    """Give the release of a week, the same one each time."""
    asked = (kind, week, n, repr(changes))
    if asked not in _MADE:
        _MADE[asked] = _released(kind, week, n, **changes)
    return _MADE[asked]


_MADE: dict[tuple[str, int, int, str], Release] = {}


def _released(kind: str, week: int, n: int, **changes: Mapping[str, Any]) -> Release:
    fixed = configuration(kind, **changes)
    held = HELD[kind](week)
    values = [value for value, share in held.items() for _ in range(round(share * n))]
    candidates = CANDIDATES if kind == "text" else None
    number = FIRST + week if fixed.task.task.period else 0
    support = counted(fixed, values, f"{kind} {week}")
    found = estimate_support(fixed, support, len(values), periods=(number,), candidates=candidates)
    return release_of(found, date(1970, 1, 1) + timedelta(seconds=(FIRST + week + 1) * WEEK))


def weeks(kind: str, many: int = 3, missing: Sequence[int] = (), **options: Any) -> list[Release]:
    """Give the releases of so many weeks, without those that are missing."""
    return [period(kind, week, **options) for week in range(many) if week not in missing]
