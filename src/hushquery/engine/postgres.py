"""PostgreSQL: texts in the order of their bytes and small letters by one table, whatever the database's locale says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hushquery.errors import DataError, Unavailable

__all__ = ["LOWER", "in_byte_order", "kept", "prepare"]

#: The function that ``prepare`` makes: one small letter for each capital, as DuckDB writes them.
LOWER = "hushquery_lower"

# ICU's rules look at the letters around a sigma and write two characters for a dotted capital I; DuckDB's do not. The
# name is in the session's own temporary schema and goes with the session.
_LOWER_SQL = f"""
CREATE OR REPLACE FUNCTION pg_temp.{LOWER}(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT lower(translate($1, 'İΣ', 'iσ') COLLATE "und-x-icu") $$
"""


def prepare(engine: Any) -> None:
    """Make the session's own function for small letters."""
    try:
        with engine.begin() as cursor:
            cursor.execute(_LOWER_SQL)
    except Exception as error:
        raise Unavailable(
            "the PostgreSQL database can't be used as an engine",
            why=f"It may be read-only, without ICU, or lets us make nothing temporary ({type(error).__name__})",
            fix="Grant TEMPORARY on the database to this user, and use a server that may write and has ICU",
        ) from None


def in_byte_order(table: Any, texts: Mapping[str, bool]) -> Any:
    """Give a table's columns, those marked as texts cast to text and compared byte by byte from here on.

    The order of a database's own locale would give another release from the same bits. PostgreSQL keeps the collation
    of a column through all that is made from it.
    """
    import ibis

    name = ibis.util.gen_name("hushquery_rows")
    picked = ", ".join(
        f'CAST({_quoted(column)} AS TEXT) COLLATE "C" AS {_quoted(column)}' if text else _quoted(column)
        for column, text in texts.items()
    )
    try:
        return table.alias(name).sql(f"SELECT {picked} FROM {name}", dialect="postgres")  # noqa: S608
    except Exception as error:
        raise DataError(
            "the table can't be read as a log", why=type(error).__name__, fix="Check the types of its columns"
        ) from None


@contextmanager
def kept(expression: Any) -> Iterator[Any]:
    """Compute an expression into a table of the session's own temporary schema.

    Ibis's cache would name the columns' types anew, and so lose their order.
    """
    import ibis

    engine = expression._find_backend()
    engine._run_pre_execute_hooks(expression)
    name = ibis.util.gen_name("hushquery_kept")
    with engine.begin() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {name} AS {engine.compile(expression)}")
    try:
        yield engine.table(name)
    finally:
        with suppress(Exception):  # the session is gone, and the table with it
            engine.drop_table(name, force=True)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
