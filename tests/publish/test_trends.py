"""What is frequent and what changed: arithmetic, coverage, and honest words."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.publish import trends
from hushquery.publish.charts import trend_chart
from hushquery.publish.trends import half_widths
from small_releases import QUERIES, release_of, whole_release


def test_the_most_frequent_queries_of_one_release():
    found = trends(whole_release(), limit=3)
    assert [(row.rank, row.query, row.count) for row in found.top] == [
        (1, "weather leeds", 900),
        (2, "leeds united", 700),
        (3, "weather", 650),
    ]
    assert (found.top[0].low, found.top[0].high) == (890, 910)
    assert found.changes == found.appeared == found.gone == ()
    assert "capped" in found.notes[0]


def test_changes_by_hand():
    old = release_of({"a": 100, "b": 100, "c": 50}, stderr=3.0)
    new = release_of({"a": 100, "b": 160, "c": 44}, stderr=4.0)
    found = trends([old, new])
    assert [(row.query, row.change, row.significant) for row in found.changes] == [
        ("b", 60, True),
        ("c", -6, False),
        ("a", 0, False),
    ]
    b = found.changes[0]
    assert b.counts == (100, 160)
    assert b.stderr == pytest.approx(5.0)
    assert (b.low, b.high) == (pytest.approx(60 - 5 * half_widths(0.95)), pytest.approx(60 + 5 * half_widths(0.95)))
    assert found.compared == 3
    assert found.top[0].query == "b"


def test_a_fall_is_a_change_too():
    found = trends([release_of({"a": 100}), release_of({"a": 10})])
    assert found.changes[0].significant
    assert found.changes[0].high < 0


def test_missing_is_below_the_threshold_not_zero():
    found = trends([release_of({"a": 100, "old": 90}), release_of({"a": 100, "new": 80, "newer": 85})])
    assert [row.query for row in found.changes] == ["a"]
    assert [(row.query, row.counts) for row in found.appeared] == [("newer", (None, 85)), ("new", (None, 80))]
    assert [(row.query, row.counts) for row in found.gone] == [("old", (90, None))]
    assert any("below the threshold" in note for note in found.notes)


def test_of_several_releases_the_first_and_the_last_are_compared():
    found = trends([release_of({"a": 10, "b": 1}), release_of({"b": 5}), release_of({"a": 500, "b": 2})])
    assert found.changes[0].query == "a"
    assert found.changes[0].counts == (10, None, 500)
    assert found.changes[0].change == 490


def test_bonferroni_widens_and_says_at_which_level():
    old = release_of({f"q{i}": 100 for i in range(1000)})
    new = release_of({f"q{i}": 100 + (18 if i == 0 else 0) for i in range(1000)})
    plain, corrected = trends([old, new]), trends([old, new], bonferroni=True)
    assert plain.changes[0].significant
    assert not corrected.changes[0].significant
    assert corrected.level == pytest.approx(1 - 0.05 / 1000)
    assert any("about 50 of 1,000" in note for note in plain.notes)
    assert not any("by chance" in note for note in corrected.notes)


def test_limits_apply_to_each_list():
    old, new = release_of({f"a{i}": 9 for i in range(9)}), release_of({f"b{i}": 9 for i in range(9)})
    found = trends([old, new], limit=4)
    assert (len(found.top), len(found.appeared), len(found.gone), len(found.changes)) == (4, 4, 4, 0)


def test_releases_made_differently_are_not_alike():
    found = trends([whole_release(), whole_release(parameters={"queries_per_user": 20})])
    assert any("different queries_per_user" in note for note in found.notes)
    assert not any("different" in note for note in trends([whole_release(), whole_release()]).notes)


def test_a_list_without_counts():
    bare = release_of(["a", "b"])
    with pytest.raises(DataError, match="no counts") as refused:
        trends(bare)
    assert "--select-only" in refused.value.why
    found = trends([bare, release_of({"b": 3, "c": 4})])
    assert found.changes == ()
    assert [row.query for row in found.appeared] == ["c"]
    assert [row.query for row in found.gone] == ["a"]
    assert any("without counts" in note for note in found.notes)
    assert trends([release_of({"b": 3}), bare]).top == ()


@pytest.mark.parametrize(
    "options", [{"level": 0}, {"level": 1}, {"level": float("nan")}, {"level": True}, {"limit": 0}]
)
def test_parameters_that_mean_nothing_are_refused(options):
    with pytest.raises(UsageError):
        trends([whole_release(), whole_release()], **options)


def test_no_release_no_trend():
    with pytest.raises(UsageError, match="need a release"):
        trends([])


def test_empty_and_exact_releases():
    assert trends([release_of({}), release_of({})]).changes == ()
    found = trends([release_of({"a": 1, "b": 1}, stderr=0.0), release_of({"a": 1, "b": 2}, stderr=0.0)])
    assert [(row.query, row.significant) for row in found.changes] == [("b", True), ("a", False)]


def two_laplace_tail(t, b1, b2):
    """P(|X + Y| > t) for independent Laplace X and Y, in closed form."""
    if math.isclose(b1, b2):
        return (1 + t / (2 * b1)) * math.exp(-t / b1)
    return (b1**2 * math.exp(-t / b1) - b2**2 * math.exp(-t / b2)) / (b1**2 - b2**2)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.92, 0.95, 0.99, 0.999, 1 - 1e-6])
def test_intervals_cover_for_laplace_and_gaussian_noise_of_any_sizes(level):
    width = half_widths(level)
    for share in np.linspace(0.001, 0.999, 200):
        b1, b2 = math.sqrt(share / 2), math.sqrt((1 - share) / 2)  # total variance 1
        assert two_laplace_tail(width, b1, b2) <= (1 - level) * 1.003
    assert math.erfc(width / math.sqrt(2)) <= (1 - level) * (1 + 1e-9)


def test_the_chart_draws_changes_or_counts():
    changed = trends([release_of({"a": 10}), release_of({"a": 90})])
    spec = json.loads(trend_chart(changed, ["may", "june"]).to_json())
    text = json.dumps(spec)
    assert "from may to june" in text
    assert spec["layer"][0]["encoding"]["x"]["axis"]["labelFlush"] is False  # else labels at the ends may overlap
    rows = (
        next(iter(spec.get("datasets", {}).values()), None) or spec["layer"][0].get("data", spec.get("data"))["values"]
    )
    assert rows == [
        {"query": "a", "value": 80, "low": changed.changes[0].low, "high": changed.changes[0].high, "changed": True}
    ]
    assert len(QUERIES) == json.dumps(json.loads(trend_chart(trends(whole_release())).to_json())).count('"low":')
    with pytest.raises(DataError, match="nothing to draw"):
        trend_chart(trends([release_of(["a"]), release_of(["a"])]))
