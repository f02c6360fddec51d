"""The data card: what a release is, what it promises and what it must not be used for, in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.core.budget import exact
from hushquery.core.guarantee import Guarantee
from hushquery.release.tables import KINDS, NUMBERS, REST, measure_of, measures_of, release_measure
from hushquery.templates import render

__all__ = [
    "card",
    "false_pairs",
    "limits",
    "nothing_promised",
    "populations",
    "setting",
    "setting_lines",
    "settings",
    "two_promises",
    "weakness",
]

# Where a step or a release states how many pairs noise alone is expected to make.
_FALSE_EDGES = "expected_false_reformulations"

# Of a longer list the manifest has the rest.
_LISTED = 12
_LONG_NUMBER = 8
_LONG_FRACTION = re.compile(r"(?=.{11})[0-9]{1,200}/[1-9][0-9]{0,200}")


def populations(guarantees: Sequence[Guarantee]) -> str:
    """Name the people a release speaks of."""
    return " and ".join(guarantee.population for guarantee in guarantees)


def nothing_promised(guarantees: Sequence[Guarantee]) -> str:
    """Give the warning for a release whose noise came from a test; empty where it did not."""
    if not any(guarantee.test_noise for guarantee in guarantees):
        return ""
    return (
        "NOT PRIVATE. The noise in this release came from a seed that a test supplied. Nothing is promised to anybody: "
        "do not publish it, and do not use it as if it were private."
    )


def weakness(guarantee: Guarantee) -> str:
    """Give the warning for a promise that is weaker than usual; empty for an ordinary one, or where there is none."""
    if guarantee.test_noise or not guarantee.concerns:
        return ""
    return f"WEAK PROMISE. {'. '.join(c[0].upper() + c[1:] for c in guarantee.concerns)}."


def false_pairs(manifest: Mapping[str, Any]) -> str:
    """Say how many of the reformulations are expected to be noise alone; empty where nothing states it."""
    places = [manifest["parameters"], *(step["parameters"] for step in manifest["steps"])]
    stated = [place[_FALSE_EDGES] for place in places if _FALSE_EDGES in place]
    if not stated:
        return ""
    expected = float(sum(exact(value, _FALSE_EDGES) for value in stated))
    return f"False pairs to expect among these, made by noise alone: {expected:.2g}."


def limits(tables: Mapping[str, pa.Table], level: float, guarantees: Sequence[Guarantee]) -> list[str]:
    """Say what the numbers can't tell, a sentence each."""
    missing = "What few people did is missing on purpose."
    weak = [guarantee for guarantee in guarantees if guarantee.model == "curator" and weakness(guarantee)]
    if weak:
        missing = "Rows may come from very few people, or from one: so large an epsilon or delta keeps few of them out."
    found = [f"{missing} That something is not here does not mean that nobody did it."]
    found += _of_shares(tables, level) if release_measure(tables) == "share" else _of_counts(tables, level)
    found.append(
        "It must not be used to look for individual people, nor joined with other data for that purpose. "
        "The promise holds all the same, but a guess about a person that it allows is still a guess."
    )
    return found


def _of_counts(tables: Mapping[str, pa.Table], level: float) -> list[str]:
    found = [
        "Every person counts in a limited number of rows, so counts are below the true number of searches, "
        "and more so for what very active people do.",
    ]
    if "count" in measures_of(tables).values():
        found.append(
            f"Counts have noise. An interval covers what the count would be without it in {100 * level:g} of 100 "
            "cases; where only counts above a threshold were released, it is computed given that the count was."
        )
        found.append(
            "Sums over many rows add up their noise. A small difference between two counts may be noise alone."
        )
    if "reformulations" in tables:
        found.append("A reformulation may be false: noise alone lets a few pairs through that nobody made.")
    return found


def _of_shares(tables: Mapping[str, pa.Table], level: float) -> list[str]:
    found = [
        "Shares are shares of records, not of people or of all searches: every person takes part with a limited "
        "number of records, so that very active people do not count for more.",
        f"Shares have noise. An interval covers the true share in about {100 * level:g} of 100 cases. Shares were made "
        "to lie between 0 and 1 and to make up the whole together with the rest, so that a share of 0 means too "
        "small to measure, not none.",
        "A small difference between two shares may be noise alone.",
    ]
    if "records" in tables:
        found.append(
            "People who opted in may search otherwise than the others. Where the two groups disagree by much more than "
            "their standard errors, a blend of both describes neither."
        )
    return found


