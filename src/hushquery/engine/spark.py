"""Apache Spark: a session on this machine or on a standalone cluster, and results that a retry can't change."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hushquery.errors import Unavailable, UsageError

_OLDEST_JAVA = 17  # for Spark 4
_ANSWERS_WITHIN = 10.0
_EXECUTORS_WITHIN = 60.0

# What results must not depend on. Everything else is set in spark-defaults.conf in SPARK_CONF_DIR.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # What can't be computed fails; without ANSI a sum that overflows would be a wrong number.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Small letters by the same tables on every JVM.
    "spark.sql.icu.caseMappings.enabled": "true",
}
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def _java_version() -> int | None:
    """Return the main version of the Java that Spark would use; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        return None
    output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', output)
    return int(version.group(1)) if version else None


def connect_spark(url: str) -> Any:
    """Connect to ``spark`` (this process's session, or a new local one) or ``spark://host:port``; one at a time."""
    import ibis
    import pyspark.sql
    from pyspark import SparkContext

    # Spark's Python side writes every failed statement to stderr as it is, with the values in it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    version = _java_version()
    if version is None or version < _OLDEST_JAVA:
        installed = "there is none" if version is None else f"this is Java {version}"
        raise Unavailable(
            f"Spark runs on Java {_OLDEST_JAVA} or newer, and {installed}",
            fix=f"Install Java {_OLDEST_JAVA} or newer (on Debian: apt-get install openjdk-17-jre-headless)",
        )
    master = "local[*]" if url == "spark" else url
    context = SparkContext._active_spark_context
    if context is None:
        context = _new_context(master)
    elif url != "spark" and context.master != master:
        raise UsageError(
            "this process has a Spark session already, on another master",
            why="A process has one Spark at a time",
            fix="Stop that session, or use a process of its own",
        )
    # A session of our own on the same Spark: neither settings nor temporary views are shared with the user's.
    return ibis.pyspark.connect(pyspark.sql.SparkSession(context).newSession(), **_SETTINGS)


def _new_context(master: str) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if master.startswith("spark:"):
        check_master(master)
    settings = {"spark.master": master, "spark.app.name": "hushquery", **_QUIET, **_SETTINGS}
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    # What Spark writes to its log may quote rows, so it goes nowhere. The executors' logs stay on the cluster.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    gateway = None if SparkContext._gateway else launch_gateway(conf, quiet)  # type: ignore[no-untyped-call]
    context = SparkContext(conf=conf, gateway=gateway)
    atexit.register(context.stop)
    if master.startswith("spark:"):
        _wait_for_executors(context)
    return context


def check_master(master: str) -> None:
    """Raise unless something listens at the master's address: Spark itself would try for a minute."""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN).close()
            return
        except (OSError, ValueError, OverflowError):
            continue
    raise Unavailable(
        "the Spark cluster can't be reached",
        why="Nobody answers at that address",
        fix="Check spark://host:port (its master's page shows it) and that the master runs",
    )


def _wait_for_executors(context: Any) -> None:
    """Wait until the cluster has started an executor for us; a job would wait for ever without a message."""
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    deadline = time.monotonic() + _EXECUTORS_WITHIN
    while True:
        if context._jsc is None or context._jsc.sc().isStopped():
            why = "The master refused us; it may run another version of Spark"
        elif context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one of them
            return
        elif time.monotonic() > deadline:
            why = "None of its workers has the cores and the memory free that an executor needs"
        else:
            time.sleep(0.05)
            continue
        context.stop()
        raise Unavailable("the Spark cluster does no work for us", why=why, fix="See the master's page")


def read_parquet(engine: Any, places: Sequence[str]) -> Any:
    """Return Parquet files as one table; no column is read from the names of folders."""
    import ibis

    rows = engine._session.read.option("recursiveFileLookup", "true").parquet(*places)
    name = ibis.util.gen_name("hushquery_log")
    rows.createTempView(name)
    return engine.table(name)


def escape_path(path: Path) -> str:
    """Return the address of a path on this machine, escaped so that Spark does not take it for a pattern."""
    return "file://" + re.sub(r"([*?\[\]{}\\])", r"\\\1", str(path.absolute()))


def to_frame(expression: Any) -> Any:
    """Return an expression as a Spark DataFrame, with tables in memory sent over as Arrow."""
    import ibis.expr.operations as ops
    from pyspark.sql import SparkSession

    engine = expression._find_backend()
    session: SparkSession = engine._session
    sent = list(expression.op().find(ops.InMemoryTable))
    for table in sent:
        session.createDataFrame(table.data.to_pyarrow(table.schema)).createOrReplaceTempView(table.name)
    try:
        return session.sql(engine.compile(expression))
    finally:  # Spark has looked the names up
        for table in sent:
            session.catalog.dropTempView(table.name)


def to_arrow(expression: Any) -> Any:
    """Run an expression and return an Arrow table of the expression's own types."""
    frame = to_frame(expression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its sockets to the garbage collector
        rows = frame.toArrow()
    return rows.cast(expression.schema().to_pyarrow())


@contextmanager
def materialize(expression: Any) -> Iterator[Any]:
    """Compute an expression and store its rows for the block, cut off from the log that they come from.

    Spark computes again what a dead executor had cached, perhaps from a log that grew; a checkpoint never. It is
    durable in ``spark.checkpoint.dir``, else two executors hold each part; if both die, the job fails and nothing is
    released. At the end of the block, and after an error, neither is left.
    """
    import ibis
    from pyspark import StorageLevel

    engine = expression._find_backend()
    frame = to_frame(expression)
    context = frame.sparkSession.sparkContext
    durable = context._jsc.sc().getCheckpointDir().isDefined()
    if durable:
        # Marked, not yet written: were it written at once, an error would leave files that nobody knows the name of.
        rows = frame.checkpoint(eager=False)
    else:
        rows = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK_2)
    stored = rows._jdf.queryExecution().logical().rdd()
    name = ibis.util.gen_name("hushquery_counts")
    try:
        if durable:
            rows.isEmpty()  # the first query writes all of it
        rows.createTempView(name)
        yield engine.table(name)
    finally:  # each on its own, and none hides why the block failed: Spark itself may be gone
        with suppress(Exception):
            engine._session.catalog.dropTempView(name)
        with suppress(Exception):
            stored.unpersist(False)
        if durable:
            with suppress(Exception):
                files = context._jvm.org.apache.spark.rdd.ReliableRDDCheckpointData
                files.cleanCheckpoint(context._jsc.sc(), stored.id())
