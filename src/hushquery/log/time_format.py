"""Read times in a format that the caller states, and times that the caller writes, alike on every engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from hushquery.engine import call
from hushquery.errors import UsageError
from hushquery.log.normalise import MILLISECONDS_FROM, SCALE, TIME_LIMIT, after_1970, pattern_for, stripped

#: What spreadsheets write, each with the form that reads it.
EXAMPLES = {"26.09.2026 12:20": "%d.%m.%Y %H:%M", "9/26/2026 1:05 PM": "%m/%d/%Y %I:%M %p"}

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH, _MINUTE = "1[0-2]|0?[1-9]", "[0-5]?[0-9]"
_LONGEST_FORMAT = 100
# No engine takes these alike where they stand for themselves; a digit could not be told from a number beside it.
_NOT_ALONE = set("\\^$*?[]{}|0123456789")


def _any_case(name: str) -> str:
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in name)


# For each letter the pattern of what it reads, and an example.
_PARTS = {
    "Y": ("[1-9][0-9]{3}", "1970"),
    "y": ("[0-9]{2}", "70"),
    "m": (_MONTH, "01"),
    "b": ("|".join(_any_case(name[:3]) for name in _MONTHS), "Jan"),
    "B": ("|".join(map(_any_case, _MONTHS)), "January"),
    "d": ("3[01]|[12][0-9]|0?[1-9]", "01"),
    "H": ("2[0-3]|[01]?[0-9]", "00"),
    "I": (_MONTH, "12"),
    "p": ("[AaPp][Mm]", "AM"),
    "M": (_MINUTE, "00"),
    "S": (_MINUTE, "00"),
    "f": ("[0-9]{1,6}", "0"),
    "z": ("[+-](?:0[0-9]|1[0-4]):?[0-5][0-9]", "+0000"),
}
_WORDS = set("bBpz")


@dataclass(frozen=True)
class TimeOptions:
    """How times are written, as the caller says."""

    # ``s`` or ``ms`` for numbers; by default each number's size decides, see ``MILLISECONDS_FROM``.
    unit: str | None = None
    form: TimeFormat | None = None  # the form of text; then nothing else is read


@dataclass(frozen=True)
class TimeFormat:
    """A ``strptime`` form of times, checked on construction and read alike by every engine.

    Years have four digits (``%Y``, 1000 or later) or two (``%y``: 69 to 99 mean 1969 to 1999). Day, month and hour may
    lack a leading zero unless numbers touch. Month names are English. Times without a zone (``%z``) are in UTC.
    """

    format: str

    def __post_init__(self) -> None:
        if not isinstance(self.format, str) or not 0 < len(self.format) <= _LONGEST_FORMAT:
            raise self._wrong("it is not a short text")
        if re.sub("%[a-zA-Z]", "", self.format).count("%"):
            raise self._wrong("it has a % without a letter")
        unknown = [letter for letter in self.letters if letter not in _PARTS]
        if unknown:
            raise self._wrong(f"%{unknown[0]} is not known")
        if any(not one.isprintable() or one in _NOT_ALONE for one in re.sub("%[a-zA-Z]", "", self.format)):
            raise self._wrong("between the letters it holds a digit or one of \\ ^ $ * ? [ ] { } |")
        if len(set(self.letters)) < len(self.letters):
            raise self._wrong("it has a letter twice")
        self._check_whole()

    def _check_whole(self) -> None:
        has = set(self.letters)
        for what, either in (("year", "Yy"), ("month", "mbB"), ("day", "d")):
            if len(has & set(either)) != 1:
                raise self._wrong(f"it must have one {what}: {' or '.join('%' + letter for letter in either)}")
        if len(has & set("HI")) > 1 or ("I" in has) != ("p" in has):
            raise self._wrong("an hour is %H, or %I together with %p")
        for small, large in (("M", "HI"), ("S", "M"), ("f", "S")):
            if small in has and not has & set(large):
                raise self._wrong(f"it has %{small} without %{large[0]}")

    def _wrong(self, why: str) -> UsageError:
        shown = repr(self.format) if isinstance(self.format, str) and len(self.format) <= _LONGEST_FORMAT else "given"
        forms = ", ".join(f"{form!r} for {text}" for text, form in EXAMPLES.items())
        return UsageError(
            f"the time format {shown} can't be used", why=why, fix=f"Write it like {forms}; letters: {' '.join(_PARTS)}"
        )

    @property
    def letters(self) -> list[str]:
        """The letters behind the percent signs, in their order."""
        return re.findall("%([a-zA-Z])", self.format)

    @cached_property
    def _shape(self) -> str:
        pattern = ""
        parts = re.split("(%[a-zA-Z])", self.format)
        for place, part in enumerate(parts):
            if place % 2 == 0:
                pattern += "".join(f"[{one}]" if one in ".+()" else one for one in part)
                continue
            one = _PARTS[part[1]][0]
            touching = [parts[place - 1] == "" and place > 1, parts[place + 1] == "" and place + 2 < len(parts)]
            if any(touching) and part[1] not in _WORDS:
                one = one.replace("0?", "0").replace("]?", "]")
            pattern += f"({one})"
        return f"^{pattern}$"

    def micros(self, column: Any, dialect: str) -> Any:
        """Return a column of text in whole microseconds, missing where it is not of this form or no such day exists."""
        text = stripped(column, dialect)
        shape = pattern_for(self._shape, dialect)
        if dialect == "duckdb":
            fits = text.re_search(shape).ifelse(text, None)
            moment = call("try_strptime", fits, self.format, returns="timestamp")
            return call("epoch_us", moment, returns="int64")
        fits = text.re_search(shape).fill_null(False)
        sample = re.sub("%([a-zA-Z])", lambda match: _PARTS[match[1]][1], self.format)
        known = fits.ifelse(text, sample)
        parts = {letter: known.re_extract(shape, place) for place, letter in enumerate(self.letters, start=1)}
        exists, answer = _parts_to_micros(parts)
        return (fits & exists).ifelse(answer, None)


def _parts_to_micros(parts: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return whether there is such a moment, and its microseconds, from the texts of the letters of a form."""
    import ibis

    def number(letter: str) -> Any:
        return parts[letter].cast("int64") if letter in parts else ibis.literal(0, "int64")

    year = number("Y")
    if "y" in parts:
        short = number("y")
        year = (short < 69).ifelse(short + 2000, short + 1900)
    name = parts.get("b", parts.get("B"))
    month = number("m")
    if name is not None:
        begins = name.substr(0, 3).lower()
        month = ibis.cases(*((begins == one[:3].lower(), i) for i, one in enumerate(_MONTHS, start=1)), else_=0)
    hour = number("H")
    if "I" in parts:
        hour = number("I") % 12 + (parts["p"].lower() == "pm").ifelse(12, 0)
    exists, answer = after_1970(year, month, number("d"), hour, number("M"), number("S"))
    if "f" in parts:
        answer = answer + parts["f"].rpad(6, "0").cast("int64")
    if "z" in parts:
        zone = parts["z"].replace(":", "")
        ahead = (zone.substr(1, 2).cast("int64") * 60 + zone.substr(3, 2).cast("int64")) * (60 * 10**6)
        answer = answer - (zone.substr(0, 1) == "-").ifelse(-ahead, ahead)
    return exists, answer


