"""The collector's clock, and whether it can be trusted: time alone closes epochs and destroys keys.

After a jump of the wall clock, or a long stop, which looks the same, nothing moves by time until the operator confirms
it; what only the clock could refuse is deferred, never rejected for good
(docs/decisions/0022-the-operator-confirms-the-time.md).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import insert_new
from hushquery.collect.store.schema import CLOCK
from hushquery.collect.store.store import Store
from hushquery.errors import NotReady
from hushquery.task import Task

_LEAST_TOLERANCE = 30.0  # a process may have to wait for its turn between two looks: less than this is no jump
_DAY = 86400.0  # small steps add up over this time, so that they are seen as the large one they make

_FIX = "Check the date on every server. When it is right: hushquery collect clock --confirm"

_log = logging.getLogger("hushquery.collect")


@dataclass(frozen=True)
class ClockState:
    """What the store knows of the time."""

    newest: int | None  # the newest time at which a server trusted its clock
    confirmed: int  # how often the operator has confirmed the time
    stopped: Mapping[str, str] | None  # why no epoch moves by time (what, why, fix); None while they do


def read_clock(connection: sa.Connection, *, lock: bool = False) -> ClockState:
    """Read what the store knows of the time, optionally locking it until the transaction ends."""
    query = sa.select(CLOCK.c.newest, CLOCK.c.confirmed, CLOCK.c.stopped)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        return ClockState(None, 0, None)
    return ClockState(row.newest, row.confirmed, None if row.stopped is None else json.loads(row.stopped))


def confirm(store: Store, now: float) -> ClockState:
    """Record that this is the time, so that epochs move by it again; return what the store knew before."""
    with store.write() as connection:
        state = _locked(connection)
        values = {"newest": int(now), "confirmed": state.confirmed + 1, "stopped": None}
        connection.execute(sa.update(CLOCK).values(**values))
    return state


def _locked(connection: sa.Connection) -> ClockState:
    connection.execute(insert_new(connection, CLOCK).values(id=1, confirmed=0))
    return read_clock(connection, lock=True)


def tolerance(tasks: Iterable[Task]) -> float:
    """Return how far clocks may differ: the smallest clock_skew of the tasks, and at least half a minute."""
    return max(_LEAST_TOLERANCE, min((float(task.collect.clock_skew) for task in tasks), default=0.0))


class Watch:
    """The clock of one process, called for the time in seconds since 1970; its clocks may differ by ``skew``."""

    def __init__(
        self,
        store: Store,
        skew: float,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._skew = skew
        self._wall = wall
        self._steady = steady
        self._lock = threading.Lock()
        self._origin: tuple[float, float] | None = None  # both clocks when they were last trusted
        self._confirmed: int | None = None
        self._stopped: Mapping[str, str] | None = None

    def __call__(self) -> float:
        """Return the time; after a jump, the time that it would be without the jump."""
        now, steady, _ = self._times()
        return steady if abs(now - steady) > self._skew else now

    def _times(self) -> tuple[float, float, float]:
        """Return the wall clock's time, the origin advanced by the steady clock, and the steady clock's reading."""
        wall, steady = self._wall(), self._steady()
        if self._origin is None:
            return wall, wall, steady
        return wall, self._origin[0] + steady - self._origin[1], steady

    @property
    def pause(self) -> float:
        """How many seconds may pass between two comparisons."""
        return self._skew / 6

    @property
    def doubt(self) -> bool:
        """Whether the time is in doubt, as far as this process knows."""
        now, steady, _ = self._times()
        return self._stopped is not None or abs(now - steady) > self._skew

    def check(self) -> None:
        """Raise NotReady while the time is in doubt: nothing may be destroyed or forgotten then."""
        with self._store.read() as connection:
            state = read_clock(connection)
        jump = state.stopped or self._jump(state)
        if jump is not None:
            raise NotReady(jump["what"], why=jump["why"], fix=jump["fix"])

    def compare(self) -> Mapping[str, str] | None:
        """Compare the clocks and record the result in the store; return why no epoch may move by time, if so."""
        with self._lock:
            with self._store.write() as connection:
                state = _locked(connection)
                stopped = state.stopped
                if stopped is None:
                    stopped = self._jump(state)
                    if stopped is not None:
                        connection.execute(sa.update(CLOCK).values(stopped=json.dumps(stopped)))
                    elif state.newest is None or self._wall() - state.newest >= self.pause:
                        connection.execute(sa.update(CLOCK).values(newest=int(self._wall())))
            if stopped is None:
                wall, _, steady = self._times()
                if self._confirmed != state.confirmed or self._origin is None or steady - self._origin[1] > _DAY:
                    self._origin, self._confirmed = (wall, steady), state.confirmed
            elif self._stopped is None:
                _log.error("no epoch moves by time: %s (%s). %s", stopped["what"], stopped["why"], stopped["fix"])
            self._stopped = stopped
        return stopped

    def _jump(self, state: ClockState) -> dict[str, str] | None:
        now, steady, _ = self._times()
        newest = now if state.newest is None else float(state.newest)
        shown, what = f"it shows {format_time(now)}", ""
        if self._origin is not None and self._confirmed == state.confirmed:
            if abs(now - steady) > self._skew:
                way = "forward" if now > steady else "back"
                what = f"the clock of a server went {way} by {_length(abs(now - steady))}"
                why = f"{shown}; by the seconds since its last reading it would be {format_time(steady)}"
        elif now - newest > self._skew:
            what = f"no server has run for {_length(now - newest)}, or the clock was set forward"
            why = f"{shown}, and the newest time in the store is {format_time(newest)}"
        if not what and newest - now > self._skew:
            what = f"the clock of a server is {_length(newest - now)} behind the newest time in the store"
            why = f"{shown}, and {format_time(newest)} is in the store"
        return {"what": what, "why": why, "fix": _FIX} if what else None


def format_time(seconds: float) -> str:
    """Format a time for people, such as 2026-09-21 14:13:20 UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a clock can be set to any year
        return f"{seconds:.0f} seconds since 1970"


def _length(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))
