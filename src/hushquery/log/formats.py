"""Formats of search logs: how a line becomes a row, and what is wrong with one that does not."""

from __future__ import annotations

import csv as csv_module
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hushquery.log.columns import COLUMNS, published_origin, quote_name
from hushquery.log.files import LONGEST_LINE, cells_sql, lines_sql, sql_text

#: The formats that can be named, each with what its lines look like.
FORMATS = {
    "aol": "tab separated AnonID, Query, QueryTime, ItemRank, ClickURL",
    "sogou": "tab separated time, user, [query], rank and order, url",
    "yandex": "tab separated session lines of kinds M, Q, T and C",
    "excite": "tab separated user, YYMMDDhhmmss, query",
    "csv": "comma or semicolon separated with a header line",
    "tsv": "tab separated with a header line, no quotes",
    "parquet": "Parquet",
    "jsonl": "one JSON object per line",
}
#: The formats that the endings of files tell.
ENDINGS = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}

#: What may be between the cells of a ``csv`` file, in words.
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", "^": "caret", "~": "tilde", "\x01": "control-A"}

# A line under the header that SQL clients draw: every cell is made of dashes.
_RULE = "regexp_full_match(coalesce({0}, '--'), '[-+=| ]*--[-+=| ]*')"


@dataclass(frozen=True)
class Format:
    """How the lines of one file become rows."""

    name: str  # one of ``FORMATS``
    fields: Mapping[str, str]  # SQL for each of our columns that the source has
    origins: Mapping[str, str]  # what each of our columns is in the source, in words for the steward
    problem: str  # SQL, the kind of defect that makes a line no row, or null
    cells: int = 0  # how many cells ``c0``, ``c1``, ... a line has at most; 0 where lines are not cut at a separator
    # Else SQL from ``{lines}``, with a column ``line``, to the columns the rest is about; other columns pass through.
    parsed: str = ""
    skipped: str = "false"  # SQL, true for a line that is no row: a header; never null
    raw_time: str = ""  # SQL for the time as the line has it, where ``fields["time"]`` is in microseconds already
    separator: str = "\t"  # what is between cells
    with_header: bool = False  # whether the first line names the columns
    open_end: bool = False  # whether a line may have more cells: only a header says how many there are
    published: Mapping[str, str] = field(default_factory=dict)  # ``origins`` in words that may be published

    @property
    def description(self) -> str:
        """What the lines look like."""
        words = FORMATS[self.name].replace("comma or semicolon", SEPARATORS.get(self.separator, "character"))
        return words.replace("with a header line", "without a header line") if self.open_end else words

    def rows(self, relation: str) -> str:
        """Write the query for the good rows of a relation that has the columns the format is about."""
        fields = ", ".join(f"{sql} AS {column}" for column, sql in self.fields.items())
        return f"SELECT {fields} FROM ({relation}) WHERE ({self.problem}) IS NULL AND NOT ({self.skipped})"  # noqa: S608

    def of_lines(self, lines: str) -> str:
        """Write the query that cuts lines into the columns that the rest is about."""
        if self.parsed:
            return self.parsed.format(lines=lines)
        columns = ", ".join(f"cells[{index + 1}] AS c{index}" for index in range(self.cells + 2))
        cut = _cut_outside_quotes(self.separator) if self.name == "csv" else "string_split(line, '\t')"
        return f"SELECT * EXCLUDE (cells), {columns} FROM (SELECT *, {cut} AS cells FROM ({lines}))"  # noqa: S608

    def checked_rows(self, batch: str) -> str:
        """Write the query for all lines of a batch, cut: ``number``, the fields, ``raw_time`` and ``problem``."""
        # Materialized: an engine that merges the steps would decode and cut every line once per mention.
        fields = ", ".join(f"{sql} AS {column}" for column, sql in self.fields.items())
        return (
            f"WITH lines AS MATERIALIZED (SELECT number, octet_length(line) > {LONGEST_LINE} AS too_long, "  # noqa: S608
            # decode() may fail; TRY then returns null for that line only.
            f"TRY(decode(line)) AS line FROM {batch}), "
            f"cut AS MATERIALIZED ({self.of_lines('SELECT * FROM lines')}) "
            f"SELECT number, {fields}, {self.raw_time or self.fields.get('time', 'NULL')} AS raw_time, "
            "CASE WHEN too_long THEN 'line too long' "
            f"WHEN line IS NULL THEN 'bad encoding' ELSE {self.problem} END AS problem "
            f"FROM cut WHERE line IS DISTINCT FROM '' AND NOT coalesce({self.skipped}, false)"
        )

    def rows_of_files(self, plain: list[Path], compressed: list[Path]) -> str:
        """Write the query for the good rows of files.

        The engine's fast reader runs with quotes off, so that no quote reaches beyond its line; lines in which a cell
        begins with a quote are read as lines instead. Each line is read in exactly one of the two ways.
        """
        lines = lines_sql(plain, compressed)
        if not self.cells or self.open_end:
            return self.rows(self.of_lines(lines))
        cells = cells_sql(plain, compressed, self.cells + 1, self.separator)
        if self.name != "csv":
            return self.rows(cells)
        opened = " OR ".join(f"starts_with(c{index}, '\"')" for index in range(self.cells + 2))
        bare = f"SELECT * FROM ({cells}) WHERE NOT coalesce({opened}, false)"  # noqa: S608
        # Behind the cells that are looked at above a line has too many of them, here as there.
        with_quotes = f"contains(line, '\"') AND (starts_with(line, '\"') OR contains(line, '{self.separator}\"'))"
        return f"{self.rows(bare)} UNION ALL {self.rows(self.of_lines(f'SELECT * FROM ({lines}) WHERE {with_quotes}'))}"  # noqa: S608


