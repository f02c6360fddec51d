"""Times in a form that the steward names: what Python's strptime reads is read, by every engine's rules alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import ibis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.log import read_log
from hushquery.log.normalise import micros
from hushquery.log.time_format import EXAMPLES, TimeFormat, TimeOptions

ENGINE = ibis.duckdb.connect()
#: Texts that each form reads, and such as look like it and are none.
FORMS = {
    "%d.%m.%Y %H:%M": (
        ["26.09.2026 12:20", " 1.9.2026 1:05 ", "29.2.2024 23:59", "31.12.9999 00:00", "1.1.1000 0:00"],
        ["26.13.2026 12:20", "29.2.2026 1:00", "31.4.2026 1:00", "0.1.2026 1:00", "1.1.2026 24:00", "1.1.2026 1:60"],
    ),
    "%m/%d/%Y %I:%M %p": (
        ["9/26/2026 1:05 PM", "09/26/2026 12:00 am", "1/1/2026 12:59 pm", "1/1/2026 01:00 Am"],
        ["26/9/2026 1:05 PM", "9/26/2026 13:05 PM", "9/26/2026 0:05 AM", "9/26/2026 1:05", "9/26/2026 1:05 XM"],
    ),
    "%d-%b-%y": (["26-Sep-26", "1-JAN-69", "01-dec-68"], ["26-Sept-26", "30-Feb-26", "26-Sep-2026", "26-09-26"]),
    "%d/%b/%Y:%H:%M:%S %z": (
        ["26/Sep/2026:12:20:01 +0200", "1/Jan/2026:00:00:00 -05:30"],
        ["26/Sep/2026:12:20:01", "26/Sep/2026:12:20:60 +0200", "26/Sep/2026:12:20:01 +9900"],
    ),
    "%B %d, %Y (%H:%M:%S.%f)": (
        ["September 26, 2026 (12:20:01.5)", "may 1, 2026 (00:00:00.000001)"],
        ["Sep 26, 2026 (12:20:01.5)", "September 26, 2026 (12:20:01)", "September 26, 2026 [12:20:01.5)"],
    ),
    "%Y%m%d%H%M%S": (["20260926122001"], ["2026926122001", "20260926", "202609261220010"]),
    "%Y年%m月%d日": (["2026年9月26日"], ["2026年9月", "2026-09-26"]),
}
NEVER = ["", "-", "soon", "5", None, "2026-10-03 14:05:00", "26.09.2026 12:20\n26.09.2026 12:20", "26x09x2026 12x20"]


def read(texts, form, dialect="duckdb"):
    table = ibis.memtable(pa.table({"t": pa.array(texts, "string")}))
    out = table.select(out=micros(table.t, dialect, TimeOptions(form=TimeFormat(form))))
    return ENGINE.to_pyarrow(out).column("out").to_pylist()


def by_python(text, form):
    moment = datetime.strptime(text.strip(), form)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize("dialect", ["duckdb", "an engine without casts that forgive"])
@pytest.mark.parametrize("form", FORMS)
def test_text_of_a_form(form, dialect):
    good, bad = FORMS[form]
    assert read(good, form, dialect) == [by_python(text, form) for text in good]
    assert dict(zip([*bad, *NEVER], read([*bad, *NEVER], form, dialect), strict=True)) == dict.fromkeys([*bad, *NEVER])


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


@given(MOMENTS, st.integers(-14 * 60, 14 * 60))
@settings(max_examples=20, deadline=None)
def test_what_python_writes_is_read(moment, minutes):
    form = "%d/%m/%Y %I:%M:%S.%f %p %z"
    text = moment.replace(tzinfo=timezone(timedelta(minutes=minutes))).strftime(form)
    assert read([text], form) == read([text], form, "another") == [by_python(text, form)]


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("", "short text"),
        ("%d.%m.%Y" * 20, "short text"),
        (5, "short text"),
        ("DD.MM.YYYY", "one year"),
        ("%d.%Y", "one month"),
        ("%m.%Y", "one day"),
        ("%d.%m.%b.%Y", "one month"),
        ("%d.%d.%m.%Y", "twice"),
        ("%d.%m.%Y %", "without a letter"),
        ("%d.%m.%Y %%", "without a letter"),
        ("%d.%m.%Y %Q", "%Q is not known"),
        ("%d.%m.%Y %I:%M", "together with %p"),
        ("%d.%m.%Y %H:%M %p", "together with %p"),
        ("%d.%m.%Y %M", "%M without %H"),
        ("%d.%m.%Y %H.%S", "%S without %M"),
        ("%d.%m.20%y", "digit"),
        ("%d.%m.%Y.*", "digit"),
        ("%d\n%m%Y", "digit"),
    ],
)
def test_a_form_that_means_nothing_is_refused_before_a_row_is_read(tmp_path, form, why):
    with pytest.raises(UsageError, match=f"(?s)time format.*{why}.*%d.%m.%Y %H:%M"):
        read_log(tmp_path / "not there.csv", time_format=form)


def spreadsheet(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text("user;time;query\n" + "".join(f"u{n};{text};q\n" for n in range(12)) + "v;;q\nw;then;q\n")
    return path


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_spreadsheet_is_read_and_no_row_is_lost(tmp_path, rows_of, text):
    path, form = spreadsheet(tmp_path, text), EXAMPLES[text]
    log = read_log(path, time_format=form)
    assert rows_of(log) == sorted(
        [*((f"u{n}", "q", by_python(text, form)) for n in range(12)), ("v", "q", None), ("w", "q", None)]
    )
    assert "unreadable time: 1" in log.describe_defects().in_short().split(", ")
    assert any(f"written {form}" in step for step in log.steps)
    assert len(rows_of(read_log(path, time_format=form, since="2026-09-26", until="2026-09-27"))) == 12
    with pytest.raises(DataError, match=r"(?s)can't be read.*not written like '%Y-%m-%d'.*time_format"):
        read_log(path, time_format="%Y-%m-%d")


def test_a_form_is_for_text_that_we_read(tmp_path):
    numbers = {"user": ["a"], "query": ["b"], "time": [1]}
    with pytest.raises(DataError, match="for times that are text"):
        read_log(numbers, time_format="%d.%m.%Y")
    with pytest.raises(UsageError, match="no times"):
        read_log({"user": ["a"], "query": ["b"]}, time_format="%d.%m.%Y")
    with pytest.raises(UsageError, match="time unit"):
        read_log(numbers, time_format="%d.%m.%Y", time_unit="s")
    path = tmp_path / "excite.txt"
    path.write_text("u\t970916105432\tq\n")
    with pytest.raises(UsageError, match="excite"):
        read_log(path, format="excite", time_format="%d.%m.%Y")
