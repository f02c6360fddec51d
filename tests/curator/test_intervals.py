"""Intervals of released counts cover at their level given release, computed exactly from the law; plain ones do not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from hushquery.core.loss import GaussianHistogram, LaplaceHistogram
from hushquery.curator.counting import with_intervals
from hushquery.noise.law import LEVEL, DiscreteLaplace, RoundedGaussian, given_release, most_unreleased, on_public_keys

LAWS = {
    "laplace 1/2": DiscreteLaplace(Fraction(1, 2)),
    "laplace 9": DiscreteLaplace(Fraction(9)),
    "gaussian 1": RoundedGaussian(Fraction(1)),
    "gaussian 8": RoundedGaussian(Fraction(8)),
}
THRESHOLDS = [1, 7, 41]


def log_tail(law, k):
    """Ln P[Z >= k] for an array of k, written down anew."""
    if isinstance(law, RoundedGaussian):
        return stats.norm.logsf((k - 0.5) / float(law.sigma))
    a = np.exp(-1 / float(law.b))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(k >= 0, k * np.log(a) - np.log1p(a), np.log1p(-(a ** (1.0 - k)) / (1 + a)))


def values_and_chances(law, count, threshold):
    """The published values from a threshold on, up to where nothing is left, with their chances given release."""
    spread = float(law.sigma if isinstance(law, RoundedGaussian) else law.b)
    values = np.arange(threshold, max(threshold, count) + int(40 * spread) + 3)
    given_at_least = np.exp(log_tail(law, values - count) - log_tail(law, np.array(threshold - count)))
    return values, given_at_least - np.append(given_at_least[1:], 0.0)


def coverage(law, count, threshold, interval):
    values, chances = values_and_chances(law, count, threshold)
    low, high = interval(values)
    return float(chances[(low <= count) & (count <= high)].sum())


def counts_to_try(law, threshold):
    spread = float(law.sigma if isinstance(law, RoundedGaussian) else law.b)
    steps = np.unique(np.round(np.concatenate([np.linspace(-6, 6, 25) * spread, [-1, 0, 1]])).astype(int))
    return sorted({1, 2} | {c for c in (threshold + steps).tolist() if c >= 1})


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.5, 0.9, LEVEL])
def test_coverage_given_release_is_at_least_the_level(law, threshold, level):
    law = LAWS[law]
    for count in counts_to_try(law, threshold):
        covered = coverage(law, count, threshold, lambda v: given_release(v, threshold, law, level))
        assert covered >= level - 1e-9, count


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("law", LAWS)
def test_coverage_of_empty_keys_that_got_noise_too(law, threshold):
    law = LAWS[law]
    for count in (0, 1, threshold):
        covered = coverage(law, count, threshold, lambda v: given_release(v, threshold, law, least=0))
        assert covered >= LEVEL - 1e-9, count
    # Zero is never in an interval of keys that somebody holds.
    low, _ = given_release(np.arange(threshold, threshold + 50), threshold, law)
    assert low.min() == 1


@pytest.mark.parametrize("law", ["laplace 9", "gaussian 8"])
def test_the_plain_interval_fails_where_the_threshold_binds(law):
    law, threshold = LAWS[law], 41
    plain = {c: coverage(law, c, threshold, lambda v: on_public_keys(v, law)) for c in (1, 15, 30, 41, 90)}
    assert plain[1] < 1e-3
    assert plain[15] < 0.6
    assert plain[30] < LEVEL - 0.1
    assert plain[90] > LEVEL - 0.01
    ours = {c: coverage(law, c, threshold, lambda v: given_release(v, threshold, law)) for c in plain}
    assert min(ours.values()) >= LEVEL - 1e-9


@pytest.mark.parametrize(("count", "plain"), [(15, 0.00), (30, 0.53), (40, 0.89), (60, 0.91)])
def test_golden_failures_of_the_plain_interval(count, plain):
    """Threshold 40.2, sigma 8, nominal 0.90; on integers the nearest threshold is 41 - 1/2."""
    law = RoundedGaussian(Fraction(8))
    covered = coverage(law, count, 41, lambda v: (v - 1.645 * 8, v + 1.645 * 8))
    assert covered == pytest.approx(plain, abs=0.03)


@pytest.mark.parametrize("law", LAWS)
def test_far_above_the_threshold_the_interval_is_the_plain_one(law):
    law = LAWS[law]
    values = np.array([5_000, 5_001])
    low, high = given_release(values, 41, law)
    plain_low, plain_high = on_public_keys(values, law)
    assert np.abs(low - plain_low).max() <= 1
    assert np.abs(high - plain_high).max() <= 1
    # It is not wider than whole numbers force it to be.
    covered = coverage(law, 5_000, 41, lambda v: given_release(v, 41, law))
    most_likely = np.exp(log_tail(law, np.array(0))) - np.exp(log_tail(law, np.array(1)))
    assert covered <= LEVEL + 2 * float(most_likely)


@pytest.mark.parametrize("law", LAWS)
def test_intervals_grow_with_the_value_and_do_not_depend_on_the_other_values(law):
    law, values = LAWS[law], np.arange(41, 400)
    low, high = given_release(values, 41, law)
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    assert (low <= high).all()
    shuffled = np.random.default_rng(1).permutation(np.repeat(values, 2))
    for i, value in enumerate(shuffled[:20].tolist()):
        alone = given_release(np.array([value]), 41, law)
        together = given_release(shuffled, 41, law)
        assert (together[0][i], together[1][i]) == (alone[0][0], alone[1][0])
    assert [len(x) for x in given_release(np.empty(0, dtype=np.int64), 41, law)] == [0, 0]


def test_with_laplace_noise_a_value_near_the_threshold_says_nothing_of_how_low_the_count_was():
    """Given release and c <= R the excess has one law; so the low end is 1 until a^(v - R) < 0.025."""
    law, threshold = DiscreteLaplace(Fraction(9)), 41
    values = np.arange(41, 120)
    low, _ = given_release(values, threshold, law)
    uninformative = np.exp(-(values - threshold) / 9) >= 0.025
    assert (low[uninformative] == 1).all()
    assert (low[~uninformative] > 1).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.5, LEVEL])
def test_coverage_on_public_keys(law, level):
    law = LAWS[law]
    low, high = on_public_keys(np.array([100]), law, level)
    width = int(high[0] - 100)
    assert int(100 - low[0]) == width
    assert law.cdf(width) - law.cdf(-width - 1) >= level
    assert law.cdf(width - 1) - law.cdf(-width) < level


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_most_that_stays_below_a_threshold(law, threshold):
    law = LAWS[law]
    most = most_unreleased(threshold, law)
    assert law.cdf(threshold - 1 - (most + 1)) < 0.05
    assert most == 0 or law.cdf(threshold - 1 - most) >= 0.05


def test_the_columns_of_a_release():
    noisy = pa.table({"query": ["ant", "bee"], "noisy": [41, 60]})
    table = with_intervals(noisy, GaussianHistogram(20, Fraction(8), 41))
    assert table.column_names == ["query", "count", "stderr", "low", "high"]
    assert table["count"].to_pylist() == [41, 60]  # as published, never "corrected"
    assert table["stderr"].to_pylist() == [RoundedGaussian(Fraction(8)).variance ** 0.5] * 2
    assert table["low"].to_pylist()[0] == 1
    public = with_intervals(noisy, LaplaceHistogram(20, Fraction(8)))
    assert [h - c for h, c in zip(public["high"].to_pylist(), [41, 60], strict=True)] == [24.0, 24.0]
    zeros = with_intervals(noisy, LaplaceHistogram(20, Fraction(8), 41), support_is_public=True)
    assert zeros["low"].to_pylist() == [0, 0]
