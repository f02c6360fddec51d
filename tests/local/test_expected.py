"""The error that is forecast before anybody reports is the one that reports then have."""

from __future__ import annotations

import numpy as np
import pytest

from hushquery.errors import UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.expected import expected_error
from hushquery.local.number_channels import HistogramChannel, MeanChannel
from hushquery.local.rappor_channel import RapporChannel
from hushquery.local.rappor_plan import forecast
from hushquery.noise.bits import SeededBits
from hushquery.task import Task, template

N = 20_000
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
    assert isinstance(mean, MeanChannel)
    bits = mean.memo.mean.randomize_many([mean.memo.mean.most // 2] * N, SeededBits(2))
    (row,) = mean.table(mean.support(bits.astype(np.int64)), N, 0.95, ["mean"])
    assert expected_error(mean, N) == pytest.approx(row.stderr, rel=0.01)

    histogram = Configuration.of(Task.loads(HISTOGRAM)).channel
    assert isinstance(histogram, HistogramChannel)
    flip = histogram.flip
    sampled = flip.sample(N, SeededBits(3))
    answers = flip.randomize_many([flip.k - 1] * N, sampled, SeededBits(4))
    table = histogram.table(histogram.support(np.concatenate([sampled, answers], axis=1)), N, 0.95, histogram.ranges())
    assert expected_error(histogram, N) == pytest.approx(np.mean([row.stderr for row in table][:-1]), rel=0.05)


def test_texts_are_forecast_as_rappor_plan_does() -> None:
    channel = Configuration.of(Task.loads(template("text"))).channel
    assert isinstance(channel, RapporChannel)
    assert expected_error(channel, N) == pytest.approx(forecast(N, channel.params).std_error / N)


def test_one_report_has_no_error() -> None:
    with pytest.raises(UsageError, match="two reports"):
        expected_error(Configuration.of(Task.loads(template("setting"))).channel, 1)
