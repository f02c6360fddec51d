"""The bound: exactly d keys of each user, the first by time, from that user's rows alone, anew for each table."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from hushquery.core.loss import LaplaceHistogram
from hushquery.curator.audit import numbered
from hushquery.curator.clicks import Clicks
from hushquery.curator.counting import Bound, count_released, searches
from hushquery.curator.reformulations import Reformulations
from hushquery.errors import UsageError
from search_logs import OTHERS, ZOE, counted, kept, log
from statistical import number

QUERY = ["query"]
STEP = LaplaceHistogram(1, Fraction(1))


def released(*queries):
    return numbered(queries)


@pytest.mark.parametrize("most", range(1, 9))
@pytest.mark.parametrize("keep", ["first", "random"])
def test_exactly_d_of_those_who_have_more_and_all_of_the_others(most, keep):
    rows = [("zoe", 1000 - i, f"query {i}", None) for i in range(7)] + [("bob", 5, "query 3", None)] * 3
    found = kept(Bound(keep, "key").rows(log(*rows), QUERY, most))
    assert len([row for row in found if row[0] == "zoe"]) == min(most, 7)
    assert [row for row in found if row[0] == "bob"] == [("bob", "query 3")]
    assert len(set(found)) == len(found)


def test_first_means_by_time_and_not_alphabetical():
    rows = [("zoe", 3, "ant", None), ("zoe", 2, "bee", None), ("zoe", 1, "cow", None)]
    assert kept(Bound().rows(log(*rows), QUERY, 1)) == [("zoe", "cow")]
    assert kept(Bound().rows(log(*rows), QUERY, 2)) == [("zoe", "bee"), ("zoe", "cow")]
    # The earliest time of a query counts, wherever its row is.
    rows += [("zoe", 9, "cow", None), ("zoe", 0, "ant", None)]
    assert kept(Bound().rows(log(*rows), QUERY, 1)) == [("zoe", "ant")]


def test_ties_go_by_the_query_and_timeless_rows_come_last():
    rows = [("zoe", 5, "cow", None), ("zoe", 5, "bee", None), ("zoe", None, "ant", None), ("zoe", 9, "dog", None)]
    bound = Bound()
    assert [len(kept(bound.rows(log(*rows), QUERY, d))) for d in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 4]
    assert kept(bound.rows(log(*rows), QUERY, 1)) == [("zoe", "bee")]
    assert kept(bound.rows(log(*rows), QUERY, 3)) == [("zoe", "bee"), ("zoe", "cow"), ("zoe", "dog")]
    # One readable time is enough to be placed by it.
    rows.append(("zoe", 1, "ant", None))
    assert kept(bound.rows(log(*rows), QUERY, 1)) == [("zoe", "ant")]


def test_a_missing_query_takes_nobody_s_place_and_is_never_kept():
    rows = [("zoe", 0, None, "x"), ("zoe", 1, "bee", None), ("zoe", None, "ant", None), ("bob", 0, None, None)]
    for bound in (Bound(), Bound("random", "key")):
        assert kept(bound.rows(log(*rows), QUERY, 2)) == [("zoe", "ant"), ("zoe", "bee")]
        assert kept(searches(log(*rows), bound, 2)) == [("zoe", "ant"), ("zoe", "bee")]


def test_random_means_by_a_keyed_digest_that_every_engine_computes_alike():
    queries = [f"query é{i}" for i in range(20)]
    table = log(*(("zoe", i, query, None) for i, query in enumerate(queries)))
    for key in ("one", "two"):
        digests = sorted((hashlib.md5(f"{key}|zoe|{q}".encode()).hexdigest(), q) for q in queries)  # noqa: S324
        assert kept(Bound("random", key).rows(table, QUERY, 5)) == sorted(("zoe", q) for _, q in digests[:5])
    assert kept(Bound("first", "one").rows(table.drop("time"), QUERY, 5)) == kept(
        Bound("random", "one").rows(table, QUERY, 5)
    )


@seed(number("alone"))
@settings(max_examples=25, deadline=None, database=None)
@given(
    OTHERS, ZOE, st.integers(1, 4), st.sampled_from(["first", "random"]), st.sampled_from([["query"], ["query", "url"]])
)
def test_nobody_moves_when_somebody_joins(others, zoe, most, keep, columns):
    bound = Bound(keep, "key")
    before, after = (
        kept(bound.rows(log(*rows).fill_null({"url": "none"}), columns, most)) for rows in (others, others + zoe)
    )
    assert before == [row for row in after if row[0] != "zoe"]
    assert 1 <= len(after) - len(before) <= most


def test_each_table_has_a_bound_of_its_own():
    """A user whose first queries are not released still counts in those that are, and in their clicks and walks."""
    second = 1_000_000
    rows = [("zoe", i * second, query, "x") for i, query in enumerate(["ant", "bee", "cow", "dog", "cow"])]
    table, bound = log(*rows), Bound()
    assert kept(bound.rows(table, QUERY, 2)) == [("zoe", "ant"), ("zoe", "bee")]
    assert counted(count_released(table, bound, released("cow", "dog"), 2)) == {("cow",): 1, ("dog",): 1}
    assert counted(count_released(table, bound, released("cow", "dog"), 1)) == {("cow",): 1}
    clicks = Clicks(STEP).expression(table, bound, released("dog", "cow"))
    assert counted(clicks) == {("cow", "x"): 1}
    walks = Reformulations(STEP).expression(table, bound, released("dog", "cow"))
    assert counted(walks) == {("cow", "dog"): 1}


def test_clicks_are_pairs_that_are_counted_once_and_listed_where_there_is_a_list():
    rows = [
        *[("zoe", i, "ant", "x") for i in range(9)],
        ("zoe", 1, "ant", None),
        ("zoe", 20, "ant", "y"),
        ("zoe", 21, "ant", "z"),
        ("bob", 1, "ant", "y"),
    ]
    table, step = log(*rows), LaplaceHistogram(2, Fraction(1))
    assert counted(Clicks(step).expression(table, Bound(), released("ant"))) == {("ant", "x"): 1, ("ant", "y"): 2}
    # With a list the cap is for listed pairs: what is not on it does not use it up.
    results = log(("", 0, "ant", "y"), ("", 0, "ant", "z"), ("", 0, "bee", "x")).select("query", "url")
    listed = Clicks(step, results).expression(table, Bound(), released("ant"))
    assert counted(listed) == {("ant", "y"): 2, ("ant", "z"): 1}


def test_reformulations_are_consecutive_before_anything_is_filtered_and_within_a_session():
    minute = 60_000_000
    rows = [
        ("zoe", 0, "ant", "x"),
        ("zoe", 0, "ant", "y"),  # another click, not another search
        ("zoe", 10 * minute, "secret", None),
        ("zoe", 11 * minute, "bee", None),  # ant -> bee is not consecutive
        ("zoe", 41 * minute, "cow", None),  # exactly the gap: the same session
        ("zoe", 71 * minute + 1, "ant", None),  # one microsecond more
        ("zoe", 72 * minute, "ant", None),  # no reformulation
        ("zoe", None, "bee", None),  # without a time nobody knows what it followed
    ]
    queries = released("ant", "bee", "cow")
    walks = Reformulations(LaplaceHistogram(9, Fraction(1)))
    assert counted(walks.expression(log(*rows), Bound(), queries)) == {("bee", "cow"): 1}
    long = Reformulations(LaplaceHistogram(9, Fraction(1)), session_gap=1801.0)
    assert counted(long.expression(log(*rows), Bound(), queries)) == {("bee", "cow"): 1, ("cow", "ant"): 1}


def test_other_rules_are_refused():
    with pytest.raises(UsageError, match="first or random"):
        Bound("last")
