"""diffprivlib: its geometric mechanism; the bound (in Polars), the threshold and its formula are ours to write."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln

import polars as pl
from diffprivlib.mechanisms import Geometric

rows = pl.scan_parquet(log).select("user", "query").unique(maintain_order=False)
counts = rows.filter(pl.int_range(pl.len()).over("user") < 20).group_by("query").len().collect()
threshold = 1 + 20 / ln(10) * ln(20 / (2 * 1e-5))
mechanism = Geometric(epsilon=ln(10), sensitivity=20)
noisy = ((query, mechanism.randomise(n)) for query, n in counts.iter_rows())
released = {query: n for query, n in noisy if n > threshold}
# <<< the job

print(json.dumps({"released": len(released)}))
