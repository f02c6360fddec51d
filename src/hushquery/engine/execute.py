"""Connecting to engines, and running expressions there after the spend; no error of an engine shows a row."""

from __future__ import annotations

import difflib
import inspect
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hushquery.engine import duckdb, postgres, spark
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError, install

# Which of our extras brings what an engine needs; for all others Ibis has an extra of the engine's name.
_EXTRAS = {"spark": "spark", "postgresql": "serve", "postgres": "serve"}
# Names that DuckDB takes for files.
_FILE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz", ".zst", ".txt")


def connect(url: str = "duckdb") -> Any:
    """Connect to an engine; no error repeats the URL, which may hold a password.

    ``duckdb`` runs in this process, ``spark`` is this process's session or a new local one, ``spark://host:port`` is a
    standalone cluster; ``postgresql://user@host/database`` and any other URL that Ibis understands work too.

    >>> connect("duckdb").name
    'duckdb'
    """
    import ibis

    if url == "duckdb":
        return duckdb.connect_duckdb()
    scheme = url.split(":")[0]
    try:
        if scheme == "spark":
            return spark.connect_spark(url)
        engine = ibis.connect(url)
        if engine.name == "postgres":
            weakref.finalize(engine, engine.con.close)  # the caller has only the URL, and nothing to close
            postgres.prepare(engine)
        return engine
    except HushqueryError:
        raise
    except ImportError:
        needed = f"pip install 'ibis-framework[{scheme}]'"
        raise Unavailable(
            f"the engine {scheme!r} needs a package that is not installed",
            fix=f"Run: {install(_EXTRAS[scheme]) if scheme in _EXTRAS else needed}",
        ) from None
    except Exception as error:
        # The URL may hold a password, so neither it nor the driver's message is repeated.
        raise Unavailable(
            f"the engine {scheme!r} can't be reached",
            why=type(error).__name__,
            fix="Check the address and that the server runs; `hushquery doctor` tells what works here",
        ) from None


def engine_table(name: str, engine: Any) -> Any:
    """Return an engine's table by name (``schema.searches``); on Spark also Parquet at a path or ``hdfs://...``."""
    if engine.name == "duckdb" and name.lower().endswith(_FILE_ENDINGS):
        # DuckDB would take it for a file, and guess the types of its columns from the rows.
        raise UsageError(
            f"{name!r} is the name of a file, and a table is asked for",
            fix="Give a file without an engine, or the name of a table",
        )
    try:
        if engine.name == "pyspark" and ("://" in name or name.lower().endswith(".parquet")):
            return spark.read_parquet(engine, [name if "://" in name else spark.escape_path(Path(name))])
        *place, last = name.split(".")
        return engine.table(last, database=tuple(place) if len(place) > 1 else place[0] if place else None)
    except Exception as error:
        # An engine's message may quote what it found.
        raise DataError(
            f"the engine {engine.name} has no table {name!r} that can be read",
            why=type(error).__name__,
            fix="Check the name (table, schema.table; for Spark also PATH.parquet), and that this user may read it",
        ) from None


def no_such_column(name: str, columns: Iterable[str], why: str = "") -> DataError:
    """Return the error for a missing column. It does not list the others: the "header" of a file may be a row."""
    near = difflib.get_close_matches(name, [str(column) for column in columns], n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]!r}?" if near else "Check the name, and that a file has a header line"
    return DataError(f"the table has no column {name!r}", why=why, fix=hint)


def dialect(expression: Any) -> str:
    """Return the name of the engine that runs an expression; tables in memory run on DuckDB."""
    backends = expression._find_backends()[0]
    return str(backends[0].name) if backends else "duckdb"


def call(function: str, *arguments: Any, returns: str, schema: str | None = None) -> Any:
    """Call an engine's own function that Ibis has no name for; ``schema`` is where the engine finds it."""
    import ibis

    def stand_in() -> None:
        """Do nothing: Ibis reads the signature only."""

    values = [argument if isinstance(argument, ibis.Expr) else ibis.literal(argument) for argument in arguments]
    names = [inspect.Parameter(f"a{place}", inspect.Parameter.POSITIONAL_ONLY) for place in range(len(values))]
    stand_in.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    types = (tuple(value.type() for value in values), returns)
    return ibis.udf.scalar.builtin(stand_in, name=function, database=schema, signature=types)(*values)


def or_null(expression: Any) -> Any:
    """Return an expression that is null for each row on which DuckDB fails: no one's value may decide the outcome.

    Put it directly around what may fail: DuckDB computes beforehand, and for every row, what is mentioned twice. Other
    engines have nothing like it, so what is written for them must not fail on any value.
    """
    if dialect(expression) != "duckdb":
        return expression
    return call("try", expression, returns=str(expression.type()))


def md5(text: Any) -> Any:
    """Apply the engine's md5; DuckDB, PostgreSQL and Spark return the same hexadecimal digits."""
    return call("md5", text, returns="string")


def check(expression: Any) -> None:
    """Raise if the engine does not understand an expression; reads no row."""
    name = dialect(expression)
    try:
        if name == "pyspark":
            spark.to_frame(expression)
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
    """Run an expression and return an Arrow table."""
    if dialect(expression) == "pyspark":
        return spark.to_arrow(expression)
    return duckdb.run(expression, expression.to_pyarrow)


def execute(expression: Any) -> Any:
    """Run an expression after the spend and return an Arrow table; errors leave out the engine's message."""
    try:
        return fetch(expression)
    except Exception as error:
        raise _failed(error) from None


@contextmanager
def materialize(expression: Any) -> Iterator[Any]:
    """Store an expression's rows for the block: noise drawn from one query decides the next, so no row may change."""
    stored = {"pyspark": spark.materialize, "postgres": postgres.materialize}.get(dialect(expression))
    with ExitStack() as at_end:
        try:
            table = at_end.enter_context(stored(expression) if stored else duckdb.run(expression, expression.cache))
        except Exception as error:
            raise _failed(error) from None
        yield table


def _failed(error: Exception) -> DataError:
    if "interrupt" in f"{type(error).__name__} {error}".lower():  # by Ctrl-C, as DuckDB reports it
        return DataError(
            "interrupted after the budget was spent; nothing was released",
            why="The spend is recorded before a row is read",
            fix="Run it again from what is left of the budget",
        )
    return DataError(
        "the engine failed after the budget was spent; nothing was released",
        why=type(error).__name__,
        fix="Check the file for malformed rows and the columns for their types",
    )
