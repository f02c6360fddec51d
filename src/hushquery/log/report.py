"""Counting the defects of a source: a pass of its own, which only the private report and strict reading pay for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hushquery.engine import connect, fetch
from hushquery.errors import DataError
from hushquery.log.files import LONGEST_LINE, line_batches
from hushquery.log.formats import Format
from hushquery.log.normalise import Written, has_text, stripped
from hushquery.log.report import LINES_SHOWN, Defect, Defects

__all__ = ["defects_of_files", "defects_of_table", "times_of_lines"]


def defects_of_files(paths: Sequence[Path], form: Format, written: Written | None, encoding: str = "utf-8") -> Defects:
    """Count the defects of text files; without ``written``, of tables other than logs, only those of lines."""
    return Defects.gather(part for path in paths for part in _of_file(path, form, written, encoding))


def times_of_lines(lines: Sequence[str], form: Format, written: Written) -> tuple[int, int]:
    """Count the times that can and that can't be read in a few lines: a look at a file before it is read."""
    import pyarrow as pa

    engine = connect()
    try:
        text = pa.array([line.encode() for line in lines], pa.large_binary())
        engine.con.register("batch", pa.table({"number": range(len(lines)), "line": text}))
        rows = _rows(engine, form)
        rows = rows.filter(rows.problem.isnull()).select(time=written.micros(rows.time, "duckdb"), raw="raw_time")
        written_at_all = stripped(rows.raw.fill_null(""), "duckdb") != ""
        found = rows.agg(read=rows.time.count(), unreadable=(rows.time.isnull() & written_at_all).sum())
        [(read, unreadable)] = engine.con.execute(engine.compile(found)).fetchall()
    finally:
        engine.disconnect()
    return read, unreadable or 0


def _of_file(path: Path, form: Format, written: Written | None, encoding: str) -> Iterator[Defect]:
    shown, engine = str(path), connect()
    sql = ""
    try:
        for batch in line_batches(path, encoding):
            engine.con.register("batch", batch)
            # The query is written once; the name in it then means each batch in turn.
            sql = sql or _summary_sql(engine, form, written)
            for kind, count, numbers in engine.con.execute(sql).fetchall():
                yield Defect(kind, count, tuple((shown, number) for number in numbers))
    except DataError:
        yield Defect("damaged file", 1, ((shown, 0),))
    finally:
        engine.disconnect()


def _rows(engine: Any, form: Format) -> Any:
    """Give the lines of a batch, cut, each with what makes it no row."""
    # decode() may fail; TRY then gives null for that line only. Batches are small, so each step may be kept: an engine
    # that merges the steps would decode and cut every line once for each time it is mentioned.
    fields = ", ".join(f"{sql} AS {column}" for column, sql in form.fields.items())
    return engine.sql(
        f"WITH lines AS MATERIALIZED (SELECT number, octet_length(line) > {LONGEST_LINE} AS too_long, "  # noqa: S608
        "TRY(decode(line)) AS line FROM batch), "
        f"cut AS MATERIALIZED ({form.of_lines('SELECT * FROM lines')}) "
        f"SELECT number, {fields}, {form.raw_time} AS raw_time, CASE WHEN too_long THEN 'line too long' "
        f"WHEN line IS NULL THEN 'bad encoding' ELSE {form.problem} END AS problem "
        f"FROM cut WHERE line IS DISTINCT FROM '' AND NOT coalesce({form.skipped}, false)",
        dialect="duckdb",
    )


def _summary_sql(engine: Any, form: Format, written: Written | None) -> str:
    rows = _rows(engine, form)
    kind = rows.problem
    if written is not None:
        kind = kind.coalesce(_kind(rows, rows.raw_time, "duckdb", written, form.reads_time))
    query = engine.compile(rows.select("number", kind=kind))
    return (
        f"SELECT kind, count(*), min(number, {LINES_SHOWN}) FROM ({query}) "  # noqa: S608
        "WHERE kind IS NOT NULL GROUP BY kind ORDER BY kind"
    )


def defects_of_table(rows: Any, dialect: str, written: Written) -> Defects:
    """Count the defects of a table; it has no lines to number."""
    raw_time = rows.time if "time" in rows.columns else None
    kinds = rows.select(kind=_kind(rows, raw_time, dialect, written, False))
    counts = fetch(kinds.filter(kinds.kind.notnull()).group_by("kind").agg(n=lambda t: t.count()))
    return Defects.gather(Defect(row["kind"], row["n"]) for row in counts.to_pylist())


def _kind(rows: Any, raw_time: Any, dialect: str, written: Written, reads_time: bool) -> Any:
    """Name what is wrong with a well-formed row; null if nothing."""
    import ibis

    rules = [
        (stripped(rows.user.cast("string").fill_null(""), dialect) == "", "no user"),
        (~has_text(rows.query.cast("string").fill_null(""), dialect), "no query"),
    ]
    if raw_time is not None and "time" in rows.columns:
        read = rows.time if reads_time else written.micros(rows.time, dialect)
        is_text = raw_time.type().is_string()
        given = stripped(raw_time.fill_null(""), dialect) != "" if is_text else raw_time.notnull()
        rules.append((read.isnull() & given, "unreadable time"))
    return ibis.cases(*rules, else_=ibis.null("string"))