def two_promises(guarantees: Sequence[Guarantee]) -> str:
    """Say that the promises of a release are not one; empty where there is one only."""
    if len(guarantees) < 2:
        return ""
    return (
        "This release speaks of several groups of people, and each has a promise of its own. No number here holds for "
        "all of them together: look for the group that somebody belongs to. Whoever was in two groups, one after the "
        "other, spent in both."
    )


def card(tables: Mapping[str, pa.Table], guarantees: Sequence[Guarantee], manifest: Mapping[str, Any]) -> str:
    """Write the data card as Markdown."""
    parameters = manifest["parameters"]
    return render(
        "card.md",
        people=populations(guarantees),
        nothing_promised=nothing_promised(guarantees),
        two_promises=two_promises(guarantees),
        promises=[
            {"population": one.population, "weakness": weakness(one), "lines": list(map(_item, _lines(one)))}
            for one in guarantees
        ],
        tables=[_table(name, table, manifest) for name, table in tables.items()],
        rest=parameters[REST] if release_measure(tables) == "share" else None,
        limits=limits(tables, float(manifest["interval_level"]), guarantees),
        settings=settings(parameters),
        manifest=manifest,
    )


def _table(name: str, table: pa.Table, manifest: Mapping[str, Any]) -> dict[str, Any]:
    measure = measure_of(table)
    words = _KEY_WORDS if measure == "count" else _KEY_WORDS | _NO_CLICK
    numbers = NUMBERS[measure].items() if measure else ()
    doubts = [false_pairs(manifest), _doubtful(table)] if name == "reformulations" and table.num_rows else []
    return {
        "name": name,
        "rows": table.num_rows,
        "row": KINDS[name].row,
        "measure": measure,
        "columns": [
            *((key, "text", words[key]) for key in KINDS[name].keys),
            *((key, "whole number" if key == "count" else "number", meaning) for key, meaning in numbers),
        ],
        "doubts": " ".join(filter(None, doubts)),
    }


def _doubtful(table: pa.Table) -> str:
    many = pc.sum(pc.less_equal(table["low"], 0)).as_py()
    return (
        f"The intervals of {many:,} of the {table.num_rows:,} rows reach 0: these may be noise alone." if many else ""
    )


_NO_CLICK = {"url": "the page; empty for searches without a click"}
_KEY_WORDS = {"query": "the query", "url": "the page", "next_query": "the query that came next"}


def _lines(guarantee: Guarantee) -> list[str]:
    return guarantee.in_words().replace("->", "→").splitlines()


def _item(line: str) -> tuple[str, str]:
    """Split a line of the promise into its number or mark in a list, where it is indented, and its text."""
    if not line.startswith("  "):
        return "", line
    numbered = re.match(r"\s*([0-9]+)\. (.*)", line)
    return (numbered[1], numbered[2]) if numbered else ("-", line)


# The parameters whose numbers say little without it.
_UNITS = {"session_gap": "seconds"}


def setting(value: Any, name: str = "") -> str:
    """Give a parameter in words; a long fraction or number is rounded, because the manifest has it exactly.

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
        said = repr(value).removesuffix(".0")
        return said if len(said) <= _LONG_NUMBER else f"about {value:.4g}"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def setting_lines(value: Any) -> list[str]:
    """Give the items of a parameter that is a list of texts with commas in them; none for any other.

    >>> setting_lines(["lower case", "no names, no numbers"]), setting_lines(["a", "b"])
    (['lower case', 'no names, no numbers'], [])
    """
    if not isinstance(value, list) or not any("," in item for item in value if isinstance(item, str)):
        return []
    more = [f"and {len(value) - _LISTED} more"] if len(value) > _LISTED else []
    return [*map(setting, value[:_LISTED]), *more]


def settings(parameters: Mapping[str, Any]) -> list[tuple[str, str | list[str]]]:
    """Return the name of each parameter with what it is: in words, or in lines."""
    return [(name.replace("_", " "), setting_lines(v) or setting(v, name)) for name, v in parameters.items()]
