"""Which of a source's columns is which of ours: by name or by place; names of columns are never published."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hushquery.errors import DataError, UsageError

#: The columns a log can have, in their order, with their types once read; users that are whole numbers stay so.
COLUMNS = {"user": "string", "query": "string", "time": "int64", "url": "string", "rank": "int64"}

#: The columns a source may lack.
OPTIONAL = ("time", "url", "rank")

#: Other names that columns go by, without blanks, dashes and underscores, in small letters.
SYNONYMS = {
    "user": "userid uid anonid id customerid customer memberid member visitorid visitor clientid client accountid "
    "account cookie cookieid personid person deviceid device reader readerid patron sessionid session",
    "query": "q search searchterm searchterms searchquery querytext term terms keyword keywords phrase text typed "
    "searchtext searchstring searched",
    "time": "timestamp date datetime querytime searchtime when ts created createdat day at clicktime eventtime",
    "url": "clickurl clickedurl page link target clicked clickedpage landingpage destination document doc sku",
    "rank": "itemrank position place pos resultrank",
}

_LONGEST_NAME = 60
_MOST_NAMES = 20
# Cells that no header has: numbers, dates, times of day, addresses, long hexadecimal ids.
_DATA = re.compile(
    r"[+-]?\d+([.,:]\d+)*|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|https?://.*|\S+@\S+[.]\S+|(?=.*\d)[0-9a-fA-F-]{12,}|\[.*\]"
)


def quote_name(name: str) -> str:
    """Return a column's name in quotes, a very long one cut.

    >>> quote_name("Customer ID")
    "'Customer ID'"
    """
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...")


def list_names(names: Sequence[str]) -> str:
    """Return a sentence with the names of a table's columns: they are its schema, none of its rows."""
    first = ", ".join(quote_name(name)[1:-1] for name in names[:_MOST_NAMES])
    return f"It has {first}{', ...' if len(names) > _MOST_NAMES else ''}"


def describe_columns(origins: Mapping[str, str], time_format: str = "") -> str:
    """Describe what each of our columns is in the source.

    >>> describe_columns({"user": "the column 'Member'", "query": "the column 'query'"})
    "user: the column 'Member'; query: the column 'query'; time: none; url: none"
    """
    named = {ours: origins.get(ours, "none") for ours in COLUMNS if ours in origins or ours != "rank"}
    if time_format and "time" in origins:
        named["time"] += f", written {time_format}"
    return "; ".join(f"{ours}: {origin}" for ours, origin in named.items())


def published_origin(ours: str, theirs: str, what: str = "column") -> str:
    """Return what may be published of where a column comes from: a first line may be somebody's row.

    >>> published_origin("user", "User"), published_origin("user", "Jane Doe")
    ("the column 'user'", 'a column that the steward named')
    """
    return f"the {what} {ours!r}" if theirs.lower() == ours else f"a {what} that the steward named"


def looks_like_data(cells: Sequence[str], below: Sequence[Sequence[str]] = ()) -> bool:
    """Return whether a first line looks like a row and not like names of columns.

    A cell is a number, a time or an address; or it has the letters and digits of most below it, as K1354 and K7012
    have; or it is no usual name and comes again and again in its column.

    >>> looks_like_data(["user", "Search term"]), looks_like_data(["17", "tea"])
    (False, True)
    >>> looks_like_data(["ann", "tea"], [["ann", "milk"], ["ann", "rice"], ["bob", "tea"]])
    True
    """
    if any(_DATA.fullmatch(cell.strip()) for cell in cells):
        return True
    others = [row for row in below if list(row) != list(cells)]  # a header may be repeated where files were joined
    for i, cell in enumerate(cells):
        alike = sum(row[i : i + 1] != [] and _shape(row[i]) == _shape(cell) for row in others)
        if _shape(cell).count("0") >= 3 and 2 * alike > len(others):
            return True
    usual = {squeezed(name) for name in COLUMNS}.union(*(words.split() for words in SYNONYMS.values()))
    again = (
        sum(row[i : i + 1] == [cell] for row in others) for i, cell in enumerate(cells) if squeezed(cell) not in usual
    )
    return bool(cells) and any(cells) and any(times > 1 for times in again) and not {*map(squeezed, cells)} & usual


