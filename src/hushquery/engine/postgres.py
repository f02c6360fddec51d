"""PostgreSQL: texts in the order of their bytes and lower case by one table, whatever the database's locale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hushquery.errors import DataError, Unavailable

#: The function that ``prepare`` makes: one small letter for each capital, as DuckDB writes them.
LOWER = "hushquery_lower"

# ICU's lower case depends on the letters around a sigma and doubles a dotted capital I; DuckDB's does not.
_LOWER_SQL = f"""
CREATE OR REPLACE FUNCTION pg_temp.{LOWER}(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT lower(translate($1, 'İΣ', 'iσ') COLLATE "und-x-icu") $$
"""
# Types in which ids that are equal in SQL are one text; of numbers, without trailing zeros.
_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
_IDS = _TEXTS | {"int2", "int4", "int8", "oid", "numeric", "uuid", "date", "timestamp", "timestamptz"}
# The type of a column, and what a domain stands for.
_KIND_SQL = """
WITH RECURSIVE kind(type) AS (
  SELECT CAST(pg_typeof((SELECT {column} FROM ({rows}) AS r LIMIT 0)) AS oid)
  UNION ALL SELECT typbasetype FROM pg_type JOIN kind ON oid = type WHERE typbasetype <> 0
) SELECT typname FROM pg_type JOIN kind ON oid = type WHERE typbasetype = 0
"""
_COLLATION_SQL = """
SELECT collisdeterministic FROM pg_collation
WHERE oid = CAST(pg_collation_for((SELECT {column} FROM ({rows}) AS r LIMIT 0)) AS regcollation)
"""


def prepare(engine: Any) -> None:
    """Create the session's own function for lower case."""
    try:
        with engine.begin() as cursor:
            cursor.execute(_LOWER_SQL)
    except Exception as error:
        raise Unavailable(
            "the PostgreSQL database can't be used as an engine",
            why=f"It may be read-only, without ICU, or lets us make nothing temporary ({type(error).__name__})",
            fix="Grant TEMPORARY on the database to this user, and use a server that may write and has ICU",
        ) from None


def check_ids(table: Any, column: str) -> None:
    """Refuse ids with several texts (floats: 0 and -0, ``citext``, loose collations): one user would count twice."""
    engine = table._find_backend()
    parts = {"column": quote_name(column), "rows": engine.compile(table)}
    try:
        with engine.begin() as cursor:
            kind = cursor.execute(_KIND_SQL.format(**parts)).fetchone()[0]
            same = kind not in _TEXTS or cursor.execute(_COLLATION_SQL.format(**parts)).fetchone()[0]
    except Exception as error:
        raise _unreadable(error) from None
    if kind not in _IDS or not same:
        raise DataError(
            f"the column for {column} can't hold ids",
            why="Values that are equal in it need not be the same text, so one user could count as several",
            fix="Cast the column to text or bigint in a view, and give the view",
        )


def in_byte_order(table: Any, texts: Mapping[str, bool]) -> Any:
    """Cast the columns marked as texts, to compare them byte by byte: a locale's order would change the release."""
    import ibis

    name = ibis.util.gen_name("hushquery_rows")
    kinds = table.schema()

    def written(column: str) -> str:
        # 1.00 without the zeros: equal numbers are one text.
        value = f"trim_scale({quote_name(column)})" if kinds[column].is_decimal() else quote_name(column)
        return f'CAST({value} AS TEXT) COLLATE "C" AS {quote_name(column)}' if texts[column] else quote_name(column)

    picked = ", ".join(map(written, texts))
    try:
        return table.alias(name).sql(f"SELECT {picked} FROM {name}", dialect="postgres")  # noqa: S608
    except Exception as error:
        raise _unreadable(error) from None


@contextmanager
def materialize(expression: Any) -> Iterator[Any]:
    """Compute an expression into a temporary table; Ibis's cache would lose the collation of its columns."""
    import ibis

    engine = expression._find_backend()
    engine._run_pre_execute_hooks(expression)
    name = ibis.util.gen_name("hushquery_counts")
    with engine.begin() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {name} AS {engine.compile(expression)}")
    try:
        yield engine.table(name)
    finally:
        with suppress(Exception):  # the session is gone, and the table with it
            engine.drop_table(name, force=True)


def _unreadable(error: Exception) -> DataError:
    return DataError("the table can't be read as a log", why=type(error).__name__, fix="Check the types of its columns")


def quote_name(name: str) -> str:
    """Write a column's name in SQL, as DuckDB reads it too."""
    return '"' + name.replace('"', '""') + '"'
