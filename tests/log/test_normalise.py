"""Normal forms: what they are, that they are stable, and that the fast path agrees with the slow one."""

from __future__ import annotations

import unicodedata
import uuid
from random import Random

import ibis
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushquery.engine import connect
from hushquery.log import normalise, read_log
from hushquery.log.normalise import normal_query, normal_url
from hushquery.task.domain import normal_url as device_url

ENGINE = ibis.duckdb.connect()


def changed(how, texts, dialect="duckdb"):
    table = ibis.memtable(pa.table({"text": pa.array(texts, pa.string())}))
    out = table.select(out=how(table.text, dialect))
    return ENGINE.to_pyarrow(out).column("out").to_pylist()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("weather leeds", "weather leeds"),
        ("  Weather\t LEEDS \n", "weather leeds"),
        ("a\u00a0\u3000\u2009\u200bb", "a b"),
        ("a\0\x01\x7f\x85b", "a b"),
        ("CAFE\u0301", "café"),
        ("\u212b", "å"),
        ("J\u030c", "\u01f0"),
        ("ÀÉ ß", "àé ß"),
        ("a  b", "a b"),
        ("c++ 'quoted' \"x\" #1 [a]", "c++ 'quoted' \"x\" #1 [a]"),
        ("天气 预报", "天气 预报"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        (" \t\u3000", ""),
    ],
)
def test_queries(query, expected):
    assert changed(normal_query, [query]) == [expected]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://www.example.com", "http://www.example.com"),
        ("http://www.example.com/", "http://www.example.com"),
        ("HTTP://WWW.Example.COM/Path/", "http://www.example.com/Path/"),
        ("https://example.com:443/a?B=c#frag", "https://example.com/a?B=c"),
        ("http://example.com:80", "http://example.com"),
        ("http://example.com:80/", "http://example.com"),
        ("http://example.com:8080/", "http://example.com:8080"),
        ("https://example.com:80/", "https://example.com:80"),
        ("http://joe:secret@Example.com/x@y", "http://example.com/x@y"),
        ("http://a@b@Example.com/", "http://example.com"),
        ("ftp://Example.com/A", "ftp://example.com/A"),
        ("http://example.com?Q=1", "http://example.com?Q=1"),
        ("http://example.com/#top", "http://example.com"),
        ("http://[2001:DB8::1]:80/x", "http://[2001:db8::1]/x"),
        ("http://[2001:DB8::80]/", "http://[2001:db8::80]"),
        ("  http://example.com/a  ", "http://example.com/a"),
        ("http://example.com/a b", "http://example.com/a%20b"),
        ("WWW.Example.com/Path", "www.example.com/Path"),
        ("www.example.com/", "www.example.com"),
        ("AbC123", "AbC123"),
        ("/Local/Path", "/Local/Path"),
        ("HTTP://BÜCHER.example/Ä", "http://bücher.example/Ä"),
        ("-", None),
        (" - ", None),
        ("", None),
        ("   ", None),
        ("#frag", None),
        ("-/", None),
        (" -/#top", None),
        ("WWW.Example.com ", "www.example.com"),
        ("WWW.Example.com\t#top", "www.example.com"),
        ("WWW.Example.com is down", "WWW.Example.com%20is%20down"),
        ("http://example.com/a#b\nc#d", "http://example.com/a"),
        ("HTTP://ΟΔΟΣ.example/ΟΔΟΣ", "http://οδοσ.example/ΟΔΟΣ"),
        (None, None),
    ],
)
def test_urls(url, expected):
    assert changed(normal_url, [url]) == [expected]


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=30)
URL_PARTS = [
    "http://",
    "HTTPS://",
    "www.",
    "Example",
    ".com",
    "Σ",
    "\n",
    "\u2028",
    "u:p@",
    "[::1]",
    "ftp://",
    ":80",
    ":443",
    "/",
    "#",
    "?",
    "@",
    " ",
    "-",
    "é",
    "a",
    "\t",
    ":",
]
URLS = st.lists(st.lists(st.sampled_from(URL_PARTS), max_size=8).map("".join), min_size=1, max_size=30)


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_a_normal_query_is_its_own_normal_form(texts):
    once = changed(normal_query, texts)
    assert changed(normal_query, once) == once
    for text in once:
        assert unicodedata.is_normalized("NFC", text)
        assert text == " ".join(text.split())


