"""The periods of a task as series: what varies how much between two of them, what is missing, and what begins anew."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import statistical
from commands import answer
from hushquery.errors import DataError, UsageError
from hushquery.local.configuration import ORACLES, Configuration
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.server.estimate import estimate_support
from hushquery.publish import trends
from hushquery.publish.example import tiny_release
from hushquery.publish.periods import PeriodSeries, PeriodTrends, period_series
from hushquery.publish.trends import trend_chart
from hushquery.release import Release
from hushquery.release.repeats import Spread, spread_of
from hushquery.task import Task

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tools.coverage._devices import Devices, asked, setting  # noqa: E402
from tools.coverage.series import Scenario, drifting, observed, rushing, swapping  # noqa: E402

sys.path.remove(str(ROOT))

WEEK = 7 * 86400
FIXED = setting(4, 1)


def made(
    number: int = 0, support: tuple[int, ...] = (900, 600, 300, 200), fixed: Configuration = FIXED, **more
) -> Release:
    """Make the release of a period from what its reports add up to."""
    n = more.pop("n", sum(support))
    return estimate_support(fixed, np.array(support), n, periods=more.pop("periods", [number]), **more).release()


# ---- how much a difference varies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [cls.calibrate(6, 1.3) for cls in ORACLES.values() if cls.name != "olh"])
def test_the_spread_of_a_cell_is_that_of_the_channel(oracle):
    for cell in (0, 5):
        spread = spread_of(oracle.describe(), cell)
        assert math.isclose(spread.held, oracle.variance(1.0), rel_tol=1e-9)
        assert math.isclose(spread.other, oracle.variance(0.0), rel_tol=1e-9)
        assert math.isclose(spread.least, min(spread.held, spread.other))


def test_olh_and_the_mechanisms_of_numbers_have_the_chances_of_their_integers():
    olh = ORACLES["olh"].calibrate(1000, 2)
    assert math.isclose(spread_of(olh.describe(), 7).other, float(olh.rare_variance), rel_tol=1e-9)
    mean = asked("number", "highest = 100", 1, 'oracle = "onebit"').channel
    spread = spread_of(mean.describe(), 0)
    assert math.isclose(math.sqrt(spread.most / 50), mean.expected_errors(50)[1], rel_tol=1e-9)
    ranges = asked("number", "highest = 9", 1, 'oracle = "dbitflip"\nbuckets = 5\nbits = 2').channel
    rare, worst = ranges.expected_errors(100)
    spread = spread_of(ranges.describe(), 3)
    assert math.isclose(math.sqrt(spread.other / 40), rare, rel_tol=1e-9)
    assert math.isclose(math.sqrt(spread.most / 40), worst, rel_tol=1e-9)


def test_the_spread_of_a_record_follows_from_the_law_of_two_stages():
    oracle = TwoStage.calibrate([1, 3, 0, 2], 2, mode="tight")
    law = np.array([[oracle.law(x).get(y, 0.0) for y in range(oracle.k)] for x in range(oracle.k)])
    for cell in range(oracle.k):
        counted = np.linalg.inv(law)[:, cell]  # what a report of each cell counts for this one
        variances = law @ counted**2 - (law @ counted) ** 2
        spread, others = spread_of(oracle.describe(), cell), np.delete(variances, cell)
        assert math.isclose(spread.held, variances[cell], rel_tol=1e-9)
        assert math.isclose(spread.other, others.max(), rel_tol=1e-9)
        assert math.isclose(spread.least, variances.min(), rel_tol=1e-9)


GROUPS = st.lists(st.integers(0, 400), min_size=9, max_size=9).filter(lambda groups: sum(groups[:5]) > 30)


@settings(max_examples=300, deadline=None)
@given(
    GROUPS, st.floats(0.05, 6), st.integers(2, 30), st.sampled_from(["krr", "oue", "hadamard", "subset"]), st.booleans()
)
def test_no_population_varies_more_than_the_bound(groups, epsilon, k, name, drawn):
    """Exact variances of devices that stay, move in and out or elsewhere, leave and come; values given, or drawn."""
    oracle = ORACLES[name].calibrate(k, epsilon)
    p, q, gap = float(oracle.p), float(oracle.q), float(oracle.p - oracle.q)
    stay, away, into, out, other, left_own, left, came_own, came = groups
    first, last = stay + away + into + out + other + left_own + left, stay + away + into + out + other + came_own + came
    own, rest = p * (1 - p), q * (1 - q)

    def total(here: int, others: int) -> float:
        """The variance of a count: values given, or every device drawn from the whole."""
        rate = (here * p + others * q) / (here + others)
        return (here + others) * rate * (1 - rate) if drawn else here * own + others * rest

    if drawn:  # each pair of values is drawn from the same law; nobody leaves or comes
        both = stay + away + into + out + other
        assume(stay * both >= (stay + out) * (stay + into))  # who held it is not less likely to hold it later
        first = last = both
        differ = (into + out) * (p + q - 2 * p * q) + other * 2 * rest
        exact = (differ - ((into - out) * gap) ** 2 / both) / both**2
        variances = [total(stay + out, away + into + other) / both**2, total(stay + into, away + out + other) / both**2]
    else:
        one, two = 1 / first, 1 / last
        exact = (two - one) ** 2 * (stay * own + away * rest)
        exact += one**2 * ((out + left_own) * own + (into + other + left) * rest)
        exact += two**2 * ((into + came_own) * own + (out + other + came) * rest)
        variances = [
            total(stay + out + left_own, away + into + other + left) / first**2,
            total(stay + into + came_own, away + out + other + came) / last**2,
        ]
    bound = spread_of(oracle.describe(), 0).difference(
        (first, last), (variances[0] / gap**2, variances[1] / gap**2), (stay + away) / min(first, last)
    )
    assert exact / gap**2 <= bound * (1 + 1e-9)


def test_the_bound_is_attained_and_shrinks_with_what_is_declared():
    oracle = ORACLES["krr"].calibrate(2, 3)
    p, q = float(oracle.p), float(oracle.q)
    spread = spread_of(oracle.describe(), 0)
    bound = spread.difference((1000, 1000), (1.0, 1.0), 0.95)
    assert math.isclose(bound, 0.05 * (p + q - 2 * p * q) / (p - q) ** 2 / 1000, rel_tol=1e-9)
    assert spread.difference((1000, 1000), (1.0, 1.0), 0.97) < bound
    assert spread.difference((1000, 1000), (1.0, 1.0), 0.0) == 2.0
    assert spread.difference((1000, 1000), (1e-9, 1e-9), 0.5) == 2e-9  # never worse than independent noise
    # Ten reports are taken not to repeat, whatever is declared.
    assert math.isclose(spread.difference((1000, 1000), (1.0, 1.0), 0.9999), bound / 5, rel_tol=1e-9)
    assert spread.difference((1000, 2000), (1e-3, 5e-4), 0.95) > bound / 2


# ---- coverage ------------------------------------------------------------------------------------------------------

PANELS = 300
# All movers enter one small cell, where the bound is nearly attained.
RUSH = Scenario("test: movers rush to one of ten cells", setting(10, 3), *rushing(10), devices=800)


def missed(declared: float, scenario: Scenario = RUSH, apart: int = 1) -> int:
    """Count the panels whose change lies outside its interval; panels are independent, so exact binomial tails hold."""
    rng, devices = np.random.default_rng(statistical.number("periods", scenario.name)), scenario.cohort()
    misses = 0
    for _ in range(PANELS):
        series, truths = scenario.panel(rng, devices, declared, periods=1 + apart)
        change = series.change("v0", 0, apart)
        misses += not change.low <= truths[-1][0] - truths[0][0] <= change.high
    return misses


def test_changes_of_repeated_answers_are_covered():
    """Intervals may miss 6%: a false alarm is rarer than 1e-9, and 16% missed are always seen."""
    statistical.rate_at_most(missed(0.95), PANELS, 0.06, "changes with 5% moving and 95% declared")


def test_changes_over_several_periods_are_covered():
    statistical.rate_at_most(missed(0.95, apart=3), PANELS, 0.06, "changes over three periods")


def test_changes_of_a_sampled_task_are_covered():
    half = setting(4, 1, client="sampling = 0.5")
    sampled = Scenario("test: half of all are sampled", half, *drifting(4), devices=1000, sampling=0.5)
    statistical.rate_at_most(missed(0.95, sampled), PANELS, 0.06, "changes of sampled devices")


def test_a_share_that_is_declared_too_high_is_caught():
    with pytest.raises(AssertionError, match="too much is declared"):
        statistical.rate_at_most(missed(0.99), PANELS, 0.06, "too much is declared")


def test_movers_who_are_taken_for_average_reports_are_caught(monkeypatch):
    """(1 - r)(V + V') would be right if movers varied as all others do; they do not."""

    def naive(_self: Spread, _reports: tuple[int, int], variances: tuple[float, float], repeated: float) -> float:
        return (1 - repeated) * sum(variances)

    monkeypatch.setattr(Spread, "difference", naive)
    with pytest.raises(AssertionError, match="average movers"):
        statistical.rate_at_most(missed(0.95), PANELS, 0.06, "average movers")


def test_a_declared_share_finds_changes_that_independent_noise_hides():
    swap = Scenario("power", setting(20, 3), *swapping(20))
    _, declared, alone = observed(swap, 400, (0, 1))
    assert declared.called > 20 * max(alone.called, 1)


# ---- what a series is ----------------------------------------------------------------------------------------------


def test_periods_are_ordered_and_missing_ones_are_shown():
    (series,) = period_series([made(2903), made(2900), made(2901)])
    assert [(period.number, period.missing) for period in series.periods] == [
        (2900, False),
        (2901, False),
        (2902, True),
        (2903, False),
    ]
    assert [period.label for period in series.periods][:2] == ["2025-07-31", "2025-08-07"]
    points = series.values("v0")
    assert points[2] is None
    assert points[0].low < points[0].estimate < points[0].high
    assert (series.name, series.kind, series.measure, series.begins) == ("theme", "setting", "share", "")
    assert any("No data for 1 period" in note for note in series.notes)
    change = series.change("v0")
    assert (change.earlier, change.later, change.difference, change.noise) == (2901, 2903, 0.0, True)


def test_a_gap_of_years_is_one_entry():
    (series,) = period_series([made(0), made(2**40)])
    assert [(period.number, period.last) for period in series.periods] == [(0, 0), (1, 2**40 - 1), (2**40, 2**40)]
    assert series.periods[-1].label == f"period {2**40}"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (setting(5, 1), "the list changed (1 added, 0 removed)"),
        (setting(4, 2), "epsilon was 1, and is 2"),
        (setting(4, 1, "oue"), "the mechanism was krr, and is oue"),
        (setting(4, 1, client="sampling = 0.5"), "the sampling rate was 1, and is 0.5"),
    ],
)
def test_a_task_that_changes_begins_a_new_series_and_says_so(other, words):
    cells = other.channel.k
    after = [made(number, (400,) * cells, other, n=400 * cells) for number in (7, 8)]
    first, second = period_series([*after, made(5), made(6)], 0.9)
    assert [len(one.present) for one in (first, second)] == [2, 2]
    assert first.begins == ""
    assert words in second.begins
    assert second.begins in trends([made(6), *after]).notes


