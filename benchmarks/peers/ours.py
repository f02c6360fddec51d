"""hushquery: the same job, queries only; the release is also written, with its guarantee, and the ledger charged."""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log, out = sys.argv[1:3]

# >>> the job
import hushquery as hq

budget = hq.Budget("ln(10)", 1e-5)
plan = hq.plan_release(hq.read_log(log), budget=budget, queries_per_user=20, population="users of the log")
released = plan.run(ledger=f"{out}/ledger.db")
released.save(f"{out}/release")
# <<< the job

print(json.dumps({"released": len(released.queries)}))
