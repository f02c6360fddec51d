"""The formats of search logs: how one line becomes user, query, time, url and rank, as SQL over that line alone."""

from __future__ import annotations

import csv as csv_module
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hushquery.log.files import cells_sql, lines_sql, quoted
from hushquery.log.formats import shown

__all__ = [
    "FORMATS",
    "Format",
    "aol",
    "csv",
    "excite",
    "has_shape",
    "header_cells",
    "jsonl",
    "looks_like",
    "separator_of",
    "sogou",
    "tsv",
]

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


@dataclass(frozen=True)
class Format:
    """How the lines of one file become rows.

    Attributes:
        name: One of :data:`FORMATS`.
        cells: How many cells a line has at most; 0 where lines are not cut at a separator.
        parsed: SQL from a relation ``{lines}`` with a column ``line`` to the columns that the rest speaks of. Columns
            of the relation other than ``line`` pass through.
        skipped: SQL, true for a line that is no row: a header.
        problem: SQL, the kind of defect that makes a line no row, or null.
        fields: SQL for each of our columns that the source has.
        origins: What each of our columns is in the source, in words that may be published.
        raw_time: SQL for the time as the line has it.
        reads_time: Whether ``fields["time"]`` is in microseconds already.
        separator: What is between cells.
        quotes: Whether a cell that begins with a quote may hold the separator.
        with_header: Whether the first line names the columns.
    """

    name: str
    cells: int
    parsed: str
    skipped: str
    problem: str
    fields: Mapping[str, str]
    origins: Mapping[str, str]
    raw_time: str = "NULL"
    reads_time: bool = False
    separator: str = "\t"
    quotes: bool = False
    with_header: bool = False

    @property
    def words(self) -> str:
        """What the lines look like."""
        either = f"{'semicolon' if self.separator == ';' else 'comma'} separated"
        return FORMATS[self.name].replace("comma or semicolon separated", either)

    def rows(self, relation: str) -> str:
        """Write the query that gives the good rows of a relation that has the columns the format speaks of."""
        fields = ", ".join(f"{sql} AS {column}" for column, sql in self.fields.items())
        return f"SELECT {fields} FROM ({relation}) WHERE ({self.problem}) IS NULL AND NOT ({self.skipped})"  # noqa: S608

    def of_lines(self, lines: str) -> str:
        """Write the query that cuts lines into what the rest speaks of."""
        return self.parsed.format(lines=lines)

    def rows_of_files(self, plain: list[Path], compressed: list[Path]) -> str:
        """Write the query that gives the good rows of files.

        The engine's own reader cuts lines at separators many times faster than text functions do. It does so with
        quotes switched off, because a quote must not reach beyond its line; so lines in which a cell begins with a
        quote are read once more, as lines, and are left out of the fast way. Each line is in exactly one of the two.
        """
        lines = lines_sql(plain, compressed)
        if not self.cells:
            return self.rows(self.of_lines(lines))
        cells = cells_sql(plain, compressed, self.cells, self.separator)
        if not self.quotes:
            return self.rows(cells)
        opened = " OR ".join(f"starts_with(c{index}, '\"')" for index in range(self.cells + 1))
        bare = f"SELECT * FROM ({cells}) WHERE NOT coalesce({opened}, false)"  # noqa: S608
        # Behind the cells that are looked at above a line has too many of them, here as there.
        with_quotes = f"contains(line, '\"') AND (starts_with(line, '\"') OR contains(line, '{self.separator}\"'))"
        return f"{self.rows(bare)} UNION ALL {self.rows(self.of_lines(f'SELECT * FROM ({lines}) WHERE {with_quotes}'))}"  # noqa: S608


def _cut_at_tabs(count: int) -> str:
    cells = ", ".join(f"cells[{index + 1}] AS c{index}" for index in range(count + 1))
    return f"SELECT * EXCLUDE (cells), {cells} FROM (SELECT *, string_split(line, '\t') AS cells FROM ({{lines}}))"  # noqa: S608


def aol() -> Format:
    """Give the format of the AOL log of 2006: five cells, or three where nothing was clicked."""
    return Format(
        name="aol",
        cells=5,
        parsed=_cut_at_tabs(5),
        skipped="c0 = 'AnonID' AND c1 = 'Query' AND c2 = 'QueryTime'",
        problem="CASE WHEN c5 IS NOT NULL THEN 'too many columns' "
        "WHEN c0 IS NULL OR c1 IS NULL OR c2 IS NULL OR (c3 IS NULL) <> (c4 IS NULL) THEN 'too few columns' END",
        fields={"user": "c0", "query": "c1", "time": "c2", "url": "c4", "rank": "c3"},
        origins={
            "user": "the column 'AnonID'",
            "query": "the column 'Query'",
            "time": "the column 'QueryTime'",
            "url": "the column 'ClickURL'",
            "rank": "the column 'ItemRank'",
        },
        raw_time="c2",
    )


