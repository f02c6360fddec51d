"""The opt-in half of the hybrid: the same bits give the same head list on DuckDB, on a Spark cluster, on PostgreSQL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hard_log import TEXTS, TIMES, URLS
from hushquery.cli.app import app
from hushquery.engine import connect
from hushquery.hybrid.plan import plan_head
from hushquery.hybrid.published import PublishedHead
from hushquery.log import Log, read_log
from hushquery.task import Task
from spark_cluster import Cluster
from statistical import bits

# One process of pytest for all that runs on the cluster.
pytestmark = pytest.mark.xdist_group("spark")

# So many records of one user each, drawn for all at once where a tenth of them would do.
TAIL = 300


def optin_rows() -> pa.Table:
    """Rows of opt-in users: several records of each, of which many have the same time."""
    chosen = Random(2017)
    rows: list[tuple[str, str, str | None, str | None]] = []
    for user in range(700):
        for text in [TEXTS[user % 20], *chosen.sample(TEXTS[:24], 3)]:
            rows.append((f"Ü{user}", text, chosen.choice(TIMES[:5]), chosen.choice(URLS[:2])))
    rows += [(f"rare {i}", f"only mine {i}", chosen.choice(TIMES), None) for i in range(TAIL)]
    # Left out for what they say, and still users.
    rows += [("Ü0", "joe@example.com", TIMES[0], None), ("hidden", "tel 020 7946 0958", TIMES[0], None)]
    names = ("user", "query", "time", "url")
    return pa.table(
        {name: pa.array(values, pa.string()) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("optin") / "optin.parquet"
    pq.write_table(optin_rows(), path)
    return path


@pytest.fixture(scope="module")
def linguistic(postgres_url: str) -> Iterator[Any]:
    """A database that orders texts as a dictionary does."""
    name = f"optin_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' "
            "LOCALE_PROVIDER icu ICU_LOCALE 'de-u-kn-true' LOCALE 'C'"
        )
    engine = connect(postgres_url.rpartition("/")[0] + f"/{name}")
    engine.create_table("optin", optin_rows())
    yield engine
    engine.disconnect()
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def there(engine: str, stored: Path, request: pytest.FixtureRequest) -> Log:
    """Give the opt-in log on another engine."""
    if engine == "spark":
        return read_log(stored, engine=request.getfixturevalue("spark"))
    return read_log("optin", engine=request.getfixturevalue("linguistic"))


def task(mode: str = "best", **parts: dict[str, Any]) -> Task:
    paper = {"oracle": "two-stage", "query_share": "0.85"} if mode == "paper" else {}
    return Task.make(
        {
            "task": {"name": "searches", "population": "readers", **parts.get("task", {})},
            "optin": {"epsilon": 2, "delta": "0.02", **parts.get("optin", {})},
            "client": {"epsilon": 4, "lifetime_epsilon": 80, **paper, **parts.get("client", {})},
            "head": {"size": 60, "mode": mode, **parts.get("head", {})},
        }
    )


THREE = {"records_per_user": 3}
CASES: dict[str, tuple[Task, dict[str, Any]]] = {
    "reuse, random": (task(), {}),
    "reuse, first": (task(optin=THREE, client=THREE), {"keep": "first"}),
    "reuse, add-remove": (task(optin={"relation": "add-remove"}), {"users": 1001}),
    "split, random": (task("paper"), {}),
    "split, first": (task("paper"), {"keep": "first"}),
    "guided, random": (task(optin={"epsilon": 8}, head={"algorithm": "guided"}), {}),
    "guided, first": (task(optin={"epsilon": 8}, head={"algorithm": "guided", "weighed": 2}), {"keep": "first"}),
    "kept": (task(task={"period": "7d"}, head={"keep": 3}), {"epoch": 0}),
}
# A job on the cluster takes seconds: there each algorithm runs once, and each rule of what to keep.
ON_SPARK = ["reuse, random", "reuse, first", "split, random", "guided, first"]
ON_POSTGRESQL = [name for name in CASES if name != "kept"]


def published(log: Log, ledger: Path, case: str, head: PublishedHead | None = None) -> PublishedHead:
    asked, options = CASES[case]
    epoch = options.get("epoch", 0) + (head is not None)
    plan = plan_head(log, asked, keep=options.get("keep", "random"), head=head)
    return plan.run(ledger, epoch=epoch, users=options.get("users"), bits=bits("engines", case, epoch))


def told(head: PublishedHead) -> dict[str, Any]:
    return {name: value for name, value in head.to_json().items() if name != "created"}


@pytest.fixture
def bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rare records be drawn for at once, which in production begins at 20,000 of one count."""
    monkeypatch.setattr("hushquery.curator.counting.WORTH_A_BINOMIAL", TAIL // 10)


@pytest.mark.usefixtures("bulk")
@pytest.mark.parametrize(
    ("engine", "case"), [*(("spark", name) for name in ON_SPARK), *(("postgresql", name) for name in ON_POSTGRESQL)]
)
def test_the_same_head_list(
    engine: str, case: str, stored: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    near = published(read_log(stored), tmp_path / "near.db", case)
    assert 10 < len(near) < 60  # some on each side of the threshold, else this shows nothing
    assert told(published(there(engine, stored, request), tmp_path / "far.db", case)) == told(near)


@pytest.mark.usefixtures("bulk")
@pytest.mark.parametrize("engine", ["spark", "postgresql"])
def test_the_same_measurement_of_a_kept_list(
    engine: str, stored: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    listed = published(read_log(stored), tmp_path / "list.db", "kept")
    near = published(read_log(stored), tmp_path / "near.db", "kept", listed)
    assert near.records == listed.records
    assert near.optin.values.tolist() != listed.optin.values.tolist()
    far = there(engine, stored, request)
    assert "md5" in plan_head(far, CASES["kept"][0]).sql().lower()
    assert told(published(far, tmp_path / "far.db", "kept", listed)) == told(near)


def test_the_command_counts_on_the_cluster(spark: Any, spark_cluster: Cluster, stored: Path, tmp_path: Path) -> None:
    assert spark is not None
    (tmp_path / "task.toml").write_text(
        '[task]\nname = "s"\npopulation = "readers"\n[optin]\nepsilon = 50\ndelta = 0.01\n'
        "[client]\nepsilon = 4\nlifetime_epsilon = 8\n[head]\nsize = 60\n"
    )
    found = []
    for name, more in (("near", []), ("far", ["--engine", spark_cluster.url])):
        where = [
            "--out",
            str(tmp_path / name),
            "--ledger",
            str(tmp_path / f"{name}.db"),
            "--keep",
            "first",
            "--anyway",
            *more,
        ]
        done = CliRunner().invoke(
            app, ["head", str(stored), "--task", str(tmp_path / "task.toml"), *where, "--anyway", "--json"]
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["records"] > 10
        found.append(PublishedHead.load(tmp_path / name).optin)
    # Real noise: at such an epsilon it moves any of the counts less than once in a hundred million runs.
    assert found[0].records == found[1].records
    assert found[0].values.tolist() == found[1].values.tolist()
