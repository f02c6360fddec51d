"""How commands show the numbers of a release: counts as whole numbers, shares in per cent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hushquery.cli.listing import as_rows, interval, number

__all__ = ["amount", "between", "measured_rows", "percent"]


def percent(share: float) -> str:
    """Print a share in per cent, with the minus sign of a keyboard."""
    from hushquery.templates import percent as shown

    return shown(share).replace("−", "-")


def amount(count: float | None, share: float | None) -> str:
    """Print a count or a share, whichever was released; nothing where neither was."""
    return number(count) if share is None else percent(share)


def between(low: float | None, high: float | None, share: float | None) -> str:
    """Print the interval of a count, or of a share where there is one."""
    if share is None or low is None or high is None:
        return interval(low, high)
    return f"{percent(low).removesuffix('%')} to {percent(high)}"


def measured_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Give rows as plain data, with the count or the share, whichever was released: never an empty one beside it."""
    return [_one_measure(row) for row in as_rows(rows)]


def _one_measure(row: dict[str, Any]) -> dict[str, Any]:
    ours, others = ("share", "shares"), ("count", "counts", "clicks")
    shares = any(row.get(name) not in (None, ()) for name in ours)
    return {name: value for name, value in row.items() if name not in (others if shares else ours)}
