"""Read a search log from anywhere into secret rows with fixed columns, by rules that look at one row at a time."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, NoReturn

from hushquery.engine import as_table, check, connect, engine_table, or_null
from hushquery.errors import DataError, UsageError
from hushquery.log import normalise as normal
from hushquery.log.columns import COLUMNS, ColumnNames
from hushquery.log.defects import Defects, left_out
from hushquery.log.files import find_files
from hushquery.log.sources import FILE_ENDINGS, Layout, Source, files_source, table_source
from hushquery.log.time_format import TimeFormat, TimeOptions, instant, instant_text

_LARGEST_RANK = 10**15


class Log:
    """A search log: rows of (user, query) and, where the source has them, time, url and rank; see :func:`read_log`.

    The rows are secret: a log shows only its schema, can't be pickled, and has neither length nor iterator. Everything
    that may be published is made from :attr:`table` by a plan that pays for it.
    """

    __slots__ = ("__weakref__", "_rows", "_rules", "_steps", "_table")

    def __init__(self, rows: Any, steps: list[str], rules: Rules) -> None:
        kinds = rows.schema()
        columns = [(name, str(kinds[name]).lstrip("!")) for name in rows.columns]
        expected = [(name, kind) for name, kind in COLUMNS.items() if name in kinds]
        if "user" in kinds and kinds["user"].is_integer():
            expected[0] = columns[0]
        if columns != expected or not {"user", "query"} <= set(kinds):
            raise UsageError("a Log needs the canonical columns", fix="Make it with hushquery.log.read_log")
        table = rules.finish_urls(rows.filter(rows["query"].notnull()))
        for name, value in {"_table": table, "_rows": rows, "_rules": rules, "_steps": tuple(steps)}.items():
            object.__setattr__(self, name, value)

    @property
    def table(self) -> Any:
        """The rows as an Ibis expression; ``user`` and ``query`` are never missing and never empty.

        ``time``, in whole microseconds, is missing where it could not be read, ``url`` where nothing was clicked.
        """
        return self._get("_table")

    @property
    def rows(self) -> Any:
        """The same rows and those left out for their query or time, with a missing query; URLs are as in the source.

        For counting users, of whom none may vanish by what they searched for, and for plans that drop such rows later.
        """
        return self._get("_rows")

    def clicks_of(self, queries: Any) -> Any:
        """Return the rows with a URL (missing if removed) of distinct ``queries``, with that table's other columns."""
        clicked = self.rows.filter(self.rows.url.notnull())
        joined = clicked.inner_join(queries, "query")
        return self._get("_rules").finish_urls(joined.select(*clicked.columns, *(set(queries.columns) - {"query"})))

    def part(self, keeps: Callable[[Any], Any], step: str) -> Log:
        """Return the log of the users that ``keeps``, a condition on ``user`` alone, selects; ``step`` is published."""
        return Log(self.rows.filter(keeps(self.rows.user)), [*self.steps, step], self._get("_rules"))

    @property
    def normalises(self) -> bool:
        """Whether queries and URLs are brought into one form each."""
        return bool(self._get("_rules").normalise)

    @property
    def has_time(self) -> bool:
        """Whether the source has times, so that "first" and "session" mean something."""
        return "time" in self.table.columns

    @property
    def has_url(self) -> bool:
        """Whether the source has clicked URLs."""
        return "url" in self.table.columns

    @property
    def steps(self) -> list[str]:
        """What was done to each row, in words that may be published: nothing in them is computed from rows."""
        return list(self._get("_steps"))

    @property
    def times(self) -> dict[str, str]:
        """The ``since`` and ``until`` that were asked for, in UTC; public, as nothing in them is read from rows."""
        return dict(self._get("_rules").times)

    def describe_defects(self, tell: Callable[[int], None] = lambda _: None) -> Defects:
        """Read the source once more and count what is wrong with it, for the steward's eyes only, not to publish.

        ``tell`` is called, every few megabytes, with how many bytes were read since.
        """
        rules: Rules = self._get("_rules")
        return rules.source.count_defects(tell=tell)

    def refuse_defects(self) -> None:
        """Raise unless the source is flawless: what ``strict`` means. Reads the source once."""
        defects = self.describe_defects()
        if defects:
            raise DataError(
                f"the log has defects: {defects.in_short()}",
                why="With strict reading every defect is fatal",
                fix="Correct the rows (the private report has the line numbers) or read without strict",
            )

    @property
    def explained(self) -> list[str]:
        """The :attr:`steps` in words for the steward, with the names of columns: a name may be somebody's row."""
        source = self._get("_rules").source
        return [source.columns if step == source.steps[1] else step for step in self.steps]

    def check_files(self, *, anyway: bool = False) -> None:
        """Raise if the log plainly can't be read, before a budget is spent on nothing.

        Compressed files are read to their end, because an engine reads half of one without a message. Unless
        ``anyway``, at most the first 1,000 lines of text files are parsed: more than half must be rows.
        """
        self._get("_rules").source.check_files()
        if not anyway:
            self._get("_rules").source.check_head()

    def left_out(self) -> tuple[float, str]:
        """Return the share of text lines that are no rows, and why, from a sample; secret, for the steward."""
        kinds = self._get("_rules").source.sample()
        bad = left_out(kinds)
        return sum(bad.values()) / max(1, sum(kinds.values())), ", ".join(list(bad)[:3])

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read; private, as a name of a file may tell whose it is."""
        found: tuple[Path, ...] = self._get("_rules").source.paths
        return found

    def _get(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Log can't be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Log can't be changed")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Log holds secret rows and can't be pickled or copied; publish a release instead")

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {str(kind).lstrip('!')}" for name, kind in self.table.schema().items())
        return f"Log({columns}; rows are secret)"

    def _repr_html_(self) -> str:
        from hushquery.templates import render

        return render("notebook/log.html", text=repr(self))


def read_log(
    data: Any,
    *,
    format: str | None = None,
    columns: Mapping[str, str | int | None] | None = None,
    header: bool | None = None,
    separator: str | None = None,
    engine: Any = None,
    normalise: bool = True,
    patterns: bool = True,
    drop: str | Path | Iterable[str] | None = None,
    exclude_users: str | Path | Iterable[str] | None = None,
    unwrap: str | None = None,
    since: str | float | datetime | date | None = None,
    until: str | float | datetime | date | None = None,
    strict: bool = False,
    encoding: str = "utf-8",
    time_unit: str | None = None,
    time_format: str | None = None,
) -> Log:
    """Read a search log. Builds an expression: of text files only names and first lines are looked at.

    The steps, each looking at one row (or one user's rows) alone: leave out rows without user or query (more than 4,096
    characters count as missing), users who object, rows outside the range of times (with a range also those without a
    time), and queries with personal numbers or addresses; normalise; apply the deny list.

    A row left out for its query or time stays in :attr:`Log.rows` without its query: the number of users depends on ids
    alone and may be public under replace-one. But a line that can't be read names nobody. Where that number is
    published and lines may be broken, read with ``strict``, or take it from the list of members.

    Args:
        data: A file name, a folder, a pattern such as ``logs/*.gz``, a list of these, a pandas, Polars, Arrow or Ibis
            table, or a mapping of columns; with an engine also the name of its table, on Spark also ``hdfs://...``.
        format: ``aol``, ``sogou``, ``yandex``, ``excite``, ``csv``, ``tsv``, ``parquet`` or ``jsonl``; by default the
            files' ending decides. Text may be compressed with gzip.
        columns: The source's names of user, query, time, url and rank: ``{"user": "AnonID"}``; ``None`` leaves one out,
            a number is a place from 1. The guarantee protects one value of the user column, whatever it holds.
        header: Whether the first line of a CSV or TSV file names the columns. ``False``: it is a row, and ``columns``
            are places. By default it does, and one that looks like a row is refused.
        separator: What is between the cells of a CSV file; by default its header line decides, comma or semicolon.
        engine: A connection or a URL, see :func:`hushquery.engine.connect`; by default DuckDB in this process. Spark
            reads Parquet files, which all its machines must see.
        normalise: Whether to bring queries and URLs to one form, see :mod:`hushquery.log.normalise`.
        patterns: Whether to remove what looks personal. No effect on ``yandex``, whose words and URLs are numbers.
        drop: A deny list, as a file with one entry per line or as the entries: a query that equals an entry or
            contains it as whole words is removed.
        exclude_users: The user ids of people who object, as a file or as a list.
        unwrap: Two characters to take off where they enclose a query: ``[]`` makes ``[tea]`` tea.
        since: Keep rows at or after this time; without a zone it is UTC.
        until: Keep rows before this time.
        strict: Refuse the log if anything is wrong with it; reads it once for that.
        encoding: The encoding of text files; a line that is not of it is left out.
        time_unit: ``s`` or ``ms`` for numbers; by default 1e11 or more is milliseconds. Unreadable times are missing,
            but Spark fails, after the spend, on Parquet milliseconds beyond the year 294,247: use microseconds there.
        time_format: How text is a time, see :class:`hushquery.log.time_format.TimeFormat`; by default ISO or numbers.

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
    options = TimeOptions(time_unit, None if time_format is None else TimeFormat(time_format))
    if unwrap is not None and len(unwrap) != 2:
        raise UsageError("unwrap needs two characters, one for each end", fix="Write it like '[]' or '<>'")
    names, layout = ColumnNames.of(columns or {}, header=header), Layout(format, encoding, header, separator)
    if isinstance(engine, str):
        engine = connect(engine)
    if names_table(data, engine) and format is None:
        step = "read as parquet" if "://" in data else f"read from a table of {engine.name}"
        source = table_source(engine_table(data, engine), names, engine, options, step)
    elif names_files(data):
        source = files_source(data, layout, names, engine, options)
        source = replace(source, paths=tuple(find_files(data)))
    elif format is not None or header is False:
        raise UsageError("a table has no file format", fix="Leave format and header out")
    else:
        source = table_source(as_table(data), names, engine, options, "read from a table")
    if options.form is not None and "time" not in source.rows.columns:
        raise UsageError("the log has no times to read by a format", fix="Name their column, or leave the format out")
    patterns = patterns and not source.coded
    asked = {name: time for name, time in (("since", since), ("until", until)) if time is not None}
    if asked and "time" not in source.rows.columns:
        raise DataError("the log has no times, so since and until can't select", fix="Leave them out")
    times = {name: instant_text(instant(time, name, options.unit)) for name, time in asked.items()}
    rules = Rules(source, normalise, patterns, options, unwrap or "", times)
    table = rules.rows_with_user()
    steps = [*source.steps, "rows without a user or a query left out"]
    steps.append(f"queries of over {normal.LONGEST} characters too")
    if "url" in table.columns:
        steps.append(f"urls of over {normal.LONGEST} characters removed; the search stays")
    if unwrap:
        steps.append(f"{unwrap[0]} and {unwrap[1]} around a query taken off")
    if exclude_users is not None:
        table = _without_users(table, exclude_users)
        steps.append("rows of users who object left out")
    if since is not None or until is not None:
        table = rules.within(table, since, until)
        steps.append("rows outside a range of times left out, and timeless ones")
    if patterns:
        steps += normal.PATTERN_STEPS[: 1 + ("url" in table.columns)]
    table = rules.canonical(table)
    if normalise:
        steps += normal.steps(source.dialect, with_url="url" in table.columns)
    if drop is not None:
        table = _without_denied(table, drop, source.dialect, normalise=normalise)
        steps.append("deny list applied: queries that equal an entry or contain it as whole words left out")
    if source.dialect != "duckdb":
        check(rules.finish_urls(table))  # what an engine does not understand is refused before anything is spent
    log = Log(table, steps, rules)
    if strict:
        log.refuse_defects()
    return log


@dataclass(frozen=True)
class Rules:
    """What is done to the rows of a source, each on its own."""

    source: Source  # the rows
    normalise: bool  # whether queries and URLs are brought to one form
    patterns: bool  # whether personal text is removed
    options: TimeOptions  # how times are written
    unwrap: str = ""  # two characters to take off around queries
    times: Mapping[str, str] = field(default_factory=dict)  # since and until as they were given, in UTC

    def rows_with_user(self) -> Any:
        """Return the rows that have a user; a query that is too long is missing."""
        rows = self.source.rows
        query = _text(rows.query)
        if self.unwrap:
            bare = normal.stripped(query, self.source.dialect)
            enclosed = (bare.left(1) == self.unwrap[0]) & (bare.right(1) == self.unwrap[1]) & (bare.length() > 1)
            query = enclosed.ifelse(bare.substr(1, bare.length() - 2), query)
        rows = rows.mutate(query=normal.not_too_long(query))
        if rows.user.type().is_integer():
            # Whole numbers stay what they are: as text they cost an engine a fifth of the whole count.
            return rows.filter(rows.user.notnull())
        user = _text(rows.user)
        user = user.contains(" ").ifelse(normal.stripped(user, self.source.dialect), user)
        rows = rows.mutate(user=user)
        return rows.filter(rows.user != "")

    def within(self, table: Any, since: Any, until: Any) -> Any:
        """Return the table without the queries outside a range of times, and without the timeless ones."""
        time, query = self._time(table), table.query
        # Not a filter: who searched outside the range only would leave the number of users.
        if since is not None:
            query = (time >= instant(since, "since", self.options.unit)).ifelse(query, None)
        if until is not None:
            query = (time < instant(until, "until", self.options.unit)).ifelse(query, None)
        return table.mutate(query=query)

    def canonical(self, table: Any) -> Any:
        """Return the columns in their final order and, all but the URL, form; a query left out is missing."""
        named = {"user": table.user, "query": self._query(table.query)}
        if "time" in table.columns:
            named["time"] = self._time(table)
        if "url" in table.columns:
            named["url"] = table.url.cast("string")
        if "rank" in table.columns:
            named["rank"] = _rank(table.rank, self.source.dialect)
        return table.select(**named)

    def _query(self, query: Any) -> Any:
        """Return the final form of a query, missing where the row is left out."""
        import ibis

        dialect = self.source.dialect
        left_out = ~normal.has_text(query, dialect)
        if self.patterns:
            left_out = left_out | normal.holds_private_text(query, dialect)
        text = normal.normal_query(query, dialect) if self.normalise else query
        final = left_out.ifelse(None, text)
        if dialect != "duckdb":
            return final
        # One cheap look spares most rows everything else.
        spared = [normal.begins_visibly(query)]
        if self.normalise or self.patterns:
            spared = [query.re_search(plain) for plain in normal.PLAIN]
        return ibis.cases(*((condition, query) for condition in spared), else_=final)

    def finish_urls(self, table: Any) -> Any:
        """Return a canonical table with its URLs in their final form."""
        if "url" not in table.columns:
            return table
        dialect = self.source.dialect
        given = normal.not_too_long(table.url)
        url = normal.normal_url(given, dialect) if self.normalise else given.nullif("")
        if self.patterns:
            url = normal.without_private_url(url, dialect)
        if dialect == "duckdb":
            url = given.re_search(normal.PLAIN_URL).ifelse(given, url)
        return table.mutate(url=url)

    def _time(self, table: Any) -> Any:
        if self.source.in_micros:
            return normal.in_range(table.time)
        return normal.micros(table.time, self.source.dialect, self.options)


def _text(column: Any) -> Any:
    return column if column.type().is_string() else or_null(column.cast("string"))


def _rank(rank: Any, dialect: str) -> Any:
    if rank.type().is_integer():
        return or_null(rank.cast("int64"))
    if rank.type().is_numeric():
        number = normal.as_double(rank, dialect)
        number = (number.abs() < _LARGEST_RANK).ifelse(number, None)
        return normal.rounded(number, dialect)
    if dialect == "duckdb":
        return rank.try_cast("int64")
    text = normal.stripped(rank.cast("string"), dialect)
    shape = normal.pattern_for("^[+-]?[0-9]{1,15}(?:[.][0-9]{0,15})?$", dialect)
    number = text.re_search(shape).ifelse(text, None).cast("float64")
    return normal.rounded(number, dialect)


def _without_users(table: Any, users: str | Path | Iterable[str]) -> Any:
    """Remove every row of the people who object: by their ids, which no search of anybody changes."""
    listed = _listed("objects", _read_entries(users, "exclude_users"))
    return table.anti_join(listed, table.user.cast("string") == listed.objects).select(*table.columns)


def _without_denied(table: Any, drop: str | Path | Iterable[str], dialect: str, *, normalise: bool) -> Any:
    """Remove queries that equal an entry or contain it as whole words; their rows stay, so that their users count.

    Candidates share an entry's first word, an equality that engines are fast at; only they are compared.
    """
    import ibis

    listed = _listed("entry", _read_entries(drop, "drop"))
    if normalise:
        listed = listed.select(entry=normal.normal_query(listed.entry, dialect))
    listed = listed.filter(listed.entry != "")
    listed = listed.mutate(word=listed.entry.split(" ")[0])
    queries = table.select("query").distinct()
    words = queries.mutate(word=queries.query.split(" ").unnest())
    near = words.join(listed, "word")
    padded = ibis.literal(" ") + near.query + " "
    hit = near.filter(padded.contains(ibis.literal(" ") + near.entry + " ")).select(denied="query").distinct()
    marked = table.left_join(hit, table["query"] == hit.denied)
    left = marked.denied.isnull().ifelse(marked["query"], None)
    return marked.mutate(query=left).select(*table.columns)


def _listed(column: str, texts: Iterable[str]) -> Any:
    """Return texts as a table, so that they do not stand in the SQL that a plan shows."""
    import ibis
    import pyarrow as pa

    return ibis.memtable(pa.table({column: pa.array(sorted(set(texts)), pa.string())}))


def _read_entries(source: str | Path | Iterable[str], name: str) -> list[str]:
    """Read a list: a UTF-8 file with one entry per line, compressed or not, or the entries themselves."""
    if not isinstance(source, str | Path):
        listed = list(source)
        if not all(isinstance(entry, str | int) for entry in listed):
            raise DataError(f"{name} must list text", fix="Give a file name or text entries")
        return [text for entry in listed if (text := str(entry).strip())]
    path = Path(source)
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"the {name} file {path} can't be read", why=type(error).__name__, fix="Check the name"
        ) from None
    except (ValueError, EOFError):
        raise DataError(
            f"the {name} file {path} is not UTF-8 text", fix="Save it as UTF-8, one entry per line"
        ) from None
    # Lines as a log has them: other separators of Unicode may be a part of a user's id.
    return [line for raw in re.split("\r\n|\n|\r", text) if (line := raw.strip())]


def names_table(data: Any, engine: Any) -> bool:
    """Return whether data names something that only the engine can find; a name with a file's ending is a file's."""
    if engine is None or not isinstance(data, str):
        return False
    if engine.name == "pyspark" and "://" in data:
        return True
    if Path(data).suffix.lower() in FILE_ENDINGS:
        return False
    return re.fullmatch(r"\w+([.]\w+){0,2}", data) is not None and not Path(data).exists()


def names_files(data: Any) -> bool:
    """Return whether data is a name of files, or a list of names."""
    return all(isinstance(one, str | Path) for one in (data if isinstance(data, list | tuple) else [data]))
