"""The task file that ``hushquery task new`` writes: every key, with what it means."""

from __future__ import annotations

from hushquery.errors import UsageError

__all__ = ["template"]

_SEARCHES = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-searches"
population = "browser users"   # whose budget it is
kind = "searches"              # (query, URL) records; there are also "setting", "number" and "text"
period = "7d"                  # each client reports once in a period; absent: once
# domain = [["weather leeds", "https://weather.example"]]   # a public list makes [optin] and [head] unnecessary

[optin]                        # what a user who opted in gives to the curator
epsilon = 4.0
delta = 1e-5
records_per_user = 1
relation = "replace-one"
"""

_SETTING = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-theme"
population = "app users"       # whose budget it is
kind = "setting"               # one value out of a public list; there are also "searches", "number" and "text"
period = "7d"                  # each client reports once in a period; absent: once
domain = ["light", "dark", "system"]   # everybody may know this list
"""

_NUMBER = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-minutes"
population = "app users"       # whose budget it is
kind = "number"                # a whole number; there are also "searches", "setting" and "text"
period = "1d"                  # each client reports once in a period; absent: once
highest = 1440                 # the largest number there can be, a public bound; others are refused
"""

_TEXT = """\
[task]                         # the task's id is a hash of what clients use; comments and order don't count
name = "example-home-pages"
population = "browser users"   # whose budget it is
kind = "text"                  # any text, without a list; candidates are needed only to decode
period = "1d"                  # each client reports once in a period; absent: once
"""

_CLIENT = """
[client]                       # what the others report, randomised on their own device
epsilon = {epsilon}                  # the loss of one period's report: 4, 0.5, "1/3" or "ln(10)"
"""

_LIST = """\
records_per_user = 1           # each gets an equal share of epsilon
oracle = "auto"                # the mechanism with the smallest error for this domain and epsilon{more}
unknown = "wildcard"           # values not listed become "everything else"; "refuse": an error, and no report
"""

_LIFE = """\
lifetime_epsilon = 16.0        # what a device may lose in its life, in all its tasks together
sampling = 1.0                 # the share of clients that report in a period
enabled = true                 # the off-switch
"""

_TWO_STAGE = """
# oracle = "two-stage"         # with [head] mode = "paper": first the query, then the URL, also the others of a query
# query_share = 0.85           # for two-stage: the query's share of epsilon; absent: all that the URL leaves"""

_ONE_BIT = """\
oracle = "onebit"              # one bit for the average; "dbitflip": a histogram
step = 1440                    # divides highest: a device keeps one answer for each multiple; absent: highest
# oracle = "dbitflip"          # instead of the two lines above
# buckets = 24                 # for dbitflip: so many equal ranges
# bits = 4                     # for dbitflip: for so many of them each device answers
"""

_RAPPOR = """
[client.rappor]                # eps infinity = 2h ln((1 - f/2)/(f/2)) must not be above epsilon: here 4 ln 3
k = 128                        # bits of the Bloom filter
h = 2                          # hash functions
m = 64                         # cohorts
p = 0.25                       # the chance of a 1 in a report where the permanent bit is 0
q = 0.75                       # the same where it is 1
f = 0.5                        # a bit of the permanent response is flipped with chance f/2
"""

_HEAD = """
[head]                         # the list that is built from the opt-in records, then measured by all
size = 50
mode = "best"                  # "paper": clients answer by two-stage, as in BLENDER
# algorithm = "guided"         # finds more records where users have many; "laplace" by default
keep = 1                       # for how many periods one list stays: the longer, the less a client loses over time
"""

_COLLECT = """
[collect]                      # only time_precision is part of the task's id: clients use no more
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
        listed = _LIST.format(more=_TWO_STAGE)
        return _SEARCHES + _CLIENT.format(epsilon="4.0") + listed + _LIFE + _HEAD + _COLLECT
    if kind == "setting":
        return _SETTING + _CLIENT.format(epsilon="1.0") + _LIST.format(more="") + _LIFE + _COLLECT
    if kind == "number":
        return _NUMBER + _CLIENT.format(epsilon="1.0") + _ONE_BIT + _LIFE + _COLLECT
    if kind == "text":
        client = _CLIENT.format(epsilon="4.5") + 'oracle = "rappor"\n' + _LIFE.replace("16.0", "18.0")
        return _TEXT + client + _RAPPOR + _COLLECT
    raise UsageError("there is no such kind of task", fix="It is searches, setting, number or text")
