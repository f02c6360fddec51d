"""Follow a task over time: its periods as a series, and which changes between them are noise.

Devices keep their answers, so the errors of two periods go the same way, and the difference varies less than two
independent ones would. By how much depends on how many reports repeat, which nobody can see: unless ``same_devices``
declares it, none is assumed to, and intervals of changes are wide (docs/proofs/series.md). Whatever a device's answers
depend on, such as the list or epsilon, makes it answer anew: a task that changes begins a new series.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from hushquery.errors import DataError, UsageError
from hushquery.release.estimates_page import measure_shown
from hushquery.release.intervals import independent_change
from hushquery.release.manifest import task_of
from hushquery.release.repeats import Spread, spread_of
from hushquery.release.series import check_same_people, dates, in_order

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = ["Change", "Period", "PeriodSeries", "Point", "is_of_clients", "period_series"]

# Of a longer gap not every period is listed.
_MOST_MISSING = 400
_DAY = 86400
_LAST_DAY = 250_000_000_000  # later days have no name in Python


class Point(NamedTuple):
    """What a period says of a cell, as released."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Period:
    """A period of a series, or of a long gap the first to the ``last``; ``release`` is None where there is none.

    ``label`` is the day on which it began, or what its release says of its dates where the task has no periods.
    """

    number: int
    label: str
    release: Release | None
    last: int

    @property
    def missing(self) -> bool:
        """Whether there is no data."""
        return self.release is None


@dataclass(frozen=True)
class Change:
    """How a cell changed between two periods; it is ``noise`` if its interval holds zero.

    ``repeated`` is the share of repeated answers that the interval counts on: 0 unless it was declared.
    """

    cell: str
    earlier: int
    later: int
    difference: float
    stderr: float
    low: float
    high: float
    noise: bool
    repeated: float = 0.0


