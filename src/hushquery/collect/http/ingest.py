"""Which reports are taken: checked one by one against their task, its clock rules and its epoch, before anything is
written.

A report's own time says which epoch it belongs to. Times are coarse (a multiple of the task's precision), never in
the future by more than the task's clock skew, and never older than the ids that the collector still knows: a report
that could have been counted and forgotten is refused, not counted again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import OPTIN_OPEN, Epoch, epoch_row, register, standing
from hushquery.collect.http.problems import Refusal, problem_of, refuse
from hushquery.collect.http.wire import read_batch, read_report
from hushquery.collect.store.schema import EPOCH, RELEASE
from hushquery.collect.store.store import Store
from hushquery.collect.store.writer import Arrival
from hushquery.errors import HushqueryError
from hushquery.local.report import Report, ReportOfAnotherTask
from hushquery.task import Task

__all__ = ["Board", "check", "check_batch", "check_one"]

# An epoch that is not known is looked for at most this often.
_LOOK_SECONDS = 1.0


class Board:
    """What a server process knows of its tasks: which they are, and where their epochs stood a moment ago.

    The store has the last word on phases, in the transaction that writes; this is what requests are checked with
    before that, without asking the store each time.

    Args:
        store: The store.
        tasks: The tasks that are served.
        clock: Gives the time in seconds since 1970.
        doubt: Says whether that is in doubt.
    """

    def __init__(
        self,
        store: Store,
        tasks: Iterable[Task],
        clock: Callable[[], float] = time.time,
        doubt: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self.doubt = doubt
        self.numbers = {register(store, task, clock()): task for task in tasks}
        self.ids = {task.id: number for number, task in self.numbers.items()}
        self._epochs: dict[tuple[int, int], Epoch] = {}
        self._forgotten: set[tuple[int, int]] = set()
        self._releases: list[tuple[int, int, str]] = []
        self._lists: dict[tuple[int, int], str] = {}
        self._lock = threading.Lock()
        self._looked = float("-inf")

    def refresh(self) -> None:
        """Read where all epochs stand; of what each move gave, only what is new since the last look."""
        found: dict[tuple[int, int], Epoch] = {}
        forgotten = set()
        with self._store.read() as connection:
            for now in standing(connection, self.numbers):
                key = (now.task_number, now.number)
                known = self._epochs.get(key)
                if now.forgotten:
                    forgotten.add(key)
                elif known is not None and _place(known) == _place(now):
                    found[key] = known  # the same object as before: it holds a calibrated mechanism
                elif (whole := epoch_row(connection, now.task, *key, lock=False)) is not None:
                    found[key] = whole
            headed = sa.select(EPOCH.c.task, EPOCH.c.number).where(EPOCH.c.head.is_not(None))
            for task, number in connection.execute(headed.where(EPOCH.c.task.in_(list(self.numbers)))):
                # A list is never changed once it is published, so each is looked at once.
                if (task, number) not in self._lists:
                    key = (task, number)
                    epoch = found.get(key) or epoch_row(connection, self.numbers[task], *key, lock=False)
                    if epoch is not None and epoch.configuration is not None:
                        self._lists[key] = epoch.configuration.digest.hex()
            released = connection.execute(
                sa.select(RELEASE.c.task, RELEASE.c.epoch, RELEASE.c.id)
                .where(RELEASE.c.task.in_(list(self.numbers)))
                .order_by(RELEASE.c.epoch)
            ).all()
        with self._lock:
            self._epochs, self._forgotten, self._looked = found, forgotten, time.monotonic()
            self._releases = [(task, epoch, release) for task, epoch, release in released]

    def epoch(self, task_number: int, number: int) -> Epoch | None:
        """Give an epoch as it stood a moment ago."""
        return self._epochs.get((task_number, number))

    def forgot(self, task_number: int, number: int) -> bool:
        """Say whether an epoch is over so long that not even its ids are kept."""
        return (task_number, number) in self._forgotten

    @property
    def stale(self) -> bool:
        """Whether it may be worth while to look again."""
        return time.monotonic() - self._looked > _LOOK_SECONDS

    def present(self, task_number: int) -> Epoch | None:
        """Give the epoch of the present period, or the latest there is."""
        now = math.inf if self.doubt() else self.numbers[task_number].period_at(self._clock())
        numbers = [number for task, number in self._epochs if task == task_number and number <= now]
        return self._epochs[task_number, max(numbers)] if numbers else None

    def epochs(self) -> list[Epoch]:
        """Give all epochs."""
        return [self._epochs[key] for key in sorted(self._epochs)]

    def releases(self, task_number: int) -> list[tuple[int, str]]:
        """Give the epochs of a task that were released, however long ago, with the ids of the releases."""
        return [(epoch, release) for task, epoch, release in self._releases if task == task_number]

    def lists(self, task_number: int) -> list[tuple[int, str]]:
        """Return the log of head lists: each epoch that published one, with its configuration hash, in their order."""
        return sorted((number, digest) for (task, number), digest in self._lists.items() if task == task_number)

    def now(self) -> float:
        """Give the time."""
        return self._clock()


def _place(epoch: Epoch) -> tuple[str, str | None, int]:
    """Say where an epoch stands. What its moves gave changes only together with this."""
    return epoch.phase, epoch.moving, epoch.since


def check(board: Board, task_number: int, report: Report) -> Arrival:
    """Check a report that was sent to a task.

    Raises:
        ReportError: It does not fit the task, its configuration or its domain.
        Refusal: It is too old, from the future, or its epoch does not take reports.
    """
    task, now = board.numbers[task_number], board.now()
    if report.task != task.digest:
        raise ReportOfAnotherTask(
            "the report was made for another task", fix="Send reports to the address of their task"
        )
    number = task.period_at(report.time)
    epoch = board.epoch(task_number, number)
    problem = _by_time(board, task_number, report.time, now, epoch)
    if problem is not None and board.doubt():
        # Whoever is refused for good drops it, so it is put off; an epoch that is open takes what is its own.
        problem = None if epoch is not None and epoch.takes_reports else refuse("clock-stopped")
    if problem is not None:
        raise problem
    if epoch is None:
        raise refuse("too-early")
    if epoch.configuration is None:
        raise refuse("too-early" if epoch.phase == OPTIN_OPEN else "phase-over")
    report.open(epoch.configuration)
    return Arrival(task=task_number, epoch=number, id=report.id, data=report.to_bytes())


def check_one(board: Board, task_number: int, media_type: str, body: bytes, report_id: bytes) -> Arrival:
    """Read and check a body with one report, which was sent under an id.

    Raises:
        HushqueryError: What is wrong with it.
    """
    report = read_report(media_type, body)
    if report.id != report_id:
        raise refuse("malformed", "the id in the address is not that of the report")
    return check(board, task_number, report)


def check_batch(
    board: Board, task_number: int, media_type: str, body: bytes
) -> list[tuple[bytes | None, Arrival | str]]:
    """Read and check many reports: the id of each that can be read, with what may be written or the name of a problem.

    Raises:
        Refusal: The body can't be read, or has more items than it may have.
    """
    found: list[tuple[bytes | None, Arrival | str]] = []
    for report in read_batch(media_type, body):
        if isinstance(report, HushqueryError):
            found.append((None, problem_of(report).name))
            continue
        try:
            found.append((report.id, check(board, task_number, report)))
        except HushqueryError as error:
            found.append((report.id, problem_of(error).name))
    return found


def _by_time(board: Board, task_number: int, sent: int, now: float, epoch: Epoch | None) -> Refusal | None:
    """Say why a report is refused for good, where it is the clock that says so."""
    task = board.numbers[task_number]
    if sent > now + task.collect.clock_skew:
        return refuse("clock", "its time is in the future")
    if sent < now - task.collect.retention:
        return refuse("too-old")
    number = task.period_at(sent)
    if epoch is None and (number < task.period_at(now) or board.forgot(task_number, number)):
        return refuse("phase-over")
    return None
