"""The collector's clock: whether it may be believed, because by time alone epochs close and keys are destroyed.

A process compares the wall clock with its steady clock, which nobody sets. At its start it compares the wall clock with
the newest time in the store, which every server writes down as it goes. A difference beyond the tolerance, forward or
back, is a jump: so is a long stop, which nobody can tell from a clock that was set forward. A jump is noted in the
store, and there it holds for all servers: no epoch moves by time, none begins and nothing is forgotten until the
operator has looked (``hushquery collect clock --confirm``). Afterwards what is due is done.

Meanwhile reports are taken as far as no clock is needed for that: a report tells its own time, which names its epoch,
and an epoch that is in the store and open takes it. What only the clock could decide is put off (503), never refused
for good: the device keeps it and sends it again. A process that saw a jump itself goes on with the time that its steady
clock tells, so that the seconds until the jump is noted do no harm either.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import insert_new
from hushquery.collect.store.schema import CLOCK
from hushquery.collect.store.store import Store
from hushquery.errors import NotReady
from hushquery.task import Task

__all__ = ["ClockState", "Watch", "confirm", "read_clock", "said", "tolerance"]

# Clocks are compared by a process that may have to wait for its turn: less than this is no jump.
_LEAST_TOLERANCE = 30.0
# Steps within the tolerance add up over this time, so that many small ones are seen as the large one they make.
_DAY = 86400.0

_FIX = "Check the date on every server. When it is right: hushquery collect clock --confirm"

_log = logging.getLogger("hushquery.collect")


@dataclass(frozen=True)
class ClockState:
    """What the store knows of the time.

    Args:
        newest: The newest time at which a server believed its clock; None before the first.
        confirmed: How often the operator has confirmed the time.
        stopped: Why no epoch moves by time: what, why, fix; None while they do.
    """

    newest: int | None
    confirmed: int
    stopped: Mapping[str, str] | None


def read_clock(connection: sa.Connection, *, lock: bool = False) -> ClockState:
    """Read what the store knows of the time; with a lock nobody changes it before the transaction ends."""
    query = sa.select(CLOCK.c.newest, CLOCK.c.confirmed, CLOCK.c.stopped)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        return ClockState(None, 0, None)
    return ClockState(row.newest, row.confirmed, None if row.stopped is None else json.loads(row.stopped))


def confirm(store: Store, now: float) -> ClockState:
    """Note that this is the time: epochs move by it again. Gives what the store knew before."""
    with store.write() as connection:
        state = _locked(connection)
        values = {"newest": int(now), "confirmed": state.confirmed + 1, "stopped": None}
        connection.execute(sa.update(CLOCK).values(**values))
    return state


def _locked(connection: sa.Connection) -> ClockState:
    connection.execute(insert_new(connection, CLOCK).values(id=1, confirmed=0))
    return read_clock(connection, lock=True)


def tolerance(tasks: Iterable[Task]) -> float:
    """Return how far clocks may be apart: the smallest clock_skew of the tasks, and half a minute at least."""
    return max(_LEAST_TOLERANCE, min((float(task.collect.clock_skew) for task in tasks), default=0.0))


class Watch:
    """The clock of one process. Called, it tells the time in seconds since 1970, as far as it may be believed.

    Args:
        store: The store.
        skew: How far clocks may be apart (:func:`tolerance`).
        wall: Tells the time in seconds since 1970.
        steady: Tells seconds that nobody sets.
    """

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
        # When both clocks were last believed together.
        self._origin: tuple[float, float] | None = None
        self._confirmed: int | None = None
        self._stopped: Mapping[str, str] | None = None

    def __call__(self) -> float:
        """Return the time; after a jump, the time that it would be without it."""
        now, steady, _ = self._times()
        return steady if abs(now - steady) > self._skew else now

    def _times(self) -> tuple[float, float, float]:
        """Return the time of the wall clock, the time that the steady clock makes of the origin, and its seconds."""
        wall, steady = self._wall(), self._steady()
        if self._origin is None:
            return wall, wall, steady
        return wall, self._origin[0] + steady - self._origin[1], steady

    @property
    def pause(self) -> float:
        """How many seconds may pass between two looks."""
        return self._skew / 6

    @property
    def doubt(self) -> bool:
        """Whether the time is in doubt, as far as this process knows."""
        now, steady, _ = self._times()
        return self._stopped is not None or abs(now - steady) > self._skew

    def check(self) -> None:
        """Refuse what is destroyed or forgotten by time while the time is in doubt.

        Raises:
            NotReady: It is.
        """
        with self._store.read() as connection:
            state = read_clock(connection)
        found = state.stopped or self._jump(state)
        if found is not None:
            raise NotReady(found["what"], why=found["why"], fix=found["fix"])

    def look(self) -> Mapping[str, str] | None:
        """Compare the clocks, and note in the store what came of it; gives why no epoch may move by time, if so."""
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
        """Describe the jump that the clock made; None if it made none."""
        now, steady, _ = self._times()
        newest = now if state.newest is None else float(state.newest)
        if self._origin is not None and self._confirmed == state.confirmed:
            if abs(now - steady) > self._skew:
                way = "forward" if now > steady else "back"
                return {
                    "what": f"the clock of a server went {way} by {_spelled(abs(now - steady))}",
                    "why": f"it says {said(now)}, and {said(steady)} is what it said before and the seconds since",
                    "fix": _FIX,
                }
        elif now - newest > self._skew:
            return {
                "what": f"no server has run for {_spelled(now - newest)}, or the clock was set forward",
                "why": f"it is {said(now)}, and the newest time in the store is {said(newest)}",
                "fix": _FIX,
            }
        if newest - now > self._skew:
            return {
                "what": f"the clock of a server is {_spelled(newest - now)} behind the newest time in the store",
                "why": f"it says {said(now)}, and {said(newest)} is in the store",
                "fix": _FIX,
            }
        return None


def said(seconds: float) -> str:
    """Write a time.

    >>> said(1_790_000_000)
    '2026-09-21 14:13:20 UTC'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a clock can be set to any year
        return f"{seconds:.0f} seconds since 1970"


def _spelled(seconds: float) -> str:
    """Write a length of time in two units at most.

    >>> _spelled(200 * 86400 + 7), _spelled(3700), _spelled(61)
    ('200 days', '1 hour 1 minute', '1 minute 1 second')
    """
    left, parts = int(seconds), []
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, length)
        parts.append(f"{count} {unit}{'' if count == 1 else 's'}" if count else "")
    first = next((at for at, part in enumerate(parts) if part), 3)
    return " ".join(part for part in parts[first : first + 2] if part) or "0 seconds"
