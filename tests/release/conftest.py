"""A small release with every table, made to order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from hushquery.core.budget import Unit
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram
from hushquery.release import Release

STEPS = {
    "queries": GaussianHistogram(20, Fraction(13), 80),
    "clicks": GaussianHistogram(5, Fraction(9), 60),
    "reformulations": LaplaceHistogram(10, Fraction(40)),
}


# Steps whose cost is quick to compute.
QUICK = {name: LaplaceHistogram(d, Fraction(40), 900) for name, d in (("queries", 20), ("clicks", 5))}
QUICK["reformulations"] = STEPS["reformulations"]


@cache
def promised(tables, quick):
    ran = QUICK if quick else STEPS
    steps = [Step("histogram", f"{name} with noise", ran[name].loss) for name in tables]
    return Guarantee.of("nobody", "curator", Unit("user", "add-remove"), steps, delta=1e-5)


def numbers(counts):
    return {
        "count": pa.array(counts, pa.int64()),
        "stderr": pa.array([13.0] * len(counts), pa.float64()),
        "low": pa.array([count - 25.5 for count in counts], pa.float64()),
        "high": pa.array([count + 25.5 for count in counts], pa.float64()),
    }


def queries(keys=("news", "weather leeds"), counts=None):
    counts = list(counts) if counts is not None else [100 + i for i in range(len(keys))]
    return pa.table({"query": pa.array(list(keys), pa.string()), **numbers(counts)})


def pairs(second, rows):
    keys = {"query": [row[0] for row in rows], second: [row[1] for row in rows]}
    return pa.table({**{k: pa.array(v, pa.string()) for k, v in keys.items()}, **numbers([row[2] for row in rows])})


def all_tables():
    return {
        "queries": queries(),
        "clicks": pairs("url", [("news", "https://news.example.com/", 90), ("news", "https://example.org/", 75)]),
        "reformulations": pairs("next_query", [("news", "weather leeds", 44), ("weather leeds", "news", -3)]),
    }


@dataclass
class Recipe:
    """Everything `Release.make` wants, to be changed by a test."""

    tables: dict[str, pa.Table] = field(default_factory=all_tables)
    population: str = "readers of example.org"
    parameters: dict[str, Any] = field(default_factory=lambda: {"epsilon": Fraction(23, 10), "selector": "gaussian"})
    notes: tuple[str, ...] = ("numbers were dropped before counting",)
    test_noise: bool = False
    quick: bool = False

    def make(self, **changes):
        ran = {name: step for name, step in (QUICK if self.quick else STEPS).items() if name in self.tables}
        promise = replace(promised(tuple(ran), self.quick), population=self.population, test_noise=self.test_noise)
        given = {
            "kind": "curator",
            "parameters": self.parameters,
            "steps": [{"parameters": {**step.to_json(), "table": name}} for name, step in ran.items()],
            "meanings": {name: f"users, counted in at most a few {name}" for name in self.tables},
            "notes": self.notes,
            "created": date(2026, 11, 15),
        }
        return Release.make(self.tables, [promise], **{**given, **changes})


@pytest.fixture(scope="session")
def recipe():
    """A function that gives a new recipe, changed as asked."""
    return Recipe


@pytest.fixture(scope="session")
def table_of():
    """Functions that build tables."""
    return {"queries": queries, "pairs": pairs}
