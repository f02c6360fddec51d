"""SmartNoise SQL on pandas: its epsilon is per column and a hidden column counts users, so half of it is asked for."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln

import pandas as pd
import snsql

frame = pd.read_parquet(log, columns=["user", "query"])
columns = {"user": {"type": "int", "private_id": True}, "query": {"type": "string"}}
table = {"max_ids": 20, "rows": len(frame), "censor_dims": True, "clamp_counts": False, **columns}
privacy = snsql.Privacy(epsilon=ln(10) / 2, delta=1e-5 / 1.5)
reader = snsql.from_df(frame, privacy=privacy, metadata={"": {"log": {"log": table}}})
header, *released = reader.execute("SELECT query, COUNT(*) AS n FROM log.log GROUP BY query")
# <<< the job

print(json.dumps({"released": len(released)}))
