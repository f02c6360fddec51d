"""What is frequent and what changed: arithmetic, coverage, and honest words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from commands import hushquery
from hushquery import plot
from hushquery.core.estimates import Ends, difference_ends
from hushquery.core.loss import GaussianHistogram, LaplaceHistogram
from hushquery.errors import DataError, UsageError
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian, given_release
from hushquery.publish import trends
from hushquery.publish.trends import trend_chart
from hushquery.release.intervals import Published, change_ends
from small_releases import QUERIES, release_of, thresholded, whole_release


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
    assert (b.low, b.high) == (pytest.approx(50), pytest.approx(70))  # intervals of +-6 and +-8 make one of +-10
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


# ---- given publication ---------------------------------------------------------------------------------------------

NOISES = {
    "gaussian": (GaussianHistogram(20, Fraction(18), 75), RoundedGaussian(Fraction(18))),
    "laplace": (LaplaceHistogram(10, Fraction(10), 120), DiscreteLaplace(Fraction(10))),
}


def test_a_count_that_may_be_far_below_its_threshold_makes_a_change_as_wide():
    """81 with an interval from 1 to 112, and 309 the week before: the change was given as -282 to -174."""
    step, _ = NOISES["gaussian"]
    releases = [thresholded({"a": 309}, step), thresholded({"a": 81}, step)]
    before, after = (trends(release).top[0] for release in releases)
    assert after.low == 1
    (change,) = trends(releases).changes
    assert change.change == -228
    assert change.low <= 1 - before.high
    # Not the whole box: the two noises do not both go to their ends.
    assert after.high - before.low - 15 < change.high + 30 < after.high - before.low + 30
    assert change.low < change.change < change.high
    (back,) = trends(releases[::-1]).changes
    assert (back.low, back.high) == (-change.high, -change.low)


@pytest.mark.parametrize("noise", NOISES)
def test_a_missing_query_has_an_upper_limit(noise):
    step, law = NOISES[noise]
    found = trends([thresholded({"a": 300}, step), thresholded({"b": 300}, step)])
    (most,) = set(found.most_missing)
    assert 1 - law.tail(step.threshold - most) >= 0.05 > 1 - law.tail(step.threshold - most - 1)
    assert any("5%" in note for note in found.notes)
    # Nothing is known where a table was made by another noise than that of its threshold, or does not say.
    assert trends([release_of({"a": 9}), release_of({"b": 9})]).most_missing == (None, None)
    assert trends([thresholded({}, step), thresholded({"b": 300}, step)]).most_missing == (most, most)


def published_chances(law, count, threshold):
    """The values that may be published, from the threshold on, with their chances given publication."""
    spread = math.sqrt(law.variance)
    values = np.arange(threshold, max(threshold, count) + int(9 * spread))
    chances = np.array([law.pmf(int(v) - count) for v in values])
    return values, chances / float(law.tail(threshold - count))


def coverage_of_changes(law, threshold, counts, level=0.95):
    sides = []
    for count in counts:
        values, chances = published_chances(law, count, threshold)
        low, high = given_release(values, threshold, law, level)
        columns = (column.astype(float) for column in (values, np.zeros(len(values)), low, high))
        published = Published("count", *columns, level, law, threshold)
        sides.append((published.ends(level), chances))
    (before, first), (after, last) = sides
    covered = 0.0
    for a, chance in zip(before, first, strict=True):
        held = [low <= counts[1] - counts[0] <= high for low, high in (change_ends(a, b, whole=True) for b in after)]
        covered += chance * last[np.array(held)].sum()
    return covered


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("first", ["edge", "above", "far"])
@pytest.mark.parametrize("last", ["edge", "above", "far", "one user"])
def test_changes_cover_given_that_both_counts_were_published(noise, first, last):
    """Summed from the laws: at the threshold, two standard deviations above, far above, and a single user's count."""
    step, law = NOISES[noise]
    spread = round(math.sqrt(law.variance))
    where = {
        "edge": step.threshold,
        "above": step.threshold + 2 * spread,
        "far": step.threshold + 9 * spread,
        "one user": 1,
    }
    covered = coverage_of_changes(law, step.threshold, (where[first], where[last]))
    assert covered >= 0.94
    assert covered <= (0.99 if last == "one user" else 0.98)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("noise", NOISES)
