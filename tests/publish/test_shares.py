"""Everything that takes a release takes one of shares too, and never mixes the two."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hushquery.errors import DataError
from hushquery.publish import SearchIndex, classify, correct, find, keywords, look_up, similar, suggest, trends
from hushquery.publish.tables import click_graph, queries_of
from hushquery.publish.trends import trend_chart
from hushquery.release.intervals import published
from hushquery.release.manifest import SHARE_SCALE
from small_releases import RECORDS, private_hybrid, release_of, shares_of
from statistical import number, rate_at_most

SHARES = {"weather leeds": 0.09, "weather": 0.065, "news": 0.06, "waether leeds": 0.003}
CLICKS = {
    ("weather leeds", "https://weather.example.org/leeds"): 0.05,
    ("weather leeds", "https://weather.example.org/"): 0.01,
    ("weather leeds", ""): 0.03,
    ("weather", "https://weather.example.org/"): 0.04,
    ("weather", ""): 0.025,
    ("news", "https://news.example.org/"): 0.06,
    ("waether leeds", ""): 0.003,
}


@pytest.fixture(scope="module")
def release():
    return shares_of(SHARES, CLICKS)


def scaled():
    """The same numbers as counts of 100,000 records."""
    queries = {query: round(share * SHARE_SCALE) for query, share in SHARES.items()}
    clicks = {key: round(share * SHARE_SCALE) for key, share in CLICKS.items()}
    return release_of(queries, clicks, stderr=0.001 * SHARE_SCALE)


def test_a_share_weighs_as_its_count_among_so_many_records(release):
    counts = scaled()
    assert published(release.clicks).weight == pytest.approx(published(counts.clicks).weight)
    for text in ("waether leds", "weather", "newz", "le"):
        ours, theirs = SearchIndex(release).search(text), SearchIndex(counts).search(text)
        assert [(hit.query, hit.why) for hit in ours.queries] == [(hit.query, hit.why) for hit in theirs.queries]
        assert [hit.score for hit in ours.queries] == pytest.approx([hit.score for hit in theirs.queries])
        assert [hit.url for hit in ours.urls] == [hit.url for hit in theirs.urls]
        assert [hit.share for hit in ours.urls] == pytest.approx([hit.clicks / SHARE_SCALE for hit in theirs.urls])
        assert all(hit.clicks is None for hit in ours.urls)
    assert correct(release, "waether leeds").query == correct(counts, "waether leeds").query == "weather leeds"
    assert [s.query for s in similar(release, "weather")] == [s.query for s in similar(counts, "weather")]
    assert keywords(release, "weather", gamma=0.01).keywords[0].probability == pytest.approx(
        keywords(counts, "weather", gamma=0.01).keywords[0].probability
    )


def test_search_gives_shares_and_their_intervals(release):
    hit = SearchIndex(release).search("weather leeds").queries[0]
    assert (hit.count, hit.share, hit.low, hit.high) == (None, 0.09, pytest.approx(0.088), pytest.approx(0.092))


def test_a_search_without_a_click_is_no_page(release):
    index = SearchIndex(release)
    assert "" not in {hit.url for text in SHARES for hit in index.search(text).urls}
    assert "" not in click_graph(release, "").urls
    about = look_up(release, "weather")
    assert [row.name for row in about.urls] == ["https://weather.example.org/"]
    assert (about.unclicked.share, about.unclicked.count) == (0.025, None)
    assert look_up(release, "waether leeds").urls == ()
    assert look_up(release, "news").unclicked is None
    # They share no page: not having clicked is nothing in common.
    assert similar(release, "waether leeds") == ()
    assert suggest(release, "waether leeds") == ()


def test_the_other_functions_give_shares(release):
    assert look_up(release, "Weather").share == 0.065
    assert [(row.rank, row.query, row.share, row.count) for row in find(release, "weather*")] == [
        (1, "weather leeds", 0.09, None),
        (2, "weather", 0.065, None),
    ]
    found = keywords(release, "https://weather.example.org/", gamma=0.1).keywords
    assert {row.query: row.share for row in found} == {"weather": 0.065, "weather leeds": 0.09}
    classes = classify(release, {"https://news.example.org/": "press", "weather": "sky"})
    assert {row.query: row.label for row in classes.queries}["weather leeds"] == "sky"
    reasons = correct(release, "waether leeds").reasons
    assert "its share is about 9%, that of the text 0.3%" in reasons
    assert queries_of(release).measure == "share"


def test_the_most_frequent_of_one_release(release):
    found = trends(release, limit=2)
    assert [(row.rank, row.query, row.share, row.count, row.value) for row in found.top] == [
        (1, "weather leeds", 0.09, None, 0.09),
        (2, "weather", 0.065, None, 0.065),
    ]
    assert found.measure == "share"
    assert "Shares are noisy" in found.notes[0]


def test_changes_of_shares_by_hand():
    old = shares_of({"a": 0.10, "b": 0.10, "old": 0.2}, stderr=0.003)
    new = shares_of({"a": 0.10, "b": 0.13, "new": 0.2}, stderr=0.004)
    found = trends([old, new])
    b, a = found.changes
    assert (b.query, b.shares, b.counts, b.significant) == ("b", (0.10, 0.13), (), True)
    assert b.change == pytest.approx(0.03)
    assert b.stderr == pytest.approx(math.sqrt(0.003**2 + 0.004**2))
    assert b.low == pytest.approx(0.03 - 2 * 0.005)  # intervals of two standard errors
    assert (a.change, a.significant) == (0.0, False)
    assert [(row.query, row.shares, row.counts) for row in found.appeared] == [("new", (None, 0.2), ())]
    assert [(row.query, row.shares) for row in found.gone] == [("old", (0.2, None))]
    assert any("head list" in note for note in found.notes)


def test_the_interval_of_a_change_covers_it():
    """Two epochs with Gaussian errors of different sizes, and with Laplace errors: at least 95 of 100 cover."""
    rng = np.random.default_rng(number("coverage of changes of shares"))
    names = [f"q{i:04}" for i in range(2000)]
    for draw in (rng.normal, lambda _, s, n: rng.laplace(0, s / math.sqrt(2), n)):
        releases = []
        for truth, stderr in ((2e-4, 2e-5), (3e-4, 4e-5)):
            noisy = np.clip(truth + draw(0, stderr, len(names)), 0, 1)
            releases.append(shares_of(dict(zip(names, noisy.tolist(), strict=True)), stderr=stderr))
        missed = sum(not row.low <= 1e-4 <= row.high for row in trends(releases, limit=len(names)).changes)
        rate_at_most(missed, len(names), 0.05, "changes outside their interval")


def test_counts_and_shares_are_not_compared(release):
    for pair in ([release, release_of({"weather": 5})], [release_of({"weather": 5}), release]):
        with pytest.raises(DataError, match="can't be compared") as refused:
            trends(pair)
        assert refused.value.fix
    middle = [release, release_of({"weather": 5}), release]
    with pytest.raises(DataError, match="can't be compared"):
        trends(middle)
    bare = replace(release_of(["weather"]), guarantees=release.guarantees)
    assert trends([bare, release]).measure == "share"


def test_releases_made_in_another_mode_are_not_alike():
    pair = [shares_of(SHARES, parameters={"mode": mode}) for mode in ("paper", "best")]
    assert any("different mode" in note for note in trends(pair).notes)


def test_charts_are_in_per_cent(release):
    for several in ([release], [release, release]):
        text = json.dumps(json.loads(trend_chart(trends(several), several).to_json()))
        assert "noisy share" in text
        assert "%" in text


def test_the_hybrid_release_of_the_tests_is_what_a_blend_gives():
    made = private_hybrid()
    assert made.records.num_rows == len(RECORDS)
    assert sum(made.queries["share"].to_pylist()) == pytest.approx(sum(row[2] for row in RECORDS.values()))
    for optin, client, share, _ in RECORDS.values():
        assert share == pytest.approx(0.2 * optin + 0.8 * client, abs=5e-4)


def test_a_query_whose_listed_pages_changed_did_not_change_for_sure():
    before = shares_of({"a": 0.30, "b": 0.10}, {("a", "x"): 0.2, ("a", "y"): 0.1, ("b", "z"): 0.1})
    after = shares_of({"a": 0.20, "b": 0.13}, {("a", "x"): 0.2, ("b", "z"): 0.13})
    found = {change.query: change for change in trends([before, after]).changes}
    assert (found["a"].relisted, found["a"].significant) == (True, False)
    assert (found["b"].relisted, found["b"].significant) == (False, True)
    assert any("other pages are listed" in note for note in trends([before, after]).notes)
    assert not any("other pages are listed" in note for note in trends([before, before]).notes)
