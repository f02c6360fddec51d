"""Forecast what a task will be able to say, by the number of clients, before anybody has been asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushquery.errors import HushqueryError, UsageError
from hushquery.hybrid.plan import least_listed
from hushquery.local.configuration import Configuration
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.plan import forecast as forecast_rappor
from hushquery.task import Answers, Task

#: The numbers of clients that people are shown.
SIZES = (1_000, 10_000, 100_000)
_WIDE = 1.96  # how many standard errors a 95% interval reaches to each side


@dataclass(frozen=True)
class Forecast:
    """What so many clients let a task say: standard errors of a rare value's share and of any, or of the mean, twice.

    ``smallest_share``, for texts: what share of the clients must hold a text for it to be found; above 1: none is.

    >>> from hushquery.task import template
    >>> forecast(Task.loads(template("number")), 10_000).cells()
    {'the mean, of 0 to 1,440': '± 31'}
    """

    clients: int
    reports: int
    stderr: float
    stderr_most: float
    highest: int | None = None
    smallest_share: float | None = None

    @property
    def half_width(self) -> float:
        """How far a 95% interval of a rare value's share reaches to each side, or at most that of the mean."""
        return _WIDE * self.stderr

    @property
    def half_width_most(self) -> float:
        """The same for the value whose share is known least well."""
        return _WIDE * self.stderr_most

    def cells(self) -> dict[str, str]:
        """Return it as one row of a table, by the names of the columns."""
        if self.highest is not None:
            return {f"the mean, of 0 to {self.highest:,}": _width(self.half_width / self.highest, self.highest)}
        shares = {"share of a rare value": _width(self.half_width), "of any, at most": _width(self.half_width_most)}
        if self.smallest_share is None:
            return shares
        found = "no text" if self.smallest_share > 1 else f"{_digits(100 * self.smallest_share)}% of clients share"
        return {"finds a text that": found, **shares}

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "half_width": self.half_width, "half_width_most": self.half_width_most}


def _width(share: float, of: int | None = None) -> str:
    """Print half the width of an interval, in percentage points or in units; one as wide as everything says nothing."""
    if share >= 0.5:
        return "nothing"
    if of is None:
        return f"± {_digits(100 * share)} points"
    return f"± {_digits(share * of)}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:#.2g}"


def forecast(task: Task, clients: int, head: Sequence[Any] | None = None) -> Forecast:
    """Forecast what ``clients`` let a task say; a head list that is not there yet is as long as the task wants it."""
    if head is None and task.head is not None:
        head = [[str(number), ""] for number in range(task.head.size)]
    reports = int(clients * task.client.sampling) * task.client.records_per_user
    if reports < 2:
        raise UsageError(
            "so few clients give fewer than two reports, of which no error can be forecast",
            why=f"{clients:,} clients are sampled with {float(task.client.sampling):g}",
            fix="Give more clients, or let the task sample more of them",
        )
    channel = Configuration.of(task, head).channel
    found = None
    if isinstance(channel, Rappor):
        texts = 100 if task.collect.candidates is None else len(task.collect.candidates)
        found = forecast_rappor(reports, channel.params, rule="bonferroni", candidates=texts).smallest_share
    mean = task.task.highest if task.oracle == "onebit" else None
    return Forecast(clients, reports, *channel.expected_errors(reports), mean, found)


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
    for answer, attempt in (
        ("epsilon", lambda: forecast(task, SIZES[0])),
        ("optin_epsilon", lambda: least_listed(task)),
    ):
        try:
            attempt()
        except HushqueryError as error:
            problems[answer] = ". ".join(part for part in (error.what, error.fix) if part)
    return problems