def test_integers_of_another_version_begin_a_new_series():
    release = made(1)
    text = json.loads(release.manifest["parameters"]["configuration_text"])
    text["oracle"]["lie"] += 1
    parameters = {**release.manifest["parameters"], "configuration": "0" * 64, "configuration_text": json.dumps(text)}
    _, second = period_series([made(0), replace(release, manifest={**release.manifest, "parameters": parameters})])
    assert "the mechanism runs with other integers" in second.begins


def test_another_level_or_post_processing_begins_a_new_series():
    assert "99%" in period_series([made(0), made(1, level=0.99)])[1].begins
    assert "post-processed by clip" in period_series([made(0), made(1, post="clip")])[1].begins


def test_a_task_that_returns_to_what_it_was_goes_on_where_it_stopped():
    """Devices have kept their answers."""
    first, second = period_series([made(0), made(1, (400,) * 4, setting(4, 2)), made(2)])
    assert [period.number for period in first.present] == [0, 2]
    assert [period.number for period in second.present] == [1]


def test_a_cut_interval_does_not_make_a_change_surer():
    rare = [made(number, (1000, 700, 290, 10), post="clip") for number in (0, 1)]
    (series,) = period_series(rare)
    (raw,) = period_series([made(number, (1000, 700, 290, 10)) for number in (0, 1)])
    cut, whole = series.change("*"), raw.change("*")
    assert series.values("*")[0].estimate == series.values("*")[0].low == 0.0
    assert cut.low <= whole.low * 0.9 < 0 < whole.high * 0.9 <= cut.high