def sogou() -> Format:
    """Give the format of SogouQ: rank and order in one cell, or, since 2011, in two."""
    clock = "epoch_us(TRY_CAST(c0 AS TIME))"
    return Format(
        name="sogou",
        cells=6,
        parsed=_cut_at_tabs(6),
        skipped="false",
        problem="CASE WHEN c6 IS NOT NULL THEN 'too many columns' "
        "WHEN c0 IS NULL OR c1 IS NULL OR c2 IS NULL OR c3 IS NULL OR c4 IS NULL AND c5 IS NULL "
        "THEN 'too few columns' END",
        fields={
            "user": "c1",
            "query": "CASE WHEN c2[1] = '[' AND c2[-1] = ']' THEN c2[2:-2] ELSE c2 END",
            "time": f"CASE WHEN contains(c0, ':') THEN {clock} ELSE epoch_us(try_strptime(c0, '%Y%m%d%H%M%S')) END",
            "url": "coalesce(c5, c4)",
            "rank": "split_part(c3, ' ', 1)",
        },
        origins={
            "user": "the second cell of a line",
            "query": "the third cell",
            "time": "the first cell",
            "url": "the last cell",
            "rank": "the fourth cell",
        },
        raw_time="c0",
        reads_time=True,
    )


def excite() -> Format:
    """Give the format of the Excite logs of 1997 and 1999."""
    return Format(
        name="excite",
        cells=3,
        parsed=_cut_at_tabs(3),
        skipped="false",
        problem="CASE WHEN c3 IS NOT NULL THEN 'too many columns' "
        "WHEN c0 IS NULL OR c1 IS NULL OR c2 IS NULL THEN 'too few columns' END",
        fields={
            "user": "c0",
            "query": "c2",
            "time": "CASE WHEN length(c1) = 12 THEN epoch_us(try_strptime(c1, '%y%m%d%H%M%S')) END",
        },
        origins={"user": "the first cell of a line", "query": "the third cell", "time": "the second cell"},
        raw_time="c1",
        reads_time=True,
    )


def tsv(header: Sequence[str], places: Mapping[str, int]) -> Format:
    """Give the format of tab separated files with this header; ``places`` says where our columns are in it."""
    return _with_header("tsv", header, places, _cut_at_tabs(len(header)), cells=len(header))


def _cut_outside_quotes(count: int, separator: str) -> str:
    # A cell: in quotes, with a quote inside written twice; or bare, when it may hold quotes but not begin with one.
    cell = f'"(?:[^"]|"")*"|[^"{separator}][^{separator}]*|'
    # Most quotes hold neither separator nor quote: then they are all there is to take away, at a fifth of the cost.
    easy = f'"[^"{separator}]*"|[^"{separator}]*'
    cells = ", ".join(f"cells[{index + 1}] AS c{index}" for index in range(count + 1))
    return f"""
SELECT * EXCLUDE (cells), {cells} FROM (
  -- unnest keeps the engine from cutting each line a second time for the conditions
  SELECT *, unnest([CASE
    WHEN NOT contains(line, '"') THEN string_split(line, '{separator}')
    WHEN regexp_full_match(line, '(?:{easy})(?:{separator}(?:{easy}))*') THEN
      string_split(replace(line, '"', ''), '{separator}')
    WHEN regexp_full_match(line, '(?:{cell})(?:{separator}(?:{cell}))*') THEN
      list_transform(regexp_extract_all('{separator}' || line, '{separator}({cell})', 1, 's'),
                     lambda cell: CASE WHEN starts_with(cell, '"') THEN replace(cell[2:-2], '""', '"') ELSE cell END)
    END]) AS cells FROM ({{lines}}))
"""  # noqa: S608


def csv(header: Sequence[str], places: Mapping[str, int], separator: str = ",") -> Format:
    """Give the format of comma or semicolon separated files with this header.

    A quote that its own line does not close makes that line malformed; it can't swallow the lines behind it.
    """
    form = _with_header("csv", header, places, _cut_outside_quotes(len(header), separator), cells=len(header))
    return replace(form, separator=separator, quotes=True)


