"""The tables a release may hold: their columns, and the one order their rows come in.

Columns that are not listed here are refused: a column somebody added for debugging could be a true count. The order
of rows depends on nothing but what they say, because the order of an engine may follow the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.errors import DataError, UsageError

__all__ = ["KINDS", "NUMBERS", "TableKind", "check_references", "checked_table"]


@dataclass(frozen=True)
class TableKind:
    """One kind of table.

    Args:
        keys: The text columns that name a row.
        row: What one row is, in a clause.
        bare: Whether the table may come as a list of keys without counts.
    """

    keys: tuple[str, ...]
    row: str
    bare: bool = False


#: The tables a release may hold, by name.
KINDS: Mapping[str, TableKind] = {
    "queries": TableKind(("query",), "a query that people searched for", bare=True),
    "clicks": TableKind(("query", "url"), "a query and a page that people clicked on after it"),
    "reformulations": TableKind(("query", "next_query"), "a query and the query that people searched for next"),
}

#: The columns that follow the keys, with what they hold.
NUMBERS: Mapping[str, str] = {
    "count": "the noisy count; it may be below zero, because noise is",
    "stderr": "the standard error of the noise",
    "low": "the lower end of the interval",
    "high": "the upper end of the interval",
}


def checked_table(name: str, table: pa.Table) -> pa.Table:
    """Give a table as a release holds it: known columns, types and order, no gaps, no key twice.

    Raises:
        UsageError: The table's name or its columns are not known.
        DataError: What it holds can't be published. No value is shown.
    """
    kind = KINDS.get(name)
    if kind is None:
        raise UsageError(f"a release has no table {name!r}", fix=f"Give one of: {', '.join(KINDS)}")
    if not isinstance(table, pa.Table):
        raise UsageError(f"the table {name!r} is a {type(table).__name__}", fix="Give a pyarrow.Table")
    names = table.column_names
    full = [*kind.keys, *NUMBERS]
    wanted = list(kind.keys) if kind.bare and set(names) == set(kind.keys) else full
    if sorted(names) != sorted(wanted):
        raise UsageError(
            f"the table {name!r} does not have the columns of one",
            why=f"a release holds what is listed and nothing else, and it has {len(names)} columns",
            fix=f"Give exactly: {', '.join(full)}",
        )
    schema = pa.schema([pa.field(column, _type(column), nullable=False) for column in wanted])
    try:
        table.validate(full=True)
        plain = pa.Table.from_arrays([table[column].cast(_type(column)) for column in wanted], names=wanted)
        plain.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(
            f"the table {name!r} has values of another type",
            why=type(error).__name__,
            fix="Keys are valid UTF-8 text, counts whole numbers, the others numbers",
        ) from None
    _check_values(name, plain, kind.keys)
    order = [(key, "ascending") for key in kind.keys]
    if len(wanted) > len(kind.keys):
        order.insert(0, ("count", "descending"))
    return plain.sort_by(order).combine_chunks().cast(schema)


def check_references(tables: Mapping[str, pa.Table]) -> None:
    """Refuse reformulations between queries that are not released: their keys would come from nowhere public."""
    if "queries" not in tables or "reformulations" not in tables:
        return
    public = tables["queries"]["query"]
    for column in ("query", "next_query"):
        if not pc.all(
            pc.is_in(tables["reformulations"][column], value_set=public.combine_chunks()), min_count=0
        ).as_py():
            raise DataError(
                "a reformulation names a query that is not released",
                why="only pairs of released queries are a public domain",
                fix="Count pairs of released queries only",
            )


def _type(column: str) -> pa.DataType:
    return pa.int64() if column == "count" else pa.float64() if column in NUMBERS else pa.string()


def _check_values(name: str, table: pa.Table, keys: tuple[str, ...]) -> None:
    problem = ""
    if any(table[column].null_count for column in table.column_names):
        problem = "it has missing values"
    elif table.group_by(list(keys)).aggregate([]).num_rows != table.num_rows:
        problem = "a key stands in it twice"
    elif "count" in table.column_names:
        finite = all(_all(pc.is_finite(table[column])) for column in ("stderr", "low", "high"))
        if not finite:
            problem = "a number in it is not finite"
        elif not _all(pc.greater_equal(table["stderr"], 0.0)):
            problem = "a standard error in it is below zero"
        elif not _all(pc.less_equal(table["low"], table["high"])):
            problem = "an interval in it ends before it begins"
    if problem:
        raise DataError(f"the table {name!r} can't be published", why=problem, fix="This is a defect of what made it")


def _all(truths: pa.ChunkedArray) -> bool:
    return bool(pc.all(truths, min_count=0).as_py())
