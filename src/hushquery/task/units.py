"""How numbers are written in a task file, and the one form each has in the task's hash.

Epsilons are exact: 4, 4.0, "4" and "8/2" are the same number and hash alike. A length of time is text with a unit
("7d"), hashed as whole seconds; a size is a number of bytes or text with a unit ("64KiB").
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from hushquery.core.budget import exact
from hushquery.errors import UsageError

__all__ = ["Bytes", "Exact", "Seconds", "Whole", "duration", "size", "spelled", "whole"]

# The longest length of time and the largest number that a task may name: whatever is larger is a slip.
_MOST_SECONDS = 100 * 366 * 86400
_MOST = 2**53

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
# Longer texts are no numbers, and reading their digits would take time.
_MOST_CHARACTERS = 80


def duration(value: object) -> int:
    """Read a length of time as whole seconds.

    >>> duration("7d"), duration("30m"), duration(90)
    (604800, 1800, 90)
    """
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,12})\s*([smhdw])", value.strip())
        if match is None:
            raise UsageError("not a length of time", fix='Write a whole number and a unit: "45s", "30m", "12h", "7d"')
        seconds = int(match[1]) * _SECONDS[match[2]]
    else:
        seconds = whole(value)
    if not 1 <= seconds <= _MOST_SECONDS:
        raise UsageError("a length of time is from one second to a hundred years")
    return seconds


def spelled(seconds: int) -> str:
    """Write a length of time in the largest unit that divides it.

    >>> spelled(604800), spelled(5400)
    ('7d', '90m')
    """
    unit = next(unit for unit in "dhms" if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def size(value: object) -> int:
    """Read a size as a number of bytes.

    >>> size("64KiB"), size(65536), size("64 kB")
    (65536, 65536, 64000)
    """
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,12})\s*(B|[kMG]B|[KMG]iB)", value.strip())
        if match is None:
            raise UsageError("not a size", fix='Write a number of bytes, or with a unit: "64KiB", "1MB", "50GB"')
        return int(match[1]) * _BYTES[match[2]]
    return whole(value)


def whole(value: object) -> int:
    """Read a whole number; 50.0 is one, true and "50" are not.

    >>> whole(50.0)
    50
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > _MOST:
        raise UsageError("not a whole number", fix="Write digits without quotes, such as 50")
    if value != int(value):
        raise UsageError("not a whole number", fix="Write it without a fraction, such as 50")
    return int(value)


def _exact(value: Any) -> Fraction:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        raise UsageError("too long for a number", fix="Write a number such as 4, 0.5, 1/3 or ln(10)")
    number = exact(value)
    # The canonical form of a task writes it as a fraction, and whoever reads that must be able to.
    if len(str(number)) > _MOST_CHARACTERS:
        raise UsageError("too many digits for a number", fix="Write a number such as 4, 0.5, 1/3 or ln(10)")
    return number


#: An exact number: 4, 4.0, "1/3" or "ln(10)".
Exact = Annotated[
    Fraction,
    BeforeValidator(_exact),
    PlainSerializer(str),
    WithJsonSchema(
        {
            "type": ["number", "string"],
            "minimum": 0,
            "maxLength": _MOST_CHARACTERS,
            "examples": [4.0, "ln(10)", "1/3"],
        }
    ),
]

#: A length of time in seconds.
Seconds = Annotated[
    int,
    BeforeValidator(duration),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "pattern": r"^\s*[0-9]{1,12}\s*[smhdw]\s*$",
            "minimum": 1,
            "maximum": _MOST_SECONDS,
            "examples": ["7d", "30m"],
        }
    ),
]

#: A size in bytes.
Bytes = Annotated[
    int,
    BeforeValidator(size),
    WithJsonSchema(
        {
            "type": ["integer", "string"],
            "pattern": r"^\s*[0-9]{1,12}\s*(B|kB|MB|KiB|MiB)\s*$",
            "examples": [65536, "64KiB"],
        }
    ),
]

#: A whole number.
Whole = Annotated[int, BeforeValidator(whole)]
