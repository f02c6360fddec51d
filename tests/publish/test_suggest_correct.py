"""Suggestions, similar queries, spelling, and what a release says of one query."""

from __future__ import annotations

import math

import pytest

from hushquery.errors import DataError, UsageError
from hushquery.publish import SearchIndex, correct, look_up, similar, suggest
from small_releases import CLICKS, QUERIES, REFORMULATIONS, release_of, whole_release

RELEASE = whole_release()


def test_what_people_went_on_to_comes_before_what_shares_clicks():
    found = suggest(RELEASE, "weather")
    assert [(row.query, row.source) for row in found] == [
        ("weather leeds", "reformulation"),
        ("weather london", "clicks"),
    ]
    assert (found[0].count, found[0].low, found[0].high, found[0].cosine) == (120, 110, 130, None)
    assert (found[1].count, found[1].low) == (None, None)
    assert found[1].cosine == pytest.approx(1)


def test_noisy_counts_below_zero_suggest_nothing():
    assert "news" not in [row.query for row in suggest(RELEASE, "weather")]


def test_suggestions_from_one_table_alone():
    no_clicks = release_of(QUERIES, None, REFORMULATIONS)
    assert [row.query for row in suggest(no_clicks, "WEATHER ")] == ["weather leeds"]
    no_next = release_of(QUERIES, CLICKS)
    assert [row.query for row in suggest(no_next, "weather")] == ["weather london", "weather leeds"]


def test_suggestions_need_one_of_the_tables():
    with pytest.raises(DataError, match="neither reformulations nor clicks") as refused:
        suggest(release_of(QUERIES), "weather")
    assert "--reformulations-per-user" in refused.value.fix


def test_suggestions_fill_up_to_the_limit_but_not_over():
    clicks = {(f"q{i}", "https://example.org/"): 5 for i in range(30)}
    release = release_of({f"q{i}": 9 for i in range(30)}, clicks, {("q0", f"q{i}"): i for i in range(1, 4)})
    found = suggest(release, "q0", limit=10)
    assert len(found) == len({row.query for row in found}) == 10
    assert [row.query for row in found[:3]] == ["q3", "q2", "q1"]
    assert len(suggest(release, "q0", limit=2)) == 2


@pytest.mark.parametrize("text", ["", "never seen", "x" * 10_000, ".*"])
def test_unknown_queries_have_no_neighbours(text):
    assert suggest(RELEASE, text) == similar(RELEASE, text) == ()
    assert look_up(RELEASE, text) is None


def test_cosines_by_hand():
    found = {row.query: row for row in similar(RELEASE, "weather leeds")}
    # (500, 100) against (2, 0), and against (0, 400), in the order of the two weather pages
    assert found["waether leeds"].cosine == pytest.approx(500 / math.hypot(500, 100))
    assert found["weather"].cosine == pytest.approx(100 / math.hypot(500, 100))
    assert found["weather"].shared == ("https://weather.example.org/",)
    assert "weather leeds" not in found
    assert "news" not in found  # the negative edge from London to the news page is no click
    assert [row.cosine for row in similar(RELEASE, "weather leeds")] == sorted(
        (row.cosine for row in found.values()), reverse=True
    )


def test_similar_needs_clicks():
    with pytest.raises(DataError, match="no table of clicks"):
        similar(release_of(QUERIES), "weather")


def test_a_query_without_clicks_is_like_no_other():
    assert similar(RELEASE, "fear of flying") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("waether leeds", "weather leeds"),
        ("weather leads", "weather leeds"),
        ("Leeds Untied", "leeds united"),
        ("newws", "news"),
        ("fearof flying", "fear of flying"),
    ],
)
def test_spelling(text, expected):
    found = correct(RELEASE, text)
    assert found is not None
    assert found.query == expected
    assert found.reasons[0].endswith("away")


@pytest.mark.parametrize("text", ["weather", "WEATHER  leeds", "news", "", "something else entirely", "xy"])
def test_nothing_to_correct(text):
    assert correct(RELEASE, text) is None


def test_a_frequent_mistake_is_corrected_for_reasons():
    found = correct(RELEASE, "waether leeds")
    assert found is not None
    assert found.known
    assert found.score > 0
    assert any("20 went on" in reason for reason in found.reasons)
    assert any("few clicks" in reason for reason in found.reasons)


def test_two_words_that_people_mean_are_left_alone():
    release = release_of({"whether": 300, "weather": 900})
    assert correct(release, "whether") is None
    assert correct(release, "weather") is None


def test_reformulations_tip_the_scales():
    counts = {"letuce": 40, "lettuce": 400}
    assert correct(release_of(counts), "letuce") is None
    found = correct(release_of(counts, None, {("letuce", "lettuce"): 30}), "letuce")
    assert found is not None
    assert found.query == "lettuce"


def test_clicks_on_the_text_speak_against_a_mistake():
    counts = {"flickr": 100, "flicker": 3_000}
    pages = {("flicker", "https://light.example.org/"): 1_000}
    assert correct(release_of(counts, pages), "flickr") is not None
    happy = {**pages, ("flickr", "https://photos.example.org/"): 100}
    assert correct(release_of(counts, happy), "flickr") is None


def test_digits_are_never_corrected():
    release = release_of({"iphone 15": 5_000})
    assert correct(release, "iphone 14") is None
    found = correct(release, "ihpone 15")
    assert found is not None
    assert found.query == "iphone 15"


def test_spelling_in_other_scripts():
    release = release_of({"北京天气预报": 50, "القاهرة": 40, "ירושלים": 30})
    for text, expected in (("北京天汽预报", "北京天气预报"), ("القاهر", "القاهرة"), ("ירושליים", "ירושלים")):
        found = correct(release, text)
        assert found is not None
        assert found.query == expected


def test_spelling_from_a_list_without_counts_and_with_negative_ones():
    found = correct(release_of(["weather"]), "wether")
    assert found is not None
    assert found.query == "weather"
    assert found.reasons == ("1 typing mistake away", "the text is not in the release")
    found = correct(release_of({"weather": -5}), "wether")
    assert found is not None
    assert math.isfinite(found.score)


def test_an_index_may_be_used_again():
    index = SearchIndex(RELEASE)
    assert correct(RELEASE, "newws", index=index) == correct(RELEASE, "newws")


def test_everything_about_a_query_as_released():
    about = look_up(RELEASE, "Weather")
    assert about is not None
    assert (about.query, about.count, about.low, about.high) == ("weather", 650, 640, 660)
    assert [(row.name, row.count) for row in about.urls or ()] == [("https://weather.example.org/", 400)]
    assert [(row.name, row.count) for row in about.next_queries or ()] == [("weather leeds", 120), ("news", -4)]
    assert len((look_up(RELEASE, "weather leeds", limit=1) or about).urls or ()) == 1


def test_missing_tables_are_told_from_empty_ones():
    about = look_up(release_of({"a": 3}, {}), "a")
    assert about is not None
    assert about.urls == ()
    assert about.next_queries is None
    bare = look_up(release_of(["a"]), "a")
    assert bare is not None
    assert (bare.count, bare.urls) == (None, None)


def test_the_released_form_wins_over_the_folded_one():
    release = release_of({"resume": 5, "résumé": 50})
    for text, expected in (("resume", "resume"), ("résumé", "résumé"), ("RESUMÉ", "résumé")):
        about = look_up(release, text)
        assert about is not None
        assert about.query == expected


@pytest.mark.parametrize("call", [suggest, similar, look_up])
def test_limits_must_make_sense(call):
    with pytest.raises(UsageError, match="at least 1"):
        call(RELEASE, "weather", 0)
