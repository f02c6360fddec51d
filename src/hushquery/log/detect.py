"""Say what a file looks like: which format its lines are rows of. Advice for the steward; nothing is read by it."""

from __future__ import annotations

from collections.abc import Sequence

from hushquery.log.formats import FIXED, SHAPES, has_shape
from hushquery.log.report import count_kinds
from hushquery.log.time_format import TimeOptions


def looks_like(lines: Sequence[str]) -> str:
    """Return which format most of the lines are of, in words without any of their content; empty if none.

    A format of fixed columns only if most lines then are rows with a user and a query.
    """
    for kind in (*SHAPES, "jsonl"):
        shaped = [line.encode() for line in lines if has_shape(kind, line)]
        if 2 * len(shaped) <= len(lines):
            continue
        if kind == "jsonl" or 2 * count_kinds(shaped, FIXED[kind], TimeOptions()).get("", 0) > len(shaped):
            return kind
    for kind, separator in (("tsv", "\t"), ("csv", ","), ("csv", ";"), ("csv", "|")):
        counts = [line.count(separator) + 1 for line in lines]
        common = max(set(counts), key=counts.count, default=0)
        if common > 1 and 2 * counts.count(common) > len(lines):
            return f"{kind} with {common} columns"
    return ""
