"""Read uploads (reports and opt-in records), and check which reports may be written.

One report is in its compact form (application/octet-stream) or in JSON. Many are ``{"reports": [...]}``, or compact
forms, each after its length as 4 bytes (unsigned, big-endian): a frame that can't be read spoils the request, a report
only itself. Records are ``{"records": [[query, URL], ...]}``. The cost of an answer is bounded by the body's length.

A report's own time names its epoch. A time older than the ids that are still known is refused: the report could have
been counted and forgotten.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import OPTIN_OPEN, Epoch, epoch_row, epoch_statuses, register
from hushquery.collect.http.problems import BINARY, JSON, Refusal, problem_of, refuse
from hushquery.collect.store.reports import Arrival
from hushquery.collect.store.schema import EPOCH, RELEASE
from hushquery.collect.store.store import Store
from hushquery.errors import HushqueryError
from hushquery.local.report import HEADER_BYTES, Report, ReportError, ReportOfAnotherTask
from hushquery.task import Task
from hushquery.task.domain import LONGEST

MOST_REPORTS = 1000  #: The most reports in one request.

_LENGTH = struct.Struct(">I")
# No report takes fewer bytes than this; a few broken ones may be among them.
_LEAST = {
    BINARY: _LENGTH.size + HEADER_BYTES,
    JSON: len(json.dumps(Report(bytes(16), bytes(32), bytes(32), 0, b"").to_json(), separators=(",", ":"))),
}
_SPARE = 16
_ID_CHARACTERS = 22
_FRESH_SECONDS = 1.0  # how long the cached state of epochs is fresh


def read_id(text: str) -> bytes:
    """Decode an id in a path: 16 bytes as base64url without padding, 22 characters."""
    if len(text) == _ID_CHARACTERS and text.isascii():
        try:
            data = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if write_id(data) == text:  # only the canonical form
            return data
    raise refuse("malformed", "an id is 16 bytes as base64url without padding")


def write_id(data: bytes) -> str:
    """Encode an id for a path."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def read_report(media_type: str, body: bytes) -> Report:
    """Read a body with one report."""
    if media_type == BINARY:
        return Report.from_bytes(body)
    if media_type == JSON:
        return Report.from_json(body)
    raise refuse("media-type")


def pack_batch(reports: list[bytes]) -> bytes:
    """Encode many reports in their compact form, each after its length."""
    return b"".join(_LENGTH.pack(len(data)) + data for data in reports)


