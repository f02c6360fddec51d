"""What steps cost together and under which relation, against enumeration and closed forms computed here.

Found missing by tests/mutants: each of these mistakes passed the tests of its own file.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from hushquery.core.budget import Relation
from hushquery.core.calibration import SparseGaussian
from hushquery.core.loss import GaussianHistogram, GaussianWeights, LaplaceHistogram, Loss, equal_weight

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def test_steps_on_the_same_users_add_up():
    sparse = (SparseGaussian(2, Fraction(3), 30, ADD), SparseGaussian(1, Fraction(4), 40, ADD))
    one = Loss("1/9", ("1/2", "1/4"), "1/1000", sparse[:1])
    two = Loss("1/16", ("1/3",), "1/500", sparse[1:])
    both = one + two
    assert both.mu_squared == Fraction(1, 9) + Fraction(1, 16)
    assert sorted(both.pure) == [Fraction(1, 4), Fraction(1, 3), Fraction(1, 2)]
    assert both.threshold_delta == Fraction(3, 1000)
    assert both.sparse == sparse


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_two_gaussian_steps_cost_what_one_of_both_distances_does(epsilon):
    """mu^2 adds, failures add (1 - (1-f)(1-g) is below f + g): the curve is that of the sum, computed here."""
    both = Loss(mu_squared="1/4", threshold_delta="1/100") + Loss(mu_squared="1/9", threshold_delta="1/50")
    mu = math.sqrt(1 / 4 + 1 / 9)
    curve = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert both.delta(epsilon) == pytest.approx(0.03 + 0.97 * curve, rel=1e-9)


def users(d, keys, weight):
    """All that one user may add to a few counts: at most d of them, the same weight on each."""
    for size in range(d + 1):
        for chosen in itertools.combinations(range(keys), size):
            row = np.zeros(keys)
            row[list(chosen)] = weight(size) if size else 0
            yield row


def furthest(d, relation, norm_of, weight=lambda _: 1):
    """How far the counts move at most when a user comes or goes, or becomes another one."""
    rows = list(users(d, 2 * d + 1, weight))
    pairs = itertools.product(rows, rows) if relation is REPLACE else ((row, np.zeros(2 * d + 1)) for row in rows)
    return max(norm_of(x - y) for x, y in pairs)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_step_costs_what_the_furthest_neighbours_are_apart(d, relation):
    squared = furthest(d, relation, lambda row: float(row @ row))
    total = furthest(d, relation, lambda row: float(np.abs(row).sum()))
    sigma, scale = Fraction(7, 2), Fraction(9)
    assert GaussianHistogram(d, sigma, relation=relation).loss.mu_squared == Fraction(squared) / sigma**2
    assert SparseGaussian(d, sigma, 50, relation).mu_squared == Fraction(squared) / sigma**2
    assert LaplaceHistogram(d, scale, relation=relation).loss.pure == (Fraction(total) / scale,)
    # Weights are rounded down to the grid, so what is charged may be a little more than what can happen.
    apart = furthest(d, relation, lambda row: float(row @ row), equal_weight)
    charged = GaussianWeights(d, sigma, equal=True, relation=relation).loss.mu_squared * sigma**2
    assert charged == 64**2 * (2 if relation is REPLACE else 1)
    assert 0.98 * charged <= apart <= charged


@pytest.mark.parametrize("sigma", [20, 60, 140])
@pytest.mark.parametrize("d", [1, 5, 20])
def test_the_delta_of_equal_weights_is_that_of_the_worst_number_of_queries(d, sigma):
    threshold = 64 + 3 * sigma
    step = GaussianWeights(d, Fraction(sigma), threshold, equal=True)
    chances = [norm.sf((threshold - 0.5 - int(64 / math.sqrt(t))) / sigma) for t in range(1, d + 1)]
    worst = max(1 - (1 - chance) ** t for t, chance in enumerate(chances, 1))
    assert float(step.threshold_delta()) == pytest.approx(worst, rel=1e-9)
    assert d == 1 or sigma < 140 or worst > 1.5 * chances[0]  # one query is not the worst: the test would see it


@pytest.mark.parametrize("epsilon", [-2.0, -0.7, -0.1, 0.3])
@pytest.mark.parametrize("threshold", [2, 4, 7])
def test_beside_pure_steps_both_directions_count(threshold, epsilon):
    """Beside pure steps the curve is asked at negative epsilons, and there the world without the key may be worse.

    One key of one user alone: present and visible with chance 1 - L in one world, absent in the other. And one key
    shared with many, whose noisy counts are a standard normal and one moved by 1/sigma.
    """
    sigma = 2.0
    made = SparseGaussian(1, Fraction(2), threshold, ADD)
    hidden = norm.cdf((threshold - 1.5) / sigma)
    grown = math.exp(epsilon)
    with_key = (1 - hidden) + max(0.0, hidden - grown)
    without = max(0.0, 1 - grown * hidden)
    mu = 1 / sigma
    shared = norm.cdf(mu / 2 - epsilon / mu) - grown * norm.cdf(-mu / 2 - epsilon / mu)
    assert made.delta(epsilon) == pytest.approx(max(with_key, without, shared), rel=1e-9)
