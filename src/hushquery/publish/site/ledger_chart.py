"""The ledger over time: what was spent of each population's budget, as static SVG and as a table.

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
from hushquery.release.markup import isolated, shown

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


def ledger_charts(rows: Sequence[Mapping[str, Any]], accounts: Sequence[Mapping[str, Any]] = ()) -> str:
    """Draw the spends of each account.

    Args:
        rows: What :meth:`hushquery.privacy.ledger.Ledger.over_time` gives, oldest first.
        accounts: The JSON form of its accounts, for what all periods together have spent.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        _check(row)
        found.setdefault(str(row["account"]), []).append(row)
    lives = {f"{account.get('population')} ({account.get('relation')})": account for account in accounts}
    return "".join(
        _account(name, entries, lives.get(name), place) for place, (name, entries) in enumerate(found.items())
    )


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


def _account(name: str, rows: Sequence[Mapping[str, Any]], life: Mapping[str, Any] | None, place: int) -> str:
    budget = float(rows[-1]["budget_epsilon"])
    spends = [row for row in rows if row["what"] != _OPENED]
    periods = len({row["period"] for row in rows}) > 1
    caption = (
        f"<b>{isolated(name)}</b><br>The budget is epsilon {epsilon_text(budget, up=False)}"
        f"{' in each period' if periods else ''}.{_lifetime(life)}"
    )
    lines = "".join(
        f"<tr><td>{shown(_day(row))}</td><td>{shown(_spent(row))}</td><td>{shown(row['what'])}</td></tr>"
        for row in spends
    )
    table = (
        f"<details><summary>{len(spends)} spend{'' if len(spends) == 1 else 's'}, in words</summary>"
        '<div class="scroll"><table class="spends"><thead><tr><th scope="col">Day</th><th scope="col">Spent'
        f'{" in the period" if periods else ""}</th><th scope="col">On what</th></tr></thead><tbody>{lines}</tbody>'
        "</table></div></details>"
    )
    drawn = _bars(rows, budget) if periods else _steps(rows, budget)
    limit = (
        f'<line class="limit" x2="100%" y1="{_y(budget, _most(rows, budget))}" y2="{_y(budget, _most(rows, budget))}"/>'
    )
    return (
        f'<figure class="ledger"><figcaption id="account-{place}">{caption}</figcaption>'
        f'<svg class="spent-over-time" height="{_HEIGHT}" role="img" aria-labelledby="account-{place}">'
        f'<line class="axis" x2="100%" y1="{_HEIGHT - _BOTTOM}" y2="{_HEIGHT - _BOTTOM}"/>{drawn}{limit}'
        f'<text x="100%" y="{float(_y(budget, _most(rows, budget))) - 7:.1f}" text-anchor="end">budget '
        f"{epsilon_text(budget, up=False)}</text></svg>{table}</figure>"
    )


def _lifetime(life: Mapping[str, Any] | None) -> str:
    """Say what all periods together have spent and may spend; nothing where nothing is said of them."""
    spent, left = (None if life is None else life.get(f"lifetime_{what}_epsilon") for what in ("spent", "remaining"))
    if not isinstance(spent, int | float) or not isinstance(left, int | float):
        return ""
    rest = epsilon_text(left, up=False)
    return f" All periods together have spent epsilon {epsilon_text(spent)}; epsilon {rest} is left."


def _day(row: Mapping[str, Any]) -> str:
    when = _when(row)
    return "" if when is None else when.astimezone(UTC).date().isoformat()


def _spent(row: Mapping[str, Any]) -> str:
    return "without bound" if row["spent_epsilon"] is None else epsilon_text(float(row["spent_epsilon"]))


def _height(row: Mapping[str, Any]) -> float:
    return float(row["budget_epsilon"] if row["spent_epsilon"] is None else row["spent_epsilon"])


def _most(rows: Sequence[Mapping[str, Any]], budget: float) -> float:
    return max([budget, *map(_height, rows)]) or 1.0


def _y(value: float, most: float) -> str:
    return f"{_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most:.1f}"


def _bars(rows: Sequence[Mapping[str, Any]], budget: float) -> str:
    """Draw what each period has spent in all: its last row."""
    periods = list({row["period"]: row for row in rows if row["what"] != _OPENED}.values())[-_MOST_BARS:]
    wide, most = 100 / max(4, len(periods)), _most(rows, budget)
    every = math.ceil(len(periods) / _LABELS)
    drawn, said = [], ""
    for place, row in enumerate(periods):
        top, left = float(_y(_height(row), most)), place * wide
        drawn.append(
            f'<rect class="area" x="{left + 0.08 * wide:.2f}%" width="{0.84 * wide:.2f}%" y="{top:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - top:.1f}" rx="3"/>'
        )
        if place % every == 0 and _day(row) != said:
            said = _day(row)
            drawn.append(
                f'<text x="{left + wide / 2:.2f}%" y="{_HEIGHT - 6}" text-anchor="middle">{shown(said[5:])}</text>'
            )
    return "".join(drawn)


def _steps(rows: Sequence[Mapping[str, Any]], budget: float) -> str:
    """Draw how the sum has grown since the account was opened."""
    seconds = [when.timestamp() if (when := _when(row)) else 0.0 for row in rows]
    first, most = seconds[0], _most(rows, budget)
    # Some room behind the last spend, so that its level can be seen.
    reach = ((max(seconds) - first) or 86400.0) * 1.25
    places = [100 * (second - first) / reach for second in seconds]
    drawn, before, printed, said = [], 0.0, -100.0, ""
    for row, left, right in zip(rows, places, [*places[1:], 100.0], strict=True):
        top = float(_y(_height(row), most))
        drawn.append(
            f'<rect class="area" x="{left:.2f}%" width="{max(0.0, right - left):.2f}%" y="{top:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - top:.1f}"/><line class="spent" x1="{left:.2f}%" x2="{left:.2f}%" '
            f'y1="{_y(before, most)}" y2="{top:.1f}"/>'
            f'<line class="spent" x1="{left:.2f}%" x2="{right:.2f}%" y1="{top:.1f}" y2="{top:.1f}"/>'
        )
        before = _height(row)
        if left - printed >= 100 / _LABELS and _day(row) != said:
            said = _day(row)
            anchor = "start" if left < 10 else "middle"
            drawn.append(f'<text x="{left:.2f}%" y="{_HEIGHT - 6}" text-anchor="{anchor}">{shown(said[5:])}</text>')
            printed = left
    return "".join(drawn)
