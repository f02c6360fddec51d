"""Two servers that move the same epoch at the same time publish once and pay once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from children import HANG
from collect.helpers import Clock, running, settings_for
from collect.houses import PROCESSES
from collect.racers import tick
from collect.test_hybrid_work import TASK, TEXT, give_many, open_accounts, whole_epoch
from hushquery.collect.collector import Settings
from hushquery.collect.epochs.clock import confirm
from hushquery.collect.epochs.epochs import epochs_of
from hushquery.collect.store.schema import RECORD, RELEASE
from hushquery.collect.store.store import Store
from hushquery.core.ledger.ledger import Ledger

RACERS = 2
DAY = 86400


def race(settings: Settings, now: float) -> None:
    store = Store.open(settings.store)
    confirm(store, now)  # days have passed in which no server ran
    store.close()
    start, answers = PROCESSES.Barrier(RACERS), PROCESSES.Queue()
    racers = [PROCESSES.Process(target=tick, args=(settings, now, start, answers)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    assert [answers.get(timeout=HANG) for _ in racers] == [[]] * RACERS
    for racer in racers:
        racer.join()
        racer.close()


def test_two_servers_publish_once(new_store: Callable[[], str], folder: Path, clock: Clock) -> None:
    clock.now = int(clock.now) // (7 * DAY) * 7 * DAY + 1.0
    settings = settings_for(new_store(), folder, TEXT)
    open_accounts(folder, epochs=2)
    with running(settings, clock) as (client, collector):
        epoch = collector.cache.current(1)
        assert epoch is not None
        give_many(collector, epoch)
        clock.now += 3 * DAY
        race(settings, clock.now)  # to the head list, paid for from a real ledger, and to open reports
        (moved,) = epochs_of(collector.store, TASK, 1)
        assert moved.phase == "reports_open"
        spends = [entry for entry in Ledger.open(folder / "ledger.db").history() if entry.kind == "spend"]
        assert len(spends) == 2
        with collector.store.read() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(RECORD)).scalar_one() == 0
        whole_epoch(client, collector, clock, send_only=True)
        clock.now += 5 * DAY
        race(settings, clock.now)  # to closing and publishing
        moved, _ = epochs_of(collector.store, TASK, 1)
        assert (moved.phase, moved.reports) == ("released", 300)
        with collector.store.read() as connection:
            releases = connection.execute(sa.select(RELEASE.c.id)).scalars().all()
        assert releases == [moved.release]
        assert len([one for one in Ledger.open(folder / "ledger.db").history() if one.kind == "spend"]) == 2
