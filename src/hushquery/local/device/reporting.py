"""``report``: a program's one call, which fetches a task, checks it, answers once per period and sends the answer.

Everything that a collector says is checked by fetch.py, every coin and every account is client.py's, and send.py sends
the same bytes until they are taken. Nothing is drawn before the state file can be written and the task was checked.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from hushquery.core.budget import round_up
from hushquery.errors import NotReady, Unavailable, UsageError
from hushquery.local.device.client import Client, Reportable
from hushquery.local.device.fetch import HOW_TO_GET_THE_ID, fetch_task
from hushquery.local.device.send import Sender
from hushquery.local.device.store import ClientStore
from hushquery.local.report import Report

#: What became of a report: taken now, taken (or refused) by an earlier call, waiting, refused for good, or none made.
Outcome = Literal["stored", "before", "later", "refused", "none"]

# The one that says most about what a program may have to do comes first.
_ORDER: tuple[Outcome, ...] = ("later", "refused", "stored", "before")


@dataclass(frozen=True, repr=False)
class Reported:
    """What a call of :func:`report` did.

    ``reports`` are the period's reports: all that leaves the device. Neither they nor the value are in its ``repr``.
    """

    outcome: Outcome
    reports: tuple[Report, ...]
    cost: Fraction  #: the epsilon that this call spent: 0 for a value that was answered before
    spent: Fraction  #: what the client has lost in all its tasks
    lifetime: Fraction  #: what it may lose

    @property
    def left(self) -> Fraction:
        """What may still be lost; at 0 new values are answered with a report that says nothing."""
        return max(Fraction(0), self.lifetime - self.spent)

    def __repr__(self) -> str:
        cost, left, lifetime = (f"{float(one):.4g}" for one in (self.cost, self.left, self.lifetime))
        return f"Reported({self.outcome}, epsilon {cost} spent now, {left} of {lifetime} left)"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data; what was spent is rounded up."""
        return {
            "outcome": self.outcome,
            "reports": [one.to_json() for one in self.reports],
            "cost": round_up(self.cost),
            "spent": round_up(self.spent),
            "lifetime": round_up(self.lifetime),
        }


def default_state() -> Path:
    """Return where this person's clients on this machine are kept, whatever folder a program runs in."""
    import platformdirs

    return Path(platformdirs.user_data_path("hushquery", appauthor=False)) / "client.db"


def report(
    server: str,
    value: Reportable | list[Reportable] | None,
    *,
    task: str | None = None,
    state: str | os.PathLike[str] | None = None,
    client_id: str = "default",
    wait: float = 0.0,
    timeout: float = 30.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Reported:
    """Report a value to a collector: call it on every start of your program, or when the value changes.

    The first call of a period decides. It loses at most the task's epsilon under replace-one, nothing where the value
    was answered before, and never more than the lifetime in all. What the collector did not take stays on the disk,
    and the next call sends the same bytes, after a pause of 5, then 15 minutes.

    Args:
        server: The collector's address, such as ``https://collect.example.org``.
        value: The value of a setting, a number (or its digits), a text or a query; ``(query, URL)`` for a search with
            a click; a list of them where the task takes several; None for nothing to report.
        task: The task's id, which your program carries. Without it a collector could ask anything.
        state: The file that remembers answers; by default one of this person, for all programs that use hushquery.
        client_id: Which client of the file this is. It never leaves the device.
        wait: Seconds to keep trying, at those pauses, where the collector does not answer.
        timeout: Seconds that a request may take.
        clock: Returns the time in seconds since 1970.
        sleep: Waits for so many seconds.

    Raises:
        UsageError: No task id, or half of one.
        DataError: What the collector serves is not the task of this id. Nothing was drawn, spent or sent.
        UnknownValue: The task refuses values outside its domain. Nothing was spent.
        NotReady: The collector takes no reports now. Nothing was spent.
        Unavailable: The collector or the state file can't be reached. Nothing was spent.

    >>> report("https://collect.example.org", "dark")
    Traceback (most recent call last):
        ...
    hushquery.errors.UsageError: `task` is missing: the id of the task that you mean to answer. ...
    """
    if task is None:
        raise UsageError(
            "`task` is missing: the id of the task that you mean to answer",
            why="a collector could serve a task with any epsilon; the id is the hash of what it promises",
            fix=HOW_TO_GET_THE_ID,
        )
    path = _state(state)
    store = ClientStore(path)
    served = fetch_task(server, task, state=path, timeout=timeout)
    client = Client(served.task, path, client_id, head=served.head, clock=clock)
    if not served.takes_reports and not client.has_reported():
        raise NotReady("the collector takes no reports of this task now", fix="Try again later")
    if served.task.task.kind == "number" and isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
        value = int(value)  # as forms and command lines give it
    made = client.answer(value if isinstance(value, list) else [value])
    ends = clock() + wait
    results: dict[bytes, Outcome] = {}
    with Sender(server, timeout=timeout, clock=clock, state=store) as sender:
        while True:
            results |= {one.report.id: one.outcome for one in sender.send(client)}
            waiting = {one.id for one in client.outbox()}
            if sender.until is None or sender.until > ends or waiting.isdisjoint(one.id for one in made.reports):
                break
            sleep(max(0.0, sender.until - clock()))
    of = {results.get(one.id, "later" if one.id in waiting else "before") for one in made.reports}
    outcome: Outcome = next((name for name in _ORDER if name in of), "none")
    return Reported(outcome, made.reports, made.cost, made.spent, made.lifetime)


def _state(given: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """Return the state file, in a folder for its owner only where it is the default."""
    if given is not None:
        return given
    path = default_state()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            "the folder of the state file can't be made",
            why=error.strerror or "",
            fix="Pass `state=`, or --state, with the path of a file",
        ) from None
    return path
