"""Whatever rows are written to a file, the same rows are read from it."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections import Counter
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.log import read_log

ENGINE = ibis.duckdb.connect()
# No line ends (a line is a row), and nothing of the two code points that are no characters.
SIGNS = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0\U0010ffff\U0010fffe\ufeff")
WITHOUT_TABS = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t\0\U0010ffff\U0010fffe\ufeff")


def texts(signs: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.text(signs, max_size=8).map(lambda text: f"x{text}x")


def rows(signs: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str, int, str]]]:
    time = st.integers(-(10**10), 10**10)
    return st.lists(st.tuples(texts(signs), texts(signs), time, texts(signs)), max_size=8)


def written(kind: str, path: Path, data: list[tuple[str, str, int, str]], quoting: int) -> None:
    names = ["user", "query", "time", "url"]
    if kind == "csv":
        out = io.StringIO()
        writer = csv.writer(out, quoting=quoting, lineterminator="\n")
        writer.writerows([names, *data])
        path.write_text(out.getvalue(), encoding="utf-8")
    elif kind == "tsv":
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [names, *data]), encoding="utf-8")
    elif kind == "jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=quoting == csv.QUOTE_ALL) for row in data]
        path.write_text("\n".join(lines or ['{"user": "", "query": ""}']), encoding="utf-8")
    else:
        pq.write_table(pa.table({n: [row[i] for row in data] for i, n in enumerate(names)}, schema=_SCHEMA), path)


_SCHEMA = pa.schema([("user", pa.string()), ("query", pa.string()), ("time", pa.int64()), ("url", pa.string())])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_rows_come_back(kind, data):
    expected = data.draw(rows(WITHOUT_TABS if kind == "tsv" else SIGNS))
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{kind}"
        written(kind, path, expected, quoting)
        log = read_log(path, normalise=False, patterns=False, time_unit="s", engine=ENGINE)
        table = log.table.select("user", "query", "time", "url").to_pyarrow()
    found = Counter(tuple(row.values()) for row in table.to_pylist())
    assert found == Counter((user, query, time * 10**6, url) for user, query, time, url in expected)
