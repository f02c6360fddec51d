"""The integers that randomizers run with, against closed forms computed here with 400 digits.

A chance may neither lose more than epsilon (privacy) nor be a unit further off than it must (accuracy): each integer is
the smallest, or the largest, within epsilon.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.rappor.response import Params

ONE = 2**53
EPSILONS = [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(4), Fraction(6)]
CELLS = [2, 3, 50, 1001]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(400):
        yield


def e_to(epsilon: Fraction):
    return mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)


def up(x) -> int:
    return int(mpmath.ceil(x * ONE))


def down(x) -> int:
    return int(mpmath.floor(x * ONE))


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("k", CELLS)
def test_lies_are_the_smallest_within_epsilon(k, epsilon):
    e = e_to(epsilon)
    assert KRR.calibrate(k, epsilon).lie == up(1 / (e + k - 1))
    assert OUE.calibrate(k, epsilon).lie == up(1 / (e + 1))
    assert Hadamard.calibrate(k, epsilon).lie == up(1 / (e + 1))
    hashed = OLH.calibrate(k, epsilon)
    assert hashed.g == int(mpmath.nint(e)) + 1
    assert hashed.lie == up(1 / (e + hashed.g - 1))


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("k", CELLS)
def test_the_subsets_truth_is_the_largest_within_epsilon(k, epsilon):
    e, made = e_to(epsilon), SubsetSelection.calibrate(k, epsilon)
    assert made.omega == max(1, int(mpmath.nint(k / (e + 1))))
    assert made.truth == down(made.omega * e / (made.omega * e + k - made.omega))


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_two_stage_shares_epsilon_and_rounds_every_lie_up(epsilon):
    made = TwoStage.calibrate([2, 1, 0, 5], epsilon)
    query, url = e_to(epsilon * Fraction(17, 20)), e_to(epsilon * Fraction(3, 20))
    assert made.query_lie == up(1 / (query + 4))
    assert made.url_lies == tuple((size, up(1 / (url + size - 1))) for size in (2, 3, 6))


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_tight_two_stage_fills_epsilon_to_the_last_unit_and_no_further(epsilon):
    made = TwoStage.tight((2, 1, 0), epsilon, epsilon / 2)

    def loss(query_lie):
        query_truth, worst = ONE - 3 * query_lie, mpmath.mpf(0)
        for size in (1, 2, 3):
            lie = dict(made.url_lies).get(size, 0)
            truth = ONE - (size - 1) * lie
            # The chance of a cell if it is the own one, if it is another URL of the own query, if it is elsewhere.
            ways = [mpmath.mpf(query_truth * truth), mpmath.mpf(query_lie) * ONE / size]
            ways += [mpmath.mpf(query_truth * lie)] if size > 1 else []
            worst = max(worst, mpmath.log(max(ways) / min(ways)))
        return worst

    budget = mpmath.mpf(epsilon.numerator) / epsilon.denominator
    assert loss(made.query_lie) <= budget
    assert loss(made.query_lie - 1) > budget


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_1bitmeans_unit_is_the_largest_within_epsilon(most, epsilon):
    made = OneBitMean.calibrate(most, epsilon)
    budget = mpmath.mpf(epsilon.numerator) / epsilon.denominator

    def loss(unit):
        low = (ONE - unit * most) // 2
        high = low + unit * most
        return max(mpmath.log(mpmath.mpf(high) / low), mpmath.log(mpmath.mpf(ONE - low) / (ONE - high)))

    assert made.low == (ONE - made.unit * most) // 2
    assert loss(made.unit) <= budget
    assert loss(made.unit + 1) > budget


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_dbitflip_shares_epsilon_between_two_bits_where_two_can_change(epsilon):
    whole, half = e_to(epsilon), e_to(epsilon / 2)
    assert DBitFlip.calibrate(8, 1, epsilon).keep == down(whole / (whole + 1))
    assert DBitFlip.calibrate(8, 2, epsilon).keep == down(half / (half + 1))
    assert DBitFlip.calibrate(8, 8, epsilon).keep == down(half / (half + 1))


@pytest.mark.parametrize(("p", "q", "f"), [("1/3", "2/3", "1/7"), ("0.1", "0.9", "0.3"), ("1/4", "3/4", "1/2")])
def test_rappors_chances_round_to_where_they_lose_less(p, q, f):
    made = Params(16, 2, 8, p, q, f).chances("native")
    p, q, f = Fraction(p), Fraction(q), Fraction(f)
    assert made.p == Fraction(-(-p.numerator * ONE // p.denominator), ONE)
    assert made.q == Fraction(q.numerator * ONE // q.denominator, ONE)
    assert made.f / 2 == Fraction(-(-f.numerator * ONE // (2 * f.denominator)), ONE)
    loss = 4 * mpmath.log((2 - mpmath.mpf(f.numerator) / f.denominator) * f.denominator / f.numerator)
    assert Params(16, 2, 8, p, q, f).permanent_epsilon("native") == pytest.approx(float(loss), rel=1e-12)
