"""Of a task with a period one period is counted, and nobody changes the guarantee with a forged time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hushquery.cli.app import app
from hushquery.errors import DataError, NotReady, UsageError
from hushquery.local.report import Report
from hushquery.local.server.counting import ReportCount, read_blocks
from hushquery.local.server.estimate import ClientEstimate, estimate
from hushquery.local.server.published import read_estimate
from hushquery.task import Task
from setting_reports import DAY, FIXED, REPORTS, SETTING, TASK, VALUES, changed, made

SECOND = made(FIXED, VALUES[:600], time=DAY, name="second")
BOTH = [*SECOND[:300], *REPORTS, *SECOND[300:]]
OTHER = "ReportOfAnotherPeriod"


def epsilon(found: ClientEstimate) -> float:
    assert found.guarantee is not None
    return found.guarantee.epsilon


def test_the_period_of_most_reports_is_counted_and_the_others_are_refused() -> None:
    alone, found = estimate(TASK, REPORTS), estimate(TASK, BOTH)
    assert (found.period, found.periods, found.n, found.read) == (0, (0,), 1000, 1600)
    assert found.refused == {OTHER: 600}
    assert found.table == alone.table
    assert found.support.tolist() == alone.support.tolist()
    assert "period 0, which began on 1970-01-01" in found.notes[-1]
    with pytest.raises(DataError, match=OTHER):
        estimate(TASK, BOTH, strict=True)


def test_a_period_can_be_asked_for() -> None:
    found = estimate(TASK, BOTH, period=1)
    assert (found.period, found.n, found.refused) == (1, 600, {OTHER: 1000})
    assert found.table == estimate(TASK, SECOND).table
    assert "1970-01-02" in found.notes[-1]
    with pytest.raises(NotReady) as caught:
        estimate(TASK, BOTH, period=2)
    assert "another period" in caught.value.fix
    with pytest.raises(DataError, match=OTHER):
        estimate(TASK, BOTH, period=1, strict=True)


def test_shards_that_agree_on_the_period_add_up() -> None:
    """As on Spark: the fullest period of a shard need not be that of all."""
    whole = estimate(TASK, BOTH)
    counts = []
    for shard in (BOTH[:400], BOTH[400:]):
        with ReportCount(FIXED, "most") as count:
            for block in read_blocks(shard, count.length):
                count.add(block)
            counts.append((count, max(count.periods, key=lambda number: count.periods[number])))
            count.close(whole.period)
    assert [fullest for _, fullest in counts] == [1, 0]
    assert sum(count.n for count, _ in counts) == whole.n
    assert sum(count.refused[OTHER] for count, _ in counts) == whole.refused[OTHER]
    assert (counts[0][0].support + counts[1][0].support).tolist() == whole.support.tolist()


def test_of_equally_many_the_latest_period_is_counted() -> None:
    assert estimate(TASK, [*SECOND, *REPORTS[:600]]).period == 1
    assert estimate(TASK, [*REPORTS[:600], *SECOND]).period == 1


def test_forged_times_change_neither_the_guarantee_nor_the_table() -> None:
    forged = [
        Report.from_bytes(changed(REPORTS[0], id=bytes([number]) * 16, time=number * DAY)) for number in range(1, 30)
    ]
    far = Report.from_bytes(changed(REPORTS[0], id=b"far" + bytes(13), time=(2**53 - 1) // DAY * DAY))
    alone, found = estimate(TASK, REPORTS), estimate(TASK, [far, *forged, *REPORTS])
    assert epsilon(found) == epsilon(alone) == pytest.approx(2)
    assert found.table == alone.table
    assert (found.period, found.refused) == (0, {OTHER: 30})


def test_the_guarantee_is_that_of_one_periods_records() -> None:
    two = Task.loads(SETTING.replace("epsilon = 2\n", "epsilon = 2\nrecords_per_user = 2\n", 1))
    found = estimate(two, made(type(FIXED).of(two), VALUES))
    assert epsilon(found) == pytest.approx(2)
    assert found.guarantee is not None
    assert found.guarantee.steps[0].detail == "2 answers of each client"


def test_all_periods_are_counted_when_that_is_asked_for_at_the_sum_up_to_the_lifetime() -> None:
    later = [*REPORTS, *made(FIXED, VALUES, time=DAY, name="second")]
    two = estimate(TASK, later, period="all")
    three = estimate(TASK, [*later, *made(FIXED, VALUES, time=2 * DAY, name="third")], period="all")
    assert (epsilon(two), epsilon(three)) == (pytest.approx(4), pytest.approx(5))
    assert two.guarantee is not None
    assert "given the change times" in two.guarantee.steps[0].detail
    assert (two.periods, three.periods) == ((0, 1), (0, 1, 2))
    assert (two.period, three.period) == (None, None)
    assert any("2 periods" in note for note in two.notes)
    assert read_estimate(two.release()).periods == (0, 1)
    assert three.release().manifest["steps"][0]["parameters"]["lifetime"] == "5"
    assert "lifetime" not in estimate(TASK, REPORTS).release().manifest["steps"][0]["parameters"]
    assert estimate(TASK, REPORTS, period="all").period == 0


def test_a_task_without_periods_has_one() -> None:
    once = Task.loads(SETTING.replace('period = "1d"', ""))
    fixed = type(FIXED).of(once)
    reports = [*made(fixed, VALUES[:500]), *made(fixed, VALUES[500:], time=9 * DAY, name="later")]
    found = estimate(once, reports)
    assert (found.period, found.n, found.refused) == (0, 1000, {})
    assert estimate(once, reports, period=0).table == found.table
    with pytest.raises(UsageError, match="no periods"):
        estimate(once, reports, period=1)


@pytest.mark.parametrize("period", [-1, 1.0, True, "most", "1", 2**60])
def test_no_period(period: object) -> None:
    with pytest.raises(UsageError, match="whole number"):
        estimate(TASK, REPORTS, period=period)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_whatever_the_order_the_fullest_period_is_counted(days: list[int], chance: object) -> None:
    """Against a plain count, over the same reports in any order, with some of them twice."""
    small = Task.loads(SETTING.replace("min_batch = 100", "min_batch = 2"))
    fixed = type(FIXED).of(small)
    reports = [changed(one, time=day * DAY) for one, day in zip(made(fixed, VALUES[: len(days)]), days, strict=True)]
    most = max(set(days), key=lambda day: (days.count(day), day))
    given = [*reports, *reports[::3]]
    chance.shuffle(given)  # type: ignore[attr-defined]
    if days.count(most) < 2:
        with pytest.raises(NotReady):
            estimate(small, given)
        return
    found = estimate(small, given)
    assert (found.period, found.n) == (most, days.count(most))
    assert found.refused.get(OTHER, 0) == len(days) - found.n
    assert found.repeated == len(reports[::3])


def test_waiting_reports_go_to_a_file_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushquery.local.server.counting._IN_MEMORY", 1)
    monkeypatch.setattr("hushquery.local.server.counting._WAITING_ROWS", 7)
    found = estimate(TASK, BOTH)
    assert found.table == estimate(TASK, BOTH, period=0).table
    assert found.n == 1000


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(SETTING)
    (tmp_path / "reports.txt").write_text("\n".join(report.to_text() for report in BOTH))

    def told(*more: str) -> dict[str, object]:
        asked = ["estimate", str(tmp_path / "reports.txt"), "--task", str(tmp_path / "task.toml"), "--json", *more]
        done = CliRunner().invoke(app, asked, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found: dict[str, object] = json.loads(done.stdout)
        return found

    assert told()["periods"] == [0]
    assert told("--epoch", "1")["periods"] == [1]
    assert told("--epoch", "all")["periods"] == [0, 1]
    for wrong in ("-1", "x", "1.5", "9" * 40, ""):
        with pytest.raises(UsageError, match="--epoch is the number"):
            told("--epoch", wrong)
