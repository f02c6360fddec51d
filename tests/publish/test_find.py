"""Patterns against an oracle, ranks, and hostile patterns."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.publish import find
from hushquery.publish.search import pattern_expression
from hushquery.publish.text import fold
from small_releases import release_of, whole_release

FEARS = {
    "fear of flying": 120,
    "Fear of Spiders": 300,
    "fear of": 3,
    "fear of the dark": 110,
    "fear off heights": 8,
    "spider phobia": 60,
    "phobia": 90,
    "no fear of heights": 40,
}


def matches(pattern, text):
    return pattern_expression(pattern).fullmatch(fold(text)) is not None


@cache
def fits(pattern, text):
    """What * and ? mean, one character at a time."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return fits(pattern[1:], text) or (bool(text) and fits(pattern, text[1:]))
    return bool(text) and pattern[0] in ("?", text[0]) and fits(pattern[1:], text[1:])


@given(st.text(alphabet="ab*?", max_size=10), st.text(alphabet="ab", max_size=10))
def test_patterns_mean_what_they_say(pattern, text):
    assert matches(pattern, text) == fits(pattern, text)


@given(st.text(alphabet="a.[]^$\\(){}+|-*?!", max_size=8), st.text(alphabet="a.[]^$\\(){}+|-!", max_size=8))
def test_everything_but_star_and_question_mark_stands_for_itself(pattern, text):
    assert matches(pattern, text) == fits(pattern, text)


@given(st.text(max_size=20))
def test_any_text_fits_a_star_and_itself(text):
    assert matches("*", text)
    assert "*" in text or "?" in text or matches(text, text)


def test_fears_ranked():
    found = find(release_of(FEARS, stderr=10.0), "fear of *")
    assert [(row.rank, row.query, row.count) for row in found] == [
        (1, "Fear of Spiders", 300),
        (2, "fear of flying", 120),
        (3, "fear of the dark", 110),
    ]
    # intervals of +-20: the spiders are first for sure, the others may be either way round
    assert [(row.best_rank, row.worst_rank) for row in found] == [(1, 1), (2, 3), (2, 3)]
    assert (found[0].low, found[0].high) == (280, 320)


def test_one_of_several_patterns_is_enough_and_counts_once():
    found = find(release_of(FEARS), ["fear of *", "* phobia", "fear of f*"])
    assert [row.query for row in found] == ["Fear of Spiders", "fear of flying", "fear of the dark", "spider phobia"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("phobia", ["phobia"]),
        ("PHOB??", ["phobia"]),
        ("phob?", []),
        ("*phobia", ["phobia", "spider phobia"]),
        ("fear  of  *dark", ["fear of the dark"]),
        ("fear of?flying", ["fear of flying"]),
        ("*", sorted(FEARS, key=lambda q: -FEARS[q])),
        ("**", sorted(FEARS, key=lambda q: -FEARS[q])),
        ("[f]ear of *", []),
        ("fear.of.*", []),
    ],
)
def test_patterns(pattern, expected):
    assert [row.query for row in find(release_of(FEARS), pattern)] == expected


def test_patterns_in_other_scripts():
    release = release_of({"怕黑": 9, "怕高": 8, "الخوف من الطيران": 7, "פחד גבהים": 6, "😱 movie": 5, "Crème": 4})
    for pattern, expected in (
        ("怕?", ["怕黑", "怕高"]),
        ("الخَوف من *", ["الخوف من الطيران"]),
        ("פַּחַד *", ["פחד גבהים"]),
        ("?? movie", []),
        ("? movie", ["😱 movie"]),
        ("creme", ["Crème"]),
    ):
        assert [row.query for row in find(release, pattern)] == expected


@pytest.mark.parametrize("pattern", ["", "  ", [], ["", " "]])
def test_an_empty_pattern_is_refused(pattern):
    with pytest.raises(UsageError, match="pattern is empty"):
        find(whole_release(), pattern)


def test_patterns_that_blow_up_other_matchers():
    release = release_of({"a" * 2_000 + "c": 1})
    assert find(release, "*a" * 200 + "*b") == ()
    assert len(find(release, "*a" * 200 + "*c")) == 1
    assert find(release, "(" * 1_000) == find(release, "x" * 100_000) == ()


def test_ranks_do_not_depend_on_the_limit():
    release = release_of(FEARS, stderr=10.0)
    assert find(release, "*", limit=2) == find(release, "*")[:2]
    with pytest.raises(UsageError):
        find(release, "*", limit=0)


def test_without_counts_there_are_no_ranks():
    found = find(release_of(["fear of b", "fear of a", "news"]), "fear *")
    assert [(row.rank, row.query, row.count, row.best_rank) for row in found] == [
        (None, "fear of a", None, None),
        (None, "fear of b", None, None),
    ]
    with pytest.raises(DataError):
        find(release_of(None, {("a", "https://example.org/"): 3}), "*")
