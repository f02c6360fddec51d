"""Names of accounts that are nearly the same: who mistypes a population opens a second budget for the same people."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["near_name"]

# Below this a changed letter makes another word: "uk" is no misspelt "us".
_SHORTEST_TYPO = 5


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that ``name`` is probably meant to be, if there is one.

    Near are names that differ only in case, blanks and punctuation, in one letter that is missing, added, changed or
    swapped with its neighbour (but not in a digit: week 1 is not week 2), or in the folder, schema or ending around a
    file's or table's name.

    >>> near_name("Custmers", ["visits", "customers"])
    'customers'
    >>> near_name("public.searches", ["searches"]), near_name("week 2", ["week 1"])
    ('searches', None)
    """
    return next((other for other in known if other != name and _near(name, other)), None)


def _near(name: str, other: str) -> bool:
    one, two = _letters(name), _letters(other)
    if one == two or _letters(name) in _parts(other) or _letters(other) in _parts(name):
        return bool(one)
    if min(len(one), len(two)) < _SHORTEST_TYPO or re.sub(r"\D", "", one) != re.sub(r"\D", "", two):
        return False
    return _one_typo(one, two)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _parts(name: str) -> list[str]:
    """Give what a path or a dotted name is made of; a name of several words is neither."""
    return [] if re.search(r"\s", name) else [_letters(part) for part in re.split(r"[/\\.]", name)]


def _one_typo(one: str, two: str) -> bool:
    if len(one) < len(two):
        one, two = two, one
    start = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(two))
    left, right = one[start:], two[start:]
    if len(one) > len(two):
        return left[1:] == right
    return left[1:] == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])
