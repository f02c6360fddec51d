"""Files without a header line, ragged rows, rules of dashes: rows are read, and no cell becomes a column's name."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from commands import answer
from hushquery.errors import DataError, UsageError
from hushquery.log import read_log

# What the first line of a real log may be: one person's id, query, time and page.
PERSON = ["Zyxwvut17", "cancer clinic zyxville", "2031-07-08 09:10:11", "http://zyx-canary.example/u"]
OTHERS = [[f"u{n % 300}", "news", "2031-07-01 10:00:00", "http://news.example"] for n in range(900)]


def written(path: Path, rows: list[list[str]], separator: str = "\t") -> Path:
    path.write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(("ending", "separator"), [("tsv", "\t"), ("csv", ","), ("csv", ";"), ("csv", "|")])
def test_a_first_line_that_is_a_row_is_never_taken_for_names(tmp_path, rows_of, ending, separator):
    path = written(tmp_path / f"log.{ending}", [PERSON, *OTHERS[:20]], separator)
    for columns in ({}, {"columns": {"user": PERSON[0], "query": PERSON[1]}}):
        with pytest.raises(DataError, match=r"looks like a row.*--no-header --columns user=1") as refused:
            read_log(path, separator=separator, **columns)
        assert not any(cell in str(refused.value) for cell in PERSON)
    log = read_log(path, separator=separator, header=False, columns={"user": 1, "query": "2", "time": 3, "url": 4})
    assert len(rows_of(log)) == 21
    assert PERSON[1] in {row[1] for row in rows_of(log)}
    assert log.steps[1] == "user: column 1; query: column 2; time: column 3; url: column 4"
    assert not log.describe_defects()


def test_a_first_line_of_words_alone_is_found_out_by_what_comes_again(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("ann\tflats in zyxville\n" + "ann\tnews\nbob\tweather\n" * 9)
    with pytest.raises(DataError, match="looks like a row") as refused:
        read_log(path, columns={"user": "ann", "query": "flats in zyxville"})
    assert "zyxville" not in str(refused.value)


def test_who_says_that_it_is_a_header_is_believed(tmp_path, rows_of):
    path = tmp_path / "log.csv"
    path.write_text("user,query,2031\nann,tea,1\n")
    with pytest.raises(DataError, match="header=True"):
        read_log(path)
    assert rows_of(read_log(path, header=True)) == [("ann", "tea")]


def test_nothing_of_the_first_line_is_in_a_release(tmp_path, monkeypatch):
    """The first person's row once stood in manifest, card and page as names of columns."""
    monkeypatch.chdir(tmp_path)
    written(Path("log.tsv"), [PERSON, *OTHERS])
    ours = f"user={PERSON[0]},query={PERSON[1]},time={PERSON[2]},url={PERSON[3]}"
    budget = ("--epsilon", "2", "--delta", "1e-6", "--queries-per-user", "2", "--clicks-per-user", "2")
    to = ("--population", "readers", "--ledger", "ledger.db", "--out", "release")
    code, out, err = answer("release", "log.tsv", "--columns", ours, *budget, *to)
    assert (code, Path("release").exists()) == (4, False), err
    assert not any(cell in out + err for cell in PERSON)
    # Even by somebody who insists that they are names.
    for name, how in (
        ("forced", ("--header", "--columns", ours)),
        ("places", ("--no-header", "--columns", "user=1,query=2,time=3,url=4")),
    ):
        people = ("--population", name, "--new-population", "--ledger", "ledger.db", "--out", name)
        code, out, err = answer("release", "log.tsv", *how, *budget, *people)
        assert code == 0, err
        files = [file for file in Path(name).rglob("*") if file.is_file()]
        assert len(files) > 3
        told = b"".join(file.read_bytes() for file in files) + Path("ledger.db").read_bytes()
        told += "".join(
            answer("budget", "history", "--ledger", "ledger.db", *more)[1] for more in ((), ("--json",))
        ).encode()
        with sqlite3.connect("ledger.db") as book:
            told += "\n".join(book.iterdump()).encode()
        assert [cell for cell in PERSON if cell.encode() in told] == []
        assert b"zyx" not in told.lower()
        manifest = json.loads(Path(name, "manifest.json").read_text())
        assert "steward named" in manifest["parameters"]["log_steps"][1] or name == "places"


def test_names_and_places_that_mean_nothing(tmp_path):
    path = written(tmp_path / "log.tsv", [PERSON])
    for columns in ({}, {"user": "a", "query": "b"}, {"user": 1}, {"user": 1, "query": "b"}):
        with pytest.raises(UsageError, match="no names of columns"):
            read_log(path, header=False, columns=columns)
    with pytest.raises(UsageError, match="counted from 1"):
        read_log(path, header=False, columns={"user": 0, "query": 1})
    with pytest.raises(UsageError, match="can't be both"):
        read_log(path, header=False, columns={"user": 1, "query": 1})
    with pytest.raises(DataError, match="has 9 cells"):
        read_log(path, header=False, columns={"user": 1, "query": 9})
    with pytest.raises(DataError, match="no column 9"):
        read_log({"a": ["b"], "c": ["d"]}, columns={"user": 1, "query": 9})
    with pytest.raises(UsageError, match="separated by"):
        read_log(path, separator="x")
    with pytest.raises(UsageError, match="two characters"):
        read_log(path, unwrap="[")


