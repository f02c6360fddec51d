"""A whole hybrid epoch: opt-in records in, head list out, reports in, both blended and published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from collect.helpers import BINARY, SEARCHES, Clock, make_report, running, settings_for
from hushquery.collect.collector import Collector
from hushquery.collect.epochs.epochs import Epoch
from hushquery.collect.http.ingest import JSON, pack_batch, read_records
from hushquery.collect.http.pages import read_release
from hushquery.collect.store.schema import RECORD
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import NotReady
from hushquery.hybrid.plan import HeadPlan
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task

TEXT = SEARCHES.replace("records_per_user = 2", "records_per_user = 1")
TASK = Task.loads(TEXT)
POPULAR = [["weather leeds", "https://weather.example"], ["news", "https://news.example"]]


def open_accounts(folder: Path, epochs: int) -> None:
    ledger = Ledger.open(folder / "ledger.db")
    ledger.open_account("browser users", "replace-one", Budget(4 * epochs, 0))
    ledger.open_account("browser users who opted in", "replace-one", Budget(4 * epochs, 1e-5 * epochs))


def give_many(collector: Collector, epoch: Epoch) -> None:
    """Let four hundred users give one record each."""
    rows = []
    for number in range(400):
        record_id = number.to_bytes(16, "big")
        sealed, mark = collector.vault.seal(epoch, record_id, [POPULAR[number % 2]])
        key = {"task": 1, "epoch": epoch.number, "id": record_id}
        rows.append({**key, "giver": str(number), "mac": mark, "ciphertext": sealed})
    with collector.store.write() as connection:
        connection.execute(sa.insert(RECORD), rows)


def whole_epoch(client: Any, collector: Collector, clock: Clock, *, send_only: bool = False) -> Epoch:
    """Take the present epoch from its first phase to its last, or only send its reports."""
    collector.phases.ensure(TASK, 1)
    collector.cache.refresh()
    epoch = collector.cache.current(1)
    assert epoch is not None
    if not send_only:
        give_many(collector, epoch)
        for _ in range(2):
            collector.phases.advance(TASK, 1, epoch.number)
    collector.cache.refresh()
    head = collector.cache.current(1)
    assert head is not None
    served = client.get(f"/v1/tasks/{TASK.id}").json()
    listed = served["configuration"]["domain"]["records"]
    assert POPULAR[0] in listed
    configuration = head.configuration
    assert configuration is not None
    oracle, size = configuration.oracle, len(configuration.domain)
    drawn = oracle.randomize_many([n % size for n in range(300)], SeededBits(epoch.number))
    one = make_report(TASK, head=listed, time=clock.now)
    reports = [
        replace(one, id=(epoch.number * 1000 + n).to_bytes(16, "big"), payload=oracle.pack(oracle.report(row)))
        for n, row in enumerate(drawn)
    ]
    data = pack_batch([report.to_bytes() for report in reports])
    answer = client.post(f"/v1/tasks/{TASK.id}/reports", content=data, headers=BINARY)
    assert {one["status"] for one in answer.json()["results"]} == {201}
    if send_only:
        return head
    for _ in range(2):
        released = collector.phases.advance(TASK, 1, epoch.number)
    collector.cache.refresh()
    return released


def test_a_hybrid_epoch_over_http(store_url: str, folder: Path, clock: Clock) -> None:
    open_accounts(folder, epochs=1)
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        with pytest.raises(NotReady, match="nobody"):
            collector.phases.advance(TASK, 1, TASK.period_at(clock()))
        released = whole_epoch(client, collector, clock)
        document = client.get(f"/v1/releases/{released.release}").json()
        assert document["epoch"] == released.number
        release = read_release(document)
        assert len(release.guarantees) == 2
        assert set(release.tables["queries"]["query"].to_pylist()) <= {"weather leeds", "news"}
        assert release.manifest["parameters"]["epoch"] == released.number
        spends = [entry for entry in Ledger.open(folder / "ledger.db").history() if entry.kind == "spend"]
        assert len(spends) == 2  # one for each population


def test_who_gave_nothing_counts_as_a_user(store_url: str, folder: Path, clock: Clock) -> None:
    """The published number of users is that of those who took part, whatever they gave."""
    open_accounts(folder, epochs=1)
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        collector.phases.ensure(TASK, 1)
        collector.cache.refresh()
        epoch = collector.cache.current(1)
        assert epoch is not None
        give_many(collector, epoch)
        nobodys = (10**6).to_bytes(16, "big")
        sealed, mark = collector.vault.seal(epoch, nobodys, read_records(JSON, b'{"records": []}', TASK))
        with collector.store.write() as connection:
            row = {"task": 1, "epoch": epoch.number, "id": nobodys, "giver": "empty", "mac": mark, "ciphertext": sealed}
            connection.execute(sa.insert(RECORD), [row])
        moved = collector.phases.advance(TASK, 1, epoch.number)
        assert moved.optin is not None
        assert moved.optin["optin"]["n"] == 401


def test_what_opt_in_users_gave_is_never_written_down_by_the_engine(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB goes on in files where memory does not suffice: plain text, which a crash would leave there."""
    open_accounts(folder, epochs=1)
    where: list[str] = []

    def watched(plan: HeadPlan, log: Any, *given: Any) -> Any:
        (engine,) = log.table._find_backends()[0]
        where.extend(engine.raw_sql("SELECT current_setting('temp_directory')").fetchone())
        return draw(plan, log, *given)

    draw = HeadPlan._draw
    monkeypatch.setattr(HeadPlan, "_draw", watched)
    with running(settings_for(store_url, folder, TEXT), clock) as (_, collector):
        epoch = collector.cache.epochs()[0]
        give_many(collector, epoch)
        assert collector.phases.advance(TASK, 1, epoch.number).head
    assert where == [""]
