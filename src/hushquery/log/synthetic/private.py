"""Write the synthetic log's private queries: what one person types and nobody else, and no release may show."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: The words of all queries, by list.
WORDS: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text("utf-8"))
#: How many private queries a user has at most.
ITEMS_PER_USER = 16

#: The recipes, by the number that stands for them: person, e-mail, phone, order, account, street address.
KINDS = ("person", "mail", "phone", "order", "account", "address")

_FIRST_NAMES = tuple(WORDS["first_names"].split())
_STREETS = ("street", "road", "lane", "avenue", "terrace", "crescent", "grove", "mews")
_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")  # 70

#: Words that only private queries have.
PRIVATE_WORDS = frozenset(_FIRST_NAMES) | frozenset(_STREETS) | {"order", "account", "number"}

# A prime, so that multiplying by anything permutes the numbers below it; all have at most ten digits.
_NUMBERS = 9_999_999_967
_STEP = 4_815_162_347
# Terms of the yandex profile are below this, private ones above.
_FIRST_PRIVATE_TERM = 90_000_000_000

_FIRST = "|".join(_FIRST_NAMES)
_SURNAME = "(?:[bdfgklmnprstvz][aeiou])"
_PRIVATE = (
    rf"(?:{_FIRST}) {_SURNAME}{{2}} {_SURNAME}{{3}}"
    rf"|(?:{_FIRST})\.{_SURNAME}{{5}}@example\.org"
    r"|555-\d{3}-\d{3}-\d{4}"
    r"|order number \d{10}"
    r"|account \d{4} \d{6}"
    rf"|\d{{1,3}} {_SURNAME}{{4}} (?:{'|'.join(_STREETS)})"
    r"|9\d{10}"
)


def which_private(queries: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return for each query whether it is private; exact, because no other query has these words or digits."""
    texts = queries if isinstance(queries, pa.Array | pa.ChunkedArray) else pa.array(list(queries), pa.string())
    matches = pc.fill_null(pc.match_substring_regex(texts, f"^(?:{_PRIVATE})$"), False)
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=np.bool_)


def private_numbers(user: npt.NDArray[np.int64], item: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number behind a user's private query; different users and items have different numbers."""
    return np.asarray((user * ITEMS_PER_USER + item + 1) * _STEP % _NUMBERS, dtype=np.int64)


def private_texts(kind: npt.NDArray[np.int64], number: npt.NDArray[np.int64], *, terms: bool) -> Any:
    """Write private queries, each by the recipe ``KINDS[kind]``, as Arrow text, or as the yandex profile's term ids."""
    if terms:
        # The kind need not show: the number alone distinguishes the query from all others.
        return pa.array(_FIRST_PRIVATE_TERM + number).cast(pa.string())
    texts = pa.nulls(len(kind), pa.string())
    for place, name in enumerate(KINDS):
        mask = kind == place
        if mask.any():
            texts = pc.replace_with_mask(texts, pa.array(mask), _by_recipe(name, number[mask]))
    return texts


def _by_recipe(kind: str, number: npt.NDArray[np.int64]) -> Any:
    first, rest = number % len(_FIRST_NAMES), number // len(_FIRST_NAMES)
    match kind:
        case "person":
            return _joined(" ", _words(_FIRST_NAMES).take(first), _syllables(rest, 0, 2), _syllables(rest, 2, 3))
        case "mail":
            return _joined("", _words(_FIRST_NAMES).take(first), ".", _syllables(rest, 0, 5), "@example.org")
        case "phone":
            parts = [_digits(number // 10_000_000, 3), _digits(number // 10_000 % 1000, 3), _digits(number % 10_000, 4)]
            return _joined("-", "555", *parts)
        case "order":
            return _joined(" ", "order number", _digits(number, 10))
        case "account":
            return _joined(" ", "account", _digits(number // 1_000_000, 4), _digits(number % 1_000_000, 6))
        case _:
            house, rest = 1 + number % 90, number // 90
            street, rest = rest % len(_STREETS), rest // len(_STREETS)
            return _joined(" ", _digits(house, 1), _syllables(rest, 0, 4), _words(_STREETS).take(street))


def _syllables(number: npt.NDArray[np.int64], skip: int, count: int) -> Any:
    """Write some of a number's digits to base 70 as syllables."""
    digits = [number // len(_SYLLABLES) ** place % len(_SYLLABLES) for place in range(skip, skip + count)]
    return _joined("", *(_words(_SYLLABLES).take(digit) for digit in digits))


def _digits(number: npt.NDArray[np.int64], width: int) -> Any:
    return pc.utf8_lpad(pa.array(number).cast(pa.string()), width, "0")


def _joined(separator: str, *parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, separator)


@cache
def _words(words: tuple[str, ...]) -> Any:
    return pa.array(words)