@dataclass(frozen=True)
class PeriodSeries:
    """Periods of one task whose devices answer alike, oldest first.

    ``begins`` is a sentence on why the series does not continue the one before it; empty for the first. ``measure`` is
    ``share`` or ``mean``. ``same_devices`` is declared: from one period to the next at least this share of devices
    reports the same answer again.
    """

    name: str
    kind: str
    measure: str
    periods: tuple[Period, ...]
    level: float
    begins: str = ""
    same_devices: float = 0.0

    @cached_property
    def present(self) -> tuple[Period, ...]:
        """The periods that have a release."""
        return tuple(period for period in self.periods if period.release is not None)

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """What is estimated, in the order of the list; of texts all that any period found."""
        return tuple(dict.fromkeys(cell for rows in self._rows.values() for cell in rows))

    def values(self, cell: str) -> list[Point | None]:
        """Return what each period says of a cell: None where there is no data, or the text was not found."""
        found = []
        for period in self.periods:
            row = self._rows.get(period.number, {}).get(cell)
            found.append(None if row is None else Point(row["estimate"], row["low"], row["high"]))
        if cell not in self.cells:
            raise UsageError(f"the series has no value {cell!r}", fix="Use one of its cells")
        return found

    def change(
        self, cell: str, earlier: int | None = None, later: int | None = None, *, level: float | None = None
    ) -> Change | None:
        """Return the change of a cell between two periods, by their numbers: the last two by default.

        None where a period does not have the cell.

        >>> import numpy as np
        >>> from hushquery.local.configuration import Configuration
        >>> from hushquery.local.server.estimate import estimate_support
        >>> from hushquery.task import Task, template
        >>> week = Configuration.of(Task.loads(template("setting")))
        >>> supports = ((20, [400, 300, 200, 100]), (22, [430, 300, 180, 90]))
        >>> made = [estimate_support(week, np.array(c), 1000, periods=[n]).release() for n, c in supports]
        >>> (series,) = period_series(made)
        >>> [period.missing for period in series.periods], series.cells
        ([False, True, False], ('light', 'dark', 'system', '*'))
        >>> change = series.change("light")
        >>> round(change.difference, 3), change.noise
        (0.1, True)
        """
        before, after = self._pair(earlier, later)
        rows = [self._rows[period.number].get(cell) for period in (before, after)]
        if rows[0] is None or rows[1] is None:
            return None
        return self._change(
            cell, before, after, rows[0], rows[1], checked_level(self.level if level is None else level)
        )

    def changes(
        self,
        earlier: int | None = None,
        later: int | None = None,
        bonferroni: bool = False,
        *,
        level: float | None = None,
    ) -> list[Change]:
        """Return the change of every cell that both periods have; by ``bonferroni`` the level holds for all at once."""
        wanted = checked_level(self.level if level is None else level)
        if bonferroni:
            wanted = 1 - (1 - wanted) / max(1, len(self.cells))
        found = [self.change(cell, earlier, later, level=wanted) for cell in self.cells]
        return [change for change in found if change is not None]

    def repeated(self, earlier: int, later: int) -> float:
        """Return the share of reports that is declared to repeat over so many periods; 0 where nothing can be used."""
        if self._periodic is None or not self.same_devices or self._fresh:
            return 0.0
        kept = max(0.0, 1 - abs(later - earlier) * (1 - self.same_devices))
        return kept * self._sampling

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its changes should know, a sentence each."""
        return tuple(self._notes())

    # ---- how ---------------------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> dict[int, dict[str, dict[str, Any]]]:
        return {
            period.number: {
                row["value"]: {**row, "cell": cell}
                for cell, row in enumerate(period.release.tables["estimates"].to_pylist())
            }
            for period in self.periods
            if period.release is not None
        }

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        return _parameters_of(self.present[0])

    @cached_property
    def _task(self) -> dict[str, Any]:
        return task_of(self._parameters)

    @property
    def _periodic(self) -> int | None:
        return _seconds(self._task)

    @cached_property
    def _sampling(self) -> float:
        return float(_fraction(self._task["client"].get("sampling", 1)))

    @cached_property
    def _fresh(self) -> str:
        """Why repeated answers can't be counted on; empty where they can."""
        if _oracle(self._parameters)["name"] == "rappor":
            return "RAPPOR draws a part of each report anew, so only independent noise is assumed"
        if self._task["client"].get("records_per_user", 1) > 1:
            return "clients report several records, of which any may change, so only independent noise is assumed"
        if any(period.last > period.number for period in self.present):
            return "a release covers several periods, so only independent noise is assumed"
        return ""

    @cached_property
    def _spreads(self) -> dict[int, Spread | None]:
        return {}

    def _spread(self, cell: int) -> Spread | None:
        if cell not in self._spreads:
            self._spreads[cell] = spread_of(_oracle(self._parameters), cell)
        return self._spreads[cell]

    def _pair(self, earlier: int | None, later: int | None) -> tuple[Period, Period]:
        by_number = {period.number: period for period in self.present}
        numbers = list(by_number)
        if len(numbers) < 2:
            raise UsageError("a change needs two periods with data", fix="Use a series with two releases or more")
        last = numbers[-1] if later is None else later
        if earlier is None:
            earlier = next((number for number in reversed(numbers) if number < last), last)
        for number in (earlier, last):
            if number not in by_number:
                raise UsageError(f"the series has no data of period {number}", fix="Use one of its present periods")
        if earlier >= last:
            raise UsageError("a change goes from an earlier period to a later one", fix="Exchange the two")
        return by_number[earlier], by_number[last]

    def _change(
        self, cell: str, before: Period, after: Period, first: dict[str, Any], last: dict[str, Any], level: float
    ) -> Change:
        variances = (first["stderr"] ** 2, last["stderr"] ** 2)
        whole, shrink = sum(variances), 1.0
        repeated = self.repeated(before.number, after.number)
        spread = self._spread(first["cell"]) if repeated else None
        if spread is not None and whole > 0:
            reports = (_reports(before, first["cell"]), _reports(after, last["cell"]))
            shrink = math.sqrt(spread.difference(reports, variances, repeated) / whole)
        wider = _half_width(level) / _half_width(self.level)
        low, high = independent_change(first, last, shrink * wider)
        difference = last["estimate"] - first["estimate"]
        return Change(
            cell,
            before.number,
            after.number,
            difference,
            shrink * math.sqrt(whole),
            low,
            high,
            low <= 0 <= high,
            repeated if shrink < 1 else 0.0,
        )

    def _notes(self) -> Iterator[str]:
        gaps = [period for period in self.periods if period.missing]
        if gaps:
            many = sum(period.last - period.number + 1 for period in gaps)
            yield f"No data for {many:,} period{'s' if many > 1 else ''}: no release of them was given."
        if len(self.present) < 2:
            return
        if self._parameters["post_processing"]:
            yield "The estimates were post-processed, and changes of small ones may be too small: compare raw ones."
        if not self.same_devices:
            yield (
                "Changes are judged as if all noise were drawn anew. Devices repeat their answers, so they are known "
                "better than that: declare the share of devices that answer the same again with --same-devices."
            )
        elif self._periodic is None:
            yield "The declared share of repeated answers is not used: the task has no periods."
        elif self._fresh:
            yield f"The declared share of repeated answers is not used: {self._fresh}."
        else:
            sampled = f"; sampling leaves {self._sampling:.4g} of it" if self._sampling < 1 else ""
            yield (
                f"Declared, not measured: from one period to the next at least {100 * self.same_devices:.4g}% of the "
                f"devices answer the same again{sampled}. If fewer do, some changes are called real that are noise."
            )


