"""What functions over a release return: rows that become data frames, show themselves in a notebook, and stay short."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa
import pytest

from hushquery.publish import SearchIndex, classify, find, keywords, look_up, similar, suggest, trends
from small_releases import private_hybrid, release_of, whole_release

RELEASE = whole_release()

RESULTS = {
    "search": lambda release: SearchIndex(release).search("weather"),
    "look_up": lambda release: look_up(release, "weather"),
    "find": lambda release: find(release, "*"),
    "trends": lambda release: trends([release, release]),
    "keywords": lambda release: keywords(release, "weather", gamma=0.01),
    "classify": lambda release: classify(release, {"weather": "sky", "news": "press"}),
    "similar": lambda release: similar(release, "weather"),
    "suggest": lambda release: suggest(release, "weather"),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("release", [RELEASE, private_hybrid()], ids=["counts", "shares"])
def test_results_show_themselves_and_their_repr_dumps_no_table(result, release):
    found = result(release)
    page = found._repr_html_()
    assert "<table>" in page
    assert "weather" in page
    assert "None" not in page
    assert len(repr(found)) < 1000


def test_rows_are_a_tuple_and_a_data_frame():
    rows = find(RELEASE, "fear of *")
    assert rows == tuple(rows)
    assert repr(rows) == "<2 rows of PatternHit>"
    assert repr(find(RELEASE, "nothing")) == "<no rows>"
    assert rows.to_pandas()["query"].tolist() == ["fear of flying", "fear of heights"]
    assert rows.to_polars()["count"].to_list() == [90, 70]
    assert pa.RecordBatchReader.from_stream(rows).read_all() == rows.to_arrow()
    # What was not released is no column.
    assert "share" not in rows.to_arrow().column_names
    assert "count" not in find(private_hybrid(), "*").to_arrow().column_names
    assert find(release_of(["a", "b"]), "*").to_arrow().to_pydict() == {"query": ["a", "b"]}
    assert find(RELEASE, "nothing").to_arrow().num_rows == 0
    json.dumps([asdict(row) for row in rows])


def test_a_search_is_two_tables_with_notes():
    page = SearchIndex(release_of({"weather": 9})).search("weather")._repr_html_()
    assert "urls: 0" in page
    assert "queries: 1" in page
    assert "no clicks" in page


def test_an_index_says_how_large_it_is():
    assert repr(SearchIndex(RELEASE)) == "SearchIndex(9 queries, 8 clicks)"