def test_changes_cover_at_other_levels(noise, level):
    step, law = NOISES[noise]
    far = step.threshold + 12 * round(math.sqrt(law.variance))
    covered = coverage_of_changes(law, step.threshold, (far, far + 50), level)
    assert level - 1e-6 <= covered <= level + 0.6 * (1 - level) + 0.03


def test_the_rule_of_squares_and_the_rule_of_bounds():
    assert difference_ends(Ends(7, 10, 13), Ends(0, 4, 8)) == (1, 11)
    assert difference_ends(Ends(1, 10, 13, bounded=True), Ends(0, 4, 8)) == (1 - 8, 11)
    assert difference_ends(Ends(7, 10, 13), Ends(1, 4, 8, bounded=True)) == (1, 13 - 1)


def drawn(chart):
    """Give the rows behind a chart."""
    spec = json.loads(chart.to_json())
    return next(iter(spec.get("datasets", {}).values()), None) or spec["data"]["values"]


def test_the_chart_draws_every_release_not_only_the_first_and_the_last():
    counts = [{"a": 10, "b": 50}, {"a": 60, "b": 52}, {"b": 51}, {"a": 90, "b": 53}]
    releases = [release_of(one) for one in counts]
    rows = drawn(trend_chart(trends(releases), releases))
    assert [(row["query"], row["release"], row["value"]) for row in rows] == [
        ("a", "release 1", 10),
        ("a", "release 2", 60),
        ("a", "release 4", 90),
        *(("b", f"release {place}", one["b"]) for place, one in enumerate(counts, 1)),
    ]
    assert all(row["low"] < row["value"] < row["high"] for row in rows)
    # A line ends where a release does not list the query, and none joins two queries.
    runs = [row["run"] for row in rows]
    assert runs == [1, 1, 2, 3, 3, 3, 3]
    assert len(QUERIES) == json.dumps(json.loads(trend_chart(trends(whole_release())).to_json())).count('"low":')
    lists = [release_of(["a"]), release_of(["a"])]
    with pytest.raises(DataError, match="nothing to draw"):
        trend_chart(trends(lists), lists)


def test_many_queries_have_a_chart_each():
    releases = [release_of({f"q{i}": 100 + 9 * i * week for i in range(8)}) for week in (1, 2, 3)]
    few, many = (json.loads(plot.trend(releases, [f"q{i}" for i in range(n)]).to_json()) for n in (3, 8))
    assert "facet" not in few
    assert few["layer"]
    assert many["facet"]["field"] == "query"
    assert len(drawn(plot.trend(releases, "q1"))) == 3
    with pytest.raises(DataError, match="no release lists"):
        plot.trend(releases, "my secret")


def test_a_drawing_is_ordered_by_the_dates_of_the_data(tmp_path):
    def of(count, start, end):
        about = {"period": {"start": start, "end": end}}
        made = release_of({"a": count})
        return replace(made, manifest={**made.manifest, "description": about})

    late, early = of(90, "2026-02-01", "2026-02-28"), of(10, "2026-01-01", "2026-01-31")
    names = ["2026-01-01 to 2026-01-31", "2026-02-01 to 2026-02-28"]
    assert [(row["release"], row["value"]) for row in drawn(plot.trend([late, early], "a"))] == [
        (names[0], 10), (names[1], 90)
    ]  # fmt: skip
    late.save(tmp_path / "late")
    early.save(tmp_path / "early")
    told = hushquery("trends", tmp_path / "late", tmp_path / "early", "--json", "--plot", tmp_path / "a.svg")
    assert json.loads(told.stdout)["changes"][0]["change"] == 80
    assert all(name in (tmp_path / "a.svg").read_text() for name in names)


def test_a_release_is_drawn_with_its_intervals():
    assert [row["label"] for row in drawn(plot.queries(whole_release(), 2))] == ["weather leeds", "leeds united"]
    with pytest.raises(DataError, match="no numbers"):
        plot.queries(release_of(["a"]))
