"""Task files from answers: five questions, what each kind of task answers by itself, and the file they make."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hushquery.core.budget import exact
from hushquery.errors import UsageError
from hushquery.task.model import Task
from hushquery.task.template import problems_of

#: What can be asked.
KINDS = ("setting", "number", "text", "searches")

_COMMON = {"period": "7d", "population": "app users", "epsilon": "1.0", "lifetime": "16.0"}
_BROWSERS = {"population": "browser users"}
_USUAL: dict[str, dict[str, Any]] = {
    "setting": _COMMON | {"name": "example-theme", "values": ("light", "dark", "system")},
    "number": _COMMON | {"name": "example-minutes", "period": "1d", "highest": "1440"},
    "text": _COMMON | _BROWSERS | {"name": "example-home-pages", "period": "1d", "epsilon": "4.5", "lifetime": "18.0"},
    "searches": _COMMON | _BROWSERS | {"name": "example-searches", "epsilon": "4.0"},
}
_OPTIN = {"optin_epsilon": "4.0", "optin_delta": "1e-5"}

# Where an answer ends up in the file.
_PLACES = {
    "kind": "task.kind",
    "name": "task.name",
    "values": "task.domain",
    "highest": "task.highest",
    "population": "task.population",
    "period": "task.period",
    "epsilon": "client.epsilon",
    "lifetime": "client.lifetime_epsilon",
    "optin_epsilon": "optin.epsilon",
    "optin_delta": "optin.delta",
}
_HASHES = 2  # of RAPPOR
_WASTED = 0.03  # what share of a text's epsilon may stay unused, for an f of few digits

_KIND_WORDS = {
    "searches": "(query, URL) records",
    "setting": "one value out of a public list",
    "number": "a whole number",
    "text": "any text, without a list; candidates are needed only to decode",
}

_OPTIN_PART = """
[optin]                        # what a user who opted in gives to the curator
{epsilon}
{delta}
records_per_user = 1
relation = "replace-one"
"""

_CLIENT = """
[client]                       # what the others report, randomised on their own device
{epsilon} # the loss of one period's report: 4, 0.5, "1/3" or "ln(10)"
"""

_LIST = """\
records_per_user = 1           # each gets an equal share of epsilon
oracle = "auto"                # the mechanism with the smallest error for this domain and epsilon{more}
unknown = "wildcard"           # values not listed become "everything else"; "refuse": an error, and no report
"""

_LIFE = """\
{lifetime} # what a device may lose in its life, in all its tasks together
sampling = 1.0                 # the share of clients that report in a period
enabled = true                 # the off-switch
"""

_TWO_STAGE = """
# oracle = "two-stage"         # with [head] mode = "paper": first the query, then the URL, also the others of a query
# query_share = 0.85           # for two-stage: the query's share of epsilon; absent: all that the URL leaves"""

_ONE_BIT = """\
oracle = "onebit"              # one bit for the average; "dbitflip": a histogram
{step} # divides highest: a device keeps one answer for each multiple; absent: highest
# oracle = "dbitflip"          # instead of the two lines above
# buckets = 24                 # for dbitflip: so many equal ranges
# bits = 4                     # for dbitflip: for so many of them each device answers
"""

