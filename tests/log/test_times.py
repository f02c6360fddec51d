"""Times of every kind, and that nothing unreadable costs a row."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import ibis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.log import read_log
from hushquery.log.normalise import micros
from hushquery.log.time_format import TimeOptions, instant

ENGINE = ibis.duckdb.connect()
TEN = 1141207200  # 2006-03-01 10:00:00 UTC
TEXTS = [
    ("2006-03-01 10:00:00", TEN),
    ("2006-03-01T10:00:00", TEN),
    ("2006-03-01T10:00", TEN),
    ("2006-03-01", TEN - 36000),
    ("2006-03-01T10:00:00Z", TEN),
    ("2006-03-01T10:00Z", TEN),
    ("2006-03-01 12:00:00+02:00", TEN),
    ("2006-03-01 12:00:00 +0200", TEN),
    ("2006-03-01 12:00:00+02", TEN),
    ("2006-03-01T12:00+02:00", TEN),
    ("2006-03-01T12:00+02", TEN),
    ("2006-03-01T04:30:00-05:30", TEN),
    ("2006-03-01T10:00:00.5", TEN + 0.5),
    ("2006-03-01T10:00:00.000001Z", TEN + 1e-6),
    ("2006-03-01T12:00:00.250+02:00", TEN + 0.25),
    (" 2006-03-01 10:00:00 ", TEN),
    ("1141207200", TEN),
    ("1141207200.25", TEN + 0.25),
    ("1141207200000", TEN),
    ("-5", -5),
    ("0", 0),
    ("99999999999", 99999999999),
    ("100000000000", 100000000),
    ("2004-02-29", 1078012800),
    ("1969-12-31T23:59:59", -1),
    ("2006-02-31", None),
    ("2005-02-29", None),
    ("2006-13-01", None),
    ("2006-03-01 24:30:00", None),
    ("2006-03-01 10:60:00", None),
    ("yesterday", None),
    ("inf", None),
    ("-Infinity", None),
    ("nan", None),
    ("1e300", None),
    ("999999999999999999", None),
    ("9" * 40, None),
    ("200000-01-01 00:00", None),
    ("", None),
    ("-", None),
    (None, None),
]


def read(values, kind="string", unit=None, dialect="duckdb"):
    table = ibis.memtable(pa.table({"t": pa.array(values, kind)}))
    out = table.select(out=micros(table.t, dialect, TimeOptions(unit)))
    return ENGINE.to_pyarrow(out).column("out").to_pylist()


def whole(seconds):
    return None if seconds is None else round(seconds * 10**6)


@pytest.mark.parametrize("dialect", ["duckdb", "an engine without casts that forgive"])
def test_text(dialect):
    expected = [whole(seconds) for _, seconds in TEXTS]
    found = read([text for text, _ in TEXTS], dialect=dialect)
    assert dict(zip([text for text, _ in TEXTS], found, strict=True)) == dict(
        zip([text for text, _ in TEXTS], expected, strict=True)
    )


def test_the_machine_s_zone_does_not_matter():
    ENGINE.raw_sql("SET TimeZone = 'America/New_York'")
    try:
        assert read([text for text, _ in TEXTS]) == [whole(seconds) for _, seconds in TEXTS]
        moment = datetime(2006, 3, 1, 10, tzinfo=UTC)
        assert read([moment], pa.timestamp("us", "Asia/Tokyo")) == [TEN * 10**6]
        assert read([moment.replace(tzinfo=None)], pa.timestamp("us")) == [TEN * 10**6]
    finally:
        ENGINE.raw_sql("RESET TimeZone")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps(unit):
    moment = datetime(2006, 3, 1, 10, 0, 0)
    assert read([moment, None], pa.timestamp(unit)) == [TEN * 10**6, None]


def test_dates_and_numbers():
    assert read([date(2006, 3, 1)], pa.date32()) == [(TEN - 36000) * 10**6]
    assert read([-(2**31), 2**31 - 1, 2932896], pa.date32()) == [None, None, 253402214400 * 10**6]  # 9999-12-31
    assert read([TEN, TEN * 1000, -1, None], pa.int64()) == [TEN * 10**6, TEN * 10**6, -(10**6), None]
    assert read([1.5, float("inf"), float("nan"), 1e300], pa.float64()) == [1500000, None, None, None]
    assert read([2**63 - 1, -(2**63)], pa.int64()) == [None, None]
    assert read([5], pa.int64(), "ms") == [5000]
    assert read([10**11], pa.int64(), "s") == [10**17]
    assert read(["5"], unit="ms") == [5000]
    with pytest.raises(DataError, match="neither a timestamp"):
        read([True], pa.bool_())


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(max_examples=25, deadline=None)
def test_the_gap_of_two_times_always_fits(numbers):
    found = [value for value in read(numbers, pa.int64()) if value is not None]
    assert all(abs(value) <= 2**62 for value in found)


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


@given(st.lists(st.tuples(MOMENTS, st.integers(-14 * 60, 14 * 60)), min_size=1, max_size=10))
@settings(max_examples=10, deadline=None)
def test_what_python_writes_is_read(moments):
    aware = [moment.replace(tzinfo=timezone(timedelta(minutes=minutes))) for moment, minutes in moments]
    gaps = [moment - datetime(1970, 1, 1, tzinfo=UTC) for moment in aware]
    expected = [gap // timedelta(microseconds=1) for gap in gaps]
    texts = [moment.isoformat() for moment in aware]
    assert read(texts) == expected
    assert read(texts, dialect="another") == expected
    assert [instant(text, "since") for text in texts] == expected


def test_rows_keep_their_place_when_their_time_is_unreadable(rows_of):
    log = read_log({"user": ["a", "b"], "query": ["x", "y"], "time": ["soon", "5"]})
    assert rows_of(log) == [("a", "x", None), ("b", "y", 5 * 10**6)]
    assert "unreadable time: 1" in log.describe_defects().in_short().split(", ")


def test_since_and_until(rows_of):
    data = {"user": list("abcd"), "query": list("wxyz"), "time": ["2006-03-01", "2006-03-02", "2006-03-03", None]}
    chosen = [
        {"since": "2006-03-02", "until": "2006-03-03"},
        {"since": date(2006, 3, 2), "until": datetime(2006, 3, 3)},
        {"since": datetime(2006, 3, 2, 1, tzinfo=timezone(timedelta(hours=1))), "until": 1141344000},
        {"since": "1141257600", "until": 1141344000000},
    ]
    for arguments in chosen:
        log = read_log(data, **arguments)
        assert [row[0] for row in rows_of(log)] == ["b"]
        assert sorted(log.rows.user.to_pyarrow().to_pylist()) == list("abcd"), "nobody vanishes for the times"
        assert any("range of times" in step for step in log.steps)
        assert not any("2006" in step for step in log.steps)
    assert [row[0] for row in rows_of(read_log(data, until="2006-03-02"))] == ["a"]


@pytest.mark.parametrize("value", ["soon", "", float("nan"), float("inf"), 1e300, "2006-13-01", [], "9" * 30])
def test_since_that_is_no_time(value):
    with pytest.raises(UsageError, match="since"):
        read_log({"user": ["a"], "query": ["b"], "time": [1]}, since=value)
