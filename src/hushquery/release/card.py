"""The data card: what a release is, what it promises and what it must not be used for, in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.privacy.guarantee import Guarantee
from hushquery.privacy.rounding import exact
from hushquery.release.markup import percent
from hushquery.release.tables import KINDS, NUMBERS, REST, measure_of, measures_of, release_measure

__all__ = [
    "card",
    "false_pairs",
    "limits",
    "nothing_promised",
    "populations",
    "setting",
    "two_promises",
    "weakness",
]

# Where a step or a release states how many pairs noise alone is expected to make.
_FALSE_EDGES = "expected_false_reformulations"

# Of a longer list the manifest has the rest.
_LISTED = 12
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
    warning = nothing_promised(guarantees)
    level = float(manifest["interval_level"])
    parts = [f"# Search statistics of {_md(populations(guarantees))}"]
    if warning:
        parts.append(f"> **{warning}**")
    weak = [(guarantee, weakness(guarantee)) for guarantee in guarantees if weakness(guarantee)]
    whose = " (for {})" if len(guarantees) > 1 else ""
    parts += [f"> **{_md(said)}**{whose.format(_md(guarantee.population))}" for guarantee, said in weak]
    purpose = (
        "What people searched for, made to test hushquery and for nothing else."
        if warning
        else "What people searched for, with a promise to them that is weaker than usual (above)."
        if weak
        else "What people searched for, made so that it can be public: the numbers say what the crowd did, and protect "
        "every single person in it."
    )
    parts += [
        f"{purpose} Made with hushquery {_md(manifest['hushquery'])} on {_md(manifest['created'])}. "
        "The exact record of how is in `manifest.json`; `report.html` shows the same with charts.",
        "## What is in it",
        *_tables(tables, manifest),
        *(_rest(manifest) if release_measure(tables) == "share" else []),
        "## What protects people, and what that promises",
        *([two_promises(guarantees)] if len(guarantees) > 1 else []),
        *(_quote(guarantee.in_words()) for guarantee in guarantees),
        "## What it can't tell, and what it must not be used for",
        _list(limits(tables, level, guarantees)),
        "## How it was made",
        _list([f"{_md(name.replace('_', ' '))}: {_md(setting(v))}" for name, v in manifest["parameters"].items()]),
    ]
    if manifest["notes"]:
        parts += ["## Notes", _list([_md(str(note)) for note in manifest["notes"]])]
    first = next(iter(tables))
    parts += [
        "## How to load it",
        _code(f'import hushquery as hq\n\nrelease = hq.Release.load("FOLDER")\nrelease.{first}', "python"),
        _code(f"SELECT * FROM 'FOLDER/{first}.parquet' LIMIT 10;  -- DuckDB", "sql"),  # noqa: S608 -- words
        "## How to check it",
        _code("hushquery verify FOLDER", "sh"),
        "This compares every file with the manifest and computes the promise anew from the exact numbers that each "
        "step ran with. It finds accidents and inconsistencies, not forgers: get the folder from somebody you trust.",
    ]
    return "\n\n".join(parts) + "\n"


def _tables(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, table in tables.items():
        kind = KINDS[name]
        lines = [f"| column | type | what it is |\n|---|---|---|\n| `{kind.keys[0]}` | text | the query |"]
        measure = measure_of(table)
        words = _KEY_WORDS if measure == "count" else _KEY_WORDS | _NO_CLICK
        lines += [f"| `{key}` | text | {words[key]} |" for key in kind.keys[1:]]
        if measure:
            types = {"count": "whole number"}
            told = NUMBERS[measure].items()
            lines += [f"| `{column}` | {types.get(column, 'number')} | {what} |" for column, what in told]
        rows = f"{table.num_rows:,} row{'' if table.num_rows == 1 else 's'}"
        parts += [
            f"### `{name}.parquet`: {rows}, each {kind.row}",
            f"What a {measure if measure in ('count', 'share') else 'row'} is: {_md(manifest['meanings'][name])}",
            "\n".join(lines),
        ]
        if name == "reformulations" and table.num_rows:
            parts += [" ".join(filter(None, [false_pairs(manifest), _doubtful(table)]))]
    return [part for part in parts if part]


def _doubtful(table: pa.Table) -> str:
    many = pc.sum(pc.less_equal(table["low"], 0)).as_py()
    return (
        f"The intervals of {many:,} of the {table.num_rows:,} rows reach 0: these may be noise alone." if many else ""
    )


def _rest(manifest: Mapping[str, Any]) -> list[str]:
    return [
        f"Numbers here are shares of all records, not counts. Everything that is not listed has {REST} = "
        f"{percent(manifest['parameters'][REST])} of them together."
    ]


_NO_CLICK = {"url": "the page; empty for searches without a click"}
_KEY_WORDS = {"url": "the page", "next_query": "the query that came next"}


def setting(value: Any) -> str:
    """Give a parameter in words; a long fraction as a decimal, because the manifest has it exactly."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting(item)}" for name, item in value.items())
    if isinstance(value, list):
        first = ", ".join(map(setting, value[:_LISTED])) or "none"
        return first if len(value) <= _LISTED else f"{first} and {len(value) - _LISTED} more"
    if value is None:
        return "none"
    if isinstance(value, str) and _LONG_FRACTION.fullmatch(value):
        return f"about {float(Fraction(value)):.6g}"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _md(text: str) -> str:
    """Put text of a person into Markdown as text."""
    escaped = re.sub(r"([\\`*_\[\]<>|~&])", r"\\\1", " ".join(str(text).split()))
    return re.sub(r"^([-+#=])", r"\\\1", escaped)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _quote(text: str) -> str:
    """Quote a text that names people as the steward does: all of it as text, its indented lines as a list."""
    # A number at the start of a line would begin a list of its own.
    lines = [(line.startswith("  "), re.sub(r"^([0-9]+)([.)])", r"\1\\\2", _md(line))) for line in text.splitlines()]
    return "\n".join(f"> {'- ' * listed}{line}".rstrip() for listed, line in lines)


def _code(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"
