"""Counting reports on Spark: each worker counts its share as one machine would, and the sums add up.

Reports go to workers by the hash of their ids, so no id is in two shards, each in the order of the files: of two
reports with one id the same one counts as on one machine. Only integers leave a worker. Nothing is counted outside of
what a task returns, and a shard has the same rows each time, so a task that runs twice counts nothing twice.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np

from hushquery.engine import connect
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.intervals import IntArray
from hushquery.local.server.counting import (
    COLUMN,
    LONGER_THAN_ANY,
    Periods,
    ReportCount,
    blocks_of_column,
    check_column,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Parquet files with reports: a path, an address that Spark reads such as ``s3a://...``, or several of them.
Files = str | PathLike[str] | Sequence[str | PathLike[str]]

# What a shard says: kinds of numbers, and of refusals behind this.
_REFUSED = "refused "
_SCHEMA = "what string, number bigint, value bigint"
# Where rows come from: the number of the file times this, and the number of the row.
_ROWS_OF_A_FILE = 1 << 40


def count_on_spark(configuration: Configuration, asked: Periods, reports: Any, engine: Any) -> ReportCount:
    """Count reports in Parquet files on Spark, with exactly the result of counting them here.

    To count the fullest period all is read twice: a sum for each period would be as many sums as somebody forges times.
    Every worker must be able to read the files, and its Python must have hushquery.
    """
    session = _session(engine)
    paths = _paths(reports)
    try:
        rows = _shards(session, paths)
        choosing = asked == "most" and configuration.task.task.period is not None
        chosen = _fullest(rows, _Shard(configuration, asked, choosing=True)) if choosing else None
        sums = rows.mapInArrow(_Shard(configuration, asked, chosen).count, _SCHEMA).groupBy("what", "number")
        return _added(configuration, asked, _fetched(sums.sum("value")))
    except HushqueryError:
        raise
    except Exception as error:
        raise _failed(error) from None


@dataclass(frozen=True)
class _Shard:
    """Count one shard, on a worker: in the ``chosen`` period, or while ``choosing`` only the reports of each period."""

    configuration: Configuration
    asked: Periods
    chosen: int | None = None
    choosing: bool = False

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the integers of a shard."""
        with ReportCount(self.configuration, self.asked) as count:
            for block in blocks_of_column((batch.column(COLUMN) for batch in batches), count.length):
                count.add(block)
            if self.choosing:
                yield _batch([("period", number, value) for number, value in count.periods.items()])
                return
            count.close(self.chosen)
            yield _batch(
                [
                    ("read", 0, count.read),
                    ("n", 0, count.n),
                    ("repeated", 0, count.repeated),
                    *((_REFUSED + kind, 0, value) for kind, value in count.refused.items()),
                    *(("period", number, value) for number, value in count.periods.items()),
                ]
            )
            yield _cells_batch(count.support)


