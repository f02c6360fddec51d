"""One bit or Laplace noise for an average: where the one becomes better than the other, for several populations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.randomizer import ONE
from hushquery_experiments.local.laplace import LaplaceMean
from statistical import bits, mean

MOST = 1000
EVEN = np.arange(MOST + 1)
#: Clients, what the mean of (x/m - 1/2)^2 over them is, and the epsilon from which on Laplace noise is better.
POPULATIONS = {
    "all in the middle": (np.full(2, MOST // 2), 0, 2.3242),
    "uniform": (EVEN, 1 / 12, 3.0048),
    "products of two uniform numbers": ((np.outer(EVEN, EVEN) // MOST).ravel(), 1 / 9, 3.3751),
    "half at either end": (np.array([0, MOST]), 1 / 4, math.inf),
}


def one_bit_variance(values, epsilon):
    """n times the variance of 1BitMean's average, in units of m^2, from the integers that it runs with."""
    one_bit = OneBitMean.calibrate(MOST, epsilon)
    chances = (one_bit.low + one_bit.unit * values.astype(float)) / ONE
    return float((chances * (1 - chances)).mean() * (ONE / one_bit.unit / MOST) ** 2)


def laplace_variance(epsilon):
    decay = math.exp(-1 / float(LaplaceMean.calibrate(MOST, epsilon).scale))
    return 2 * decay / (1 - decay) ** 2 / MOST**2


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_formula_is_the_variance(name):
    values, v, _ = POPULATIONS[name]
    for epsilon in (0.5, 2, 5):
        formula = 1 / (4 * math.tanh(epsilon / 2) ** 2) - v
        assert one_bit_variance(values, epsilon) == pytest.approx(formula, rel=0.01)
        assert laplace_variance(epsilon) == pytest.approx(2 / epsilon**2, rel=0.01)


@pytest.mark.parametrize("name", POPULATIONS)
def test_laplace_noise_becomes_better_where_the_docstring_says(name):
    values, _, crossing = POPULATIONS[name]
    for epsilon in (0.1, 1, 2, 2.2, 2.5, 2.9, 3.1, 3.3, 3.5, 5, 9):
        assert (one_bit_variance(values, epsilon) > laplace_variance(epsilon)) == (epsilon > crossing), epsilon


def test_the_laplace_alternative_is_worse_at_small_epsilon():
    laplace = LaplaceMean.calibrate(100, 1)
    noisy = laplace.randomize_many(np.full(200_000, 40), bits("laplace mean"))
    mean(noisy, 40, 2 * 100.0**2, "the laplace alternative")
    one_bit = (ONE / (2 * OneBitMean.calibrate(100, 1).unit)) ** 2
    assert one_bit < 2 * 100.0**2
