"""What the steward declares: whose data it is, and a description of what is published; validated and public.

Nothing here is ever read from rows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from hushquery.errors import DataError, UsageError

#: How long each text may be, and how many people there may be.
LONGEST = {"title": 200, "publisher": 200, "licence": 200, "contact": 300}
MOST_PEOPLE = 10**11
_MAIL = re.compile(r"[^\s@<>\"',;:]+@[^\s@<>\"',;:]+\.[^\s@<>\"',;:.]+")
# They turn the rest of a line round, and with it what a reader sees.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ADDRESS = re.compile(r"https://[^\s/@<>\"']+\.[^\s/@<>\"']+(/[^\s<>\"']*)?")
# Below this a changed letter makes another word: "uk" is no misspelt "us".
_SHORTEST_TYPO = 5
# Words that say nothing about whose data it is.
_SMALL = re.compile(r"a|all|an|and|at|by|for|from|in|its|my|of|on|or|our|that|the|their|these|this|to|with|your")
# What examples and help texts write where the name belongs, without blanks and signs.
_PLACEHOLDER = re.compile(
    r"(the|your)?(name|population)(name)?|your(people|users|readers|customers)|nameof(the)?(people|population)|whose\w*"
    r"|placeholder|changeme|fixme|todo|tbd|xxx+"
)


def clean_text(text: str, meaning: str, *, lines: bool = False, empty: bool = False) -> str:
    """Return a text in the one form in which it is stored and safe to print: composed (NFC), stripped, printable."""
    clean = unicodedata.normalize("NFC", text).strip()
    allowed = "\n\t" if lines else ""
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in allowed for c in clean):
        raise UsageError(f"{meaning} has control characters in it", fix="Use plain text")
    if not clean and not empty:
        raise UsageError(f"{meaning} is empty", fix="Use a few words, such as 'readers of example.org'")
    return clean


@dataclass(frozen=True)
class Description:
    """What a release says of itself, each part optional: declared by its steward, validated, and public.

    Args:
        title: A name for people, such as "What readers searched for in November".
        publisher: Who publishes it.
        licence: An SPDX identifier such as ``CC-BY-4.0``, or a short text.
        period: The first and the last day of the data, both included: ``2026-11-02..2026-11-08``.
        contact: A mail address, or an ``https://`` address.
        people: How many people the data is about: a public figure, never counted from the rows.

    >>> about = Description(title="Searches of a week", licence="CC0-1.0", period="2026-11-02..2026-11-08")
    >>> about.to_json()["period"]
    {'start': '2026-11-02', 'end': '2026-11-08'}
    >>> Description(period="2026-11-08..2026-11-02")
    Traceback (most recent call last):
    hushquery.errors.UsageError: the period ends before it starts...
    """

    title: str | None = None
    publisher: str | None = None
    licence: str | None = None
    period: str | None = None
    contact: str | None = None
    people: int | None = None

    def __post_init__(self) -> None:
        for name, most in LONGEST.items():
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, _checked_text(text, name, most))
        if self.contact is not None and not (_MAIL.fullmatch(self.contact) or _ADDRESS.fullmatch(self.contact)):
            fix = "Use one such as statistics@example.org or https://example.org/statistics"
            raise UsageError("the contact is neither a mail address nor an https:// address", fix=fix)
        if self.period is not None:
            start, end = _days(self.period)
            object.__setattr__(self, "period", f"{start}..{end}")
        if self.people is not None and (type(self.people) is not int or not 1 <= self.people <= MOST_PEOPLE):
            raise UsageError(
                f"the number of people must be an integer from 1 to {MOST_PEOPLE:,}", fix="Use a public figure"
            )

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in fields(self))

    @property
    def days(self) -> tuple[date, date] | None:
        """The first and the last day of the data; None where no period is declared."""
        return None if self.period is None else _days(self.period)

    def within(self, times: Mapping[str, str]) -> Description:
        """Return this description of rows that ``times`` (since, until) selected: their days are its period.

        A declared period that reaches beyond the selected times is refused.
        """
        first, last = _selected(times)
        if self.days is None:
            return replace(self, period=f"{first}..{last}") if first and last and first <= last else self
        if (first and self.days[0] < first) or (last and self.days[1] > last):
            raise UsageError(
                "the period reaches beyond the times that were selected",
                why=f"the rows are those from {times.get('since', 'the beginning')} to {times.get('until', 'the end')}",
                fix="Leave --period out: it then follows from --since and --until",
            )
        return self

    def to_json(self) -> dict[str, Any]:
        """Return what is stated as plain data."""
        stated = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        if self.days is not None:
            stated["period"] = {"start": self.days[0].isoformat(), "end": self.days[1].isoformat()}
        return stated

    @classmethod
    def from_json(cls, data: Any) -> Description:
        """Read what :meth:`to_json` returned; names that are not known are passed over."""
        try:
            if not isinstance(data, Mapping):
                raise TypeError
            known = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            if "period" in known:
                known["period"] = f"{known['period']['start']}..{known['period']['end']}"
            return cls(**known)
        except (TypeError, KeyError, AttributeError):
            raise DataError("a description is damaged", fix="Download the release again") from None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what is stated, each part with its name, in words for people."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield (
                    field.name,
                    f"about {value:,} (declared)" if field.name == "people" else _in_words(value, field.name),
                )

    def for_ledger(self) -> str:
        """Return the lines with which a ledger remembers what was paid for: its title and its period."""
        return "\n".join(f"{name}: {text}" for name, text in self.facts() if name in ("title", "period"))


#: What nobody described.
UNDESCRIBED = Description()


def _in_words(text: str, name: str) -> str:
    start, _, end = text.partition("..")
    return text if name != "period" else start if start == end else f"{start} to {end}"


def _checked_text(text: Any, name: str, most: int) -> str:
    if not isinstance(text, str):
        raise UsageError(f"the {name} is not text", fix="Use a few words")
    clean = clean_text(_TURNS.sub("\0", text), f"the {name}")
    if len(clean) > most:
        raise UsageError(f"the {name} is longer than {most} characters", fix="Shorten it")
    return clean


def _days(period: Any) -> tuple[date, date]:
    try:
        start, _, end = period.partition("..")
        days = date.fromisoformat(start.strip()), date.fromisoformat(end.strip())
    except (AttributeError, ValueError):
        fix = "Write the first and the last day, as in 2026-11-02..2026-11-08"
        raise UsageError("the period is not two ISO dates", fix=fix) from None
    if days[0] > days[1]:
        raise UsageError("the period ends before it starts", fix="Write the earlier day first")
    return days


def _selected(times: Mapping[str, str]) -> tuple[date | None, date | None]:
    """Return the first day from ``since`` on, and the last day before ``until``; None where nothing is said."""

    def day(name: str, earlier: timedelta) -> date | None:
        try:
            return (datetime.fromisoformat(times[name]).astimezone(UTC) - earlier).date()
        except (KeyError, ValueError, OverflowError):
            return None

    return day("since", timedelta()), day("until", timedelta(microseconds=1))


def check_named(population: str) -> None:
    """Refuse what an example writes in place of a name: nobody's budget would be kept under it.

    >>> check_named("readers of example.org")
    >>> check_named("<your site's readers>")
    Traceback (most recent call last):
    ...
    hushquery.errors.UsageError: the population "<your site's readers>" is a placeholder, not a name. ...
    """
    if (
        re.fullmatch(r"\s*<[^<>]*>\s*", population)
        or _PLACEHOLDER.fullmatch(_letters(population))
        or not population.strip(". \u2026")
    ):
        raise UsageError(
            f'the population "{population}" is a placeholder, not a name. Nothing was spent',
            why="The ledger keeps the budget of these people under their name, for good",
            fix="Say whose data it is, such as 'readers of example.org', always in the same words",
        )


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name whose people ``name`` may stand for too, if there is one: names that differ in case,
    blanks, punctuation or digits (the users of 2025 are mostly those of 2026), in one letter missing, added, changed or
    swapped with its neighbour, in the folder, schema or ending around the name of a file or table, or only in the order
    of their words, in small words (the, of, our) and in singular or plural.

    >>> near_name("Custmers", ["visits", "customers"]), near_name("users of 2026", ["users of 2025"])
    ('customers', 'users of 2025')
    >>> near_name("public.searches", ["searches"]), near_name("uk", ["us"])
    ('searches', None)
    >>> near_name("our shop's customers", ["customers of the shop"])
    'customers of the shop'
    """
    return next((other for other in known if other != name and _near(name, other)), None)


