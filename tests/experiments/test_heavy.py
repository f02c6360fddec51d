"""PEM and LDPMiner find what many hold, within epsilon, and refuse nonsense."""

from __future__ import annotations

import numpy as np
import pytest

from hushquery.errors import UsageError
from hushquery_experiments.heavy import PrefixExtending, TwoPhases
from statistical import bits


def population(n, length, seed):
    """Ten frequent values, and a tail of singletons."""
    rng = np.random.default_rng(seed)
    heavy = rng.integers(0, 2**length, 10)
    shares = np.array([0.12, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02])
    values = rng.integers(0, 2**length, n)
    places = rng.choice(11, n, p=[*shares, 1 - shares.sum()])
    return np.where(places < 10, heavy[np.minimum(places, 9)], values), heavy, shares


def test_prefixes_grow_to_the_frequent_values():
    pem = PrefixExtending.calibrate(4, bits=24, first=8, step=4, keep=32)
    assert pem.lengths == [8, 12, 16, 20, 24]
    assert pem.epsilon <= 4
    values, heavy, shares = population(60_000, 24, 1)
    stream = bits("pem")
    groups = pem.assign(len(values), stream)
    assert set(groups.tolist()) == set(range(5))
    reports = [pem.randomize_many(values[groups == g], g, stream) for g in range(5)]
    found = pem.identify(reports, limit=5)
    assert [hitter.value for hitter in found[:3]] == heavy[:3].tolist() or {h.value for h in found} >= set(heavy[:3])
    for hitter in found:
        truth = shares[heavy.tolist().index(hitter.value)] if hitter.value in heavy else 0
        assert abs(hitter.share - truth) < 7 * hitter.stderr


def test_last_prefix_may_be_shorter_than_a_step():
    assert PrefixExtending.calibrate(2, bits=15, first=8, step=4).lengths == [8, 12, 15]
    assert PrefixExtending.calibrate(2, bits=8, first=8, step=4).lengths == [8]


@pytest.mark.parametrize("size", [1, 3])
def test_two_phases_find_and_measure(size):
    miner = TwoPhases.calibrate(200, 6, candidates=8, size=size)
    assert miner.epsilon <= 6
    rng = np.random.default_rng(3)
    popular = np.array([5, 17, 42, 99])
    chance = 0.5 if size == 3 else 0.25
    sets = []
    for _ in range(30_000):
        held = [int(v) for v in popular[rng.random(4) < chance]][:size]
        sets.append(held if size == 1 else [*held, int(rng.integers(200))])
    stream = bits("ldpminer", size)
    candidates = miner.find_candidates(sets, stream)
    assert set(popular.tolist()) <= set(candidates)
    for hitter in miner.measure(sets, candidates, stream):
        if size == 3 or all(len(held) <= 1 for held in sets):
            truth = np.mean([hitter.value in held for held in sets])
            # A client with more candidates than l reports one of all of them, so shares may be a little low.
            assert abs(hitter.share - truth) < 7 * hitter.stderr + 0.04


def test_padding_and_cutting_are_uniform():
    miner = TwoPhases.calibrate(20, 4, candidates=3, size=2)
    picked = miner.pick([[7]] * 20_000, 20, bits("pad"))
    assert abs(np.mean(picked == 7) - 0.5) < 0.03
    assert set(np.unique(picked)) == {7, 20}
    cut = miner.pick([[1, 2, 3]] * 20_000, 20, bits("cut"))
    assert all(abs(np.mean(cut == v) - 1 / 3) < 0.03 for v in (1, 2, 3))


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: PrefixExtending.calibrate(1, bits=63),
        lambda: PrefixExtending.calibrate(1, first=20),
        lambda: PrefixExtending.calibrate(1, step=0),
        lambda: PrefixExtending.calibrate(1, bits=8, first=8).randomize_many([256], 0, bits("x")),
        lambda: PrefixExtending.calibrate(1, bits=8, first=8).identify([]),
        lambda: TwoPhases.calibrate(5, 1, candidates=5),
        lambda: TwoPhases.calibrate(50, 1, size=0),
        lambda: TwoPhases.calibrate(50, 1, share=1),
        lambda: TwoPhases.calibrate(50, 1, candidates=2).measure([[1]], [1], bits("x")),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(UsageError):
        nonsense()
