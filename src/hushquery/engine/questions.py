"""Questions to an engine: asked after the spend, answered once, and silent about rows where they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hushquery.errors import DataError

__all__ = ["call", "execute", "held", "md5"]


def call(function: str, argument: Any, returns: str) -> Any:
    """Call an engine's own function of one column, which Ibis has no name for."""
    import ibis

    def of_one_column(value: Any) -> Any:
        """Stand for the engine's function: Ibis reads its signature and never runs it."""
        return value

    return ibis.udf.scalar.builtin(of_one_column, name=function, signature=((argument.type(),), returns))(argument)


def md5(text: Any) -> Any:
    """Apply the engine's md5; DuckDB, PostgreSQL and Spark all give the same hexadecimal digits."""
    return call("md5", text, "string")


def execute(expression: Any) -> Any:
    """Run an expression after the spend and give an Arrow table; an engine's message, which may quote a row, is not."""
    try:
        if _engine_of(expression) == "pyspark":
            from hushquery.engine.spark import to_arrow

            return to_arrow(expression)
        return expression.to_pyarrow()
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
            if _engine_of(expression) == "pyspark":
                from hushquery.engine.spark import kept

                table = at_end.enter_context(kept(expression))
            else:
                table = at_end.enter_context(expression.cache())
        except Exception as error:
            raise _failed(error) from None
        yield table


def _engine_of(expression: Any) -> str:
    """Give the name of the engine an expression stands on; empty where all of it is in memory."""
    found = expression._find_backends()[0]
    return str(found[0].name) if found else ""


def _failed(error: Exception) -> DataError:
    return DataError(
        "the engine could not compute the answer; the budget is spent, and nothing was released",
        why=type(error).__name__,
        fix="Check the file for malformed rows and the columns for their types",
    )