def _near(name: str, other: str) -> bool:
    one, two = _letters(name), _letters(other)
    if one == two:
        return bool(one or (re.search(r"\d", name) and re.search(r"\d", other)))
    if one in _parts(other) or two in _parts(name):
        return bool(one and two)
    if _content(name) == _content(other):
        return bool(one and two)
    return min(len(one), len(two)) >= _SHORTEST_TYPO and _one_typo(one, two)


def _letters(name: str) -> str:
    return re.sub(r"[\W\d_]+", "", unicodedata.normalize("NFKC", name).casefold())


def _content(name: str) -> set[str]:
    """Return the words that say whose data it is, in the singular; the last word always counts ("plan a")."""
    words = re.findall(r"[^\W\d_]+", re.sub(r"['\u2019]s\b", "", unicodedata.normalize("NFKC", name).casefold()))
    return {_singular(word) for word in [*(word for word in words[:-1] if not _SMALL.fullmatch(word)), *words[-1:]]}


def _singular(word: str) -> str:
    for ending, instead in (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("sses", "ss"), ("xes", "x")):
        if len(word) > len(ending) + 1 and word.endswith(ending):
            return word.removesuffix(ending) + instead
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _parts(name: str) -> list[str]:
    """Return what a path or a dotted name is made of; a name of several words is neither."""
    return [] if re.search(r"\s", name) else [_letters(part) for part in re.split(r"[/\\.]", name)]


def _one_typo(one: str, two: str) -> bool:
    if len(one) < len(two):
        one, two = two, one
    start = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(two))
    left, right = one[start:], two[start:]
    if len(one) > len(two):
        return left[1:] == right
    return left[1:] == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])
