"""OpenDP on Polars: twenty rows of a user, one per query; Laplace noise and threshold are found by OpenDP."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
context = dp.Context.compositor(
    data=pl.scan_parquet(log).select("user", "query"),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user")),
    privacy_loss=dp.loss_of(epsilon=ln(10), delta=1e-5),
    split_evenly_over=1,
)
query = context.query().truncate_per_group(1, by=["query"]).truncate_per_group(20).group_by("query").agg(dp.len())
released = query.release().collect()
# <<< the job

print(json.dumps({"released": len(released)}))
