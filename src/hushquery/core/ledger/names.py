"""Names of populations: which are placeholders, and which may stand for the same people."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from hushquery.errors import UsageError

# Below this a changed letter makes another word: "uk" is no misspelt "us".
_SHORTEST_TYPO = 5
# Words that say nothing about whose data it is.
_SMALL = re.compile(r"a|all|an|and|at|by|for|from|in|its|my|of|on|or|our|that|the|their|these|this|to|with|your")
# What examples and help texts write where the name belongs, without blanks and signs.
_PLACEHOLDER = re.compile(
    r"(the|your)?(name|population)(name)?|your(people|users|readers|customers)|nameof(the)?(people|population)|whose\w*"
    r"|placeholder|changeme|fixme|todo|tbd|xxx+"
)


def check_named(population: str) -> None:
    """Refuse what an example writes in place of a name: nobody's budget would be kept under it.

    >>> check_named("readers of example.org")
    >>> check_named("<your site's readers>")
    Traceback (most recent call last):
    ...
    hushquery.errors.UsageError: the population "<your site's readers>" is a placeholder, not a name. ...
    """
    if (
        re.fullmatch(r"\s*<[^<>]*>\s*", population)
        or _PLACEHOLDER.fullmatch(_letters(population))
        or not population.strip(". \u2026")
    ):
        raise UsageError(
            f'the population "{population}" is a placeholder, not a name. Nothing was spent',
            why="The ledger keeps the budget of these people under their name, for good",
            fix="Say whose data it is, such as 'readers of example.org', always in the same words",
        )


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name whose people ``name`` may stand for too, if there is one: names that differ in case,
    blanks, punctuation or digits (the users of 2025 are mostly those of 2026), in one letter missing, added, changed or
    swapped with its neighbour, in the folder, schema or ending around the name of a file or table, or only in the order
    of their words, in small words (the, of, our) and in singular or plural.

    >>> near_name("Custmers", ["visits", "customers"]), near_name("users of 2026", ["users of 2025"])
    ('customers', 'users of 2025')
    >>> near_name("public.searches", ["searches"]), near_name("uk", ["us"])
    ('searches', None)
    >>> near_name("our shop's customers", ["customers of the shop"])
    'customers of the shop'
    """
    return next((other for other in known if other != name and _near(name, other)), None)


def _near(name: str, other: str) -> bool:
    one, two = _letters(name), _letters(other)
    if one == two:
        return bool(one or (re.search(r"\d", name) and re.search(r"\d", other)))
    if one in _parts(other) or two in _parts(name):
        return bool(one and two)
    if _content(name) == _content(other):
        return bool(one and two)
    return min(len(one), len(two)) >= _SHORTEST_TYPO and _one_typo(one, two)


def _letters(name: str) -> str:
    return re.sub(r"[\W\d_]+", "", unicodedata.normalize("NFKC", name).casefold())


def _content(name: str) -> set[str]:
    """Return the words that say whose data it is, in the singular; the last word always counts ("plan a")."""
    words = re.findall(r"[^\W\d_]+", re.sub(r"['\u2019]s\b", "", unicodedata.normalize("NFKC", name).casefold()))
    return {_singular(word) for word in [*(word for word in words[:-1] if not _SMALL.fullmatch(word)), *words[-1:]]}


def _singular(word: str) -> str:
    for ending, instead in (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("sses", "ss"), ("xes", "x")):
        if len(word) > len(ending) + 1 and word.endswith(ending):
            return word.removesuffix(ending) + instead
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


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
