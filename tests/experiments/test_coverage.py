"""Coverage: shares by hand, against a naive count, and the mark that nothing here may be published."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.log import read_log
from hushquery_experiments.coverage import coverage, search_volume
from hushquery_experiments.unpublishable import MARK
from small_releases import release_of

LOG = {
    "user": ["a", "a", "a", "b", "b", "c"],
    "time": [1, 1, 2, 1, 5, 9],
    "query": ["news", "news", "news", "news", "my rash", "weather"],
    "url": ["https://x.example.org/", "https://y.example.org/", None, None, None, None],
}


def test_a_search_with_two_clicks_is_one_search():
    found = coverage(LOG, ["news"])
    assert (found.queries, found.distinct_share, found.volume_share) == (1, 1 / 3, 3 / 5)


def test_without_times_each_users_query_counts_once():
    timeless = {name: LOG[name] for name in ("user", "query")}
    assert coverage(timeless, ["news"]).volume_share == 2 / 4


def test_nothing_and_everything():
    assert coverage(LOG, []).volume_share == coverage(LOG, []).distinct_share == coverage(LOG, []).queries == 0
    whole = coverage(LOG, ["news", "my rash", "weather"])
    assert (whole.queries, whole.distinct_share, whole.volume_share) == (3, 1.0, 1.0)


def test_a_released_query_that_nobody_searched_covers_nothing():
    found = coverage(LOG, ["weather", "from another log"])
    assert (found.queries, found.distinct_share, found.volume_share) == (2, 1 / 3, 1 / 5)


def test_releases_tables_and_lists_say_the_same():
    expected = coverage(LOG, ["news", "weather"])
    for released in (
        release_of({"news": 900, "weather": -3}),
        release_of(["weather", "news"]),
        pa.table({"query": ["weather", "news"], "count": [1, 2]}),
        {"weather", "news"},
        ["news", "weather", "news"],
    ):
        assert coverage(LOG, released) == expected
    assert coverage(read_log(LOG), ["news", "weather"]) == expected


def test_one_count_answers_many_times():
    with search_volume(LOG) as volume:
        assert volume.searches == 5
        assert volume.distinct == 3
        assert [volume.coverage([q]).volume_share for q in ("news", "my rash", "news")] == [3 / 5, 1 / 5, 3 / 5]


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from("pqrs")), min_size=1, max_size=30)


@settings(max_examples=30, deadline=None)
@given(rows=ROWS, released=st.sets(st.sampled_from("pqrstu")))
def test_equals_a_naive_count(rows, released):
    log = {name: [row[place] for row in rows] for place, name in enumerate(("user", "time", "query"))}
    found = coverage(log, released)
    searches, distinct = set(rows), {row[2] for row in rows}
    assert found.queries == len(released)
    assert found.distinct_share == len(distinct & released) / len(distinct)
    assert found.volume_share == sum(row[2] in released for row in searches) / len(searches)


@pytest.mark.parametrize("released", ["news", 7, None, [1, 2], pa.table({"q": ["news"]})])
def test_what_is_no_list_of_queries_is_refused(released):
    with pytest.raises(UsageError) as refusal:
        coverage(LOG, released)
    assert refusal.value.fix
    assert "rash" not in str(refusal.value)


def test_a_release_without_queries_is_refused():
    only_clicks = release_of(None, {("news", "https://x.example.org/"): 5})
    with pytest.raises(UsageError):
        coverage(LOG, only_clicks)


def test_an_empty_log_is_refused():
    empty = pa.table({"user": pa.array([], pa.string()), "query": pa.array([], pa.string())})
    with pytest.raises(DataError, match="no searches"):
        coverage(empty, ["news"])


def test_the_result_says_that_it_must_not_be_published():
    found = coverage(LOG, ["news"])
    assert found.publishable is False
    assert MARK in repr(found)
    assert MARK in str(found)
    assert MARK in found._repr_html_()
    told = json.loads(json.dumps(found.to_json()))
    assert told == {"publishable": False, "mark": MARK, "queries": 1, "distinct_share": 1 / 3, "volume_share": 0.6}


def test_a_table_of_an_engine_is_taken_as_it_is():
    table = read_log(LOG).table
    assert coverage(table, ["news"]) == coverage(LOG, ["news"])
    with pytest.raises(DataError, match="no column 'query'"):
        coverage(table.drop("query"), ["news"])
