"""How many typing mistakes lie between two texts."""

from __future__ import annotations

__all__ = ["allowed_edits", "edits"]


def edits(one: str, other: str, limit: int) -> int | None:
    """Count the mistakes between two texts, or give None when there are more than ``limit``.

    A mistake is a character too many, too few, a wrong one, or two neighbours exchanged; no character takes part in two
    mistakes. This is the restricted Damerau-Levenshtein distance (optimal string alignment). Only the diagonal band
    that can stay within the limit is computed, so the cost is the length times the limit.

    References:
        F. J. Damerau, A technique for computer detection and correction of spelling errors, CACM 7(3), 1964.
        E. Ukkonen, Algorithms for approximate string matching, Information and Control 64, 1985 (the band).

    >>> edits("weather", "waether", 2), edits("weather", "whether", 2), edits("weather", "leeds", 2)
    (1, 2, None)
    """
    if one == other:
        return 0
    if len(one) > len(other):
        one, other = other, one
    if limit <= 0 or len(other) - len(one) > limit:
        return None
    start = 0
    while start < len(one) and one[start] == other[start]:
        start += 1
    end = 0
    while end < len(one) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    if not one:
        return len(other)
    return _banded(one, other, limit)


def _banded(one: str, other: str, limit: int) -> int | None:
    too_many = limit + 1
    width = len(other)
    older = [too_many] * (width + 1)
    old = [j if j <= limit else too_many for j in range(width + 1)]
    for i, a in enumerate(one, 1):
        first, last = max(1, i - limit), min(width, i + limit)
        new = [too_many] * (width + 1)
        if i <= limit:
            new[0] = i
        smallest = new[0]
        for j in range(first, last + 1):
            b = other[j - 1]
            if a == b:
                cost = old[j - 1]
            else:
                cost = 1 + min(old[j - 1], old[j], new[j - 1])
                if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b and older[j - 2] < cost:
                    cost = min(cost, older[j - 2] + 1)
            new[j] = cost
            smallest = min(smallest, cost)
        # An exchange reaches back two rows, so both must be beyond the limit before giving up.
        if smallest > limit and min(old) > limit:
            return None
        older, old = old, new
    return old[width] if old[width] <= limit else None


def allowed_edits(text: str) -> int:
    """Give how many mistakes are forgiven in a text: more in a longer one, none in one or two characters.

    >>> [allowed_edits(text) for text in ("ab", "leeds", "weather", "weather forecast leeds")]
    [0, 1, 2, 3]
    """
    length = len(text)
    return 0 if length < 3 else 1 if length < 6 else 2 if length < 13 else 3
