"""Times in a form that the steward names, such as ``%d.%m.%Y %H:%M``: read alike by every engine, row by row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hushquery.errors import UsageError
from hushquery.log.normalise import after_1970, pattern_for, stripped

__all__ = ["EXAMPLES", "TimeFormat"]

#: What spreadsheets write, each with the form that reads it.
EXAMPLES = {"26.09.2026 12:20": "%d.%m.%Y %H:%M", "9/26/2026 1:05 PM": "%m/%d/%Y %I:%M %p"}

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH, _MINUTE = "1[0-2]|0?[1-9]", "[0-5]?[0-9]"
_LONGEST = 100
# No engine takes these alike where they stand for themselves; a digit could not be told from a number beside it.
_NOT_ALONE = set("\\^$*?[]{}|0123456789")


def _any_case(name: str) -> str:
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in name)


# For each letter what it reads, and one such text.
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
class TimeFormat:
    """A form of times in the letters of ``strptime``, checked when it is made.

    Years have four digits (``%Y``, from 1000 on) or two (``%y``: 69 to 99 are of the last century). Day, month and
    hour may lack their leading zero, unless numbers stand side by side. Month names (``%b``, ``%B``) are English. Times
    without a zone (``%z``) are in UTC.

    >>> TimeFormat("%d.%m.%Y %H:%M").format
    '%d.%m.%Y %H:%M'
    """

    format: str

    def __post_init__(self) -> None:
        if not isinstance(self.format, str) or not 0 < len(self.format) <= _LONGEST:
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
        shown = repr(self.format) if isinstance(self.format, str) and len(self.format) <= _LONGEST else "given"
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
        """Give a column of text in whole microseconds, missing where the text is not of this form or no such day is."""
        import ibis

        text = stripped(column, dialect)
        shape = pattern_for(self._shape, dialect)
        if dialect == "duckdb":
            fits = ibis.ifelse(text.re_search(shape), text, ibis.null("string"))
            return _duckdb(fits, self.format)
        fits = text.re_search(shape).fill_null(False)
        sample = re.sub("%([a-zA-Z])", lambda match: _PARTS[match[1]][1], self.format)
        known = ibis.ifelse(fits, text, sample)
        found = {letter: known.re_extract(shape, place) for place, letter in enumerate(self.letters, start=1)}
        exists, answer = self._counted(found)
        return ibis.ifelse(fits & exists, answer, ibis.null("int64"))

    def _counted(self, found: dict[str, Any]) -> tuple[Any, Any]:
        import ibis

        def number(letter: str) -> Any:
            return found[letter].cast("int64") if letter in found else ibis.literal(0, "int64")

        year = number("Y")
        if "y" in found:
            short = number("y")
            year = ibis.ifelse(short < 69, short + 2000, short + 1900)
        name = found.get("b", found.get("B"))
        month = number("m")
        if name is not None:
            begins = name.substr(0, 3).lower()
            month = ibis.cases(*((begins == one[:3].lower(), i) for i, one in enumerate(_MONTHS, start=1)), else_=0)
        hour = number("H")
        if "I" in found:
            hour = number("I") % 12 + ibis.ifelse(found["p"].lower() == "pm", 12, 0)
        exists, answer = after_1970(year, month, number("d"), hour, number("M"), number("S"))
        if "f" in found:
            answer = answer + found["f"].rpad(6, "0").cast("int64")
        if "z" in found:
            zone = found["z"].replace(":", "")
            ahead = (zone.substr(1, 2).cast("int64") * 60 + zone.substr(3, 2).cast("int64")) * (60 * 10**6)
            answer = answer - ibis.ifelse(zone.substr(0, 1) == "-", -ahead, ahead)
        return exists, answer


def _duckdb(text: Any, form: str) -> Any:
    import ibis

    def try_strptime(text: Any, form: Any) -> Any:
        """Stand for DuckDB's function: Ibis reads its signature and never runs it."""
        return text, form

    def epoch_us(moment: Any) -> Any:
        """Stand for DuckDB's function."""
        return moment

    moment = ibis.udf.scalar.builtin(try_strptime, signature=(("string", "string"), "timestamp"))(text, form)
    return ibis.udf.scalar.builtin(epoch_us, signature=(("timestamp",), "int64"))(moment)
