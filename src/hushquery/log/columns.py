"""Which column of a source is which of ours: found by name, said in words, and refused where it can't be meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hushquery.errors import DataError, UsageError
from hushquery.log.read import COLUMNS, OPTIONAL

__all__ = ["Wanted", "in_words", "its_columns", "shown"]

_LONGEST_SHOWN = 60
_MOST_SHOWN = 20


def shown(name: str) -> str:
    """Give a column's name in quotes, a very long one cut.

    >>> shown("Customer ID")
    "'Customer ID'"
    """
    return repr(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}...")


def its_columns(names: Sequence[str]) -> str:
    """Give the names of a table's columns: they are its schema, none of its rows."""
    first = ", ".join(shown(name)[1:-1] for name in names[:_MOST_SHOWN])
    return f"It has {first}{', ...' if len(names) > _MOST_SHOWN else ''}"


def in_words(origins: Mapping[str, str], written: str = "") -> str:
    """Say what each of our columns is in the source, in words that may be published.

    >>> in_words({"user": "the column 'Member'", "query": "the column 'query'"})
    "user: the column 'Member'; query: the column 'query'; time: none; url: none"
    """
    named = {ours: origins.get(ours, "none") for ours in COLUMNS if ours in origins or ours != "rank"}
    if written and "time" in origins:
        named["time"] += f", written {written}"
    return "; ".join(f"{ours}: {origin}" for ours, origin in named.items())


@dataclass(frozen=True)
class Wanted:
    """Which of the source's columns is which of ours.

    Attributes:
        names: Their name for each of ours that may be read.
        needed: Ours that must be there.
    """

    names: Mapping[str, str]
    needed: frozenset[str]

    @classmethod
    def of(cls, columns: Mapping[str, str | None]) -> Wanted:
        """Check what the steward says of the columns; what is not said goes by our own names."""
        for ours, theirs in columns.items():
            if ours not in COLUMNS:
                raise UsageError(
                    f"a log has no column {ours!r}", fix=f"Map ours to theirs; ours are {', '.join(COLUMNS)}"
                )
            if not theirs and ours not in OPTIONAL:
                raise UsageError(f"a log needs the column {ours!r}", fix="Say which of the source's columns it is")
        names = {ours: columns.get(ours, ours) for ours in COLUMNS}
        present = {ours: theirs for ours, theirs in names.items() if theirs}
        needed = {ours for ours in present if ours in columns or ours not in OPTIONAL}
        return cls(present, frozenset(needed))

    def found_in(self, theirs: Sequence[str], hint: str = "") -> dict[str, str]:
        """Give the names that a source has, whatever their capitals; refuse a source that lacks a needed one."""
        found = {ours: alike for ours, name in self.names.items() if (alike := _alike(name, theirs))}
        missing = [ours for ours in self.names if ours in self.needed and ours not in found]
        if missing:
            raise self._missing(missing, theirs, hint)
        return self.each_once(found)

    def _missing(self, missing: Sequence[str], theirs: Sequence[str], hint: str) -> DataError:
        # The first line of a file without a header is somebody's row. A name that is the wanted one but for blanks,
        # underscores and capitals shows nothing that the steward did not write.
        near = {ours: one for ours in missing if (one := _nearly(self.names[ours], theirs))}
        options = _option({ours: near.get(ours, "NAME") for ours in missing})
        keys = ", ".join(f"{ours!r}: {near.get(ours, 'NAME')!r}" for ours in missing)
        ours, name = missing[0], self.names[missing[0]]
        meant = f"Did you mean {' and '.join(map(shown, near.values()))}? " if near else ""
        return DataError(
            f"the log has no column {shown(name)}" + ("" if name == ours else f" for {ours}"),
            why=hint,
            fix=f"{meant}Say which column it is: {options}, or columns={{{keys}}}",
        )

    def each_once(self, found: Mapping[str, str]) -> dict[str, str]:
        """Give the names as they are, unless one column would be two of ours."""
        taken: dict[str, str] = {}
        for ours, theirs in found.items():
            if theirs in taken:
                raise UsageError(
                    f"the column {shown(theirs)} can't be both {taken[theirs]} and {ours}",
                    why="Each of our columns is one of the source's own",
                    fix=f"Name another column for one of them: {_option({taken[theirs]: 'NAME', ours: 'NAME'})}"
                    + (f"; {ours}= does without it" if ours in OPTIONAL else ""),
                )
            taken[theirs] = ours
        return dict(found)

    def of_format(self, kind: str, origins: Mapping[str, str]) -> dict[str, str]:
        """Give which columns of a format of fixed columns are read; refuse other names for them."""
        for ours, theirs in self.names.items():
            own = ours if ours not in origins else origins[ours].removeprefix("the column ").strip("'")
            if theirs.lower() not in (ours, own.lower()):
                raise UsageError(
                    f"the format {kind} has its own columns",
                    why=f"There {ours} is {origins[ours]}" if ours in origins else f"It has no {ours}",
                    fix=f"Leave out --columns {ours}=..., or columns={{{ours!r}: ...}}",
                )
        return {ours: origin for ours, origin in origins.items() if ours in self.names}

    def without(self, left_out: str) -> str:
        """Write down the same wishes without one column, as an option and for Python."""
        names = {ours: theirs for ours, theirs in self.names.items() if ours not in (left_out, theirs)}
        wishes = names | {ours: "" for ours in COLUMNS if ours not in self.names or ours == left_out}
        keys = ", ".join(f"{ours!r}: {theirs or None!r}" for ours, theirs in wishes.items())
        return f"{_option(wishes)}, or columns={{{keys}}}"


def _option(names: Mapping[str, str]) -> str:
    text = ",".join(f"{ours}={theirs}" for ours, theirs in names.items())
    return f'--columns "{text}"' if set(text) & set(" '&;()<>|*?#$") else f"--columns {text}"


def _alike(name: str, theirs: Sequence[str]) -> str | None:
    """Give the column of that name, or the only one that differs from it in capitals."""
    if name in theirs:
        return name
    alike = [other for other in theirs if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _nearly(name: str, theirs: Sequence[str]) -> str | None:
    """Give the only column that differs from the name in blanks, underscores and capitals."""

    def squeezed(text: str) -> str:
        return "".join(text.replace("_", " ").split()).lower()

    near = [other for other in theirs if squeezed(other) == squeezed(name)]
    return near[0] if len(near) == 1 else None
