"""Task files for people: the template of ``hushquery task new``, their JSON Schema, and readable errors."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from hushquery.errors import HushqueryError, UsageError

_SEARCHES = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-searches"
population = "browser users"   # whose budget it is
kind = "searches"              # (query, URL) records; there are also "setting", "number" and "text"
period = "7d"                  # each client reports once in a period; absent: once
# domain = [["weather leeds", "https://weather.example"]]   # a public list makes [optin] and [head] unnecessary

[optin]                        # what a user who opted in gives to the curator
epsilon = 4.0
delta = 1e-5
records_per_user = 1
relation = "replace-one"
"""

_SETTING = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-theme"
population = "app users"       # whose budget it is
kind = "setting"               # one value out of a public list; there are also "searches", "number" and "text"
period = "7d"                  # each client reports once in a period; absent: once
domain = ["light", "dark", "system"]   # everybody may know this list
"""

_NUMBER = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-minutes"
population = "app users"       # whose budget it is
kind = "number"                # a whole number; there are also "searches", "setting" and "text"
period = "1d"                  # each client reports once in a period; absent: once
highest = 1440                 # the largest number there can be, a public bound; others are refused
"""

_TEXT = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-home-pages"
population = "browser users"   # whose budget it is
kind = "text"                  # any text, without a list; candidates are needed only to decode
period = "1d"                  # each client reports once in a period; absent: once
"""

_CLIENT = """
[client]                       # what the others report, randomised on their own device
epsilon = {epsilon}                  # the loss of one period's report: 4, 0.5, "1/3" or "ln(10)"
"""

_LIST = """\
records_per_user = 1           # each gets an equal share of epsilon
oracle = "auto"                # the mechanism with the smallest error for this domain and epsilon{more}
unknown = "wildcard"           # values not listed become "everything else"; "refuse": an error, and no report
"""

_LIFE = """\
lifetime_epsilon = 16.0        # what a device may lose in its life, in all its tasks together
sampling = 1.0                 # the share of clients that report in a period
enabled = true                 # the off-switch
"""

_TWO_STAGE = """
# oracle = "two-stage"         # with [head] mode = "paper": first the query, then the URL, also the others of a query
# query_share = 0.85           # for two-stage: the query's share of epsilon; absent: all that the URL leaves"""

_ONE_BIT = """\
oracle = "onebit"              # one bit for the average; "dbitflip": a histogram
step = 1440                    # divides highest: a device keeps one answer for each multiple; absent: highest
# oracle = "dbitflip"          # instead of the two lines above
# buckets = 24                 # for dbitflip: so many equal ranges
# bits = 4                     # for dbitflip: for so many of them each device answers
"""

_RAPPOR = """
[client.rappor]                # eps infinity = 2h ln((1 - f/2)/(f/2)) must not be above epsilon: here 4 ln 3
k = 128                        # bits of the Bloom filter
h = 2                          # hash functions
m = 64                         # cohorts
p = 0.25                       # the chance of a 1 in a report where the permanent bit is 0
q = 0.75                       # the same where it is 1
f = 0.5                        # a bit of the permanent response is flipped with chance f/2
"""

_HEAD = """
[head]                         # the list that is built from the opt-in records, then measured by all
size = 50
mode = "best"                  # "paper": clients answer by two-stage, as in BLENDER
# algorithm = "guided"         # finds more records where users have many; "laplace" by default
keep = 1                       # for how many periods one list stays: the longer, the less a client loses over time
"""

_COLLECT = """
[collect]                      # only time_precision is part of the task's id: clients use no more
min_batch = 1000               # nothing is estimated from fewer reports
time_precision = "30m"         # reports tell their time no finer than this
clock_skew = "1m"
retention = "90d"
max_body = 65536               # bytes, or "64KiB"
origins = []                   # web pages that may send reports
"""

_CANDIDATES = """\
# candidates = ["example.org"] # what to look for when an epoch is released; devices do not get it
"""


def template(kind: str = "searches") -> str:
    """Return a commented task file to begin with."""
    if kind == "searches":
        listed = _LIST.format(more=_TWO_STAGE)
        return _SEARCHES + _CLIENT.format(epsilon="4.0") + listed + _LIFE + _HEAD + _COLLECT
    if kind == "setting":
        return _SETTING + _CLIENT.format(epsilon="1.0") + _LIST.format(more="") + _LIFE + _COLLECT
    if kind == "number":
        return _NUMBER + _CLIENT.format(epsilon="1.0") + _ONE_BIT + _LIFE + _COLLECT
    if kind == "text":
        client = _CLIENT.format(epsilon="4.5") + 'oracle = "rappor"\n' + _LIFE.replace("16.0", "18.0")
        return _TEXT + client + _RAPPOR + _COLLECT + _CANDIDATES
    raise UsageError("there is no such kind of task", fix="It is searches, setting, number or text")


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
