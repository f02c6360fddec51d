"""The private report: what is wrong with a log, counted by kind, for the steward's eyes only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "LINES_SHOWN", "Defect", "Defects"]

#: Every kind of defect, in the order a report lists them.
KINDS = (
    "too few columns",
    "too many columns",
    "unclosed quote",
    "bad JSON",
    "bad encoding",
    "line too long",
    "no user",
    "no query",
    "unreadable time",
    "damaged file",
)

#: How many line numbers a report gives per kind.
LINES_SHOWN = 20


@dataclass(frozen=True)
class Defect:
    """One kind of defect: how often, and where first.

    Attributes:
        kind: One of :data:`KINDS`.
        count: How many rows have it.
        lines: The first places as (file, line number); empty where the source has no lines.
    """

    kind: str
    count: int
    lines: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        files: dict[str, list[str]] = {}
        for file, line in self.lines:
            files.setdefault(file, []).append(str(line))
        places = "; ".join(f"{file}: {', '.join(lines)}" for file, lines in files.items())
        return f"{self.kind}: {self.count}" + (f" ({places})" if places else "")


@dataclass(frozen=True)
class Defects:
    """Everything wrong with a log. True if there is anything. Not for publication: its counts are exact.

    >>> print(Defects.gather([Defect("no user", 2, (("log.csv", 7),)), Defect("no user", 1, (("log.csv", 9),))]))
    PRIVATE: defects of the log, exact counts, not for publication
      no user: 3 (log.csv: 7, 9)
    """

    found: tuple[Defect, ...] = ()

    @classmethod
    def gather(cls, parts: Iterable[Defect]) -> Defects:
        """Add up what was found in the parts of a log, in the order of its lines."""
        counts: dict[str, int] = {}
        lines: dict[str, list[tuple[str, int]]] = {}
        for part in parts:
            counts[part.kind] = counts.get(part.kind, 0) + part.count
            lines.setdefault(part.kind, []).extend(part.lines)
        return cls(
            tuple(Defect(kind, counts[kind], tuple(lines[kind][:LINES_SHOWN])) for kind in KINDS if counts.get(kind))
        )

    def __bool__(self) -> bool:
        return bool(self.found)

    def count(self, kind: str) -> int:
        """Give how many rows have one kind of defect."""
        return sum(defect.count for defect in self.found if defect.kind == kind)

    def in_short(self) -> str:
        """Give kinds and counts in one line."""
        return ", ".join(f"{defect.kind}: {defect.count}" for defect in self.found) or "none"

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data, for the file that ``--private-report`` writes."""
        return {
            "private": "exact counts of a secret log; not for publication",
            "defects": [
                {
                    "kind": defect.kind,
                    "count": defect.count,
                    "first": [{"file": file, "line": line} for file, line in defect.lines],
                }
                for defect in self.found
            ],
        }

    def __str__(self) -> str:
        if not self.found:
            return "PRIVATE: the log has no defects"
        rows = [f"  {defect}" for defect in self.found]
        return "\n".join(["PRIVATE: defects of the log, exact counts, not for publication", *rows])
