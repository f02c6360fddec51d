"""Order a series of releases by the dates of their data, name them, and compose what they promise together.

The day of publishing replaces a period that nobody stated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hushquery.core.budget import exact, round_up
from hushquery.core.guarantee import Guarantee
from hushquery.errors import DataError, UsageError
from hushquery.release.manifest import task_of

if TYPE_CHECKING:
    from hushquery.release.release import Release


def period(manifest: Mapping[str, Any]) -> tuple[date | None, date | None]:
    """Return the first and the last day of the data, as far as they are stated; clients report in periods of a task."""
    stated = _description(manifest).get("period")
    if not isinstance(stated, Mapping):
        return _reported(manifest) if manifest.get("kind") == "local" else (None, None)
    return _day(stated.get("start")), _day(stated.get("end"))


def _reported(manifest: Mapping[str, Any]) -> tuple[date | None, date | None]:
    try:
        parameters = manifest["parameters"]
        seconds, periods = task_of(parameters)["task"]["period"], parameters["periods"]
        if seconds is None:
            return None, None
        first, last = min(periods) * seconds, (max(periods) + 1) * seconds - 1
        return datetime.fromtimestamp(first, UTC).date(), datetime.fromtimestamp(last, UTC).date()
    except (DataError, LookupError, TypeError, ValueError, OverflowError, OSError):
        return None, None


def dates(manifest: Mapping[str, Any]) -> str:
    """Print the period of the data, else the day of publishing."""
    start, end = period(manifest)
    if start and end:
        return f"{start}" if start == end else f"{start} to {end}"
    return f"since {start}" if start else f"until {end}" if end else str(manifest["created"])


def last_day(manifest: Mapping[str, Any]) -> date | None:
    """Return the last day of the data as far as anybody knows: of its period, else of publishing."""
    start, end = period(manifest)
    return end or start or _day(manifest.get("created"))


def order_of(releases: Sequence[Release]) -> list[int]:
    """Return the places of releases by the dates of their data; those of one day, or without a date, keep theirs."""
    days = [last_day(release.manifest) for release in releases]
    known = [day for day in days if day is not None]
    if len(known) < len(days):
        return list(range(len(releases)))
    starts = [period(release.manifest)[0] or day for release, day in zip(releases, known, strict=True)]
    return sorted(range(len(releases)), key=lambda place: (known[place], starts[place]))


def in_order(releases: Sequence[Release]) -> list[Release]:
    """Sort releases by the dates of their data, as :func:`order_of` does."""
    return [releases[place] for place in order_of(releases)]


def check_same_people(releases: Sequence[Release]) -> None:
    """Refuse releases of different populations: a difference between them is no change over time."""
    people = list(dict.fromkeys(frozenset(one.population for one in release.guarantees) for release in releases))
    if len(people) > 1:
        raise DataError(
            "the releases are of different populations",
            why="; ".join(" and ".join(sorted(names)) for names in people),
            fix="Make one site for each population, and compare releases of one population only",
        )


def series_names(releases: Sequence[Release]) -> list[str]:
    """Name each release by its epoch, else by the dates of its data; number those of the same dates."""
    epochs = [release.manifest["parameters"].get("epoch") for release in releases]
    if all(type(epoch) is int for epoch in epochs) and len(set(epochs)) == len(epochs):
        return [f"epoch {epoch}" for epoch in epochs]
    days = [dates(release.manifest) for release in releases]
    if len(set(days)) == len(days):
        return [
            f"the release of {day}" if day == str(release.manifest["created"]) else day
            for release, day in zip(releases, days, strict=True)
        ]
    return [f"release {place}" for place in range(1, len(days) + 1)]


def spoken(name: str) -> str:
    """Return a name of :func:`series_names` as a sentence has it."""
    return f"the data of {name}" if name[:1].isdigit() else name


def file_names(releases: Sequence[Release]) -> list[str]:
    """Return a name for the files of each release: its last day, which stays when others are added before it."""
    taken: dict[str, int] = {}
    names = []
    for release in releases:
        day = str(last_day(release.manifest) or "undated")
        taken[day] = taken.get(day, 0) + 1
        names.append(day if taken[day] == 1 else f"{day}-{taken[day]}")
    return names


def together(releases: Sequence[Release]) -> list[Guarantee]:
    """Return what all releases of a series promise together to each population, composed as the ledger composes.

    **Guarantee:** whoever is in all of them is promised each of these, at the sum of their deltas, by the exact losses
    of their steps (:class:`hushquery.core.loss.Loss`). Populations, and relations of one, are never added up. Devices
    that answer for themselves lose no more than :func:`device_costs` says, given the times at which a value changed.
    """
    groups: dict[tuple[Any, ...], list[Guarantee]] = {}
    for release in releases:
        for guarantee in release.guarantees:
            groups.setdefault((guarantee.population, guarantee.model, guarantee.unit), []).append(guarantee)
    whole = [several[0] if len(several) == 1 else _composed(several) for several in groups.values()]
    if len(whole) == 1 and all(release.manifest.get("kind") == "local" for release in releases):
        return [replace(whole[0], epsilon=min(whole[0].epsilon, round_up(device_costs(releases).most)))]
    return whole


@dataclass(frozen=True)
class DeviceCosts:
    """What releases of estimates have cost one device: ``answer`` for each new value of the last task, ``most`` in all.

    ``answers`` is how many different answers a device gave to the last task at most: one in each period, and no more
    than it has values; ``lifetime`` ends them.

    >>> costs = DeviceCosts(answer=Fraction(3, 2), answers=3, lifetime=Fraction(4), most=Fraction(4))
    >>> [float(costs.after(changes)) for changes in range(4)]
    [1.5, 3.0, 4.0, 4.0]
    """

    answer: Fraction
    answers: int
    lifetime: Fraction
    most: Fraction

    def after(self, changes: int) -> Fraction:
        """Return what a device has spent at most whose value changed so often."""
        return min(self.lifetime, self.answer * min(changes + 1, self.answers))


def device_costs(releases: Sequence[Release]) -> DeviceCosts:
    """Compute what a device that reported in all releases of estimates has spent at most.

    **Guarantee:** given the times at which its value changed, which are not hidden. A repeated answer costs nothing, a
    new one its epsilon, and a device stops at its lifetime budget, whatever the tasks are.
    """
    periods: dict[str, set[int]] = {}
    costs: dict[str, DeviceCosts] = {}
    try:
        for release in releases:
            parameters = release.manifest["parameters"]
            answered = periods.setdefault(parameters["task"], set())
            answered.update(parameters["periods"])
            one = exact(parameters["answer_epsilon"]) * task_of(parameters)["client"]["records_per_user"]
            answers, life = int(min(len(answered), _answers(parameters))), exact(parameters["lifetime_epsilon"])
            costs[parameters["task"]] = DeviceCosts(one, answers, life, min(life, one * answers))
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        raise DataError("a release does not say what its reports cost", fix="Download it again") from None
    most = min(max(cost.lifetime for cost in costs.values()), sum((cost.most for cost in costs.values()), Fraction(0)))
    return replace(costs[parameters["task"]], most=most)


def _answers(parameters: Mapping[str, Any]) -> float:
    """Return how many different answers a device can give to a task."""
    runs = json.loads(parameters["configuration_text"])["oracle"]
    if runs["name"] == "rappor":
        return math.inf
    if runs["name"] == "onebit":
        return int(runs["most"] // runs["step"] + 1)
    return min(runs["k"], runs["d"] + 1) if runs["name"] == "dbitflip" else int(runs["k"])


def _composed(several: Sequence[Guarantee]) -> Guarantee:
    first, noise = several[0], any(guarantee.test_noise for guarantee in several)
    delta = sum((exact(guarantee.delta) for guarantee in several), Fraction(0))
    whole = sum((exact(guarantee.epsilon) for guarantee in several), Fraction(0))
    basic = Guarantee(first.population, first.model, first.unit, round_up(whole), min(1.0, round_up(delta)), (), noise)
    if delta >= 1 or not all(guarantee.steps for guarantee in several):
        return basic
    steps = [step for guarantee in several for step in guarantee.steps]
    try:
        tight = Guarantee.of(first.population, first.model, first.unit, steps, delta=delta, test_noise=noise)
    except UsageError:  # steps that promise less than is stated: the sum of what is stated is all there is
        return basic
    # Never less than one of them states, whatever its steps are.
    stated = max(guarantee.epsilon for guarantee in several)
    return replace(tight, epsilon=min(basic.epsilon, max(tight.epsilon, stated)))


def _description(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    given = manifest.get("description")
    return given if isinstance(given, Mapping) else {}


def _day(text: object) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if isinstance(text, str) else None
    except ValueError:
        return None
