"""Keyword and fears agreement: exact on cases worked out by hand, silent about what only the log knows."""

from __future__ import annotations

import json

import pytest

from hushquery.errors import DataError, UsageError
from hushquery_experiments.korolova2009.agreement import (
    GAMMAS,
    WALK_ALPHA,
    fears_agreement,
    keyword_agreement,
    raw_click_graph,
)
from hushquery_experiments.unpublishable import MARK
from small_releases import release_of

SHOP, NEWS = "https://shop.example.org", "https://news.example.com/today"
CLICKS = {  # (query, url): users
    ("red shoes", f"{SHOP}/red"): 3,
    ("blue shoes", f"{SHOP}/blue"): 2,
    ("odd laces", f"{SHOP}/odd"): 1,  # one person: no release will have it
    ("headlines", NEWS): 4,
    ("shoe news", NEWS): 1,
    ("shoe news", f"{SHOP}/red"): 1,
}


def log_of(clicks):
    rows = [
        (f"u{place}{number}", query, url)
        for place, ((query, url), n) in enumerate(clicks.items())
        for number in range(n)
    ]
    return {
        "user": [row[0] for row in rows],
        "time": list(range(len(rows))),
        "query": [row[1] for row in rows],
        "url": [row[2] for row in rows],
    }


def release_with(clicks):
    return release_of({query: 50 for query, _ in clicks}, clicks)


LOG = log_of(CLICKS)
TOPICS = {"shoes": ["shop.example.org"], "news": [NEWS]}


def scores(agreement, gamma):
    return {score.topic: score for score in (*agreement.topics, *agreement.together) if score.gamma == gamma}


def test_a_release_without_noise_agrees_in_everything():
    found = keyword_agreement(LOG, release_with(CLICKS), TOPICS)
    assert len(found.topics) == len(TOPICS) * len(GAMMAS)
    for score in (*found.topics, *found.together):
        assert score.private == score.raw == score.raw_released == score.both > 0
        assert score.precision == score.recall == score.recall_released == score.jaccard == 1.0


def test_alpha_lets_a_direct_click_reach_the_largest_gamma():
    assert max(GAMMAS) <= 1 - WALK_ALPHA


def test_what_the_release_lacks_lowers_recall_and_what_noise_adds_lowers_precision():
    noisy = {
        ("red shoes", f"{SHOP}/red"): 3,
        ("headlines", NEWS): 4,
        ("shoe news", f"{SHOP}/red"): 5,  # its click on the news fell below the threshold
    }
    found = scores(keyword_agreement(LOG, release_with(noisy), TOPICS, gammas=[0.9]), 0.9)
    shoes = found["shoes"]  # the log has red, blue and odd; the release red and, wrongly, news of shoes
    assert (shoes.private, shoes.raw, shoes.raw_released, shoes.both) == (2, 3, 1, 1)
    assert (shoes.precision, shoes.recall, shoes.recall_released, shoes.jaccard) == (1 / 2, 1 / 3, 1.0, 1 / 4)
    news = found["news"]
    assert (news.private, news.raw, news.both, news.jaccard) == (1, 1, 1, 1.0)
    together = found["all"]
    assert (together.private, together.raw, together.raw_released, together.both) == (3, 4, 2, 2)
    assert together.precision == 2 / 3


def test_the_walk_goes_on_until_it_is_lost_or_at_a_seed():
    # By hand, a = 0.97. From "shoe news" half goes to the news, half to the red page U; from there 3/4 to "red shoes",
    # which leads back: U = a (3/4 a U + x/4), x = a/2 + a/2 U. So x = 0.808, "red shoes" a U = 0.646, "headlines" a.
    found = keyword_agreement(LOG, release_with(CLICKS), TOPICS, gammas=(0.64, 0.65, 0.8, 0.81, 0.97, 0.98))
    assert [score.raw for score in found.topics if score.topic == "news"] == [3, 2, 2, 1, 1, 0]


def test_seeds_may_be_queries_and_are_no_keywords_themselves():
    # By hand: "shoe news" reaches "red shoes" with 0.703, through the news "headlines" does with 0.535.
    found = keyword_agreement(LOG, release_with(CLICKS), {"red": ["red shoes"]}, gammas=(0.53, 0.54, 0.70, 0.71))
    assert [score.raw for score in found.topics] == [score.private for score in found.topics] == [2, 1, 1, 0]


def test_a_topic_that_nobody_knows_has_no_shares():
    found = keyword_agreement(LOG, release_with(CLICKS), {"unheard of": ["nowhere.example.net"]}, gammas=[0.5])
    for score in (*found.topics, *found.together):
        assert (score.private, score.raw, score.both) == (0, 0, 0)
        assert score.precision is score.recall is score.recall_released is score.jaccard is None


def test_a_graph_made_once_serves_many_releases():
    graph = raw_click_graph(LOG)
    release = release_with(CLICKS)
    assert keyword_agreement(graph, release, TOPICS) == keyword_agreement(LOG, release, TOPICS)


