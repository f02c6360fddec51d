"""Estimates: noisy numbers with their uncertainty, their guarantee, and the marks of what was done to them since.

Nothing that works on estimates can spend budget or see data: it only sees what could be published already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hushquery.core.guarantee import Guarantee
from hushquery.errors import UsageError

__all__ = ["Estimate", "Estimates", "Intervals", "NoiseWidth"]

#: The lower and the upper ends of all rows at a level, where noise is not all there is to them.
Intervals = Callable[[float], tuple[Sequence[float], Sequence[float]]]


class NoiseWidth(Protocol):
    """What is known of the noise in an estimate: how far it reaches."""

    def half_width(self, level: float) -> float:
        """Give w such that the noise stays within -w..w with probability ``level``."""
        ...


# A tuple, because a table can have a hundred thousand of them; a frozen dataclass takes four times as long.
class Estimate(NamedTuple):
    """One noisy number: its label, value, standard error and interval at the level of its table."""

    label: str
    value: float
    stderr: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.label}: {self.value:,.6g} ({self.low:,.6g} to {self.high:,.6g})"


@dataclass(frozen=True)
class Estimates:
    """A table of noisy numbers under one guarantee.

    Args:
        rows: The numbers.
        level: The coverage of each interval.
        guarantee: What their publication promises; None for numbers that come from somewhere else.
        marks: What was done to the raw, unbiased numbers, in order; empty for raw ones.
        noise: The noise of every row where it is the same, so that intervals at other levels can be made.
        intervals: Makes the intervals of all rows at a level, where they are not value +- a width.
    """

    rows: tuple[Estimate, ...]
    level: float = 0.95
    guarantee: Guarantee | None = None
    marks: tuple[str, ...] = ()
    noise: NoiseWidth | None = field(default=None, repr=False, compare=False)
    intervals: Intervals | None = field(default=None, repr=False, compare=False)

    @classmethod
    def raw(
        cls,
        labels: Sequence[str],
        values: Sequence[float],
        stderrs: Sequence[float],
        *,
        level: float = 0.95,
        guarantee: Guarantee | None = None,
        noise: NoiseWidth | None = None,
        intervals: Intervals | None = None,
    ) -> Estimates:
        """Make a table of raw estimates with the given intervals, or value +- half width (of the noise, or normal)."""
        if not 0 < level < 1:
            raise UsageError("an interval's level lies between 0 and 1", fix="Give for example 0.95")
        if not len(labels) == len(values) == len(stderrs):
            raise UsageError("labels, values and standard errors are not equally many", fix="Give one of each per row")
        known, normal = noise.half_width(level) if noise is not None else None, NormalDist().inv_cdf((1 + level) / 2)
        table = cls((), level, guarantee, (), noise, intervals)
        # A server with thousands of cells may want only a few rows, and to make them all takes longer than to estimate
        # them: so they wait as columns until one is asked for.
        del table.__dict__["rows"]
        table.__dict__["_columns"] = tuple(labels), tuple(values), tuple(stderrs), normal, known
        return table

    if not TYPE_CHECKING:  # where it would hide misspelt names

        def __getattr__(self, name: str) -> Any:
            """Make the rows of a raw table, once."""
            if name != "rows" or "_columns" not in self.__dict__:
                raise AttributeError(name)
            labels, values, stderrs, normal, known = self.__dict__["_columns"]
            rows: tuple[Estimate, ...]
            if self.intervals is not None:
                rows = tuple(map(Estimate, labels, values, stderrs, *self.intervals(self.level)))
            else:
                rows = tuple(
                    Estimate(
                        label, value, stderr, value - (w := normal * stderr if known is None else known), value + w
                    )
                    for label, value, stderr in zip(labels, values, stderrs, strict=True)
                )
            return self.__dict__.setdefault("rows", rows)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, label: str) -> Estimate:
        for row in self.rows:
            if row.label == label:
                return row
        raise UsageError(
            f"there is no estimate called {label!r}", fix=f"There are: {', '.join(r.label for r in self.rows[:10])}"
        )

    @property
    def values(self) -> list[float]:
        """The numbers alone."""
        waiting = self.__dict__.get("_columns")  # their intervals need not be made for that
        return [row.value for row in self.rows] if waiting is None else list(waiting[1])

    def at_level(self, level: float) -> Estimates:
        """Give the same raw numbers with intervals at another level."""
        if self.marks:
            raise UsageError(
                "intervals at another level exist only for raw estimates",
                fix="Change the level first, then post-process",
            )
        raw = Estimates.raw(
            [r.label for r in self.rows],
            self.values,
            [r.stderr for r in self.rows],
            level=level,
            noise=self.noise,
            intervals=self.intervals,
        )
        return replace(self, rows=raw.rows, level=level)

    def changed(self, rows: Sequence[Estimate], mark: str) -> Estimates:
        """Give new rows that came from these by a named step; the guarantee stays, nothing is spent."""
        return replace(self, rows=tuple(rows), marks=(*self.marks, mark))

    def __str__(self) -> str:
        width = max((len(row.label) for row in self.rows), default=5)
        lines = [f"{'':{width}}  {'estimate':>14}  {'low':>14}  {'high':>14}   ({100 * self.level:g}% intervals)"]
        lines += [f"{r.label:{width}}  {r.value:>14,.6g}  {r.low:>14,.6g}  {r.high:>14,.6g}" for r in self.rows]
        if self.marks:
            lines.append("post-processed: " + ", then ".join(self.marks))
        if self.guarantee is not None:
            lines.append(self.guarantee.summary())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Give the table as plain data; what is no finite number is null."""
        return {
            "estimates": [
                {
                    "label": r.label,
                    "estimate": _finite(r.value),
                    **{name: _finite(getattr(r, name)) for name in ("stderr", "low", "high")},
                }
                for r in self.rows
            ],
            "level": self.level,
            "post_processing": list(self.marks),
            "guarantee": self.guarantee.to_json() if self.guarantee else None,
        }

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        summary = self.guarantee.summary() if self.guarantee else ""
        return render("notebook/estimates.html", summary=summary, rows=self.rows, marks=self.marks)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
