"""A head list that its task keeps is made once and measured again in the later epochs, which costs no delta."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from collect.helpers import SEARCHES, Clock, running, settings_for
from collect.test_hybrid_work import POPULAR, open_accounts
from hushquery.collect.collector import Collector
from hushquery.collect.epochs.epochs import Epoch, epochs_of
from hushquery.collect.store.schema import RECORD
from hushquery.core.ledger.ledger import Ledger
from hushquery.task import Task

WEEK = 7 * 86400
TEXT = SEARCHES.replace("records_per_user = 2", "records_per_user = 1").replace("size = 5", "size = 5\nkeep = 2")
TASK = Task.loads(TEXT)


def publish(collector: Collector, clock: Clock, period: int, choice: int) -> Epoch:
    """Let four hundred users give one record each, the same for all, and publish the head list."""
    clock.now = period * WEEK + 1.0
    collector.phases.ensure(TASK, 1)
    epoch = next(one for one in epochs_of(collector.store, TASK, 1) if one.number == period)
    rows = []
    for number in range(400):
        record_id = number.to_bytes(16, "big")
        sealed, mark = collector.vault.seal(epoch, record_id, [POPULAR[choice]])
        key = {"task": 1, "epoch": period, "id": record_id}
        rows.append({**key, "giver": str(number), "mac": mark, "ciphertext": sealed})
    with collector.store.write() as connection:
        connection.execute(sa.insert(RECORD), rows)
    return collector.phases.advance(TASK, 1, period)


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_kept_list_is_measured_again(store_url: str, folder: Path, clock: Clock, skipped: int) -> None:
    open_accounts(folder, epochs=4)
    first = TASK.period_at(clock())
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        made = publish(collector, clock, first, 0)
        later = publish(collector, clock, first + 1 + skipped, 1)
    assert made.head == (tuple(POPULAR[0]),)
    spends = [entry for entry in Ledger.open(folder / "ledger.db").history() if "opted in" in entry.population][1:]
    if skipped:  # its time is over, so there is a new list
        assert later.head == (tuple(POPULAR[1]),)
        assert [bool(entry.loss and entry.loss.threshold_delta) for entry in spends] == [True, True]
    else:
        assert later.head == made.head
        assert later.configuration is not None
        assert made.configuration is not None
        assert later.configuration.digest == made.configuration.digest  # so clients repeat their answers
        assert later.optin is not None
        assert (later.optin["epoch"], later.optin["kept_since"]) == (first + 1, first)
        assert [bool(entry.loss and entry.loss.threshold_delta) for entry in spends] == [True, False]
