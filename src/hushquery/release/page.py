"""Show a release to people: the data card, and the page with charts and all queries.

The page is one file that works offline and from a disk, so every table is part of it. It loads nothing and runs no
script but that of its list, by its hash; that shows fifty rows at a time, and without it the first rows of each table
are there. Queries are written by strangers: each is escaped and runs in its own direction, and no URL becomes a link.
The list is searched as :mod:`hushquery.publish.search` does.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.core.budget import UNUSUAL_DELTA, UNUSUAL_EPSILON, Relation, exact, format_delta, format_epsilon
from hushquery.core.guarantee import Guarantee, factor
from hushquery.core.loss import GaussianWeights, Loss
from hushquery.errors import UsageError
from hushquery.release.axis import Axis
from hushquery.release.manifest import (
    KINDS,
    NUMBERS,
    REST,
    SHARE_SCALE,
    WHOLE,
    measure_of,
    measures_of,
    release_measure,
)
from hushquery.templates import asset, bundled, number, render

if TYPE_CHECKING:
    from hushquery.release.release import Release

# Where a step or a release states how many pairs noise alone is expected to make.
_FALSE_PAIRS = "expected_false_reformulations"

# Of a longer list the manifest has the rest; of longer numbers it has all digits.
_LISTED, _LONG_NUMBER = 12, 8
_LONG_FRACTION = re.compile(r"(?=.{11})[0-9]{1,200}/[1-9][0-9]{0,200}")
# The parameters whose numbers say little without it.
_UNITS = {"session_gap": "seconds"}
_KEYS = {"value": "the value", "cell": "its number, from 0", "text": "the text, as devices hash it"}
_IN_WEIGHTS = " · sigma and threshold in 1/64 of a user's weight"

_TOP = 25
_CLICKED_QUERIES = 8
_PAGES_EACH = 5
_COMPARED = 15

# How many standard errors apart the groups are when they are said to disagree, and how far their lines reach.
_APART, _REACH = 3.0, 2.0

# The rows of a table that a page holds at most: some ten megabytes. Whoever wants more has the Parquet files.
_EMBEDDED = 100_000

# What is shown of a query when it is opened.
_OPENED = {"clicks": "the pages people clicked on", "reformulations": "what they searched for next"}

#: The script of the list; a script in a page can't be given a module of another file.
SCRIPT = bundled(*map(asset, ("matching.mjs", "pages.mjs", "explorer.mjs")))

#: The name by which a content security policy lets this script run, and no other.
SCRIPT_HASH = f"sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}"


# ---- the data card and the page --------------------------------------------------------------------------------------


def card(release: Release) -> str:
    """Write the data card as Markdown."""
    if release_measure(release.tables) == "estimate":
        from hushquery.release import estimates_page

        return estimates_page.card(release)
    guarantees, manifest = release.guarantees, release.manifest
    return render(
        "card.md",
        facts=list(release.description.facts()),
        title=f"Search statistics of {populations(guarantees)}",
        subject="What people searched for",
        nothing_promised=nothing_promised(guarantees),
        two_promises=two_promises(guarantees),
        promises=[promise_lines(guarantee) for guarantee in guarantees],
        tables=[card_table(name, table, manifest) for name, table in release.tables.items()],
        rest=manifest["parameters"][REST] if release_measure(release.tables) == "share" else None,
        limits=limits(release),
        settings=settings(manifest["parameters"]),
        manifest=manifest,
    )


def page(release: Release, budget: Mapping[str, Any] | None = None, signed: str = "") -> str:
    """Write the page; ``budget`` is what :meth:`Release.save` takes, ``signed`` the fingerprint of the key."""
    if release_measure(release.tables) == "estimate":
        from hushquery.release import estimates_page

        return estimates_page.page(release, signed)
    tables, guarantees, manifest = release.tables, release.guarantees, release.manifest
    weak, void, parameters = any(map(weakness, guarantees)), nothing_promised(guarantees), manifest["parameters"]
    return render(
        "report.html",
        people=populations(guarantees),
        title=release.description.title or "",
        facts=[(name, text) for name, text in release.description.facts() if name != "title"],
        signed=signed,
        what="Not a private release" if void else "A release with a weak promise" if weak else "A private release",
        private=not (void or weak),
        manifest=manifest,
        nothing_promised=void,
        two_promises=two_promises(guarantees),
        promises=[promise(guarantee, manifest) for guarantee in guarantees],
        tables=tables,
        shares=release_measure(tables) == "share",
        rest=parameters.get(REST),
        level=f"{100 * float(manifest['interval_level']):g}",
        explorer=explorer(tables),
        queries=_first_rows(tables, "queries"),
        clicks=_clicks(tables),
        reformulations=_first_rows(tables, "reformulations"),
        false_pairs=false_pairs(manifest),
        groups=compared(tables) if "records" in tables else None,
        limits=limits(release),
        budget=None if budget is None else _budget(budget),
        settings=settings({name: value for name, value in parameters.items() if name != REST}),
    )


# ---- sentences -------------------------------------------------------------------------------------------------------


def populations(guarantees: Sequence[Guarantee]) -> str:
    """Name the people a release speaks of."""
    return " and ".join(guarantee.population for guarantee in guarantees)


def nothing_promised(guarantees: Sequence[Guarantee]) -> str:
    """Return the warning for a release whose noise came from a test; empty where it did not."""
    if not any(guarantee.test_noise for guarantee in guarantees):
        return ""
    return (
        "NOT PRIVATE. The noise in this release came from a seed that a test supplied. Nothing is promised to anybody: "
        "do not publish it, and do not use it as if it were private."
    )


def weakness(guarantee: Guarantee) -> str:
    """Return the warning for a promise that is weaker than usual; empty for an ordinary one, or where there is none."""
    if guarantee.test_noise or not guarantee.concerns:
        return ""
    return f"WEAK PROMISE. {'. '.join(c[0].upper() + c[1:] for c in guarantee.concerns)}."


def two_promises(guarantees: Sequence[Guarantee]) -> str:
    """Return the warning that the promises of a release are not one; empty where there is one only."""
    if len(guarantees) < 2:
        return ""
    return (
        "This release speaks of several groups of people, and each has a promise of its own. No number here holds for "
        "all of them together: look for the group that somebody belongs to. Whoever was in two groups, one after the "
        "other, spent in both."
    )


def false_pairs(manifest: Mapping[str, Any]) -> str:
    """Return how many of the reformulations are expected to be noise alone; empty where nothing states it."""
    places = [manifest["parameters"], *(step["parameters"] for step in manifest["steps"])]
    stated = [place[_FALSE_PAIRS] for place in places if _FALSE_PAIRS in place]
    if not stated:
        return ""
    expected = float(sum(exact(value, _FALSE_PAIRS) for value in stated))
    return f"False pairs to expect among these, made by noise alone: {expected:.2g}."


def limits(release: Release) -> list[str]:
    """Return what the numbers can't tell, a sentence each."""
    tables, level = release.tables, 100 * float(release.manifest["interval_level"])
    missing = "What few people did is missing on purpose."
    if any(guarantee.model == "curator" and weakness(guarantee) for guarantee in release.guarantees):
        missing = "Rows may come from very few people, or from one: so large an epsilon or delta keeps few of them out."
    if (floor := release.manifest["parameters"].get("min_users", 1)) != 1:
        clicked = ", and no page that fewer clicked," if "clicks" in tables else ""
        missing = f"No query searched by fewer than {floor} users{clicked} can appear, with certainty."
    sentences = [f"{missing} That something is not here does not mean that nobody did it."]
    if release_measure(tables) == "share":
        sentences += [
            "Shares are shares of records, not of people or of all searches: every person takes part with a limited "
            "number of records, so that very active people do not count for more.",
            f"Shares have noise. An interval covers the true share in about {level:g} of 100 cases. Shares were made "
            "to lie between 0 and 1 and to make up the whole together with the rest, so that a share of 0 means too "
            "small to measure, not none.",
            "A small difference between two shares may be noise alone.",
        ]
    else:
        sentences.append(
            "Every person counts in a limited number of rows, so counts are below the true number of searches, "
            "and more so for what very active people do."
        )
    if "count" in measures_of(tables).values():
        sentences += [
            f"Counts have noise. An interval covers what the count would be without it in {level:g} of 100 "
            "cases; where only counts above a threshold were released, it is computed given that the count was.",
            "Sums over many rows add up their noise. A small difference between two counts may be noise alone.",
        ]
    if "reformulations" in tables:
        sentences.append("A reformulation may be false: noise alone lets a few pairs through that nobody made.")
    if "records" in tables:
        sentences.append(
            "People who opted in may search otherwise than the others. Where the two groups disagree by much more than "
            "their standard errors, a blend of both describes neither."
        )
    sentences.append(
        "It must not be used to look for individual people, nor joined with other data for that purpose. "
        "The promise holds all the same, but a guess about a person that it allows is still a guess."
    )
    return sentences


