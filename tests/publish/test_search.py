"""Searching a release, in many scripts, with mistakes, and with what nobody should type."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.publish import SearchIndex
from hushquery.publish.text import fold
from small_releases import CLICKS, QUERIES, release_of, whole_release

INDEX = SearchIndex(whole_release())

WORLD = {
    "北京天气预报": 300,
    "上海天气": 200,
    "北京大学": 250,
    "東京タワー": 120,
    "สภาพอากาศ กรุงเทพ": 80,
    "طقس القاهرة": 150,
    "أخبار اليوم": 90,
    "מזג אוויר ירושלים": 110,
    "חדשות": 60,
    "погода москва": 140,
    "날씨 서울": 70,
    "मौसम दिल्ली": 65,
    "😂 meme": 40,
    "crème brûlée": 55,
    "c++": 30,
    "c": 20,
}
ABROAD = SearchIndex(release_of(WORLD))


def first(index, text):
    hits = index.search(text).queries
    return hits[0].query if hits else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weather leeds", "weather leeds"),
        ("  WEATHER   Leeds ", "weather leeds"),
        ("waether leds", "weather leeds"),
        ("leeds weather", "weather leeds"),
        ("wether londno", "weather london"),
        ("weatherlondon", "weather london"),
        ("newz", "news"),
        ("fear of fly", "fear of flying"),
        ("hieghts", "fear of heights"),
        ("leeds united ticket", "leeds united tickets"),
    ],
)
def test_finds_what_was_meant(text, expected):
    assert first(INDEX, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("北京天气", "北京天气预报"),
        ("天气预报", "北京天气预报"),
        ("上海天汽", "上海天气"),
        ("大学", "北京大学"),
        ("東京タワ", "東京タワー"),
        ("กรุงเทพ", "สภาพอากาศ กรุงเทพ"),
        ("طقس القاهره", "طقس القاهرة"),
        ("طَقْس القاهرة", "طقس القاهرة"),
        ("اخبار", "أخبار اليوم"),
        ("אויר ירושלים", "מזג אוויר ירושלים"),
        ("חֲדָשׁוֹת", "חדשות"),
        ("ПОГОДА Масква", "погода москва"),
        ("서울 날씨", "날씨 서울"),
        ("दिल्ली", "मौसम दिल्ली"),
        ("😂", "😂 meme"),
        ("creme brulee", "crème brûlée"),
        ("c++", "c++"),
        ("C", "c"),
    ],
)
def test_finds_it_in_any_script(text, expected):
    assert first(ABROAD, text) == expected


def test_the_same_text_comes_first_however_rare_it_is():
    index = SearchIndex(release_of({"cat": 1, "cats": 100_000, "cat food": 100_000}))
    hits = index.search("cat").queries
    assert hits[0].query == "cat"
    assert (hits[0].quality, hits[0].why) == (1.0, "the same text")


def test_of_equal_matches_the_more_frequent_comes_first():
    index = SearchIndex(release_of({"news abcd": 10, "news efgh": 500, "news ijkl": 90}))
    assert [hit.query for hit in index.search("news").queries] == ["news efgh", "news ijkl", "news abcd"]


def test_the_score_is_the_kind_and_a_fraction_by_count():
    largest = math.log(2 + max(QUERIES.values()))
    kinds = {"the same text": 6, "starts with the text": 5}
    hits = INDEX.search("weather").queries
    assert {hit.query for hit in hits} >= {"weather", "weather leeds", "weather london"}
    for hit in hits:
        if hit.why in kinds:
            part = 0.9 * math.log(2 + max(0, QUERIES[hit.query])) / largest
            assert hit.score == pytest.approx(kinds[hit.why] + part)
        assert 0 < hit.quality <= 1
        assert hit.count == QUERIES[hit.query]
        assert (hit.low, hit.high) == (hit.count - 10, hit.count + 10)


def test_urls_add_up_over_queries_by_the_documented_formula():
    found = INDEX.search("weather", limit=50)
    best = max(hit.quality for hit in found.queries)
    votes = {hit.query: hit.quality for hit in found.queries if hit.quality >= best / 2}
    expected = {}
    for (query, url), clicks in CLICKS.items():
        if query in votes and clicks > 0:
            expected[url] = expected.get(url, 0) + votes[query] ** 2 * clicks
    assert {hit.url: hit.score for hit in found.urls} == pytest.approx(expected)
    assert [hit.score for hit in found.urls] == sorted(expected.values(), reverse=True)
    assert found.urls[0].url == "https://weather.example.org/"
    assert found.urls[0].queries[0] == "weather"
    assert found.urls[0].clicks == sum(
        c for (q, u), c in CLICKS.items() if u == "https://weather.example.org/" and q in found.urls[0].queries
    )


def test_negative_clicks_lead_nowhere():
    urls = [hit.url for hit in INDEX.search("weather london").urls]
    assert urls[0] == "https://weather.example.org/"
    assert "https://news.example.org/" not in urls


def test_negative_counts_are_shown_but_weigh_nothing():
    index = SearchIndex(release_of({"weather york": -7, "weather bath": 3}))
    hits = index.search("weather").queries
    assert [(hit.query, hit.count) for hit in hits] == [("weather bath", 3), ("weather york", -7)]
    assert all(hit.score > 0 for hit in hits)


def test_clicks_of_bad_matches_do_not_vote():
    release = release_of(
        {"apple pie": 50, "apple store": 9_000},
        {("apple pie", "https://pie.example.org/"): 5, ("apple store", "https://shop.example.org/"): 9_000},
    )
    assert [hit.url for hit in SearchIndex(release).search("apple pie").urls] == ["https://pie.example.org/"]


def test_a_release_without_clicks_gives_queries_and_says_so():
    found = ABROAD.search("北京")
    assert found.urls == ()
    assert found.queries
    assert "no clicks" in found.notes[0]


def test_a_list_without_counts_ranks_by_match_alone():
    found = SearchIndex(release_of(["weather leeds", "weather", "news"])).search("weather leed")
    assert found.queries[0].query == "weather leeds"
    assert found.queries[0].count is found.queries[0].low is None
    assert any("no counts" in note for note in found.notes)


def test_a_release_without_queries_is_refused_with_a_reason():
    with pytest.raises(DataError, match="no table of queries"):
        SearchIndex(release_of(None, {("a", "https://example.org/"): 3}))


@pytest.mark.parametrize("limit", [0, -1, True, 2.5])
def test_limits_must_make_sense(limit):
    with pytest.raises(UsageError, match="at least 1"):
        INDEX.search("weather", limit)


def test_limits_limit():
    found = INDEX.search("weather leeds united", limit=2)
    assert len(found.queries) == len(found.urls) == 2


@pytest.mark.parametrize("text", ["", "   ", "\u200b\u202e", "zzzzqqq", "0", "\x00", "\ud800"])
def test_nothing_is_found_for_nothing(text):
    assert INDEX.search(text).queries == ()


@pytest.mark.parametrize(
    "text",
    [
        ".*",
        "(((((",
        "[a-z]+$",
        "\\",
        "*" * 1000,
        "weather " * 10_000,
        "w" * 100_000,
        "天" * 50_000,
        "😀" * 5_000,
        "\U0010ffff",
        "'; DROP TABLE queries; --",
        "\x1b[31mweather",
    ],
)
def test_hostile_texts_do_no_harm(text):
    for index in (INDEX, ABROAD):
        for hit in index.search(text).queries:
            assert 0 < hit.quality <= 1


def test_an_empty_release_finds_nothing():
    assert SearchIndex(release_of({}, {})).search("weather").queries == ()


def test_queries_that_differ_only_in_accents_are_both_found():
    hits = SearchIndex(release_of({"resume": 5, "résumé": 50})).search("RESUME").queries
    assert [(hit.query, hit.quality) for hit in hits] == [("résumé", 1.0), ("resume", 1.0)]


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12, unique=True), st.data())
def test_every_released_query_finds_itself(queries, data):
    index = SearchIndex(release_of({query: place - 3 for place, query in enumerate(queries)}))
    text = data.draw(st.sampled_from(queries))
    hits = index.search(text, limit=20).queries
    if fold(text):
        assert hits[0].quality == 1.0
        assert text in [hit.query for hit in hits if hit.quality == 1.0]
    else:
        assert not hits


@given(st.text(max_size=30))
def test_any_text_gives_an_ordered_answer(text):
    hits = INDEX.search(text).queries
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_one_mistake_anywhere_in_a_long_query_is_found():
    wanted = "leeds united tickets"
    for place in range(len(wanted)):
        typed = wanted[:place] + "x" + wanted[place + 1 :]
        assert first(INDEX, typed) == wanted


WEATHER = {
    "weather this weekend": 4008,
    "weather london": 2036,
    "weather warning": 1152,
    "snow forecast": 1090,
    "weather radar": 1012,
    "10 day weather forecast": 857,
    "weather paris": 793,
    "weather tomorrow": 737,
    "weather": 728,
    "rain today": 725,
    "wether this weekend": 186,
    "train times": 180,
    "how to tie a tie": 170,
    "how to boil eggs": 160,
    "pancake recipe": 150,
    "banana bread recipe": 140,
}
SKY = SearchIndex(release_of(WEATHER))
HOLD_IT = sorted((query for query in WEATHER if "weather" in query.split()), key=lambda query: -WEATHER[query])


def found(text, limit=50):
    return [hit.query for hit in SKY.search(text, limit).queries]


def test_every_query_with_the_word_is_found_by_count_before_those_that_nearly_have_it():
    assert found("weather") == ["weather", *[q for q in HOLD_IT if q != "weather"], "wether this weekend"]


def test_a_misspelt_word_finds_every_query_with_the_right_one():
    assert found("wether") == ["wether this weekend", *HOLD_IT]


def test_all_words_come_before_some_words_and_no_query_with_a_word_is_left_out():
    hits = found("weather forecast")
    assert hits[0] == "10 day weather forecast"
    assert set(hits) == {*HOLD_IT, "snow forecast", "wether this weekend"}
    assert [q for q in hits[1:] if q in HOLD_IT] == [q for q in HOLD_IT if q != hits[0]]
    assert hits[-1] == "wether this weekend"


def test_a_piece_of_a_word_is_not_the_word():
    assert found("how to") == ["how to tie a tie", "how to boil eggs"]
    assert found("rain") == ["rain today"]
    assert found("train") == ["train times"]
    assert found("ain") == []


def test_the_beginning_of_the_last_word_counts_anywhere_in_a_query():
    assert found("weath") == HOLD_IT
    assert found("recipe ban") == ["banana bread recipe", "pancake recipe"]
    assert found("to") == ["how to tie a tie", "how to boil eggs", "rain today", "weather tomorrow"]
    assert found("to ") == found("to")


def test_a_known_word_is_no_mistake_for_one_around_it_but_an_unknown_one_is():
    index = SearchIndex(release_of({"rain": 10, "train": 500, "news": 70}))
    assert [hit.query for hit in index.search("rain").queries] == ["rain"]
    assert [hit.query for hit in index.search("newss").queries] == ["news"]


def test_a_word_that_is_there_is_not_taken_by_one_that_is_nearly_it():
    hits = {hit.query: hit for hit in SKY.search("wether weather", 50).queries}
    assert hits["weather radar"].why == "has some of the words: weather"


def test_what_is_beyond_the_limit_is_counted():
    few = SKY.search("weather", 3)
    assert (len(few.queries), few.more_queries) == (3, len(HOLD_IT) + 1 - 3)
    assert SKY.search("weather", 50).more_queries == 0


def test_none_of_very_many_queries_with_the_word_is_left_out():
    many = {f"weather place{i}": 10_000 - i for i in range(2500)}
    index = SearchIndex(release_of({"ten day weather": 1, "wether map": 90_000, **many}))
    few, all_ = index.search("weather", 5), index.search("weather", 3000)
    assert [hit.query for hit in few.queries] == list(many)[:5]
    assert few.more_queries == 2502 - 5
    assert [hit.query for hit in all_.queries] == [*many, "ten day weather", "wether map"]
    assert [hit.query for hit in index.search("weather", 10_000).queries] == [*many, "ten day weather", "wether map"]
    assert {hit.query for hit in index.search("waether", 3000).queries} == {*many, "ten day weather", "wether map"}
