"""A move that is resumed after a crash has paid already, wherever it died."""

from __future__ import annotations

from pathlib import Path

import pytest

from collect.helpers import SEARCHES, Clock, Crash, FakeWork
from collect.houses import House
from hushquery.collect.epochs import HEAD_PUBLISHED, Epoch
from hushquery.collect.phases import HeadList
from hushquery.privacy.budget import Budget
from hushquery.privacy.ledger import Ledger
from hushquery.privacy.loss import Loss

HALF = Loss(pure=("1/2",))


class SpendingWork(FakeWork):
    """A work that pays for its head lists from a real ledger, and dies at the moment a test names."""

    ledger: str
    die: str | None = None

    def publish_head(self, epoch: Epoch) -> HeadList:
        self._die("before")
        ledger = Ledger.open(self.ledger, once=epoch.key)
        for population in ("those who opted in", "browser users"):
            ledger.spend(population, "replace-one", HALF, what="a head list", create_with=Budget(1, 0))
            self._die("between")
        made = super().publish_head(epoch)
        self._die("after")
        return made

    def _die(self, moment: str) -> None:
        if self.die == moment:
            self.die = None
            raise Crash


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_crash_at_any_point_pays_once(store_url: str, folder: Path, clock: Clock, moment: str) -> None:
    house = House(store_url, folder, clock, SEARCHES)
    work = SpendingWork(house.store, house.vault)
    work.ledger, work.die = str(folder / "ledger.db"), moment
    house.phases._work = work
    with pytest.raises(Crash):
        house.advance()
    assert house.advance().phase == HEAD_PUBLISHED
    ledger = Ledger.open(work.ledger)
    spends = [entry.population for entry in ledger.history() if entry.kind == "spend"]
    assert spends == ["those who opted in", "browser users"]
    assert ledger.account("browser users", "replace-one").remaining_epsilon == 0.5
    house.store.close()