def _cut_outside_quotes(separator: str) -> str:
    sign = f"\\x{ord(separator):02x}"
    # A cell: in quotes, with a quote inside written twice; or bare, when it may hold quotes but not begin with one.
    cell = f'"(?:[^"]|"")*"|[^"{sign}][^{sign}]*|'
    # Most quotes hold neither separator nor quote: then they are all there is to take away, at a fifth of the cost.
    easy = f'"[^"{sign}]*"|[^"{sign}]*'
    # unnest keeps the engine from cutting each line a second time for the conditions.
    return f"""unnest([CASE
    WHEN NOT contains(line, '"') THEN string_split(line, '{separator}')
    WHEN regexp_full_match(line, '(?:{easy})(?:{sign}(?:{easy}))*') THEN
      string_split(replace(line, '"', ''), '{separator}')
    WHEN regexp_full_match(line, '(?:{cell})(?:{sign}(?:{cell}))*') THEN
      list_transform(regexp_extract_all('{separator}' || line, '{sign}({cell})', 1, 's'),
                     lambda cell: CASE WHEN starts_with(cell, '"') THEN replace(cell[2:-2], '""', '"') ELSE cell END)
    END])"""


def _problem(cells: int, *needed: int, unclosed: str = "") -> str:
    """Name what is wrong with a line: a cell too many, or one missing that a row needs; others may be left off."""
    # One empty cell more is a separator at the end of the line.
    too_many = f"c{cells} <> '' OR c{cells + 1} IS NOT NULL"
    too_few = " OR ".join(f"c{index} IS NULL" for index in needed)
    return f"CASE WHEN {too_many} THEN 'too many columns' {unclosed}WHEN {too_few} THEN 'too few columns' END"


def _skipped(first: Sequence[str], header: str, cells: int) -> str:
    """Write the condition for a header line or the rule under it; most lines are spared all but two cheap looks."""
    rule = " AND ".join(_RULE.format(f"c{index}") for index in range(cells))
    begins = "".join(f" OR c0 = {sql_text(cell)}" for cell in first)
    return f"CASE WHEN starts_with(c0, '-'){begins} THEN coalesce(({header}) OR ({rule}), false) ELSE false END"


def _origins(*words: str) -> dict[str, str]:
    return dict(zip(COLUMNS, words, strict=False))


def with_header(kind: str, header: Sequence[str], places: Mapping[str, int], separator: str = "\t") -> Format:
    """Return the ``csv`` or ``tsv`` format with this header; a quote left open makes only its own line malformed."""
    cells, names = len(header), [name.strip() for name in header]
    same = " AND ".join(f"c{index} = {sql_text(text)}" for index, text in enumerate(header))
    # Of a log's row only the user and the query must be there; a table's row is whole.
    needed = {places[ours] for ours in ("user", "query")} if "user" in places else {0, cells - 1, *places.values()}
    return Format(
        kind,
        fields={column: f"c{index}" for column, index in places.items()},
        origins={column: f"the column {quote_name(names[index])}" for column, index in places.items()},
        problem=_problem(cells, *sorted(needed), unclosed=_UNCLOSED if kind == "csv" else ""),
        cells=cells,
        skipped=_skipped(header[:1], same, cells),
        separator=separator,
        with_header=True,
        published={column: published_origin(column, names[index]) for column, index in places.items()},
    )


