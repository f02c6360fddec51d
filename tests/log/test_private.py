"""What is removed before anything is counted: personal text, denied queries, people who object."""

from __future__ import annotations

import gzip
import re

import ibis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError
from hushquery.log import read_log
from hushquery.log.normalise import PLAIN, holds_private_text, normal_query, without_private_url

ENGINE = ibis.duckdb.connect()


def found(how, texts, *arguments):
    table = ibis.memtable(pa.table({"text": pa.array(texts, pa.string())}))
    return ENGINE.to_pyarrow(table.select(out=how(table.text, *arguments))).column("out").to_pylist()


PERSONAL = [
    "joe@example.com",
    "mail JOE.BLOGGS+x@Mail.Example.ORG now",
    "jö@bücher.example",
    "ｊoe＠example．com",
    "020 7946 0958",
    "call +44 (0)20-7946-0958",
    "(555) 123-4567",
    "555-1234",
    "555.1234 jones",
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "ssn 078-05-1120",
    "078 05 1120",
    "a123456789b",
    "1  2  3  4  5  6  7  8  9",
    "٠١٢٣٤٥٦٧٨٩",
    "１２３ ４５ ６７８９",
    "0171/1234567",
    "192.168.100.17",
    "7946\u00a00958\u30001",
]
HARMLESS = [
    "weather leeds",
    "2006 tax forms",
    "january 1 2006",
    "windows 98 vs windows 2000",
    "12345678",
    "@home",
    "a @ b",
    "joe@",
    "pi 3.14159",
    "1 800 flowers",
    "m25 j10 a3",
    "route 66-1234a5678",
    "天气 2006",
]


@pytest.mark.parametrize("dialect", ["duckdb", "another"])
def test_personal_text(dialect):
    if dialect == "another":
        personal, harmless = (found(lambda text: holds_private_text(text, "x"), list(t)) for t in (PERSONAL, HARMLESS))
    else:
        personal, harmless = (found(holds_private_text, list(t), dialect) for t in (PERSONAL, HARMLESS))
    assert [text for text, hit in zip(PERSONAL, personal, strict=True) if not hit] == []
    assert [text for text, hit in zip(HARMLESS, harmless, strict=True) if hit] == []


@given(st.lists(st.text("0123456789 .-()@a\t\u3000é", max_size=24), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_normalisation_hides_nothing_from_the_patterns(texts):
    normal = found(normal_query, texts, "duckdb")
    assert found(holds_private_text, texts, "duckdb") == found(holds_private_text, normal, "duckdb")


@given(st.lists(st.integers(0, 9), min_size=9, max_size=19), st.data())
@settings(max_examples=60, deadline=None)
def test_nine_digits_are_found_however_they_are_grouped(digits, data):
    separators = st.sampled_from(["", "", "", " ", "-", ".", " - ", ") ", "/"])
    text = "".join(str(digit) + data.draw(separators) for digit in digits)
    assert found(holds_private_text, [f"x {text} y"], "duckdb") == [True]


def test_urls(rows_of):
    removed = [
        "http://a.example/?mail=joe@example.com",
        "http://a.example/joe%40example.com",
        "http://a.example/?token=x",
        "http://a.example/?b=1&access_Token=x",
        "http://a.example/p;jsessionid=1A2B",
        "http://a.example/?PHPSESSID=9",
        "http://a.example/x?a=1&SID=77&b",
        "http://a.example/u/0123456789abcdef",
        "http://a.example/u/DEADBEEFDEADBEEF01",
    ]
    kept = [
        "http://a.example",
        "http://a.example/@home",
        "http://a.example/page?id=12345",
        "http://a.example/12345678-abcd",
        "http://a.example/?basid=1",
        "http://a.example/?token=",
    ]
    for dialect in ("duckdb", "another"):
        assert found(without_private_url, removed, dialect) == [None] * len(removed)
        assert found(without_private_url, kept, dialect) == kept
    log = read_log({"user": ["a", "b"], "query": ["x", "y"], "url": [removed[0], kept[0]]})
    assert rows_of(log) == [("a", "x", None), ("b", "y", kept[0])]


def test_credentials_are_cut_off_not_taken_for_an_address(rows_of):
    log = read_log({"user": ["a"], "query": ["x"], "url": ["http://joe:pw@www.example.com/a"]})
    assert rows_of(log) == [("a", "x", "http://www.example.com/a")]


def test_patterns_can_be_switched_off(rows_of):
    data = {"user": ["a"], "query": ["joe@example.com"], "url": ["http://a.example/?token=x"]}
    assert rows_of(read_log(data)) == []
    assert rows_of(read_log(data, patterns=False)) == [("a", "joe@example.com", "http://a.example/?token=x")]
    assert any("e-mail" in step for step in read_log(data).steps)
    assert not any("e-mail" in step for step in read_log(data, patterns=False).steps)


QUERIES = ["acme", "acme corp news", "my Acme  Corp", "acmecorp", "news acme", "corp acme", "x y z", "x yz", "été 2006"]


@pytest.mark.parametrize(
    ("denied", "gone"),
    [
        (["acme"], {"acme", "acme corp news", "my acme corp", "news acme", "corp acme"}),
        (["ACME   corp"], {"acme corp news", "my acme corp"}),
        (["x y"], {"x y z"}),
        (["E\u0301TE\u0301"], {"été 2006"}),
        (["yz", "no such", " ", ""], {"x yz"}),
        ([], set()),
    ],
)
def test_deny_list(rows_of, denied, gone):
    data = {"user": [str(n) for n in range(len(QUERIES))], "query": QUERIES}
    everything = {row[1] for row in rows_of(read_log(data))}
    left = {row[1] for row in rows_of(read_log(data, drop=denied))}
    assert everything - left == gone
    assert left <= everything


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(" ".join), min_size=1, max_size=8),
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(" ".join), max_size=3),
)
@settings(max_examples=30, deadline=None)
def test_deny_list_is_contains_as_whole_words(queries, denied):
    log = read_log({"user": ["u"] * len(queries), "query": queries}, drop=denied)
    left = log.table.query.to_list()
    assert sorted(left) == sorted(q for q in queries if not any(f" {entry} " in f" {q} " for entry in denied))


