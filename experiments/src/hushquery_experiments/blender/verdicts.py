"""Judge statements about BLENDER's figures by the rows of a run.

A judge looks at the rows of one figure and profile and says True, False, or None where two standard errors do not
decide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "Judge",
    "Row",
    "above_ldpminer",
    "all_but_longest",
    "all_of",
    "begins",
    "best_is",
    "every",
    "falls",
    "hardly_longer",
    "longer_is_worse_and_hits_more",
    "minor",
    "misplaces",
    "misplaces_fewer",
    "needs_about",
    "of_paper",
    "reached",
    "stays_the_same",
    "thirty_percent",
    "where",
    "worth_measuring",
    "yandex_is_higher",
]

#: One line of a figure's data.
Row = Mapping[str, Any]
#: How to judge a statement by the rows of one figure and profile, of all modes.
Judge = Callable[[Sequence[Row]], bool | None]

# So many standard errors decide.
_SURE = 2.0


def where(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def reached(row: Row) -> bool:
    """Return whether every run had a head list of the size asked for."""
    return bool(row["complete"] == row["runs"])


def all_of(judged: Sequence[bool | None]) -> bool | None:
    """Return what follows for a statement from all of its parts."""
    if False in judged:
        return False
    return True if judged and None not in judged else None


def _above(row: Row, name: str, least: float) -> bool | None:
    """Return whether a mean is at least so large, if its standard error decides."""
    margin = row[name] - least
    return None if abs(margin) < _SURE * row[f"{name}_stderr"] else bool(margin >= 0)


def _less(row: Row, than: Row, name: str, other: str | None = None) -> bool | None:
    """Return whether one row's mean is below another's, if their standard errors decide."""
    other = other or name
    margin = than[other] - row[name]
    spread = math.hypot(row[f"{name}_stderr"], than[f"{other}_stderr"])
    return None if abs(margin) <= _SURE * spread else bool(margin > 0)


def _not(judged: bool | None) -> bool | None:
    return None if judged is None else not judged


def of_paper(judge: Judge) -> Judge:
    """Judge by the paper's own algorithm."""
    return lambda rows: judge(where(rows, mode="paper"))


def misplaces(least: float, most: float, *names: str) -> Judge:
    """Judge how many of ten queries estimates misplace on average."""

    def judge(rows: Sequence[Row]) -> bool | None:
        judged = []
        for name in (f"{name}_regressions" for name in names):
            judged += [_above(rows[0], name, least), _not(_above(rows[0], name, most))]
        return all_of(judged)

    return of_paper(judge)


def misplaces_fewer(row: Row, name: str, *others: str) -> bool | None:
    """Return whether one estimate misplaces fewer queries than each of the others."""
    return all_of([_less(row, row, f"{name}_regressions", f"{other}_regressions") for other in others])


def best_is(x: str, value: float, measure: str, *, low: bool) -> Judge:
    """Judge whether a measure is best at one value of what is swept."""

    def judge(rows: Sequence[Row]) -> bool | None:
        own = [row for row in rows if row[x] == value]
        others = [row for row in rows if row[x] != value]
        better = [_less(own[0], row, measure) if low else _less(row, own[0], measure) for row in others]
        return all_of(better)

    return of_paper(judge)


def stays_the_same(first: str, second: str | None = None) -> Judge:
    """Judge whether a measure stays the same over a sweep, or is the same as another one everywhere."""

    def judge(rows: Sequence[Row]) -> bool | None:
        if second is not None:
            return not any(_less(row, row, first, second) is not None for row in rows)
        ends = (min(rows, key=lambda row: float(row[first])), max(rows, key=lambda row: float(row[first])))
        return _less(*ends, first) is None

    return of_paper(judge)


def begins(size: int, x: str, value: float) -> Judge:
    """Judge where the lists of a size begin."""

    def judge(rows: Sequence[Row]) -> bool | None:
        full = [row[x] for row in where(rows, head_size=size) if reached(row)]
        return bool(full) and min(full) == value

    return of_paper(judge)


def every(measure: str, least: float, *, above: bool = True, **wanted: Any) -> Judge:
    """Judge whether a measure is above (or below) a number in every row where the list was filled."""

    def judge(rows: Sequence[Row]) -> bool | None:
        full = [row for row in where(rows, **wanted) if row.get("complete", 0) == row["runs"] or "complete" not in row]
        return all_of([_above(row, measure, least) if above else _not(_above(row, measure, least)) for row in full])

    return of_paper(judge)


