"""Place the bars and intervals of a chart on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Axis:
    """The axis that the rows of a chart share, in per cent of its width; it includes zero."""

    least: float
    most: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Axis:
        """Return the axis that all values fit on."""
        ends = [0.0, *values]
        return cls(min(ends), max(ends))

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], measure: str) -> Axis:
        """Return the axis of bars with their intervals, which are drawn from zero on."""
        return cls.over(end for row in rows for end in (row[measure], max(0.0, row["low"]), row["high"]))

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
