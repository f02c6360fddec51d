"""Engines: where counting happens. DuckDB inside the process by default, anything Ibis reaches where the data lives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushquery.errors import DataError, Unavailable, UsageError

__all__ = ["as_table", "connect"]

_READERS = {
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".parquet": "read_parquet",
    ".json": "read_json",
    ".jsonl": "read_json",
    ".ndjson": "read_json",
}


def connect(url: str = "duckdb") -> Any:
    """Connect to an engine: ``duckdb`` (in this process) or any URL that Ibis understands.

    >>> connect("duckdb").name
    'duckdb'
    """
    import ibis

    if url == "duckdb":
        return ibis.duckdb.connect()
    try:
        return ibis.connect(url)
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"the engine {url.split(':')[0]!r} needs a package that is not installed",
            why=str(error),
            fix=f"Run: pip install 'ibis-framework[{url.split(':')[0]}]'",
        ) from error
    except Exception as error:
        # The URL may hold a password, so neither it nor the driver's message is repeated.
        raise Unavailable(
            f"the engine {url.split(':')[0]!r} can't be reached",
            why=type(error).__name__,
            fix="Check the address and that the server runs; `hushquery doctor` tells what works here",
        ) from None


def as_table(data: Any, engine: Any = None) -> Any:
    """Give any table as an Ibis table: a file name, a pandas, Polars, Arrow or Ibis table, or a mapping of columns.

    Reads no rows of an Ibis table or a file beyond what finding the column types takes.

    >>> as_table({"user": [1, 2]}).columns
    ('user',)
    """
    import ibis

    if isinstance(data, ibis.Table):
        return data
    if isinstance(data, str | Path):
        return _read_file(Path(data), engine or connect())
    try:
        if isinstance(data, Mapping):
            import pyarrow as pa

            return ibis.memtable(pa.table(dict(data)))  # Ibis alone would ask pandas, which may not be there
        return ibis.memtable(data)
    except Exception as error:
        raise DataError(
            f"a {type(data).__name__} can't be read as a table",
            why=type(error).__name__,
            fix="Give a file name, a mapping of columns, or a pandas, Polars, Arrow or Ibis table",
        ) from None


def _read_file(path: Path, engine: Any) -> Any:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(
            f"files ending in {path.suffix or 'nothing'!r} are not known",
            fix=f"Use one of {', '.join(sorted(_READERS))}",
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}", fix="Check the name")
    if path.stat().st_size == 0:
        raise DataError(f"the file {path} is empty", fix="Give a file with a header and rows")
    try:
        return getattr(engine, reader)(str(path))
    except Exception as error:
        # An engine's message may quote a row.
        raise DataError(
            f"the file {path} can't be read as {path.suffix[1:]}",
            why=type(error).__name__,
            fix="Check that it is what its ending says, in UTF-8, with a header line",
        ) from None