def test_what_can_not_be_one_series_is_refused():
    other = Configuration.of(Task.loads(_renamed("font")))
    for releases, error, words in (
        ([], UsageError, "needs a release"),
        ([made(1), made(1)], DataError, "two releases are of period 1"),
        ([made(1), made(2, fixed=other)], DataError, "different tasks"),
        ([made(1), tiny_release()], DataError, "counts or blended shares"),
    ):
        with pytest.raises(error, match=words):
            period_series(releases)
    for share in (1, -0.1, True, "0.9", math.nan):
        with pytest.raises(UsageError, match="same_devices"):
            period_series([made(1)], share)
    (series,) = period_series([made(1), made(2)])
    for call in (
        lambda: series.values("nothing"),
        lambda: series.change("v0", 1, 3),
        lambda: series.change("v0", 2, 1),
        lambda: series.change("v0", level=1.0),
        lambda: PeriodSeries(series.periods[:1]).change("v0"),
    ):
        with pytest.raises(UsageError):
            call()


@pytest.mark.parametrize("name", ["periods", "configuration", "configuration_text", "post", "task_text"])
def test_a_manifest_that_says_too_little_is_refused(name):
    release = made(1)
    for spoilt in ({}, {name: None}, {name: "[]"}):
        parameters = {key: value for key, value in release.manifest["parameters"].items() if key != name} | spoilt
        if spoilt and name in ("configuration", "post"):
            continue  # any text will do
        with pytest.raises(DataError):
            period_series([replace(release, manifest={**release.manifest, "parameters": parameters})])


