"""Describe what is published: title, publisher, licence, the period of the data, a contact, the number of people.

All of it is declared by the steward and public. Nothing here is ever read from rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from hushquery.core.ledger.entries import clean_text
from hushquery.errors import DataError, UsageError

__all__ = ["UNDESCRIBED", "Description"]

#: How long each text may be, and how many people there may be.
LONGEST = {"title": 200, "publisher": 200, "licence": 200, "contact": 300}
MOST_PEOPLE = 10**11
_MAIL = re.compile(r"[^\s@<>\"',;:]+@[^\s@<>\"',;:]+\.[^\s@<>\"',;:.]+")
# They turn the rest of a line round, and with it what a reader sees.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ADDRESS = re.compile(r"https://[^\s/@<>\"']+\.[^\s/@<>\"']+(/[^\s<>\"']*)?")


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
