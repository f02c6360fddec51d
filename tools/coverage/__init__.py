"""Measured coverage of every interval that the product shows, over the pipeline that produces it.

A family is a module of this package with a function ``measure(quick)`` that yields cells; ``python -m tools.coverage``
runs them all and writes docs/coverage.md.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HIGH", "LEAST_INTERVALS", "LOW", "Cell"]

#: What a 95% interval may cover.
LOW, HIGH = 0.94, 0.98
#: Fewer intervals say too little: with 4,000 the standard error at .95 is .0034.
LEAST_INTERVALS = 4_000


@dataclass(frozen=True)
class Cell:
    """How often one kind of interval contained the true value, in one setting.

    Args:
        shown: Which interval a user sees, such as "released query counts".
        setting: The parameters, such as "gaussian, epsilon 1, 2,000 users".
        intervals: How many intervals were looked at.
        covered: How many of them contained the truth.
        level: What they promise.
        note: Why it may cover more than it should; the page shows it where it does.
    """

    shown: str
    setting: str
    intervals: int
    covered: int
    level: float = 0.95
    note: str = ""

    @property
    def coverage(self) -> float:
        """Return the measured share."""
        return self.covered / self.intervals

    @property
    def holds(self) -> bool:
        """Return whether enough intervals were seen and the share is in the band, or above it for a stated reason."""
        return self.intervals >= LEAST_INTERVALS and LOW <= self.coverage <= (1.0 if self.note else HIGH)