def instant(value: str | float | datetime | date, name: str, unit: str | None = None) -> int:
    """Return ``since`` or ``until`` in microseconds, by the same rules as a row's time."""
    try:
        if isinstance(value, str):
            text = value.strip()
            value = float(text) if text.lstrip("+-").replace(".", "", 1).isdigit() else datetime.fromisoformat(text)
        if isinstance(value, date):
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            gap = moment - datetime(1970, 1, 1, tzinfo=UTC)
            return (gap.days * 86400 + gap.seconds) * 10**6 + gap.microseconds
        scale = SCALE[unit or ("ms" if abs(value) >= MILLISECONDS_FROM else "s")]
        answer = round(value * scale)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(
            f"{name} is not a time", fix="Write 2006-03-01, 2006-03-01T12:00:00+00:00 or a number"
        ) from None
    if abs(answer) >= TIME_LIMIT:
        raise UsageError(f"{name} is out of range", fix="Write a time within 100,000 years of its origin")
    return answer


def instant_text(micros: int) -> str:
    """Return what :func:`instant` returned as ISO text in UTC; beyond the year 9999 as a number.

    >>> instant_text(instant("2026-11-02", "since"))
    '2026-11-02T00:00:00Z'
    """
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} microseconds after 1970"
    return moment.isoformat().replace("+00:00", "Z")
