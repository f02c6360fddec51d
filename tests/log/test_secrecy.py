"""A log shows its schema and nothing else; the private report shows counts and places and no values."""

from __future__ import annotations

import copy
import json
import pickle
import re

import ibis
import pyarrow as pa
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.log import Log, read_log
from hushquery.log.defects import KINDS, LINES_SHOWN
from hushquery.log.read import Rules
from hushquery.log.sources import Source
from hushquery.log.time_format import TimeOptions

CANARIES = ("zebra-user", "zebra-query", "zebra-host")
ROW = "zebra-user,zebra-query,2006-03-01,http://zebra-host.example\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "zebra-folder.csv"
    path.write_text(
        "user,query,time,url\n" + ROW * 3 + 'zebra-user,"zebra-query\n' + ",zebra-query,,\nzebra-user,x,zebra,\n"
    )
    return path


@pytest.fixture
def log(path):
    return read_log(path, drop=["zebra-denied"], exclude_users=["zebra-objector"], since="2001-01-01")


def test_what_a_log_shows(log):
    shown = "\n".join([repr(log), str(log), f"{log}", log._repr_html_(), *log.steps])
    assert "zebra" not in shown
    assert "2001" not in shown
    assert "user: string, query: string, time: int64, url: string" in repr(log)
    assert not re.search(r"\b3\b", repr(log))


def test_the_plan_of_a_log_names_no_file_and_no_listed_person(log):
    sql = ibis.to_sql(log.table)
    assert "zebra" not in sql
    assert "read_csv" not in sql


def test_a_log_can_t_be_taken_apart(log):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(log, protocol)
    with pytest.raises(TypeError, match="secret"):
        copy.deepcopy(log)
    with pytest.raises(TypeError):
        json.dumps(log)
    with pytest.raises(TypeError):
        len(log)
    with pytest.raises(TypeError):
        iter(log)
    with pytest.raises(AttributeError):
        log.table = None
    with pytest.raises(AttributeError):
        log.extra = 1
    with pytest.raises(AttributeError):
        del log._table
    with pytest.raises(AttributeError):
        log.__dict__  # noqa: B018


def test_a_log_is_made_of_its_columns_only():
    rules = Rules(Source(None, "duckdb", (), "", lambda: pytest.fail("ran")), False, False, TimeOptions())
    for columns in (
        {"user": ["a"]},
        {"query": ["a"], "user": ["a"]},
        {"user": [1.5], "query": ["a"]},
        {"user": ["a"], "query": ["a"], "more": ["a"]},
    ):
        with pytest.raises(UsageError, match="canonical columns"):
            Log(ibis.memtable(pa.table(columns)), [], rules)


def test_nothing_is_counted_unasked(path, monkeypatch):
    from hushquery.log import sources

    monkeypatch.setattr(sources, "defects_of_files", lambda *_: pytest.fail("ran"))
    read_log(path)


def test_the_private_report(log, path):
    report = log.describe_defects()
    assert report.in_short() == "unclosed quote: 1, no user: 1, unreadable time: 1"
    assert [(defect.kind, defect.lines) for defect in report.kinds] == [
        ("unclosed quote", ((str(path), 5),)),
        ("no user", ((str(path), 6),)),
        ("unreadable time", ((str(path), 7),)),
    ]
    for shown in (str(report), repr(report), json.dumps(report.to_json())):
        assert not any(canary in shown for canary in CANARIES)
    assert "PRIVATE" in str(report)
    assert json.loads(json.dumps(report.to_json()))["defects"][0]["first"] == [{"file": str(path), "line": 5}]


def test_strict(path, tmp_path):
    with pytest.raises(DataError, match="unclosed quote: 1") as caught:
        read_log(path, strict=True)
    assert not any(canary in str(caught.value) for canary in CANARIES)
    (tmp_path / "good.csv").write_text("user,query\n1,a\n")
    read_log(tmp_path / "good.csv", strict=True).refuse_defects()


def test_counts_over_many_lines_and_files(tmp_path):
    for name in ("a.tsv", "b.tsv"):
        lines = ["user\tquery", *("lonely" if n % 2 else f"u{n}\tq" for n in range(200_000)), "\tq", "u\t "]
        (tmp_path / name).write_text("\n".join(lines))
    report = read_log(str(tmp_path / "*.tsv")).describe_defects()
    assert report.in_short() == "too few columns: 200000, no user: 2, no query: 2"
    first = report.kinds[0].lines
    assert len(first) == LINES_SHOWN
    assert first[:2] == ((str(tmp_path / "a.tsv"), 3), (str(tmp_path / "a.tsv"), 5))
    assert report.kinds[1].lines == ((str(tmp_path / "a.tsv"), 200_002), (str(tmp_path / "b.tsv"), 200_002))


def test_every_kind_that_a_report_may_have_is_listed():
    from hushquery.log import formats

    forms = [*formats.FIXED.values(), formats.jsonl({"user": "user"})]
    forms += [formats.with_header(kind, ["user", "query"], {"user": 0, "query": 1}) for kind in ("csv", "tsv")]
    for form in forms:
        assert set(re.findall(r"THEN '([^']*)'", form.problem)) <= set(KINDS)
