"""The phases of an epoch: legal moves only, each done once, whatever crashes or races."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from children import HANG
from collect.helpers import HEAD, SEARCHES, SETTING, WEEKLY, Clock, Crash, make_report, stored_ids, waiting_reports
from collect.houses import PROCESSES, House, race_to_advance
from hushquery.collect.epochs import phases
from hushquery.collect.epochs.epochs import (
    CLOSED,
    EXPIRED,
    HEAD_PUBLISHED,
    OPTIN_OPEN,
    PHASES,
    RELEASED,
    REPORTS_OPEN,
    Epoch,
    epochs_of,
    register,
)
from hushquery.collect.http.admin import metrics
from hushquery.collect.http.ingest import TaskCache
from hushquery.collect.store.reports import Arrival, write_reports
from hushquery.collect.store.vault import Vault
from hushquery.errors import NotReady, Unavailable, UsageError
from hushquery.task import Task

WEEK = 7 * 86400


Maker = Callable[..., House]


@pytest.fixture
def make_house(store_url: str, folder: Path, clock: Clock) -> Iterator[Maker]:
    """A function that makes houses of one store, as so many server processes would."""
    made: list[House] = []

    def make(text: str, work: Any = None) -> House:
        made.append(House(store_url, folder, clock, text, work))
        return made[-1]

    yield make
    for house in made:
        house.store.close()


def test_a_hybrid_epoch_goes_through_all_phases(make_house: Maker, folder: Path, clock: Clock) -> None:
    house = make_house(SEARCHES)
    assert house.epoch().phase == OPTIN_OPEN
    assert house.send(1) == ["too-early"]
    assert house.advance().phase == HEAD_PUBLISHED
    assert house.epoch().head == tuple(tuple(one) for one in HEAD)
    assert house.send(1) == ["too-early"]
    assert house.advance().phase == REPORTS_OPEN
    assert house.send(5) == ["accepted"] * 5
    assert house.advance().phase == CLOSED
    closed = house.epoch()
    assert (closed.reports, closed.counts, closed.scrubbed) == (5, {"reports": 5, "estimates": []}, True)
    assert house.send(5) == ["repeated"] * 5  # they were counted, and whoever asks is told so
    assert house.send(1, first=9) == ["phase-over"]
    assert house.advance().phase == RELEASED
    assert house.releases() == 1
    with pytest.raises(UsageError, match="last phase"):
        house.advance()
    assert house.work.calls == ["publish_head", "close", "release"]
    assert [key.rpartition(":")[2] for key in house.work.paid] == ["publish_head", "close", "release"]


def test_a_server_reads_again_only_what_has_moved(
    make_house: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks every second, and what the epochs of three months were given may be hundreds of megabytes."""
    house = make_house(SEARCHES)
    cache = TaskCache(house.store, [house.task], clock)
    read: list[str] = []
    known = Epoch.read

    def watched(task: Task, row: Any) -> Epoch:
        if "head" in row._fields:  # all columns
            read.append(row.phase)
        return known(task, row)

    monkeypatch.setattr(Epoch, "read", watched)
    for _ in range(3):
        cache.refresh()
    assert read == [OPTIN_OPEN]
    house.advance()
    read.clear()
    for _ in range(3):
        cache.refresh()
    assert read == [HEAD_PUBLISHED]
    seen = cache.epoch(house.number, house.period)
    assert seen is not None
    assert (seen.head, seen.takes_reports) == (house.epoch().head, False)


