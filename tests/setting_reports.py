"""Reports of a setting, from devices whose coins are always the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import statistical
from hushquery.local.configuration import Configuration
from hushquery.local.randomizer import Device
from hushquery.local.report import Report
from hushquery.task import Task

SETTING = """
[task]
name = "theme"
population = "app users"
kind = "setting"
period = "1d"
domain = ["dark", "light", "system"]
[client]
epsilon = 2
lifetime_epsilon = 5
[collect]
min_batch = 100
"""
TASK = Task.loads(SETTING)
FIXED = Configuration.of(TASK)
DAY = 86400


def made(fixed: Configuration, values: Iterable[Any], *, time: int = 0, name: str = "reports") -> list[Report]:
    """Make the reports of as many devices as there are values."""
    bits = statistical.bits(name, fixed.channel.name)
    found = []
    for number, value in enumerate(values):
        secret = bits.words(4).tobytes()
        cell = fixed.space.cell(*value) if isinstance(value, tuple) else fixed.space.cell(value)
        kept = fixed.channel.answer(cell, Device(secret, fixed.task.digest, fixed.digest), bits)
        payload = fixed.channel.payload(kept, bits)
        found.append(Report(bits.words(2).tobytes(), fixed.task.digest, fixed.digest, time, payload))
        assert number >= 0
    return found


VALUES = ["dark"] * 500 + ["light"] * 250 + ["sepia"] * 250
REPORTS = made(FIXED, VALUES)


def changed(report: Report, **fields: Any) -> bytes:
    return Report(
        **{**{name: getattr(report, name) for name in ("id", "task", "configuration", "time", "payload")}, **fields}
    ).to_bytes()
