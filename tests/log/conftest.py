"""What the tests of reading share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hushquery.log import Log


def read_rows(log: Log) -> list[tuple[Any, ...]]:
    """Give the rows of a log, in no order, as the tests may."""
    table = log.table.to_pyarrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Log], list[tuple[Any, ...]]]:
    return read_rows
