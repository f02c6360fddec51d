"""Coverage over time: twelve periods of a task, of whose devices some move to another value in each.

The history of each device is drawn at random from a population whose shares are the truth. Devices keep their answers
(``_devices.py``); their reports are counted and estimated as a collector does it, and compared as `hushquery trends`
does it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from tools.coverage import LEAST_INTERVALS, Cell
from tools.coverage._devices import Devices, asked, setting

from hushquery.local.configuration import Configuration
from hushquery.noise.sampler import SeededBits
from hushquery.publish.periods import PeriodSeries, period_series

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PERIODS = 12
MOVING = 0.05

_INDEPENDENT = "more than promised: nothing is declared, so the noise that repeated answers share is counted twice"
_LONG = (
    "more than promised: the declared share is for one period; over several, devices that move twice or return are "
    "counted as often as they moved"
)
_ELSEWHERE = (
    "more than promised: the interval of a change allows for all movers entering or leaving this value, because nobody "
    "can tell which they were"
)


@dataclass(frozen=True)
class Scenario:
    """What a population does: its shares at first, where those who move go, and how many devices report."""

    name: str
    configuration: Configuration
    start: Floats
    moves: Floats  # from a row to a column, given that a device moves
    devices: int = 2_000
    joining: int = 0  # new devices in each period
    sampling: float = 1.0
    numbers: Ints | None = None  # what the cells stand for, where an average is estimated

    def panel(
        self, rng: np.random.Generator, devices: Devices, declared: float, periods: int = PERIODS
    ) -> tuple[PeriodSeries, list[Floats]]:
        """Return the series of new devices, and the true shares (or the average) in each period."""
        devices.forget()
        k, releases, truths = len(self.start), [], []
        values = rng.choice(k, devices.devices, p=self.start)
        step = np.eye(k) + MOVING * (self.moves - np.eye(k))
        laws, weights = [self.start], [self.devices]
        for period in range(periods):
            before = sum(weights)
            if period:
                moved = rng.choice(before, round(MOVING * before), replace=False)
                was = values[moved]
                for cell in range(k):
                    values[moved[was == cell]] = rng.choice(k, int((was == cell).sum()), p=self.moves[cell])
                laws, weights = [*(law @ step for law in laws), self.start], [*weights, self.joining]
            shares = np.average(laws, axis=0, weights=weights)
            truths.append(shares if self.numbers is None else np.array([shares @ self.numbers]))
            reporting = np.flatnonzero(rng.random(sum(weights)) < self.sampling)
            held = values[reporting]
            releases.append(devices.release(period, reporting, held if self.numbers is None else self.numbers[held]))
        (series,) = period_series(releases, declared)
        return series, truths

    def cohort(self) -> Devices:
        """Return as many devices as there ever are."""
        most = self.devices + (PERIODS - 1) * self.joining
        return Devices(self.configuration, most, SeededBits(f"series {self.name}"))


@dataclass
class Seen:
    """How many intervals there were, how many held the truth, and how many did not hold zero."""

    intervals: int = 0
    covered: int = 0
    called: int = 0

    def add(self, low: float, high: float, truth: float) -> None:
        """Count one."""
        self.intervals += 1
        self.covered += bool(low <= truth <= high)
        self.called += not low <= 0 <= high


def observed(
    scenario: Scenario, least: int, cells: tuple[int, ...] = (), apart: int = 1, declared: float = 1 - MOVING
) -> tuple[Seen, Seen, Seen]:
    """Return levels, changes with the declared share, and changes with none, of periods so far apart."""
    rng, devices = np.random.default_rng(zlib.crc32(scenario.name.encode())), scenario.cohort()
    levels, with_share, without = Seen(), Seen(), Seen()
    while min(levels.intervals, with_share.intervals) < least:
        series, truths = scenario.panel(rng, devices, declared)
        alone = PeriodSeries(series.periods)
        for place in cells or range(len(truths[0])):
            cell = series.cells[place]
            for point, truth in zip(series.values(cell), truths, strict=True):
                if point is not None:
                    levels.add(point.low, point.high, truth[place])
            for later in range(apart, PERIODS):
                moved = truths[later][place] - truths[later - apart][place]
                for seen, one in ((with_share, series), (without, alone)):
                    change = one.change(cell, later - apart, later)
                    if change is not None:
                        seen.add(change.low, change.high, moved)
    return levels, with_share, without


def drifting(k: int) -> tuple[Floats, Floats]:
    """Return shares that fall like 1/rank, and movers who prefer the second value."""
    start = 1 / np.arange(1, k + 1)
    wanted = np.where(np.arange(k) == 1, 3.0, 1.0)
    moves = np.tile(wanted, (k, 1)) * (1 - np.eye(k))
    return start / start.sum(), moves / moves.sum(axis=1, keepdims=True)


def swapping(k: int) -> tuple[Floats, Floats]:
    """Return shares that fall like 1/rank, and movers who all go to one of the first two values."""
    start, moves = drifting(k)[0], np.zeros((k, k))
    moves[0, 1] = moves[1, 0] = 1.0
    moves[2:, 0], moves[2:, 1] = 0.3, 0.7
    return start, moves


def rushing(k: int) -> tuple[Floats, Floats]:
    """Return shares of which the first is small, and movers who all go there, or leave it."""
    moves = np.zeros((k, k))
    moves[1:, 0], moves[0, 1:] = 1.0, 1 / (k - 1)
    return np.array([0.05, *[0.95 / (k - 1)] * (k - 1)]), moves


def still(k: int) -> tuple[Floats, Floats]:
    """Return equal shares that stay, although devices move."""
    return np.full(k, 1 / k), (1 - np.eye(k)) / (k - 1)


# Each scenario: which of its cells, how many periods apart, and why changes may be covered more often than promised.
_Row = tuple[Scenario, tuple[int, ...], int, str]


def scenarios() -> Iterator[_Row]:
    """Yield what is measured."""
    weekly = f"{PERIODS} periods, {100 * MOVING:g}% move in each"
    common = Scenario(f"krr, 4 cells, epsilon 1, 2,000 devices, {weekly}", setting(4, 1), *drifting(4))
    yield common, (), 1, ""
    yield replace(common, name=f"{common.name}; 3 periods apart"), (), 3, _LONG
    yield replace(common, name=f"{common.name}; 11 periods apart"), (), 11, _LONG
    two = Scenario(f"krr, 2 cells, epsilon 1, 2,000 devices, {weekly}", setting(2, 1), *drifting(2))
    yield two, (), 1, ""
    grows = replace(common, name=f"{common.name}, and 5% join", joining=100)
    yield grows, (), 1, ""
    half = setting(4, 1, client="sampling = 0.5")
    sampled = Scenario(f"krr, 4 cells, epsilon 1, half of 4,000 devices sampled, {weekly}", half, *drifting(4))
    yield replace(sampled, devices=4_000, sampling=0.5), (), 1, ""
    swap = Scenario(
        f"krr, 20 cells, epsilon 3, 2,000 devices, {weekly}, between two cells", setting(20, 3), *swapping(20)
    )
    yield replace(swap, name=f"{swap.name}: those two"), (0, 1), 1, ""
    yield replace(swap, name=f"{swap.name}: others"), (2, 3, 4, 5), 1, _ELSEWHERE
    rush = Scenario(
        f"krr, 10 cells, epsilon 3, 2,000 devices, {weekly}, all to a small cell", setting(10, 3), *rushing(10)
    )
    yield rush, (0,), 1, ""
    for oracle, k, epsilon in (("krr", 4, 2), ("oue", 20, 2)):
        name = f"{oracle}, {k} cells, epsilon {epsilon}, 2,000 devices, {weekly}"
        yield Scenario(name, setting(k, epsilon, oracle), *drifting(k)), (), 1, _ELSEWHERE
    numbers = np.arange(0, 101, 10)
    mean = asked("number", "highest = 100", 1, 'oracle = "onebit"\nstep = 25')
    name = f"averages: onebit, 0..100 in steps of 25, epsilon 1, 2,000 devices, {weekly}"
    yield Scenario(name, mean, *drifting(len(numbers)), numbers=numbers), (), 1, _ELSEWHERE
    ranges = asked("number", "highest = 9", 1, 'oracle = "dbitflip"\nbuckets = 5\nbits = 2')
    name = f"histograms: dbitflip, 5 buckets, 2 bits, epsilon 1, 4,000 devices, {weekly}"
    yield Scenario(name, ranges, *drifting(5), devices=4_000), (), 1, _ELSEWHERE
    pages = 'domain = [["news", "https://a.example"], ["news", "https://b.example"], ["maps", "https://c.example"]]'
    records = asked("searches", pages, 2, 'oracle = "two-stage"')
    name = f"searches: two-stage, 6 cells, epsilon 2, 2,000 devices, {weekly}"
    yield Scenario(name, records, *drifting(6)), (), 1, _ELSEWHERE


def measure(quick: bool) -> Iterator[Cell]:
    """Yield levels and changes of every scenario, and what is said of values that did not change."""
    # Estimates of the same devices err alike, so more of them are looked at.
    least = LEAST_INTERVALS // 10 if quick else 4 * LEAST_INTERVALS
    for scenario, cells, apart, note in scenarios():
        levels, declared, alone = observed(scenario, least if apart == 1 else min(least, LEAST_INTERVALS), cells, apart)
        if apart == 1:
            yield Cell("estimates over time", scenario.name, levels.intervals, levels.covered)
        for shown, seen, why in (
            (f"changes over time, {1 - MOVING:g} declared", declared, note),
            ("changes over time, nothing declared", alone, _INDEPENDENT),
        ):
            yield Cell(shown, scenario.name, seen.intervals, seen.covered, note=why)
    same = Scenario("krr, 4 cells, epsilon 1, 2,000 devices, 5% move, shares stay", setting(4, 1), *still(4))
    _, declared, alone = observed(same, least)
    for words, seen, why in ((f"{1 - MOVING:g} declared", declared, ""), ("nothing declared", alone, _INDEPENDENT)):
        shown = f"unchanged values called noise, {words}"
        yield Cell(shown, same.name, seen.intervals, seen.intervals - seen.called, note=why)