def test_lists_from_files(tmp_path, rows_of):
    data = {"user": ["01", "1", "2"], "query": ["acme", "b", "c"]}
    (tmp_path / "deny.txt").write_bytes("\ufeffacme\r\n\r\n".encode())
    (tmp_path / "users.gz").write_bytes(gzip.compress(b"1\n 2 \n"))
    log = read_log(data, drop=tmp_path / "deny.txt", exclude_users=str(tmp_path / "users.gz"))
    assert rows_of(log) == []
    assert rows_of(read_log(data, exclude_users=["01", 2])) == [("1", "b")]
    assert rows_of(read_log(data, exclude_users=[])) == [("01", "acme"), ("1", "b"), ("2", "c")]
    assert not any(str(tmp_path) in step or "acme" in step for step in log.steps)


def test_a_list_has_the_lines_of_a_log(tmp_path, rows_of):
    """A separator that only Unicode knows is a part of an id."""
    (tmp_path / "objectors").write_text("a\u2028b\r\nc\x85d\n", encoding="utf-8", newline="")
    rows = {"user": ["a\u2028b", "c\x85d", "e"], "query": ["q", "q", "q"]}
    assert rows_of(read_log(rows, exclude_users=tmp_path / "objectors")) == [("e", "q")]


@pytest.mark.parametrize("name", ["drop", "exclude_users"])
def test_lists_that_can_t_be_read(tmp_path, name):
    (tmp_path / "bad").write_bytes(b"zebra\xff\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"zebra\n")[:-9])
    for source in (tmp_path / "missing", tmp_path, tmp_path / "bad", tmp_path / "cut.gz", [["zebra"]], [None]):
        with pytest.raises(DataError) as caught:
            read_log({"user": ["a"], "query": ["b"]}, **{name: source})
        assert "zebra" not in str(caught.value)


#: What plain queries are made of, and what makes a query not plain.
_NEAR_PLAIN = st.text(st.sampled_from("ab09@. -/+()AÀ\t~!'"), max_size=24)


@settings(max_examples=60, deadline=None)
@given(st.lists(_NEAR_PLAIN | st.from_regex(PLAIN[1], fullmatch=True), min_size=1, max_size=60))
def test_a_plain_query_is_in_its_normal_form_and_no_pattern_finds_anything_in_it(texts):
    table = ibis.memtable(pa.table({"query": pa.array(texts, pa.string())}))
    query = table["query"]
    plain = query.re_search(PLAIN[0]) | query.re_search(PLAIN[1])
    told = table.select(
        "query", plain=plain, normal=normal_query(query, "duckdb"), private=holds_private_text(query, "duckdb")
    )
    for row in told.to_pyarrow().to_pylist():
        assert row["plain"] == any(re.search(pattern.replace("$", r"\Z"), row["query"]) for pattern in PLAIN)
        if row["plain"]:
            assert row["normal"] == row["query"] != ""
            assert not row["private"]
