"""A release of estimates whose every part can be changed, and written anew with every hash, card and page."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from hushquery.core.local_loss import LocalChannel
from hushquery.local.configuration import Configuration
from hushquery.local.server.estimate import ClientEstimate, estimate
from hushquery.release import Release
from hushquery.release.manifest import guarantee_from_json, measures_of
from hushquery.task import Task
from setting_reports import made

TEXT = Task.loads("""
task = {name = "home page", population = "app users", kind = "text"}
client = {epsilon = 20, lifetime_epsilon = 40, rappor = {k = 16, h = 2, m = 4, p = 0.25, q = 0.75, f = 0.5}}
collect = {min_batch = 100}
""")
MEAN = Task.loads("""
task = {name = "minutes", population = "app users", kind = "number", highest = 60}
client = {epsilon = 2, lifetime_epsilon = 8}
collect = {min_batch = 100}
""")
HISTOGRAM = Task.loads("""
task = {name = "minutes", population = "app users", kind = "number", highest = 60}
client = {epsilon = 2, lifetime_epsilon = 8, oracle = "dbitflip", buckets = 6, bits = 2}
collect = {min_batch = 100}
""")


class Forged:
    """A release whose parts can be changed."""

    def __init__(self, release: Release) -> None:
        self.tables = dict(release.tables)
        self.manifest: dict[str, Any] = copy.deepcopy(dict(release.manifest))
        self.parameters: dict[str, Any] = self.manifest["parameters"]

    @property
    def promise(self) -> dict[str, Any]:
        promise: dict[str, Any] = self.manifest["guarantees"][0]
        return promise

    @property
    def step(self) -> dict[str, Any]:
        step: dict[str, Any] = self.manifest["steps"][0]
        return step

    def column(self, table: str, name: str, change: Callable[[list[Any]], Any]) -> None:
        values = self.tables[table][name].to_pylist()
        at = self.tables[table].column_names.index(name)
        new = pa.array(change(values) or values, self.tables[table].schema.field(name).type)
        self.tables[table] = self.tables[table].set_column(at, self.tables[table].schema.field(name), new)

    def rows(self, table: str, places: list[int]) -> None:
        self.tables[table] = self.tables[table].take(places)

    def text(self, name: str, change: Callable[[Any], object], *, hashed: bool = True) -> None:
        """Change one of the two texts, and the hash of it."""
        data = json.loads(self.parameters[f"{name}_text"])
        change(data)
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        self.parameters[f"{name}_text"] = text
        if hashed:
            self.parameters[name] = hashlib.sha256(text.encode()).hexdigest()

    def costs(self, oracle: dict[str, Any], reports: int = 1) -> None:
        """State another mechanism everywhere, with the cost that it has."""
        ran = LocalChannel(oracle, reports)
        self.step["parameters"] = ran.to_json()
        for step in (self.step, self.promise["steps"][0]):
            step["loss"] = ran.loss.to_json()
        self.promise["epsilon"] = ran.loss.epsilon(0)
        self.parameters["answer_epsilon"] = str(sum(ran.loss.pure) / reports)

    def save(self, folder: Path) -> Path:
        self.manifest["measures"] = measures_of(self.tables)
        guarantees = tuple(guarantee_from_json(one) for one in self.manifest["guarantees"])
        return Release(self.tables, guarantees, self.manifest).save(folder)


def put(values: list[Any], place: int, value: Any) -> list[Any]:
    return [value if at == place else old for at, old in enumerate(values)]


def swapped(values: list[Any], one: int = 0, other: int = 1) -> list[Any]:
    return put(put(values, one, values[other]), other, values[one])


def loss(pure: str) -> dict[str, Any]:
    return {"mu_squared": "0", "pure": [pure], "threshold_delta": "0", "sparse": []}


def of(task: Task, values: list[Any], **how: Any) -> ClientEstimate:
    return estimate(task, made(Configuration.of(task), values), **how)