def read_batch(media_type: str, body: bytes) -> list[Report | HushqueryError]:
    """Read a body with many reports: each one, or its error, in their order."""
    if media_type not in _LEAST:
        raise refuse("media-type")
    items: Iterable[Any] = _frames(body) if media_type == BINARY else _list_of(body, "reports")
    read: Any = Report.from_bytes if media_type == BINARY else _from_json
    most = min(MOST_REPORTS, _SPARE + len(body) // _LEAST[media_type])
    reports: list[Report | HushqueryError] = []
    for item in items:
        if len(reports) == MOST_REPORTS:
            raise refuse("too-large", f"a request has at most {MOST_REPORTS:,} reports")
        if len(reports) == most:
            raise refuse("malformed", "it has more items than reports fit into its bytes")
        try:
            reports.append(read(item))
        except ReportError as error:
            reports.append(error)
    return reports


def read_records(media_type: str, body: bytes, task: Task) -> list[list[str]]:
    """Read the records of one user, leaving out what no list could hold; without any left, the user still counts.

    Staying away would reveal that a user has no records.
    """
    if media_type != JSON:
        raise refuse("media-type")
    most = 1 if task.optin is None else task.optin.records_per_user
    records = _list_of(body, "records")
    if len(records) > most:
        raise refuse("malformed", f"a user of this task gives at most {most} records")
    for record in records:
        if not (isinstance(record, list) and len(record) == 2 and all(isinstance(part, str) for part in record)):
            raise refuse("malformed", "a record is a [query, URL] pair of texts")
    return [record for record in records if record[0].strip() and all(map(_can_be_listed, record))]


def _from_json(item: Any) -> Report:
    return Report.from_json(item if isinstance(item, Mapping) else b"")


def _frames(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        if at + _LENGTH.size > len(body):
            raise refuse("malformed", "the body ends inside a length")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + length > len(body):
            raise refuse("malformed", "the body ends inside a report")
        yield body[at : at + length]
        at += length


def _list_of(body: bytes, key: str) -> list[Any]:
    try:
        # An object with a repeated key becomes an empty one, which nothing here accepts.
        data = json.loads(body.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise refuse("malformed", "the body is not JSON in UTF-8") from None
    items = data.get(key) if isinstance(data, dict) and len(data) == 1 else None
    if not isinstance(items, list):
        raise refuse("malformed", f"the body is not an object with a list of {key} and nothing else")
    return items


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else {}


def _can_be_listed(text: str) -> bool:
    if len(text) > LONGEST or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class TaskCache:
    """The tasks of a process, and the state of their epochs a moment ago; the store decides again when writing."""

    def __init__(
        self,
        store: Store,
        tasks: Iterable[Task],
        clock: Callable[[], float] = time.time,
        doubt: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self.now = clock
        self.doubt = doubt
        self.tasks = {register(store, task, clock()): task for task in tasks}
        self.rows = {task.id: task_row for task_row, task in self.tasks.items()}
        self._epochs: dict[tuple[int, int], Epoch] = {}
        self._forgotten: set[tuple[int, int]] = set()
        self._releases: list[tuple[int, int, str]] = []
        self._lists: dict[tuple[int, int], str] = {}
        self._lock = threading.Lock()
        self._refreshed = float("-inf")

    def refresh(self) -> None:
        """Read the state of all epochs, and of each the results that are new since the last time."""
        epochs: dict[tuple[int, int], Epoch] = {}
        forgotten = set()
        mine = list(self.tasks)
        with self._store.read() as connection:
            for now in epoch_statuses(connection, self.tasks):
                key = (now.task_row, now.number)
                known = self._epochs.get(key)
                if now.forgotten:
                    forgotten.add(key)
                elif known is not None and _place(known) == _place(now):
                    epochs[key] = known  # the same object as before: it holds a calibrated mechanism
                elif (whole := epoch_row(connection, now.task, *key)) is not None:
                    epochs[key] = whole
            headed = sa.select(EPOCH.c.task, EPOCH.c.number).where(EPOCH.c.head.is_not(None), EPOCH.c.task.in_(mine))
            for task_row, number in connection.execute(headed):
                key = (task_row, number)
                if key not in self._lists:  # a published list never changes
                    epoch = epochs.get(key) or epoch_row(connection, self.tasks[task_row], *key)
                    if epoch is not None and epoch.configuration is not None:
                        self._lists[key] = epoch.configuration.digest.hex()
            columns = (RELEASE.c.task, RELEASE.c.epoch, RELEASE.c.id)
            released = connection.execute(
                sa.select(*columns).where(RELEASE.c.task.in_(mine)).order_by(RELEASE.c.epoch)
            ).all()
        with self._lock:
            self._epochs, self._forgotten, self._refreshed = epochs, forgotten, time.monotonic()
            self._releases = [(task_row, epoch, release) for task_row, epoch, release in released]

    @property
    def stale(self) -> bool:
        """Whether it is time to refresh."""
        return time.monotonic() - self._refreshed > _FRESH_SECONDS

    def epoch(self, task_row: int, number: int) -> Epoch | None:
        """Return an epoch as it was a moment ago."""
        return self._epochs.get((task_row, number))

    def epochs(self) -> list[Epoch]:
        """Return all epochs."""
        return [self._epochs[key] for key in sorted(self._epochs)]

    def current(self, task_row: int) -> Epoch | None:
        """Return the epoch of the current period, or the latest there is."""
        now = math.inf if self.doubt() else self.tasks[task_row].period_at(self.now())
        numbers = [number for row, number in self._epochs if row == task_row and number <= now]
        return self._epochs[task_row, max(numbers)] if numbers else None

    def forgot(self, task_row: int, number: int) -> bool:
        """Return whether not even the ids of an epoch are kept any more."""
        return (task_row, number) in self._forgotten

    def releases(self, task_row: int) -> list[tuple[int, str]]:
        """Return all epochs of a task that were ever released, with the ids of their releases."""
        return [(epoch, release) for row, epoch, release in self._releases if row == task_row]

    def lists(self, task_row: int) -> list[tuple[int, str]]:
        """Return the log of head lists: each epoch that published one, with its configuration hash, in order."""
        return sorted((number, digest) for (row, number), digest in self._lists.items() if row == task_row)


def _place(epoch: Epoch) -> tuple[str, str | None, int]:
    """Return where an epoch stands; the results of its moves change only together with this."""
    return epoch.phase, epoch.moving, epoch.since


def check(cache: TaskCache, task_row: int, report: Report) -> Arrival:
    """Check a report that was sent to a task: its form, its time, and whether its epoch takes reports."""
    task = cache.tasks[task_row]
    if report.task != task.digest:
        raise ReportOfAnotherTask(
            "the report was made for another task", fix="Send reports to the address of their task"
        )
    number = task.period_at(report.time)
    epoch = cache.epoch(task_row, number)
    refusal = _refusal_by_time(cache, task_row, report.time, epoch)
    if refusal is not None and cache.doubt():
        # A client drops what is rejected for good, so this is deferred; an open epoch takes its own reports.
        refusal = None if epoch is not None and epoch.takes_reports else refuse("clock-stopped")
    if refusal is not None:
        raise refusal
    if epoch is None:
        raise refuse("too-early")
    if epoch.configuration is None:
        raise refuse("too-early" if epoch.phase == OPTIN_OPEN else "phase-over")
    report.open(epoch.configuration)
    return Arrival(task_row, number, report.id, report.to_bytes())


def _refusal_by_time(cache: TaskCache, task_row: int, sent: int, epoch: Epoch | None) -> Refusal | None:
    task, now = cache.tasks[task_row], cache.now()
    if sent > now + task.collect.clock_skew:
        return refuse("clock", "its time is in the future")
    if sent < now - task.collect.retention:
        return refuse("too-old")
    number = task.period_at(sent)
    if epoch is None and (number < task.period_at(now) or cache.forgot(task_row, number)):
        return refuse("phase-over")
    return None


def check_one(cache: TaskCache, task_row: int, media_type: str, body: bytes, report_id: bytes) -> Arrival:
    """Read and check a body with one report, which was sent under an id."""
    report = read_report(media_type, body)
    if report.id != report_id:
        raise refuse("malformed", "the id in the address is not that of the report")
    return check(cache, task_row, report)


def check_batch(
    cache: TaskCache, task_row: int, media_type: str, body: bytes
) -> list[tuple[bytes | None, Arrival | str]]:
    """Read and check many reports: return the id of each, if it can be read, with its arrival or its problem's name."""
    checked: list[tuple[bytes | None, Arrival | str]] = []
    for report in read_batch(media_type, body):
        if isinstance(report, HushqueryError):
            checked.append((None, problem_of(report).name))
            continue
        try:
            checked.append((report.id, check(cache, task_row, report)))
        except HushqueryError as error:
            checked.append((report.id, problem_of(error).name))
    return checked
