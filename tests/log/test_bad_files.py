"""Files that are broken or not what they are said to be: each has a clear outcome, and no error shows a value."""

from __future__ import annotations

import gzip
import resource
from pathlib import Path

import pytest

from hushquery.errors import DataError
from hushquery.log import read_log
from hushquery.log.files import LONGEST_LINE

CANARY = "zebra-canary"
GOOD = "".join(f"u{n}\t97091610543{n}\tquery {n}\n" for n in range(5)).encode()
EXPECTED = [(f"u{n}", f"query {n}") for n in range(5)]
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\x08\x06\x00\x00\x00" + bytes(range(256))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", "aol", "is empty"),
        (b"\n \n\r\n", "csv", "is empty"),
        (gzip.compress(b"", mtime=0), "csv", "is empty"),
        (PNG, "aol", "looks like a PNG picture"),
        (PNG, "csv", "looks like a PNG picture"),
        (b"PK\x03\x04" + bytes(100) + b"\n", "jsonl", "looks like a zip archive"),
        (gzip.compress(b"PK\x03\x04\n\n", mtime=0), "tsv", "looks like a zip archive"),
        (b"PAR1" + bytes(100) + b"\n", "excite", "looks like a Parquet file"),
        (b"PAR1" + bytes(100), "parquet", "can't be read"),
        (GOOD, "parquet", "looks like excite"),
        (gzip.compress(GOOD, mtime=0), "parquet", "looks like excite"),
        (bytes(range(256)) * 3, "yandex", "looks like binary data"),
        ("a\n".encode("utf-16"), "csv", "looks like UTF-16 text.*--encoding utf-16"),
        (b"PK\x03\x04" + bytes(100) + b"\n", "csv", "zip archive.*xlsx"),
        (
            "user,query\n1,kaffee zürich\n2,zebra-canary ü\n".encode("cp1252"),
            "csv",
            "is not utf-8.*look.*cp1252",
        ),
        ("user\tquery\n1\t天气\n".encode("gb18030"), "tsv", "is not utf-8"),
        ("00:00:01\tu\t[天气]\t1 1\twww.example.org\n".encode("gb18030"), "sogou", "is not utf-8.*gb18030"),
        (GOOD, "aol", "looks like excite"),
        (GOOD, "csv", "looks like excite"),
        (b"u\tsome text\t2006-03-01 10:00:00\n" * 3, "excite", "looks like aol"),
        (b"1\tM\t3\t4\n1\t2\tC\t0\t5\n", "sogou", "looks like yandex"),
        (b"a,b,c,d,e\n" * 5, "aol", "looks like csv with 5 columns"),
        (b"a,b,c,d,e\n" * 5, "jsonl", "looks like csv with 5 columns"),
        (b'{"user": 1, "query": "a"}\n', "aol", "looks like jsonl"),
        (b"just some words\nand more\n", "aol", "None of its first lines"),
        (b'"words"\n', "jsonl", "None of its first lines"),
        (b"x" * 70_000, "aol", "None of its first lines"),
        (b"1,zebra-canary,3\n2,zebra-canary,4\n", "csv", "looks like a row.*--no-header --columns user=1"),
        (b"user\tzebra-canary\n1\ta\n", "tsv", "no column 'query'"),
        (b"user,query\nzebra-canary\nzebra-canary;b\n", "csv", "None of its first lines"),
        (b"user;query\nzebra-canary,1\n", "csv", "None of its first lines"),
        (b"1;zebra-canary\n2;zebra-canary\n", "csv", "first line of .* looks like a row.*--no-header"),
        (b"a;zebra-canary\nb;c\n", "csv", "no column 'user'.*first line must name its 2 columns"),
        (b"a;b;c;d\n" * 5, "aol", "looks like csv with 4 columns"),
        (b"user,query\n1,zebra-canary\n", "tsv", "looks like csv with 2 columns"),
        (b"user\tquery\n1\tzebra-canary\n", "csv", "looks like tsv with 2 columns"),
        (b"user,user,query\n1,2,3\n", "csv", "twice"),
        (b"\x1f\x8b\x08\x00garbage-zebra-canary", "csv", "damaged"),
    ],
)
def test_a_file_that_is_not_of_the_format_is_refused(tmp_path, data, kind, words):
    with pytest.raises(DataError, match=f"(?s){words}") as caught:
        read_log(write(tmp_path / "log.bin", data), format=kind)
    assert CANARY not in str(caught.value)
    assert caught.value.fix


