"""What an audit looks at where outputs have several columns: extremes, sums, differences, and what it learns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hushquery.auditing import attacks as module
from hushquery.auditing.attacks import Direction, audit
from hushquery.core.registry import SUPPRESSED, Mechanism, Pair
from hushquery.noise.mechanisms import LaplaceCounts
from statistical import number, rate_at_most

HONEST = LaplaceCounts.calibrate(Fraction(1), Fraction(0))


class Joint(Mechanism):
    """Outputs that are a function of the dataset and of random words."""

    name, summary = "joint", "several columns"

    def __init__(self, outputs):
        self.outputs = outputs

    @classmethod
    def calibrate(cls, epsilon, delta):
        raise TypeError(epsilon, delta)

    @property
    def loss(self):
        return HONEST.loss

    def pairs(self):
        return [Pair("two", 0, 1)]

    def run(self, dataset, n, bits):
        return self.outputs(dataset, bits.words(3 * n).reshape(3, n))


def coin(words):
    return (words[0] & np.uint64(1)).astype(np.int64)


def test_outputs_of_several_columns_and_hidden_values_are_searched():
    """What gives the datasets away is only visible in the sum, the extremes, or in what is missing."""
    # Each column alone is a fair coin in both datasets; their sum is 1 in one dataset and even in the other.
    together = Joint(
        lambda dataset, words: np.stack([coin(words), coin(words) if dataset else 1 - coin(words)], axis=1)
    )
    assert audit(together, 1, 0, runs=2000, seed=1).lower_bound > 4
    # A key that is only ever hidden in one dataset.
    hidden = Joint(lambda dataset, words: np.where(coin(words) * dataset == 1, 5, SUPPRESSED)[:, None])
    assert audit(hidden, 1, 0, runs=2000, seed=1).lower_bound > 3


def wide(words):
    """Three numbers that are even on 0..999."""
    return (words % np.uint64(1000)).astype(np.int64)


def test_two_outputs_that_share_their_noise_are_told_apart_by_their_difference(monkeypatch):
    """One person is moved from the one to the other: each output and their sum hide it, and no event of these does."""
    swapped = Joint(lambda dataset, words: wide(words)[0][:, None] + np.array([1 - dataset, dataset]))
    assert audit(swapped, 1, 0, runs=4000, seed=1).lower_bound > 4
    with monkeypatch.context() as without:
        without.setattr(Direction, "learned", lambda *_: [])
        by_difference = audit(swapped, 1, 0, runs=4000, seed=1)
        assert by_difference.lower_bound > 4
        assert by_difference.event.startswith("output 1 - output 2 ")
        without.setattr(module, "_MOST_DIFFERENCES", 0)
        assert not audit(swapped, 1, 0, runs=4000, seed=1).flagged


@pytest.mark.parametrize("method", ["events", "one-run"])
def test_a_combination_of_three_outputs_is_learned(method):
    """The third output is what the other two add up to, and one person: only the three together show it."""

    def outputs(dataset, words):
        first, second, _ = wide(words)
        return np.stack([first, second, first + second + dataset], axis=1)

    found = audit(Joint(outputs), 1, 0, runs=4000, seed=1, method=method)
    assert found.lower_bound > 4
    assert found.event.startswith("the sum of outputs, weighted ")


def test_what_is_learned_of_worlds_that_do_not_differ_flags_nothing():
    """A classifier always finds something to learn; it is tested on other runs."""
    same = Joint(lambda _, words: wide(words).T.copy())
    wrong = sum(audit(same, 1, 0, runs=600, seed=number("same", i), confidence=0.5).lower_bound > 0 for i in range(60))
    rate_at_most(wrong, 60, 0.5)


def test_a_direction_counts_what_is_not_published_too():
    direction = Direction((2, -1), (0, 7))
    assert direction.of(np.array([[3, 4], [3, SUPPRESSED], [SUPPRESSED, SUPPRESSED]])).tolist() == [2, 13, 7]
    assert str(direction) == "the sum of outputs, weighted 2, -1 (7 where not published)"
    assert Direction.learned(np.zeros((50, 1), dtype=np.int64), np.ones((50, 1), dtype=np.int64)) == []
    assert Direction.learned(np.zeros((50, 2), dtype=np.int64), np.zeros((50, 2), dtype=np.int64)) == []
