"""What the charts of a release show: where its numbers lie on an axis, and how the groups behind a blend compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hushquery.templates import number

__all__ = ["Axis", "compared", "disagreement"]

#: How many standard errors apart the groups are when they are said to disagree.
APART = 3.0

_ERRORS = 2.0
_TOP = 15


@dataclass(frozen=True)
class Axis:
    """The axis that the rows of a chart share, in per cent of its width; it includes zero.

    Args:
        least: Where it begins, at most 0.
        most: Where it ends, at least 0.
    """

    least: float
    most: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Axis:
        """Return the axis that all values fit on.

        >>> axis = Axis.over([-25, 75])
        >>> axis.at(0), axis.left(-25), axis.width(-25)
        ('25.00', '0.00', '25.00')
        """
        ends = [0.0, *values]
        return cls(min(ends), max(ends))

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], measure: str) -> Axis:
        """Return the axis of bars with their intervals."""
        return cls.over(row[name] for row in rows for name in (measure, "low", "high"))

    def at(self, value: float) -> str:
        """Return where a value lies."""
        return f"{self._place(value):.2f}"

    def left(self, value: float) -> str:
        """Return where the bar of a value begins."""
        return self.at(min(0.0, value))

    def width(self, value: float) -> str:
        """Return how wide the bar of a value is."""
        return f"{abs(self._place(value) - self._place(0)):.2f}"

    def _place(self, value: float) -> float:
        return 100 * (value - self.least) / ((self.most - self.least) or 1.0)


def compared(tables: Mapping[str, pa.Table], most: int = _TOP) -> dict[str, Any]:
    """Return the most frequent records of a release with what each group says of them alone, and their axis.

    A record is shown with its published share where it has one, else with the plain blend.
    """
    rows = tables["records"].slice(0, most).to_pylist()
    published = _published(tables)
    for row in rows:
        blend = row["weight"] * row["optin"] + (1 - row["weight"]) * row["client"]
        row["blended"] = published.get((row["query"], row["url"]), blend)
        row["apart"] = row["shift_z"] is not None and abs(row["shift_z"]) > APART
        for who in ("optin", "client"):
            reach = _ERRORS * row[f"{who}_stderr"]
            row[f"{who}_low"], row[f"{who}_high"] = row[who] - reach, row[who] + reach
    ends = ("blended", "optin_low", "optin_high", "client_low", "client_high")
    axis = Axis.over(row[end] for row in rows for end in ends)
    return {"rows": rows, "axis": axis, "disagreement": disagreement(tables["records"])}


def _published(tables: Mapping[str, pa.Table]) -> dict[tuple[str, str], float]:
    table = tables.get("clicks")
    if table is None:
        return {}
    columns = (table[name].to_pylist() for name in ("query", "url", "share"))
    return {(query, url): share for query, url, share in zip(*columns, strict=True)}


def disagreement(table: pa.Table) -> str:
    """Say of how many records the two groups disagree, and how many of so many would by chance."""
    scores = table["shift_z"].drop_null().to_pylist()
    if not scores:
        return ""
    apart = sum(abs(z) > APART for z in scores)
    many = f"{number(len(scores))} tested record{'' if len(scores) == 1 else 's'}"
    verb = "none is" if apart == 0 else "1 is" if apart == 1 else f"{number(apart)} are"
    return (
        f"Of {many}, {verb} more than {APART:g} standard errors apart between the two groups; "
        "of people who search alike, about 1 record in 370 would be, by chance."
    )
