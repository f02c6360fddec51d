"""A release for other programs: CSV for spreadsheets, SQLite for SQL, pandas and Polars for notebooks."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import sqlite3
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hushquery.errors import DataError, Unavailable, UsageError
from hushquery.release.manifest import FORMAT, KINDS
from hushquery.release.release import CARD, MANIFEST, manifest_bytes, raise_io_error, sync_folder, write_folder

if TYPE_CHECKING:
    import pandas
    import polars

    from hushquery.release.release import Release

_SQL_TYPES = {pa.string(): "TEXT", pa.int64(): "INTEGER", pa.float64(): "REAL"}


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Return a table as a pandas data frame."""
    _need("pandas")
    frame: pandas.DataFrame = table.to_pandas()
    return frame


def to_polars(table: pa.Table) -> polars.DataFrame:
    """Return a table as a Polars data frame."""
    frame: polars.DataFrame = _need("polars").from_arrow(table)
    return frame


def _need(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        what = f"a data frame of {package} needs the package {package}"
        raise Unavailable(what, why="it is not installed", fix=f"pip install {package}") from None


def to_csv(release: Release, folder: Path | str, force: bool = False) -> Path:
    """Write every table as CSV (RFC 4180, UTF-8) with the manifest and the data card: all of it, or nothing.

    Text is written as it is: a query that begins with =, +, - or @ is a formula to a spreadsheet; import it as text.
    """
    files = {f"{name}.csv": _csv_bytes(table) for name, table in release.tables.items()}
    files |= {MANIFEST: manifest_bytes(release.manifest), CARD: release.card().encode()}
    return write_folder(folder, files, force, known={MANIFEST, CARD, *(f"{name}.csv" for name in KINDS)})


def _csv_bytes(table: pa.Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(table.column_names)
    for batch in table.to_batches():
        writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return text.getvalue().encode()


def to_sqlite(release: Release, file: Path | str, force: bool = False) -> Path:
    """Write every table with its key, and the manifest as rows of name and JSON, into one SQLite file."""
    target = Path(file)
    if os.path.lexists(target):
        if not force:
            raise UsageError(f"{target} exists already", fix="Give another file, or --force to replace an older export")
        if not _is_export(target):
            why = "only an older export is replaced"
            raise UsageError(f"{target} is not an export of hushquery", why=why, fix="Give another file")
    fresh = target.parent / f".{target.name}.partial-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _fill(fresh, release)
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as error:
        raise_io_error(target, "written", error)
    except sqlite3.Error as error:
        raise DataError(
            f"{target} can't be written", why=type(error).__name__, fix="Check the space on the disk and that you may"
        ) from None
    return target


def _fill(file: Path, release: Release) -> None:
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("CREATE TABLE manifest (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        entries = [(name, json.dumps(value, ensure_ascii=False)) for name, value in release.manifest.items()]
        base.executemany("INSERT INTO manifest VALUES (?, ?)", entries)
        for name, table in release.tables.items():
            # Names of tables and columns are our own, never a value.
            columns = ", ".join(
                f'"{field.name}" {_SQL_TYPES[field.type]}{"" if field.nullable else " NOT NULL"}'
                for field in table.schema
            )
            key = ", ".join(f'"{column}"' for column in KINDS[name].keys)
            base.execute(f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ({key}))')
            places = ", ".join("?" * table.num_columns)
            for batch in table.to_batches():
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                base.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)  # noqa: S608


def _is_export(file: Path) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            (row,) = base.execute("SELECT value FROM manifest WHERE name = 'format'").fetchall() or [()]
            return bool(row == (json.dumps(FORMAT),))
    except sqlite3.Error:
        return False
