"""1BitMean, alpha-point rounding, dBitFlip and the Laplace alternative: unbiased, bounded, memoised."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.errors import DataError, HushqueryError, UsageError
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.randomizer import ONE, Device
from statistical import bits, every_position


def device(number: int, task: int = 0) -> Device:
    return Device(number.to_bytes(4, "big"), b"task %d" % task, bytes(32))


@given(st.integers(1, 10**6), st.fractions(Fraction(1, 100), 10, max_denominator=1000))
def test_the_chance_is_linear_and_the_claim_covers_every_pair(most, epsilon):
    made = OneBitMean.calibrate(most, epsilon)
    assert made.epsilon <= epsilon
    assert made.epsilon >= epsilon * Fraction(99, 100)
    ends = [made.chance(0), made.chance(most)]
    assert 0 < ends[0] < ends[1] < ONE
    loss = max(math.log(ends[1] / ends[0]), math.log((ONE - ends[0]) / (ONE - ends[1])))
    assert loss == pytest.approx(float(made.epsilon), rel=1e-9)
    middle = most // 2
    assert made.chance(middle) - ends[0] == middle * made.unit


@pytest.mark.parametrize("value", [0, 37, 100])
def test_the_average_is_unbiased_with_the_stated_error(value):
    made = OneBitMean.calibrate(100, 1)
    n = 200_000
    ones = made.randomize_many(np.full(n, value), bits("onebit", value))
    p = made.chance(value) / ONE
    every_position(Counter(ones.tolist()), {True: p, False: 1 - p})
    row = made.estimate(ones).rows[0]
    assert abs(row.value - value) < 7 * row.stderr
    assert row.stderr == pytest.approx(math.sqrt(p * (1 - p) / n) * ONE / made.unit, rel=0.02)
    assert abs(row.value - value) < made.error_bound(n, 1e-10)


def test_the_error_bound_is_the_published_one():
    e = math.exp(1)
    published = 100 / math.sqrt(2 * 5000) * (e + 1) / (e - 1) * math.sqrt(math.log(2 / 0.05))
    assert OneBitMean.calibrate(100, 1).error_bound(5000) == pytest.approx(published, rel=1e-9)


@pytest.mark.parametrize("value", [0, 1, 37, 50, 99, 100])
def test_alpha_point_rounding_is_unbiased_over_devices(value):
    memo = OneBitMean.calibrate(100, 2, 50)
    points = Counter(memo.point(value, device(i)) for i in range(4000))
    left = value // 50 * 50
    assert set(points) <= {left, left + 50}
    expected = (value - left) / 50
    assert abs(points[left + 50] / 4000 - expected) < 6 * math.sqrt(max(expected * (1 - expected), 1e-9) / 4000) + 1e-9
    assert max(points) <= 100


def test_a_device_answers_the_same_each_time_and_devices_differ():
    memo = OneBitMean.calibrate(100, 1, 25)
    answers = [memo.respond(37, device(0)) for _ in range(50)]
    assert len(set(answers)) == 1
    assert len({memo.respond(37, device(i)) for i in range(60)}) == 2
    tasks = {memo.respond(37, device(0, i)) for i in range(60)}
    assert len(tasks) == 2, "tasks must not share their bits"


def test_averaging_a_memoised_answer_reveals_nothing_and_a_redrawn_one_everything():
    memo, n = OneBitMean.calibrate(100, 1, 100), 20_000
    kept = np.mean([memo.respond(90, device(0)) for _ in range(100)])
    assert kept in (0.0, 1.0)
    redrawn = memo.randomize_many(np.full(n, 90), bits("redrawn"))
    assert abs(memo.estimate(redrawn).rows[0].value - 90) < 10


def test_kept_bits_follow_their_chance():
    memo = OneBitMean.calibrate(100, 1, 100)
    ones = sum(memo.respond(100, device(i)) for i in range(20_000))
    every_position({1: ones, 0: 20_000 - ones}, {1: memo.chance(100) / ONE, 0: 1 - memo.chance(100) / ONE})


@given(st.integers(2, 40), st.integers(1, 40), st.fractions(Fraction(1, 10), 8, max_denominator=100))
def test_dbitflip_claims_what_its_integers_lose(k, d, epsilon):
    if d > k:
        with pytest.raises(UsageError):
            DBitFlip.calibrate(k, d, epsilon)
        return
    flip = DBitFlip.calibrate(k, d, epsilon)
    assert epsilon * Fraction(99, 100) <= flip.epsilon <= epsilon
    per_bit = math.log(flip.keep / (ONE - flip.keep))
    assert float(flip.epsilon) == pytest.approx(per_bit * (1 if d == 1 else 2), rel=1e-9)


@pytest.mark.parametrize(("k", "d"), [(4, 1), (4, 4), (10, 3)])
def test_dbitflip_is_unbiased_with_the_stated_error(k, d):
    flip, n = DBitFlip.calibrate(k, d, 2), 100_000
    truth = np.array([0.5, 0.3, 0.2] + [0.0] * (k - 3))
    values = np.repeat(np.arange(k), (truth * n).astype(int))
    stream = bits("dbit", k, d)
    sampled = flip.sample(n, stream)
    assert (np.diff(sampled) > 0).all()
    every_position(Counter(sampled.ravel().tolist()), dict.fromkeys(range(k), 1 / k)) if d == 1 else None
    rows = flip.estimate(sampled, flip.randomize_many(values, sampled, stream)).rows
    assert max(abs(row.value - t) for row, t in zip(rows, truth, strict=True)) < flip.error_bound(n, 1e-9)
    for row, t in zip(rows, truth, strict=True):
        assert abs(row.value - t) < 7 * row.stderr


def test_a_device_has_few_answers_to_give():
    flip = DBitFlip.calibrate(20, 3, 1)
    for number in range(30):
        answers = {flip.respond(v, device(number)) for v in range(20)}
        assert len({answer[:3] for answer in answers}) == 1
        assert len(answers) <= 4
        assert flip.respond(7, device(number)) == flip.respond(7, device(number))


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: OneBitMean.calibrate(0, 1),
        lambda: OneBitMean.calibrate(2**40, 1),
        lambda: OneBitMean.calibrate(10, 0),
        lambda: OneBitMean.calibrate(10, float("nan")),
        lambda: OneBitMean.calibrate(10, 1).chance(11),
        lambda: OneBitMean.calibrate(10, 1).chance(-1),
        lambda: OneBitMean.calibrate(10, 1).randomize_many([0.5], bits("x")),
        lambda: OneBitMean.calibrate(10, 1).error_bound(0),
        lambda: OneBitMean.calibrate(10, 1).unpack(b"\2"),
        lambda: OneBitMean.calibrate(10, 1).estimate(np.array([True])),
        lambda: OneBitMean.calibrate(10, 1, step=3),
        lambda: DBitFlip.calibrate(1, 1, 1),
        lambda: DBitFlip.calibrate(4, 2, 1).respond(4, device(0)),
        lambda: DBitFlip.calibrate(4, 2, 1, most=2),
        lambda: DBitFlip.calibrate(4, 2, 1).estimate(np.array([[0, 1]]), np.array([[True, False]])),
        lambda: DBitFlip.calibrate(4, 2, 1).unpack(b"\1\1\0"),
        lambda: DBitFlip.calibrate(4, 2, 1).unpack(b"\1\4\0"),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(HushqueryError):
        nonsense()
    assert issubclass(DataError, HushqueryError)
