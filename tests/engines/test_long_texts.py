"""No query and no URL of one person decides whether there is a release: too long ones count as missing everywhere."""

from __future__ import annotations

import re
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.engine import connect, execute
from hushquery.log import read_log
from hushquery.log.normalise import HOST, LONGEST, pattern_for

URLS = {
    "a." * 3000 + "c": None,  # overflowed Java's stack
    "http://a.example/" + "?token" * 1200: None,  # took Java half a minute
    "http://a.example/" + "x" * (LONGEST - 16): None,
    "http://a.example/" + "x" * (LONGEST - 17): "http://a.example/" + "x" * (LONGEST - 17),
    "http://a.example/" + "é " * 2000 + "x": "http://a.example/" + "é%20" * 2000 + "x",
    "A." * 2000 + "Com/X": "a." * 2000 + "com/X",
    "A." * 2000 + ".Com/X": "A." * 2000 + ".Com/X",
    "http://a.example/" + "?token" * 670: "http://a.example/" + "?token" * 670,
    "http://a.example/" + "?token" * 670 + "=1": None,
}
QUERIES = {
    "b" * LONGEST: "b" * LONGEST,
    "b" * (LONGEST + 1): None,
    "é" * LONGEST: "é" * LONGEST,
    "a" + "\u0301\u0316" * 9000: None,
}


@pytest.mark.parametrize(
    "where", ["duckdb", pytest.param("spark", marks=pytest.mark.xdist_group("spark")), "postgresql"]
)
def test_long_texts(where, request, tmp_path):
    texts = [("q", url) for url in URLS] + [(query, None) for query in QUERIES]
    table = pa.table({"user": range(len(texts)), "query": [q for q, _ in texts], "url": [u for _, u in texts]})
    pq.write_table(table, tmp_path / "long.parquet")
    if where == "postgresql":
        engine, name = connect(request.getfixturevalue("postgres_url")), f"long_{uuid.uuid4().hex}"
        engine.create_table(name, table)
        log = read_log(name, engine=engine)
    else:
        engine = request.getfixturevalue("spark") if where == "spark" else None
        log = read_log(tmp_path / "long.parquet", engine=engine)
    found = {int(row["user"]): row for row in execute(log.table).to_pylist()}
    expected = [("q", url) for url in URLS.values()] + [(query, None) for query in QUERIES.values()]
    for user, (query, url) in enumerate(expected):
        row = found.get(user, {"query": None, "url": None})
        assert (row["query"], row["url"]) == (query, url), user
    assert sum(f"over {LONGEST} characters" in step for step in log.steps) == 2
    if where == "postgresql":
        engine.drop_table(name)
        engine.disconnect()


def test_long_texts_are_missing_where_nothing_is_cleaned_too():
    data = {"user": ["a", "b"], "query": ["Q", "Q" * (LONGEST + 1)], "url": ["U" * (LONGEST + 1), "u"]}
    log = read_log(data, normalise=False, patterns=False)
    assert execute(log.table).to_pylist() == [{"user": "a", "query": "Q", "url": None}]


@given(st.text(st.sampled_from("Aa.-:/?# \t@é"), max_size=12))
def test_a_host_is_the_same_on_java(text):
    java = pattern_for(HOST, "pyspark").replace(r"\z", r"\Z")
    here, there = re.match(HOST.replace("$", r"\Z"), text), re.match(java, text)
    assert (here and here[0]) == (there and there[0])
