"""Tables of every kind give the same rows as files do, on DuckDB and on PostgreSQL."""

from __future__ import annotations

import uuid
from datetime import datetime

import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.log import read_log

ROWS = {
    "user": ["a", " b ", "", "c", None, "d", "e", "007"],
    "query": ["Weather  Leeds", "joe@example.com", "q", " \u3000", "z", "CAFE\u0301 1", "tel 020 7946 0958", "Acme x"],
    "time": ["2006-03-01 10:00:00", "5", None, "x", "5", "2006-03-01T12:00:00.5+02:00", None, "1141207200000"],
    "url": ["HTTP://u:p@A.Example:80/#x", None, "-", "", "x", "http://b.example/?sid=1", None, "http://a.example/B"],
    "rank": ["1", "x", None, "", "", "2", None, " 3 "],
}
TEN = 1141207200 * 10**6
EXPECTED = [
    ("007", "acme x", TEN, "http://a.example/B", 3),
    ("a", "weather leeds", TEN, "http://a.example", 1),
    ("d", "café 1", TEN + 500_000, None, 2),
]


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pl.DataFrame, pa.table, lambda rows: ibis.memtable(pa.table(rows))]
)
def test_any_table(make, rows_of):
    assert rows_of(read_log(make(ROWS))) == EXPECTED


def test_a_table_in_an_engine(rows_of):
    engine = ibis.duckdb.connect()
    table = engine.create_table("searches", pa.table(ROWS))
    log = read_log(table, drop=["weather"], exclude_users=["d"])
    assert rows_of(log) == EXPECTED[:1]
    assert log.describe_defects().in_short() == "no user: 2, no query: 1"
    assert rows_of(read_log(ROWS, engine=engine)) == EXPECTED


def test_postgresql(postgres_url, rows_of):
    engine = ibis.connect(postgres_url)
    name = f"searches_{uuid.uuid4().hex}"
    table = engine.create_table(name, pa.table(ROWS))
    try:
        log = read_log(table)
        assert rows_of(log) == EXPECTED
        assert any("NFC" in step for step in log.steps)
        assert log.describe_defects().in_short() == "no user: 2, no query: 1"
        assert rows_of(read_log(table, drop=["weather"], exclude_users=["d"], since="2006-01-01")) == EXPECTED[:1]
        assert rows_of(read_log(table, normalise=False, patterns=False))[2][:2] == ("b", "joe@example.com")
    finally:
        engine.drop_table(name)
        engine.disconnect()


def test_postgresql_reads_times_and_numbers_of_its_own(postgres_url, rows_of):
    engine = ibis.connect(postgres_url)
    name = f"searches_{uuid.uuid4().hex}"
    engine.raw_sql(
        f"CREATE TABLE {name} AS SELECT * FROM (VALUES "  # noqa: S608
        "(7, 'a', timestamptz '2006-03-01 12:00:00.25+02', 1.0), (8, 'b', timestamptz 'infinity', 'NaN')"
        ') AS t("user", query, time, rank)'
    ).close()
    try:
        log = read_log(engine.table(name))
        assert rows_of(log) == [("7", "a", TEN + 250_000, 1), ("8", "b", None, None)]
        assert log.describe_defects().in_short() == "unreadable time: 1"
    finally:
        engine.drop_table(name)
        engine.disconnect()


def test_text_files_are_not_for_other_engines(postgres_url, tmp_path):
    engine = ibis.connect(postgres_url)
    (tmp_path / "log.csv").write_text("user,query\n1,a\n")
    with pytest.raises(UsageError, match="line by line"):
        read_log(tmp_path / "log.csv", engine=engine)
    engine.disconnect()


def test_kinds_of_columns(rows_of):
    data = pd.DataFrame(
        {
            "who": pd.Categorical(["x", "y"]),
            "what": [1.5, 2.5],
            "time": [datetime(2006, 3, 1, 10), None],
            "rank": [1.0, None],
        }
    )
    log = read_log(data, columns={"user": "who", "query": "what"})
    assert rows_of(log) == [("x", "1.5", TEN, 1), ("y", "2.5", None, None)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"user": ["a"]}, "(?s)no column 'query'.*It has user"),
        ({"who": ["zebra"], "what": ["b"]}, "(?s)It has who, what.*--columns user=NAME,query=NAME"),
        ({"query": ["a"]}, "no column 'user'"),
        ({"user": ["a"], "query": [["zebra"]]}, "neither text nor numbers"),
        ({"user": [b"zebra"], "query": ["a"]}, "neither text nor numbers"),
        ({"user": ["a"], "query": ["b"], "time": [True]}, "neither a timestamp"),
        ({"user": ["a"], "query": ["b"], "time": [b"zebra"]}, "neither text nor numbers"),
        (7, "int"),
        (None, "NoneType"),
    ],
)
def test_tables_that_are_no_log(data, words):
    with pytest.raises(DataError, match=words) as caught:
        read_log(data)
    assert "zebra" not in str(caught.value)


def test_a_table_has_no_format():
    with pytest.raises(UsageError, match="no file format"):
        read_log({"user": ["a"], "query": ["b"]}, format="csv")
