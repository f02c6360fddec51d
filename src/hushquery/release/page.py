"""The page of a release: what came out, what it promises, and how it was made, in one file that loads nothing.

There is no network, no script but that of the search box (of releases of shares), and a policy that forbids everything
else. Queries are written by strangers: each is escaped, runs in its own direction, and no URL becomes a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.core.budget import UNUSUAL_DELTA, UNUSUAL_EPSILON, exact, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee, factor
from hushquery.core.loss import Loss
from hushquery.errors import UsageError
from hushquery.release.page import (
    Axis,
    compared,
    false_pairs,
    limits,
    nothing_promised,
    populations,
    search_box,
    setting,
    settings,
    two_promises,
    weakness,
)
from hushquery.release.tables import KINDS, REST, measure_of, release_measure
from hushquery.templates import render

__all__ = ["in_numbers", "page", "promise", "summary"]

_TOP = 25
_CLICKED_QUERIES = 8
_PAGES_EACH = 5
_FIRST_ROWS = 10


def page(
    tables: Mapping[str, pa.Table],
    guarantees: Sequence[Guarantee],
    manifest: Mapping[str, Any],
    *,
    budget: Mapping[str, Any] | None = None,
) -> str:
    """Write the page."""
    weak, void = any(map(weakness, guarantees)), nothing_promised(guarantees)
    level, parameters = float(manifest["interval_level"]), manifest["parameters"]
    return render(
        "report.html",
        people=populations(guarantees),
        what="Not a private release" if void else "A release with a weak promise" if weak else "A private release",
        private=not (void or weak),
        manifest=manifest,
        nothing_promised=void,
        two_promises=two_promises(guarantees),
        promises=[promise(guarantee, manifest) for guarantee in guarantees],
        tables=tables,
        shares=release_measure(tables) == "share",
        rest=parameters.get(REST),
        level=f"{100 * level:g}",
        search=search_box(tables),
        queries=_drawn(tables, "queries"),
        clicks=_clicks(tables),
        reformulations=_drawn(tables, "reformulations"),
        false_pairs=false_pairs(manifest),
        groups=compared(tables) if "records" in tables else None,
        limits=limits(tables, level, guarantees),
        budget=None if budget is None else _budget(budget),
        settings=settings({name: value for name, value in parameters.items() if name != REST}),
    )


def summary(tables: Mapping[str, pa.Table], guarantees: Sequence[Guarantee], manifest: Mapping[str, Any]) -> str:
    """Return the promise and the first rows of each table for a notebook."""
    return render(
        "notebook/release.html",
        warnings=[nothing_promised(guarantees), *map(weakness, guarantees)],
        promises=[guarantee.summary() for guarantee in guarantees],
        tables=tables,
        rows={name: table.slice(0, _FIRST_ROWS).to_pylist() for name, table in tables.items()},
        keys={name: KINDS[name].keys for name in tables},
        meanings=manifest["meanings"],
    )


def promise(guarantee: Guarantee, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one population is promised, in print, and the steps behind it."""
    ran = [step["parameters"] for step in manifest["steps"] if step["population"] == guarantee.population]
    steps = [
        {
            "name": step.name,
            "detail": step.detail,
            "cost": _cost(step.loss),
            "alone": format_epsilon(_alone(step.loss, guarantee.delta)),
            "numbers": " · ".join(f"{name.replace('_', ' ')} {setting(v, name)}" for name, v in parameters.items()),
        }
        for step, parameters in zip(guarantee.steps, ran, strict=True)
    ]
    return {
        "population": guarantee.population,
        "model": guarantee.model,
        "who": guarantee.unit.name,
        "relation": guarantee.unit.relation.value,
        "epsilon": format_epsilon(guarantee.epsilon),
        "delta": format_delta(guarantee.delta),
        "factor": factor(guarantee.epsilon),
        "has_delta": bool(guarantee.delta),
        "weak_epsilon": exact(guarantee.epsilon) > UNUSUAL_EPSILON,
        "weak_delta": exact(guarantee.delta) > UNUSUAL_DELTA,
        "weakness": weakness(guarantee),
        "test_noise": guarantee.test_noise,
        "in_numbers": in_numbers(guarantee),
        "words": replace(guarantee, steps=()).in_words(),
        "steps": steps,
    }


def in_numbers(guarantee: Guarantee) -> str:
    """Return the promise as its two numbers, in print."""
    if guarantee.test_noise:
        return "nothing: test noise"
    return f"epsilon {format_epsilon(guarantee.epsilon)}, delta {format_delta(guarantee.delta)}"


def _drawn(tables: Mapping[str, pa.Table], name: str) -> dict[str, Any] | None:
    """Return the first rows of a table and their axis; of a list without counts, more rows and none."""
    if name not in tables:
        return None
    measure = measure_of(tables[name])
    rows = tables[name].slice(0, _TOP if measure else 4 * _TOP).to_pylist()
    return {"measure": measure, "rows": rows, "axis": Axis.of(rows, measure) if measure else None}


def _clicks(tables: Mapping[str, pa.Table]) -> dict[str, Any] | None:
    """Return the pages most clicked on after the top queries, with an axis for each query."""
    if "clicks" not in tables:
        return None
    measure = measure_of(tables["clicks"]) or "count"
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _of_top_queries(tables).to_pylist():
        if row["query"] in groups or len(groups) < _CLICKED_QUERIES:
            groups.setdefault(row["query"], []).append(row)
    shown = {query: rows[:_PAGES_EACH] for query, rows in groups.items()}
    return {
        "measure": measure,
        "groups": [{"query": query, "rows": rows, "axis": Axis.of(rows, measure)} for query, rows in shown.items()],
        "cut": sum(map(len, shown.values())) < tables["clicks"].num_rows,
    }


def _of_top_queries(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the clicks of the top queries, or of any where these have none."""
    clicks = tables["clicks"]
    if "queries" in tables:
        top = tables["queries"]["query"].slice(0, _TOP).combine_chunks()
        theirs = clicks.filter(pc.is_in(clicks["query"], value_set=top))
        if theirs.num_rows:
            return theirs
    return clicks.slice(0, _TOP * _PAGES_EACH)


@lru_cache(maxsize=64)
def _alone(loss: Loss, delta: float) -> float:
    return loss.epsilon(delta)


def _cost(loss: Loss) -> str:
    """Say what a step costs in the form in which costs add."""
    parts = []
    squared = loss.mu_squared + sum(sparse.mu_squared for sparse in loss.sparse)
    if squared:
        parts.append(f"mu squared {format_epsilon(squared)} (Gaussian noise)")
    if loss.pure:
        parts.append(f"epsilon {format_epsilon(sum(loss.pure))}")
    failures = loss.threshold_delta + sum(exact(sparse.threshold_delta()) for sparse in loss.sparse)
    if failures:
        parts.append(f"delta {format_delta(failures)} for what a threshold may let through")
    return "It cost " + (" and ".join(parts) or "nothing")


def _budget(budget: Mapping[str, Any]) -> dict[str, Any]:
    wanted = ("population", "epsilon", "delta", "remaining_epsilon")
    if set(budget) != set(wanted):
        raise UsageError("the budget to show is incomplete", fix=f"Give exactly: {', '.join(wanted)}")
    whole, left = (exact(budget[name], name) for name in ("epsilon", "remaining_epsilon"))
    return {
        "population": str(budget["population"]),
        "delta": format_delta(exact(budget["delta"], "delta")),
        "whole": f"{float(whole):.3g}",
        "left": f"{float(left):.3g}",
        "spent": max(0.0, min(1.0, float(1 - left / whole))) if whole > 0 else 1.0,
    }
