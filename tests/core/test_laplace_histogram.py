"""What a thresholded Laplace histogram costs under both relations, against the exact divergence over all neighbours."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from hushquery.core.budget import Relation
from hushquery.core.calibration import laplace_scale, laplace_threshold
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram, step_from
from hushquery.errors import DataError

REPLACE, ADD = Relation.REPLACE_ONE, Relation.ADD_REMOVE


def key(others, threshold, b):
    """One key that ``others`` hold, with and without one user more: masses in both worlds, grouped by their ratio."""
    a = math.exp(-1 / b)

    def tail(k):
        return a**k / (1 + a) if k >= 0 else 1 - a ** (1 - k) / (1 + a)

    if others == 0:
        p = tail(threshold - 1)
        return [(p, 0.0), (1 - p, 1.0)]
    turn = max(threshold, others + 1)  # from here on the noisy value is likelier with the user, below it is less likely
    groups = [(tail(turn - others - 1), tail(turn - others))]
    if turn > threshold:
        groups.append(
            (
                tail(threshold - others - 1) - tail(turn - others - 1),
                tail(threshold - others) - tail(turn - others),
            )
        )
    groups.append((1 - tail(threshold - others - 1), 1 - tail(threshold - others)))
    return groups


def divergence(left, right, step, epsilon):
    """The exact hockey-stick between a user with some keys and one with others, given by how many others hold each."""
    b, threshold = float(step.scale), step.threshold
    singles = [key(c, threshold, b) for c in left]
    singles += [[(q, p) for p, q in key(c, threshold, b)] for c in right]
    total = 0.0
    for atoms in itertools.product(*singles):
        p, q = math.prod(atom[0] for atom in atoms), math.prod(atom[1] for atom in atoms)
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


def neighbours(step):
    """All pairs of users that can matter: each key new, shared about the threshold, or shared by many."""
    around = [0, 1, *range(max(2, step.threshold - 3), step.threshold + 4), step.threshold + 40]
    sides = [
        side
        for size in range(step.keys_per_user + 1)
        for side in itertools.combinations_with_replacement(around if step.keys_per_user == 1 else around[::2], size)
    ]
    return [
        (left, right)
        for left, right in itertools.product(sides, sides)
        if step.relation is REPLACE or not (left and right)
    ]


CASES = [("1", 1e-5), ("4", 1e-5), ("4", 1e-7), ("1/3", 1 / 7), ("1", 1 / 50)]


def calibrated(d, epsilon, delta, relation):
    b = laplace_scale(d * (2 if relation is REPLACE else 1), epsilon)
    return LaplaceHistogram(d, b, laplace_threshold(b, d, delta), relation=relation)


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_cost_is_the_exact_divergence_over_all_neighbours(relation, d, epsilon, delta):
    step = calibrated(d, epsilon, delta, relation)
    at = float(Fraction(epsilon))
    worst = {pair: divergence(*pair, step, at) for pair in neighbours(step)}
    stated = float(step.loss.threshold_delta)
    # Not only a bound: with all keys new in one world it is attained, at the full epsilon.
    assert max(worst.values()) == pytest.approx(stated, rel=1e-9)
    assert worst[(0,) * d, ()] == pytest.approx(stated, rel=1e-9)
    assert stated <= delta
    for share in (0, 0.3, 0.7, 0.98, 1.3):
        exact = max(divergence(*pair, step, share * at) for pair in worst)
        assert exact <= step.loss.delta(share * at) + 1e-13


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), CASES[:3])
def test_a_smaller_epsilon_would_not_do_under_replace_one(d, epsilon, delta):
    step = calibrated(d, epsilon, delta, REPLACE)
    nearly = 0.97 * float(Fraction(epsilon))
    assert max(divergence(*pair, step, nearly) for pair in neighbours(step)) > 1.05 * step.loss.threshold_delta


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
@pytest.mark.parametrize("b", [1, 4, 10])
def test_a_threshold_so_low_that_absence_tells_more_than_counts_is_charged_for_it(d, threshold, b):
    step = LaplaceHistogram(d, Fraction(b), threshold, relation=REPLACE)
    epsilon, stated = float(sum(step.loss.pure)), float(step.loss.threshold_delta)
    assert epsilon >= 2 * d / b
    assert max(divergence(*pair, step, epsilon) for pair in neighbours(step)) <= stated * (1 + 1e-9)
    if epsilon > 2 * d / b * (1 + 1e-9):
        # New keys in one world and shared keys in the other: every factor is attained at once.
        absent, shared = (threshold + 40,) * d, (0,) * d
        assert divergence(absent, shared, step, epsilon * (1 + 1e-6)) == pytest.approx(0, abs=1e-12)
        assert divergence(absent, shared, step, epsilon * 0.999) > 0


def test_steps_read_back_are_the_same_steps():
    for step in (
        LaplaceHistogram(3, Fraction(7, 3), 40, relation=REPLACE),
        LaplaceHistogram(1, Fraction(2)),
        GaussianHistogram(2, Fraction(5, 2), 30, REPLACE),
    ):
        assert step_from(step.to_json()) == step
    with pytest.raises(DataError, match="make no sense"):
        step_from({"kind": "laplace-histogram", "keys_per_user": 1, "scale": "0", "threshold": 3})
    with pytest.raises(DataError, match="does not know"):
        step_from({"kind": "hope"})
