"""The cluster that tests run on is one: a master, two workers, each a process of its own, and jobs run on both."""

from __future__ import annotations

import pyarrow as pa

from hushquery.engine import execute


def test_jobs_run_on_workers_that_are_other_processes(spark_cluster, spark):
    assert spark_cluster.url.startswith("spark://127.0.0.1:")
    assert spark_cluster.alive() == 2
    assert all(spark_cluster.executors(worker) for worker in spark_cluster.workers if worker.poll() is None)
    spark._session.createDataFrame(pa.table({"word": ["é", "b", "é", None]})).createOrReplaceTempView("words")
    words = spark.table("words")
    counted = execute(words.group_by("word").agg(n=words.count()).order_by("word"))
    assert counted.to_pydict() == {"word": ["b", "é", None], "n": [1, 2, 1]}
    spark._session.catalog.dropTempView("words")