def disagreement(table: pa.Table) -> str:
    """Return for how many records the two groups disagree, and how many of so many would by chance."""
    scores = table["shift_z"].drop_null().to_pylist()
    if not scores:
        return ""
    apart = sum(abs(z) > _APART for z in scores)
    many = f"{number(len(scores))} tested record{'' if len(scores) == 1 else 's'}"
    verb = "none is" if apart == 0 else "1 is" if apart == 1 else f"{number(apart)} are"
    return (
        f"Of {many}, {verb} more than {_APART:g} standard errors apart between the two groups; "
        "of people who search alike, about 1 record in 370 would be, by chance."
    )


# ---- promises, settings and the budget -------------------------------------------------------------------------------


def promise(guarantee: Guarantee, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one population is promised, in print, and the steps behind it."""
    ran = [step["parameters"] for step in manifest["steps"] if step["population"] == guarantee.population]
    steps = [
        {
            "name": step.name,
            "detail": step.detail,
            "cost": _cost(step.loss),
            "alone": format_epsilon(_alone(step.loss, guarantee.delta)),
            "numbers": " · ".join(f"{name.replace('_', ' ')} {setting(v, name)}" for name, v in parameters.items())
            + (_IN_WEIGHTS if parameters.get("kind") == GaussianWeights.kind else ""),
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
        "meaning": meaning(guarantee),
        "weak_epsilon": exact(guarantee.epsilon) > UNUSUAL_EPSILON,
        "weak_delta": exact(guarantee.delta) > UNUSUAL_DELTA,
        "weakness": weakness(guarantee),
        "test_noise": guarantee.test_noise,
        "in_numbers": in_numbers(guarantee),
        "words": replace(guarantee, steps=()).in_words(),
        "steps": steps,
    }


def meaning(guarantee: Guarantee) -> list[str]:
    """Return what a promise means for one person, a sentence each: what it bounds, and when it may fail."""
    if guarantee.test_noise:
        return ["Nothing is promised: the noise is a test's."]
    who = guarantee.unit.name
    change = "Adding or removing" if guarantee.unit.relation is Relation.ADD_REMOVE else "Changing"
    times = factor(guarantee.epsilon)
    lines = [f"{change} any one {who}'s data changes the probability of any result by at most a factor of {times}."]
    if guarantee.delta:
        chance = f"1 in {math.floor(1 / guarantee.delta * (1 + 1e-12)):,}"
        lines.append(f"There is a chance of at most {chance} that this fails and reveals the data of that {who}.")
    return lines


def in_numbers(guarantee: Guarantee) -> str:
    """Return the promise as its two numbers, in print."""
    if guarantee.test_noise:
        return "nothing: test noise"
    return f"epsilon {format_epsilon(guarantee.epsilon)}, delta {format_delta(guarantee.delta)}"


@lru_cache(maxsize=64)
def _alone(loss: Loss, delta: float) -> float:
    return loss.epsilon(delta)


def _cost(loss: Loss) -> str:
    """Return what a step costs in the form in which costs add."""
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


def promise_lines(guarantee: Guarantee) -> dict[str, Any]:
    """Return what one population is promised, for the data card."""
    lines = [_item(line) for line in guarantee.in_words().splitlines()]
    return {"population": guarantee.population, "weakness": weakness(guarantee), "lines": lines}


def _item(line: str) -> tuple[str, str]:
    """Split a line of the promise into its number or mark in a list, where it is indented, and its text."""
    line = line.replace("->", "→")
    if not line.startswith("  "):
        return "", line
    numbered = re.match(r"\s*([0-9]+)\. (.*)", line)
    return (numbered[1], numbered[2]) if numbered else ("-", line)


def setting(value: Any, name: str = "") -> str:
    """Return a parameter in words; a long fraction or number is rounded, because the manifest has it exactly.

    >>> setting(1800.0, "session_gap"), setting(0.9638621058683867), setting("1/3")
    ('1800 seconds', 'about 0.9639', '1/3')
    """
    if name in _UNITS:
        return f"{setting(value)} {_UNITS[name]}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting(item)}" for name, item in value.items())
    if isinstance(value, list):
        first = ", ".join(map(setting, value[:_LISTED])) or "none"
        return first if len(value) <= _LISTED else f"{first} and {len(value) - _LISTED} more"
    if value is None:
        return "none"
    if isinstance(value, str) and _LONG_FRACTION.fullmatch(value):
        return f"about {float(Fraction(value)):.6g}"
    if isinstance(value, float):
        digits = repr(value).removesuffix(".0")
        return digits if len(digits) <= _LONG_NUMBER else f"about {value:.4g}"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def settings(parameters: Mapping[str, Any]) -> list[tuple[str, str | list[str]]]:
    """Return the name of each parameter with what it is: in words, or in lines where commas would be ambiguous."""
    return [(name.replace("_", " "), _setting_lines(v) or setting(v, name)) for name, v in parameters.items()]


def _setting_lines(value: Any) -> list[str]:
    if not isinstance(value, list) or not any("," in item for item in value if isinstance(item, str)):
        return []
    more = [f"and {len(value) - _LISTED} more"] if len(value) > _LISTED else []
    return [*map(setting, value[:_LISTED]), *more]


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


# ---- tables and charts -----------------------------------------------------------------------------------------------


def card_table(name: str, table: pa.Table, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the data card says of a table."""
    measure = measure_of(table)
    url = "the page" if measure == "count" else "the page; empty for searches without a click"
    words = {"query": "the query", "url": url, "next_query": "the query that came next", **_KEYS}
    numbers = NUMBERS[measure].items() if measure else ()
    doubts = [false_pairs(manifest), _doubtful(table)] if name == "reformulations" and table.num_rows else []
    return {
        "name": name,
        "rows": table.num_rows,
        "row": "a text that was found"
        if name == "estimates" and "candidates" in manifest["meanings"]
        else KINDS[name].row,
        "measure": measure,
        "columns": [
            *((key, "whole number" if key in WHOLE else "text", words[key]) for key in KINDS[name].keys),
            *((key, "whole number" if key in WHOLE else "number", meaning) for key, meaning in numbers),
        ],
        "doubts": " ".join(filter(None, doubts)),
    }


def _doubtful(table: pa.Table) -> str:
    many = pc.sum(pc.less_equal(table["low"], 0)).as_py()
    return (
        f"The intervals of {many:,} of the {table.num_rows:,} rows reach 0: these may be noise alone." if many else ""
    )


def _first_rows(tables: Mapping[str, pa.Table], name: str) -> dict[str, Any] | None:
    """Return the first rows of a table and their axis; of a list without counts, more rows and none."""
    if name not in tables:
        return None
    measure = measure_of(tables[name])
    rows = tables[name].slice(0, _TOP if measure else 4 * _TOP).to_pylist()
    return {"measure": measure, "rows": rows, "axis": Axis.of(rows, measure) if measure else None}


def _clicks(tables: Mapping[str, pa.Table]) -> dict[str, Any] | None:
    """Return the pages most clicked on after the top queries, or any where these have none, with an axis for each."""
    if "clicks" not in tables:
        return None
    clicks, theirs = tables["clicks"], None
    if "queries" in tables:
        top = tables["queries"]["query"].slice(0, _TOP).combine_chunks()
        theirs = clicks.filter(pc.is_in(clicks["query"], value_set=top))
    measure = measure_of(clicks) or "count"
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in (theirs if theirs is not None and theirs.num_rows else clicks.slice(0, _TOP * _PAGES_EACH)).to_pylist():
        if row["query"] in groups or len(groups) < _CLICKED_QUERIES:
            groups.setdefault(row["query"], []).append(row)
    first = {query: rows[:_PAGES_EACH] for query, rows in groups.items()}
    return {
        "measure": measure,
        "groups": [{"query": query, "rows": rows, "axis": Axis.of(rows, measure)} for query, rows in first.items()],
        "cut": sum(map(len, first.values())) < clicks.num_rows,
    }


def compared(tables: Mapping[str, pa.Table], most: int = _COMPARED) -> dict[str, Any]:
    """Return the most frequent records with each group's estimate, and their axis; unpublished ones as blended."""
    rows = tables["records"].slice(0, most).to_pylist()
    clicks = tables["clicks"].to_pylist() if "clicks" in tables else []
    published = {(row["query"], row["url"]): row["share"] for row in clicks}
    for row in rows:
        blend = row["weight"] * row["optin"] + (1 - row["weight"]) * row["client"]
        row["blended"] = published.get((row["query"], row["url"]), blend)
        row["apart"] = row["shift_z"] is not None and abs(row["shift_z"]) > _APART
        for who in ("optin", "client"):
            reach = _REACH * row[f"{who}_stderr"]
            row[f"{who}_low"], row[f"{who}_high"] = row[who] - reach, row[who] + reach
    ends = ("blended", "optin_low", "optin_high", "client_low", "client_high")
    axis = Axis.over(row[end] for row in rows for end in ends)
    return {"rows": rows, "axis": axis, "disagreement": disagreement(tables["records"])}


def explorer(tables: Mapping[str, pa.Table]) -> dict[str, Any] | None:
    """Return what the macro ``explorer`` shows; None for a release without queries."""
    queries = tables.get("queries")
    if queries is None or not queries.num_rows:
        return None
    measure = measure_of(queries)
    places = {query: place for place, query in enumerate(queries["query"].slice(0, _EMBEDDED).to_pylist())}
    data = {name: _columns(name, table.slice(0, _EMBEDDED), places) for name, table in tables.items()}
    opened = {place for name in _OPENED if name in data for place in data[name]["query"] if isinstance(place, int)}
    return {
        "data": {"measure": measure, "per": SHARE_SCALE if measure == "share" else 1, "tables": data},
        "rows": {name: table.num_rows for name, table in tables.items()},
        "cut": [name for name, table in tables.items() if table.num_rows > _EMBEDDED],
        "most": _EMBEDDED,
        "opens": [words for name, words in _OPENED.items() if name in tables],
        "opened": len(opened),
        "script": SCRIPT,
        "hash": SCRIPT_HASH,
    }


def _columns(name: str, table: pa.Table, places: Mapping[str, int]) -> dict[str, Any]:
    """Return a table by column: queries of other tables as their places, and a number that never changes once."""
    columns: dict[str, Any] = {}
    for column in table.column_names:
        values: list[Any] = table[column].to_pylist()
        if column in ("query", "next_query"):
            columns[column] = values if name == "queries" else [places.get(query, query) for query in values]
        elif column == "url":
            columns[column] = values
        else:
            shorter = [int(value) if value is not None and value == int(value) else value for value in values]
            columns[column] = shorter[0] if values and len(set(shorter)) == 1 else shorter
    return columns
