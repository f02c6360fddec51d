"""OpenDP on Polars with Gaussian noise: the same bound, and the conversion from (epsilon, delta) to rho by hand."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln
from math import sqrt

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
# Half of delta pays for the threshold, half for reading rho as (epsilon, delta): rho + 2 sqrt(rho ln(1/delta)).
half = 1e-5 / 2
rho = (sqrt(ln(1 / half) + ln(10)) - sqrt(ln(1 / half))) ** 2
context = dp.Context.compositor(
    data=pl.scan_parquet(log).select("user", "query"),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user")),
    privacy_loss=dp.loss_of(rho=rho, delta=half),
    split_evenly_over=1,
)
query = context.query().truncate_per_group(1, by=["query"]).truncate_per_group(20).group_by("query").agg(dp.len())
released = query.release().collect()
# <<< the job

print(json.dumps({"released": len(released)}))
