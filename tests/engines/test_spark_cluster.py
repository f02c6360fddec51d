"""The cluster that tests run on is one: a master, two workers, each a process of its own, and jobs run on both."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.engine import execute
from hushquery.log import read_log


def test_jobs_run_on_workers_that_are_other_processes(spark_cluster, spark):
    assert spark_cluster.url.startswith("spark://127.0.0.1:")
    assert spark_cluster.alive() == 2
    assert all(spark_cluster.executors(worker) for worker in spark_cluster.workers if worker.poll() is None)
    spark._session.createDataFrame(pa.table({"word": ["é", "b", "é", None]})).createOrReplaceTempView("words")
    words = spark.table("words")
    counted = execute(words.group_by("word").agg(n=words.count()).order_by("word"))
    assert counted.to_pydict() == {"word": ["b", "é", None], "n": [1, 2, 1]}
    spark._session.catalog.dropTempView("words")


def test_dates_that_are_no_timestamps_are_missing_and_end_no_run(spark, tmp_path):
    days = pa.array([-(2**31), 1, 2**31 - 1], pa.date32())
    pq.write_table(pa.table({"user": [1, 2, 3], "query": ["x"] * 3, "time": days}), tmp_path / "log.parquet")
    rows = execute(read_log(tmp_path / "log.parquet", engine=spark).table).to_pylist()
    assert {row["user"]: row["time"] for row in rows} == {1: None, 2: 86400 * 10**6, 3: None}


@pytest.mark.prove
def test_a_killed_run_leaves_no_cluster_behind():
    program = "import spark_cluster as s, sys\nwith s.cluster(1) as made: print(made.url, flush=True); sys.stdin.read()"
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        url = urlsplit(run.stdout.readline().strip())
        socket.create_connection((url.hostname, url.port)).close()
        run.kill()
    while True:  # until nobody answers
        try:
            socket.create_connection((url.hostname, url.port)).close()
        except OSError:
            return
        time.sleep(0.05)