def is_of_clients(release: Release) -> bool:
    """Return whether a release holds estimates from clients' reports alone."""
    return release.manifest.get("kind") == "local"


def period_series(releases: Sequence[Release], same_devices: float = 0.0) -> list[PeriodSeries]:
    """Return the series that releases of one task make up, oldest first; each change of the task begins another one.

    ``same_devices`` is the share of devices that is declared to report the same answer in a period and in the next.

    Raises:
        DataError: The releases are of different tasks, or two are of the same period.
    """
    several = list(releases)
    _check(several, same_devices)
    found: list[PeriodSeries] = []
    begins = ""
    run: list[Release] = []
    for release in _ordered(several):
        if run and (begins_now := _difference(run[-1], release)):
            found.append(_series(run, begins, same_devices))
            run, begins = [], begins_now
        run.append(release)
    return [*found, _series(run, begins, same_devices)]


def checked_level(level: float) -> float:
    """Refuse what is no level of an interval."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Use a value such as 0.95")
    return float(level)


def _check(releases: Sequence[Release], same_devices: float) -> None:
    if not releases:
        raise UsageError("a series needs a release", fix="Use the releases of a task's periods")
    if isinstance(same_devices, bool) or not isinstance(same_devices, int | float) or not 0 <= same_devices < 1:
        raise UsageError("same_devices must be a share from 0 to below 1", fix="Use a value such as 0.95")
    if not all(map(is_of_clients, releases)):
        raise DataError(
            "estimates from clients' reports can't be compared with counts or blended shares",
            fix="Compare releases of one task, or of one kind",
        )
    tasks = list(dict.fromkeys(_identity(release) for release in releases))
    if len(tasks) > 1:
        raise DataError(
            "the releases are of different tasks",
            why="; ".join(f"{name} ({kind})" for name, kind in tasks),
            fix="Compare the periods of one task",
        )
    check_same_people(releases)


def _identity(release: Release) -> tuple[str, str]:
    task = task_of(release.manifest["parameters"])["task"]
    return task["name"], task["kind"]


def _numbers(release: Release) -> list[int]:
    periods = release.manifest["parameters"].get("periods")
    if not isinstance(periods, list) or not periods or not all(type(one) is int and one >= 0 for one in periods):
        raise DataError("a release of estimates does not say which period it is of", fix="Download it again")
    return sorted(periods)


def _seconds(task: dict[str, Any]) -> int | None:
    period = task["task"].get("period")
    return period if type(period) is int and period > 0 else None


def _ordered(releases: Sequence[Release]) -> list[Release]:
    """Sort by the time at which periods began; without periods, by the dates of the data."""
    lengths = [_seconds(task_of(release.manifest["parameters"])) for release in releases]
    if any(length is None for length in lengths):
        return in_order(releases)
    began = [(length or 0) * _numbers(release)[0] for length, release in zip(lengths, releases, strict=True)]
    return [releases[place] for place in sorted(range(len(releases)), key=lambda place: began[place])]


def _series(releases: Sequence[Release], begins: str, same_devices: float) -> PeriodSeries:
    manifest = releases[0].manifest
    task = task_of(manifest["parameters"])
    seconds = _seconds(task)
    periods: list[Period] = []
    for place, release in enumerate(releases):
        if seconds is None:
            periods.append(Period(place, dates(release.manifest), release, place))
            continue
        numbers = _numbers(release)
        if periods and numbers[0] <= periods[-1].last:
            raise DataError(
                f"two releases are of period {numbers[0]}", fix="Use one of them: a period is one point of the series"
            )
        if periods:
            periods += _gap(periods[-1].last + 1, numbers[0] - 1, seconds)
        periods.append(Period(numbers[0], _label(numbers[0], seconds), release, numbers[-1]))
    return PeriodSeries(
        task["task"]["name"],
        task["task"]["kind"],
        measure_shown(manifest),
        tuple(periods),
        float(manifest["interval_level"]),
        begins,
        float(same_devices),
    )


def _gap(first: int, last: int, seconds: int) -> list[Period]:
    if last - first >= _MOST_MISSING:
        return [Period(first, _label(first, seconds), None, last)]
    return [Period(number, _label(number, seconds), None, number) for number in range(first, last + 1)]


def _label(number: int, seconds: int) -> str:
    if number * seconds > _LAST_DAY:
        return f"period {number}"
    began = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=number * seconds)
    return f"{began:%Y-%m-%d}" if seconds % _DAY == 0 else f"{began:%Y-%m-%d %H:%M}"


def _difference(before: Release, after: Release) -> str:
    """Say what makes a release begin a new series; empty where it continues the old one."""
    ours, theirs = before.manifest, after.manifest
    if ours["parameters"]["configuration"] != theirs["parameters"]["configuration"]:
        what = list(_differing(ours["parameters"], theirs["parameters"])) or ["the task changed"]
        return f"A new series begins: {'; '.join(what)}. Devices drew new answers, so nothing is compared with before."
    if ours["interval_level"] != theirs["interval_level"]:
        return f"A new series begins: intervals are now at {100 * float(theirs['interval_level']):g}%."
    if ours["parameters"]["post_processing"] != theirs["parameters"]["post_processing"]:
        return "A new series begins: the estimates are post-processed in another way."
    return ""


def _differing(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    one, other = task_of(before), task_of(after)
    lists = [_listed(parameters) for parameters in (before, after)]
    if lists[0] != lists[1]:
        added, gone = (len(set(a) - set(b)) for a, b in (reversed(lists), lists))
        yield f"the list changed ({added:,} added, {gone:,} removed)" if added or gone else "the list has another order"
    for part, name, words in (
        ("client", "epsilon", "epsilon"),
        ("task", "period", "the length of a period"),
        ("task", "highest", "the highest number"),
        ("client", "records_per_user", "the number of records of each client"),
        ("client", "lifetime_epsilon", "the lifetime epsilon"),
        ("client", "sampling", "the sampling rate"),
    ):
        a, b = one[part].get(name), other[part].get(name)
        if a != b:
            yield f"{words} was {_shown(a)} and is {_shown(b)}"
    mechanisms = [_oracle(parameters) for parameters in (before, after)]
    if mechanisms[0]["name"] != mechanisms[1]["name"]:
        yield f"the mechanism was {mechanisms[0]['name']} and is {mechanisms[1]['name']}"
    elif mechanisms[0] != mechanisms[1] and lists[0] == lists[1] and one["client"] == other["client"]:
        yield "the mechanism runs with other integers"


def _listed(parameters: dict[str, Any]) -> list[str]:
    domain = _configuration(parameters)["domain"]
    records = domain.get("records", domain.get("values", [])) if isinstance(domain, dict) else domain
    return [json.dumps(record) for record in records] if isinstance(records, list) else []


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _fraction(value: Any) -> float:
    top, _, bottom = str(value).partition("/")
    return float(top) / float(bottom or 1)


def _configuration(parameters: dict[str, Any]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(parameters["configuration_text"])
        if not isinstance(found["oracle"]["name"], str):
            raise TypeError
    except (LookupError, TypeError, ValueError, RecursionError):
        raise DataError("a release of estimates does not say how devices answered", fix="Download it again") from None
    return found


def _oracle(parameters: dict[str, Any]) -> dict[str, Any]:
    oracle: dict[str, Any] = _configuration(parameters)["oracle"]
    return oracle


def _reports(period: Period, cell: int) -> int:
    """Return how many reports an estimate is made of: those that sampled the bucket for dBitFlip, else all."""
    parameters = _parameters_of(period)
    if period.release is not None and _oracle(parameters)["name"] == "dbitflip":
        return int(period.release.tables["support"]["reports"][cell].as_py())
    return int(parameters["reports"])


def _parameters_of(period: Period) -> dict[str, Any]:
    return dict(period.release.manifest["parameters"]) if period.release is not None else {}


def _half_width(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
