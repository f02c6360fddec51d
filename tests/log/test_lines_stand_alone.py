"""No line changes how another one is read: the property on which every bound on a person's contribution rests."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery import statistics
from hushquery.core.budget import PrivacyWarning
from hushquery.log import read_log
from hushquery.log.files import LONGEST_LINE, cells_sql, lines_sql
from hushquery.log.formats import with_header
from hushquery.log.tables import read_table

ENGINE = ibis.duckdb.connect()
SCANNER = duckdb.connect()  # of all examples: to open one costs more than to read with it

GOOD: dict[str, list[bytes]] = {
    "aol": [
        b"AnonID\tQuery\tQueryTime\tItemRank\tClickURL",
        b"1\tweather leeds\t2006-03-01 07:17:12\t\t",
        b"2\tnews\t2006-03-01 07:17:12\t1\thttp://a.example",
        b"3\tbare\t2006-03-01 07:17:12",
    ],
    "sogou": [
        b"00:00:00\tu1\t[weather]\t8 3\ta.example/b",
        "20111230000005\tu2\t天气\t1\t1\tb.example".encode(),
    ],
    "yandex": [
        b"1\tM\t5\talice",
        b"1\t0\tQ\t0\t7\t11,12\t1,2\t3,4",
        b"1\t5\tC\t0\t3",
        b"2\tM\t6\tbob",
        b"2\t1\tT\t0\t7\t13\t1,2",
    ],
    "excite": [b"u1\t970916105432\tyahoo chat", b"u2\t970916105433\tmaps"],
    "csv": [b"user,query,time", b'1,"say ""hi"", you",5', b"2,plain,6", b'3,"quoted",7'],
    "tsv": [b"user\tquery\ttime", b'1\t"a\t5', b"2\tb\t6"],
    "jsonl": [b'{"user": "1", "query": "a", "time": 5}', b'{"user": "2", "query": "b"}'],
}

#: What lines are made of: every separator, quotes, escapes, halves of characters, ends of lines of other systems.
PIECES = [
    b"\t",
    b",",
    b'"',
    b'""',
    b"'",
    b"\\",
    b"{",
    b"[",
    b" ",
    b"#",
    b"\0",
    b"\x01",
    b"\x1a",
    b"\xff",
    b"\xc3",
    b"\xa9",
]
PIECES += [
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x8f\xbf\xbe",
    b"\xef\xbb\xbf",
    "天".encode(),
    "\u2028".encode(),
    "\u2029".encode(),
    "\u0085".encode(),
    b"\x0b",
    b"\x0c",
    b"\x1e",
    b"a",
    b"1",
    b"-",
    b"\r",
    b"M",
    b"Q",
]


#: Formats of which statistics are made, too.
TABLES = ("csv", "tsv", "jsonl")
TYPES = {"user": "string", "query": "string", "time": "float64"}


def read(kind: str, lines: Iterable[bytes], end: bytes = b"\n", *, statistics: bool = False) -> Counter[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{kind}"
        path.write_bytes(end.join(lines) + end)
        rows = read_table(path, types=TYPES) if statistics else read_log(path, format=kind, engine=ENGINE).table
        return Counter(tuple(row.values()) for row in rows.to_pyarrow().to_pylist())


@cache
def untouched(kind: str, end: bytes, statistics: bool) -> Counter[Any]:
    return read(kind, GOOD[kind], end, statistics=statistics)


@pytest.mark.parametrize(("kind", "statistics"), [*((k, False) for k in GOOD), *((k, True) for k in TABLES)])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_line_of_garbage_changes_no_other_row(kind, statistics, data):
    lines = GOOD[kind]
    garbage = b"".join(data.draw(st.lists(st.sampled_from(PIECES), max_size=12)))
    header = 1 if kind in ("csv", "tsv") else 0
    place = data.draw(st.integers(header, len(lines)))
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    before = untouched(kind, end, statistics)
    after = read(kind, [*lines[:place], garbage, *lines[place:]], end, statistics=statistics)
    assert before
    # The garbage may happen to be rows of its own; it takes nothing away and alters nothing.
    assert before <= after
    alone = after - before
    if alone and kind != "yandex":
        assert alone <= read(kind, [*lines[:2], garbage], end, statistics=statistics)


@pytest.mark.parametrize(("kind", "statistics"), [*((k, False) for k in GOOD), *((k, True) for k in TABLES)])
@pytest.mark.parametrize("size", [100_000, LONGEST_LINE + 1])
def test_a_long_line_changes_no_other_row(kind, statistics, size):
    header = 1 if kind in ("csv", "tsv") else 0
    for long in (b"x" * size, b'"' * size, b"1\t" * (size // 2), b"," * size, b"{" * size):
        after = read(kind, [*GOOD[kind][:header], long, *GOOD[kind][header:]], statistics=statistics)
        assert untouched(kind, b"\n", statistics) <= after


def count(folder: Path, lines: list[str], ending: str) -> float:
    """Count users for real, with an epsilon so large that its noise is zero but for once in e^300 runs."""
    path = folder / f"{len(lines)}.{ending}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return (
            statistics.plan_count(path, unit="user", epsilon=900, population="people")
            .run(path.with_suffix(".db"), anyway=True)
            .values[0]
        )


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_an_open_quote_swallows_nobody(tmp_path, ending):
    """Two lines of one user once hid all lines between them: a count of sensitivity 1 went from 997 to 11."""
    separator = "," if ending == "csv" else "\t"
    lines = ["user,x", *(f"u{n},{n}" for n in range(997))]
    poisoned = [*lines[:11], '"z,1', *lines[11:], 'z",2']
    before, after = (
        count(tmp_path, [line.replace(",", separator) for line in text], ending) for text in (lines, poisoned)
    )
    assert before == 997
    assert before <= after <= before + 2


@pytest.mark.parametrize("kind", GOOD)
def test_rows_do_not_depend_on_the_order_of_lines(kind):
    lines = GOOD[kind]
    head = 1 if kind in ("csv", "tsv") else 0
    assert read(kind, lines) == read(kind, [*lines[:head], *reversed(lines[head:])])


@given(st.lists(st.sampled_from([*PIECES, b"\n", b"\r\n", b"\n"]), min_size=1, max_size=60).map(b"".join))
@settings(max_examples=100, deadline=None)
def test_the_engine_cuts_lines_as_a_simple_model_does(data):
    """Holds DuckDB's scanner, with our options, to what this package believes of it."""
    separator = "\U0010ffff".encode()
    expected = []
    for line in re.split(b"\r\n|\n|\r", data.removeprefix(b"\xef\xbb\xbf")):
        try:
            text = line.split(separator)[0].decode()
        except UnicodeDecodeError:
            continue
        if line:
            expected.append(None if text == "\U0010fffe" else text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(data)
        assert [row[0] for row in SCANNER.execute(lines_sql([path], [])).fetchall()] == expected


@given(
    st.lists(st.sampled_from([b"\t", b"a", b'"', b"\xff", b"\n", b"\r\n", b" "]), min_size=1, max_size=60).map(b"".join)
)
@settings(max_examples=100, deadline=None)
def test_the_engine_cuts_cells_as_a_simple_model_does(data):
    expected = []
    for line in re.split(b"\r\n|\n|\r", data):
        cells = line.split(b"\t")[:4]
        try:
            texts = [cell.decode() for cell in cells]
        except UnicodeDecodeError:
            continue
        if line:
            expected.append((*texts, *[None] * (4 - len(texts))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(data)
        assert SCANNER.execute(cells_sql([path], [], 3)).fetchall() == expected


def cut_csv(line: str) -> list[str] | None:
    """Cut a line of a CSV file by hand: a cell that begins with a quote ends at the next single one, before a comma."""
    cells, rest = [], line
    while True:
        if rest.startswith('"'):
            found = re.match(r'"((?:[^"]|"")*)"(?=,|$)', rest)
            if not found:
                return None
            cell, end = found[1].replace('""', '"'), found.end()
        else:
            cell = rest.partition(",")[0]
            end = len(cell)
        cells.append(cell)
        if end == len(rest):
            return cells
        rest = rest[end + 1 :]


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b ", ",", ",", '"', '""', '",', ',"', "\t", "天"]), max_size=12).map("".join),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=150, deadline=None)
def test_each_line_of_a_csv_file_is_cut_once_as_by_hand(lines):
    """Lines with quotes and lines without are read in two ways: together they are all lines, and none is in both."""
    cut = [cut_csv(line) for line in lines if line]
    # The time may be left off, and a separator may end the line.
    whole = [cells + [None] * (3 - len(cells)) for cells in cut if cells and len(cells) > 1 and not any(cells[3:])]
    expected = Counter(tuple(cells[:3]) for cells in whole if len(cells) < 5)
    with tempfile.TemporaryDirectory() as folder:
        for separator in ",;":
            path = Path(folder) / "log.csv"
            text = "\n".join(["user,query,time", *lines, ""]).replace(",", separator)
            path.write_text(text, encoding="utf-8")
            form = with_header("csv", ["user", "query", "time"], {"user": 0, "query": 1, "time": 2}, separator)
            found = SCANNER.execute(form.rows_of_files([path], [])).fetchall()
            assert Counter(tuple(cell and cell.replace(separator, ",") for cell in row) for row in found) == expected


def test_which_columns_a_plan_uses_does_not_change_which_rows_there_are(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([*GOOD["aol"], b"9\tbad url\t2006-03-01 07:17:12\t1\thttp://\xff.example", b""]))
    table = read_log(path, format="aol").table
    assert table.count().to_pyarrow().as_py() == 3
    assert len(table.select("user").to_pyarrow()) == len(table.select("url").to_pyarrow()) == 3


def test_large_files_are_cut_in_the_same_way(tmp_path):
    """Buffers end in the middle of lines, and two threads meet there."""
    path = tmp_path / "log"
    piece = b"".join(b"user%d\t970916105432\t" % n + b"word " * (n % 50) + b'"%d\n' % n for n in range(20_000))
    bad = b"\xff\t\n" + b"y" * 100_000 + b"\n"
    path.write_bytes((piece + bad) * 20)
    assert path.stat().st_size > 40_000_000
    table = read_log(path, format="excite").table
    seen = table.group_by("user", "query").agg(n=lambda t: t.count())
    assert seen.count().to_pyarrow().as_py() == 20_000
    assert seen.n.min().to_pyarrow().as_py() == seen.n.max().to_pyarrow().as_py() == 20
