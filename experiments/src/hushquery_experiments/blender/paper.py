"""What Avent et al. 2017 (BLENDER) state about their evaluation, and whether it is so here.

Only what its text says: its plots and the cells of its tables (figures 8 and 9) were not at hand. A verdict is computed
from the rows of the run, for the paper's own algorithm with Theorem 5 corrected. It is "reproduced" or "not reproduced"
where two standard errors decide it, and "can't be told" where they do not, or where the statement has no measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hushquery_experiments.blender.verdicts import (
    Judge,
    Row,
    above_ldpminer,
    all_but_longest,
    all_of,
    begins,
    best_is,
    every,
    falls,
    hardly_longer,
    longer_is_worse_and_hits_more,
    minor,
    misplaces,
    misplaces_fewer,
    needs_about,
    of_paper,
    reached,
    stays_the_same,
    thirty_percent,
    where,
    worth_measuring,
    yandex_is_higher,
)

__all__ = [
    "PARAMETERS",
    "STATEMENTS",
    "UNIQUE_QUERIES",
    "VERDICTS",
    "Parameters",
    "Reading",
    "Row",
    "Statement",
    "beside",
    "reached",
    "where",
]

#: How to read a number off the rows of one figure, profile and mode.
Reading = Callable[[Sequence[Row]], str]
#: What may come of a statement.
VERDICTS: Mapping[bool | None, str] = {True: "reproduced", False: "not reproduced", None: "can't be told"}

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
    """Something the paper says, how to read the same off our data, and how to judge it by them.

    Args:
        figure: Which rows it is about.
        profile: Whose; "both" for a comparison of the two.
        statement: What it says.
        ours: What is read off the rows of one mode.
        judge: Whether it is so; None where that can't be told.
        whole: Whether ``ours`` reads all rows at once, not mode by mode.
    """

    figure: str
    profile: str
    statement: str
    ours: Reading
    judge: Judge
    whole: bool = False


def beside(figures: Mapping[str, Sequence[Row]]) -> list[dict[str, str]]:
    """Put what was measured beside what the paper says, with a verdict."""
    found = []
    for one in STATEMENTS:
        rows = list(figures.get(one.figure, ()))
        if one.profile == "both":
            rows = rows if {row["profile"] for row in rows} == set(PARAMETERS) else []
        else:
            rows = where(rows, profile=one.profile)
        if not rows:
            continue
        if one.whole or "mode" not in rows[0]:
            paper, best = one.ours(rows), ""
        else:
            paper, best = (one.ours(where(rows, mode=mode)) for mode in ("paper", "best"))
        head = {"figure": one.figure, "profile": one.profile, "said": one.statement}
        found.append({**head, "paper": paper, "best": best, "verdict": VERDICTS[one.judge(rows)]})
    return found


def _regressions(rows: Sequence[Row]) -> str:
    names = {"blended": "blend", "optin": "opt-in", "direct": "direct", "client": "summed"}
    counts = {name: rows[0][f"{name}_regressions"] for name in names}
    return "on average: " + ", ".join(
        f"{names[name]} {count:.1f}" for name, count in counts.items() if count is not None
    )


def _first_of_columns(rows: Sequence[Row]) -> str:
    off = [abs(row["blended"] / row["true"] - 1) for row in rows if row["blended"] is not None]
    return f"first run: off by {min(off):.0%} to {max(off):.0%}" if off else "not listed"


def _l1_by_f_c(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return "f_C is not used"
    parts = []
    for name, column in (("clients", "client_l1"), ("blend", "l1")):
        best, last = min(rows, key=lambda row: float(row[column])), rows[-1]
        parts.append(f"{name} {best[column]:.4f} at {best['f_c']:g}, {last[column]:.4f} at {last['f_c']:g}")
    return "L1 best and last: " + "; ".join(parts)


def _best_f_c(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return "f_C is not used"
    top = max(rows, key=lambda row: float(row["client_ndcg"]))
    values = [row["ndcg"] for row in rows]
    return f"clients best at {top['f_c']:g} ({top['client_ndcg']:.3f}); blend {min(values):.3f} to {max(values):.3f}"


def _beside_optin(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return "f_C is not used"
    apart = [row["ndcg"] - row["optin_ndcg"] for row in rows]
    return f"blend less opt-in: {min(apart):+.3f} to {max(apart):+.3f}"


def _l1_range(rows: Sequence[Row]) -> str:
    values = [row["l1"] for row in rows]
    return f"{min(values):.4f} to {max(values):.4f}"


def _l1_ends(rows: Sequence[Row]) -> str:
    parts = []
    for size in sorted({row["head_size"] for row in rows}):
        line = [row for row in where(rows, head_size=size) if reached(row)]
        if len(line) > 1:
            parts.append(f"M={size}: {line[0]['l1']:.4f} to {line[-1]['l1']:.4f}")
    return ", ".join(parts) or _NO_LIST


def _beside_ldpminer(rows: Sequence[Row]) -> str:
    theirs = [row["ndcg_rank_based"] for row in where(rows, mode="ldpminer")]
    own = [row["ndcg_list"] for row in where(rows, mode="paper", head_size=10)]
    return f"LDPMiner {min(theirs):.3f} to {max(theirs):.3f}, `paper` {min(own):.3f} to {max(own):.3f}"


def _l1_of_f_o(rows: Sequence[Row]) -> str:
    if rows[0]["mode"] == "best":
        return "everybody finds the list and measures it"
    return "; ".join(
        f"{row['f_o']:g}, M={row['head_size']}: L1 {row['l1']:.4f}, NDCG {row['ndcg']:.3f}"
        for row in rows
        if row["f_o"] in (0.95, 0.99)
    )


def _projected(rows: Sequence[Row]) -> str:
    parts = []
    for place in sorted({row["place"] for row in rows}):
        with_it, without = (
            where(rows, place=place, way=way)[0] for way in ("paper, variance corrected", "paper, not projected")
        )
        parts.append(f"{without['l1']:.4f} to {with_it['l1']:.4f}")
    return "L1 without and with projection: " + ", ".join(parts)


def _by_profile(rows: Sequence[Row]) -> str:
    parts = []
    for size in sorted({row["head_size"] for row in rows}):
        at = [row for row in where(rows, head_size=size, epsilon=4.0) if reached(row)]
        if len(at) == len(PARAMETERS):
            parts.append(f"M={size}: " + ", ".join(f"{row['profile']} {row['ndcg']:.3f}" for row in at))
    return "epsilon 4, " + "; ".join(parts) if parts else _NO_LIST


def _least_ndcg_of_ten(rows: Sequence[Row]) -> str:
    values = [row["ndcg_list"] for row in rows if row["head_size"] == 10]
    return f"{min(values):.3f} to {max(values):.3f}"


def _starts(size: int, x: str, show: str) -> Reading:
    def read(rows: Sequence[Row]) -> str:
        full = [row[x] for row in where(rows, head_size=size) if reached(row)]
        return f"{min(full):{show}} or more" if full else "never here"

    return read


def _needs(size: int, least: float) -> Reading:
    def read(rows: Sequence[Row]) -> str:
        full = [row for row in where(rows, head_size=size) if reached(row)]
        good = [row["optin"] for row in full if row["ndcg"] >= least]
        return f"{min(good):.1%} or more" if good else "not reached here"

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
    Statement("9", "aol", "The blend's shares of the top 10 queries are similar to the true ones.", _first_of_columns,
              lambda _: None),
    Statement("9", "aol", "Of the top 10 queries the blend misplaces only one.", _regressions,
              misplaces(0.0, 1.5, "blended")),
    Statement("9", "aol", "Clients' direct estimates misplace only one.", _regressions, misplaces(0.0, 1.5, "direct")),
    Statement("9", "aol", "Opt-in users' and clients' sums misplace several.", _regressions,
              misplaces(1.5, math.inf, "optin", "client")),
    Statement("9", "aol", "The blend misplaces fewer than the sums that it is made from.", _regressions,
              of_paper(lambda rows: misplaces_fewer(rows[0], "blended", "optin", "client"))),
    Statement("11", "aol", "The larger f_C, the better L1 of clients and of the blend.", _l1_by_f_c,
              lambda rows: all_of([best_is("f_c", 0.95, name, low=True)(rows) for name in ("client_l1", "l1")])),
    Statement("11", "aol", "Clients' NDCG is best at f_C = 0.85.", _best_f_c,
              best_is("f_c", 0.85, "client_ndcg", low=False)),
    Statement("11", "aol", "The blend's NDCG does not depend on f_C.", _best_f_c, stays_the_same("ndcg")),
    Statement("11", "aol", "The blend's NDCG is nearly that of opt-in users alone.", _beside_optin,
              stays_the_same("ndcg", "optin_ndcg")),
    Statement("11", "aol", "The blend's L1 depends on f_C.", _l1_range, lambda rows: not stays_the_same("l1")(rows)),
    Statement("12", "aol", "NDCG of a list of 10 is above 0.95 for epsilon 1 to 5.", _least_ndcg_of_ten,
              every("ndcg_list", 0.95, head_size=10)),
    Statement("12", "aol", "Qin et al. (LDPMiner) reach about 0.30 at best, by ranks.", _beside_ldpminer,
              thirty_percent, whole=True),
    Statement("12", "aol", "BLENDER is above Qin et al. at every epsilon.", _beside_ldpminer, above_ldpminer,
              whole=True),
    Statement("13", "aol", "A list of 50 exists from 4.5% opt-in on.", _starts(50, "optin", ".1%"),
              begins(50, "optin", 0.045)),
    Statement("13", "aol", "L1 falls as more users opt in, up to 10%.", _l1_ends, falls("optin")),
    Statement("13", "yandex", "L1 falls as more users opt in.", _l1_ends, falls("optin")),
    Statement("13", "yandex", "2.5% opt-in suffice for a list of 500.", _starts(500, "optin", ".1%"),
              of_paper(lambda rows: any(r["optin"] == 0.025 and reached(r) for r in where(rows, head_size=500)))),
    Statement("14", "aol", "About 5% opt-in are needed for an NDCG of 0.95 (here: list of 50).", _needs(50, 0.95),
              needs_about(50, 0.95, 0.05)),
    Statement("14", "yandex", "At 1.5% opt-in NDCG is above 0.95 for all but the longest list.",
              _by_size("optin", 0.015), all_but_longest("optin", 0.015, 1, 0.95)),
    Statement("15", "aol", "A list of 50 exists for epsilon 3 or more.", _starts(50, "epsilon", "g"),
              begins(50, "epsilon", 3.0)),
    Statement("15", "aol", "L1 falls steadily as epsilon grows.", _l1_ends, falls("epsilon")),
    Statement("15", "yandex", "L1 falls steadily as epsilon grows.", _l1_ends, falls("epsilon")),
    Statement("15", "yandex", "L1 is below 0.1 from epsilon 1 on.", _largest_l1, every("l1", 0.1, above=False)),
    Statement("16", "yandex", "At epsilon 1 NDCG is 0.95 and above for all but the two longest lists.",
              _by_size("epsilon", 1.0), all_but_longest("epsilon", 1.0, 2, 0.95)),
    Statement("16", "both", "NDCG is higher for Yandex than for AOL.", _by_profile, yandex_is_higher),
    Statement("fo", "aol", "More than 95% of the opt-in users for the list make it hardly longer.", _list_by_f_o,
              hardly_longer),
    Statement("fo", "aol", "The few who measure are worth it, in L1 and NDCG (here: 5% against 1%).", _l1_of_f_o,
              worth_measuring),
    *(
        Statement("mc", profile, "One record per client is always best.", _best_m_c,
                  best_is("m_c", 1, "l1", low=True))
        for profile in PARAMETERS
    ),
    *(
        Statement("m", profile, "The longer the list, the less accurate it is, and the more useful.", _by_m,
                  of_paper(longer_is_worse_and_hits_more))
        for profile in PARAMETERS
    ),
    *(
        Statement("ablation", profile, "Estimates of `*` have a minor effect on L1, through the projection.",
                  _projected, minor)
        for profile in PARAMETERS
    ),
)  # fmt: skip
