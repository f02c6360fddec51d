"""What can be reported: values of a public list with a last cell for everything else, numbers, or texts.

Queries and URLs take the normal form of logs (:mod:`hushquery.log.normalise`), here in Python because a device has no
engine; values of a setting are compared as they are, in Unicode NFC.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from hushquery.errors import DataError, UsageError
from hushquery.log.normalise import HOST, URL_CHANGES, blanks

if TYPE_CHECKING:
    from hushquery.task.model import HeadPart, Task

WILDCARD = "*"  #: How the cell of everything else is shown.
LONGEST = 4096  #: The longest text that can be a value; longer ones are unknown values.
MOST = 2**20  #: The most values that a domain can have.
NUMBER_ORACLES, TEXT_ORACLES = ("onebit", "dbitflip"), ("rappor",)  #: Mechanisms by kind; auto is the first.
TWO_STAGE = "two-stage"  #: The mechanism that reports a query, then its URL.
#: The query's share of epsilon in two-stage response, f_C of BLENDER, for ``[head] mode = "paper"``.
PAPER_SHARE = Fraction(85, 100)
# The oracle that a key of [client] belongs to.
_ORACLE_KEYS = {
    "query_share": TWO_STAGE,
    "step": "onebit",
    "buckets": "dbitflip",
    "bits": "dbitflip",
    "rappor": "rappor",
}

# In RE2, in which the rules are written, `$` is the very end; in Python it also matches before a last line break.
_END = r"\Z"
_BLANKS = re.compile(f"[\0{blanks('python')}]+")
_URL_RULES = [(re.compile(pattern.replace("$", _END)), replacement) for pattern, replacement in URL_CHANGES]
_WITH_HOST = re.compile(HOST.replace("$", _END))


class UnknownValue(DataError):
    """A value is not in the domain, and the task refuses those."""


def normal_query(text: str) -> str:
    """Return a query in the normal form of logs: "  Weather   LEEDS " is "weather leeds"."""
    return unicodedata.normalize("NFC", _BLANKS.sub(" ", _lower(text))).strip(" ")


def normal_url(text: str) -> str:
    """Return a URL in the normal form of logs; empty if there is none.

    >>> normal_url("HTTPS://Weather.Example:443/#top")
    'https://weather.example'
    """
    host = _WITH_HOST.match(text)
    changed = _lower(host[0]) + text[host.end() :] if host else text
    for pattern, replacement in _URL_RULES:
        changed = pattern.sub(replacement, changed)
    return changed


def _lower(text: str) -> str:
    """Lower each letter by itself, as engines do: Python would lower a capital sigma in two ways."""
    return "".join(letter.lower()[0] for letter in text)


def normal_value(text: str) -> str:
    """Return a value of a setting in Unicode NFC, stripped."""
    return unicodedata.normalize("NFC", text).strip()


@dataclass(frozen=True)
class Domain:
    """What can be reported, in the order of the cells: (query, URL) records or values of a setting, normalised.

    With ``wildcard`` a last cell stands for everything else.

    >>> theme = Domain.read("setting", ["dark", "light"], wildcard=True)
    >>> len(theme), theme.cell("light"), theme.cell("sepia"), theme.label(2)
    (3, 1, 2, '*')
    """

    kind: str
    records: tuple[tuple[str, ...], ...]
    wildcard: bool
    _cells: dict[tuple[str, ...], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cells", {record: cell for cell, record in enumerate(self.records)})

    @classmethod
    def read(cls, kind: str, items: Iterable[Any], *, wildcard: bool) -> Domain:
        """Read a public list: texts for a setting, [query, URL] pairs for searches."""
        records = tuple(_record(kind, item, number) for number, item in enumerate(items, start=1))
        seen: dict[tuple[str, ...], int] = {}
        for number, record in enumerate(records, start=1):
            if seen.setdefault(record, number) != number:
                raise UsageError(f"entries {seen[record]} and {number} of the domain are the same value")
        if not records or len(records) + wildcard < 2:
            raise UsageError("a domain needs at least two cells", fix="List two values, or one and the wildcard")
        if len(records) > MOST:
            raise UsageError(f"a domain has at most {MOST:,} values", fix="Publish a shorter list")
        return cls(kind, records, wildcard)

    def __len__(self) -> int:
        return len(self.records) + self.wildcard

    def cell(self, value: object, url: object = None) -> int:
        """Return the cell of a value, the wildcard's for None; or raise UnknownValue, which never shows the value."""
        if not isinstance(value, str | None) or not isinstance(url, str | None):
            raise UsageError("a value to report is text", fix="Pass the query or value, and the URL, as str")
        if self.kind != "searches" and url is not None:
            raise UsageError("only searches have a URL", fix="Leave the URL out: this task collects a setting")
        cell = None if value is None else self._find(value, url)
        if cell is not None:
            return cell
        if not self.wildcard:
            raise UnknownValue(
                "the value is not in the domain of the task, so nothing is reported",
                why='the task says unknown = "refuse"',
                fix='Report one of the listed values, or use a task with unknown = "wildcard"',
            )
        return len(self) - 1

    def _find(self, value: str, url: str | None) -> int | None:
        if len(value) > LONGEST or len(url or "") > LONGEST:
            return None
        return self._cells.get(_normal(self.kind, [value, url or ""]))

    def lists(self, value: str, url: str | None = None) -> bool:
        """Return whether a value has a cell of its own."""
        return self._find(value, url) is not None

    def label(self, cell: int) -> str:
        """Return the label of a cell: the value, or query and URL with a tab between, or ``*``."""
        return _label(self.records[cell]) if self._checked(cell) < len(self.records) else WILDCARD

    def labels(self) -> list[str]:
        """Return the labels of all cells, in their order."""
        return [self.label(cell) for cell in range(len(self))]

    def _checked(self, cell: int) -> int:
        if not 0 <= cell < len(self):
            raise UsageError(f"the domain has no cell {cell}", fix=f"Its cells are 0 to {len(self) - 1}")
        return cell

    def to_json(self) -> dict[str, Any]:
        """Return the domain as plain data, as it enters the hash of a configuration."""
        return {"kind": self.kind, "records": [list(record) for record in self.records], "wildcard": self.wildcard}


