"""Every format, with lines as the real logs have them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.log import read_log

SECOND = 10**6
AOL = (
    "AnonID\tQuery\tQueryTime\tItemRank\tClickURL\n"
    "142\trentdirect.com\t2006-03-01 07:17:12\t\t\n"
    "142\twww.prescriptionfortime.com\t2006-03-12 12:31:06\t\t\n"
    "0217\tlottery\t2006-03-01 11:58:51\t1\thttp://www.calottery.example\n"
    "0217\tlottery\t2006-03-01 11:58:51\t2\thttp://www.Lottery.example/\n"
    "1268\tOsage  County\t2006-03-27 14:18:04\n"
)
MARCH_FIRST = 1141171200 * SECOND


def clock(hours: int, minutes: int, seconds: int) -> int:
    return (hours * 3600 + minutes * 60 + seconds) * SECOND


def write(path: Path, text: str | bytes) -> Path:
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["user-ct-collection-01.txt", "user-ct-collection-01.txt.gz"])
def test_aol(tmp_path, rows_of, name):
    log = read_log(write(tmp_path / name, AOL), format="aol")
    assert log.table.columns == ("user", "query", "time", "url", "rank")
    assert log.has_time
    assert log.has_url
    lottery = ("0217", "lottery", MARCH_FIRST + clock(11, 58, 51))
    assert rows_of(log) == [
        (*lottery, "http://www.calottery.example", 1),
        (*lottery, "http://www.lottery.example", 2),
        ("1268", "osage county", MARCH_FIRST + 26 * clock(24, 0, 0) + clock(14, 18, 4), None, None),
        ("142", "rentdirect.com", MARCH_FIRST + clock(7, 17, 12), None, None),
        ("142", "www.prescriptionfortime.com", MARCH_FIRST + 11 * clock(24, 0, 0) + clock(12, 31, 6), None, None),
    ]


def test_aol_without_its_header_has_the_same_rows(tmp_path, rows_of):
    bare = "".join(AOL.splitlines(keepends=True)[1:])
    with_header = read_log(write(tmp_path / "a.txt", AOL), format="aol")
    without = read_log(write(tmp_path / "b.txt", bare), format="aol")
    assert rows_of(with_header) == rows_of(without) != []


def test_sogou_in_its_own_encoding(tmp_path, rows_of):
    text = (
        "00:00:00\t2982199073774412\t[360安全卫士]\t8 3\tdownload.it.example/softweb/\n"
        "23:59:59\t07594220010824798\t[哄抢救灾物资]\t1 1\tnews.example/article/1.htm\n"
        "20111230000005\t57375476989eea12893c0c3811607bcf\t奇艺高清\t1\t1\thttp://www.qiyi.example/\n"
    )
    log = read_log(write(tmp_path / "SogouQ.sample", text.encode("gb18030")), format="sogou", encoding="gb18030")
    assert rows_of(log) == [
        ("07594220010824798", "哄抢救灾物资", clock(23, 59, 59), "news.example/article/1.htm", 1),
        ("2982199073774412", "360安全卫士", 0, "download.it.example/softweb/", 8),
        ("57375476989eea12893c0c3811607bcf", "奇艺高清", 1325203205 * SECOND, "http://www.qiyi.example", 1),
    ]


def test_sogou_lines_that_are_not_of_the_encoding_are_left_out_alone(tmp_path, rows_of):
    good = "00:00:0{}\tu{}\t[天气]\t1 1\tnews.example/a\n"
    data = (
        good.format(1, 1).encode("gb18030")
        + b"00:00:02\tu2\t[\xff\xff]\t1 1\tx\n"
        + good.format(3, 3).encode("gb18030")
    )
    log = read_log(write(tmp_path / "s.gz", data), format="sogou", encoding="GB18030")
    assert [row[:2] for row in rows_of(log)] == [("u1", "天气"), ("u3", "天气")]
    assert "bad encoding: 1" in log.describe_defects().in_short().split(", ")
    assert log.describe_defects().kinds[0].lines == ((str(tmp_path / "s.gz"), 2),)


def test_of_a_file_in_another_encoding_no_copy_is_made(tmp_path, monkeypatch, rows_of):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = read_log(write(tmp_path / "s.txt", "00:00:00\tu\t[a]\t1 1\tb\n"), format="sogou", encoding="gbk")
    assert len(rows_of(log)) == 1
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["s.txt"]


def test_yandex(tmp_path, rows_of):
    shown = "\t".join(f"{7 + place},{400 + place}" for place in range(10))
    text = (
        "34573630\tM\t5\t0123\n"
        f"34573630\t0\tQ\t0\t10509813\t1237206,3458783\t{shown}\n"
        "34573630\t6\tC\t0\t9\n"
        "34573630\t9\tC\t0\t7\n"
        "34573630\t12\tC\t1\t9\n"
        f"34573630\t20\tT\t2\t10509814\t55\t{shown}\n"
        "34573631\tM\t6\t77\n"
        f"34573631\t3\tQ\t0\t1\t55\t{shown}\n"
        f"99\t3\tQ\t0\t1\t55\t{shown}\n"
    )
    day = clock(24, 0, 0)
    assert rows_of(read_log(write(tmp_path / "train.gz", text), format="yandex")) == [
        ("0123", "1237206 3458783", 5 * day, "7", 1),
        ("0123", "1237206 3458783", 5 * day, "9", 3),
        ("0123", "55", 5 * day + 20 * SECOND, None, None),
        ("77", "55", 6 * day + 3 * SECOND, None, None),
    ]


def test_yandex_a_user_who_claims_a_session_takes_nothing_from_another(tmp_path, rows_of):
    text = "1\tM\t5\talice\n1\t0\tQ\t0\t7\t11,12\t1,2\n"
    alone = rows_of(read_log(write(tmp_path / "a", text), format="yandex"))
    both = rows_of(read_log(write(tmp_path / "b", text + "1\tM\t5\tmallory\n"), format="yandex"))
    assert [row for row in both if row[0] == "alice"] == alone != []


def test_excite(tmp_path, rows_of):
    text = "2A9EABFB35F5B954\t970916105432\t+md foods +proteins\n0000000000000001\t970916001949\tYahoo Chat\n"
    log = read_log(write(tmp_path / "excite.log", text), format="excite")
    assert not log.has_url
    assert rows_of(log) == [
        ("0000000000000001", "yahoo chat", (874368000 + 19 * 60 + 49) * SECOND),
        ("2A9EABFB35F5B954", "+md foods +proteins", 874368000 * SECOND + clock(10, 54, 32)),
    ]


CSV = 'user,extra,query,time\r\n01,"a,b","say ""hi"", you",3\r\n02,5" disk,plain,4\r\n"03",,"quoted",\r\n'


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "LOG.CSV"])
def test_csv(tmp_path, rows_of, name):
    log = read_log(str(write(tmp_path / name, CSV)))
    assert rows_of(log) == [
        ("01", 'say "hi", you', 3 * SECOND),
        ("02", "plain", 4 * SECOND),
        ("03", "quoted", None),
    ]


def test_csv_with_semicolons_as_a_spreadsheet_writes_it(tmp_path, rows_of):
    text = CSV.replace(",", ";").replace('"a;b"', '"a;b,c"').replace("say", "say, well,")
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    log = read_log(path)
    assert rows_of(log) == [
        ("01", 'say, well, "hi"; you', 3 * SECOND),
        ("02", "plain", 4 * SECOND),
        ("03", "quoted", None),
    ]
    assert not log.describe_defects()
    assert log.steps[0].startswith("read as csv: semicolon separated with a header line")
    assert read_log(write(tmp_path / "b.csv", CSV)).steps[0].startswith("read as csv: comma separated with a header")
    # The header decides, never a row: behind a header with commas a semicolon is a character like any other.
    commas = read_log(write(tmp_path / "c.csv", "user,query\n1,a;b\n2;3,c\n"))
    assert rows_of(commas) == [("1", "a;b"), ("2;3", "c")]


@pytest.mark.parametrize("header", ["User;QUERY", "USER ; Query", '"User";"Query"'])
def test_capitals_of_column_names_do_not_matter(tmp_path, rows_of, header):
    assert rows_of(read_log(write(tmp_path / "log.csv", f"{header}\n1;a\n"))) == [("1", "a")]
    both = write(tmp_path / "both.csv", "User,user,query\n1,2,a\n")
    assert rows_of(read_log(both)) == [("2", "a")]
    with pytest.raises(DataError, match="no column 'user'"):
        read_log(write(tmp_path / "neither.csv", "User,USER,query\n1,2,a\n"))


def test_csv_an_unclosed_quote_costs_its_own_line_only(tmp_path, rows_of):
    text = 'user,query\n1,"open\n2,two\n3,"three"\n4,"x"y\n5,five"\n'
    log = read_log(write(tmp_path / "log.csv", text))
    assert rows_of(log) == [("2", "two"), ("3", "three"), ("5", 'five"')]
    assert "unclosed quote: 2" in log.describe_defects().in_short().split(", ")


def test_tsv_has_no_quotes(tmp_path, rows_of):
    log = read_log(write(tmp_path / "log.tsv", 'query\tuser\n"a\t1\nb"\t2\n'))
    assert rows_of(log) == [("1", '"a'), ("2", 'b"')]


def test_a_header_may_come_again(tmp_path, rows_of):
    log = read_log(write(tmp_path / "log.csv", "user,query\n1,a\nuser,query\n2,b\n"))
    assert rows_of(log) == [("1", "a"), ("2", "b")]


def test_other_names_for_columns(tmp_path, rows_of):
    path = write(tmp_path / "log.tsv", "AnonID\tQ\twhen\turl\n1\ta\t5\thttp://a.example\n")
    log = read_log(path, columns={"user": "AnonID", "query": "Q", "time": "when", "url": None})
    assert rows_of(log) == [("1", "a", 5 * SECOND)]


def test_jsonl(tmp_path, rows_of):
    text = (
        '{"user": 7, "query": "A\\tB", "time": "2006-03-01T00:00:00Z", "url": null, "rank": 3}\n'
        '{"query": "b", "user": "007", "other": {"query": "c"}}\n'
        "{}\n"
    )
    log = read_log(write(tmp_path / "log.jsonl.gz", text))
    assert rows_of(log) == [("007", "b", None, None, None), ("7", "a b", MARCH_FIRST, None, 3)]
    assert "no user: 1" in log.describe_defects().in_short().split(", ")


def test_jsonl_keys_with_slashes_and_columns_left_out(tmp_path, rows_of):
    path = write(tmp_path / "log.ndjson", '{"a/b~c": "u", "query": "q", "time": 1}\n')
    log = read_log(path, columns={"user": "a/b~c", "time": None, "url": "", "rank": None})
    assert log.table.columns == ("user", "query")
    assert rows_of(log) == [("u", "q")]


def test_parquet(tmp_path, rows_of):
    table = pa.table({"user": [1, 2], "query": ["A", None], "time": pa.array([1, 2], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "log.parquet")
    assert rows_of(read_log(tmp_path / "log.parquet")) == [(1, "a", 0)]  # whole numbers stay numbers


def test_many_files_by_pattern_and_by_list(tmp_path, rows_of):
    write(tmp_path / "a.csv", "user,query\n1,a\n")
    write(tmp_path / "b.csv.gz", "user,query\n2,b\n")
    write(tmp_path / "c[1].csv", "user,query\n3,c\n")
    assert rows_of(read_log(str(tmp_path / "*.csv*"))) == [("1", "a"), ("2", "b"), ("3", "c")]
    assert rows_of(read_log([tmp_path / "a.csv", str(tmp_path / "c[1].csv")])) == [("1", "a"), ("3", "c")]
    assert rows_of(read_log(tmp_path / "c[1].csv")) == [("3", "c")]


def test_a_compressed_file_needs_no_ending(tmp_path, rows_of):
    (tmp_path / "log.csv").write_bytes(gzip.compress(b"user,query\n1,a\n") + gzip.compress(b"2,b\n"))
    assert rows_of(read_log(tmp_path / "log.csv")) == [("1", "a"), ("2", "b")]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"format": "xls"}, UsageError, "not known"),
        ({"columns": {"usr": "x"}}, UsageError, "no column 'usr'"),
        ({"columns": {"user": None}}, UsageError, "needs the column"),
        ({"columns": {"time": "when"}}, DataError, "no column 'when' for time"),
        ({"encoding": "utf-32"}, UsageError, "line by line"),
        ({"encoding": "no-such"}, UsageError, "encoding"),
        ({"time_unit": "h"}, UsageError, "unit"),
        ({"since": "yesterday"}, DataError, "no times"),
    ],
)
def test_arguments_that_mean_nothing(tmp_path, arguments, error, words):
    path = write(tmp_path / "log.csv", "user,query\n1,a\n")
    with pytest.raises(error, match=words):
        read_log(path, **arguments)


def test_files_are_named_once_and_agree(tmp_path):
    one = write(tmp_path / "a.csv", "user,query\n1,a\n")
    other = write(tmp_path / "b.csv", "query,user\na,1\n")
    tabs = write(tmp_path / "c.tsv", "query\tuser\na\t1\n")
    with pytest.raises(UsageError, match="twice"):
        read_log([one, str(one)])
    with pytest.raises(UsageError, match="empty"):
        read_log([])
    with pytest.raises(DataError, match="differ in their header"):
        read_log([one, other])
    with pytest.raises(UsageError, match="ending"):
        read_log([one, tabs])


@pytest.mark.parametrize(
    ("kind", "good", "few", "many"),
    [
        (
            "aol",
            "1\tq\t2006-03-01 07:17:12\t1\tu",
            "1",
            "1\tq\t2006-03-01 07:17:12\t1\tu\tx",
        ),
        ("sogou", "00:00:00\t1\t[q]\t1 1\tu", "00:00:00\t1", "00:00:00\t1\t[q]\t1\t1\tu\tx"),
        ("excite", "1\t970916105432\tq", "1\t970916105432", "1\t970916105432\tq\tx"),
        ("csv", "user,query,more\n1,q,x", "2", "2,q,x,y"),
        ("tsv", "user\tquery\tmore\n1\tq\tx", "2", "2\tq\tx\ty"),
        ("yandex", "1\tM\t5\t1\n1\t0\tQ\t0\t7\tq\t1,2", "1\t0\tQ\t0\t7", "1\tM\t5\t2\t3"),
    ],
)
def test_lines_with_cells_too_few_or_too_many_are_no_rows(tmp_path, rows_of, kind, good, few, many):
    log = read_log(write(tmp_path / "log", f"{good}\n{few}\n{many}\n"), format=kind)
    assert [row[:2] for row in rows_of(log)] == [("1", "q")]
    assert log.describe_defects().in_short() == "too few columns: 1, too many columns: 1"


def test_yandex_a_user_without_a_readable_query_is_a_user(tmp_path, rows_of):
    text = "1\tM\t5\tann\n1\t0\tQ\t0\t7\tq\t1,2\n2\tM\t5\tbob\n2\t0\tQ\t0\n"
    log = read_log(write(tmp_path / "log", text), format="yandex")
    assert [row[0] for row in rows_of(log)] == ["ann"]
    assert sorted(log.rows.user.to_pyarrow().to_pylist()) == ["ann", "bob"]


def test_yandex_a_line_written_twice_doubles_nothing(tmp_path, rows_of):
    session = "1\tM\t5\talice\n"
    log = read_log(write(tmp_path / "log", f"{session}{session}1\t0\tQ\t0\t7\tq\t1,2\n"), format="yandex")
    assert len(rows_of(log)) == 1


@pytest.mark.parametrize("key", ["{id}", "{", "}}", "{lines}"])
def test_jsonl_keys_with_braces(tmp_path, rows_of, key):
    path = write(tmp_path / "log.jsonl", json.dumps({key: "a", "query": "x"}) + "\n")
    left_out = {"time": None, "url": None, "rank": None}
    assert rows_of(read_log(path, columns={"user": key, **left_out})) == [("a", "x")]


def parquet_files(folder: Path, column: str, *values: pa.Array) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(len(values))]
    for path, cells in zip(paths, values, strict=True):
        rows = {"user": pa.array(["a"]), "query": pa.array(["x"]), "url": pa.array(["https://example.org/"])}
        pq.write_table(pa.table({**rows, column: cells}), path)
    return paths


@pytest.mark.parametrize("column", ["user", "query", "url"])
@pytest.mark.parametrize(
    "others", [pa.array([7.4]), pa.array(["007"]), pa.array([7], pa.int8()), pa.array([b"7"]), pa.array([["7"]])]
)
def test_parquet_files_that_differ_in_a_type_are_refused(tmp_path, column, others):
    # DuckDB would read all as the first one: 7.4 and 007 would be the user 7, and what does not fit would end the run.
    paths = parquet_files(tmp_path, column, pa.array([7], pa.int64()), others)
    for order in (paths, paths[::-1]):
        with pytest.raises(DataError, match=f"differ in the type of the column for {column}|neither text nor numbers"):
            read_log(order)


def test_a_parquet_file_without_a_value_comes_behind_others_only(tmp_path):
    paths = parquet_files(tmp_path, "url", pa.array(["https://example.org/"]), pa.array([None], pa.null()))
    assert sorted(read_log(paths).table.url.to_list(), key=str) == [None, "https://example.org"]
    with pytest.raises(DataError, match="differ in the type of the column for url"):
        read_log(paths[::-1])


def test_parquet_files_may_hold_text_in_several_ways(tmp_path, rows_of):
    texts = [pa.array(["a"], kind) for kind in (pa.string(), pa.large_string())]
    paths = parquet_files(tmp_path, "user", *texts, pa.array(["a"]).dictionary_encode())
    assert [row[0] for row in rows_of(read_log(paths))] == ["a"] * 3
