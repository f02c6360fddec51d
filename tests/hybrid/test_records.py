"""Records of opt-in users: what one user can change by exchanging all their data, and how users are split."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from hushquery.curator.counting import Bound, tally
from hushquery.errors import DataError, UsageError
from hushquery.hybrid.headlist import RECORD, fresh_key, number_of_users, records_of
from hushquery.hybrid.remeasure import split_users
from hushquery.log import read_log
from hushquery.log.normalise import LONGEST as LONGEST_IN_LOG
from hushquery.task.domain import LONGEST, WILDCARD, Domain
from search_logs import OTHERS, TYPES, counted, kept, rows_of
from statistical import bits, number


def optin(rows, *, without=()):
    """Rows (user, time, query, url) as a log; a missing query is one that reading left out."""
    columns = zip(*rows, strict=True) if rows else [()] * 4
    arrays = {name: pa.array(values, kind) for (name, kind), values in zip(TYPES.items(), columns, strict=True)}
    return read_log(pa.table(arrays).drop_columns(list(without)), normalise=False, patterns=False)


def change(one, other):
    """How much each count differs."""
    return {key: abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys()}


#: One user with any data at all, usable or not.
ZOE = rows_of(["zoe"], 9).filter(bool)


@seed(number("records", "exchange"))
@settings(max_examples=12, deadline=None)
@given(OTHERS, ZOE, ZOE, st.integers(1, 3), st.sampled_from(["first", "random"]))
def test_exchanging_a_users_data_moves_at_most_twice_the_cap_and_no_number_of_users(others, left, right, most, keep):
    worlds = [optin([*others, *zoe]) for zoe in (left, right)]
    one, other = (counted(tally(records_of(log, Bound(keep, "k"), most), RECORD)) for log in worlds)
    differences = change(one, other)
    assert sum(differences.values()) <= 2 * most
    assert max(differences.values(), default=0) <= 1
    assert number_of_users(worlds[0]) == number_of_users(worlds[1])


@seed(number("records", "parts"))
@settings(max_examples=5, deadline=None)
@given(OTHERS, ZOE, ZOE, st.sampled_from([Fraction(1, 2), Fraction(1, 3)]))
def test_exchanging_a_users_data_changes_one_part_only(others, left, right, share):
    rows = [*others, ("ann", 0, "ant", None), ("bob", 0, "bee", None)]
    seen = []
    for zoe in (left, right):
        log = optin([*rows, *zoe])
        parts = split_users(log, share, "key")
        seen.append([kept(parts.finders), parts.finding, parts.measuring])
        seen[-1] += [counted(tally(records_of(log, Bound(), 2, p), RECORD)) for p in (parts.finders, parts.measurers)]
    assert seen[0][:3] == seen[1][:3]
    changed = [sum(change(seen[0][i], seen[1][i]).values()) for i in (3, 4)]
    assert min(changed) == 0
    assert max(changed) <= 4


def test_a_search_without_a_click_is_a_record_of_its_own_and_repeats_count_once():
    log = optin(
        [
            ("ann", 1, "ant", None),
            ("ann", 2, "ant", "https://x.example/"),
            ("ann", 3, "ant", "https://x.example/"),
            ("bob", 1, None, "https://x.example/"),
        ]
    )
    assert kept(records_of(log, Bound(), 5)) == [("ann", "ant", ""), ("ann", "ant", "https://x.example/")]
    assert kept(records_of(log, Bound(), 1)) == [("ann", "ant", "")]
    assert number_of_users(log) == 2


def test_what_no_client_could_report_is_no_record_and_takes_no_place_of_one():
    longest = "x" * LONGEST
    rows = [
        ("ann", 1, longest + "x", None),
        ("ann", 3, WILDCARD, None),
        ("ann", 4, "ant", WILDCARD),
        ("ann", 5, longest, longest),
        ("bob", 1, WILDCARD, None),
    ]
    log = optin(rows)
    assert kept(records_of(log, Bound("first"), 1)) == [("ann", longest, longest)]
    assert number_of_users(log) == 2
    # A URL that is too long is removed when the log is read, like one with a token in it: the search stays.
    removed = optin([("ann", 2, "ant", longest + "x"), *rows])
    assert kept(records_of(removed, Bound("first"), 1)) == [("ann", "ant", "")]
    assert LONGEST == LONGEST_IN_LOG
    assert Domain.read("searches", [[longest, longest]], wildcard=True).cell(longest, longest) == 0


def test_what_reading_leaves_out_changes_no_number_of_users():
    """Exchange one user's data for data that every rule of reading leaves out; only the list of objectors counts."""
    seen = []
    for query, time in [("ant", 50), ("ant", 5), ("ant", None), ("denied ant", 50), ("a@b.example", 50), (" ", 50)]:
        data = {"user": ["ann", "zoe", "joe"], "query": ["ant", query, "ant"], "time": [50, time, 50]}
        log = read_log(data, since=10, until=100, drop=["denied", "denied ant"], exclude_users=["joe"])
        seen.append((number_of_users(log), split_users(log, "0.5", "k").finding, len(kept(log.table))))
    assert seen == [(2, 1, 2), *[(2, 1, 1)] * 5]


def test_a_log_without_urls_or_times_has_records_too():
    log = optin([("ann", 1, "ant", None), ("ann", 2, "bee", None)], without=["url", "time"])
    assert kept(records_of(log, Bound("first"), 5)) == [("ann", "ant", ""), ("ann", "bee", "")]
    assert len(kept(records_of(log, Bound("random", "k"), 1))) == 1


def test_random_records_depend_on_the_key_and_on_nothing_else():
    rows = [("ann", i, f"query {i}", None) for i in range(50)]
    of = {key: kept(records_of(optin(rows), Bound("random", key), 1)) for key in "abcdefgh"}
    assert len({str(kept_one) for kept_one in of.values()}) > 3
    assert of["a"] == kept(records_of(optin(rows[::-1]), Bound("random", "a"), 1))
    assert fresh_key(bits("key", 1)) != fresh_key(bits("key", 2))


@pytest.mark.parametrize(("share", "finding"), [("0.95", 19), ("0.5", 10), ("0.124", 2), ("0.125", 3), ("0.126", 3)])
def test_the_size_of_each_part_is_exact(share, finding):
    log = optin([(f"user {i}", 0, None if i % 3 else "ant", None) for i in range(20)])
    parts = split_users(log, share, "k")
    assert (parts.finding, parts.measuring) == (finding, 20 - finding)
    users = [[user for (user,) in kept(part)] for part in (parts.finders, parts.measurers)]
    assert [len(part) for part in users] == [finding, 20 - finding]
    assert Counter(users[0] + users[1]) == Counter(f"user {i}" for i in range(20))
    assert "user 1" not in repr(parts)


def test_parts_differ_by_key():
    log = optin([(f"user {i}", 0, "ant", None) for i in range(20)])
    assert len({str(kept(split_users(log, "0.5", key).finders)) for key in "abcdef"}) == 6


def test_refusals_say_what_to_do():
    log = optin([("ann", 0, "ant", None), ("bob", 0, "ant", None)])
    with pytest.raises(DataError, match="would be empty"):
        split_users(log, "0.95", "k")
    for share in (0, 1, "1.5", -1):
        with pytest.raises(UsageError, match="above 0 and below 1"):
            split_users(log, share, "k")
    with pytest.raises(UsageError, match="whole number"):
        records_of(log, Bound(), 0)
