"""Define the tables a release may hold: their columns, and the one order their rows come in.

Other columns are refused: one added for debugging could be a true count. The order of rows depends only on what they
say, because the order of an engine may follow the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.errors import DataError, UsageError

#: What the numbers of a table are: counts, shares of all records, or the two estimates behind a share.
Measure = Literal["count", "share", "estimates"]

#: A share is ranked as if so many records had been counted.
SHARE_SCALE = 100_000

#: The parameter of a release of shares that states the share of everything that is not listed.
REST = "rest"

# The columns in which a value may be missing; NaN means the same.
_MAY_MISS = {"shift_z"}

# Sums of rounded shares may pass the whole by this much.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class TableKind:
    """A kind of table: the columns that name a row, what a row is, what its numbers may be, if it may have none."""

    keys: tuple[str, ...]
    row: str
    measures: tuple[Measure, ...] = ("count", "share")
    bare: bool = False


#: The tables a release may hold, by name.
KINDS: Mapping[str, TableKind] = {
    "queries": TableKind(("query",), "a query that people searched for", bare=True),
    "clicks": TableKind(("query", "url"), "a query and a page that people clicked on after it"),
    "reformulations": TableKind(
        ("query", "next_query"), "a query and the query that people searched for next", measures=("count",)
    ),
    "records": TableKind(
        ("query", "url"), "a query and a page, as the two groups of people measured them", measures=("estimates",)
    ),
}

_INTERVAL = {"low": "the lower end of the interval", "high": "the upper end of the interval"}

#: The columns that follow the keys, with what they hold, by what the numbers of a table are.
NUMBERS: Mapping[Measure, Mapping[str, str]] = {
    "count": {"count": "the noisy count; it may be below zero, because noise is"}
    | {"stderr": "the standard error of the noise", **_INTERVAL},
    "share": {"share": "the share of all records, from 0 to 1"}
    | {"stderr": "the standard error of the share", **_INTERVAL},
    "estimates": {
        "optin": "the share by the opt-in users alone; it may be below zero, because noise is",
        "optin_stderr": "its standard error",
        "client": "the share by the clients alone; it may be below zero too",
        "client_stderr": "its standard error",
        "weight": "the part of the opt-in estimate in the blend, from 0 to 1; the clients have the rest",
        "shift_z": "the difference between the two in standard errors; far from 0 the groups search differently; "
        "missing where it could not be tested",
    },
}


def measure_of(table: pa.Table) -> Measure | None:
    """Return what the numbers of a table are, by its columns; None for a bare list of keys."""
    return next((measure for measure, columns in NUMBERS.items() if next(iter(columns)) in table.column_names), None)


def measures_of(tables: Mapping[str, pa.Table]) -> dict[str, Measure | None]:
    """Return what the numbers of each table are, by name."""
    return {name: measure_of(table) for name, table in tables.items()}


def release_measure(tables: Mapping[str, pa.Table]) -> Literal["count", "share"] | None:
    """Return whether a release speaks in counts or in shares; None where it has lists alone. Refuse both at once."""
    measures = set(measures_of(tables).values()) - {None}
    if "count" in measures and len(measures) > 1:
        raise DataError(
            "the tables of a release mix counts with shares", fix="Make one release of counts and one of shares"
        )
    return None if not measures else "count" if "count" in measures else "share"


def checked_table(name: str, table: pa.Table) -> pa.Table:
    """Return a table as a release holds it: known columns, types and order, no gaps, no key twice. Refuse any other."""
    kind = KINDS.get(name)
    if kind is None:
        raise UsageError(f"a release has no table {name!r}", fix=f"Give one of: {', '.join(KINDS)}")
    if not isinstance(table, pa.Table):
        raise UsageError(f"the table {name!r} is a {type(table).__name__}", fix="Give a pyarrow.Table")
    forms = [(*kind.keys, *NUMBERS[measure]) for measure in kind.measures]
    known = [*forms, kind.keys] if kind.bare else forms
    wanted = next((form for form in known if sorted(form) == sorted(table.column_names)), None)
    if wanted is None:
        fix = "Give exactly: " + "; or: ".join(", ".join(form) for form in forms)
        raise UsageError(f"the table {name!r} does not have the columns of one, and no others", fix=fix)
    schema = pa.schema([pa.field(column, _type(column, kind), nullable=column in _MAY_MISS) for column in wanted])
    try:
        table.validate(full=True)
        plain = pa.Table.from_arrays([_cast(table[column], column, kind) for column in wanted], names=list(wanted))
        plain.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        what, fix = f"the table {name!r} has values of another type", "Keys are UTF-8 text, counts whole numbers"
        raise DataError(what, why=type(error).__name__, fix=fix) from None
    problem = _problem(plain, kind.keys)
    if problem:
        raise DataError(f"the table {name!r} can't be published", why=problem, fix="This is a defect of what made it")
    return _ordered(plain, kind.keys).combine_chunks().cast(schema)


def check_references(tables: Mapping[str, pa.Table], parameters: Mapping[str, Any]) -> None:
    """Refuse tables that do not fit together, or whose shares and rest exceed all.

    Reformulations, and records and clicks of shares, need released queries: other keys would come from nowhere public.
    """
    measure = release_measure(tables)
    if "queries" in tables:
        public = tables["queries"]["query"].combine_chunks()
        rooted = [("reformulations", "query"), ("reformulations", "next_query")]
        rooted += [("clicks", "query"), ("records", "query")] if measure == "share" else []
        for name, column in rooted:
            if name in tables and not _all(pc.is_in(tables[name][column], value_set=public)):
                what = f"a {name.removesuffix('s')} names a query that is not released"
                raise DataError(what, fix="Count what belongs to released queries only: only these are public")
    if measure == "share":
        rest = parameters.get(REST)
        if isinstance(rest, bool) or not isinstance(rest, int | float) or not 0 <= rest <= 1:
            fix = f"Give parameters a number {REST!r} from 0 to 1: the share of everything that is not listed"
            raise DataError("a release of shares does not say which share the rest has", fix=fix)
        for name in ("queries", "clicks"):
            listed = pc.sum(tables[name]["share"]).as_py() if name in tables and tables[name].num_columns > 1 else 0.0
            if (listed or 0.0) + rest > 1 + _ROUNDING:
                raise DataError(f"the shares of {name} and the rest are more than the whole", fix="Download it again")


def _type(column: str, kind: TableKind) -> pa.DataType:
    return pa.string() if column in kind.keys else pa.int64() if column == "count" else pa.float64()


def _cast(values: pa.ChunkedArray, column: str, kind: TableKind) -> pa.ChunkedArray:
    plain = values.cast(_type(column, kind))
    return pc.if_else(pc.is_nan(plain), None, plain) if column in _MAY_MISS else plain


def _ordered(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Put what is most frequent first; what is equally frequent goes by its key."""
    order = [(key, "ascending") for key in keys]
    measure = measure_of(table)
    if measure == "estimates":
        return table.take(pc.sort_indices(table.append_column("by", _blended(table)), [("by", "descending"), *order]))
    return table.sort_by([(measure, "descending"), *order] if measure else order)