def test_time_has_little_to_do_with_epochs_that_are_over(
    make_house: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is looked at every few seconds by every worker: what was counted long ago is not read for that."""
    house = make_house(WEEKLY)
    assert house.send(3) == ["accepted"] * 3
    clock.now += WEEK
    for _ in range(2):
        house.advance()
    assert house.epoch().phase == RELEASED

    known = Epoch.read

    def watched(task: Task, row: Any) -> Epoch:
        assert "head" not in row._fields, "an epoch was read with all that it holds"
        return known(task, row)

    with monkeypatch.context() as patch:
        patch.setattr(Epoch, "read", watched)
        assert house.phases.tick({house.number: house.task}) == []
        assert f'epoch="{house.period}",phase="released"' in metrics(house.store)
    clock.now += house.task.collect.retention + 1
    house.phases.tick({house.number: house.task})
    assert house.epoch().forgotten


def test_a_task_with_a_domain_skips_the_opt_in(make_house: Maker, folder: Path, clock: Clock) -> None:
    house = make_house(SETTING)
    assert house.epoch().phase == REPORTS_OPEN


@pytest.mark.parametrize("start", range(4))
def test_illegal_moves_are_refused(make_house: Maker, folder: Path, clock: Clock, start: int) -> None:
    house = make_house(SEARCHES)
    for phase in PHASES[1 : start + 1]:
        house.advance(phase)
        house.send(3)
    for phase in PHASES:
        if phase not in PHASES[start : start + 2]:
            with pytest.raises(UsageError, match="does not go from"):
                house.advance(phase)
    with pytest.raises(UsageError, match="no such phase"):
        house.advance("open")
    assert house.epoch().phase == PHASES[start]
    assert house.advance(PHASES[start]).phase == PHASES[start]  # there already: nothing is done


def test_too_few_reports_are_not_released(make_house: Maker, folder: Path, clock: Clock) -> None:
    house = make_house(SETTING)
    house.send(2)
    house.advance(CLOSED)
    with pytest.raises(NotReady, match="min_batch"):
        house.advance(RELEASED)
    assert house.releases() == 0
    assert "release" not in house.work.calls


@pytest.mark.parametrize("move", ["publish_head", "close", "release"])
def test_a_crash_in_the_middle_resumes_and_pays_once(make_house: Maker, folder: Path, clock: Clock, move: str) -> None:
    house = make_house(SEARCHES)
    house.work.fail_at = move
    crashed = 0
    for phase in PHASES[1:]:
        while house.epoch().phase != phase:
            try:
                house.advance(phase)
            except Crash:
                crashed += 1
                assert house.epoch().moving == move
                # What began stays begun: nothing is taken any more.
                assert house.send(1, first=77)[0] in ("too-early", "phase-over")
                house = make_house(SEARCHES, house.work)  # another process comes
        if phase == REPORTS_OPEN:
            house.send(4)
    assert crashed == 1
    assert house.work.calls.count(move) == 2
    assert len(house.work.paid) == 3
    assert house.releases() == 1
    assert house.epoch().reports == 4


def test_a_crash_after_the_move_still_destroys(
    make_house: Maker, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key and the payloads are gone before the next phase begins, also if the process died before it did that."""
    house = make_house(SEARCHES)
    epoch = house.epoch()
    house.vault.seal(epoch, bytes(16), [["q", ""]])
    assert list((folder / "keys").iterdir())
    with monkeypatch.context() as patch:

        def die(*_: object, **__: object) -> None:
            raise Crash

        patch.setattr(Vault, "destroy", die)
        with pytest.raises(Crash):
            house.advance()
    assert house.epoch().phase == HEAD_PUBLISHED
    assert list((folder / "keys").iterdir())
    assert house.advance().phase == REPORTS_OPEN
    assert not list((folder / "keys").iterdir())
    house.send(3)
    with monkeypatch.context() as patch:
        patch.setattr(phases, "keep_ids", die)
        with pytest.raises(Crash):
            house.advance()
    assert house.epoch().phase == CLOSED
    assert not house.epoch().scrubbed
    house.phases.tick({house.number: house.task})
    assert house.epoch().phase == RELEASED
    assert (waiting_reports(house.store), len(stored_ids(house.store))) == (0, 3)


def test_racing_servers_move_once(make_house: Maker, store_url: str, folder: Path) -> None:
    house = make_house(SETTING)
    house.send(10)
    racers = 6
    start, answers = PROCESSES.Barrier(racers), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=race_to_advance, args=(store_url, folder, SETTING, start, answers))
        for _ in range(racers)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=HANG) for _ in processes]
    for process in processes:
        process.join()
        process.close()
    assert {phase for phase, _ in found} <= {CLOSED, "busy"}
    assert [call for _, calls in found for call in calls] == ["close"]
    assert house.epoch().phase == CLOSED