def _shape(cell: str) -> str:
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "0", cell.strip()))


@dataclass(frozen=True)
class ColumnNames:
    """Which of the source's columns is which of ours."""

    names: Mapping[str, str | int]  # their name, or place from 1, for each of ours that may be read
    required: frozenset[str]  # ours that must be there

    @classmethod
    def of(cls, columns: Mapping[str, str | int | None], *, header: bool | None = None) -> ColumnNames:
        """Check what the caller says; other columns go by our own names, in a file without header by none."""
        for ours, theirs in columns.items():
            if ours not in COLUMNS:
                raise UsageError(
                    f"a log has no column {ours!r}", fix=f"Map ours to theirs; ours are {', '.join(COLUMNS)}"
                )
            if theirs in ("", None) and ours not in OPTIONAL:
                raise UsageError(f"a log needs the column {ours!r}", fix="Say which of the source's columns it is")
            if isinstance(theirs, int) and (isinstance(theirs, bool) or theirs < 1):
                raise UsageError("columns are counted from 1", fix="The first column is 1: --columns user=1,query=2")
        names = {ours: columns.get(ours, ours) for ours in COLUMNS}
        present = {ours: theirs for ours, theirs in names.items() if theirs not in ("", None)}
        if header is False:
            present = {ours: theirs for ours, theirs in present.items() if ours in columns}
        return cls(present, frozenset(ours for ours in present if ours in columns or ours not in OPTIONAL))

    def positions(self) -> dict[str, int]:
        """Return the places, from 0, in a file without a header line; refuse names."""
        if not {"user", "query"} <= set(self.names) or not all(str(place).isdecimal() for place in self.names.values()):
            raise UsageError(
                "a file without a header line has no names of columns",
                fix="Count them from 1: --no-header --columns user=2,query=3,time=1, or "
                "header=False, columns={'user': 2, 'query': 3, 'time': 1}. `hushquery look FILE` shows what is where",
            )
        self.check_distinct({ours: int(place) for ours, place in self.names.items()})
        if min(map(int, self.names.values())) < 1:
            raise UsageError("columns are counted from 1", fix="The first column is 1: --columns user=1,query=2")
        return {ours: int(place) - 1 for ours, place in self.names.items()}

    def match(self, theirs: Sequence[str], hint: str = "") -> dict[str, int]:
        """Return the places, from 0, of the columns that a source has; refuse a source that lacks a required one.

        A name is the exact name, or the only one that differs from it in case; a number that is no name is a place.
        """
        matched: dict[str, int] = {}
        for ours, name in self.names.items():
            if isinstance(name, int) or (name.isdecimal() and name not in theirs):
                if not 1 <= int(name) <= len(theirs):
                    raise DataError(
                        f"the log has no column {int(name)} for {ours}",
                        why=f"It has {len(theirs)} columns",
                        fix="Columns are counted from 1",
                    )
                matched[ours] = int(name) - 1
            elif found := name if name in theirs else _only(theirs, name, str.lower):
                if theirs.count(found) > 1:
                    raise DataError(
                        "the header line has a needed column twice",
                        fix=f"Rename one of them, or say which by its place from 1: --columns {ours}=1",
                    )
                matched[ours] = theirs.index(found)
        missing = [ours for ours in self.names if ours in self.required and ours not in matched]
        if not missing:
            self.check_distinct(matched, theirs)
            return matched
        near = {ours: one for ours in missing if (one := _nearest(theirs, str(self.names[ours])))}
        options = option_for({ours: near.get(ours, "NAME") for ours in missing})
        keys = ", ".join(f"{ours!r}: {near.get(ours, 'NAME')!r}" for ours in missing)
        ours, name = missing[0], str(self.names[missing[0]])
        meant = f"Did you mean {' and '.join(map(quote_name, near.values()))}? " if near else ""
        raise DataError(
            f"the log has no column {quote_name(name)}" + ("" if name == ours else f" for {ours}"),
            why=hint,
            fix=f"{meant}Say which column it is: {options}, or columns={{{keys}}}",
        )

    def check_distinct(self, matched: Mapping[str, str | int], theirs: Sequence[str] = ()) -> None:
        """Raise if one column, a name or a place from 0 among theirs, would be two of ours."""
        taken: dict[str | int, str] = {}
        for ours, one in matched.items():
            if one in taken:
                name = theirs[one] if isinstance(one, int) and theirs else one
                shown = quote_name(name) if isinstance(name, str) else name
                raise UsageError(
                    f"the column {shown} can't be both {taken[one]} and {ours}",
                    why="Each of our columns is one of the source's own",
                    fix=f"Name another column for one of them: {option_for({taken[one]: 'NAME', ours: 'NAME'})}"
                    + (f"; {ours}= does without it" if ours in OPTIONAL else ""),
                )
            taken[one] = ours

    def keys(self) -> dict[str, str]:
        """Return the names as keys of JSON objects, which have no places."""
        if any(isinstance(name, int) for name in self.names.values()):
            raise UsageError(
                "JSON objects have keys and no order of columns", fix="Name the keys: columns={'user': 'KEY'}"
            )
        names = {ours: str(name) for ours, name in self.names.items()}
        self.check_distinct(names)
        return names

    def of_format(self, kind: str, origins: Mapping[str, str]) -> dict[str, str]:
        """Return which columns of a format of fixed columns are read; refuse other names for them."""
        for ours, theirs in self.names.items():
            own = ours if ours not in origins else origins[ours].removeprefix("the column ").strip("'")
            if str(theirs).lower() not in (ours, own.lower()):
                raise UsageError(
                    f"the format {kind} has its own columns",
                    why=f"There {ours} is {origins[ours]}" if ours in origins else f"It has no {ours}",
                    fix=f"Leave out --columns {ours}=..., or columns={{{ours!r}: ...}}",
                )
        return {ours: origin for ours, origin in origins.items() if ours in self.names}

    def without(self, left_out: str) -> str:
        """Write the option, and the argument in Python, that ask for the same columns but one."""
        names = {ours: theirs for ours, theirs in self.names.items() if ours not in (left_out, theirs)}
        options = names | {ours: "" for ours in COLUMNS if ours not in self.names or ours == left_out}
        keys = ", ".join(f"{ours!r}: {theirs or None!r}" for ours, theirs in options.items())
        return f"{option_for(options)}, or columns={{{keys}}}"


