"""PipelineDP on local Spark, with the same choices as on its local backend."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import os
import sys

log = sys.argv[1]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# >>> the job
from math import log as ln

import pipeline_dp
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g").getOrCreate()
accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=ln(10), total_delta=1e-5)
engine = pipeline_dp.DPEngine(accountant, pipeline_dp.SparkRDDBackend(spark.sparkContext))
rows = spark.read.parquet(log).select("user", "query").rdd
params = pipeline_dp.AggregateParams(
    metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT],
    noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
    max_partitions_contributed=20,
    max_contributions_per_partition=1,
    post_aggregation_thresholding=True,
)
extractors = pipeline_dp.DataExtractors(
    privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda _: 0
)
result = engine.aggregate(rows, params, extractors)
accountant.compute_budgets()
released = result.collect()
# <<< the job

print(json.dumps({"released": len(released)}))
spark.stop()
