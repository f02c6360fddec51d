"""A published head list is taken as it is: by clients, by an estimate, and as the pairs it carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pytest

import hushquery as hq
from hushquery.errors import UsageError
from hushquery.hybrid.published import PublishedHead
from hushquery.local.configuration import Configuration
from hushquery.local.server.estimate import ClientEstimate

TASK = hq.Task.loads("""
[task]
name = "queries"
population = "app users"
kind = "searches"
[optin]
epsilon = 4
delta = "1e-6"
[client]
epsilon = 4
lifetime_epsilon = 4
[head]
size = 5
[collect]
min_batch = 20
""")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> PublishedHead:
    users = [f"u{user}" for user in range(400)]
    log = hq.read_log({"user": users, "query": ["weather"] * 400, "url": ["https://w.example"] * 400})
    return hq.plan_head(log, TASK).run(tmp_path_factory.mktemp("head") / "ledger.db")


@pytest.fixture(scope="module")
def estimated(head: PublishedHead, tmp_path_factory: pytest.TempPathFactory) -> ClientEstimate:
    state = tmp_path_factory.mktemp("devices") / "devices.db"
    clients = [hq.Client(TASK, state, f"device {user}", head=head) for user in range(40)]
    reports = [report for client in clients if (report := client.report("weather", "https://w.example")) is not None]
    return hq.estimate(TASK, reports, head=head)


def test_clients_and_estimates_take_a_published_head(head: PublishedHead, estimated: ClientEstimate) -> None:
    assert Configuration.of(TASK, head).digest == Configuration.of(TASK, head.records).digest == estimated.digest
    assert estimated.n == 40
    assert len(estimated) == len(head.records) + 1


@pytest.mark.parametrize("wrong", [5, "head.json", {"records": []}, object()])
def test_what_is_no_head_list_is_refused_with_words(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="list of"):
        hq.Client(TASK, tmp_path / "client.db", head=wrong)  # type: ignore[arg-type]


def test_an_estimate_is_a_table_for_other_programs(estimated: ClientEstimate) -> None:
    names, labels = ["value", "estimate", "stderr", "low", "high"], [row.label for row in estimated]
    table = pa.table(estimated)
    assert table.column_names == names
    assert table["value"].to_pylist() == labels
    assert estimated.to_pandas()["estimate"].tolist() == estimated.values
    frame = estimated.to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame["value"].to_list() == labels
    assert np.allclose(frame["low"].to_numpy(), [row.low for row in estimated])
    assert "<table" in estimated._repr_html_()
    assert "weather" not in repr(estimated)
    assert len(repr(estimated)) < 120