def test_times_that_nobody_can_read_are_refused_before_they_mean_nothing(tmp_path, rows_of):
    """A spreadsheet writes 3/10/2026; read line by line that would be a log without times, and nobody would notice."""
    rows = [f"u{n};3/10/2026 10:0{n % 10};{CANARY}" for n in range(10)]
    path = write(tmp_path / "log.csv", "\r\n".join(["user;time;query", *rows]).encode())
    with pytest.raises(DataError, match=r"(?s)times in .* can't be read.*2026-10-03.*--columns time=") as caught:
        read_log(path)
    assert CANARY not in str(caught.value)
    assert len(rows_of(read_log(path, columns={"time": None}))) == 10
    # One person's row must not decide it: a single good time, or few rows, and the log is read as ever.
    one_good = write(path, "\r\n".join(["user;time;query", *rows, "u;2026-10-03;q"]).encode())
    assert len(rows_of(read_log(one_good))) == 11
    few = write(path, "\r\n".join(["user;time;query", *rows[:9]]).encode())
    assert "unreadable time: 9" in read_log(few).describe_defects().in_short().split(", ")
    empty = write(path, "\n".join(["user;time;query", *(f"u{n};;q" for n in range(20))]).encode())
    assert len(rows_of(read_log(empty))) == 20


