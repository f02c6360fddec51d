"""NDCG and its relatives say what the paper defines, agree with scikit-learn where it applies, and are marked."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from hushquery.errors import UsageError
from hushquery_experiments.ndcg import (
    Truth,
    discounted_gain,
    list_scores,
    ndcg,
    ndcg_of_lists,
    query_scores,
    rank_based_ndcg,
)
from hushquery_experiments.unpublishable import MARK

counts = st.lists(st.integers(0, 1000), min_size=2, max_size=12).filter(any)


def by_hand(listed, ideal):
    """The definition, written as a sum."""
    best = sorted(ideal, reverse=True)[: len(listed)]
    total = sum(best)

    def dcg(items):
        return sum((2 ** (n / total) - 1) / math.log2(i + 1) for i, n in enumerate(items, 1))

    return dcg(listed) / dcg(best)


@given(counts, st.randoms(use_true_random=False), st.integers(1, 12))
def test_ndcg_is_its_definition(items, random, k):
    order = random.sample(items, min(k, len(items)))
    assert ndcg(order, items) == pytest.approx(by_hand(order, items))
    assert 0 <= ndcg(order, items) <= 1 + 1e-12


@settings(deadline=None)  # the first call imports half of scikit-learn
@given(items=counts, seed=st.integers(0, 2**32), k=st.integers(1, 12))
def test_scikit_learn_agrees(items, seed, k):
    k = min(k, len(items))
    scores = np.random.default_rng(seed).permutation(len(items)).astype(float)
    relevance = np.array(items) / sum(sorted(items, reverse=True)[:k])
    listed = np.array(items)[np.argsort(-scores)][:k]
    # It takes gains as they are; ours are 2^rel - 1.
    theirs = ndcg_score([2**relevance - 1], [scores], k=k)
    assert ndcg(listed, items) == pytest.approx(theirs)


def test_discount_is_that_of_the_paper():
    assert discounted_gain([1, 1, 1]) == pytest.approx(1 + 1 / math.log2(3) + 1 / 2)


def test_ideal_is_the_top_of_the_full_data():
    assert ndcg([9, 5], [5, 9, 7]) < 1  # in the right order, but 7 is missing
    assert ndcg([9, 7], [5, 9, 7]) == 1
    assert ndcg([0, 0], [0, 0]) == 0


@given(counts, st.data())
def test_a_list_of_lists_is_never_judged_better_than_its_queries(queries, data):
    urls = [data.draw(counts) for _ in queries]
    perfect = [sorted(own, reverse=True) for own in urls]
    assert ndcg_of_lists(queries, queries, perfect, urls) == pytest.approx(ndcg(queries, queries))
    assert ndcg_of_lists(queries, queries, urls, urls) <= ndcg(queries, queries) + 1e-12


def test_a_query_gains_as_much_as_its_urls():
    # Of two equal queries the second has its two URLs exchanged.
    inner = by_hand([1, 3], [3, 1])
    expected = (1 + inner / math.log2(3)) / (1 + 1 / math.log2(3))
    assert ndcg_of_lists([4, 4], [4, 4], [[3, 1], [1, 3]], [[3, 1], [1, 3]]) == pytest.approx(expected)


def test_rank_based_score_looks_at_ranks_only():
    assert rank_based_ndcg([1, 2, 3, 4]) == 1
    near, far = np.array([100, 99, 98, 97, 1]), np.array([100, 60, 30, 10, 1])
    swapped = np.array([1, 0, 2, 3])
    assert query_scores(swapped, near)[1] == query_scores(swapped, far)[1] < 1
    assert query_scores(swapped, near)[0] > query_scores(swapped, far)[0]
    # Two positions of k = 2 exchanged: each is 1 apart, so log2(2) of log2(3).
    assert rank_based_ndcg([2, 1]) == pytest.approx(1 / math.log2(3))
    assert rank_based_ndcg([3, 4]) == 0
    assert rank_based_ndcg([]) == 0


def example():
    """Two queries with two URLs each, one with one; 20 of 100 users hold none of these records."""
    return Truth(np.array([0, 0, 1, 1, 2]), np.array([30, 10, 20, 15, 5]), 100)


def test_scores_of_a_list_by_hand():
    scores = list_scores(example(), np.array([2, 0, 3]), np.array([0.25, 0.2, 0.1]))
    assert (scores.records, scores.queries) == (3, 2)
    assert scores.l1 == pytest.approx(0.05 + 0.1 + 0.05)
    assert scores.hit_rate == pytest.approx(0.65)
    assert scores.l1_rescaled == pytest.approx(
        abs(0.25 / 0.55 - 20 / 65) + abs(0.2 / 0.55 - 30 / 65) + abs(0.1 / 0.55 - 15 / 65)
    )
    # Query 1 with .35 before query 0 with .2; the true order is 0 (40), 1 (35).
    assert scores.ndcg_queries == pytest.approx(by_hand([35, 40], [40, 35, 5]))
    assert scores.ndcg == pytest.approx(scores.ndcg_queries)  # both lists of URLs are in the right order
    assert scores.ndcg_records == pytest.approx(by_hand([20, 30, 15], [30, 20, 15, 10, 5]))
    assert scores.ndcg_rank_based == pytest.approx(rank_based_ndcg([2, 1]))


def test_a_direct_estimate_of_queries_decides_their_order():
    scores = list_scores(example(), np.array([2, 0, 3]), np.array([0.25, 0.2, 0.1]), np.array([0.4, 0.3, 0.0]))
    assert scores.ndcg_queries == 1


def test_the_truth_itself_is_perfect_and_nothing_is_worth_nothing():
    truth = example()
    every = np.arange(5)
    perfect = list_scores(truth, every, truth.count / 100)
    assert (perfect.ndcg, perfect.ndcg_records, perfect.ndcg_rank_based, perfect.l1) == (1, 1, 1, 0)
    nothing = list_scores(truth, every[:0], np.zeros(0))
    assert (nothing.ndcg, nothing.l1, nothing.hit_rate, nothing.records) == (0, 0, 0, 0)


def test_scores_are_marked_and_truth_is_hidden():
    scores = list_scores(example(), np.array([0]), np.array([0.3]))
    assert MARK in repr(scores)
    assert MARK in scores._repr_html_()
    assert json.loads(json.dumps(scores.to_json()))["publishable"] is False
    assert "30" not in repr(example())


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: ndcg([math.nan], [1]),
        lambda: ndcg([-1], [1]),
        lambda: ndcg([[1]], [1]),
        lambda: ndcg_of_lists([1, 2], [1, 2], [[1]], [[1]]),
        lambda: Truth(np.array([0]), np.array([1, 2]), 3),
        lambda: Truth(np.array([0]), np.array([1]), 0),
        lambda: list_scores(example(), np.array([1, 1]), np.array([0.1, 0.1])),
        lambda: list_scores(example(), np.array([1]), np.array([0.1, 0.1])),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(UsageError):
        nonsense()
