"""Opt-in users, clients and the blend of both, side by side, as static SVG.

Each record has one row: the share that was published as a bar, and above it what each group measured alone, with a line
of two standard errors to either side. Where the lines do not meet, the groups search differently, or noise deceives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hushquery.release.markup import address, isolated, number, percent

__all__ = ["Compared", "compared", "comparison", "disagreement"]

#: How many standard errors apart the groups are when they are said to disagree.
APART = 3.0

_ERRORS = 2.0
_TOP = 15


@dataclass(frozen=True)
class Compared:
    """One record: its label as HTML, the blend, and what each group says, with standard errors."""

    label: str
    blended: float
    optin: float
    optin_stderr: float
    client: float
    client_stderr: float
    weight: float
    shift_z: float | None


def compared(tables: Mapping[str, pa.Table], most: int = _TOP) -> list[Compared]:
    """Give the most frequent records of a release; the published share where there is one, else the plain blend."""
    rows = []
    published = _published(tables)
    for row in tables["records"].slice(0, most).to_pylist():
        blend = row["weight"] * row["optin"] + (1 - row["weight"]) * row["client"]
        key = (row.pop("query"), row.pop("url"))
        label = f'{isolated(key[0])} <small class="page">{address(key[1]) if key[1] else "no click"}</small>'
        rows.append(Compared(label, published.get(key, blend), **row))
    return rows


def _published(tables: Mapping[str, pa.Table]) -> dict[tuple[str, str], float]:
    table = tables.get("clicks")
    if table is None:
        return {}
    columns = (table[name].to_pylist() for name in ("query", "url", "share"))
    return {(query, url): share for query, url, share in zip(*columns, strict=True)}


def comparison(rows: Sequence[Compared], caption: str) -> str:
    """Draw the rows on one axis that includes zero, with a legend and the numbers in words."""
    ends = [
        (r.optin + s * _ERRORS * r.optin_stderr, r.client + s * _ERRORS * r.client_stderr)
        for r in rows
        for s in (-1, 1)
    ]
    values = [0.0, *(end for pair in ends for end in pair), *(row.blended for row in rows)]
    least, reach = min(values), (max(values) - min(values)) or 1.0

    def place(value: float) -> str:
        return f"{100 * (value - least) / reach:.2f}%"

    def group(name: str, value: float, stderr: float, y: float) -> str:
        low, high = value - _ERRORS * stderr, value + _ERRORS * stderr
        return (
            f'<line class="{name}" x1="{place(low)}" x2="{place(high)}" y1="{y}" y2="{y}"/>'
            f'<circle class="{name}" cx="{place(value)}" cy="{y}" r="3.5"/>'
        )

    lines = []
    for row in rows:
        width = f"{100 * row.blended / reach:.2f}%"
        drawn = (
            f'<rect class="bar" x="{place(0)}" y="2" width="{width}" height="20" rx="2"/>'
            + group("optin", row.optin, row.optin_stderr, 8)
            + group("client", row.client, row.client_stderr, 16)
        )
        apart = ' <b class="apart">apart</b>' if row.shift_z is not None and abs(row.shift_z) > APART else ""
        lines.append(
            f'<li><span class="label">{row.label}</span>'
            f'<span class="drawn"><svg aria-hidden="true" height="24">{drawn}</svg></span>'
            f'<span class="value three"><span>{percent(row.blended)}{apart}</span>'
            f"<small>opt-in {percent(row.optin)} · clients {percent(row.client)}</small></span></li>"
        )
    legend = (
        '<p class="legend" aria-hidden="true"><span class="of-bar">published share</span>'
        '<span class="of-optin">opt-in users alone</span><span class="of-client">clients alone</span></p>'
    )
    return f'<figure><figcaption>{caption}</figcaption>{legend}<ol class="bars compared">{"".join(lines)}</ol></figure>'


def disagreement(table: pa.Table) -> str:
    """Say of how many records the two groups disagree, and how many of so many would by chance."""
    scores = table["shift_z"].drop_null().to_pylist()
    if not scores:
        return ""
    apart = sum(abs(z) > APART for z in scores)
    many = f"{number(len(scores))} tested record{'' if len(scores) == 1 else 's'}"
    said = "none is" if apart == 0 else "1 is" if apart == 1 else f"{number(apart)} are"
    return (
        f"Of {many}, {said} more than {APART:g} standard errors apart between the two groups; "
        "of people who search alike, about 1 record in 370 would be, by chance."
    )