def without_header(kind: str, places: Mapping[str, int], separator: str = "\t") -> Format:
    """Return the ``csv`` or ``tsv`` format of a file whose first line is a row: columns go by their places from 0."""
    cells = max(places.values()) + 1
    needed = [places[ours] for ours in ("user", "query") if ours in places] or [0]
    missing = " OR ".join(f"c{index} IS NULL" for index in needed)
    return Format(
        kind,
        fields={column: f"c{index}" for column, index in places.items()},
        origins={column: f"column {index + 1}" for column, index in places.items()},
        problem=f"CASE {_UNCLOSED if kind == 'csv' else ''}WHEN {missing} THEN 'too few columns' END",
        cells=cells,
        separator=separator,
        open_end=True,
    )


def jsonl(keys: Mapping[str, str]) -> Format:
    """Return the format of JSON lines; ``keys`` are the keys of our columns."""
    paths = ", ".join(sql_text("/" + key.replace("~", "~0").replace("/", "~1")) for key in keys.values())
    paths = paths.replace("{", "{{").replace("}", "}}")  # what is parsed has a place to fill in, in braces
    return Format(
        "jsonl",
        fields={column: f"members[{index + 1}]" for index, column in enumerate(keys)},
        origins={column: f"the key {quote_name(key)}" for column, key in keys.items()},
        published={column: published_origin(column, key, "key") for column, key in keys.items()},
        problem="CASE WHEN members IS NULL THEN 'bad JSON' END",
        # What begins with a brace and is JSON is an object: that spares one of three looks at the whole line.
        parsed="SELECT *, unnest([CASE WHEN starts_with(ltrim(line, ' \t'), '{{') AND json_valid(line) "  # noqa: S608
        f"THEN json_extract_string(line, [{paths}]) END]) AS members FROM ({{lines}})",
    )


_UNCLOSED = "WHEN c0 IS NULL THEN 'unclosed quote' "
_YANDEX_PROBLEM = """CASE
  WHEN cells[2] = 'M' AND len(cells) = 4 THEN NULL
  WHEN cells[3] IN ('Q', 'T') AND len(cells) >= 6 THEN NULL
  WHEN cells[3] = 'C' AND len(cells) = 5 THEN NULL
  WHEN cells[2] = 'M' AND len(cells) > 4 OR cells[3] = 'C' AND len(cells) > 5 THEN 'too many columns'
  ELSE 'too few columns' END"""
_YANDEX_TIME = "CASE WHEN cells[2] = 'M' THEN cells[3] ELSE cells[2] END"

#: The formats with fixed columns, by name.
FIXED = {
    # AOL, 2006: five cells, or three where nothing was clicked.
    "aol": Format(
        "aol",
        fields={"user": "c0", "query": "c1", "time": "c2", "url": "c4", "rank": "c3"},
        origins=_origins(*(f"the column '{n}'" for n in ("AnonID", "Query", "QueryTime", "ClickURL", "ItemRank"))),
        problem=_problem(5, 0, 1),
        cells=5,
        skipped=_skipped(["AnonID"], "c0 = 'AnonID' AND c1 = 'Query' AND c2 = 'QueryTime'", 5),
    ),
    # SogouQ: rank and order in one cell, or, since 2011, in two.
    "sogou": Format(
        "sogou",
        fields={
            "user": "c1",
            "query": "CASE WHEN c2[1] = '[' AND c2[-1] = ']' THEN c2[2:-2] ELSE c2 END",
            "time": "CASE WHEN contains(c0, ':') THEN epoch_us(TRY_CAST(c0 AS TIME)) "
            "ELSE epoch_us(try_strptime(c0, '%Y%m%d%H%M%S')) END",
            "url": "coalesce(c5, c4)",
            "rank": "split_part(c3, ' ', 1)",
        },
        origins=_origins(
            "the second cell of a line", "the third cell", "the first cell", "the last cell", "the fourth cell"
        ),
        problem=_problem(6, 0, 1, 2),
        cells=6,
        raw_time="c0",
    ),
    # Excite, 1997 and 1999.
    "excite": Format(
        "excite",
        fields={
            "user": "c0",
            "query": "c2",
            "time": "CASE WHEN length(c1) = 12 THEN epoch_us(try_strptime(c1, '%y%m%d%H%M%S')) END",
        },
        origins=_origins("the first cell of a line", "the third cell", "the second cell"),
        problem=_problem(3, 0, 1, 2),
        cells=3,
        raw_time="c1",
    ),
    # Kaggle's Yandex challenge: one line holds only its part of a session; `yandex_rows` puts sessions together.
    "yandex": Format(
        "yandex",
        fields={
            "user": "CASE WHEN cells[2] = 'M' THEN cells[4] ELSE cells[1] END",
            "query": "CASE WHEN cells[3] IN ('Q', 'T') THEN replace(cells[6], ',', ' ') ELSE cells[1] END",
            "time": f"TRY_CAST({_YANDEX_TIME} AS INTEGER)::BIGINT",
        },
        origins=_origins(
            "the user that a session's M line names",
            "the words of a Q or T line",
            "the session's day and the line's time",
            "the URL of a C line",
            "its place among the results",
        ),
        problem=_YANDEX_PROBLEM,
        parsed="SELECT *, string_split(line, '\t') AS cells FROM ({lines})",
        raw_time=_YANDEX_TIME,
    ),
}