def _blended(table: pa.Table) -> pa.ChunkedArray:
    ours = pc.multiply(table["weight"], table["optin"])
    return pc.add(ours, pc.multiply(pc.subtract(1.0, table["weight"]), table["client"]))


def _problem(table: pa.Table, keys: tuple[str, ...]) -> str:
    """Return why a table can't be published; empty where it can."""
    if any(table[column].null_count for column in table.column_names if column not in _MAY_MISS):
        return "it has missing values"
    if table.group_by(list(keys)).aggregate([]).num_rows != table.num_rows:
        return "a key stands in it twice"
    columns = [column for column in table.column_names if column not in keys]
    if not all(_all(pc.is_finite(table[column])) for column in columns):
        return "a number in it is not finite"
    if not all(_all(pc.greater_equal(table[column], 0.0)) for column in columns if column.endswith("stderr")):
        return "a standard error in it is below zero"
    if "low" in columns and not _ascending(table["low"], table["high"]):
        return "an interval in it ends before it begins"
    for column in ("share", "weight"):
        if column in columns and not _ascending(pa.scalar(0.0), table[column], pa.scalar(1.0)):
            return f"a {column} in it is not from 0 to 1"
    if "share" in columns and not _ascending(table["low"], table["share"], table["high"]):
        return "a share in it is outside its interval"
    return ""


def _ascending(*columns: Any) -> bool:
    return all(_all(pc.less_equal(one, other)) for one, other in pairwise(columns))


def _all(truths: pa.ChunkedArray) -> bool:
    return bool(pc.all(truths, min_count=0).as_py())
