"""What leaves an engine: the Arrow tables that come to this process, counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock


@dataclass
class Meter:
    """What a function returned while it was measured."""

    tables: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(table.nbytes for table in self.tables)


@contextmanager
def metered(module: ModuleType, name: str = "fetch") -> Iterator[Meter]:
    """Count the Arrow tables that a module's function brings out of an engine while the block runs."""
    meter, function = Meter(), getattr(module, name)

    def counted(expression: Any) -> Any:
        meter.tables.append(function(expression))
        return meter.tables[-1]

    with mock.patch.object(module, name, counted):
        yield meter