def _renamed(name: str) -> str:
    values = ", ".join(f'"v{i}"' for i in range(3))
    return (
        f'task = {{name = "{name}", population = "simulated clients", kind = "setting", period = "7d", '
        f"domain = [{values}]}}\nclient = {{epsilon = 1, lifetime_epsilon = 4}}\n"
    )


def test_the_share_over_several_periods_is_what_two_changes_leave():
    (series,) = period_series([made(0), made(1), made(3)], 0.9)
    assert math.isclose(series.repeated(0, 1), 0.9)
    assert math.isclose(series.repeated(0, 3), 0.7)
    assert series.repeated(0, 20) == 0.0
    half = setting(4, 1, client="sampling = 0.5")
    (sampled,) = period_series([made(0, fixed=half), made(1, fixed=half)], 0.9)
    assert math.isclose(sampled.repeated(0, 1), 0.45)
    assert any("50% are sampled" in note for note in sampled.notes)


def test_where_a_declaration_can_not_be_used_it_says_so():
    several = setting(4, 1, client="records_per_user = 2")
    once = Configuration.of(Task.loads(_renamed("theme").replace('period = "7d", ', "")))
    for releases, words in (
        ([made(0, fixed=several), made(1, fixed=several)], "several records"),
        ([made(0), made(periods=[1, 2])], "several periods"),
        ([made(0, fixed=once), made(0, fixed=once)], "no periods"),
    ):
        (series,) = period_series(releases, 0.95)
        (alone,) = period_series(releases)
        assert any("is not used" in note and words in note for note in series.notes)
        assert series.change("v0") == alone.change("v0")
        assert series.change("v0").repeated == 0.0


def test_texts_are_compared_where_both_periods_found_them():
    rappor = 'oracle = "rappor"\nrappor = {k = 32, h = 1, m = 2, p = 0.1, q = 0.9, f = 0.05}'
    fixed = asked("text", "", 20, rappor)
    bits = statistical.bits("periods", "texts")
    releases = []
    for number, held in enumerate((["blue"] * 500 + ["red"] * 500, ["blue"] * 1000)):
        from setting_reports import made as reports_of

        reports = reports_of(fixed, held, time=number * WEEK, name=f"texts {number} {bits.words(1)[0]}")
        rows = np.stack([np.frombuffer(report.payload, np.uint8) for report in reports])
        support = fixed.channel.support(fixed.channel.unpack_many(rows))
        releases.append(estimate_support(fixed, support, 1000, periods=[number], candidates=["blue", "red"]).release())
    (series,) = period_series(releases, 0.9)
    assert series.cells == ("blue", "red")
    assert series.values("red")[1] is None
    assert series.change("red") is None
    assert not series.change("blue").noise
    assert any("RAPPOR" in note for note in series.notes)
    assert "not found" in _shown(releases)


