"""PipelineDP on its local backend: twenty queries of a user; one Gaussian draw decides and counts."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln

import pipeline_dp
import pyarrow.parquet as pq

accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=ln(10), total_delta=1e-5)
engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
table = pq.read_table(log, columns=["user", "query"])
rows = zip(table["user"].to_pylist(), table["query"].to_pylist(), strict=True)
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
released = list(result)
# <<< the job

print(json.dumps({"released": len(released)}))
