"""Forecasts: data-free ranges that hold the results, of logs of three kinds and of every selector."""

from __future__ import annotations

import functools
import inspect

import duckdb
import numpy as np
import pytest

from hushquery.core.budget import Budget
from hushquery.curator.counting import Bound
from hushquery.curator.forecast import LOGS, forecast
from hushquery.curator.plan import SELECTORS, ReleaseSpec, calibrate, plan_release
from hushquery.errors import UsageError
from hushquery.log.synthetic.logs import PROFILE_NAMES, write_log
from hushquery.noise.sampler import SeededBits

USERS = 7_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    return functools.cache(lambda like, users: write_log(folder / f"{like}{users}.parquet", like, users, seed=3))


@pytest.mark.parametrize("like", LOGS)
def test_what_is_said_of_a_kind_of_log_is_what_its_made_up_people_do(log, like):
    """Measured anew on other people than the constants were measured on."""
    assert set(LOGS) == set(PROFILE_NAMES)
    model = LOGS[like]
    rows = duckdb.from_parquet(str(log(like, USERS)))
    each = rows.aggregate('"user", query, min("time") as first', '"user", query')
    distinct = each.aggregate('"user", count(*) as n', '"user"').fetchnumpy()["n"]
    place = 'row_number() over (partition by "user" order by first, query) as place'
    first = each.project(f'"user", query, {place}').filter("place <= 20")
    held = np.sort(first.aggregate("query, count(*) as n", "query").fetchnumpy()["n"])[::-1]
    measured = np.log(distinct)
    assert (measured.mean(), measured.std()) == (
        pytest.approx(model.distinct[0], abs=0.06),
        pytest.approx(model.distinct[1], abs=0.06),
    )
    kept = np.minimum(distinct, 20).sum()
    for place, popularity in enumerate(model.popularity[:3]):
        assert held[10**place - 1] / kept == pytest.approx(popularity, rel=0.25), 10**place


@pytest.mark.parametrize(
    ("like", "selector"), [*(("aol", name) for name in SELECTORS[1:]), ("yandex", "laplace"), ("tiny", "gaussian")]
)
def test_a_release_lies_in_its_forecast(log, like, selector):
    """The selectors on 7,000 users; the guided one was forecast at 106 and gave 52 where the log is like aol."""
    plan = plan_release(
        log(like, USERS), epsilon=1, delta=1e-6, queries_per_user=10, selector=selector, population="made-up people"
    )
    seen = forecast(plan.spec, USERS, plan.calibrated, like)
    made = plan.calibrated.selector.run(plan.log.rows, Bound(plan.bound.keep, "0" * 32), SeededBits(5))
    assert seen.released_low <= made.num_rows <= seen.released_high


def test_a_small_log_is_not_promised_much():
    """891 users, guided, epsilon 1, d = 10: the forecast was 16, the results were 2 to 5."""
    seen = forecast(ReleaseSpec(Budget(1, 1e-6), 10, selector="guided"), 891)
    assert seen.released_low == 0
    assert 5 <= seen.released_high <= 10


def test_no_range_is_wider_than_four_times_or_begins_late():
    for selector in SELECTORS[1:]:
        request = ReleaseSpec(Budget(1, 1e-6), 5, selector=selector)
        made = calibrate(request)
        for like in LOGS:
            for users in (1, 100, 700, 2_000, 5_000, 30_000, 10**6, 10**9):
                row = forecast(request, users, made, like)
                low, high = row.released_low, row.released_high
                assert 0 <= low <= high, row
                assert high <= 4 * low or (low == 0 and 3 <= high <= 10), row


def test_a_forecast_is_computed_without_a_log():
    """It is given the plan's numbers and nothing else, and more users never release fewer queries."""
    assert list(inspect.signature(forecast).parameters) == ["spec", "users", "steps", "like", "searches"]
    for selector in SELECTORS[1:]:
        request = ReleaseSpec(Budget(1, 1e-6), 10, selector=selector)
        made = calibrate(request)
        ranges = [forecast(request, users, made) for users in (300, 3_000, 30_000, 300_000)]
        assert [row.released_low for row in ranges] == sorted(row.released_low for row in ranges)
        assert [row.released_high for row in ranges] == sorted(row.released_high for row in ranges)


def test_an_unknown_kind_of_log_is_refused():
    with pytest.raises(UsageError, match="no kind of log") as refused:
        forecast(ReleaseSpec(Budget(1, 1e-6), 10), like="bing")
    assert "aol" in refused.value.fix
