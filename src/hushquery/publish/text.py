"""Text as a person means it: folding, words and character n-grams, for any script.

Folding is for matching only; what is shown is always the query as it was released. Two texts are the same when their
folded forms are: case, width and compatibility forms (NFKC), accents, Hebrew points, Arabic vowel signs, invisible
characters and runs of blanks make no difference.

Scripts that put no blanks between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) are cut into overlapping pairs
of characters instead of words, which needs no dictionary and finds a word anywhere in a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["fold", "grams", "has_digits_changed", "key_of", "tokens"]

# Scripts without blanks between words.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Chinese radicals
    (0x3005, 0x3007),
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Chinese characters
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

# Marks that readers leave out: accents, Hebrew points, Arabic vowel signs; and what can't be seen at all.
# Vowel signs of Indic and Thai writing are marks too, but words differ by them: they stay.
_DROPPED = (
    (0x00AD, 0x00AD),
    (0x0300, 0x036F),
    (0x0591, 0x05BD),
    (0x05BF, 0x05C7),
    (0x0610, 0x061A),
    (0x0640, 0x0640),  # tatweel only stretches a word
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06DC),
    (0x06DF, 0x06E8),
    (0x06EA, 0x06ED),
    (0x200B, 0x200F),  # zero width characters and direction marks
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0xFE00, 0xFE0F),  # variation selectors: the same emoji in black or in colour
    (0xFEFF, 0xFEFF),
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
    """Give the form of a text in which texts are compared.

    Args:
        text: Any text; what is no valid Unicode becomes a replacement character.
        trim: Whether blanks at the ends go and runs of blanks become one.

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
    """Give the runs of a folded text with single blanks between: words, runs of unspaced script, symbols.

    A text without any of them (only punctuation) is its own key, so that it can be found at all.
    """
    quiet = folded.translate(_SILENT)
    runs = (_ASCII_RUN if quiet.isascii() else _RUN).findall(quiet)
    return " ".join(runs) or folded


@lru_cache(maxsize=65536)
def tokens(key: str) -> tuple[str, ...]:
    """Cut a key into what is matched: words, or pairs of characters where a script has no blanks.

    >>> tokens(key_of(fold("Weather, Leeds"))), tokens(key_of("北京天气 app"))
    (('weather', 'leeds'), ('北京', '京天', '天气', 'app'))
    """
    found: list[str] = []
    for run in key.split():
        if len(run) > 2 and _IS_UNSPACED[ord(run[0])]:
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.append(run)
    return tuple(found)


def grams(keys: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give the distinct character n-grams of many keys as (gram, index of key), sorted by gram.

    Words give trigrams, their ends marked by a blank, and none across words, so that the order of words is free;
    unspaced scripts give bigrams.
    """
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
    """Tell whether two texts differ in their digits: then they mean different things, whatever their distance."""
    return [c for c in one if c.isdigit()] != [c for c in other if c.isdigit()]