def falls(x: str, measure: str = "l1") -> Judge:
    """Judge whether a measure falls from the first to the last filled list of each size, and never clearly rises."""

    def judge(rows: Sequence[Row]) -> bool | None:
        judged: list[bool | None] = []
        for size in sorted({row["head_size"] for row in rows}):
            line = sorted((row for row in where(rows, head_size=size) if reached(row)), key=lambda row: float(row[x]))
            if len(line) > 1:
                rises = any(_less(before, after, measure) for before, after in itertools.pairwise(line))
                judged.append(False if rises else _less(line[-1], line[0], measure))
        return all_of(judged)

    return of_paper(judge)


def needs_about(size: int, least: float, value: float) -> Judge:
    """Judge from which share of opt-in users on NDCG is high enough: from about this one, and not clearly before."""

    def judge(rows: Sequence[Row]) -> bool | None:
        full = [row for row in where(rows, head_size=size) if reached(row)]
        if any(_above(row, "ndcg", least) for row in full if row["optin"] < 0.9 * value):
            return False
        return all_of([_above(row, "ndcg", least) for row in full if row["optin"] == value])

    return of_paper(judge)


def all_but_longest(x: str, value: float, missing: int, least: float) -> Judge:
    """Judge whether NDCG is high for all sizes but the longest, and whether those are the ones that fail."""

    def judge(rows: Sequence[Row]) -> bool | None:
        sizes = sorted({row["head_size"] for row in rows})
        at = {row["head_size"]: row for row in where(rows, **{x: value})}
        good = {size: size in at and reached(at[size]) and _above(at[size], "ndcg", least) for size in sizes}
        return all_of([*(good[size] for size in sizes[:-missing]), *(_not(good[size]) for size in sizes[-missing:])])

    return of_paper(judge)


def hardly_longer(rows: Sequence[Row]) -> bool | None:
    """Judge whether the list grows less from f_O = .95 to .99 than from .8 to .95, user for user."""
    passed = {row["f_o"]: row["passed"] for row in where(rows, mode="paper", head_size=10)}
    return bool((passed[0.99] - passed[0.95]) / 0.04 < (passed[0.95] - passed[0.8]) / 0.15)


def worth_measuring(rows: Sequence[Row]) -> bool | None:
    """Judge whether 5% of the opt-in users measure better than 1% of them, in L1 and in NDCG, for each size."""
    judged: list[bool | None] = []
    for size in (10, 50):
        at = {row["f_o"]: row for row in where(rows, mode="paper", head_size=size)}
        judged += [_less(at[0.95], at[0.99], "l1"), _less(at[0.99], at[0.95], "ndcg")]
    return all_of(judged)


def above_ldpminer(rows: Sequence[Row]) -> bool | None:
    """Judge whether a list of ten beats LDPMiner, by the paper's measure for its own and by ranks for the other."""
    theirs = {row["epsilon"]: row for row in where(rows, mode="ldpminer")}
    own = where(rows, mode="paper", head_size=10)
    return all_of([_less(theirs[row["epsilon"]], row, "ndcg_rank_based", "ndcg_list") for row in own])


def thirty_percent(rows: Sequence[Row]) -> bool | None:
    """Judge whether LDPMiner stays below 40% by ranks."""
    return all_of([_not(_above(row, "ndcg_rank_based", 0.4)) for row in where(rows, mode="ldpminer")])


def yandex_is_higher(rows: Sequence[Row]) -> bool | None:
    """Judge whether NDCG is higher for Yandex wherever both have a list of that size."""
    judged = []
    for row in where(rows, profile="aol", mode="paper"):
        same = where(rows, profile="yandex", mode="paper", head_size=row["head_size"], epsilon=row["epsilon"])
        if reached(row) and same and reached(same[0]):
            judged.append(_less(row, same[0], "ndcg"))
    return all_of(judged)


def minor(rows: Sequence[Row]) -> bool | None:
    """Judge whether projecting changes L1 by less than a tenth, in every setting of the ablation."""
    judged: list[bool | None] = []
    for place in sorted({row["place"] for row in rows}):
        with_it, without = (
            where(rows, place=place, way=way)[0] for way in ("paper, variance corrected", "paper, not projected")
        )
        spread = _SURE * math.hypot(with_it["l1_stderr"], without["l1_stderr"])
        change, tenth = abs(with_it["l1"] - without["l1"]), 0.1 * without["l1"]
        judged.append(True if change + spread < tenth else False if change - spread > tenth else None)
    return all_of(judged)


def longer_is_worse_and_hits_more(rows: Sequence[Row]) -> bool | None:
    """Judge whether L1 and the share of searches that are answered both grow from the shortest list to the longest."""
    full = [row for row in rows if reached(row)]
    return all_of([_less(full[0], full[-1], name) for name in ("l1", "hit_rate")]) if len(full) > 1 else None
