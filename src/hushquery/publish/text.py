"""Compare text as people mean it, in any script: folding, words, character n-grams, and typing mistakes.

Folding is for matching only; queries are shown as released. Scripts without blanks between words (Chinese, Thai, ...)
are cut into overlapping pairs of characters, which needs no dictionary.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

# Scripts without blanks between words.
_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai and Lao, Burmese, Khmer
    *((0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF)),  # Hiragana, Katakana, Bopomofo
    *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF)),  # Chinese radicals and characters
    *((0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)

# Marks that readers leave out: accents, Hebrew points, Arabic vowel signs; and what can't be seen at all.
# Vowel signs of Indic and Thai writing are marks too, but words differ by them: they stay.
_DROPPED = (
    *((0x0300, 0x036F), (0x0591, 0x05BD), (0x05BF, 0x05C7)),  # accents, Hebrew points
    *((0x0610, 0x061A), (0x0640, 0x0640), (0x064B, 0x065F), (0x0670, 0x0670)),  # Arabic; tatweel stretches a word
    *((0x06D6, 0x06DC), (0x06DF, 0x06E8), (0x06EA, 0x06ED)),
    *((0x00AD, 0x00AD), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F)),  # zero width, marks of direction
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),  # variation selectors: the same emoji in black or in colour
)

# Letters that are typed one for the other.
_SAME = {"ى": "ي", "ة": "ه", "ı": "i", "ø": "o", "ł": "l", "đ": "d", "’": "'"}

_TABLE: dict[int, str | None] = {
    **{point: None for first, last in _DROPPED for point in range(first, last + 1)},
    **dict.fromkeys(range(0xD800, 0xE000), "�"),  # broken bytes from a command line
    **{ord(letter): other for letter, other in _SAME.items()},
}


def _characters(ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


_RUN = re.compile(
    f"[{_characters(_UNSPACED)}]+"
    # Python's \w leaves out the vowel signs of Indic scripts.
    f"|(?:(?![{_characters(_UNSPACED)}])[\\w\u0900-\u0dff])+"
    # Each emoji or symbol is a word of its own.
    "|[\u2190-\u2bff\U0001f000-\U0001faff]"
)
_ASCII_RUN = re.compile(r"\w+")
_SILENT = str.maketrans("", "", "'׳״")  # don't = dont; Hebrew abbreviations

_IS_UNSPACED = np.zeros(0x110000, dtype=bool)
for _first, _last in _UNSPACED:
    _IS_UNSPACED[_first : _last + 1] = True

_BLANK = 0x20
# A code point needs 21 bits, so three of them fit exactly into a 64-bit integer: no hashing, no collisions.
_BITS = 21


def fold(text: str, *, trim: bool = True) -> str:
    """Return the form in which texts are compared, without case, accents and width, and with ``trim`` extra blanks.

    >>> fold("  Café   OLÉ "), fold("שָׁלוֹם") == fold("שלום"), fold("ＡＢＣ")
    ('cafe ole', True, 'abc')
    """
    if text.isascii():
        folded = text.lower()
    else:
        parts = unicodedata.normalize("NFKD", text).translate(_TABLE).casefold()
        # Folding case can bring back what was dropped (a Turkish capital I has a dot), so it is dropped again.
        parts = unicodedata.normalize("NFKD", parts).translate(_TABLE)
        folded = unicodedata.normalize("NFC", parts)
    return " ".join(folded.split()) if trim else folded


def key_of(folded: str) -> str:
    """Return the words, unspaced runs and symbols of a folded text, single blanks between; else the text itself."""
    quiet = folded.translate(_SILENT)
    runs = (_ASCII_RUN if quiet.isascii() else _RUN).findall(quiet)
    return " ".join(runs) or folded


@lru_cache(maxsize=65536)
def tokens(key: str) -> tuple[str, ...]:
    """Cut a key into what is matched: words, or pairs of characters where a script has no blanks.

    >>> tokens(key_of(fold("Weather, Leeds"))), tokens(key_of("北京天气 app"))
    (('weather', 'leeds'), ('北京', '京天', '天气', 'app'))
    """
    words: list[str] = []
    for run in key.split():
        unspaced = len(run) > 2 and _IS_UNSPACED[ord(run[0])]
        words += [run[i : i + 2] for i in range(len(run) - 1)] if unspaced else [run]
    return tuple(words)


def grams(keys: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return distinct n-grams of keys as (gram, index), sorted by gram: three letters in a word, two if unspaced."""
    padded = [f" {key} " for key in keys]
    points = np.frombuffer("".join(padded).encode("utf-32-le"), dtype=np.uint32).astype(np.int64)
    owner = np.repeat(np.arange(len(padded)), [len(text) for text in padded])
    before, here, after, owner = points[:-2], points[1:-1], points[2:], owner[1:-1]
    unspaced = _IS_UNSPACED[here]
    # In unspaced script: the pair that starts here, or a character that stands alone.
    kept = (here != _BLANK) & (~unspaced | (after != _BLANK) | (before == _BLANK))
    code = np.where(unspaced, 0, before << 2 * _BITS) | here << _BITS | after
    code, owner = code[kept], owner[kept]
    order = np.lexsort((owner, code))
    code, owner = code[order], owner[order]
    fresh = np.ones(len(code), dtype=bool)
    fresh[1:] = (code[1:] != code[:-1]) | (owner[1:] != owner[:-1])
    return code[fresh], owner[fresh]


def has_digits_changed(one: str, other: str) -> bool:
    """Return whether two texts differ in their digits: then they mean different things, whatever their distance."""
    return [c for c in one if c.isdigit()] != [c for c in other if c.isdigit()]


def edits(one: str, other: str, limit: int) -> int | None:
    """Count the typing mistakes between two texts; None when there are more than ``limit``.

    Restricted Damerau-Levenshtein distance (optimal string alignment): a character too many, too few or wrong, or two
    neighbours exchanged (F. J. Damerau, CACM 7(3), 1964). Only the diagonal band within the limit is computed
    (E. Ukkonen, Algorithms for approximate string matching, Information and Control 64, 1985).

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
    """Return how many mistakes are forgiven in a text: more in a longer one, none in one or two characters.

    >>> [allowed_edits(text) for text in ("ab", "leeds", "weather", "weather forecast leeds")]
    [0, 1, 2, 3]
    """
    length = len(text)
    return 0 if length < 3 else 1 if length < 6 else 2 if length < 13 else 3
