"""Reading a search log from anywhere into its canonical columns, by rules that look at one row at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from hushquery.engine import as_table, check, connect, or_null
from hushquery.errors import DataError, UsageError
from hushquery.log import normalise as normal
from hushquery.log import normalise as private
from hushquery.log import normalise as times
from hushquery.log.formats import Wanted
from hushquery.log.read import Log
from hushquery.log.sources import FILE_ENDINGS, Source, files_source, named_source, table_source
from hushquery.log.time_format import TimeFormat

__all__ = ["read_log"]

_LARGEST_RANK = 10**15


def read_log(
    data: Any,
    *,
    format: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    engine: Any = None,
    normalise: bool = True,
    patterns: bool = True,
    drop: str | Path | Iterable[str] | None = None,
    exclude_users: str | Path | Iterable[str] | None = None,
    since: str | float | datetime | date | None = None,
    until: str | float | datetime | date | None = None,
    strict: bool = False,
    encoding: str = "utf-8",
    time_unit: str | None = None,
    time_format: str | None = None,
) -> Log:
    """Read a search log. Builds an expression: of text files only names and first lines are looked at.

    The steps, in this order, each looking at one row (or one user's rows) alone: rows without user or query are left
    out, and a query or URL of more than 4,096 characters counts as missing; users who object; rows outside the range
    of times, and with a range also the timeless ones; queries that hold personal numbers or
    addresses; normalisation; the deny list.

    A row that is left out for what it says (its query, its time) stays in :attr:`Log.rows` without its query, so its
    user still counts as one of the users: their number then depends on the ids in the log and on nobody's searches,
    and may be public under replace-one. People who object are removed altogether: who they are is a list of ids that
    the steward gives, so the number still depends on ids alone. A line of a file that can't be read names nobody; who
    has no other line is not counted. Where the number of users is published and lines may be broken, read with
    ``strict``, or give the number from the list of members.

    Args:
        data: A file name, a pattern such as ``logs/*.gz``, a list of file names, or a pandas, Polars, Arrow or Ibis
            table or mapping of columns. With an engine also the name of one of its tables (``searches``,
            ``schema.searches``), and with Spark where it finds Parquet files itself (``hdfs://...``).
        format: ``aol``, ``sogou``, ``yandex``, ``excite``, ``csv``, ``tsv``, ``parquet`` or ``jsonl``; by default the
            files' ending decides. Text may be compressed with gzip.
        columns: Which of the source's columns is which of ours (user, query, time, url, rank):
            ``{"user": "AnonID"}``. A column mapped to ``None`` is left out. One user is one value of the column for
            user, whatever it holds: that is whom the guarantee protects.
        engine: Where to read: a connection or a URL, see :func:`hushquery.engine.connect`. DuckDB in this process by
            default, which reads every format; Spark reads Parquet files, which all its machines must see.
        normalise: Whether to bring queries and URLs to one form, see :mod:`hushquery.log.normalise`.
        patterns: Whether to remove what looks personal, see :mod:`hushquery.log.normalise`. Has no effect on ``yandex``,
            whose words and URLs are numbers.
        drop: A deny list, as a file with one entry per line or as the entries: a query that equals an entry or
            contains it as whole words is removed.
        exclude_users: The user ids of people who object, as a file or as a list.
        since: Keep rows from this time on; without a zone it is UTC.
        until: Keep rows before this time.
        strict: Refuse the log if anything is wrong with it; reads it once for that.
        encoding: Of text files. A line that is not of it is left out.
        time_unit: ``s`` or ``ms`` for times that are numbers; by default a number of 1e11 or more is milliseconds.
            A time that can't be read, or that is too far away, is missing, and its row stays. One exception: Spark's
            reader fails, after the spend, on a Parquet timestamp in milliseconds beyond what microseconds can count
            (the year 294,247); write such a column in microseconds, or as numbers.
        time_format: How times that are text are written, in the letters of ``strptime``: ``%d.%m.%Y %H:%M``. By
            default they are ISO times or numbers. See :class:`hushquery.log.time_format.TimeFormat`.

    >>> log = read_log({"user": ["a", "b"], "query": ["Weather  Leeds", "mail joe@example.com"]})
    >>> log
    Log(user: string, query: string; rows are secret)
    >>> log.table.query.to_list()
    ['weather leeds']
    """
    if time_unit not in (None, "s", "ms"):
        raise UsageError(f"the unit of time {time_unit!r} is not known", fix="Use s or ms")
    if time_unit and time_format is not None:
        raise UsageError("times have a unit or a format", why="A time unit is for numbers", fix="Leave one of them out")
    written = times.Written(time_unit, None if time_format is None else TimeFormat(time_format))
    wanted = Wanted.of(columns or {})
    if isinstance(engine, str):
        engine = connect(engine)
    if _names_table(data, engine) and format is None:
        source = named_source(str(data), wanted, engine, written)
    elif _names_files(data):
        source = files_source(data, format, wanted, engine, encoding, written)
    elif format is not None:
        raise UsageError("a table has no file format", fix="Leave format out")
    else:
        source = table_source(as_table(data), wanted, engine, written, "read from a table")
    if written.form is not None and "time" not in source.rows.columns:
        raise UsageError("the log has no times to read by a format", fix="Name their column, or leave the format out")
    patterns = patterns and not source.coded
    rules = _Rules(source, normalise, patterns, written)
    table = rules.rows_with_user()
    steps = [
        *source.words,
        "rows without a user or a query left out",
        f"queries of over {normal.LONGEST} characters too",
    ]
    if "url" in table.columns:
        steps.append(f"urls of over {normal.LONGEST} characters removed; the search stays")
    if exclude_users is not None:
        table = private.without_users(table, private.entries(exclude_users, "exclude_users"))
        steps.append("rows of users who object left out")
    if since is not None or until is not None:
        table = rules.within(table, since, until)
        steps.append("rows outside a range of times left out, and timeless ones")
    if patterns:
        steps += private.PATTERN_STEPS[: 1 + ("url" in table.columns)]
    table = rules.canonical(table)
    if normalise:
        steps += normal.steps(source.dialect, with_url="url" in table.columns)
    if drop is not None:
        table = private.without_denied(table, private.entries(drop, "drop"), source.dialect, normalise=normalise)
        steps.append("deny list applied: queries that equal an entry or contain it as whole words left out")
    if source.dialect != "duckdb":
        check(rules.finish_urls(table))  # what an engine does not understand is refused before anything is spent
    log = Log(table, steps, source.count_defects, source.check_files, rules.finish_urls, normalises=normalise)
    if strict:
        log.refuse_defects()
    return log


@dataclass(frozen=True)
class _Rules:
    source: Source
    normalise: bool
    patterns: bool
    written: times.Written

    def rows_with_user(self) -> Any:
        import ibis

        rows = self.source.rows
        rows = rows.mutate(query=normal.not_too_long(_text(rows.query)))
        if rows.user.type().is_integer():
            # Whole numbers stay what they are: as text they cost an engine a fifth of the whole count.
            return rows.filter(rows.user.notnull())
        user = _text(rows.user)
        user = ibis.ifelse(user.contains(" "), normal.stripped(user, self.source.dialect), user)
        rows = rows.mutate(user=user)
        return rows.filter(rows.user != "")

    def within(self, table: Any, since: Any, until: Any) -> Any:
        if "time" not in table.columns:
            raise DataError("the log has no times, so since and until can't select", fix="Leave them out")
        import ibis

        time, inside = self._time(table), ibis.literal(value=True)
        if since is not None:
            inside = inside & (time >= times.instant(since, "since", self.written.unit))
        if until is not None:
            inside = inside & (time < times.instant(until, "until", self.written.unit))
        # Not a filter: who searched outside the range only would leave the number of users.
        return table.mutate(query=ibis.ifelse(inside, table.query, ibis.null("string")))

    def canonical(self, table: Any) -> Any:
        """Give the columns their final order and, all but the URL, their final form; a query left out is missing."""
        named = {"user": table.user, "query": self._query(table.query)}
        if "time" in table.columns:
            named["time"] = self._time(table)
        if "url" in table.columns:
            named["url"] = table.url.cast("string")
        if "rank" in table.columns:
            named["rank"] = _rank(table.rank, self.source.dialect)
        return table.select(**named)

    def _query(self, query: Any) -> Any:
        """Give the final form of a query, missing where the row is left out."""
        import ibis

        dialect = self.source.dialect
        left_out = ~normal.has_text(query, dialect)
        if self.patterns:
            left_out = left_out | private.holds_private_text(query, dialect)
        text = normal.normal_query(query, dialect) if self.normalise else query
        final = ibis.ifelse(left_out, ibis.null("string"), text)
        if dialect != "duckdb":
            return final
        # One cheap look spares most rows everything else.
        spared = [normal.begins_visibly(query)]
        if self.normalise or self.patterns:
            spared = [query.re_search(plain) for plain in normal.PLAIN]
        return ibis.cases(*((condition, query) for condition in spared), else_=final)

    def finish_urls(self, table: Any) -> Any:
        """Give the URLs of a canonical table their final form."""
        import ibis

        if "url" not in table.columns:
            return table
        dialect = self.source.dialect
        given = normal.not_too_long(table.url)
        url = normal.normal_url(given, dialect) if self.normalise else given.nullif("")
        if self.patterns:
            url = private.without_private_url(url, dialect)
        if dialect == "duckdb":
            url = ibis.ifelse(given.re_search(normal.PLAIN_URL), given, url)
        return table.mutate(url=url)

    def _time(self, table: Any) -> Any:
        if self.source.reads_time:
            return times.in_range(table.time)
        return self.written.micros(table.time, self.source.dialect)


def _text(column: Any) -> Any:
    return column if column.type().is_string() else or_null(column.cast("string"))


def _rank(rank: Any, dialect: str) -> Any:
    import ibis

    if rank.type().is_integer():
        return or_null(rank.cast("int64"))
    if rank.type().is_numeric():
        number = times.as_double(rank, dialect)
        number = ibis.ifelse(number.abs() < _LARGEST_RANK, number, ibis.null("float64"))
        return times.rounded(number, dialect)
    if dialect == "duckdb":
        return rank.try_cast("int64")
    text = normal.stripped(rank.cast("string"), dialect)
    shape = normal.pattern_for("^[+-]?[0-9]{1,15}(?:[.][0-9]{0,15})?$", dialect)
    number = ibis.ifelse(text.re_search(shape), text, ibis.null("string")).cast("float64")
    return times.rounded(number, dialect)


def _names_table(data: Any, engine: Any) -> bool:
    """Say whether data names something that only the engine can find; a name with a file's ending is a file's."""
    if engine is None or not isinstance(data, str):
        return False
    if engine.name == "pyspark" and "://" in data:
        return True
    if Path(data).suffix.lower() in FILE_ENDINGS:
        return False
    return re.fullmatch(r"\w+([.]\w+){0,2}", data) is not None and not Path(data).exists()


def _names_files(data: Any) -> bool:
    if isinstance(data, str | Path):
        return True
    return isinstance(data, list | tuple) and all(isinstance(one, str | Path) for one in data)