def test_places_that_are_no_file(tmp_path):
    with pytest.raises(DataError, match="has no files"):
        read_log(tmp_path)
    with pytest.raises(DataError, match="there is no file"):
        read_log(tmp_path / "missing.csv")
    with pytest.raises(DataError, match="no file matches"):
        read_log(str(tmp_path / "*.csv"))
    with pytest.raises(DataError, match="not a regular file"):
        read_log("/dev/null", format="aol")
    with pytest.raises(ValueError, match="null byte"):
        read_log("a\0b.csv")


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = write(tmp_path / "log.csv", b"user,query\n1,a\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="can't be opened"):
        read_log(path)


@pytest.mark.parametrize("line", [b"\xff\xfe bad\t970916105432\tx", b"u\t970916105432\t\xc3\n", b"\xe4\xb8"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_bad_utf_8_in_the_middle(tmp_path, rows_of, line, end):
    lines = GOOD.splitlines()
    data = end.join([*lines[:2], line.strip(), *lines[2:]])
    log = read_log(write(tmp_path / "log", data), format="excite")
    assert [row[:2] for row in rows_of(log)] == EXPECTED
    assert [(d.kind, d.count, [n for _, n in d.lines]) for d in log.describe_defects().kinds] == [
        ("bad encoding", 1, [3])
    ]


def test_null_bytes_byte_order_mark_and_blank_lines(tmp_path, rows_of):
    data = b"\xef\xbb\xbf" + GOOD.replace(b"query 3", b"que\0ry 3").replace(b"\n", b"\n\n\r\n")
    log = read_log(write(tmp_path / "log", data), format="excite")
    assert [row[:2] for row in rows_of(log)] == [*EXPECTED[:3], ("u3", "que ry 3"), EXPECTED[4]]
    assert not log.describe_defects()


def test_too_few_and_too_many_columns(tmp_path, rows_of):
    data = b"lonely\n" + GOOD + b"a\tb\n" + b"a\t970916105430\tc\td\n" + b"a\t970916105430\tc\td\te\tf\n"
    log = read_log(write(tmp_path / "log", data), format="excite")
    assert [row[:2] for row in rows_of(log)] == EXPECTED
    found = {defect.kind: [line for _, line in defect.lines] for defect in log.describe_defects().kinds}
    assert found == {"too few columns": [1, 7], "too many columns": [8, 9]}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("size", [LONGEST_LINE + 2, 50_000_000])
def test_a_very_long_line_costs_itself_only(tmp_path, rows_of, size, compressed):
    data = GOOD + b"x" * size + b"\n" + GOOD.replace(b"u", b"v", 100)
    log = read_log(write(tmp_path / "log", gzip.compress(data, 1, mtime=0) if compressed else data), format="excite")
    assert len(rows_of(log)) == 10
    found = log.describe_defects().kinds
    assert [(defect.kind, defect.count, defect.lines[0][1]) for defect in found] == [("line too long", 1, 6)]


def test_a_huge_line_takes_little_memory(tmp_path, rows_of):
    with (tmp_path / "log").open("wb") as file:
        file.write(GOOD)
        file.seek(2**28, 1)  # a hole: null bytes that take no room on the disk
        file.write(b"\n" + GOOD)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log = read_log(tmp_path / "log", format="excite")
    assert len(rows_of(log)) == 10
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 200 * 1024


def test_a_file_without_lines_is_refused(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        file.truncate(2**25)
        file.write(b"x")
    with pytest.raises(DataError, match="no line end"):
        read_log(tmp_path / "log", format="excite")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("size", [70_000, LONGEST_LINE + 2])
def test_a_first_line_that_is_too_long_refuses_nothing(tmp_path, rows_of, size, compressed):
    data = b"x" * size + b"\n" + GOOD
    log = read_log(write(tmp_path / "log", gzip.compress(data, 1, mtime=0) if compressed else data), format="excite")
    assert len(rows_of(log)) == 5


def test_no_line_end_at_the_end(tmp_path, rows_of):
    log = read_log(write(tmp_path / "log", GOOD.rstrip()), format="excite")
    assert [row[:2] for row in rows_of(log)] == EXPECTED


def test_a_header_and_no_rows(tmp_path, rows_of):
    log = read_log(write(tmp_path / "log.csv", b"user,query,time"))
    assert rows_of(log) == []
    assert not log.describe_defects()


def test_a_truncated_archive_is_told_before_anything_is_spent(tmp_path):
    many = b"".join(b"user%d\t970916105432\tquery %d\n" % (n, n * n) for n in range(100_000))
    log = read_log(write(tmp_path / "log", gzip.compress(many, mtime=0)[:-30_000]), format="excite")
    with pytest.raises(DataError, match="damaged"):
        log.check_files()
    assert "damaged file: 1" in log.describe_defects().in_short().split(", ")
    with pytest.raises(DataError, match="damaged file: 1"):
        log.refuse_defects()


def test_whole_archives_pass_the_check(tmp_path):
    data = gzip.compress(GOOD * 100_000, mtime=0) + gzip.compress(GOOD, mtime=0)
    read_log(write(tmp_path / "log", data), format="excite").check_files()
    read_log(write(tmp_path / "plain", GOOD), format="excite").check_files()
    broken = write(tmp_path / "broken", data + b"garbage")
    with pytest.raises(DataError, match="damaged"):
        read_log(broken, format="excite").check_files()


def test_one_damaged_archive_among_many_is_told(tmp_path):
    good = gzip.compress(GOOD * 1000, mtime=0)
    for number in range(5):
        write(tmp_path / f"{number}.gz", good[:-9] if number == 3 else good)
    log = read_log(str(tmp_path / "*.gz"), format="excite")
    with pytest.raises(DataError, match=r"3\.gz is damaged"):
        log.check_files()
    (tmp_path / "3.gz").unlink()
    read_log(str(tmp_path / "*.gz"), format="excite").check_files()
