"""The ledger over time: what was spent of each population's budget, as a chart and as a table.

Each population has a chart and a scale of its own; nothing is added up across populations. An account with periods
shows what each of them has spent, another one how its sum has grown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from hushquery.errors import UsageError

__all__ = ["epsilon_text", "ledger_charts"]

_HEIGHT, _TOP, _BOTTOM = 130, 24, 24
_OPENED = "account opened"
# What a telephone has room for.
_LABELS = 6
_MOST_BARS = 52
_COLUMNS = ("time", "account", "period", "what", "spent_epsilon", "budget_epsilon")


def epsilon_text(value: float, *, up: bool = True) -> str:
    """Print an epsilon with three digits: what was spent is rounded up, what may be spent is rounded down.

    >>> epsilon_text(3.9999997), epsilon_text(0.12345), epsilon_text(0.12345, up=False), epsilon_text(0.0)
    ('4', '0.124', '0.123', '0')
    """
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return f"{Context(prec=3, rounding=rounding).create_decimal(repr(float(value))).normalize():f}"


def ledger_charts(
    rows: Sequence[Mapping[str, Any]], accounts: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return what the macro ``ledger`` draws of each account.

    Args:
        rows: What :meth:`hushquery.core.ledger.ledger.Ledger.over_time` gives, oldest first.
        accounts: The JSON form of its accounts, for what all periods together have spent.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        _check(row)
        found.setdefault(str(row["account"]), []).append(row)
    lives = {f"{account.get('population')} ({account.get('relation')})": account for account in accounts}
    return [_account(name, entries, lives.get(name, {})) for name, entries in found.items()]


def _check(row: Mapping[str, Any]) -> None:
    spent, budget = row.get("spent_epsilon"), row.get("budget_epsilon")
    good = set(_COLUMNS) <= set(row) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        for value in (0 if spent is None else spent, budget)
    )
    if not good or _when(row) is None:
        raise UsageError(
            "a row of the ledger can't be shown",
            why=f"each has {', '.join(_COLUMNS)}",
            fix="Give what Ledger.over_time() gives",
        )


def _when(row: Mapping[str, Any]) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(row["time"]))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _account(name: str, rows: Sequence[Mapping[str, Any]], life: Mapping[str, Any]) -> dict[str, Any]:
    budget = float(rows[-1]["budget_epsilon"])
    periods = len({row["period"] for row in rows}) > 1
    most = max([budget, *map(_height, rows)]) or 1.0
    limit = _y(budget, most)
    return {
        "name": name,
        "budget": epsilon_text(budget, up=False),
        "periods": periods,
        "lifetime": _lifetime(life),
        "height": _HEIGHT,
        "bottom": _HEIGHT - _BOTTOM,
        "limit": limit,
        "above_limit": f"{float(limit) - 7:.1f}",
        "bars": _bars(rows, most) if periods else _steps(rows, most),
        "spends": [
            {"day": _day(row), "spent": _spent(row), "what": row["what"]} for row in rows if row["what"] != _OPENED
        ],
    }


def _lifetime(life: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what all periods together have spent and may spend; None where nothing is said of them."""
    spent, left = (life.get(f"lifetime_{what}_epsilon") for what in ("spent", "remaining"))
    if not isinstance(spent, int | float) or not isinstance(left, int | float):
        return None
    return {"spent": epsilon_text(spent), "left": epsilon_text(left, up=False)}


def _day(row: Mapping[str, Any]) -> str:
    when = _when(row)
    return "" if when is None else when.astimezone(UTC).date().isoformat()


def _spent(row: Mapping[str, Any]) -> str:
    return "without bound" if row["spent_epsilon"] is None else epsilon_text(float(row["spent_epsilon"]))


def _height(row: Mapping[str, Any]) -> float:
    return float(row["budget_epsilon"] if row["spent_epsilon"] is None else row["spent_epsilon"])


def _y(value: float, most: float) -> str:
    return f"{_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most:.1f}"


def _bars(rows: Sequence[Mapping[str, Any]], most: float) -> list[dict[str, str]]:
    """Return a bar for what each period has spent in all: its last row."""
    periods = list({row["period"]: row for row in rows if row["what"] != _OPENED}.values())[-_MOST_BARS:]
    wide = 100 / max(4, len(periods))
    every = math.ceil(len(periods) / _LABELS)
    drawn, said = [], ""
    for place, row in enumerate(periods):
        left, day = place * wide, ""
        if place % every == 0 and _day(row) != said:
            day = said = _day(row)
        bar = _bar(row, most, left + 0.08 * wide, 0.84 * wide)
        drawn.append({**bar, "middle": f"{left + wide / 2:.2f}", "anchor": "middle", "day": day[5:]})
    return drawn


def _steps(rows: Sequence[Mapping[str, Any]], most: float) -> list[dict[str, str]]:
    """Return steps for how the sum has grown since the account was opened."""
    seconds = [when.timestamp() if (when := _when(row)) else 0.0 for row in rows]
    # Some room behind the last spend, so that its level can be seen.
    reach = ((max(seconds) - seconds[0]) or 86400.0) * 1.25
    places = [100 * (second - seconds[0]) / reach for second in seconds]
    drawn, before, printed, said = [], 0.0, -100.0, ""
    for row, left, right in zip(rows, places, [*places[1:], 100.0], strict=True):
        day = ""
        if left - printed >= 100 / _LABELS and _day(row) != said:
            day, said, printed = _day(row), _day(row), left
        bar = _bar(row, most, left, max(0.0, right - left))
        label = {"middle": f"{left:.2f}", "anchor": "start" if left < 10 else "middle", "day": day[5:]}
        drawn.append({**bar, **label, "right": f"{right:.2f}", "before": _y(before, most)})
        before = _height(row)
    return drawn


def _bar(row: Mapping[str, Any], most: float, left: float, width: float) -> dict[str, str]:
    top = _y(_height(row), most)
    return {
        "left": f"{left:.2f}",
        "width": f"{width:.2f}",
        "top": top,
        "height": f"{_HEIGHT - _BOTTOM - float(top):.1f}",
    }
