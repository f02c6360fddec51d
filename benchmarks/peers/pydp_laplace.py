"""PyDP: Google's partition selection, one draw per query; the bound on users is ours to write, in pandas."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln

import pandas as pd
from pydp.algorithms.partition_selection import create_partition_strategy

rows = pd.read_parquet(log, columns=["user", "query"]).drop_duplicates()
counts = rows[rows.groupby("user").cumcount() < 20]["query"].value_counts()
strategy = create_partition_strategy("laplace", ln(10), 1e-5, 20)
noisy = ((query, strategy.noised_value_if_should_keep(n)) for query, n in counts.items())
released = {query: n for query, n in noisy if n is not None}
# <<< the job

print(json.dumps({"released": len(released)}))
