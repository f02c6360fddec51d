"""Names of populations: one form for each, and those that are nearly the same as another.

Who mistypes a population, or names the same people by the year, would open a second budget for them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from hushquery.errors import UsageError

__all__ = ["clean_text", "near_name"]

# Below this a changed letter makes another word: "uk" is no misspelt "us".
_SHORTEST_TYPO = 5


def clean_text(text: str, meaning: str, *, lines: bool = False, empty: bool = False) -> str:
    """Return a text in the one form in which it is kept: composed (NFC), stripped, printable.

    The same name typed on two systems must be one account, and what is kept must be safe to print.
    """
    clean = unicodedata.normalize("NFC", text).strip()
    allowed = "\n\t" if lines else ""
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in allowed for c in clean):
        raise UsageError(what=f"{meaning} has control characters in it", fix="Use plain text")
    if not clean and not empty:
        raise UsageError(what=f"{meaning} is empty", fix="Use a few words, such as 'readers of example.org'")
    return clean


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name whose people ``name`` may stand for too, if there is one.

    Near are names that differ only in case, blanks, punctuation and digits (the users of 2025 are mostly those of
    2026), in one letter that is missing, added, changed or swapped with its neighbour, or in the folder, schema or
    ending around a file's or table's name.

    >>> near_name("Custmers", ["visits", "customers"]), near_name("users of 2026", ["users of 2025"])
    ('customers', 'users of 2025')
    >>> near_name("public.searches", ["searches"]), near_name("uk", ["us"])
    ('searches', None)
    """
    return next((other for other in known if other != name and _near(name, other)), None)


def _near(name: str, other: str) -> bool:
    one, two = _letters(name), _letters(other)
    if one == two:
        return bool(one) or (_has_digit(name) and _has_digit(other))
    if one in _parts(other) or two in _parts(name):
        return bool(one and two)
    return min(len(one), len(two)) >= _SHORTEST_TYPO and _one_typo(one, two)


def _letters(name: str) -> str:
    return re.sub(r"[\W\d_]+", "", unicodedata.normalize("NFKC", name).casefold())


def _has_digit(name: str) -> bool:
    return re.search(r"\d", name) is not None


def _parts(name: str) -> list[str]:
    """Return what a path or a dotted name is made of; a name of several words is neither."""
    return [] if re.search(r"\s", name) else [_letters(part) for part in re.split(r"[/\\.]", name)]


def _one_typo(one: str, two: str) -> bool:
    if len(one) < len(two):
        one, two = two, one
    start = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(two))
    left, right = one[start:], two[start:]
    if len(one) > len(two):
        return left[1:] == right
    return left[1:] == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])
