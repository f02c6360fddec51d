# %% [markdown]
# # The few and the many
#
# The hybrid of hushquery (BLENDER, Avent and others 2017), cell by cell: those who opt in find what is popular, all
# others measure how popular it is, and both are blended. Open this file as a notebook (Jupyter with jupytext, VS Code,
# PyCharm and Spyder all know the `# %%` marks), or run it: `python hybrid.py`. It writes into the folder where it runs,
# and needs `pip install 'hushquery[plot]'`. The tutorial with the same story is docs/tutorials/hybrid.md.

# %%
from __future__ import annotations

from pathlib import Path

import altair as alt
import duckdb

import hushquery as hq
from hushquery import plot
from hushquery.hybrid.simulate import simulate
from hushquery.log.synthetic.logs import write_log


def show(chart, name: str):
    """Draw a chart: into NAME.svg, and below the cell where this is a notebook."""
    plot.save(chart, f"{name}.svg")
    return chart


# %% [markdown]
# ## People who do not exist, and a task
#
# Two populations, each with a budget of its own. Nothing ever quotes one number for both.

# %%
write_log("log.parquet", profile="tiny", users=10_000, seed=1, force=True)
log = hq.read_log("log.parquet")
TASK = """
[task]
name = "searches"
population = "browser users"
kind = "searches"

[optin]
epsilon = 4
delta = 1e-5
records_per_user = 1
relation = "replace-one"

[client]
epsilon = 4
records_per_user = 1
lifetime_epsilon = 16

[head]
size = 50
"""

# %% [markdown]
# ## The truth
#
# Known here only. One record (a query with the clicked page) of each user counts, drawn by lot, so a user with ten
# records adds a tenth to each.

# %%
rows = duckdb.sql("""
    WITH records AS (SELECT DISTINCT "user", query, coalesce(url, '') AS url FROM 'log.parquet'),
         weighted AS (SELECT *, 1 / count(*) OVER (PARTITION BY "user") AS part FROM records)
    SELECT query, url, sum(part) / (SELECT count(DISTINCT "user") FROM records) FROM weighted GROUP BY ALL
""").fetchall()
truth = {(query, url): share for query, url, share in rows}

# %% [markdown]
# ## One epoch
#
# `simulate` does on one log what in life is spread over people and time: it splits the users, makes the head list from
# those who opted in, sends every other device's answer through its mechanism, and blends. Here 2,000 opt in.

# %%
for old in Path().glob("ledger*.db"):
    old.unlink()  # this imaginary world begins anew; in life nobody deletes a ledger
made = simulate(log, hq.Task.loads(TASK), optin=0.2, ledger="ledger.db")
print(made.head.configuration.why)
print(made.release)
for guarantee in made.release.guarantees:
    print(guarantee.summary())

# %% [markdown]
# ## Both groups, and the blend
#
# Each record has two estimates with errors of their own. The blend weighs them by how little they vary. Red: the truth.

# %%
names = {"optin": "who opted in", "client": "all others", "share": "blend"}
blended = {(row["query"], row["url"]): row for row in made.release.clicks.to_pylist()}
points = []
for row in made.release.tables["records"].to_pylist()[:10]:
    key = row["query"], row["url"]
    values = {**row, "share": blended[key]["share"], "share_stderr": blended[key]["stderr"]}
    points += [
        {
            "record": f"{key[0]}  {key[1].removeprefix('https://') or '(no click)'}",
            "group": name,
            "share": values[column],
            "low": values[column] - 1.96 * values[f"{column}_stderr"],
            "high": values[column] + 1.96 * values[f"{column}_stderr"],
            "truth": truth[key],
        }
        for column, name in names.items()
    ]
base = alt.Chart(alt.InlineData(values=points)).encode(
    y=alt.Y("group:N", title=None, sort=None), color=alt.Color("group:N", title=None, sort=None, legend=None)
)
layers = alt.layer(
    base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title="share of all records", axis=alt.Axis(format="%")), x2="high:Q"
    ),
    base.mark_point(filled=True, size=40).encode(x="share:Q"),
    base.mark_tick(thickness=2, size=14).encode(x="truth:Q", color=alt.value("firebrick")),
).properties(width=460, height=48)
header = alt.Header(labelAngle=0, labelAlign="left", labelLimit=260)
order = list(dict.fromkeys(point["record"] for point in points))
show(layers.facet(row=alt.Row("record:N", title=None, sort=order, header=header), spacing=4), "groups")

# %% [markdown]
# ## How many must opt in?
#
# The same with fewer and more who opt in, each in an imaginary world with a ledger of its own. Drawn: the mean error
# over the list, of either group alone and of the blend. A list from few people is short: what they did not find,
# nobody measures.

# %%
worlds = {0.2: made.release}
for optin in (0.1, 0.4):
    worlds[optin] = simulate(log, hq.Task.loads(TASK), optin=optin, ledger=f"ledger-{optin}.db").release

errors = []
for optin, release in sorted(worlds.items()):
    records = release.tables["records"].to_pylist()
    shares = {(row["query"], row["url"]): row["share"] for row in release.clicks.to_pylist()}
    print(f"{optin:.0%} opt in: {len(records)} records on the list")
    for column, name in names.items():
        off = 0.0
        for row in records:
            key = row["query"], row["url"]
            off += abs((shares[key] if column == "share" else row[column]) - truth[key])
        errors.append({"optin": optin, "group": name, "error": off / len(records)})
show(
    alt.Chart(alt.InlineData(values=errors), width=600, height=240)
    .mark_line(point=True)
    .encode(
        x=alt.X("optin:Q", title="share of users who opt in", axis=alt.Axis(format="%")),
        y=alt.Y("error:Q", title="mean error of a share", axis=alt.Axis(format=".2%"), scale=alt.Scale(zero=True)),
        color=alt.Color("group:N", title=None, sort=None),
    ),
    "optin",
)

# %% [markdown]
# ## A release like any other

# %%
made.release.save("release", force=True)
print(hq.SearchIndex(made.release).search("mango").queries[:1])