_RAPPOR = """
[client.rappor]                # eps infinity = 2h ln((1 - f/2)/(f/2)) must not be above epsilon: here {loss}
k = 128                        # bits of the Bloom filter
h = 2                          # hash functions
m = 64                         # cohorts
p = 0.25                       # the chance of a 1 in a report where the permanent bit is 0
q = 0.75                       # the same where it is 1
{f} # a bit of the permanent response is flipped with chance f/2
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


@dataclass(frozen=True)
class Answers:
    """The answers to five questions, as a person types them; None is what the kind of task usually has.

    >>> answers = Answers("setting", name="theme", values=("light", "dark"), population="app users", period="once")
    >>> answers.problems()
    {}
    >>> Task.loads(answers.to_toml()).task.domain
    ('light', 'dark')
    >>> answers.command("task.toml").split(" --")[1:4]
    ['kind setting', 'name theme', 'value light']
    """

    kind: str = "searches"  #: what is asked: one of :data:`KINDS`
    name: str | None = None  #: and what to call it
    values: tuple[str, ...] | None = None  #: of a setting; of searches, where nobody opts in: "query URL"
    highest: str | None = None  #: of numbers
    population: str | None = None  #: of whom
    period: str | None = None  #: how often: "7d", or "once"
    epsilon: str | None = None  #: how private: the loss of one period's report
    lifetime: str | None = None  #: and of a device's whole life
    optin_epsilon: str | None = None  #: who opts in, for searches without a list: what each may lose
    optin_delta: str | None = None

    @property
    def usual(self) -> Answers:
        """The same, with what its kind usually has where nothing was answered."""
        if self.kind not in KINDS:
            raise UsageError("there is no such kind of task", fix="It is searches, setting, number or text")
        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        asked = _OPTIN if self.kind == "searches" and self.values is None else {}
        return replace(self, **(_USUAL[self.kind] | asked | given))

    def to_toml(self) -> str:
        """Return the task file: every key, with what it means."""
        said = self.usual
        kind = said.kind
        listed = kind in ("setting", "searches")
        client = _CLIENT.format(epsilon=_entry("epsilon", _number(said.epsilon)))
        if listed:
            client += _LIST.format(more=_TWO_STAGE if kind == "searches" else "")
        elif kind == "number":
            client += _ONE_BIT.format(step=_entry("step", _number(said.highest)))
        else:
            client += 'oracle = "rappor"\n'
        client += _LIFE.format(lifetime=_entry("lifetime_epsilon", _number(said.lifetime)))
        if kind == "text":
            f = _flipped(said.epsilon)
            client += _RAPPOR.format(loss=f"4 ln {2 / f - 1:.4g}", f=_entry("f", f"{f:.12g}"))
        optin = ""
        if said.optin_epsilon is not None or said.optin_delta is not None:
            epsilon, delta = _number(said.optin_epsilon), _number(said.optin_delta)
            optin = _OPTIN_PART.format(epsilon=f"epsilon = {epsilon}", delta=f"delta = {delta}")
        head = _HEAD if kind == "searches" and said.values is None else ""
        return _asked(said) + optin + client + head + _COLLECT + (_CANDIDATES if kind == "text" else "")

    def problems(self) -> dict[str, str]:
        """Return what is wrong, by the name of the answer, or under "" what concerns several."""
        opts_in = self.optin_epsilon is not None or self.optin_delta is not None
        if opts_in and (self.kind != "searches" or self.values is not None):
            return {"optin_epsilon": "people opt in only to searches for which there is no list yet"}
        try:
            Task.model_validate(tomllib.loads(self.to_toml()))
        except ValidationError as error:
            found = problems_of(error, Task)
        else:
            return {}
        answers = {place: answer for answer, place in _PLACES.items()}
        blank = (one.name for one in fields(self) if getattr(self, one.name) in ("", ()))
        told = dict.fromkeys(blank, "must not be empty")
        for place, words in found:
            told.setdefault(answers.get(place, ""), words)
        return told if len(told) == 1 else {answer: words for answer, words in told.items() if answer}

    def command(self, out: str) -> str:
        """Return the command that writes the same file."""
        words = ["hushquery", "task", "new"]
        for one in fields(self):
            value = getattr(self, one.name)
            name = "value" if one.name == "values" else one.name.replace("_", "-")
            for text in value if isinstance(value, tuple) else () if value is None else (value,):
                words += [f"--{name}", text]
        return shlex.join([*words, "--out", out])


def template(kind: str = "searches") -> str:
    """Return a commented task file to begin with."""
    return Answers(kind).to_toml()


def write_task(path: Path, text: str) -> None:
    """Write a task file that everybody may read: whole or not at all, and never over another."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            os.fchmod(handle, 0o644)  # whatever the umask is
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.link(draft, path)  # unlike a rename it never replaces anything
    finally:
        draft.unlink(missing_ok=True)


def _asked(said: Answers) -> str:
    """Write the part [task]."""
    others = ", ".join(f'"{kind}"' for kind in ("searches", "setting", "number", "text") if kind != said.kind)
    others = " and ".join(others.rsplit(", ", 1))
    often = _entry("period", _text(said.period or ""))
    if said.period == "once":
        often = _entry("# period", '"7d"')
    also = "" if said.kind == "text" else f"; there are also {others}"
    lines = [
        "[task]                         # the task's id is a hash of what clients use; comments and order don't count",
        f"name = {_text(said.name or '')}",
        f"{_entry('population', _text(said.population or ''))} # whose budget it is",
        f"{_entry('kind', _text(said.kind))} # {_KIND_WORDS[said.kind]}{also}",
        f"{often} # each client reports once in a period; absent: once",
    ]
    if said.highest is not None:
        bound = "the largest number there can be, a public bound; others are refused"
        lines.append(f"{_entry('highest', _number(said.highest))} # {bound}")
    if said.values is not None:
        entries = ", ".join(_pair(one) if said.kind == "searches" else _text(one) for one in said.values)
        lines.append(f"domain = [{entries}]   # everybody may know this list")
    elif said.kind == "searches":
        example = '[["weather leeds", "https://weather.example"]]'
        lines.append(f"# domain = {example}   # a public list makes [optin] and [head] unnecessary")
    return "\n".join(lines) + "\n"


def _entry(key: str, value: str) -> str:
    """Write a key and its value, as wide as comments leave room for."""
    return f"{key} = {value}".ljust(30)


def _text(text: str) -> str:
    """Write a TOML string: JSON's escapes are TOML's, but for DEL and for characters beyond 16 bits."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(text: str | None) -> str:
    """Write a number as it was typed, or as a string where TOML has no such number: "1/3"."""
    plain = (text or "").strip()
    return plain if re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", plain) else _text(plain)


def _pair(line: str) -> str:
    """Write a line of queries and URLs as a pair; a search may have led to no page."""
    words = line.split()
    url = words.pop() if words and "://" in words[-1] else ""
    return f"[{_text(' '.join(words))}, {_text(url)}]"


def _flipped(epsilon: str | None) -> float:
    """Return RAPPOR's f of the fewest digits that costs at most epsilon and wastes little of it."""
    try:
        allowed = float(exact(epsilon or "", "epsilon"))
        least = 2 / (1 + math.exp(allowed / (2 * _HASHES)))
    except (UsageError, OverflowError):
        return 0.5  # the epsilon is refused for itself
    for digits in range(1, 13):
        f: float = math.ceil(least * 10**digits) / 10**digits
        if 0 < f < 1 and 2 * _HASHES * math.log(2 / f - 1) >= (1 - _WASTED) * allowed:
            return f
    return 0.5
