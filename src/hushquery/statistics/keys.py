"""Keys of a histogram as values of the column they are looked for in.

A key of the wrong type would be found nowhere and give a count of zero that looks like a result, so it is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hushquery.errors import DataError

__all__ = ["keys_in_column"]


def keys_in_column(keys: Sequence[Any], column: Any) -> list[Any]:
    """Give the keys as literals of the type of an Ibis column, or refuse them."""
    kind = column.type()
    if kind.is_null():
        return list(keys)  # nobody has a value, whatever it would have been
    found = [_converted(key, kind) for key in keys]
    wrong = [key for i, key in enumerate(keys) if found[i] is None or found[i] in found[:i]]
    if wrong:
        raise DataError(
            f"the key {str(wrong[0])!r} is no value of the column, or stands for one named before",
            why=f"the column holds {kind}",
            fix="Give keys of that type, each once",
        )
    return found


def _converted(key: Any, kind: Any) -> Any:
    """Give a key as a value of a type, or None where it is not one."""
    if kind.is_string():
        return key if isinstance(key, str) else None
    if kind.is_boolean():
        return key if isinstance(key, bool) else None
    if isinstance(key, bool):
        return None
    if kind.is_integer():
        if isinstance(key, str):  # as a command line gives it
            return int(key) if key.lstrip("-").isdecimal() and str(int(key)) == key else None
        return key if isinstance(key, int) else None
    if kind.is_floating():
        return float(key) if isinstance(key, int | float) else None
    if kind.is_decimal():
        return Decimal(key) if isinstance(key, int | Decimal) else None
    if kind.is_timestamp():
        return key if isinstance(key, datetime.datetime) else None
    if kind.is_date():
        return key if isinstance(key, datetime.date) and not isinstance(key, datetime.datetime) else None
    return None
