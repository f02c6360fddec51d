"""The error that is forecast before anybody reports is the one that reports then have."""

from __future__ import annotations

import numpy as np
import pytest

from hushquery.errors import UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import Channel
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.plan import forecast
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task, template

N = 20_000


def expected_error(channel: Channel, reports: int) -> float:
    return channel.expected_errors(reports)[0]


def largest_error(channel: Channel, reports: int) -> float:
    return channel.expected_errors(reports)[1]


SHARES = np.linspace(0, 1, 41)
LIST = '[["a", "https://a.example"], ["a", "https://b.example"], ["b", ""]]'
SEARCHES = f'[task]\nname="q"\npopulation="p"\ndomain={LIST}\n[client]\nepsilon=2\nlifetime_epsilon=4\n'
HISTOGRAM = (
    template("number")
    .replace('oracle = "onebit"', 'oracle = "dbitflip"\nbuckets = 24\nbits = 4')
    .replace("step = 1440", "# step = 1440")
)


@pytest.mark.parametrize(
    "text",
    [template("setting"), SEARCHES, SEARCHES + 'oracle="olh"\n', SEARCHES + 'oracle="two-stage"\n'],
    ids=["krr", "auto", "olh", "two-stage"],
)
def test_shares_of_a_list(text: str) -> None:
    channel = Configuration.of(Task.loads(text)).channel
    oracle = Configuration.of(Task.loads(text)).oracle
    reports = oracle.randomize_many([oracle.k - 1] * N, SeededBits(1))
    _, errors = oracle.frequencies(oracle.support(reports), N)
    rare = errors[:-1]  # nobody holds these
    if "two-stage" in text:
        rare = rare.max(keepdims=True)
    assert expected_error(channel, N) == pytest.approx(rare.mean(), rel=0.05)


def test_averages_and_histograms() -> None:
    mean = Configuration.of(Task.loads(template("number"))).channel
    assert isinstance(mean, OneBitMean)
    bits = mean.randomize_many([mean.most // 2] * N, SeededBits(2))
    (row,) = mean.table(mean.support(bits.astype(np.int64)), N, 0.95, ["mean"])
    assert expected_error(mean, N) == pytest.approx(row.stderr, rel=0.01)

    histogram = Configuration.of(Task.loads(HISTOGRAM)).channel
    assert isinstance(histogram, DBitFlip)
    flip = histogram
    sampled = flip.sample(N, SeededBits(3))
    answers = flip.randomize_many([flip.k - 1] * N, sampled, SeededBits(4))
    table = histogram.table(histogram.support(np.concatenate([sampled, answers], axis=1)), N, 0.95, histogram.ranges())
    assert expected_error(histogram, N) == pytest.approx(np.mean([row.stderr for row in table][:-1]), rel=0.05)


def test_texts_are_forecast_as_rappor_plan_does() -> None:
    channel = Configuration.of(Task.loads(template("text"))).channel
    assert isinstance(channel, Rappor)
    assert expected_error(channel, N) == pytest.approx(forecast(N, channel.params).std_error / N)


@pytest.mark.parametrize("epsilon", [0.5, 1, 4, 8])
def test_the_largest_error_is_that_of_the_worst_share(epsilon: float) -> None:
    oracle = KRR.calibrate(5, epsilon)
    most = largest_error(oracle, N)
    worst = np.sqrt(max(oracle.variance(float(share)) for share in SHARES) / N)
    assert worst <= most * (1 + 1e-12)
    assert most == pytest.approx(worst, rel=0.01)


@pytest.mark.parametrize("urls", [[2, 1, 3], [0] * 5, [4] * 6])
@pytest.mark.parametrize("epsilon", [1, 4, 8])
def test_the_largest_error_of_two_stages_is_that_of_the_worst_share_of_value_and_query(
    urls: list[int], epsilon: int
) -> None:
    two = TwoStage.calibrate(urls, epsilon)
    most = largest_error(two, N)
    pairs = [(f, q) for f in SHARES for q in SHARES if q == f or (q > f and any(urls))]
    worst = np.sqrt(max(two.variance(cell, float(f), float(q)) for cell in two.starts[:-1] for f, q in pairs) / N)
    assert worst <= most * (1 + 1e-12)
    assert most == pytest.approx(worst, rel=0.01)


def test_a_value_that_half_of_the_clients_hold_has_the_largest_error_in_reports_too() -> None:
    """With a large epsilon it is a multiple of a rare value's, because which clients were asked decides."""
    oracle = KRR.calibrate(4, 6)
    reports = oracle.randomize_many([0] * (N // 2) + [1] * (N // 2), SeededBits(5))
    _, errors = oracle.frequencies(oracle.support(reports), N)
    channel = oracle
    assert errors[0] == pytest.approx(largest_error(channel, N), rel=0.01)
    assert largest_error(channel, N) > 9 * expected_error(channel, N)


def test_the_largest_error_of_a_histogram_is_that_of_its_worst_bucket() -> None:
    histogram = Configuration.of(Task.loads(HISTOGRAM.replace("epsilon = 1.0", "epsilon = 8.0"))).channel
    assert isinstance(histogram, DBitFlip)
    flip, shown = histogram, []
    for common in (N // 2, N):
        sampled = flip.sample(N, SeededBits(6))
        values = [3] * common + [4] * (N - common)
        answers = flip.randomize_many(values, sampled, SeededBits(7))
        rows = np.concatenate([sampled, answers], axis=1)
        shown.append(histogram.table(histogram.support(rows), N, 0.95, histogram.ranges()).rows[3].stderr)
    assert largest_error(histogram, N) == pytest.approx(max(shown), rel=0.03)
    assert largest_error(histogram, N) > 3 * expected_error(histogram, N)


@pytest.mark.parametrize("text", [template("number"), template("text")], ids=["average", "text"])
def test_the_largest_error_is_never_below_the_expected_one(text: str) -> None:
    channel = Configuration.of(Task.loads(text)).channel
    rare, most = expected_error(channel, N), largest_error(channel, N)
    assert most == rare if isinstance(channel, OneBitMean) else most > rare
    assert largest_error(channel, 4 * N) == pytest.approx(most / 2)


@pytest.mark.parametrize("error", [expected_error, largest_error])
def test_one_report_has_no_error(error) -> None:
    with pytest.raises(UsageError, match="two reports"):
        error(Configuration.of(Task.loads(template("setting"))).channel, 1)
