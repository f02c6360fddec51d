"""The task file that ``hushquery task new`` writes: every key, with what it means."""

from __future__ import annotations

from hushquery.errors import UsageError

__all__ = ["template"]

_SEARCHES = """\
[task]                         # the id of the task is the hash of all this; comments and order don't count
name = "example-searches"
population = "browser users"   # whose budget it is
kind = "searches"              # (query, URL) records; "setting": one value out of a public list
period = "7d"                  # each client reports once in a period; absent: once
# domain = [["weather leeds", "https://weather.example"]]   # a public list makes [optin] and [head] unnecessary

[optin]                        # what a user who opted in gives to the curator
epsilon = 4.0
delta = 1e-5
records_per_user = 1
relation = "replace-one"
"""

_SETTING = """\
[task]                         # the id of the task is the hash of all this; comments and order don't count
name = "example-theme"
population = "app users"       # whose budget it is
kind = "setting"               # one value out of a public list; "searches": (query, URL) records
period = "7d"                  # each client reports once in a period; absent: once
domain = ["light", "dark", "system"]   # everybody may know this list
"""

_CLIENT = """
[client]                       # what the others report, randomised on their own device
epsilon = {epsilon}                  # the loss of one period's report: 4, 0.5, "1/3" or "ln(10)"
records_per_user = 1           # each gets an equal share of epsilon
oracle = "auto"                # the mechanism with the smallest error for this domain and epsilon
unknown = "wildcard"           # values not listed become "everything else"; "refuse": an error, and no report
lifetime_epsilon = 16.0        # what a device may lose in its life, in all its tasks together
sampling = 1.0                 # the share of clients that report in a period
enabled = true                 # the off-switch
"""

_HEAD = """
[head]                         # the list that is built from the opt-in records, then measured by all
size = 50
mode = "best"
"""

_COLLECT = """
[collect]
min_batch = 1000               # nothing is estimated from fewer reports
time_precision = "30m"         # reports tell their time no finer than this
clock_skew = "1m"
retention = "90d"
max_body = 65536               # bytes, or "64KiB"
origins = []                   # web pages that may send reports
"""


def template(kind: str = "searches") -> str:
    """Give a commented task file to begin with.

    >>> template("setting").splitlines()[1]
    'name = "example-theme"'
    """
    if kind == "searches":
        return _SEARCHES + _CLIENT.format(epsilon="4.0") + _HEAD + _COLLECT
    if kind == "setting":
        return _SETTING + _CLIENT.format(epsilon="1.0") + _COLLECT
    raise UsageError("there is no such kind of task", fix="It is searches or setting")
