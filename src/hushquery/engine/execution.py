"""Questions to an engine: asked after the spend, answered once, and silent about rows where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hushquery.engine.meter import passed_through
from hushquery.errors import DataError

__all__ = ["call", "check", "dialect", "execute", "fetch", "held", "java", "md5", "read_otherwise", "tried"]


def call(function: str, argument: Any, returns: str, schema: str | None = None) -> Any:
    """Call an engine's own function of one column, which Ibis has no name for; a schema names where it is."""
    import ibis

    def of_one_column(value: Any) -> Any:
        """Stand for the engine's function: Ibis reads its signature and never runs it."""
        return value

    kinds = ((argument.type(),), returns)
    return ibis.udf.scalar.builtin(of_one_column, name=function, database=schema, signature=kinds)(argument)


def tried(expression: Any) -> Any:
    """Return an expression that is missing for each row on which DuckDB fails to compute it.

    One person's value must not decide whether there is a result. What is written for other engines fails on no value
    in the first place: they have nothing like it. Put it right around what may fail: DuckDB computes beforehand, and
    for every row, what an expression mentions twice.
    """
    if dialect(expression) != "duckdb":
        return expression
    return call("try", expression, str(expression.type()))


def java(name: str, method: str, text: Any, flag: bool) -> Any:
    """Call a static Java method of a text and a flag, on Spark."""
    import ibis

    def reflect(java_class: Any, java_method: Any, text: Any, flag: Any) -> Any:
        """Stand for Spark's function: Ibis reads its signature and never runs it."""
        return java_class, java_method, text, flag

    kinds = (("string", "string", "string", "boolean"), "string")
    return ibis.udf.scalar.builtin(reflect, name="reflect", signature=kinds)(name, method, text, flag)


def md5(text: Any) -> Any:
    """Apply the engine's md5; DuckDB, PostgreSQL and Spark all give the same hexadecimal digits."""
    return call("md5", text, "string")


def check(expression: Any) -> None:
    """Ask the engine whether it understands an expression; it reads no row for that."""
    name = dialect(expression)
    try:
        if name == "pyspark":
            from hushquery.engine.spark import frame

            frame(expression)
        elif name == "postgres":
            engine = expression._find_backend()
            engine._run_pre_execute_hooks(expression)  # tables in memory, such as a deny list
            with engine.begin() as cursor:
                cursor.execute(f"EXPLAIN {engine.compile(expression)}")
    except Exception as error:
        raise DataError(
            f"the engine {name} can't compute the log's columns",
            why=type(error).__name__,
            fix="Check the types of the columns: text, numbers, and for times also timestamps",
        ) from None


def fetch(expression: Any) -> Any:
    """Run an expression and give an Arrow table."""
    if dialect(expression) == "pyspark":
        from hushquery.engine.spark import to_arrow

        return passed_through(to_arrow(expression))
    return passed_through(_answered(expression, expression.to_pyarrow))


def read_otherwise(engine: Any, change: Callable[[Any], None]) -> None:
    """Have DuckDB read files in another way from the first value on that it can't read, whoever's it is.

    Args:
        engine: A connection to DuckDB.
        change: Called with the connection, at most once: puts a slower reader that fails on no value where the fast one
            was. For all values that the fast one reads it must give the same.
    """
    engine.__dict__.setdefault("hushquery_changes", []).append(change)


def _answered(expression: Any, ask: Callable[[], Any]) -> Any:
    """Ask DuckDB; where it fails on a value, have the files read otherwise and ask once more.

    It had answered nothing then, so no noise was drawn that depends on the question, and none is drawn again.
    """
    import duckdb

    try:
        return ask()
    except (duckdb.InvalidInputException, duckdb.ConversionException):
        changes = [(engine, vars(engine).pop("hushquery_changes", [])) for engine in expression._find_backends()[0]]
        if not any(waiting for _, waiting in changes):
            raise
        for engine, waiting in changes:
            for change in waiting:
                change(engine)
        return ask()


def execute(expression: Any) -> Any:
    """Run an expression after the spend and give an Arrow table; an engine's message, which may quote a row, is not."""
    try:
        return fetch(expression)
    except Exception as error:
        raise _failed(error) from None


@contextmanager
def held(expression: Any) -> Iterator[Any]:
    """Evaluate an expression once into a temporary table of the engine, for as long as the block runs.

    What is asked of it several times must be the same rows each time: the noise drawn after the first question decides
    what the second one asks. So the rows are kept, and never computed again from the log.
    """
    with ExitStack() as at_end:
        try:
            name = dialect(expression)
            if name == "pyspark":
                from hushquery.engine import spark

                table = at_end.enter_context(spark.kept(expression))
            elif name == "postgres":
                from hushquery.engine import postgres

                table = at_end.enter_context(postgres.kept(expression))
            else:
                table = at_end.enter_context(_answered(expression, expression.cache))
        except Exception as error:
            raise _failed(error) from None
        yield table


def dialect(expression: Any) -> str:
    """Name the engine that an expression stands on; what is all in memory runs on DuckDB."""
    found = expression._find_backends()[0]
    return str(found[0].name) if found else "duckdb"


def _failed(error: Exception) -> DataError:
    return DataError(
        "the engine could not compute the answer; the budget is spent, and nothing was released",
        why=type(error).__name__,
        fix="Check the file for malformed rows and the columns for their types",
    )
