"""Survivors: the bulk path has the same joint law as noise on every key followed by the threshold.

What is held to it is ``curator.counting.passing`` itself, on counts that are a table of the engine, as in a release.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import ibis
import numpy as np
import pyarrow as pa
import pytest

from hushquery.core.loss import GaussianHistogram, LaplaceHistogram
from hushquery.curator import counting as count
from hushquery.errors import UsageError
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import SystemBits, sampler
from hushquery.noise.survivors import conditional_noise, lifted_keys, uniform_subset
from statistical import bits, every_position, fit, mean, rate, same_law, tally, within

HIDDEN = None
LAPLACE, GAUSSIAN = DiscreteLaplace(Fraction(2)), RoundedGaussian(Fraction(3))


@pytest.fixture(params=["singly", "in bulk"])
def path(request, monkeypatch):
    monkeypatch.setattr(count, "WORTH_A_BINOMIAL", 10**9 if request.param == "singly" else 2)
    return request.param


def passing_keys(counts, threshold, law, source):
    """Give the positions of the keys that pass, and their noisy counts, in the order of the keys."""
    laplace = isinstance(law, DiscreteLaplace)
    step = LaplaceHistogram(1, law.b, threshold) if laplace else GaussianHistogram(1, law.sigma, threshold)
    table = pa.table({"key": np.arange(len(counts)), "n": pa.array(counts, pa.int64())})
    found = count.passing(ibis.memtable(table), ["key"], step, source).sort_by("key")
    return found["key"].to_numpy(), found["noisy"].to_numpy()


def naive(counts, threshold, law, source):
    """The definition: noise on every key, then the threshold."""
    noisy = counts + sampler(law).draw(len(counts), source)
    return np.flatnonzero(noisy >= threshold), noisy[noisy >= threshold]


def law_of_key(count, threshold, law, reach=40):
    """List what becomes of one key: hidden, or its noisy count."""
    out = {HIDDEN: float(law.cdf(threshold - count - 1))}
    for z in range(threshold - count, threshold - count + reach):
        out[count + z] = law.pmf(z)
    return out


# ---- the joint law -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(1, 2)), RoundedGaussian(Fraction(3, 4))], ids=str)
def test_the_joint_law_of_all_keys_is_that_of_noise_on_every_key(law, path):
    """Which keys pass, how many and with which values, all at once: every outcome of five keys is listed."""
    counts, threshold, n = np.array([1, 3, 1, 1, 2]), 2, 4000
    positions, noisy = passing_keys(np.tile(counts, n), threshold, law, bits("joint", law, path))
    rows = np.full(n * len(counts), threshold - 1)
    rows[positions] = noisy
    seen = Counter(
        tuple(HIDDEN if value < threshold else value for value in row) for row in rows.reshape(n, len(counts)).tolist()
    )
    singles = [law_of_key(int(c), threshold, law, reach=8) for c in counts]
    joint = {}
    for row in itertools.product(*singles):
        p = math.prod(single[value] for single, value in zip(singles, row, strict=True))
        if p > 1e-12 or row in seen:
            joint[row] = p
    assert sum(joint.values()) == pytest.approx(1, abs=1e-3)
    every_position(seen, joint)
    fit(seen, joint)


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=str)
def test_rates_and_values_per_count(law, path):
    """Many keys of each count at once, next to keys far above and far below."""
    threshold, size = 6, 40_000
    levels = [-3, 1, 4, 5, 6, 9]
    counts = np.tile(np.array([*levels, 1000]), size)
    positions, noisy = passing_keys(counts, threshold, law, bits("rates", law, path))
    assert np.all(np.diff(positions) > 0)
    assert np.all(noisy >= threshold)
    assert int((counts[positions] == 1000).sum()) == size
    for level in levels:
        values = noisy[counts[positions] == level]
        listed = law_of_key(level, threshold, law)
        rate(len(values), size, 1 - listed.pop(HIDDEN), f"count {level}")
        total = sum(listed.values())
        given = {value: p / total for value, p in listed.items()}
        every_position(tally(values), given)


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=str)
def test_real_bulk_agrees_with_the_definition(law):
    """At the size where the bulk path is taken of itself: two samples, one by each way."""
    counts = np.concatenate([np.full(150_000, 1), np.full(100_000, 3), np.array([50, 60])])
    threshold = 8
    ours = passing_keys(counts, threshold, law, bits("bulk", law))
    other = naive(counts, threshold, law, bits("naive", law))
    for level in (1, 3):
        size = int((counts == level).sum())
        chance = float(law.tail(threshold - level))
        both = [noisy[counts[positions] == level] for positions, noisy in (ours, other)]
        for values in both:
            rate(len(values), size, chance)
        same_law(tally(both[0]), tally(both[1]), [threshold + i for i in range(4)])
        # Which keys: their mean position among those of this count is that of a uniform choice.
        where = np.flatnonzero(counts == level)
        positions = ours[0][counts[ours[0]] == level]
        ranks = np.searchsorted(where, positions)
        for quarter in range(4):
            inside = int(((ranks >= quarter * size // 4) & (ranks < (quarter + 1) * size // 4)).sum())
            rate(inside, len(ranks), 1 / 4, f"quarter {quarter}")


def test_which_keys_pass_is_uniform():
    """Three equal keys: every subset of them has its own exact probability."""
    p = float(LAPLACE.tail(2))
    source, seen = bits("which"), Counter()
    for _ in range(4000):
        positions, _ = lifted_keys(3, 5, 7, LAPLACE, source)
        seen[tuple(positions.tolist())] += 1
    law = {s: p ** len(s) * (1 - p) ** (3 - len(s)) for r in range(4) for s in itertools.combinations(range(3), r)}
    every_position(seen, law)
    fit(seen, law)


# ---- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=str)
@pytest.mark.parametrize(
    ("counts", "threshold", "expected"),
    [
        ([], 5, []),
        ([10**6] * 7, 40, list(range(7))),
        ([-50] * 7, 90, []),
        ([2**40, 1, 2**40 + 3, -(2**40)], 500, [0, 2]),
        ([-(10**6), 10**6, -(10**6)], -400, [1]),
        ([2**62, -(2**62)], 0, [0]),
        ([3], 10**6, []),
    ],
)
def test_certain_cases(counts, threshold, expected, law, path):
    positions, noisy = passing_keys(np.array(counts, dtype=np.int64), threshold, law, bits("certain"))
    assert positions.tolist() == expected
    assert positions.dtype == noisy.dtype == np.int64
    for position, value in zip(positions, noisy, strict=True):
        assert abs(int(value) - counts[position]) < 200


def test_system_bits_work_too():
    positions, noisy = passing_keys(np.full(30_000, 100), 50, LAPLACE, SystemBits())
    assert len(positions) == len(noisy) == 30_000


def test_thresholds_far_above_common_counts_take_no_time():
    """20,000 keys that one user each holds, and a threshold 100 sigma above: nothing passes, and that is soon known."""
    with within(20):
        assert passing_keys(np.full(20_000, 1), 301, GAUSSIAN, bits("far above"))[0].tolist() == []


# ---- conditional noise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [-1000, -4, -1, 0, 1, 2, 15])
@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=str)
def test_conditional_noise_follows_the_law_given_that_it_reaches_k(law, k):
    n = 100_000
    draws = conditional_noise(law, k, n, bits("conditional", law, k))
    assert len(draws) == n
    assert draws.min() >= k
    low = max(k, -60)
    above = float(law.tail(k))
    listed = {z: law.pmf(z) / above for z in range(low, low + 120)}
    every_position(tally(draws), listed)
    fit(tally(draws), listed)


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN], ids=str)
@pytest.mark.parametrize("k", [-3, 0, 4])
def test_conditional_noise_of_nobody(law, k):
    assert conditional_noise(law, k, 0, bits("nobody")).tolist() == []


def test_conditional_gaussian_noise_far_out_in_the_tail():
    """At 20 sigma the mean excess is nearly sigma/20; nothing there can be found by rejection."""
    law = RoundedGaussian(Fraction(100))
    draws = conditional_noise(law, 2000, 100_000, bits("far"))
    listed = {z: float(law.sf(z - 1) - law.sf(z)) / float(law.tail(2000)) for z in range(2000, 2200)}
    fit(tally(draws), listed)
    centre = math.fsum(z * p for z, p in listed.items())
    spread = math.fsum((z - centre) ** 2 * p for z, p in listed.items())
    assert 2004 < centre < 2006
    mean(draws, centre, spread)


# ---- subsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(6))
def test_every_subset_of_five_is_equally_likely(size):
    n, source, seen = 3000, bits("subset", size), Counter()
    for _ in range(n):
        chosen = uniform_subset(5, size, source)
        assert np.all(np.diff(chosen) > 0)
        seen[tuple(chosen.tolist())] += 1
    law = {s: 1 / math.comb(5, size) for s in itertools.combinations(range(5), size)}
    every_position(seen, law)
    if len(law) > 1:
        fit(seen, law)


def test_large_subsets_are_uniform_over_places():
    for size in (1000, 9000):
        chosen = uniform_subset(10_000, size, bits("large", size))
        assert len(np.unique(chosen)) == size
        assert chosen.min() >= 0
        assert chosen.max() < 10_000
        for quarter in range(4):
            inside = int(((chosen >= quarter * 2500) & (chosen < (quarter + 1) * 2500)).sum())
            rate(inside, size, 1 / 4)  # hypergeometric, which is narrower


@pytest.mark.parametrize(("n", "size"), [(5, 6), (5, -1), (0, 1)])
def test_impossible_subsets_are_refused(n, size):
    with pytest.raises(UsageError):
        uniform_subset(n, size, bits("never"))


def test_no_set_has_the_empty_subset():
    assert uniform_subset(0, 0, bits("never")).tolist() == []
