"""Which column is which of ours: said in words, suggested where it is nearly right, refused where it means nothing."""

from __future__ import annotations

import json

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.curator.plan import plan_release
from hushquery.errors import DataError, UsageError
from hushquery.log import read_log

CANARY = "zebra-canary"
NAMES = {"user": "Customer ID", "query": "Search term", "time": "Date"}
WORDS = "user: the column 'Customer ID'; query: the column 'Search term'; time: the column 'Date'; url: none"
TABLE = pa.table({"Date": ["2026-10-03", None], "Search term": [CANARY, "b"], "Customer ID": [CANARY, "2"]})


def sources(folder):
    lines = [dict(zip(TABLE.column_names, row, strict=True)) for row in zip(*TABLE.to_pydict().values(), strict=True)]
    (folder / "log.csv").write_text(f"Date,Search term,customer id\n2026-10-03,{CANARY},{CANARY}\n")
    (folder / "log.tsv").write_text(f"Date\tSearch term\tCustomer ID\n2026-10-03\t{CANARY}\t{CANARY}\n")
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pq.write_table(TABLE, folder / "log.parquet")
    engine = ibis.duckdb.connect()
    return {
        "csv": (folder / "log.csv", WORDS.replace("Customer ID", "customer id")),
        "tsv": (folder / "log.tsv", WORDS),
        "parquet": (folder / "log.parquet", WORDS),
        "jsonl": (folder / "log.jsonl", WORDS.replace("column", "key").replace("url: none", "url: the key 'url'")),
        "table": (TABLE, WORDS),
        "engine": (engine.create_table("searches", TABLE), WORDS),
    }


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl", "table", "engine"])
def test_every_source_says_which_column_is_which(tmp_path, kind):
    data, words = sources(tmp_path)[kind]
    log = read_log(data, columns=NAMES)
    assert log.explained[1].startswith(words)
    plan = plan_release(log, epsilon=1, delta="1e-6", queries_per_user=3, population="readers")
    assert f"  - {words}" in plan.explain()
    made = plan.run(tmp_path / "ledger.db")
    assert made.manifest["parameters"]["log_steps"] == log.steps
    folder = made.save(tmp_path / "release")
    assert (
        f"user: a {'key' if kind == 'jsonl' else 'column'} that the steward named" in (folder / "README.md").read_text()
    )
    # Names of columns may be somebody's row: they are in no file of the release.
    assert not [file for file in folder.iterdir() if b"Customer" in file.read_bytes()]
    assert b"Customer" not in (tmp_path / "ledger.db").read_bytes()
    assert CANARY not in plan.explain()


@pytest.mark.parametrize(
    ("kind", "line", "words"),
    [
        (
            "aol",
            "1\tq\t2006-03-01 07:17:12\t1\thttp://a.example",
            "user: the column 'AnonID'; query: the column 'Query'",
        ),
        ("sogou", "00:00:01\tu\t[q]\t1 1\twww.a.example", "user: the second cell of a line; query: the third cell"),
        ("excite", "u\t970916105432\tq", "user: the first cell of a line; query: the third cell; time: the second"),
        (
            "yandex",
            "1\tM\t3\t4\n1\t2\tQ\t0\t5\t6\t7,8",
            "user: the user that a session's M line names; query: the words",
        ),
    ],
)
def test_named_formats_say_it_too_and_keep_their_own_columns(tmp_path, kind, line, words):
    path = tmp_path / "log"
    path.write_text(f"{line}\n")
    assert words in read_log(path, format=kind).steps[1]
    timeless = read_log(path, format=kind, columns={"time": None})
    assert not timeless.has_time
    assert "time: none" in timeless.steps[1]
    timeless.describe_defects()
    with pytest.raises(UsageError, match=f"(?s)the format {kind} has its own columns.*There user is the"):
        read_log(path, format=kind, columns={"user": "Query"})


def test_aol_may_be_told_its_own_names(tmp_path, rows_of):
    path = tmp_path / "log"
    path.write_text("1\tq\t2006-03-01 07:17:12\t1\thttp://a.example\n")
    log = read_log(path, format="aol", columns={"user": "AnonID", "time": None, "rank": None})
    assert rows_of(log) == [("1", "q", "http://a.example")]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl", "table", "engine"])
