"""A release for other programs: CSV for spreadsheets, SQLite and DuckDB for SQL, pandas and Polars for notebooks."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from hushquery.core.estimates import Tabular, installed
from hushquery.errors import DataError, UsageError
from hushquery.release.manifest import FORMAT, KINDS
from hushquery.release.page import nothing_promised, weakness
from hushquery.release.release import CARD, MANIFEST, manifest_bytes, raise_io_error, sync_folder, write_folder
from hushquery.templates import render

if TYPE_CHECKING:
    import duckdb

    from hushquery.release.release import Release

__all__ = ["Tabular", "csv_bytes", "notebook", "to_csv", "to_csv_file", "to_duckdb", "to_sqlite"]

_NOTEBOOK_ROWS = 10
_SQL_TYPES = {pa.string(): "TEXT", pa.int64(): "INTEGER", pa.float64(): "REAL"}


def notebook(release: Release) -> str:
    """Return the promise and the first rows of each table for a notebook."""
    meanings = release.manifest.get("meanings", {})
    tables = [
        {
            "name": name,
            "meaning": meanings.get(name, "no meaning stated"),
            "columns": table.column_names,
            "rows": table.slice(0, _NOTEBOOK_ROWS).to_pylist(),
            "all": table.num_rows,
        }
        for name, table in release.tables.items()
    ]
    warnings = [nothing_promised(release.guarantees), *map(weakness, release.guarantees)]
    promises = [guarantee.summary() for guarantee in release.guarantees]
    return render("notebook/tables.html", warnings=warnings, promises=promises, tables=tables, notes=[])


def to_duckdb(release: Release) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB database in memory that holds every table under its name."""
    base: duckdb.DuckDBPyConnection = installed("duckdb").connect()
    for name, table in release.tables.items():
        base.register("given", table)
        base.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')  # noqa: S608 -- a name of ours
        base.unregister("given")
    return base


def to_csv(release: Release, folder: Path | str, force: bool = False) -> Path:
    """Write every table as CSV (RFC 4180, UTF-8) with the manifest and the data card: all of it, or nothing.

    Text is written as it is: a query that begins with =, +, - or @ is a formula to a spreadsheet; import it as text.
    """
    files = {f"{name}.csv": csv_bytes(table) for name, table in release.tables.items()}
    files |= {MANIFEST: manifest_bytes(release.manifest), CARD: release.card().encode()}
    return write_folder(folder, files, force, known={MANIFEST, CARD, *(f"{name}.csv" for name in KINDS)})


def to_csv_file(table: pa.Table, file: Path | str, force: bool = False) -> Path:
    """Write one table as a CSV file, whole or not at all; ``force`` replaces an older export of such a table."""
    header = ",".join(table.column_names).encode() + b"\r\n"

    def older(target: Path) -> bool:
        with target.open("rb") as there:
            return there.read(len(header)) == header

    def write(fresh: Path) -> None:
        fresh.write_bytes(csv_bytes(table))

    return _replaced(Path(file), force, older, write)


def csv_bytes(table: pa.Table) -> bytes:
    """Return a table as CSV (RFC 4180, UTF-8)."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(table.column_names)
    for batch in table.to_batches():
        writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return text.getvalue().encode()


def to_sqlite(release: Release, file: Path | str, force: bool = False) -> Path:
    """Write every table with its key, and the manifest as rows of name and JSON, into one SQLite file."""
    try:
        return _replaced(Path(file), force, _is_export, lambda fresh: _fill(fresh, release))
    except sqlite3.Error as error:
        raise DataError(
            f"{file} can't be written", why=type(error).__name__, fix="Check the space on the disk and that you may"
        ) from None


def _replaced(target: Path, force: bool, older: Callable[[Path], bool], write: Callable[[Path], None]) -> Path:
    """Write a new file beside its place and rename it; with ``force``, over an ``older`` export and nothing else."""
    if os.path.lexists(target):
        if not force:
            raise UsageError(f"{target} exists already", fix="Give another file, or --force to replace an older export")
        if target.is_symlink() or not target.is_file() or not older(target):
            why = "only an older export is replaced"
            raise UsageError(f"{target} is not an export of hushquery", why=why, fix="Give another file")
    fresh = target.parent / f".{target.name}.partial-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(fresh)
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as error:
        raise_io_error(target, "written", error)
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
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            (row,) = base.execute("SELECT value FROM manifest WHERE name = 'format'").fetchall() or [()]
            return bool(row == (json.dumps(FORMAT),))
    except sqlite3.Error:
        return False