def _shown(releases: list[Release]) -> str:
    from hushquery.cli.periods import as_text

    result = trends(releases)
    assert isinstance(result, PeriodTrends)
    return as_text(result, 20)


def test_records_of_searches_are_compared_like_values():
    pages = 'domain = [["news", "https://a.example"], ["news", "https://b.example"], ["maps", "https://c.example"]]'
    fixed = asked("searches", pages, 2, 'oracle = "two-stage"')
    releases = [made(number, (400, 300, 200, 100, 50, 50), fixed) for number in (0, 1)]
    (series,) = period_series(releases, 0.95)
    (alone,) = period_series(releases)
    for cell in series.cells:
        assert 0 < series.change(cell).stderr < alone.change(cell).stderr
    assert "news  https://a.example" in _shown(releases)


def test_bonferroni_widens_for_every_cell():
    (series,) = period_series([made(0), made(1)])
    wide, narrow = (series.changes(bonferroni=both)[0] for both in (True, False))
    ratio = (wide.high - wide.low) / (narrow.high - narrow.low)
    assert math.isclose(ratio, 2.4977 / 1.9600, rel_tol=1e-3)  # at 1 - .05/4


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("weeks")
    rng, devices = np.random.default_rng(3), Devices(FIXED, 3000, statistical.bits("periods", "folders"))
    values = rng.choice(4, 3000, p=[0.5, 0.3, 0.15, 0.05])
    for week in range(2900, 2905):
        if week == 2904:
            values[rng.random(3000) < 0.3] = 1
        if week != 2902:
            support = devices.configuration.channel.support(devices.reports(np.arange(3000), values))
            made(week, tuple(support.tolist())).save(root / f"week-{week}")
    made(2905, (300,) * 5, setting(5, 1)).save(root / "week-2905")
    return root


def test_the_command_shows_each_value_over_time(folders):
    weeks = [folders / f"week-{week}" for week in (2904, 2900, 2901, 2903)]
    code, out, err = answer("trends", *weeks, "--same-devices", "0.7")
    assert code == 0
    assert "Declared, not measured: from one period to the next at least 70%" in err
    head, *rows = out.splitlines()[1:]
    assert head.index("2025-07-31") < head.index("2025-08-14") < head.index("since previous")
    row = next(row for row in rows if row.startswith("v1"))
    assert "no data" in row
    assert "·" in row
    assert "changed" in row
    assert "noise" in next(row for row in rows if row.startswith("*"))


def test_the_command_says_where_a_new_series_begins(folders):
    code, out, err = answer("trends", *sorted(folders.iterdir()), "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["same_devices_declared"] == 0.0
    first, second = data["series"]
    assert [period["folder"] is None for period in first["periods"]] == [False, False, True, False, False]
    assert first["values"][0]["estimates"][2] is None
    assert first["values"][1]["since_previous"]["noise"] is False
    assert first["values"][0]["since_first"]["earlier"] == 2900
    assert second["begins"].startswith("A new series begins: the list changed")
    assert second["values"][0]["since_previous"] is None


def test_the_command_refuses_what_can_not_be_compared(folders, tmp_path):
    code, _, err = answer("trends", folders / "week-2900", folders / "week-2900")
    assert code != 0
    assert "two releases are of period 2900" in err
    code, _, err = answer("trends", folders / "week-2900", "--same-devices", "1.5")
    assert code != 0
    assert "same_devices must be a share from 0 to below 1" in err


def test_the_chart_has_gaps_where_periods_are_missing(folders):
    pytest.importorskip("altair")
    releases = [Release.load(folder) for folder in sorted(folders.iterdir())]
    chart = json.loads(trend_chart(trends(releases)).to_json())
    drawn = next(iter(chart["datasets"].values())) if "datasets" in chart else chart["data"]["values"]
    runs = {row["release"]: row["run"] for row in drawn if row["query"] == "v0"}
    assert runs["2025-07-31"] == runs["2025-08-07"] != runs["2025-08-21"] == runs["2025-08-28"] != runs["2025-09-04"]
    assert '"new series"' in json.dumps(chart)


def test_queries_take_no_declaration():
    with pytest.raises(UsageError, match="same_devices"):
        trends([tiny_release()], same_devices=0.9)