@given(URLS)
@example(["-/", "WWW.Example.com ", "a#b\nc#", "Example.com\t\n", "http://a@-/", "-#\n#"])
@settings(max_examples=100, deadline=None)
def test_a_canonical_url_is_its_own_canonical_form_on_every_engine(urls):
    for dialect in ("duckdb", "another engine"):
        once = changed(normal_url, urls, dialect)
        assert changed(normal_url, once, dialect) == once


@given(TEXTS, st.data())
@settings(max_examples=30, deadline=None)
def test_each_row_alone(texts, data):
    one = data.draw(st.sampled_from(texts))
    assert changed(normal_query, texts)[texts.index(one)] == changed(normal_query, [one])[0]


@given(st.lists(st.text("aB9 é\t.-", max_size=8), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_the_rows_that_are_spared_the_work_did_not_need_it(texts):
    def slow(column, _dialect):
        tidy = column.lower().re_replace(f"[{normalise.blanks('duckdb')}]+", " ")
        return normalise.call("nfc_normalize", tidy, returns="string").strip()

    assert changed(normal_query, texts) == changed(slow, texts)


@given(URLS)
@settings(max_examples=40, deadline=None)
def test_the_urls_that_are_spared_the_work_did_not_need_it(urls):
    assert changed(normal_url, urls) == changed(normal_url, urls, "another engine")


def test_a_query_is_empty_exactly_where_its_normal_form_is():
    texts = ["", " ", "\t", "\u3000", "a", " a", "~", "\x7f", "é", "\0", "\u200b x", "!"]
    empty = [text == "" for text in changed(normal_query, texts)]
    seen = changed(lambda column, dialect: normalise.has_text(column, dialect), texts)
    assert [not one for one in seen] == empty


def test_switched_off(rows_of):
    log = read_log({"user": ["a"], "query": [" Two  Words "], "url": ["HTTP://A.example/"]}, normalise=False)
    assert rows_of(log) == [("a", " Two  Words ", "HTTP://A.example/")]
    assert not any("lower case" in step for step in log.steps)
    on = read_log({"user": ["a"], "query": ["x"]})
    assert any("lower case" in step and "NFC" in step for step in on.steps)
    assert not any(step.startswith("url") for step in on.steps)


@given(URLS)
@example(["HTTP://ΟΔΟΣ.example/", "WWW.Example.com \n", "HTTP://İ.example", "x#\n#y", "-/#"])
@settings(max_examples=60, deadline=None)
def test_a_device_writes_a_url_as_an_engine_does(urls):
    assert [device_url(url) for url in urls] == [url or "" for url in changed(normal_url, urls)]


def test_postgresql_writes_the_same_urls(postgres_url):
    chosen = Random(7)
    parts = [*URL_PARTS, "İ", "ẞ"]
    urls = sorted({"".join(chosen.choices(parts, k=chosen.randint(1, 7))) for _ in range(2000)})
    engine = connect(postgres_url)
    name = f"urls_{uuid.uuid4().hex}"
    table = engine.create_table(name, pa.table({"text": urls}))
    try:
        found = table.select("text", out=normal_url(table.text, "postgres")).to_pyarrow().to_pydict()
    finally:
        engine.drop_table(name)
        engine.disconnect()
    once = dict(zip(found["text"], found["out"], strict=True))
    assert {url: device_url(url) for url in urls} == {url: out or "" for url, out in once.items()}