def _batch(numbers: list[tuple[str, int, int]]) -> pa.RecordBatch:
    import pyarrow as pa

    columns = zip(*numbers, strict=True) if numbers else ((), (), ())
    kinds = {"what": pa.string(), "number": pa.int64(), "value": pa.int64()}
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _cells_batch(support: IntArray) -> pa.RecordBatch:
    import pyarrow as pa

    cells = np.flatnonzero(support)
    arrays = [pa.repeat("support", len(cells)), pa.array(cells, pa.int64()), pa.array(support[cells], pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, names=["what", "number", "value"])


def _added(configuration: Configuration, asked: Periods, sums: pa.Table) -> ReportCount:
    """Make a count of what all shards said together."""
    count = ReportCount(configuration, asked)
    count.close()
    for what, number, value in zip(*(column.to_pylist() for column in sums.columns), strict=True):
        if what == "support":
            count.support[number] = value
        elif what == "period":
            count.periods[number] = value
        elif what.startswith(_REFUSED):
            count.refused[what.removeprefix(_REFUSED)] = value
        else:
            setattr(count, what, value)
    return count


def _fullest(rows: Any, counter: _Shard) -> int:
    """Find the period that most good reports are from, of equally many the latest; one row comes to the driver."""
    from pyspark.sql import functions as sql

    total = rows.mapInArrow(counter.count, _SCHEMA).groupBy("number").agg(sql.sum("value").alias("total"))
    first = total.orderBy(sql.desc("total"), sql.desc("number")).limit(1)
    fullest = _fetched(first)["number"].to_pylist()
    return fullest[0] if fullest else 0


def _fetched(frame: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its sockets to the garbage collector
        return frame.toArrow()


def _shards(session: Any, paths: list[str]) -> Any:
    """Return the reports, those of one id in one partition, each partition in the order of the files."""
    from pyspark.sql import functions as sql

    table = session.read.parquet(*(_literally(path) for path in paths))
    if [field.dataType.typeName() for field in table.schema.fields if field.name == COLUMN] != ["binary"]:
        raise DataError(
            f"the files have no binary column {COLUMN!r}", fix="Write the bytes of each report into that column"
        )
    rows = table.select(
        # What is longer than any report need not travel; its beginning tells its error.
        sql.substring(table[COLUMN], 1, LONGER_THAN_ANY).alias(COLUMN),
        sql.input_file_name().alias("file"),  # spelt as inputFiles() does; _metadata.file_path is not
        sql.col("_metadata.row_index").alias("row"),
    )
    rows = rows.join(sql.broadcast(_file_numbers(session, table, paths)), "file", "left")
    # Without its place a file's rows would be anywhere in the order, and nobody would notice.
    place = sql.coalesce("place", sql.raise_error(sql.lit("a file has no place")).cast("bigint"))
    rows = rows.select(COLUMN, (place * _ROWS_OF_A_FILE + sql.col("row")).alias("position"))
    as_many = max(table.rdd.getNumPartitions(), session.sparkContext.defaultParallelism)
    # The id is behind the first byte. With a number of partitions Spark neither splits nor joins any of them.
    shards = rows.repartition(as_many, sql.substring(COLUMN, 2, 16)).sortWithinPartitions("position")
    return shards.select(COLUMN)


def _file_numbers(session: Any, table: Any, paths: list[str]) -> Any:
    """Number the files as they were given, by the names that Spark has for them."""
    import pyarrow as pa

    names = table.inputFiles()
    places = {path: number for number, path in enumerate(paths)}
    if all("://" not in path for path in paths) and {_local(name) for name in names} != set(paths):
        raise DataError(
            "Spark leaves out some of the files",
            why="it takes names that begin with a dot or a line below for hidden",
            fix="Rename them",
        )
    # An address can stand for many files: those come in the order of their names.
    ordered = sorted(names, key=lambda name: (places.get(_local(name), places.get(name, 0)), name))
    return session.createDataFrame(pa.table({"file": ordered, "place": range(len(ordered))}))


def _local(name: str) -> str:
    return unquote(urlsplit(name).path)


def _paths(reports: Any) -> list[str]:
    """Return the files' names, whole; of those on this machine look at the end, where their columns are named."""
    listed = list(reports) if isinstance(reports, list | tuple) else [reports]
    if not listed or not all(isinstance(path, str | PathLike) for path in listed):
        raise UsageError("on Spark reports are given as Parquet files", fix="Give a path or a list of paths")
    names = [fspath(path) for path in listed]
    return [name if "://" in name else _checked(Path(name)) for name in names]


def _checked(path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_column(pq.read_schema(path), path.name)
    except OSError as error:
        raise DataError(
            f"the reports in {path.name} can't be read", why=error.strerror or "", fix="Check the path"
        ) from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{path.name} can't be read as Parquet",
            why=type(error).__name__,
            fix="Spark counts Parquet files only: leave --engine out for text, or get the file again",
        ) from None
    return str(path.resolve())


def _literally(path: str) -> str:
    """Write a path on this machine so that Spark does not take it for a pattern; an address may be one."""
    return path if "://" in path else "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in path)


def _session(engine: Any) -> Any:
    backend = connect(engine) if isinstance(engine, str) else engine
    if getattr(backend, "name", None) != "pyspark":
        raise UsageError(
            "reports are counted on Spark or in this process",
            fix="Give spark or spark://host:port, or leave the engine out",
        )
    session = backend.raw_sql("SELECT 1").sparkSession
    context = session.sparkContext
    if context.pythonExec == "python3":  # nobody chose one, and whatever that is, it has no hushquery
        context.pythonExec = context.getConf().get("spark.pyspark.python", sys.executable)
    return session


def _failed(error: Exception) -> HushqueryError:
    """Word what went wrong; a message of Spark's may quote a report, its condition does not."""
    if "ModuleNotFoundError" in str(error):
        return Unavailable(
            "the Python of Spark's workers lacks a package",
            fix="Install hushquery there, and let PYSPARK_PYTHON name that Python",
        )
    condition = getattr(error, "getCondition", None)
    return DataError(
        "Spark could not count the reports",
        why=str((condition and condition()) or type(error).__name__),
        fix="Check that every worker can read the files and that they are whole",
    )