def test_places_in_a_file_with_a_header_whose_names_come_twice(tmp_path, rows_of):
    path = tmp_path / "log.csv"
    path.write_text("id,text,text\n7,tea,milk\n")
    assert rows_of(read_log(path, columns={"user": "id", "query": 3})) == [("7", "milk")]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_missing_cell_at_the_end_is_an_empty_cell(tmp_path, rows_of, kind, compressed):
    sign = "," if kind == "csv" else "\t"
    lines = [
        "user,query,time,url",
        "1,a",
        "2,b,",
        "3,c,2031-07-08,",
        "4,d,2031-07-08,http://e.example,",
        "5",
        "6,e,,,x",
    ]
    data = "\n".join(lines).replace(",", sign).encode()
    path = tmp_path / f"log.{kind}{'.gz' if compressed else ''}"
    path.write_bytes(gzip.compress(data) if compressed else data)
    log = read_log(path)
    assert [row[:2] for row in rows_of(log)] == [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]
    assert log.describe_defects().in_short() == "too few columns: 1, too many columns: 1"


def test_aol_rows_without_their_last_cells_and_a_rule_of_dashes(tmp_path, rows_of):
    head = "AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n------\t-----\t---------\t--------\t--------\n"
    rows = "1\ta\t2006-03-01 07:17:12\n2\tb\t2006-03-01 07:17:12\t\n3\tc\t2006-03-01 07:17:12\t1\n4\td\n"
    path = tmp_path / "log.txt"
    path.write_text(head + rows)
    log = read_log(path, format="aol")
    assert [row[:2] for row in rows_of(log)] == [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]
    assert not log.describe_defects()


@pytest.mark.parametrize(
    ("separator", "rule"), [("\t", "----\t-----"), (",", "----,-----"), ("|", "------+-------"), ("|", "----|-----")]
)
def test_a_rule_under_the_header_is_no_row(tmp_path, rows_of, separator, rule):
    path = tmp_path / ("log.tsv" if separator == "\t" else "log.csv")
    path.write_text(f"user{separator}query\n{rule}\nann{separator}tea\n--{separator}a -- b\n")
    log = read_log(path, separator=separator)
    assert rows_of(log) == [("--", "a -- b"), ("ann", "tea")]
    assert not log.describe_defects()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("compressed", [False, True])
def test_utf_16_as_spreadsheets_write_it(tmp_path, rows_of, encoding, compressed):
    data = "user\tquery\r\nann\tcafé 天气\r\nbob\t𝒳 tea\r\n".encode(encoding)
    path = tmp_path / "log.txt"
    path.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(DataError, match=r"UTF-16 text.*--encoding utf-16"):
        read_log(path, format="tsv")
    log = read_log(path, format="tsv", encoding=encoding)
    assert rows_of(log) == [("ann", "café 天气"), ("bob", "𝒳 tea")]
    half = (
        "user\tquery\nann\ttea\n".encode("utf-16-le") + b"b\0\t\0\x00\xd8x\0\n\0" + "carl\tmilk\n".encode("utf-16-le")
    )
    path.write_bytes(half)
    log = read_log(path, format="tsv", encoding="utf-16-le")
    assert rows_of(log) == [("ann", "tea"), ("carl", "milk")]
    assert log.describe_defects().in_short() == "bad encoding: 1"


def test_a_folder_is_its_files(tmp_path, rows_of):
    for name, user in (("a.csv", "ann"), ("b.csv", "bob")):
        (tmp_path / name).write_text(f"user,query\n{user},tea\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part.csv").write_text("x")
    assert rows_of(read_log(tmp_path)) == [("ann", "tea"), ("bob", "tea")]
    (tmp_path / "c.tsv").write_text("user\tquery\n")
    with pytest.raises(UsageError, match="does not tell one format"):
        read_log(tmp_path)


def test_brackets_around_queries_are_taken_off(tmp_path, rows_of):
    path = tmp_path / "log.tsv"
    path.write_bytes("1\t[天气]\n2\t[a] b\n3\t[]\n4\t [ tea ] \n".encode("gb18030"))
    log = read_log(path, header=False, columns={"user": 1, "query": 2}, encoding="gb18030", unwrap="[]")
    assert rows_of(log) == [("1", "天气"), ("2", "[a] b"), ("4", "tea")]
    assert "[ and ] around a query taken off" in log.steps


def test_the_advice_names_a_format_only_if_rows_are_then_read(tmp_path):
    good = "u\tsome text\t2006-03-01 10:00:00\n" * 3
    blank = "u\t\t2006-03-01 10:00:00\n" * 30  # of the shape, and not one row with a query
    path = tmp_path / "log.txt"
    for text, named in ((good, True), (blank, False)):
        path.write_text(text)
        with pytest.raises(DataError) as refused:
            read_log(path, format="excite")
        assert ("looks like aol" in str(refused.value)) is named


def test_near_names_are_suggested(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user_id,search_term,date\n" + "".join(f"u{n},tea,2031-01-01\n" for n in range(3)))
    with pytest.raises(DataError, match="Did you mean 'user_id' and 'search_term'"):
        read_log(path)
    with pytest.raises(DataError, match="Did you mean 'search_term'"):
        read_log(path, columns={"user": "user_id", "query": "serch_term"})
