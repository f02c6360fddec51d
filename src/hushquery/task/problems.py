"""What is wrong with a task, in words: every problem at once, each with where it is and what to do."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from hushquery.errors import HushqueryError, UsageError

__all__ = ["near", "refusal"]


def near(name: str, known: Iterable[str]) -> str:
    """Give the known name that was probably meant, as a question; else the list of the known ones.

    >>> near("epsilom", ["epsilon", "oracle"])
    'did you mean epsilon?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"it may be one of {', '.join(names)}"


def refusal(error: ValidationError, model: type[BaseModel], source: str) -> UsageError:
    """Turn the problems that Pydantic found into one error that names them all, without quoting long values."""
    # A list entry that is neither of two kinds is reported once for each; once is enough.
    found = error.errors(include_url=False, include_input=False)
    problems = list(dict.fromkeys(_words(one, model) for one in found))
    count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    return UsageError(f"{source} is not a valid task: {count}", why="; ".join(problems), fix=_FIX)


_FIX = "Correct the file and check it with `hushquery task check FILE`; `hushquery task new` shows every key"


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
    """Give the keys of the part of a model that a path leads to."""
    for name in where:
        field = model.model_fields.get(name)
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        parts = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not parts:
            return []
        model = parts[0]
    return list(model.model_fields)
