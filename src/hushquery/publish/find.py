"""Find released queries by a pattern, ranked: ``fear of *`` is the study of human fears.

References:
    A. Korolova, K. Kenthapadi, N. Mishra, A. Ntoulas, Releasing search queries and clicks privately, WWW 2009,
    which ranks human fears from a private release and finds them much as the raw log has them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushquery.errors import UsageError
from hushquery.publish.tables import checked_limit, queries_of
from hushquery.publish.text import fold

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["Found", "find", "matches"]


@dataclass(frozen=True)
class Found:
    """A query that fits a pattern.

    Attributes:
        rank: Its place by noisy count or share among those that fit, from 1; None where neither was released.
        query: The query.
        count: Its noisy count; None where shares were released.
        low: The lower end of the interval.
        high: The upper end.
        best_rank: The best rank it may truly have, by the intervals of all that fit.
        worst_rank: The worst.
        share: Its share; None where counts were released.
    """

    rank: int | None
    query: str
    count: int | None
    low: float | None
    high: float | None
    best_rank: int | None
    worst_rank: int | None
    share: float | None = None


def find(release: Release, patterns: str | Sequence[str], limit: int | None = None) -> tuple[Found, ...]:
    """Give the queries that fit a pattern, the most frequent first.

    Args:
        release: Any release with queries.
        patterns: ``*`` stands for any text, also none; ``?`` for one character; everything else for itself, whatever
            its case, accents or width. Of several patterns a query has to fit one.
        limit: How many to give at most; all by default.

    >>> from hushquery.publish.example import tiny_release
    >>> for row in find(tiny_release(), "fear of *"):
    ...     print(row.rank, row.query, row.count, (row.best_rank, row.worst_rank))
    1 fear of flying 90 (1, 2)
    2 fear of heights 70 (1, 2)
    """
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    if not any(pattern.strip() for pattern in wanted):
        raise UsageError("the pattern is empty", fix="Give a pattern such as 'fear of *'; '*' gives every query")
    if limit is not None:
        checked_limit(limit)
    tests = [_expression(pattern) for pattern in wanted if pattern.strip()]
    queries = queries_of(release)
    fits = [index for index, folded in enumerate(queries.folded) if any(test.fullmatch(folded) for test in tests)]
    if queries.measured is None:
        names = sorted(queries.names[index] for index in fits)
        return tuple(Found(None, name, None, None, None, None, None) for name in names[:limit])
    values, lows, highs = queries.measured.value, queries.measured.low, queries.measured.high
    fits.sort(key=lambda index: (-values[index], queries.names[index]))
    all_lows, all_highs = sorted(lows[fits].tolist()), sorted(highs[fits].tolist())
    rows = []
    for rank, index in enumerate(fits[:limit], 1):
        surely_above = len(fits) - bisect_right(all_lows, highs[index])
        surely_below = bisect_left(all_highs, lows[index])
        ranks = (1 + surely_above, len(fits) - surely_below)
        rows.append(Found(rank, queries.names[index], *queries.numbers(index), *ranks, queries.share(index)))
    return tuple(rows)


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text fits a pattern, as :func:`find` understands both.

    >>> matches("fear of *", "Fear of Flying"), matches("c?t", "cat"), matches("c?t", "coat"), matches("[a]", "a")
    (True, True, False, False)
    """
    return _expression(pattern).fullmatch(fold(text)) is not None


def _expression(pattern: str) -> re.Pattern[str]:
    """Write a pattern as a regular expression that takes linear time per star, whatever the pattern.

    What stands between two stars is taken where it first fits and never tried again (an atomic group): a later place
    could not fit more.
    """
    pieces = [re.sub(r"\s+", " ", fold(piece, trim=False)) for piece in re.split(r"[*?]", pattern)]
    pieces[0] = pieces[0].lstrip()
    pieces[-1] = pieces[-1].rstrip()
    parts = [re.escape(pieces[0])]
    for wildcard, piece in zip(re.findall(r"[*?]", pattern), pieces[1:], strict=True):
        if wildcard == "*":
            parts.append("")
        else:
            parts[-1] += "."
        parts[-1] += re.escape(piece)
    first, *rest = parts
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    found = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)