def test_an_epoch_does_not_close_over_a_report_that_is_being_written(
    make_house: Maker, folder: Path, clock: Clock
) -> None:
    house = make_house(SETTING)
    closing = threading.Thread(target=lambda: make_house(SETTING).advance(CLOSED))
    report = make_report(house.task)
    with house.store.write() as connection:
        arrival = Arrival(house.number, house.period, report.id, report.to_bytes())
        assert write_reports(connection, [arrival]) == ["accepted"]
        closing.start()
        closing.join(0.5)
        assert closing.is_alive()  # it waits for this transaction
    closing.join(60)
    assert house.epoch().reports == 1


def test_time_moves_epochs(make_house: Maker, folder: Path, clock: Clock) -> None:
    begins = int(clock.now) // WEEK * WEEK
    clock.now = begins + 1.0
    house = make_house(SEARCHES)
    tasks = {house.number: house.task}
    house.phases.tick(tasks)
    assert house.epoch().phase == OPTIN_OPEN
    clock.now = begins + WEEK / 4 + 1
    assert house.phases.tick(tasks) == []
    assert house.epoch().phase == REPORTS_OPEN
    house.send(3)
    clock.now = begins + WEEK + 60.0
    house.phases.tick(tasks)
    assert house.epoch().phase == REPORTS_OPEN  # reports that were made in time may still be on their way
    assert [one.number for one in epochs_of(house.store, house.task, house.number)] == [house.period, house.period + 1]
    clock.now = begins + WEEK + 1860.0
    house.phases.tick(tasks)
    assert house.epoch().phase == RELEASED
    house.phases.tick(tasks)
    assert house.work.calls.count("release") == 1
    # After the retention the ids go too, and the epoch still takes nothing.
    clock.now += house.task.collect.retention + 1
    house.phases.tick(tasks)
    assert house.epoch().forgotten
    assert house.epoch().reports == 3
    assert house.send(3) == ["phase-over"] * 3
    assert stored_ids(house.store) == []


def test_a_late_start_leaves_the_opt_in_its_time(make_house: Maker, folder: Path, clock: Clock) -> None:
    begins = int(clock.now) // WEEK * WEEK
    clock.now = begins + 0.9 * WEEK
    house = make_house(SEARCHES)
    for later in (0.91, 0.99):
        clock.now = begins + later * WEEK
        house.phases.tick({house.number: house.task})
        assert house.epoch().phase == OPTIN_OPEN
    clock.now = begins + 1.16 * WEEK
    house.phases.tick({house.number: house.task})
    assert house.epoch().phase == EXPIRED
    assert house.work.calls == []  # nothing was spent on a list that nobody could use any more


def test_trouble_in_one_epoch_does_not_keep_the_others(make_house: Maker, folder: Path, clock: Clock) -> None:
    house = make_house(SEARCHES)
    house.work.publish_head = Mock(side_effect=Unavailable("no head lists today"))
    weekly = Task.loads(WEEKLY)
    number = register(house.store, weekly, clock())
    clock.now = (house.period + 1) * WEEK - 1.0
    tasks = {house.number: house.task, number: weekly}
    (trouble,) = house.phases.tick(tasks)
    assert "no head lists" in trouble.what
    assert house.epoch().moving == "publish_head"
    clock.now += 2000
    assert house.phases.tick(tasks) == []
    assert house.epoch().phase == EXPIRED
    weeks = epochs_of(house.store, weekly, number)
    assert [one.phase for one in weeks] == [CLOSED, REPORTS_OPEN]


def test_the_checksum_tells_sets_of_reports_apart(make_house: Maker, folder: Path, clock: Clock) -> None:
    house = make_house(SETTING)
    house.send(4, first=1)
    house.advance(CLOSED)
    assert house.epoch().reports == 4
    first = house.epoch().checksum
    other = make_house(SETTING.replace("theme", "colour"))
    other.send(4, first=2)
    other.advance(CLOSED)
    assert other.epoch().checksum != first
    assert len(first or b"") == 32
