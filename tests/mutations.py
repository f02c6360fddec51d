"""Every small way to spoil a JSON document: leave a part out, put another thing in its place, add a key."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

#: What is put where something else belongs.
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "x", [], {})

#: A key that no document has.
STRANGE = "unknown_key"

Path = tuple[str | int, ...]


def places(document: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every part of a document with the way to it; the whole document comes first."""
    yield at, document
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, part in parts:
        yield from places(part, (*at, name))


def without(document: Any, *at: str | int) -> Any:
    """The document without one of its parts."""
    changed = copy.deepcopy(document)
    del _within(changed, at[:-1])[at[-1]]
    return changed


def instead(document: Any, value: Any, *at: str | int) -> Any:
    """The document with something else in one place."""
    if not at:
        return value
    changed = copy.deepcopy(document)
    _within(changed, at[:-1])[at[-1]] = value
    return changed


def spoiled(document: Any) -> Iterator[tuple[str, Any]]:
    """Every mutation of a document, with its name."""
    for at, part in places(document):
        where = "/".join(map(str, at))
        if at:
            yield f"without {where}", without(document, *at)
        for value in WRONG:
            if json.dumps(value) != json.dumps(part):
                yield f"{value!r} at {where}", instead(document, value, *at)
        if isinstance(part, dict):
            yield f"{STRANGE} at {where}", instead(document, {**part, STRANGE: 1}, *at)


def _within(document: Any, at: Path) -> Any:
    for name in at:
        document = document[name]
    return document