def _with_header(kind: str, header: Sequence[str], places: Mapping[str, int], parsed: str, cells: int) -> Format:
    last = len(header) - 1
    needed = sorted({0, last, *places.values()})
    unclosed = "WHEN c0 IS NULL THEN 'unclosed quote' " if kind == "csv" else ""
    return Format(
        name=kind,
        cells=cells,
        parsed=parsed,
        skipped=" AND ".join(f"c{index} = {quoted(text)}" for index, text in enumerate(header)),
        problem=f"CASE WHEN c{last + 1} IS NOT NULL THEN 'too many columns' {unclosed}"
        f"WHEN {' OR '.join(f'c{index} IS NULL' for index in needed)} THEN 'too few columns' END",
        fields={column: f"c{index}" for column, index in places.items()},
        origins={column: f"the column {shown(header[index].strip())}" for column, index in places.items()},
        raw_time=f"c{places['time']}" if "time" in places else "NULL",
        with_header=True,
    )


def jsonl(keys: Mapping[str, str]) -> Format:
    """Give the format of JSON lines; ``keys`` says which key holds each of our columns."""
    order = list(keys)
    paths = ", ".join(quoted("/" + keys[column].replace("~", "~0").replace("/", "~1")) for column in order)
    paths = paths.replace("{", "{{").replace("}", "}}")  # what is parsed has a place to fill in, in braces
    return Format(
        name="jsonl",
        cells=0,
        # What begins with a brace and is JSON is an object: that spares one of three looks at the whole line.
        parsed="SELECT *, unnest([CASE WHEN starts_with(ltrim(line, ' \t'), '{{') AND json_valid(line) "  # noqa: S608
        f"THEN json_extract_string(line, [{paths}]) END]) AS found FROM ({{lines}})",
        skipped="false",
        problem="CASE WHEN found IS NULL THEN 'bad JSON' END",
        fields={column: f"found[{index + 1}]" for index, column in enumerate(order)},
        origins={column: f"the key {shown(key)}" for column, key in keys.items()},
        raw_time=f"found[{order.index('time') + 1}]" if "time" in keys else "NULL",
    )


_DATED = r"(\d{4}-\d\d?-\d\d?.*|)"
_SHAPES: Mapping[str, Callable[[str], bool]] = {
    "yandex": lambda line: bool(re.fullmatch(r"\d+\t(M\t\d+\t\d+|\d+\t([QT](\t[^\t]+){3,}|C\t\d+\t\d+))", line)),
    "sogou": lambda line: bool(re.fullmatch(r"(\d\d:\d\d:\d\d|\d{14})\t[^\t]+\t[^\t]*\t[^\t]*(\t[^\t]*){1,2}", line)),
    "excite": lambda line: bool(re.fullmatch(r"[^\t]+\t\d{12}\t[^\t]*", line)),
    "aol": lambda line: bool(re.fullmatch(rf"[^\t]+\t[^\t]*\t{_DATED}(\t\d*\t[^\t]*)?|AnonID\tQuery\t.*", line)),
    "jsonl": lambda line: line.lstrip().startswith("{") and _is_object(line),
}


def has_shape(kind: str, lines: Sequence[str]) -> bool:
    """Say whether at least one line has the shape of the format, or, below a header, its number of cells."""
    if kind in _SHAPES:
        return any(_SHAPES[kind](line) for line in lines)
    separator = separator_of(kind, lines[0])
    counts = [len(header_cells(line, separator)) for line in lines]
    return counts[0] > 1 and (len(counts) == 1 or counts[0] in counts[1:])


def separator_of(kind: str, header: str) -> str:
    """Say what separates the cells of a ``csv`` or ``tsv`` file: its header line alone decides.

    >>> separator_of("csv", "user,query"), separator_of("csv", "user;query")
    (',', ';')
    """
    return "\t" if kind == "tsv" else ";" if ";" in header and "," not in header else ","


def header_cells(line: str, separator: str) -> list[str]:
    """Cut the header line of a ``csv`` or ``tsv`` file; what is far too long for one has no cells."""
    if separator == "\t":
        return line.split("\t")
    try:
        return next(csv_module.reader([line], delimiter=separator), [])
    except csv_module.Error:
        return []


def looks_like(lines: Sequence[str]) -> str:
    """Say which format most of the lines look like, in words without any of their content; nothing if none."""
    if not lines:
        return ""
    for kind, fits in _SHAPES.items():
        if 2 * sum(map(fits, lines)) > len(lines):
            return kind
    for kind, separator in (("tsv", "\t"), ("csv", ","), ("csv", ";")):
        counts = [line.count(separator) + 1 for line in lines]
        common = max(set(counts), key=counts.count)
        if common > 1 and 2 * counts.count(common) > len(lines):
            return f"{kind} with {common} columns"
    return ""


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
