"""No value of one person decides whether there is a result on PostgreSQL and on Spark either."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.core.budget import Unit
from hushquery.engine import connect, execute
from hushquery.log import read_log
from hushquery.statistics.queries import ClampedTotal, CountUnits

TEXTS = [
    *("294247-01-10 04:00:54.775806", "infinity", "1e400", "nan", "9" * 400, "9223372036854775807", "-1e308"),
    *("2006-13-45", "0001-00-00", "2006-03-01 10:00:00+99:99", "5881580-07-11", "\u2028\x0b\x85", "x" * 10_000, ""),
]
#: Of each type in PostgreSQL: a good value and poison.
POSTGRES = {
    "text": ("'1141207200'", [f"'{text}'" for text in TEXTS]),
    "double precision": ("1141207200", ["'NaN'", "'Infinity'", "'-Infinity'", "1e308", "-1e308", "4.9e-324"]),
    "numeric": ("1141207200", ["'NaN'", "'Infinity'", "'-Infinity'", "1e400", "-1e400", "1e-300", "123456789e12"]),
    "bigint": ("1141207200", ["9223372036854775807", "-9223372036854775808"]),
    "timestamptz": ("'2006-03-01 10:00:00Z'", ["'infinity'", "'-infinity'", "'294276-12-31'", "'4713-01-01 BC'"]),
    "timestamp": ("'2006-03-01 10:00:00'", ["'infinity'", "'-infinity'", "'294276-12-31'", "'4713-01-01 BC'"]),
    "date": ("'2006-03-01'", ["'infinity'", "'-infinity'", "'5874897-12-31'", "'4713-01-01 BC'"]),
}


def asked(table, question):
    rows = table.filter(table.user.notnull())
    return question.read(execute(question.ask(rows, Unit("user", "add-remove"))))


@pytest.mark.parametrize("kind", POSTGRES)
def test_postgresql(postgres_url, kind):
    good, poison = POSTGRES[kind]
    engine, name = connect(postgres_url), f"poison_{uuid.uuid4().hex}"
    values = [good, *poison, good]
    with engine.begin() as cursor:
        cursor.execute(f'CREATE TABLE {name} ("user" text, query text, "time" {kind}, "rank" {kind})')
        for number, value in enumerate(values):
            cursor.execute(f"INSERT INTO {name} VALUES ('u{number}', 'tea', {value}, {value})")  # noqa: S608
    try:
        ranked = kind in ("text", "double precision", "numeric", "bigint")
        log = read_log(name, engine=engine, columns={} if ranked else {"rank": None})
        rows = {row["user"]: row for row in execute(log.table).to_pylist()}
        assert len(rows) == len(values)
        assert rows["u0"]["time"] == rows[f"u{len(values) - 1}"]["time"] is not None
        log.describe_defects()
        if kind in ("double precision", "numeric", "bigint"):
            (total,) = asked(engine.table(name), ClampedTotal("rank", 0, 1))
            assert 2 <= total <= len(values)
        assert asked(engine.table(name), CountUnits()) == [len(values)]
    finally:
        engine.drop_table(name)
        engine.disconnect()


FAR = [2**62, -(2**62), 2**63 - 1, 1 - 2**63, 9223372036854776, -1]
SPARK = {
    "text": (pa.string(), "1141207200", TEXTS),
    "float": (pa.float64(), 1141207200.0, [float("nan"), float("inf"), -1e308, 1e308]),
    "int": (pa.int64(), 1141207200, [2**63 - 1, -(2**63)]),
    "decimal": (pa.decimal128(38, 0), Decimal(1141207200), [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    "us": (pa.timestamp("us", "UTC"), 1141207200 * 10**6, FAR),
    "date": (pa.date32(), 13208, [2**31 - 1, -(2**31)]),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.xdist_group("spark")) for kind in SPARK])
def test_spark(spark, tmp_path, kind):
    type_, good, poison = SPARK[kind]
    values = [good, *poison, good]
    if pa.types.is_temporal(type_):
        column = pa.array(values, pa.int32() if pa.types.is_date(type_) else pa.int64()).view(type_)
    else:
        column = pa.array(values, type_)
    columns = {"user": [f"u{n}" for n in range(len(values))], "query": ["tea"] * len(values), "time": column}
    if not pa.types.is_temporal(type_):
        columns["rank"] = column
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet", engine=spark)
    rows = {row["user"]: row for row in execute(log.table).to_pylist()}
    assert len(rows) == len(values)
    assert rows["u0"]["time"] == rows[f"u{len(values) - 1}"]["time"] is not None
    log.describe_defects()
