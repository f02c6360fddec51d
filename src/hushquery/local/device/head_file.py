"""The published head list as a file: a JSON list of [query, URL] pairs, or the folder that `hushquery head` wrote."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from hushquery.errors import DataError

__all__ = ["HEAD_FILE", "read_head"]

#: The file of a head list's folder; its ``records`` are the pairs.
HEAD_FILE = "head.json"


def read_head(path: str | PathLike[str]) -> list[Any]:
    """Read a head list from a file or a folder; whether its entries are good is for the task to say."""
    file = Path(path)
    if file.is_dir():
        file /= HEAD_FILE
    try:
        items = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"the head list {file.name} can't be read", why=error.strerror or "", fix="Fetch it") from None
    except (ValueError, RecursionError):
        raise DataError(f"the head list {file.name} is not JSON", fix="Fetch it again") from None
    if isinstance(items, dict):
        items = items.get("records")
    if not isinstance(items, list):
        raise DataError(f"the head list {file.name} is not a JSON list", fix="It is a list of [query, URL] pairs")
    return items