def test_the_raw_graph_weighs_users_not_clicks():
    repeated = {name: [*values, values[0]] for name, values in LOG.items()}
    repeated["time"][-1] = 999
    one, two = raw_click_graph(LOG), raw_click_graph(repeated)
    assert one.weights.toarray().tolist() == two.weights.toarray().tolist()
    assert one.weights.sum() == sum(CLICKS.values())


@pytest.mark.parametrize(
    ("error", "log", "release", "topics", "options"),
    [
        (UsageError, LOG, release_with(CLICKS), {}, {}),
        (UsageError, LOG, release_with(CLICKS), {"empty": []}, {}),
        (UsageError, LOG, release_with(CLICKS), TOPICS, {"gammas": [float("nan")]}),
        (UsageError, LOG, release_with(CLICKS), TOPICS, {"gammas": [1.5]}),
        (UsageError, LOG, release_with(CLICKS), TOPICS, {"alpha": 0}),
        (DataError, LOG, release_of({"news": 5}), TOPICS, {}),
        (DataError, {"user": ["a"], "query": ["secret"]}, release_with(CLICKS), TOPICS, {}),
    ],
)
def test_what_makes_no_sense_is_refused(error, log, release, topics, options):
    with pytest.raises(error) as refusal:
        keyword_agreement(log, release, topics, **options)
    assert refusal.value.fix
    assert "secret" not in str(refusal.value)


# ---- fears ----------------------------------------------------------------------------------------------------------


def searched(counts):
    users, queries = [], []
    for query, n in counts.items():
        users += [f"{query}-{number}" for number in range(n)]
        queries += [query] * n
    return {"user": users, "query": queries}


FEARED = {
    "fear of heights": 9,
    "heights phobia": 2,
    "fear of flying": 8,
    "spiders phobia": 6,
    "fear of owls": 1,
    "my fear of heights": 4,  # fits neither pattern
    "phobia": 7,
    "news": 30,
}


def test_both_ways_to_name_a_fear_are_one_fear():
    found = fears_agreement(searched(FEARED), release_of({"fear of heights": 40, "heights phobia": 30, "news": 99}))
    (only,) = found.ranking
    assert (only.fear, only.rank, only.count, only.raw_rank, only.raw_count) == ("heights", 1, 70, 1, 11)
    assert (found.private, found.raw, found.overlap, found.kendall_tau) == (1, 4, 1, None)
    assert found.overlap_share == 1 / 4  # the log itself has four fears, not ten


def test_the_same_order_is_a_tau_of_one_and_the_reverse_of_minus_one():
    log = searched(FEARED)
    same = fears_agreement(log, release_of({"fear of heights": 90, "fear of flying": 80, "spiders phobia": 70}))
    back = fears_agreement(log, release_of({"fear of heights": 50, "fear of flying": 60, "spiders phobia": 70}))
    assert (same.kendall_tau, back.kendall_tau) == (1.0, -1.0)
    assert same.overlap == back.overlap == 3
    assert [(row.rank, row.raw_rank) for row in back.ranking] == [(1, 3), (2, 2), (3, 1)]


def test_top_cuts_both_lists():
    release = release_of({"spiders phobia": 90, "fear of flying": 80, "fear of heights": 70})
    found = fears_agreement(searched(FEARED), release, top=2)
    assert (found.overlap, found.overlap_share, len(found.ranking)) == (1, 1 / 2, 2)
    assert found.kendall_tau == -1.0  # over all fears in both


def test_ties_have_no_order():
    release = release_of({"fear of heights": 50, "fear of flying": 50})
    assert fears_agreement(searched(FEARED), release).kendall_tau is None


def test_a_fear_that_the_log_does_not_have_has_no_rank_there():
    found = fears_agreement(searched(FEARED), release_of({"fear of quiet": 50}))
    assert found.ranking[0].raw_rank is None
    assert found.ranking[0].raw_count == found.overlap == 0


def test_no_fears_at_all():
    found = fears_agreement(searched({"news": 3}), release_of({"news": 40}))
    assert (found.private, found.raw, found.overlap, found.overlap_share, found.kendall_tau) == (0, 0, 0, None, None)


def test_a_fear_that_only_the_log_has_is_never_named():
    found = fears_agreement(searched(FEARED), release_of({"fear of heights": 40}))
    assert found.raw == 4
    for told in (repr(found), found._repr_html_(), json.dumps(found.to_json())):
        assert "heights" in told
        assert "owls" not in told
        assert "flying" not in told
        assert MARK in told


def test_a_list_without_counts_can_not_be_ranked():
    with pytest.raises(DataError, match="no counts"):
        fears_agreement(searched(FEARED), release_of(["fear of heights"]))


@pytest.mark.parametrize("top", [0, -1, True, 2.5])
def test_a_top_of_nothing_is_refused(top):
    with pytest.raises(UsageError):
        fears_agreement(searched(FEARED), release_of({"fear of heights": 40}), top=top)


def test_results_say_that_they_must_not_be_published():
    keywords = keyword_agreement(LOG, release_with(CLICKS), TOPICS, gammas=[0.5])
    assert keywords.publishable is False
    assert MARK in repr(keywords)
    assert MARK in keywords._repr_html_()
    assert keywords.to_json()["mark"] == MARK
    assert keywords.to_json()["together"][0]["topic"] == "all"
