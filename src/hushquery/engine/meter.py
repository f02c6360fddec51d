"""What leaves the engine: a meter for the rows and bytes that answers bring into this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

__all__ = ["Meter", "metered", "passed_through"]


@dataclass
class Meter:
    """What came out of engines while it was read.

    Attributes:
        answers: How many questions were answered.
        rows: The rows of all answers.
        bytes: The bytes of their columns in memory.
        largest: The bytes of the largest answer.
    """

    answers: int = 0
    rows: int = 0
    bytes: int = 0
    largest: int = 0

    def add(self, table: Any) -> None:
        """Count an Arrow table."""
        self.answers += 1
        self.rows += table.num_rows
        self.bytes += table.nbytes
        self.largest = max(self.largest, table.nbytes)


_RUNNING: ContextVar[tuple[Meter, ...]] = ContextVar("meters of what leaves the engine", default=())


@contextmanager
def metered() -> Iterator[Meter]:
    """Count what :func:`hushquery.engine.execute` gives while the block runs, on any engine; meters may be nested.

    >>> from hushquery.engine import as_table, execute
    >>> with metered() as meter:
    ...     _ = execute(as_table({"n": [1, 2, 3]}))
    >>> meter.answers, meter.rows, meter.bytes >= 24
    (1, 3, True)
    """
    meter = Meter()
    before = _RUNNING.set((*_RUNNING.get(), meter))
    try:
        yield meter
    finally:
        _RUNNING.reset(before)


def passed_through(table: Any) -> Any:
    """Give an Arrow table that came out of an engine on, counted by every meter that runs."""
    for meter in _RUNNING.get():
        meter.add(table)
    return table
