"""What Avent et al. 2017 (BLENDER) state about their evaluation, and what was measured here beside it.

Only what its text says: its plots and the cells of its tables (figures 8 and 9) were not at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "PARAMETERS",
    "STATEMENTS",
    "UNIQUE_QUERIES",
    "Parameters",
    "Reading",
    "Row",
    "Statement",
    "beside",
    "reached",
    "where",
]

#: One line of a figure's data.
Row = Mapping[str, Any]
#: How to read a number off the rows of one figure, profile and mode.
Reading = Callable[[Sequence[Row]], str]

_NO_LIST = "no list is that long"


@dataclass(frozen=True)
class Parameters:
    """The parameters of figure 10."""

    epsilon: float
    delta: float
    optin: float
    head_size: int
    f_o: float = 0.95
    f_c: float = 0.85
    m_o: int = 1
    m_c: int = 1


#: Figure 10, by profile.
PARAMETERS: Mapping[str, Parameters] = {
    "aol": Parameters(epsilon=4, delta=1e-5, optin=0.05, head_size=50),
    "yandex": Parameters(epsilon=4, delta=1e-7, optin=0.025, head_size=500),
}
#: How many unique queries the paper's logs have.
UNIQUE_QUERIES: Mapping[str, int] = {"aol": 4_800_000, "yandex": 13_200_000}


@dataclass(frozen=True)
class Statement:
    """Something the paper says, and how to read the same off our data."""

    figure: str
    profile: str
    said: str
    ours: Reading


def where(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Give the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def reached(row: Row) -> bool:
    """Say whether every run had a head list of the size asked for."""
    return bool(row["complete"] == row["runs"])


def beside(figures: Mapping[str, Sequence[Row]]) -> list[dict[str, str]]:
    """Put what was measured beside what the paper says."""
    found = []
    for one in STATEMENTS:
        rows = where(figures.get(one.figure, ()), profile=one.profile)
        if rows:
            ours = {mode: one.ours(where(rows, mode=mode)) for mode in ("paper", "best")}
            found.append({"figure": one.figure, "profile": one.profile, "said": one.said, **ours})
    return found


def _regressions(rows: Sequence[Row]) -> str:
    names = {"blended": "blend", "optin": "opt-in", "direct": "direct", "client": "summed"}
    counts = {name: rows[0][f"{name}_regressions"] for name in names}
    return "on average: " + ", ".join(
        f"{names[name]} {count:.1f}" for name, count in counts.items() if count is not None
    )


def _l1_by_f_c(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return "f_C is not used"
    said = []
    for name, column in (("clients", "client_l1"), ("blend", "l1")):
        best, last = min(rows, key=lambda row: float(row[column])), rows[-1]
        said.append(f"{name} {best[column]:.4f} at {best['f_c']:g}, {last[column]:.4f} at {last['f_c']:g}")
    return "L1 best and last: " + "; ".join(said)


def _best_f_c(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return "f_C is not used"
    top = max(rows, key=lambda row: float(row["client_ndcg"]))
    values = [row["ndcg"] for row in rows]
    return f"clients best at {top['f_c']:g} ({top['client_ndcg']:.3f}); blend {min(values):.3f} to {max(values):.3f}"


def _least_ndcg_of_ten(rows: Sequence[Row]) -> str:
    values = [row["ndcg_list"] for row in rows if row["head_size"] == 10]
    return f"{min(values):.3f} to {max(values):.3f}"


def _starts(size: int, x: str, show: str) -> Reading:
    def read(rows: Sequence[Row]) -> str:
        full = [row[x] for row in where(rows, head_size=size) if reached(row)]
        return f"from {min(full):{show}} on" if full else "never here"

    return read


def _needs(size: int, least: float) -> Reading:
    def read(rows: Sequence[Row]) -> str:
        full = [row for row in where(rows, head_size=size) if reached(row)]
        good = [row["optin"] for row in full if row["ndcg"] >= least]
        return f"from {min(good):.1%} on" if good else "not reached here"

    return read


def _by_size(x: str, value: float) -> Reading:
    def read(rows: Sequence[Row]) -> str:
        full = [row for row in where(rows, **{x: value}) if reached(row)]
        return ", ".join(f"M={row['head_size']}: {row['ndcg']:.3f}" for row in full) or _NO_LIST

    return read


def _largest_l1(rows: Sequence[Row]) -> str:
    values = [row["l1"] for row in rows if reached(row)]
    return f"at most {max(values):.3f}" if values else _NO_LIST


def _list_by_f_o(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return f"everybody finds the list: {rows[0]['passed']:.0f} records"
    return ", ".join(
        f"{row['f_o']:g}: {row['passed']:.0f}" for row in where(rows, head_size=10) if row["f_o"] in (0.8, 0.95, 0.99)
    )


def _best_m_c(rows: Sequence[Row]) -> str:
    top = min(rows, key=lambda row: float(row["l1"]))
    return "L1 " + ", ".join(f"{row['m_c']}: {row['l1']:.4f}" for row in rows) + f"; best with {top['m_c']}"


def _by_m(rows: Sequence[Row]) -> str:
    full = [row for row in rows if reached(row)]
    if not full:
        return _NO_LIST
    first, last = full[0], full[-1]
    return (
        f"L1 from {first['l1']:.4f} (M={first['head_size']}) to {last['l1']:.4f} (M={last['head_size']}); "
        f"hits from {first['hit_rate']:.0%} to {last['hit_rate']:.0%}"
    )


#: What the paper's text says of its figures.
STATEMENTS: Sequence[Statement] = (
    Statement(
        "9",
        "aol",
        "Of the top 10 queries the blend misplaces one, clients' direct estimates one, the others several.",
        _regressions,
    ),
    Statement("11", "aol", "The larger f_C, the better L1 of clients and of the blend.", _l1_by_f_c),
    Statement("11", "aol", "Clients' NDCG is best at f_C = 0.85; the blend's does not depend on it.", _best_f_c),
    Statement("12", "aol", "NDCG of a list of 10 is above 0.95 for epsilon 1 to 5.", _least_ndcg_of_ten),
    Statement("13", "aol", "A list of 50 exists from 4.5% opt-in on.", _starts(50, "optin", ".1%")),
    Statement("13", "yandex", "2.5% opt-in suffice for a list of 500.", _starts(500, "optin", ".1%")),
    Statement("14", "aol", "About 5% opt-in are needed for an NDCG of 0.95 (here: list of 50).", _needs(50, 0.95)),
    Statement(
        "14",
        "yandex",
        "At 1.5% opt-in NDCG is above 0.95 for all but the longest list.",
        _by_size("optin", 0.015),
    ),
    Statement("15", "aol", "A list of 50 exists from epsilon 3 on.", _starts(50, "epsilon", "g")),
    Statement("15", "yandex", "L1 is below 0.1 from epsilon 1 on.", _largest_l1),
    Statement(
        "16",
        "yandex",
        "At epsilon 1 NDCG is 0.95 and above for all but the two longest lists.",
        _by_size("epsilon", 1.0),
    ),
    Statement("fo", "aol", "More than 95% of the opt-in users for the list make it hardly longer.", _list_by_f_o),
    Statement("mc", "aol", "One record per client is always best.", _best_m_c),
    Statement("mc", "yandex", "One record per client is always best.", _best_m_c),
    Statement("m", "aol", "The longer the list, the less accurate it is, and the more useful.", _by_m),
    Statement("m", "yandex", "The longer the list, the less accurate it is, and the more useful.", _by_m),
)
