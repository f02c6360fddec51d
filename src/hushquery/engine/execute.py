"""Connect to engines and run expressions there after the spend; no error of an engine shows a row.

DuckDB runs in this process by default. What does not fit into its memory goes to a private folder: others could read
DuckDB's own, ``.tmp``.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from hushquery.engine import postgres, spark
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError, install

# Which of our extras brings what an engine needs; for all others Ibis has an extra of the engine's name.
_EXTRAS = {"spark": "spark", "postgresql": "serve", "postgres": "serve"}
# Names that DuckDB takes for files.
_FILE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz", ".zst", ".txt")
#: Environment variable: how much memory the engine may use before it writes to disk, such as ``2GB``.
MEMORY = "HUSHQUERY_MEMORY"
#: Environment variable: how many threads the engine may use; by default one per core.
THREADS = "HUSHQUERY_THREADS"
#: Environment variable: where the engine may put its temporary folder; by default the system's temporary directory.
TEMP = "HUSHQUERY_TEMP"

# By identity: Ibis considers connections with the same settings equal.
_OPEN: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_SIZE = re.compile(r"[0-9]+(?:[.][0-9]+)? ?(?:[KMGT]i?B)", re.IGNORECASE)
_PER_UNIT = {"s": 10**6, "ms": 10**3}


def connect(url: str = "duckdb") -> Any:
    """Connect to an engine; no error repeats the URL, which may hold a password.

    ``duckdb`` runs in this process, ``spark`` is this process's session or a new local one, ``spark://host:port`` is a
    standalone cluster; ``postgresql://user@host/database`` and any other URL that Ibis understands work too.

    >>> connect("duckdb").name
    'duckdb'
    """
    import ibis

    if url == "duckdb":
        return connect_duckdb()
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


def connect_duckdb() -> Any:
    """Open an engine in this process, with the limits that the environment sets."""
    import ibis

    limits = _limits()
    folder = _temporary_folder()
    engine = ibis.duckdb.connect(temp_directory=folder, **limits)
    weakref.finalize(engine, shutil.rmtree, folder, ignore_errors=True)
    _OPEN[id(engine)] = engine
    return engine


def interrupt() -> None:
    """Interrupt every engine that this module opened; safe to call from any thread."""
    for engine in list(_OPEN.values()):
        with suppress(Exception):  # it may be closed
            engine.con.interrupt()


def _limits() -> dict[str, Any]:
    settings: dict[str, Any] = {}
    memory, threads = os.environ.get(MEMORY, "").strip(), os.environ.get(THREADS, "").strip()
    if memory:
        if not _SIZE.fullmatch(memory):
            raise UsageError(f"{MEMORY} is no amount of memory", fix=f"Write it like {MEMORY}=2GB")
        settings["memory_limit"] = memory
    if threads:
        if not threads.isdecimal() or not 1 <= int(threads) <= 1024:
            raise UsageError(f"{THREADS} is no number of threads", fix=f"Write it like {THREADS}=2")
        settings["threads"] = int(threads)
    return settings


def _temporary_folder() -> str:
    where = os.environ.get(TEMP, "").strip() or None
    try:
        return tempfile.mkdtemp(prefix="hushquery-", dir=None if where is None else Path(where).expanduser())
    except OSError as error:
        raise UsageError(
            "there is no place for what does not fit into memory",
            why=type(error).__name__,
            fix=f"Name a folder that exists and that you may write to: {TEMP}=FOLDER",
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


def on_unreadable(engine: Any, change: Callable[[Any], None]) -> None:
    """Register ``change``, called once if DuckDB's reader fails on a value: a slower reader with equal results."""
    engine.__dict__.setdefault("hushquery_changes", []).append(change)


def run(expression: Any, evaluate: Callable[[], Any]) -> Any:
    """Evaluate; if DuckDB fails on a value, switch to the slower reader and retry: no noise depends on the first."""
    import duckdb

    try:
        return evaluate()
    except (duckdb.InvalidInputException, duckdb.ConversionException):
        changes = [(engine, vars(engine).pop("hushquery_changes", [])) for engine in expression._find_backends()[0]]
        if not any(waiting for _, waiting in changes):
            raise
        for engine, waiting in changes:
            for change in waiting:
                change(engine)
        return evaluate()


def fetch(expression: Any) -> Any:
    """Run an expression and return an Arrow table."""
    if dialect(expression) == "pyspark":
        return spark.to_arrow(expression)
    return run(expression, expression.to_pyarrow)


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
            table = at_end.enter_context(stored(expression) if stored else run(expression, expression.cache))
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


def as_table(data: Any) -> Any:
    """Return rows in memory as an Ibis table: a pandas, Polars, Arrow or Ibis table (not read), or a mapping.

    >>> as_table({"user": [1, 2]}).columns
    ('user',)
    """
    import ibis
    import ibis.expr.operations as ops
    import pyarrow as pa

    if isinstance(data, ibis.Table) and data._find_backends()[0]:
        return data
    if ibis.options.default_backend is None:  # the one Ibis would make writes to disk in the current directory
        ibis.options.default_backend = connect_duckdb()
    if isinstance(data, ibis.Table):
        operation = data.op()
        if not isinstance(operation, ops.InMemoryTable):
            return data
        rows = operation.data.to_pyarrow(operation.schema)
        readable = _readable(rows)
        return data if readable is rows else ibis.memtable(readable)
    try:
        table = pa.table(dict(data)) if isinstance(data, Mapping) else pa.table(data)
        if len(set(table.column_names)) != table.num_columns:
            raise ValueError
        return ibis.memtable(_readable(table))
    except Exception as error:
        # The message may quote a value.
        raise DataError(
            f"a {type(data).__name__} can't be read as a table",
            why=type(error).__name__,
            fix="Give a file name, a mapping of columns, or a pandas, Polars, Arrow or Ibis table with distinct names",
        ) from None


def _readable(table: Any) -> Any:
    """Make missing what DuckDB fails on (invalid UTF-8, times too far away): no row may decide whether it runs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        column, kind = table.column(place), field.type
        if pa.types.is_timestamp(kind) and kind.unit in _PER_UNIT:
            farthest = (2**63 - 1) // _PER_UNIT[kind.unit] - 1
            count = column.cast(pa.int64())
            near = pc.and_(pc.greater(count, -farthest), pc.less(count, farthest))
            kind = pa.timestamp("us", kind.tz)
            table = table.set_column(place, field.with_type(kind), pc.if_else(near, column, None).cast(kind))
        elif is_text(kind):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                texts = [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]
                table = table.set_column(place, field.with_type(pa.large_string()), pa.array(texts, pa.large_string()))
    return table


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type holds text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
