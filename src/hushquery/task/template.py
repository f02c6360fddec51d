"""Task files for people: their JSON Schema, and readable errors."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from hushquery.errors import HushqueryError, UsageError

_OBJECT = {"type": "object"}
# Pydantic gives the bounds of our own number types its own names.
_BOUNDS = {"ge": "minimum", "le": "maximum"}


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of task files, with the key that each kind of task can't do without."""
    schema = _rename_bounds(model.model_json_schema())
    listed, headed = _needs("task", "domain", "array"), {"required": ["head"], "properties": {"head": _OBJECT}}
    needs = {
        "setting": listed,
        "number": _needs("task", "highest", "integer"),
        "text": _needs("client", "rappor", "object"),
    }
    rules: list[dict[str, Any]] = [
        {"if": {"properties": {"task": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}}}, "then": then}
        for kind, then in needs.items()
    ]
    searches = {"properties": {"task": {"properties": {"kind": {"const": "searches"}}}}}
    rules.append({"if": searches, "then": {"anyOf": [listed, headed]}})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "allOf": rules}


def _needs(part: str, key: str, kind: str) -> dict[str, Any]:
    return {"properties": {part: {"required": [key], "properties": {key: {"type": kind}}}}}


def _rename_bounds(part: Any) -> Any:
    if isinstance(part, list):
        return [_rename_bounds(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {_BOUNDS.get(name, name): _rename_bounds(value) for name, value in part.items()}


def near(name: str, known: Iterable[str]) -> str:
    """Return the known name that was probably meant, as a question, or else all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"it may be one of {', '.join(names)}"


def refusal(error: ValidationError, model: type[BaseModel], source: str) -> UsageError:
    """Return one error that names all problems that Pydantic found, without quoting long values."""
    # A list entry that is neither of two kinds is reported once for each; once is enough.
    problems = list(dict.fromkeys(_words(one, model) for one in error.errors(include_url=False, include_input=False)))
    count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    fix = "Correct the file and check it with `hushquery task check FILE`; `hushquery task new` shows every key"
    return UsageError(f"{source} is not a valid task: {count}", why="; ".join(problems), fix=fix)


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[tuple[str, str]]:
    """Return each problem that Pydantic found with the place in the file that it concerns, such as ``task.name``."""
    found = []
    for one in error.errors(include_url=False, include_input=False):
        words = _words(one, model)
        named = re.match(r"\[([a-z.]+)\] (?:(\w+): )?(\w+)?", words)
        place = f"{named[1]}.{named[2] or named[3]}" if named else "task.domain" if "domain" in words else ""
        found.append((place, words[named.start(3) :] if named else words))
    return found


def _words(problem: Mapping[str, Any], model: type[BaseModel]) -> str:
    where = [str(part) for part in itertools.takewhile(lambda part: isinstance(part, str), problem["loc"])]
    if len(where) < len(problem["loc"]):
        return f"{_place(where[:-1])}{where[-1]}: entry {problem['loc'][len(where)] + 1} is not what belongs there"
    kind = problem["type"]
    if kind == "extra_forbidden":
        return f"{_place(where[:-1])}unknown key {where[-1]!r}, {near(where[-1], _keys(model, where[:-1]))}"
    if kind == "missing":
        return f"{_place(where[:-1])}{where[-1]} is missing"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, HushqueryError):
        text = ". ".join(part.rstrip(".") for part in (cause.what, cause.fix) if part)
    else:
        text = str(problem["msg"]).removeprefix("Value error, ")
    return f"{_place(where[:-1])}{where[-1]}: {text}" if where else text


def _place(where: Sequence[str]) -> str:
    return f"[{'.'.join(where)}] " if where else ""


def _keys(model: type[BaseModel], where: Sequence[str]) -> list[str]:
    """Return the keys of the part of a model that a path leads to."""
    for name in where:
        field = model.model_fields.get(name)
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        parts = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not parts:
            return []
        model = parts[0]
    return list(model.model_fields)
