"""Task: what clients and collector agree on, read from TOML, validated, frozen, and named by its hash.

Every number has one form in the hash: 4, 4.0, "4" and "8/2" hash alike, and times are hashed as whole seconds.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from hushquery.core.budget import exact
from hushquery.errors import DataError, UsageError
from hushquery.task.domain import NUMBER_ORACLES, PAPER_SHARE, TEXT_ORACLES, TWO_STAGE, Domain, check_kind
from hushquery.task.template import json_schema, refusal

_MOST_FILE = 64 * 1024 * 1024  # a larger file is no task: its domain belongs into a head list
_MOST_SECONDS = 100 * 366 * 86400  # longer times are mistakes, as are larger and longer numbers
_MOST = 2**53
_MOST_CHARACTERS = 80

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

# What no client uses is not part of the task's identity: clients would answer anew when a collector changes it.
_COLLECTORS_OWN = ("candidates", "clock_skew", "max_body", "min_batch", "origins", "retention")
# Keys of some tasks only: where they are absent, the canonical form does not name them.
_SPECIAL = {
    "task": ("highest",),
    "client": ("query_share", "step", "buckets", "bits", "rappor"),
    "collect": ("candidates",),
}
# Keys of [head] that came later: at their defaults they are not named, so that older tasks keep their ids.
_UNNAMED = {("keep", 1), ("algorithm", "laplace"), ("weighed", None)}


def duration(value: object) -> int:
    """Parse a length of time as whole seconds: "7d", "30m" or 90."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,12})\s*([smhdw])", value.strip())
        if match is None:
            raise UsageError("not a length of time", fix='Write a whole number and a unit: "45s", "30m", "12h", "7d"')
        seconds = int(match[1]) * _SECONDS[match[2]]
    else:
        seconds = whole(value)
    if not 1 <= seconds <= _MOST_SECONDS:
        raise UsageError("a length of time must be from one second to a hundred years")
    return seconds


