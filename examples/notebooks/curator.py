# %% [markdown]
# # A log, a budget, a release
#
# The curator's side of hushquery, cell by cell. Open this file as a notebook (Jupyter with jupytext, VS Code, PyCharm
# and Spyder all know the `# %%` marks), or run it: `python curator.py`. It writes into the folder where it runs, and
# needs `pip install 'hushquery[plot]'`. The tutorial with the same story and more words is docs/tutorials/curator.md.

# %%
from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import altair as alt
import duckdb

import hushquery as hq
from hushquery import plot
from hushquery.curator.forecast import compare
from hushquery.log.synthetic.logs import write_log


def show(chart, name: str):
    """Draw a chart: into NAME.svg, and below the cell where this is a notebook."""
    plot.save(chart, f"{name}.svg")
    return chart


# %% [markdown]
# ## The log
#
# 5,000 people who do not exist. The same seed makes the same log. In life you have a file of your own; `hq.read_log`
# reads the usual formats. What it gives back never shows a row: only its columns.

# %%
write_log("log.parquet", profile="tiny", users=5000, seed=1, force=True)
log = hq.read_log("log.parquet")
print(log)

# %% [markdown]
# ## How many people pose a query?
#
# This picture is **not** private: it looks at the rows. It may be drawn only because nobody in them exists. Most
# queries are far on the right, posed by one person or two. Those are the ones that give people away, and no noise can
# save them: they have to stay out.

# %%
true_counts = dict(
    duckdb.sql("""SELECT query, count(DISTINCT "user") AS users FROM 'log.parquet' GROUP BY query""").fetchall()
)
ranked = sorted(true_counts.values(), reverse=True)
ranks = sorted({round(1.03**step) for step in range(300)} & set(range(1, len(ranked) + 1)))
popularity = [{"rank": rank, "users": ranked[rank - 1]} for rank in ranks]
show(
    alt.Chart(alt.InlineData(values=popularity), width=600, height=200)
    .mark_line(interpolate="step-after")
    .encode(
        x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the query"),
        y=alt.Y("users:Q", scale=alt.Scale(type="log"), title="users who posed it"),
    ),
    "popularity",
)

# %% [markdown]
# ## What epsilon means
#
# The law of a noisy count in the world with you, and in the world without you. Nowhere do the two differ by more than
# the factor e^epsilon. Try other numbers: at 0.1 the curves can hardly be told apart, at 5 they hardly overlap.

# %%
show(plot.two_worlds(1), "two-worlds")

# %% [markdown]
# ## What d does
#
# Only the first d queries of each user count. Small d: little noise, but busy users are cut off. Large d: everybody
# counts in full, but the noise must hide more. No log is read for this forecast, so it costs nothing to look.

# %%
forecasts = compare(hq.Budget(1, 1e-6), users=5000, selectors=("laplace", "gaussian", "guided"))
show(plot.forecasts([asdict(row) for row in forecasts]), "forecasts")

# %% [markdown]
# ## Plan, then spend, then run
#
# Making a plan reads no row. `explain` says every step with its cost. `run` first records the spend in the ledger,
# durably, and only then reads. The account is opened before, with a budget for the whole life of the log.

# %%
asked = {"epsilon": 1, "delta": 1e-6, "queries_per_user": 20, "clicks_per_user": 5}
plan = hq.plan_release(log, population="readers of example.org", **asked)
print(plan.explain())

# %%
Path("ledger.db").unlink(missing_ok=True)  # this imaginary world begins anew; in life nobody deletes a ledger
ledger = hq.Ledger.open("ledger.db")
ledger.open_account("readers of example.org", "add-remove", hq.Budget("3/2", 3e-6))
release = plan.run(ledger)
print(release)
print(release.guarantees[0].in_words())

# %% [markdown]
# ## How near is it to the truth?
#
# Not private again, and possible only here: beside each released count the true one. The dashed line is equality.
# Released counts scatter by the noise, and lie below the line because of d: a user's queries after the first 20 do not
# count.

# %%
points = [{**row, "truth": true_counts[row["query"]]} for row in release.queries.to_pylist()]
base = alt.Chart(alt.InlineData(values=points), width=400, height=400)
log_x = alt.X("truth:Q", scale=alt.Scale(type="log", nice=False), title="true number of users")
log_y = alt.Scale(type="log", nice=False)
line = base.mark_line(strokeDash=[4, 4], color="#999").encode(x=log_x, y=alt.Y("truth:Q", scale=log_y))
dots = base.mark_circle(size=40).encode(
    x=log_x, y=alt.Y("count:Q", scale=log_y, title="released count"), tooltip=["query:N", "count:Q", "truth:Q"]
)
show(line + dots, "truth")

# %% [markdown]
# ## Use it
#
# All of this sees the release only, never the log, and costs nothing more.

# %%
index = hq.SearchIndex(release)
for hit in index.search("humidty ideas").queries[:3]:
    print(hit)

# %% [markdown]
# ## Until the budget is gone
#
# A plan runs once. The same again is a second release about the same people, with a plan of its own. The ledger adds up
# what both cost together and refuses what would be more than was promised; then nothing is spent and no row is read.

# %%
for attempt in range(2, 5):
    try:
        hq.plan_release(log, population="readers of example.org", **asked).run(ledger)
    except hq.HushqueryError as refusal:
        print(f"release {attempt}:", refusal)
        break
    print(f"release {attempt}: made")

# %%
show(plot.ledger_over_time(ledger.over_time()), "ledger")
