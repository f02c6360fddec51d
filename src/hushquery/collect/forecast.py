"""Forecast what reports will be able to say, by their number, before anybody is asked and while they arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from hushquery.core.budget import in_full
from hushquery.errors import HushqueryError, UsageError
from hushquery.hybrid.plan import least_listed
from hushquery.local.configuration import Configuration
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.plan import forecast as plan_rappor
from hushquery.task import Answers, Task

SIZES = (1_000, 10_000, 100_000)  #: The numbers of clients that people are shown.
_REACH = NormalDist().inv_cdf(0.975)  # of a 95% interval, in standard errors
_CANDIDATES = 100  # texts that will be looked for, where the task names none


def forecast(configuration: Configuration, reports: int) -> dict[str, Any] | None:
    r"""Forecast the error that so many reports give, from the integers of the mechanism; None for fewer than two.

    ``stderr`` is that of a rare value's share (of an average: the largest), ``half_width`` that of its 95% interval,
    each with the largest of any value beside it where clients report one record; for texts, ``smallest_share`` is the
    smallest that is found in 85% of collections. For searches it is what the clients alone give, before the blend.

    >>> task = Task.loads("task = {name = 'a', population = 'b', kind = 'number', highest = 10}\n"
    ...                   "client = {epsilon = 1, lifetime_epsilon = 4}")
    >>> made = forecast(Configuration.of(task), 10_000)
    >>> made["of"], round(made["stderr"], 3), round(made["half_width"], 2)
    ('mean', 0.108, 0.21)
    """
    if reports < 2:
        return None
    task, channel = configuration.task, configuration.channel
    rare, largest = channel.expected_errors(reports)
    alone = task.client.records_per_user == 1
    found = {
        "reports": reports,
        "of": "mean" if isinstance(channel, OneBitMean) else "share",
        "stderr": rare,
        "half_width": _REACH * rare,
        "stderr_most": largest if alone else None,
        "half_width_most": _REACH * largest if alone else None,
        "smallest_share": None,
    }
    if isinstance(channel, Rappor):
        many = len(task.collect.candidates or ()) or _CANDIDATES
        found["smallest_share"] = plan_rappor(
            reports, channel.params, candidates=many, rule="bonferroni"
        ).smallest_share
    return found


def in_words(found: Mapping[str, Any] | None) -> str:
    """Return a forecast as people read it."""
    if found is None:
        return "too few to say anything"
    if found["of"] == "mean":
        return f"the average to within ±{found['half_width']:,.3g}"
    if found["smallest_share"] is not None:
        least = found["smallest_share"]
        return "too few to find any text" if least > 1 else f"finds texts that {_percent(least)} or more have"
    if found["half_width"] >= 1:
        return "too few to say anything"
    most = found["half_width_most"]
    any_one = "" if most is None or most < 1.05 * found["half_width"] else f", others to within ±{_percent(most)}"
    return f"rare values to within ±{_percent(found['half_width'])}{any_one}"


def _percent(share: float) -> str:
    return f"{in_full(100 * share, 2)}%"


# ---- of a task -------------------------------------------------------------------------------------------------------


def forecast_task(task: Task, clients: int, head: Sequence[Any] | None = None) -> dict[str, Any]:
    """Forecast what ``clients`` let a task say; a head list that is not there yet is as long as the task wants it.

    >>> from hushquery.task import template
    >>> cells(Task.loads(template("number")), forecast_task(Task.loads(template("number")), 10_000))
    {'the mean, of 0 to 1,440': '± 31'}
    """
    if head is None and task.head is not None:
        head = [[str(number), ""] for number in range(task.head.size)]
    reports = int(clients * task.client.sampling) * task.client.records_per_user
    found = forecast(Configuration.of(task, head), reports)
    if found is None:
        raise UsageError(
            "so few clients give fewer than two reports, of which no error can be forecast",
            why=f"{clients:,} clients are sampled with {float(task.client.sampling):g}",
            fix="Give more clients, or let the task sample more of them",
        )
    return {"clients": clients, **found}


def cells(task: Task, found: Mapping[str, Any]) -> dict[str, str]:
    """Return a forecast as one row of a table, by the names of its columns: how far intervals reach to each side."""
    highest = task.task.highest
    if found["of"] == "mean" and highest is not None:
        width = found["half_width"]
        return {f"the mean, of 0 to {highest:,}": "nothing" if width >= highest / 2 else f"± {_digits(width)}"}
    shares = {"share of a rare value": _points(found["half_width"])}
    if found["half_width_most"] is not None:
        shares["of any, at most"] = _points(found["half_width_most"])
    least = found["smallest_share"]
    if least is None:
        return shares
    return {"finds a text that": "no text" if least > 1 else f"{_digits(100 * least)}% of clients share", **shares}


def _points(share: float) -> str:
    """Print half the width of an interval of a share; one as wide as everything says nothing."""
    return "nothing" if share >= 0.5 else f"± {_digits(100 * share)} points"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:#.2g}"


def notes(task: Task) -> list[str]:
    """Return what holds however many clients there are, a sentence each."""
    lines = [f"Fewer than {task.collect.min_batch:,} reports are not published."]
    needed = least_listed(task)
    if needed is not None:
        lines.insert(0, f"A search is listed if about {needed:,} of those who opted in made it.")
    return lines


def refused(answers: Answers) -> dict[str, str]:
    """Return what is wrong with answers by their names, including what no mechanism can do; empty: they make a task."""
    problems = answers.problems()
    if problems:
        return problems
    task = Task.loads(answers.to_toml())
    attempts: dict[str, Callable[[], Any]] = {
        "epsilon": lambda: forecast_task(task, SIZES[0]),
        "optin_epsilon": lambda: least_listed(task),
    }
    for answer, attempt in attempts.items():
        try:
            attempt()
        except HushqueryError as error:
            problems[answer] = ". ".join(part for part in (error.what, error.fix) if part)
    return problems
