"""Tumult Analytics on local Spark: the queries first, their counts second, each with half of epsilon."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import os
import sys

log = sys.argv[1]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# >>> the job
from math import log as ln

from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, ApproxDPBudget, KeySet, MaxRowsPerID, QueryBuilder, Session

spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g").getOrCreate()
session = Session.from_dataframe(
    privacy_budget=ApproxDPBudget(ln(10), 1e-5),
    source_id="log",
    dataframe=spark.read.parquet(log).select("user", "query"),
    protected_change=AddRowsWithID("user"),
)
rows = QueryBuilder("log").enforce(MaxRowsPerID(20))
keys = session.evaluate(rows.get_groups(["query"]), ApproxDPBudget(ln(10) / 2, 1e-5))
counts = rows.groupby(KeySet.from_dataframe(keys)).count()
released = session.evaluate(counts, session.remaining_privacy_budget).collect()
# <<< the job

print(json.dumps({"released": len(released)}))
spark.stop()
