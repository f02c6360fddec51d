"""Follow a task over time: its periods as a series, and which changes between them are noise.

Devices keep their answers, so the errors of two periods go the same way, and the difference varies less than two
independent ones would. By how much depends on how many reports repeat, which nobody can see: unless ``same_devices``
declares it, none is assumed to, and intervals of changes are wide (docs/proofs/series.md). Whatever a device's answers
depend on, such as the list or epsilon, makes it answer anew: a task that changes begins a new series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from hushquery import plot
from hushquery.errors import DataError, UsageError
from hushquery.publish.tables import Rows, Shown, checked_limit
from hushquery.release.collected import Collected
from hushquery.release.estimates_page import measure_shown
from hushquery.release.intervals import independent_change
from hushquery.release.repeats import Spread, spread_of
from hushquery.release.series import check_same_people, dates, order_of

if TYPE_CHECKING:
    import altair

    from hushquery.release import Release

__all__ = ["Change", "Period", "PeriodSeries", "PeriodTrends", "Point", "period_chart", "period_series"]

# Of a longer gap not every period is listed.
_MOST_MISSING = 400
_MOST_DRAWN = 20  # as many values


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

    ``begins`` is a sentence on why the series does not continue the one before it; empty for the first.
    ``same_devices`` is declared: from one period to the next at least this share of devices reports the same answer.
    """

    periods: tuple[Period, ...]
    begins: str = ""
    same_devices: float = 0.0
    _spreads: dict[int, Spread | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the task."""
        return str(self._collected.task["task"]["name"])

    @property
    def kind(self) -> str:
        """What the task collects: setting, number, text or searches."""
        return str(self._collected.task["task"]["kind"])

    @property
    def measure(self) -> str:
        """What is estimated of each cell: ``share`` or ``mean``."""
        return measure_shown(self._manifest)

    @property
    def level(self) -> float:
        """The coverage of each interval, as released."""
        return float(self._manifest["interval_level"])

    @cached_property
    def present(self) -> tuple[Period, ...]:
        """The periods that have a release."""
        return tuple(period for period in self.periods if period.release is not None)

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """What is estimated, in the order of the list; of texts all that any period found."""
        return tuple(dict.fromkeys(cell for rows in self._rows.values() for cell in rows))

    def largest(self, limit: int) -> list[str]:
        """Return the cells in their order, of more than ``limit`` those of the largest last estimates."""
        if len(self.cells) <= limit:
            return list(self.cells)
        last = self._rows[self.present[-1].number]
        ranked = sorted(self.cells, key=lambda cell: -last[cell]["estimate"] if cell in last else math.inf)
        return sorted(ranked[:limit], key=self.cells.index)

    def values(self, cell: str) -> list[Point | None]:
        """Return what each period says of a cell: None where there is no data, or the text was not found."""
        rows = [self._rows.get(period.number, {}).get(cell) for period in self.periods]
        if not any(rows):
            raise UsageError(f"the series has no value {cell!r}", fix="Use one of its cells")
        return [None if row is None else Point(row["estimate"], row["low"], row["high"]) for row in rows]

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
        wanted = self.joint_level(level)
        before, after = self._pair(earlier, later)
        first, last = (self._rows[number].get(cell) for number in (before, after))
        if first is None or last is None:
            return None
        variance, repeated = self._difference(before, after, (first, last))
        alone = math.hypot(first["stderr"], last["stderr"])
        narrower = math.sqrt(variance) / alone if alone else 1.0
        wider = _half_width(wanted) / _half_width(self.level)
        if (
            self._manifest["parameters"]["post"] is not None
        ):  # published ends may be cut, and distances to them too short
            first, last = (self._uncut(row) for row in (first, last))
        low, high = independent_change(first, last, narrower * wider)
        difference, noise = last["estimate"] - first["estimate"], low <= 0 <= high
        return Change(cell, before, after, difference, math.sqrt(variance), low, high, noise, repeated)

    def changes(
        self,
        earlier: int | None = None,
        later: int | None = None,
        bonferroni: bool = False,
        *,
        level: float | None = None,
    ) -> list[Change]:
        """Return the change of every cell that both periods have; by ``bonferroni`` the level holds for all at once."""
        wanted = self.joint_level(level, bonferroni)
        found = [self.change(cell, earlier, later, level=wanted) for cell in self.cells]
        return [change for change in found if change is not None]

    def joint_level(self, level: float | None = None, bonferroni: bool = False) -> float:
        """Return the level of each interval: as released by default, corrected for the number of cells if asked."""
        wanted = checked_level(self.level if level is None else level)
        return 1 - (1 - wanted) / len(self.cells) if bonferroni and self.cells else wanted

    def repeated(self, earlier: int, later: int) -> float:
        """Return the share of reports that is declared to repeat over so many periods; 0 where nothing can be used."""
        if not self.same_devices or self._unusable:
            return 0.0
        return self._collected.sampling * max(0.0, 1 - abs(later - earlier) * (1 - self.same_devices))

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

    @property
    def _manifest(self) -> Mapping[str, Any]:
        return self._collected.release.manifest

    @cached_property
    def _by_number(self) -> dict[int, Collected]:
        return {one.number: Collected.of(one.release) for one in self.periods if one.release is not None}

    @property
    def _collected(self) -> Collected:
        return next(iter(self._by_number.values()))

    @cached_property
    def _unusable(self) -> str:
        """Why the declaration can't be used; empty where it can."""
        if self._collected.seconds is None:
            return "the task has no periods"
        if self._collected.oracle["name"] == "rappor":
            return "RAPPOR draws a part of each report anew"
        if self._collected.task["client"].get("records_per_user", 1) > 1:
            return "clients report several records, and any of them may change"
        return "a release covers several periods" if any(one.last > one.number for one in self.present) else ""

    def _pair(self, earlier: int | None, later: int | None) -> tuple[int, int]:
        numbers = list(self._by_number)
        if len(numbers) < 2:
            raise UsageError("a change needs two periods with data", fix="Use a series with two releases or more")
        last = numbers[-1] if later is None else later
        if earlier is None:
            earlier = next((number for number in reversed(numbers) if number < last), last)
        for number in (earlier, last):
            if number not in numbers:
                raise UsageError(f"the series has no data of period {number}", fix="Use one of its present periods")
        if earlier >= last:
            raise UsageError("a change goes from an earlier period to a later one", fix="Exchange the two")
        return earlier, last

    def _uncut(self, row: Mapping[str, Any]) -> dict[str, Any]:
        reach = _half_width(self.level) * row["stderr"]
        return {**row, "low": row["estimate"] - reach, "high": row["estimate"] + reach}

    def _difference(self, before: int, after: int, rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
        """Return the variance of the difference of two rows, and the share of repeated answers that it counts on."""
        variances = (rows[0]["stderr"] ** 2, rows[1]["stderr"] ** 2)
        repeated, cell = self.repeated(before, after), rows[0]["cell"]
        if repeated and cell not in self._spreads:
            self._spreads[cell] = spread_of(self._collected.oracle, cell)
        spread = self._spreads[cell] if repeated else None
        if spread is None:
            return sum(variances), 0.0
        reports = (self._by_number[before].reports(cell), self._by_number[after].reports(cell))
        bound = spread.difference(reports, variances, repeated)
        return bound, repeated if bound < sum(variances) else 0.0

    def _notes(self) -> Iterator[str]:
        gaps = [period for period in self.periods if period.missing]
        if gaps:
            many = sum(period.last - period.number + 1 for period in gaps)
            yield f"No data for {many:,} period{'s' if many > 1 else ''}: no release was given."
        if len(self.present) < 2:
            return
        if self._manifest["parameters"]["post_processing"]:
            yield "The estimates were post-processed: small shares may seem to change less than they did."
        if not self.same_devices:
            yield (
                "Changes are judged as if all noise were drawn anew. Devices repeat their answers, so smaller changes "
                "can be told from noise: declare the share of devices that answer the same again (--same-devices)."
            )
        elif self._unusable:
            yield f"The declared share of repeated answers is not used: {self._unusable}."
        else:
            rate = self._collected.sampling
            yield (
                f"Declared, not measured: from one period to the next at least {100 * self.same_devices:.4g}% of the "
                "devices answer the same again"
                + (f", of which {100 * rate:.4g}% are sampled. " if rate < 1 else ". ")
                + "If fewer do, some changes are called real that are noise."
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
    _check(releases, same_devices)
    runs: dict[tuple[object, ...], list[Collected]] = {}
    for one in _ordered(list(map(Collected.of, releases))):
        runs.setdefault(one.comparable, []).append(one)
    firsts = [run[0] for run in runs.values()]
    begins = ["", *(after.changes_since(before) for before, after in pairwise(firsts))]
    return [
        PeriodSeries(tuple(_periods(run)), why, float(same_devices))
        for run, why in zip(runs.values(), begins, strict=True)
    ]


@dataclass(frozen=True)
class PeriodTrends(Shown):
    """The series of a task, and what changed in the last one since the period before: the surest changes first."""

    series: tuple[PeriodSeries, ...]
    changes: Rows[Change]
    level: float
    notes: tuple[str, ...] = ()
    bonferroni: bool = False

    @property
    def last(self) -> PeriodSeries:
        """The series that goes on."""
        return self.series[-1]

    def changes_of(self, series: PeriodSeries, earlier: Period | None = None) -> list[Change]:
        """Return the changes since a period, else since the previous one, at the level that was asked for."""
        if len(series.present) < 2:
            return []
        since = None if earlier is None else earlier.number
        return series.changes(since, bonferroni=self.bonferroni, level=self.level)


def period_trends(
    releases: Sequence[Release],
    limit: int = 20,
    *,
    level: float | None = None,
    bonferroni: bool = False,
    same_devices: float = 0.0,
) -> PeriodTrends:
    """Return the series that releases of one task make up, and the changes since the period before the last."""
    series = period_series(releases, same_devices)
    last = series[-1]
    found = PeriodTrends(tuple(series), Rows(), last.joint_level(level), bonferroni=bonferroni)
    changes = found.changes_of(last)
    changes.sort(key=lambda change: -abs(change.difference) / change.stderr if change.stderr else 0.0)
    notes = list(dict.fromkeys(note for one in series for note in (one.begins, *one.notes) if note))
    if len(changes) > 1 and not bonferroni:
        notes.append(
            f"At {100 * found.level:g}% per value, up to {(1 - found.level) * len(changes):.2g} of {len(changes):,} "
            "unchanged values are marked as changed by chance; --bonferroni corrects for that."
        )
    return replace(found, changes=Rows(changes[: checked_limit(limit)]), notes=tuple(notes))


def period_chart(result: PeriodTrends) -> altair.LayerChart | altair.FacetChart:
    """Draw all periods with their intervals; a missing period and a new series leave gaps."""
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    wanted = result.last.largest(_MOST_DRAWN)
    for one in result.series:
        if one.begins:
            names.append(_unused("new series", names))
        start = len(names)
        for period in one.periods:
            names.append(_unused(period.label, names))
        for cell in one.cells:
            points = zip(names[start:], one.values(cell) if cell in wanted else (), strict=False)
            rows += [
                {"release": name, "query": cell.replace("\t", "  "), "value": point.estimate, **point._asdict()}
                for name, point in points
                if point is not None
            ]
    shares = result.last.measure == "share"
    return plot.over_time(rows, names, per_cent=shares, title=f"estimated {result.last.measure}")


def _unused(name: str, names: Sequence[str]) -> str:
    return name if name not in names else f"{name} ({len(names)})"


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
            fix="Compare the releases of one task",
        )
    check_same_people(releases)


def _ordered(collected: Sequence[Collected]) -> list[Collected]:
    """Sort by the times at which periods began, or by dates where the task has none; refuse different tasks."""
    tasks = dict.fromkeys((one.task["task"]["name"], one.task["task"]["kind"]) for one in collected)
    if len(tasks) > 1:
        raise DataError(
            "the releases are of different tasks",
            why="; ".join(f"{name} ({kind})" for name, kind in tasks),
            fix="Compare the periods of one task",
        )
    if all(one.seconds for one in collected):
        return sorted(collected, key=lambda one: (one.seconds or 0) * one.numbers[0])
    places = order_of([one.release for one in collected])
    return [collected[place] for place in places]


def _periods(run: Sequence[Collected]) -> Iterator[Period]:
    """Yield the periods of a series, with those that are missing."""
    last: int | None = None
    for place, one in enumerate(run):
        if one.seconds is None:
            yield Period(place, dates(one.release.manifest), one.release, place)
            continue
        first = one.numbers[0]
        if last is not None and first <= last:
            raise DataError(f"two releases are of period {first}", fix="Use one of them")
        if last is not None and first - last > _MOST_MISSING:
            yield Period(last + 1, one.began(last + 1), None, first - 1)
        elif last is not None:
            yield from (Period(number, one.began(number), None, number) for number in range(last + 1, first))
        last = one.numbers[-1]
        yield Period(first, one.began(first), one.release, last)


def _half_width(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
