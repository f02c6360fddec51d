"""What all tests share: real servers, each started when a test of this process first asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from postgres import server
from spark_cluster import HANGS_AFTER, Cluster, cluster

# Nothing waits for a wall clock: an example that a busy machine slows down is no defect.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _no_real_ledger(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spend from no ledger of the person who runs the tests, nor do the processes that a test starts.

    A command without ``--ledger`` uses ledger.db of its folder, as ``HUSHQUERY_LEDGER`` says; without that, a ledger in
    a data folder of this run (tests/ledger/test_place.py tests what people have by default).
    """
    monkeypatch.setenv("HUSHQUERY_LEDGER", "ledger.db")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "data"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a throwaway PostgreSQL server; where PostgreSQL is not installed this fails, never skips."""
    with server() as url:
        yield url


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[Cluster]:
    """A Spark standalone cluster: a master and two workers; where Java is not installed this fails, never skips."""
    with cluster() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(made.settings))
        patch.setattr("hushquery.engine.spark._EXECUTORS_WITHIN", HANGS_AFTER)  # a busy machine is not a full cluster
        yield made
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()


@pytest.fixture
def spark(spark_cluster: Cluster) -> Any:
    """A connection to the cluster, with two workers at work; what an earlier test killed is replaced."""
    from hushquery.engine import connect

    spark_cluster.add_workers(2 - spark_cluster.alive())
    engine = connect(spark_cluster.url)
    executors = engine._session.sparkContext._jsc.sc()
    spark_cluster.wait(lambda: executors.getExecutorMemoryStatus().size() == 3)  # the driver and two
    return engine


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests on Spark in one of pytest's processes, so that there is one cluster."""
    for item in items:
        if "spark_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a file, or a group of tests, to one of pytest's processes, so that its fixtures and caches are made once."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):  # type: ignore[misc]  # xdist is untyped
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid else str(scope)

    return ByFile(config, log) if config.getoption("dist") == "loadgroup" else None
