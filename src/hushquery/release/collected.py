"""Read how a release of estimates was collected: its task, periods and mechanism, and what changed between two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hushquery.core.budget import exact, format_epsilon
from hushquery.errors import DataError, HushqueryError
from hushquery.release.manifest import task_of
from hushquery.release.release import Release

_DAY = 86400
_LAST_DAY = 250_000_000_000  # later days have no name in Python

# What devices' answers depend on besides the list and the mechanism, and how it is called.
_NAMED = (
    ("client", "epsilon", "epsilon"),
    ("client", "lifetime_epsilon", "the lifetime epsilon"),
    ("client", "sampling", "the sampling rate"),
    ("client", "records_per_user", "the number of records per client"),
    ("task", "highest", "the highest number"),
    ("task", "period", "the period in seconds"),
)


@dataclass(frozen=True)
class Collected:
    """What a release of estimates was made from; ``numbers`` are its periods, each ``seconds`` long, or None."""

    release: Release
    task: Mapping[str, Any]
    domain: Mapping[str, Any]
    oracle: Mapping[str, Any]
    numbers: tuple[int, ...]
    seconds: int | None

    @classmethod
    def of(cls, release: Release) -> Collected:
        """Read the manifest of a release; refuse one that does not say how devices answered, and when."""
        parameters = release.manifest["parameters"]
        task = task_of(parameters)
        try:
            configuration = json.loads(parameters["configuration_text"])
            numbers, seconds = tuple(sorted(parameters["periods"])), task["task"].get("period")
            sound = isinstance(configuration["oracle"]["name"], str) and isinstance(configuration["domain"], dict)
            sound = sound and bool(numbers) and all(type(one) is int and one >= 0 for one in numbers)
            sound = sound and (seconds is None or (type(seconds) is int and seconds > 0))
            sound = sound and all(isinstance(parameters[name], str) for name in ("task", "configuration"))
            sound = sound and isinstance(parameters["post"], str | None)
            exact(task["client"].get("sampling", 1))
        except (HushqueryError, LookupError, TypeError, ValueError, RecursionError):
            sound = False
        if not sound:
            what = "a release of estimates does not say how devices answered, or in which period"
            raise DataError(what, fix="Make it with `hushquery estimate`, or download it again")
        return cls(release, task, configuration["domain"], configuration["oracle"], numbers, seconds)

    @property
    def sampling(self) -> float:
        """The share of clients that report in a period."""
        return float(exact(self.task["client"].get("sampling", 1)))

    def reports(self, cell: int) -> int:
        """Return how many reports an estimate is made of: for dBitFlip those that sampled the bucket, else all."""
        if self.oracle["name"] == "dbitflip":
            return int(self.release.tables["support"]["reports"][cell].as_py())
        return int(self.release.manifest["parameters"]["reports"])

    def began(self, number: int) -> str:
        """Return the day on which a period began, with the time where periods are not of whole days."""
        seconds = number * (self.seconds or 0)
        if seconds > _LAST_DAY:
            return f"period {number}"
        day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return f"{day:%Y-%m-%d}" if (self.seconds or 0) % _DAY == 0 else f"{day:%Y-%m-%d %H:%M}"

    @property
    def comparable(self) -> tuple[object, ...]:
        """What two releases must have in common for a difference between them to be a change over time."""
        parameters = self.release.manifest["parameters"]
        return parameters["configuration"], self.release.manifest["interval_level"], parameters["post"]

    def changes_since(self, before: Collected) -> str:
        """Explain in a sentence why the two can't be compared."""
        (ours, level, post), (theirs, _, post_before) = self.comparable, before.comparable
        if ours != theirs:
            what = "; ".join(self._changed(before)) or "the task changed"
            return f"A new series begins: {what}. Devices drew new answers, so there is no comparison with before."
        if post != post_before:
            return f"A new series begins: the estimates are post-processed by {post or 'nothing'} now."
        return f"A new series begins: the intervals are at {100 * float(str(level)):g}% now."

    def _changed(self, before: Collected) -> Iterator[str]:
        new, old = (list(map(json.dumps, one.domain.get("records") or ())) for one in (self, before))
        if new != old:
            added, gone = len(set(new) - set(old)), len(set(old) - set(new))
            yield f"the list changed ({added:,} added, {gone:,} removed)" if added or gone else "the list was reordered"
        named = [(words, before.task[part].get(name), self.task[part].get(name)) for part, name, words in _NAMED]
        for words, was, now in named:
            if was != now:
                yield f"{words} was {_shown(was)}, and is {_shown(now)}"
        if before.oracle["name"] != self.oracle["name"]:
            yield f"the mechanism was {before.oracle['name']}, and is {self.oracle['name']}"
        elif before.oracle != self.oracle and new == old and all(was == now for _, was, now in named):
            yield "the mechanism runs with other integers"


def _shown(value: Any) -> str:
    return "not set" if value is None else format_epsilon(exact(value)) if isinstance(value, str) else f"{value:,}"
