# %% [markdown]
# # Answers that give nobody away
#
# The local side of hushquery, cell by cell: noise on the device, nothing to trust anybody with. Open this file as a
# notebook (Jupyter with jupytext, VS Code, PyCharm and Spyder all know the `# %%` marks), or run it: `python local.py`.
# It writes into the folder where it runs, and needs `pip install 'hushquery[plot]'`. The tutorial with the same story
# and more words is docs/tutorials/local.md.

# %%
from __future__ import annotations

import altair as alt
import numpy as np

import hushquery as hq
from hushquery import plot
from hushquery.hybrid.simulate import send_all
from hushquery.local.configuration import Configuration
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.krr import KRR
from hushquery.noise.sampler import SystemBits

DOMAIN = ["light", "dark", "system"]
TRUTH = {"light": 0.3, "dark": 0.6, "system": 0.1, "*": 0.0}


def show(chart, name: str):
    """Draw a chart: into NAME.svg, and below the cell where this is a notebook."""
    plot.save(chart, f"{name}.svg")
    return chart


# %% [markdown]
# ## What a device says
#
# k-ary randomised response: the truth with chance p, else one of the others by lot. Here for a device whose truth is
# "dark", at four values of epsilon. At 0.5 its answer says next to nothing; at 4 it is nearly the truth.

# %%
laws = [
    {"epsilon": f"epsilon {epsilon}", "answer": answer, "chance": KRR.calibrate(4, epsilon).law(1).get(cell, 0.0)}
    for epsilon in (0.5, 1, 2, 4)
    for cell, answer in enumerate([*DOMAIN, "*"])
]
show(
    alt.Chart(alt.InlineData(values=laws), width=130, height=160)
    .mark_bar()
    .encode(
        x=alt.X("answer:N", sort=None, title=None),
        y=alt.Y("chance:Q", title="chance of the answer", scale=alt.Scale(domain=[0, 1])),
        column=alt.Column("epsilon:N", title=None),
    ),
    "laws",
)

# %% [markdown]
# ## One device
#
# Both sides agree on a task. The report is the only thing that leaves the device. It is drawn once, kept on the disk,
# and repeated; a new value costs epsilon again.

# %%
task = hq.Task.loads(
    f"""
[task]
name = "theme"
population = "app users"
kind = "setting"
period = "7d"
domain = {DOMAIN}

[client]
epsilon = 1
lifetime_epsilon = 16
"""
)
device = hq.Client(task, "client.db")
first, second = device.report("dark"), device.report("dark")
print(first.to_text())
print("the same bytes again:", first == second)
print("lost so far:", float(device.account().spent), "of", float(device.account().lifetime))

# %% [markdown]
# ## Why it repeats itself
#
# A device that tossed fresh coins every day would be found out by whoever keeps its reports: the truth is what it says
# most often. With kept answers a hundred reports tell as much as one. Drawn: the share of 5,000 devices whose truth the
# most frequent report gives away.

# %%
oracle = Configuration.of(task).oracle
bits, devices, days = SystemBits(), 5000, 100
daily = np.stack([oracle.randomize_many(np.ones(devices, dtype=np.int64), bits) for _ in range(days)])
seen = np.zeros((devices, oracle.k), dtype=np.int64)
found = []
for day in range(days):
    seen[np.arange(devices), daily[day]] += 1
    found.append({"day": day + 1, "coins": "fresh every day", "found": float(np.mean(seen.argmax(axis=1) == 1))})
    found.append({"day": day + 1, "coins": "kept", "found": float(np.mean(daily[0] == 1))})
show(
    alt.Chart(alt.InlineData(values=found), width=600, height=200)
    .mark_line()
    .encode(
        x=alt.X("day:Q", title="days observed"),
        y=alt.Y("found:Q", title="devices whose truth is found", axis=alt.Axis(format="%")),
        color=alt.Color("coins:N", title="coins"),
    ),
    "repeated",
)

# %% [markdown]
# ## A crowd
#
# `send_all` runs many devices through the same mechanism at once, without a file each. What the coins have added is
# known on average, and taken off again. Red: the truth, known because we made it up.

# %%
n = 10_000
table = send_all(oracle, [int(n * share) for share in TRUTH.values()]).estimate(labels=list(TRUTH))
print(table)
truth = alt.InlineData(values=[{"label": label, "share": share} for label, share in TRUTH.items()])
ticks = alt.Chart(truth).mark_tick(color="firebrick", thickness=3, size=24)
show(plot.estimates(table) + ticks.encode(x="share:Q", y=alt.Y("label:N", sort=None)), "estimates")

# %% [markdown]
# ## What it takes
#
# Half the width of the 95% interval of a rare value, against the number of devices, for several epsilons. On these
# scales every line has the slope -1/2: ten times as exact takes a hundred times as many devices.

# %%
widths = [
    {"devices": n, "epsilon": str(epsilon), "points": 196 * KRR.calibrate(4, epsilon).variance(0.0, n) ** 0.5}
    for epsilon in (0.5, 1, 2, 4)
    for n in (1000, 10_000, 100_000, 1_000_000)
]
show(
    alt.Chart(alt.InlineData(values=widths), width=600, height=240)
    .mark_line(point=True)
    .encode(
        x=alt.X("devices:Q", scale=alt.Scale(type="log")),
        y=alt.Y("points:Q", scale=alt.Scale(type="log"), title="plus or minus, in percentage points"),
        color=alt.Color("epsilon:N"),
    ),
    "devices",
)

# %% [markdown]
# ## An average from one bit of each device
#
# How many minutes a day do people use the app? Each device sends one bit, 1 the more likely the larger its number. The
# share of ones tells the average, and a single bit tells nearly nothing.

# %%
minutes = np.minimum(240, np.random.default_rng(1).gamma(2.0, 30.0, size=50_000)).astype(np.int64)
mechanism = OneBitMean.calibrate(240, 1)
ones = mechanism.randomize_many(minutes, SystemBits())
print("estimated:", mechanism.estimate(ones))
print("true average:", round(float(minutes.mean()), 2))
