"""A whole hybrid epoch: opt-in records in, head list out, reports in, both blended and published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from collect.helpers import BINARY, SEARCHES, Clock, make_report, running, settings_for
from hushquery.collect.schema import RECORD
from hushquery.collect.wire import pack_batch
from hushquery.errors import NotReady
from hushquery.noise.bits import SeededBits
from hushquery.privacy.budget import Budget
from hushquery.privacy.ledger import Ledger
from hushquery.task import Task

TEXT = SEARCHES.replace("records_per_user = 2", "records_per_user = 1")
TASK = Task.loads(TEXT)
POPULAR = [["weather leeds", "https://weather.example"], ["news", "https://news.example"]]


def open_accounts(folder: Path, epochs: int) -> None:
    ledger = Ledger.open(folder / "ledger.db")
    ledger.open_account("browser users", "replace-one", Budget(4 * epochs, 0))
    ledger.open_account("browser users who opted in", "replace-one", Budget(4 * epochs, 1e-5 * epochs))


def test_a_hybrid_epoch_over_http(store_url: str, folder: Path, clock: Clock) -> None:
    period = TASK.period_at(clock())
    open_accounts(folder, epochs=1)
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        epoch = collector.board.present(1)
        assert epoch is not None
        with pytest.raises(NotReady, match="nobody"):
            collector.phases.advance(TASK, 1, period)
        rows = []
        for number in range(400):
            records = [POPULAR[number % 2]]
            sealed, mark = collector.vault.seal(epoch, number.to_bytes(16, "big"), records)
            rows.append((number.to_bytes(16, "big"), str(number), mark, sealed))
        with collector.store.write() as connection:
            names = ("id", "giver", "mac", "ciphertext")
            values = [{"task": 1, "epoch": period, **dict(zip(names, row, strict=True))} for row in rows]
            connection.execute(sa.insert(RECORD), values)
        head = collector.phases.advance(TASK, 1, period)
        collector.phases.advance(TASK, 1, period)
        collector.board.refresh()
        served = client.get(f"/v1/tasks/{TASK.id}").json()
        listed = served["configuration"]["domain"]["records"]
        assert POPULAR[0] in listed
        configuration = head.configuration
        assert configuration is not None
        oracle, size = configuration.oracle, len(configuration.domain)
        drawn = oracle.randomize_many([n % size for n in range(500)], SeededBits(3))
        one = make_report(TASK, head=listed)
        reports = [
            replace(one, id=(n + 1).to_bytes(16, "big"), payload=oracle.pack(oracle.report(row)))
            for n, row in enumerate(drawn)
        ]
        data = pack_batch([report.to_bytes() for report in reports[:300]])
        answer = client.post(f"/v1/tasks/{TASK.id}/reports", content=data, headers=BINARY)
        assert {one["status"] for one in answer.json()["results"]} == {201}
        for _ in range(2):
            released = collector.phases.advance(TASK, 1, period)
        document = client.get(f"/v1/releases/{released.release}").json()
        assert document["epoch"] == period
        assert len(document["guarantees"]) == 2
        assert document["tables"]
        spends = [entry for entry in Ledger.open(folder / "ledger.db").history() if entry.kind == "spend"]
        assert len(spends) == 2  # one for each population