def spelled(seconds: int) -> str:
    """Format a length of time in the largest unit that divides it: 5400 is "90m"."""
    unit = next(unit for unit in "dhms" if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def size(value: object) -> int:
    """Parse a size as a number of bytes: 65536, "64KiB" or "64 kB"."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,12})\s*(B|[kMG]B|[KMG]iB)", value.strip())
        if match is None:
            raise UsageError("not a size", fix='Write a number of bytes, or with a unit: "64KiB", "1MB", "50GB"')
        return int(match[1]) * _BYTES[match[2]]
    return whole(value)


def whole(value: object) -> int:
    """Check a whole number; 50.0 is one, true and "50" are not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > _MOST:
        raise UsageError("not a whole number", fix="Write digits without quotes, such as 50")
    if value != int(value):
        raise UsageError("not a whole number", fix="Write it without a fraction, such as 50")
    return int(value)


def _exact(value: Any) -> Fraction:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        raise UsageError("too long for a number", fix="Write a number such as 4, 0.5, 1/3 or ln(10)")
    number = exact(value)
    # The canonical form of a task writes it as a fraction, which must be readable too.
    if len(str(number)) > _MOST_CHARACTERS:
        raise UsageError("too many digits for a number", fix="Write a number such as 4, 0.5, 1/3 or ln(10)")
    return number


_NUMBER = {"type": ["number", "string"], "minimum": 0, "maxLength": _MOST_CHARACTERS}
_TIME = {
    "type": ["string", "integer"],
    "pattern": r"^\s*[0-9]{1,12}\s*[smhdw]\s*$",
    "minimum": 1,
    "maximum": _MOST_SECONDS,
    "examples": ["7d", "30m"],
}
_SIZE = {
    "type": ["integer", "string"],
    "pattern": r"^\s*[0-9]{1,12}\s*(B|kB|MB|KiB|MiB)\s*$",
    "examples": [65536, "64KiB"],
}

#: An exact number: 4, 4.0, "1/3" or "ln(10)".
Exact = Annotated[
    Fraction,
    BeforeValidator(_exact),
    PlainSerializer(str),
    WithJsonSchema({**_NUMBER, "examples": [4.0, "ln(10)", "1/3"]}),
]
#: A length of time in seconds.
Seconds = Annotated[int, BeforeValidator(duration), WithJsonSchema(_TIME)]
#: A size in bytes.
Bytes = Annotated[int, BeforeValidator(size), WithJsonSchema(_SIZE)]
#: A whole number.
Whole = Annotated[int, BeforeValidator(whole)]


def _check(holds: Callable[[Any], bool], what: str, fix: str = "") -> AfterValidator:
    def validate(value: Any) -> Any:
        if not holds(value):
            raise UsageError(what, fix=fix)
        return value

    return AfterValidator(validate)


def _is_line(text: str) -> bool:
    return text == text.strip() and text.isprintable()


_LINE = _check(_is_line, "must be one line of text, without blanks at its ends")
Line = Annotated[str, Field(min_length=1, max_length=200), _LINE]
Epsilon = Annotated[Exact, _check(lambda value: value > 0, "must be above zero")]
Count = Annotated[Whole, Field(ge=1, le=2**31)]
Delta = Annotated[Exact, _check(lambda value: 0 <= value < 1, "must be from 0 to below 1")]
Chance = Annotated[Exact, _check(lambda value: 0 <= value <= 1, "must be a chance from 0 to 1")]
Between = Annotated[Exact, _check(lambda value: 0 < value < 1, "must be above 0 and below 1")]
_NOBODY = "To collect nothing, set enabled = false"
Share = Annotated[Exact, _check(lambda value: 0 < value <= 1, "must be above 0 and at most 1", _NOBODY)]


if TYPE_CHECKING:  # Pydantic's metaclass has no public name
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _Listing(ModelMetaclass):
    """Makes ``dir()`` and tab completion show a model's own names, without the dozens that Pydantic brings."""

    def __dir__(cls) -> list[str]:
        own = [name for name in vars(cls) if not name.startswith(("_", "model_"))]
        return sorted({*getattr(cls, "model_fields", ()), *own})


class _Part(BaseModel, metaclass=_Listing):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __dir__(self) -> list[str]:
        return dir(type(self))


class TaskPart(_Part):
    """What is collected, from whom, and how often."""

    name: Line
    """A short name for people; the task's identity is its hash."""
    population: Line
    """Whose budget it is."""
    kind: Literal["searches", "setting", "number", "text"] = "searches"
    """searches: (query, URL) records. setting: one value out of a public list. number: 0 to highest. text: any."""
    period: Seconds | None = None
    """How often a client reports; absent: once."""
    domain: tuple[str | tuple[str, str], ...] | None = None
    """A public list of values ([query, URL] pairs for searches); with it no head list is needed."""
    highest: Count | None = None
    """For numbers: the largest there can be, a public bound."""


class OptInPart(_Part):
    """What a user who opted in gives to the curator."""

    epsilon: Epsilon
    delta: Delta
    records_per_user: Count = 1
    relation: Literal["replace-one", "add-remove"] = "replace-one"


class RapporPart(_Part):
    """The parameters of RAPPOR."""

    k: Annotated[Whole, Field(ge=2, le=2**16)]
    """Bits of the Bloom filter."""
    h: Annotated[Whole, Field(ge=1, le=64)]
    """Hash functions."""
    m: Annotated[Whole, Field(ge=1, le=2**16)]
    """Cohorts."""
    p: Chance
    """The chance of a 1 in a report where the permanent bit is 0."""
    q: Chance
    """The chance of a 1 in a report where the permanent bit is 1."""
    f: Chance
    """How much of the permanent response is noise: a bit is flipped with chance f/2."""


class ClientPart(_Part):
    """What a client may lose, and how it answers."""

    epsilon: Epsilon
    """The loss of one period's reports, all records_per_user together."""
    records_per_user: Count = 1
    """How many records a client reports in a period, each at an equal share of epsilon."""
    oracle: Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,40}$")] = "auto"
    """The mechanism; auto is fixed when the domain is known."""
    unknown: Literal["wildcard", "refuse"] = "wildcard"
    """Values that are not listed: reported as the wildcard, or an error and no report."""
    lifetime_epsilon: Epsilon
    """What a device may lose in its life, in all its tasks together."""
    sampling: Share = Fraction(1)
    """The share of clients that report in a period."""
    enabled: Annotated[bool, Field(strict=True)] = True
    """The off-switch: false, and no client reports. Not part of the task's hash."""
    query_share: Between | None = None
    """For two-stage: the share of epsilon that the query gets (f_C of BLENDER); absent: all that the URL leaves."""
    step: Count | None = None
    """For onebit: the distance of the grid points that a device keeps answers for; divides highest. Absent: highest."""
    buckets: Annotated[Whole, Field(ge=2, le=2**20)] | None = None
    """For dbitflip: into how many equal ranges 0 to highest is divided."""
    bits: Annotated[Whole, Field(ge=1, le=2**20)] | None = None
    """For dbitflip: for how many of the buckets each device answers."""
    rappor: RapporPart | None = None
    """For rappor: its parameters."""