@pytest.mark.parametrize(("ours", "theirs"), [("query", "Customer ID"), ("time", "Customer ID"), ("user", "Date")])
def test_one_column_is_not_two_of_ours(tmp_path, kind, ours, theirs):
    data, _ = sources(tmp_path)[kind]
    with pytest.raises(UsageError, match=f"(?si)the column '{theirs}' can't be both .* and .*NAME"):
        read_log(data, columns=NAMES | {ours: theirs})


def test_a_column_of_one_of_our_names_is_not_taken_twice():
    table = {"query": ["a"], "n": ["b"], "url": ["c"]}
    with pytest.raises(UsageError, match="'query' can't be both user and query"):
        read_log(table, columns={"user": "query"})
    with pytest.raises(UsageError, match=r"'url' can't be both user and url.*url= does without"):
        read_log(table, columns={"user": "url"})
    assert "url: none" in read_log(table, columns={"user": "url", "url": None}).steps[1]


@pytest.mark.parametrize("name", ["CustomerID", "customer_id", " CUSTOMER  id"])
def test_a_name_that_is_nearly_right_is_suggested_and_no_other_is_shown(tmp_path, name):
    path = tmp_path / "log.csv"
    path.write_text(f"Customer ID,query,{CANARY}\n{CANARY},b,c\n")
    with pytest.raises(DataError, match=r"no column .* for user") as caught:
        read_log(path, columns={"user": name})
    assert "Did you mean 'Customer ID'?" in caught.value.fix
    assert "--columns \"user=Customer ID\", or columns={'user': 'Customer ID'}" in caught.value.fix
    with pytest.raises(DataError, match="Did you mean 'Customer ID'") as other:
        read_log(path, columns={"user": "Custmer"})
    assert CANARY not in str(caught.value) + str(other.value)
    path.write_text(f"Customer ID,Customer_ID,query\n{CANARY},b,c\n")
    with pytest.raises(DataError) as two:
        read_log(path, columns={"user": "CustomerID"})
    assert "mean" not in str(two.value)


def test_a_very_long_name_is_cut():
    name = "n" * 500
    told = " ".join(read_log({name: ["a"], "query": ["b"]}, columns={"user": name}).explained)
    assert "n" * 60 + "...'" in told
    assert "n" * 61 not in told
    with pytest.raises(DataError) as caught:
        read_log({name: ["a"], "query": ["b"]})
    assert "n" * 61 not in str(caught.value)


def test_the_whole_form_is_told_where_times_can_t_be_read(tmp_path, rows_of):
    path = tmp_path / "log.csv"
    rows = "".join(f"{n},26.09.2026 12:20,b\n" for n in range(20))
    path.write_text(f"Customer ID,Date,Search term\n{rows}21,,b\n22,26.09.2026,\n")  # also with an empty cell or two
    with pytest.raises(DataError, match=r"times in .* can't be read") as caught:
        read_log(path, columns=NAMES | {"url": None})
    assert '--columns "user=Customer ID,query=Search term,time=,url="' in caught.value.fix
    python = "{'user': 'Customer ID', 'query': 'Search term', 'time': None, 'url': None}"
    assert f"columns={python}" in caught.value.fix
    assert len(rows_of(read_log(path, columns=eval(python)))) == 21  # noqa: S307
    assert "--time-format '%d.%m.%Y %H:%M'" in caught.value.fix


@pytest.mark.parametrize("ending", ["xlsx", "XLS", "ods"])
def test_a_workbook_has_to_be_saved_as_csv(tmp_path, ending):
    path = tmp_path / f"log.{ending}"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    for arguments in ({}, {"format": "csv"}):
        with pytest.raises((DataError, UsageError), match="CSV UTF-8"):
            read_log(path, **arguments)


def test_a_part_of_a_mapping_is_no_file():
    with pytest.raises(DataError, match=r'there is no file ID,query=Search.*quotes: --columns "user=Customer ID'):
        read_log("ID,query=Search")
