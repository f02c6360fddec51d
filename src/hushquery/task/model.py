"""Task: what clients and collector agree on, read from TOML, validated, frozen, and named by its hash."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from hushquery.errors import DataError, UsageError
from hushquery.task.domain import Domain
from hushquery.task.kinds import check_kind, oracle_of, query_share_of, schema_rules
from hushquery.task.problems import refusal
from hushquery.task.units import Bytes, Exact, Seconds, Whole

__all__ = ["ClientPart", "CollectPart", "HeadPart", "OptInPart", "RapporPart", "Task", "TaskPart"]

# A file beyond this is no task: a domain belongs into a head list then.
_MOST_BYTES = 64 * 1024 * 1024


def _line(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise UsageError("must be one line of text, without blanks at its ends")
    return text


def _above_zero(value: Fraction) -> Fraction:
    if value <= 0:
        raise UsageError("must be above zero")
    return value


def _share(value: Fraction) -> Fraction:
    if not 0 < value <= 1:
        raise UsageError("must be above 0 and at most 1", fix="To collect nothing, set enabled = false")
    return value


def _small(value: Fraction) -> Fraction:
    if not 0 <= value < 1:
        raise UsageError("must be from 0 to below 1")
    return value


def _chance(value: Fraction) -> Fraction:
    if not 0 <= value <= 1:
        raise UsageError("must be a chance from 0 to 1")
    return value


def _between(value: Fraction) -> Fraction:
    if not 0 < value < 1:
        raise UsageError("must be above 0 and below 1")
    return value


# What no client uses is no part of the task's identity: else clients would answer anew when a collector changes it.
_COLLECTORS_OWN = ("clock_skew", "max_body", "min_batch", "origins", "retention")

# Keys that only some tasks have: where they are absent, the canonical form does not name them.
_SPECIAL = {"task": ("highest",), "client": ("query_share", "step", "buckets", "bits", "rappor")}

# Keys of [head] that came later, at their defaults.
_UNNAMED = {("keep", 1), ("algorithm", "laplace"), ("weighed", None)}

Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_line)]
Epsilon = Annotated[Exact, AfterValidator(_above_zero)]
Count = Annotated[Whole, Field(ge=1, le=2**31)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


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
    delta: Annotated[Exact, AfterValidator(_small)]
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
    p: Annotated[Exact, AfterValidator(_chance)]
    """The chance of a 1 in a report where the permanent bit is 0."""
    q: Annotated[Exact, AfterValidator(_chance)]
    """The chance of a 1 in a report where the permanent bit is 1."""
    f: Annotated[Exact, AfterValidator(_chance)]
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
    sampling: Annotated[Exact, AfterValidator(_share)] = Fraction(1)
    """The share of clients that report in a period."""
    enabled: Annotated[bool, Field(strict=True)] = True
    """The off-switch: false, and no client reports. Not part of the task's hash."""
    query_share: Annotated[Exact, AfterValidator(_between)] | None = None
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


class Task(_Part):
    """What clients and collector agree on; its id is the hash of its canonical form.

    The order of keys, comments, defaults that are written out and the spelling of numbers do not change the id.

    >>> text = '''
    ... [task]
    ... name = "theme"
    ... population = "app users"
    ... kind = "setting"
    ... domain = ["dark", "light"]
    ... [client]
    ... epsilon = "ln(3)"
    ... lifetime_epsilon = 4
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
        """Refuse parts that contradict each other."""
        if self.client.lifetime_epsilon < self.client.epsilon:
            raise UsageError("[client] lifetime_epsilon is below epsilon, so no client could ever report")
        period, precision = self.task.period, self.collect.time_precision
        if period is not None and period % precision:
            raise UsageError(
                "[task] period is not a multiple of [collect] time_precision, so a report's time could not tell its "
                "period"
            )
        if self.head is not None and self.head.keep > 1 and period is None:
            raise UsageError(
                "[head] keep counts periods, and the task has none", fix='Add, say, period = "7d" to [task]'
            )
        check_kind(self)
        if self.task.domain is not None:
            self.listed()
        return self

    # ---- reading -------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Task:
        """Read a task from a TOML file, or from a .json file as a collector serves it."""
        file = Path(path)
        try:
            if file.stat().st_size > _MOST_BYTES:
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
        """Make a task of plain data, and refuse what is wrong with it all at once."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise refusal(error, cls, source) from None

    # ---- identity ------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Give the task as plain data: every default written out, exact numbers as text, times in seconds."""
        data = self.model_dump(mode="json")
        if self.task.domain is not None:
            records = self.listed().records
            data["task"]["domain"] = [list(one) if len(one) > 1 else one[0] for one in records]
        for part, names in _SPECIAL.items():
            data[part] = {key: value for key, value in data[part].items() if value is not None or key not in names}
        if self.head is not None:
            # Keys that came later: at their defaults they are not named, so that older tasks keep their ids.
            data["head"] = {k: v for k, v in data["head"].items() if (k, v) not in _UNNAMED}
        if not self.is_listed:
            data["client"]["unknown"] = "refuse"
        return data

    def canonical(self) -> str:
        """Give the one text that is hashed: JSON with sorted keys, no spaces, ASCII only, of what clients use.

        The off-switch and all of [collect] but ``time_precision`` are left out, so that a collector may change them.
        """
        data = self.to_json()
        del data["client"]["enabled"]
        for name in _COLLECTORS_OWN:
            del data["collect"][name]
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> bytes:
        """The task id as 32 bytes: the SHA-256 of :meth:`canonical`."""
        return hashlib.sha256(self.canonical().encode("ascii")).digest()

    @property
    def id(self) -> str:
        """The task id in hexadecimal digits."""
        return self.digest.hex()

    # ---- what clients need ---------------------------------------------------------------------------------

    @property
    def is_listed(self) -> bool:
        """Whether what can be reported is a public list, of queries and URLs or of values."""
        return self.task.kind in ("searches", "setting")

    @property
    def oracle(self) -> str:
        """The mechanism's name: as the task says, or what ``auto`` means where that is known without a list."""
        return oracle_of(self)

    @property
    def query_share(self) -> Fraction | None:
        """For two-stage: the query's share of epsilon, where it is fixed."""
        return query_share_of(self)

    @property
    def record_epsilon(self) -> Fraction:
        """What one report may cost: an equal share of epsilon."""
        return Fraction(self.client.epsilon) / self.client.records_per_user

    def listed(self, head: Any = None) -> Domain:
        """Give the domain: the task's own list, or the published head list of [query, URL] pairs.

        Raises:
            UsageError: The task has no list of its own and none was given, or both.
        """
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
        """Number the period that a moment (seconds since 1970, UTC) is in; a task without periods has one, 0."""
        return 0 if self.task.period is None else int(time // self.task.period)

    def truncate(self, time: float) -> int:
        """Give a moment as coarse as reports tell it: the last multiple of the task's time precision."""
        precision = self.collect.time_precision
        return int(time // precision) * precision

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Give the JSON Schema (2020-12) of task files, for editors and other programs."""
        schema = _in_json_schema(cls.model_json_schema())
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "allOf": schema_rules()}


# Pydantic leaves the bounds of numbers that are read by a function of ours under its own names.
_BOUNDS = {"ge": "minimum", "le": "maximum"}


def _in_json_schema(part: Any) -> Any:
    """Give the bounds of numbers the names that JSON Schema has for them."""
    if isinstance(part, list):
        return [_in_json_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {_BOUNDS.get(name, name): _in_json_schema(value) for name, value in part.items()}