class HeadPart(_Part):
    """The head list that opt-in users build."""

    size: Count
    mode: Literal["best", "paper"] = "best"
    """best: any frequency oracle over the list. paper: two-stage, where auto gives the query 0.85 of epsilon."""
    algorithm: Literal["laplace", "guided"] = "laplace"
    """How opt-in records are selected; guided finds more where users have many records each."""
    weighed: Count | None = None
    """For guided: the most records of a user that get weight; absent: 40."""
    keep: Count = 1
    """For how many periods one list stays; clients whose record did not change then repeat their answers."""


class CollectPart(_Part):
    """How the collector takes reports. Only ``time_precision`` is part of the task's hash: the rest is no client's."""

    min_batch: Annotated[Whole, Field(ge=2, le=2**31)] = 1000
    time_precision: Seconds = 1800
    clock_skew: Seconds = 60
    retention: Seconds = 90 * 86400
    max_body: Annotated[Bytes, Field(ge=256, le=2**30)] = 65536
    origins: tuple[Line, ...] = ()
    candidates: tuple[str, ...] | None = None
    """For texts: what to look for when an epoch is released. It becomes public then; devices do not get it."""


class Task(_Part):
    """What clients and collector agree on; its id is the hash of its canonical form.

    Comments, the order of keys, written-out defaults and the spelling of numbers do not change the id.

    >>> text = '''
    ... task = {name = "theme", population = "app users", kind = "setting", domain = ["dark", "light"]}
    ... client = {epsilon = "ln(3)", lifetime_epsilon = 4}
    ... '''
    >>> task = Task.loads(text)
    >>> task.id == Task.loads(text.replace("= 4", "= 4.0")).id
    True
    >>> len(task.listed())
    3
    """

    task: TaskPart
    optin: OptInPart | None = None
    client: ClientPart
    head: HeadPart | None = None
    collect: CollectPart = CollectPart()

    @model_validator(mode="after")
    def _agree(self) -> Task:
        if self.client.lifetime_epsilon < self.client.epsilon:
            raise UsageError("[client] lifetime_epsilon is below epsilon, so no client could ever report")
        period, precision = self.task.period, self.collect.time_precision
        if period is not None and period % precision:
            raise UsageError(
                "[task] period is not a multiple of [collect] time_precision, so a report's time would fit two periods"
            )
        if self.head is not None and self.head.keep > 1 and period is None:
            raise UsageError(
                "[head] keep counts periods, and the task has none", fix='Add, say, period = "7d" to [task]'
            )
        check_kind(self)
        if self.task.domain is not None:
            self.listed()
        return self

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Task:
        """Read a task from a TOML file, or from a .json file as a collector serves it."""
        file = Path(path)
        try:
            if file.stat().st_size > _MOST_FILE:
                raise DataError(f"{file.name} is too large for a task", fix="Publish a long domain as a head list")
            text = file.read_text("utf-8")
        except OSError as error:
            raise DataError(
                f"the task file {file.name} can't be read",
                why=error.strerror or "",
                fix="Make one with `hushquery task new --out task.toml`",
            ) from None
        except UnicodeDecodeError:
            raise DataError(f"the task file {file.name} is not UTF-8 text", fix="Save it as UTF-8") from None
        if file.suffix == ".json":
            return cls.from_json(text, source=file.name)
        return cls.loads(text, source=file.name)

    @classmethod
    def loads(cls, text: str, *, source: str = "the task") -> Task:
        """Read a task from TOML text."""
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            why = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is nested or long beyond reason"
            raise UsageError(f"{source} is not TOML", why=why, fix="`hushquery task new` writes a template") from None
        return cls.make(data, source=source)

    @classmethod
    def from_json(cls, text: str, *, source: str = "the task") -> Task:
        """Read a task from JSON, as a collector serves it."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(f"{source} is not JSON", fix="Fetch it again, or load the TOML file") from None
        if not isinstance(data, dict):
            raise UsageError(f"{source} is not a JSON object", fix="A task is an object of parts")
        return cls.make(data, source=source)

    @classmethod
    def make(cls, data: Mapping[str, Any], *, source: str = "the task") -> Task:
        """Make a task of plain data, or name all its problems at once."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise refusal(error, cls, source) from None

    def to_json(self) -> dict[str, Any]:
        """Return the task as plain data: every default explicit, exact numbers as text, times in seconds."""
        data = self.model_dump(mode="json")
        if self.task.domain is not None:
            records = self.listed().records
            data["task"]["domain"] = [list(one) if len(one) > 1 else one[0] for one in records]
        for part, names in _SPECIAL.items():
            data[part] = {key: value for key, value in data[part].items() if value is not None or key not in names}
        if self.head is not None:
            data["head"] = {k: v for k, v in data["head"].items() if (k, v) not in _UNNAMED}
        if not self.is_listed:
            data["client"]["unknown"] = "refuse"
        return data

    def for_devices(self) -> dict[str, Any]:
        """Return the task as plain data for those who answer it."""
        data = self.to_json()
        data["collect"].pop("candidates", None)
        return data

    def canonical(self) -> str:
        """Return the text that is hashed: ASCII JSON with sorted keys and no spaces, of what clients use.

        A collector may change the rest: the off-switch, and all of [collect] but ``time_precision``.
        """
        data = self.to_json()
        del data["client"]["enabled"]
        for name in _COLLECTORS_OWN:
            data["collect"].pop(name, None)
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> bytes:
        """The task id as 32 bytes: the SHA-256 of :meth:`canonical`."""
        return hashlib.sha256(self.canonical().encode("ascii")).digest()

    @property
    def id(self) -> str:
        """The task id in hexadecimal digits."""
        return self.digest.hex()

    @property
    def is_listed(self) -> bool:
        """Whether values come from a public list, of queries and URLs or of settings."""
        return self.task.kind in ("searches", "setting")

    @property
    def oracle(self) -> str:
        """The mechanism's name; ``auto`` where only the list decides."""
        if self.client.oracle != "auto":
            return self.client.oracle
        if not self.is_listed:
            return (NUMBER_ORACLES if self.task.kind == "number" else TEXT_ORACLES)[0]
        return TWO_STAGE if self.head is not None and self.head.mode == "paper" else "auto"

    @property
    def query_share(self) -> Fraction | None:
        """For two-stage: the query's share of epsilon; None for all that the URL leaves."""
        if self.client.query_share is None and self.client.oracle == "auto" and self.oracle == TWO_STAGE:
            return PAPER_SHARE
        return self.client.query_share

    @property
    def record_epsilon(self) -> Fraction:
        """What one report may cost: an equal share of epsilon."""
        return Fraction(self.client.epsilon) / self.client.records_per_user

    def listed(self, head: Any = None) -> Domain:
        """Return the domain: the task's own list, or the published head list of [query, URL] pairs; exactly one."""
        if not self.is_listed:
            raise UsageError(f"a {self.task.kind} task has no list of values", fix="Leave the head list out")
        if self.task.domain is None and head is None:
            raise UsageError(
                "the task's domain is its head list, which was not given",
                fix="Pass the published list, or write a domain into the task",
            )
        if self.task.domain is not None and head is not None:
            raise UsageError("the task has its own domain, so it takes no head list", fix="Leave the head list out")
        items = head if self.task.domain is None else self.task.domain
        return Domain.read(self.task.kind, items, wildcard=self.client.unknown == "wildcard")

    def period_at(self, time: float) -> int:
        """Return the number of the period of a time (seconds since 1970, UTC); 0 for a task without periods."""
        return 0 if self.task.period is None else int(time // self.task.period)

    def truncate(self, time: float) -> int:
        """Return a time as coarse as reports carry it: the last multiple of the task's time precision."""
        precision = self.collect.time_precision
        return int(time // precision) * precision

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of task files, for editors and other programs."""
        return json_schema(cls)
