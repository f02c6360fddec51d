"""Count the lines that reading leaves out, by kind, in a second pass: a private report for the steward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushquery.engine import connect, fetch
from hushquery.errors import DataError
from hushquery.log.files import line_batches
from hushquery.log.formats import Format
from hushquery.log.normalise import has_text, micros, stripped
from hushquery.log.time_format import TimeOptions

#: Every kind of defect, in the order a report lists them.
KINDS: tuple[str, ...] = (
    "too few columns",
    "too many columns",
    "unclosed quote",
    "bad JSON",
    "bad encoding",
    "line too long",
)
KINDS += ("no user", "no query", "unreadable time", "damaged file")

#: How many line numbers a report lists per kind.
LINES_SHOWN = 20


@dataclass(frozen=True)
class Defect:
    """One kind of defect: how often, and its first places as (file, line number), none where there are no lines."""

    kind: str
    count: int
    lines: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        files: dict[str, list[str]] = {}
        for file, line in self.lines:
            files.setdefault(file, []).append(str(line))
        places = "; ".join(f"{file}: {', '.join(lines)}" for file, lines in files.items())
        return f"{self.kind}: {self.count}" + (f" ({places})" if places else "")


@dataclass(frozen=True)
class Defects:
    """Everything wrong with a log. True if there is anything. Not for publication: its counts are exact.

    >>> print(Defects.gather([Defect("no user", 2, (("log.csv", 7),)), Defect("no user", 1, (("log.csv", 9),))]))
    PRIVATE: defects of the log, exact counts, not for publication
      no user: 3 (log.csv: 7, 9)
    """

    kinds: tuple[Defect, ...] = ()
    lines: int = 0  # how many lines or rows were looked at

    @classmethod
    def gather(cls, parts: Iterable[Defect]) -> Defects:
        """Add up the defects of the parts of a log, in the order of its lines."""
        counts: dict[str, int] = {}
        lines: dict[str, list[tuple[str, int]]] = {}
        for part in parts:
            counts[part.kind] = counts.get(part.kind, 0) + part.count
            lines.setdefault(part.kind, []).extend(part.lines)
        return cls(
            tuple(Defect(kind, counts[kind], tuple(lines[kind][:LINES_SHOWN])) for kind in KINDS if kind in counts),
            sum(counts.values()) - counts.get("damaged file", 0),
        )

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def in_short(self) -> str:
        """Return kinds and counts in one line."""
        return ", ".join(f"{defect.kind}: {defect.count}" for defect in self.kinds) or "none"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, for the file that ``--private-report`` writes."""
        defects = [
            {"kind": one.kind, "count": one.count, "first": [{"file": file, "line": line} for file, line in one.lines]}
            for one in self.kinds
        ]
        return {"private": "exact counts of a secret log; not for publication", "defects": defects}

    def __str__(self) -> str:
        if not self.kinds:
            return "PRIVATE: the log has no defects"
        rows = [f"  {defect}" for defect in self.kinds]
        return "\n".join(["PRIVATE: defects of the log, exact counts, not for publication", *rows])


def defects_of_files(
    paths: Sequence[Path],
    form: Format,
    options: TimeOptions | None,
    encoding: str = "utf-8",
    tell: Callable[[int], None] = lambda _: None,
) -> Defects:
    """Count the defects of text files; without ``options``, of tables other than logs, only those of lines.

    ``tell`` is called with the number of bytes that were read since.
    """
    return Defects.gather(part for path in paths for part in _of_file(path, form, options, encoding, tell))


def defects_of_table(
    rows: Any, dialect: str, options: TimeOptions, tell: Callable[[int], None] = lambda _: None
) -> Defects:
    """Count the defects of a table; it has no lines to number."""
    raw_time = rows.time if "time" in rows.columns else None
    kinds = rows.select(kind=_kind(rows, raw_time, dialect, options))
    counts = fetch(kinds.group_by("kind").agg(n=lambda t: t.count()))
    tell(0)
    return Defects.gather(Defect(row["kind"] or "", row["n"]) for row in counts.to_pylist())


def count_kinds(lines: Sequence[bytes], form: Format, options: TimeOptions | None) -> dict[str, int]:
    """Count a few lines by their defect, "" for none; headers are no lines."""
    import pyarrow as pa

    engine = connect()
    try:
        batch = pa.table({"number": range(len(lines)), "line": pa.array(lines, pa.large_binary())})
        engine.con.register("batch", batch)
        sql = f"SELECT coalesce(kind, ''), count(*) FROM ({_kinds_sql(engine, form, options)}) GROUP BY ALL"  # noqa: S608
        return dict(engine.con.execute(sql).fetchall()) if lines else {}
    finally:
        engine.disconnect()


def _of_file(
    path: Path, form: Format, options: TimeOptions | None, encoding: str, tell: Callable[[int], None]
) -> Iterator[Defect]:
    engine, sql = connect(), ""
    try:
        for batch in line_batches(path, encoding):
            engine.con.register("batch", batch)
            # The query is written once; the name in it then means each batch in turn.
            sql = sql or _summary_sql(engine, form, options)
            for kind, count, numbers in engine.con.execute(sql).fetchall():
                yield Defect(kind, count, tuple((str(path), number) for number in numbers))
            tell(batch.nbytes)
    except DataError:
        yield Defect("damaged file", 1, ((str(path), 0),))
    finally:
        engine.disconnect()


def _summary_sql(engine: Any, form: Format, options: TimeOptions | None) -> str:
    return (
        f"SELECT coalesce(kind, '') AS kind, count(*), min(number, {LINES_SHOWN}) "  # noqa: S608
        f"FROM ({_kinds_sql(engine, form, options)}) GROUP BY ALL ORDER BY ALL"
    )


def _kinds_sql(engine: Any, form: Format, options: TimeOptions | None) -> str:
    rows = engine.sql(form.checked_rows("batch"), dialect="duckdb")
    kind = rows.problem
    if options is not None:
        kind = kind.coalesce(_kind(rows, rows.raw_time, "duckdb", options, in_micros=bool(form.raw_time)))
    return str(engine.compile(rows.select("number", kind=kind)))


def _kind(rows: Any, raw_time: Any, dialect: str, options: TimeOptions, *, in_micros: bool = False) -> Any:
    """Name what is wrong with a well-formed row; null if nothing."""
    import ibis

    rules = [
        (stripped(rows.user.cast("string").fill_null(""), dialect) == "", "no user"),
        (~has_text(rows.query.cast("string").fill_null(""), dialect), "no query"),
    ]
    if raw_time is not None and "time" in rows.columns:
        time = rows.time if in_micros else micros(rows.time, dialect, options)
        is_text = raw_time.type().is_string()
        given = stripped(raw_time.fill_null(""), dialect) != "" if is_text else raw_time.notnull()
        rules.append((time.isnull() & given, "unreadable time"))
    return ibis.cases(*rules, else_=ibis.null("string"))
