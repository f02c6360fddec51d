"""The opt-in half of the hybrid: the same test bits give the same head list on DuckDB, on Spark and on PostgreSQL."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.hybrid.optin import DependenceWarning
from hushquery.hybrid.plan import plan_head
from hushquery.hybrid.published import PublishedHead
from hushquery.log import read_log
from hushquery.task import Task
from statistical import bits

# Texts that engines order and hash in ways of their own, where they are let.
HEADS = [
    ("weather leeds", "https://weather.example/"),
    ("weather leeds", "https://rain.example/"),
    ("zebra", None),
    ("\u00e9clair", "https://patisserie.example/\u00e9"),
    ("\U0001f600 faces", "https://faces.example/"),
    ("\uff21\uff22 wide", None),
    ('it\'s "quoted" \\ here', None),
    ("a-b", None),
    ("a b", None),
    ("ab", None),
]
# So many records of one user each that all of them are drawn for at once.
TAIL = 21_000
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def optin_rows() -> pa.Table:
    """Rows of opt-in users, several of each, some with the same time."""
    rng = np.random.default_rng(7)
    rows: list[tuple[str, datetime | None, str | None, str | None]] = []
    for user in range(900):
        for number, choice in enumerate(rng.integers(0, len(HEADS), 4)):
            when = None if user % 97 == 0 else BEGIN + timedelta(minutes=int(rng.integers(0, 3)))
            rows.append((f"user {user}", when, *HEADS[choice if number else user % len(HEADS)]))
    rows += [(f"rare {i}", BEGIN, f"only mine {i}", None) for i in range(TAIL)]
    # Left out for what they say, and still users.
    rows += [("user 0", BEGIN, "mail to ann@example.com", None), ("hidden", BEGIN, "call 555-123-4567", None)]
    kinds = {"user": pa.string(), "time": pa.timestamp("us"), "query": pa.string(), "url": pa.string()}
    columns = zip(*rows, strict=True)
    return pa.table(
        {
            name: pa.array([v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in values], kind)
            for (name, kind), values in zip(kinds.items(), columns, strict=True)
        }
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("optin") / "optin.parquet"
    pq.write_table(optin_rows(), path)
    return path


@pytest.fixture(scope="module")
def in_postgres(postgres_url: str) -> Any:
    database = ibis.connect(postgres_url)
    yield database.create_table("optin_rows", optin_rows())
    database.drop_table("optin_rows")
    database.disconnect()


def task(mode: str = "best", **parts: dict[str, Any]) -> Task:
    paper = {"oracle": "two-stage", "query_share": "0.85"} if mode == "paper" else {}
    return Task.make(
        {
            "task": {"name": "searches", "population": "readers", **parts.get("task", {})},
            "optin": {"epsilon": 1, "delta": "1e-3", **parts.get("optin", {})},
            "client": {"epsilon": 4, "lifetime_epsilon": 80, **paper, **parts.get("client", {})},
            "head": {"size": 40, "mode": mode, **parts.get("head", {})},
        }
    )


CASES: dict[str, tuple[Task, dict[str, Any]]] = {
    "reuse, random": (task(), {}),
    "reuse, first": (task(), {"keep": "first"}),
    "reuse, several records": (
        task(optin={"records_per_user": 3, "epsilon": 3}, client={"records_per_user": 3}),
        {},
    ),
    "reuse, add-remove": (task(optin={"relation": "add-remove"}), {"users": 21_901}),
    "split, random": (task("paper"), {}),
    "split, first": (task("paper"), {"keep": "first"}),
    "guided, random": (task(optin={"epsilon": 4}, head={"algorithm": "guided"}), {}),
    "guided, first": (task(optin={"epsilon": 4}, head={"algorithm": "guided", "weighed": 2}), {"keep": "first"}),
}


def published(rows: Any, ledger: Any, case: str, engine: Any = None, head: PublishedHead | None = None) -> Any:
    asked, options = CASES.get(case) or (KEPT, {})
    log = read_log(rows) if engine is None else read_log(rows, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DependenceWarning)  # it is what the case is about
        plan = plan_head(log, asked, keep=options.get("keep", "random"), head=head)
        return plan.run(str(ledger), epoch=1 if head else 0, users=options.get("users"), bits=bits("engines", case))


@pytest.mark.parametrize("case", CASES)
def test_the_same_head_list_on_every_engine(case, stored, spark, in_postgres, tmp_path) -> None:
    here = published(stored, tmp_path / "duckdb.db", case).to_json()
    assert len(here["records"]) >= 5
    assert published(stored, tmp_path / "spark.db", case, spark).to_json() == here
    assert published(in_postgres, tmp_path / "postgres.db", case).to_json() == here