def option_for(names: Mapping[str, object]) -> str:
    """Write ``--columns`` as a shell takes it.

    >>> option_for({"user": "Customer ID", "query": "q"})
    '--columns "user=Customer ID,query=q"'
    """
    text = ",".join(f"{ours}={theirs}" for ours, theirs in names.items())
    return f'--columns "{text}"' if set(text) & set(" '&;()<>|*?#$") else f"--columns {text}"


def _only(theirs: Sequence[str], name: str, form: Callable[[str], str]) -> str | None:
    alike = [other for other in theirs if form(other) == form(name)]
    return alike[0] if len(alike) == 1 else None


def _nearest(theirs: Sequence[str], name: str) -> str | None:
    """Return the one name that was probably meant: a typing mistake, a synonym; nothing where two are as near."""
    alike = [other for other in theirs if squeezed(other) == squeezed(name)]
    if alike:
        return alike[0] if len(alike) == 1 else None
    words = SYNONYMS.get(name, "").split()
    if known := [other for other in theirs if squeezed(other) in words]:
        return known[0] if len(known) == 1 else None
    close = difflib.get_close_matches(squeezed(name), [*map(squeezed, theirs)], n=2, cutoff=0.75)
    return _only(theirs, close[0], squeezed) if len(close) == 1 else None


def squeezed(text: str) -> str:
    """Return a name without blanks, dashes, dots and underscores, in small letters."""
    return "".join(re.sub("[-_.]", " ", text).split()).lower()