@dataclass(frozen=True)
class GroupedDomain(Domain):
    r"""(query, URL) records query by query: its URLs, then ``<q, *>`` for its other ones; ``<*, *>`` is the last cell.

    >>> pairs = Domain.read("searches", [["news", "https://a.example"], ["maps", ""], ["news", ""]], wildcard=True)
    >>> grouped = GroupedDomain.of(pairs)
    >>> grouped.urls, [grouped.label(cell) for cell in (0, 1, 2, 3, 4, 5)]
    ((2, 1), ['news\thttps://a.example', 'news', 'news\t*', 'maps', 'maps\t*', '*'])
    >>> grouped.cell("News", "https://b.example"), grouped.cell("maps"), grouped.cell("weather")
    (2, 3, 5)
    """

    urls: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _others: dict[str, int] = field(init=False, repr=False, compare=False)
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        listed: dict[str, list[tuple[str, ...]]] = {}
        for record in self.records:
            listed.setdefault(record[0], []).append(record)
        cells: dict[tuple[str, ...], int] = {}
        others: dict[str, int] = {}
        names: list[str] = []
        for query, records in listed.items():
            for record in records:
                cells[record] = len(names)
                names.append(_label(record))
            others[query] = len(names)
            names.append(f"{query}\t{WILDCARD}")
        counts = tuple(len(records) for records in listed.values())
        fields = {"_cells": cells, "urls": counts, "_others": others, "_names": (*names, WILDCARD)}
        for name, value in {**fields, "records": tuple(cells)}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, domain: Domain) -> GroupedDomain:
        """Group the records of a domain by their query."""
        if domain.kind != "searches" or not domain.wildcard:
            raise UsageError(
                "only searches with a wildcard can be grouped by query",
                fix='Use kind = "searches" and unknown = "wildcard", or another oracle',
            )
        return cls(domain.kind, domain.records, wildcard=True)

    @property
    def others(self) -> dict[str, int]:
        """The cell of each query's other URLs."""
        return dict(self._others)

    def __len__(self) -> int:
        return len(self._names)

    def _find(self, value: str, url: str | None) -> int | None:
        if len(value) > LONGEST:
            return None
        # A URL that is too long to be listed is one of the other URLs of its query.
        record = _normal(self.kind, [value, url or ""]) if len(url or "") <= LONGEST else (normal_query(value),)
        return self._cells.get(record, self._others.get(record[0]))

    def label(self, cell: int) -> str:
        """Return the label of a cell: query and URL with a tab between; ``*`` stands for all others."""
        return self._names[self._checked(cell)]


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from 0 to a public bound."""

    highest: int

    kind: ClassVar[str] = "number"

    def cell(self, value: object, url: object = None) -> int:
        """Return the number itself if it is in range, or raise UnknownValue without showing it."""
        _check_value("number", value, url)
        if type(value) is not int:
            raise UsageError("a value to report is a whole number", fix="Round it on the device, and pass an int")
        if not 0 <= value <= self.highest:
            raise UnknownValue(
                "the number is not in the range of the task, so nothing is reported",
                why=f"the task collects whole numbers from 0 to {self.highest}",
                fix="Clamp it on the device, and say so to readers of the results",
            )
        return value

    def to_json(self) -> dict[str, Any]:
        """Return the range as plain data, as it enters the hash of a configuration."""
        return {"kind": self.kind, "highest": self.highest}


@dataclass(frozen=True)
class Texts:
    """Any text, in Unicode NFC, stripped."""

    kind: ClassVar[str] = "text"

    def cell(self, value: object, url: object = None) -> bytes:
        """Return the bytes of the text in its normal form, or raise UnknownValue without showing it."""
        _check_value("text", value, url)
        if not isinstance(value, str):
            raise UsageError("a value to report is text", fix="Pass it as str")
        try:
            data = normal_value(value).encode() if len(value) <= LONGEST else b""
        except UnicodeEncodeError:
            data = b""
        if not data:
            raise UnknownValue(
                "the text can't be reported",
                why=f"the task collects Unicode texts of 1 to {LONGEST} characters",
                fix="Report a shorter text, or none",
            )
        return data

    def to_json(self) -> dict[str, Any]:
        """Return the kind as plain data, as it enters the hash of a configuration."""
        return {"kind": self.kind}


def _check_value(kind: str, value: object, url: object) -> None:
    if url is not None:
        raise UsageError("only searches have a URL", fix=f"Leave the URL out: this task collects a {kind}")
    if value is None:
        raise UsageError(
            f'a {kind} task has no answer for "nothing to report"',
            fix="Call it only on devices that have a value; silence reveals that there is none",
        )


def _label(record: Sequence[str]) -> str:
    return "\t".join(record if record[-1] else record[:-1])


def _normal(kind: str, texts: Sequence[str]) -> tuple[str, ...]:
    return (normal_query(texts[0]), normal_url(texts[1])) if kind == "searches" else (normal_value(texts[0]),)


def _record(kind: str, item: object, number: int) -> tuple[str, ...]:
    parts: list[object] = list(item) if isinstance(item, list | tuple) else [item]
    texts = [part for part in parts if isinstance(part, str) and len(part) <= LONGEST and _encodes(part)]
    pairs = kind == "searches"
    if not len(parts) == len(texts) == (2 if pairs else 1) or (not pairs and not isinstance(item, str)):
        what = "a [query, URL] pair of texts" if pairs else "a text"
        raise UsageError(f"entry {number} of the domain is not {what} of at most {LONGEST} characters")
    record = _normal(kind, texts)
    if not record[0]:
        raise UsageError(f"entry {number} of the domain is empty", fix="Leave it out; the wildcard stands for the rest")
    if WILDCARD in record:
        raise UsageError(
            f"entry {number} of the domain is {WILDCARD!r}, which stands for everything else",
            fix="Leave it out: it is counted there",
        )
    return record


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_kind(task: Task) -> None:
    """Refuse parts of a task that do not fit its kind or its mechanism."""
    if task.collect.candidates is not None:
        if task.task.kind != "text" or not task.collect.candidates:
            raise UsageError('[collect] candidates is a list of texts to look for, for kind = "text"')
        for text in task.collect.candidates:
            Texts().cell(text)
    if task.is_listed:
        _check_listed(task)
    else:
        _check_unlisted(task)
    for key, oracle in _ORACLE_KEYS.items():
        if getattr(task.client, key) is not None and task.oracle != oracle:
            raise UsageError(f'[client] {key} belongs to oracle = "{oracle}"; leave it out, or choose that')


def _check_listed(task: Task) -> None:
    if task.client.oracle in (*NUMBER_ORACLES, *TEXT_ORACLES):
        kind = "number" if task.client.oracle in NUMBER_ORACLES else "text"
        raise UsageError(f'[client] oracle = "{task.client.oracle}" is for kind = "{kind}"')
    if task.task.highest is not None:
        raise UsageError('[task] highest is for kind = "number"')
    if task.oracle == TWO_STAGE:
        if task.task.kind != "searches":
            raise UsageError('[client] oracle = "two-stage" is for (query, URL) records: kind = "searches"')
        if task.client.unknown == "refuse":
            raise UsageError(
                'two-stage has cells for other URLs and other queries, so [client] unknown must be "wildcard"'
            )
    if task.task.domain is None:
        if task.task.kind == "setting":
            raise UsageError("[task] domain is missing: list the values that the setting can have")
        if task.head is None:
            raise UsageError("the task has neither a [head] list to come nor a [task] domain")
    elif task.head is not None:
        raise UsageError("the task has both a [task] domain and a [head] list; leave one of them out")
    if task.head is not None:
        _check_head(task, task.head)


def _check_head(task: Task, head: HeadPart) -> None:
    """Refuse a hybrid whose two sides would not estimate the same."""
    if (head.mode == "paper") != (task.oracle == TWO_STAGE):
        raise UsageError(
            '[head] mode = "paper" is for two-stage reports; leave [client] oracle out, or write "two-stage"'
            if head.mode == "paper"
            else '[client] oracle = "two-stage" belongs to [head] mode = "paper"; write that, or choose another oracle'
        )
    if head.algorithm == "guided" and (head.mode != "best" or task.client.records_per_user != 1):
        raise UsageError(
            '[head] algorithm = "guided" counts one record of each user, in mode = "best": give records_per_user = 1; '
            "weighed says how many records it looks at"
        )
    if head.weighed is not None and head.algorithm != "guided":
        raise UsageError('[head] weighed belongs to algorithm = "guided"; leave it out, or choose that')
    if task.optin is not None and task.optin.records_per_user != task.client.records_per_user:
        raise UsageError(
            "[optin] and [client] have different records_per_user, so the two sides would estimate different shares: "
            "give both the same"
        )


def _check_unlisted(task: Task) -> None:
    kind, client = task.task.kind, task.client
    known = NUMBER_ORACLES if kind == "number" else TEXT_ORACLES
    if client.oracle not in ("auto", *known):
        raise UsageError(f'kind = "{kind}" has the oracles auto, {", ".join(known)}')
    for part, name in ((task.task.domain, "[task] domain"), (task.head, "[head]"), (task.optin, "[optin]")):
        if part is not None:
            raise UsageError(f'{name} is for tasks with a list of values; a task of kind = "{kind}" has none')
    if client.records_per_user != 1:
        raise UsageError(f'kind = "{kind}" takes records_per_user = 1: it has no wildcard to fill unused slots')
    if client.unknown == "wildcard" and "unknown" in client.model_fields_set:
        raise UsageError(f'kind = "{kind}" has no wildcard; leave [client] unknown out')
    if kind == "number":
        _check_number(task)
    elif task.task.highest is not None:
        raise UsageError('[task] highest is for kind = "number"')
    elif client.rappor is None:
        raise UsageError("[client.rappor] is missing: give k, h, m, p, q and f")
    elif client.rappor.p >= client.rappor.q:
        raise UsageError("[client.rappor] p must be below q, else a report says nothing or the opposite")


def _check_number(task: Task) -> None:
    highest, client = task.task.highest, task.client
    if highest is None:
        raise UsageError("[task] highest is missing: the largest number there can be, a public bound")
    if task.oracle == "onebit":
        if client.step is not None and (client.step > highest or highest % client.step):
            raise UsageError("[client] step must divide [task] highest")
        return
    if client.buckets is None or client.bits is None:
        raise UsageError("[client] buckets and bits are missing: how many ranges, and for how many a device answers")
    if client.buckets > highest + 1:
        raise UsageError("[client] buckets is more than there are numbers from 0 to highest")
    if client.bits > client.buckets:
        raise UsageError("[client] bits is more than there are buckets")