def yandex_rows(lines: str) -> str:
    """Write the query that joins sessions: one row per click, one without url for a query without clicks.

    A session that M lines assign to two users belongs to both, so no user's rows depend on who else is named. Without a
    readable query it is a row without a query: its user still counts.
    """
    # A day or a time that is no number, or too large, makes the row timeless.
    time = "TRY((TRY_CAST(s.day AS INTEGER)::BIGINT * 86400 + TRY_CAST(q.passed AS INTEGER)::BIGINT) * 1000000)"
    return f"""
WITH parts AS NOT MATERIALIZED (
  SELECT cells FROM (SELECT string_split(line, '\t') AS cells FROM ({lines})) WHERE ({_YANDEX_PROBLEM}) IS NULL
), sessions AS (
  SELECT DISTINCT cells[1] AS session, cells[3] AS day, cells[4] AS "user" FROM parts WHERE cells[2] = 'M'
), queries AS (
  SELECT cells[1] AS session, cells[2] AS passed, cells[4] AS serp, replace(cells[6], ',', ' ') AS query,
    cells[7:] AS shown
  FROM parts WHERE cells[2] <> 'M' AND cells[3] IN ('Q', 'T')
), clicks AS (
  SELECT cells[1] AS session, cells[4] AS serp, cells[5] AS url FROM parts WHERE cells[2] <> 'M' AND cells[3] = 'C'
)
SELECT s."user", q.query, {time} AS time, c.url,
  list_position(list_transform(q.shown, lambda pair: split_part(pair, ',', 1)), c.url)::BIGINT AS rank
FROM sessions s LEFT JOIN queries q ON q.session = s.session
  LEFT JOIN clicks c ON c.session = q.session AND c.serp = q.serp
"""  # noqa: S608


#: Lines of formats without a header.
SHAPES = {
    "yandex": r"\d+\t(M\t\d+\t\d+|\d+\t([QT](\t[^\t]+){3,}|C\t\d+\t\d+))",
    "sogou": r"(\d\d:\d\d:\d\d|\d{14})\t[^\t]+\t[^\t]*\t[^\t]*(\t[^\t]*){1,2}",
    "excite": r"[^\t]+\t\d{12}\t[^\t]*",
    "aol": r"[^\t]+\t[^\t]*\t(\d{4}-\d\d?-\d\d?[^\t]*|)(\t\d*(\t[^\t]*)?)?\t?|AnonID\tQuery\t.*",
}


def has_shape(kind: str, line: str) -> bool:
    """Return whether a line has the shape of a format without a header."""
    if kind != "jsonl":
        return re.fullmatch(SHAPES[kind], line) is not None
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def separator_of(kind: str, header: str) -> str:
    """Return what separates the cells of a ``csv`` or ``tsv`` file: its header line alone decides.

    >>> separator_of("csv", "user,query"), separator_of("csv", "user;query")
    (',', ';')
    """
    return "\t" if kind == "tsv" else ";" if ";" in header and "," not in header else ","


def header_cells(line: str, separator: str, kind: str) -> list[str]:
    """Cut a line of a ``csv`` or ``tsv`` file; what is far too long for a header has no cells."""
    if kind == "tsv":
        return line.split("\t")
    try:
        return next(csv_module.reader([line], delimiter=separator), [])
    except csv_module.Error:
        return []
