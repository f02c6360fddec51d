"""The phases of an epoch: one move after another, each done once whatever crashes or races.

::

    optin_open --publish_head--> head_published --open_reports--> reports_open --close--> closed --release--> released

A task without a head list to come (it has a domain of its own) begins at ``reports_open``. An opt-in phase that nobody
finished by the end of its period (of the retention, where a task has no periods) is over too: the epoch becomes
``expired``, and its records and their key are destroyed, whatever kept the move from being made. So it does when the
noise left a head list that nobody can use: that is drawn once, like any other.

A move has three parts. (1) One transaction notes that the move began, if the epoch still is in the phase it leaves:
from then on nothing more is taken. (2) The work is done, outside any transaction. (3) One transaction enters the
phase that follows, with what the work gave, if the epoch still is where (1) left it. A lock that dies with its
process lets one server at a time do this. A crash after (1) is resumed by whoever comes next, under the same key
(:attr:`~hushquery.collect.epochs.epochs.Epoch.key`): the work pays for it once, and what a crashed attempt computed was
seen by nobody, because only (3) publishes; and it is computed with the same noise, so that it comes out the same. A
move that is refused (the budget does not suffice) stays begun, its reason is noted with the epoch, and time tries it
again now and then; the epochs after it go their own way. A move that nothing can come of, whatever is tried (there are
no records, no estimates), is refused before (1).
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import sqlalchemy as sa

from hushquery.collect.epochs.clock import Watch
from hushquery.collect.epochs.epochs import (
    CLOSED,
    EXPIRED,
    HEAD_PUBLISHED,
    MOVES,
    OPTIN_OPEN,
    PHASES,
    REPORTS_OPEN,
    Epoch,
    count_reports,
    epoch_row,
    insert_new,
    lock_name,
    standing,
)
from hushquery.collect.store.erasing import drop_reports, forget_ids, keep_ids, make_reports, mix
from hushquery.collect.store.schema import EPOCH, RECORD, RELEASE, reports_table
from hushquery.collect.store.store import Store, StoreFull
from hushquery.collect.store.vault import Vault
from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.local.configuration import Configuration
from hushquery.task import Task

__all__ = ["EpochWork", "HeadList", "Phases"]

# A move that was refused is tried again by time after so many seconds.
_AGAIN_SECONDS = 60

_log = logging.getLogger("hushquery.collect")


@dataclass(frozen=True)
class HeadList:
    """What the opt-in records became.

    Args:
        head: The head list: [query, URL] pairs.
        optin: The opt-in estimates, as public plain data.
    """

    head: Sequence[Sequence[str]]
    optin: Mapping[str, Any]


class EpochWork(Protocol):
    """What is computed when an epoch moves. Each may be called again after a crash, and is paid for once.

    ``epoch.key`` names the move. Whatever spends budget records it in the ledger under this key together with the name
    of its noise, which belongs to what is read (:meth:`~hushquery.collect.store.vault.Vault.noise_key`), and spends
    nothing if that is there already.
    """

    def publish_head(self, epoch: Epoch) -> HeadList:
        """Make the head list and the opt-in estimates of the opt-in records."""

    def close(self, epoch: Epoch) -> Mapping[str, Any]:
        """Count the reports, as plain data from which everything later is computed."""

    def release(self, epoch: Epoch) -> bytes:
        """Make the release of the counts, as the JSON document that is served."""


class Phases:
    """Moves the epochs of a store.

    Args:
        store: The store.
        work: What is computed at each move.
        vault: The opt-in records, which are destroyed once the head list is published.
        clock: Gives the time in seconds since 1970.
        watch: Knows whether that may be believed; None where it may.
        optin_share: By time, the opt-in phase ends after this share of the period.
    """

    def __init__(
        self,
        store: Store,
        work: EpochWork,
        vault: Vault,
        *,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
        optin_share: float = 0.25,
    ) -> None:
        self._store = store
        self._work = work
        self._vault = vault
        self._clock = clock
        self._watch = watch
        self._optin_share = optin_share
        self._logged: set[tuple[str, int, str]] = set()

    # ---- by hand -------------------------------------------------------------------------------------------

    def ensure(self, task: Task, task_number: int) -> None:
        """Make the epoch of the present period, if there is none yet."""
        now = self._clock()
        begins = REPORTS_OPEN if task.head is None else OPTIN_OPEN
        with self._store.write() as connection:
            made = connection.execute(
                insert_new(connection, EPOCH)
                .values(
                    task=task_number,
                    number=task.period_at(now),
                    phase=begins,
                    since=int(now),
                    scrubbed=False,
                    forgotten=False,
                )
                .returning(EPOCH.c.number)
            ).all()
            if made and begins == REPORTS_OPEN:
                make_reports(connection, task_number, made[0].number)

    def advance(self, task: Task, task_number: int, number: int, to: str | None = None) -> Epoch:
        """Move an epoch to its next phase, or resume the move that a crash interrupted.

        Args:
            task: The task.
            task_number: Its number in the store.
            number: Which epoch.
            to: The phase to reach; an epoch that is there already is left alone, so that two who ask do it once.

        Raises:
            UsageError: That phase does not follow.
            NotReady: Another server is at it, or there are too few reports to release.
        """
        try:
            return self._advance(task, task_number, number, to)
        except StoreFull:
            if not self._store.make_room():  # what is to come frees more than it needs
                raise
            return self._advance(task, task_number, number, to)

    def _advance(self, task: Task, task_number: int, number: int, to: str | None) -> Epoch:
        with self._store.alone(lock_name(task, number)):
            epoch = self._read(task, task_number, number)
            if to is not None and epoch.phase == to:
                return self._tidied(epoch)  # who asks again may do so because what was left could not be destroyed
            if self._has_lapsed(epoch):
                if self._watch is not None:
                    self._watch.check()
                epoch = self._expire(epoch)
            _check_move(epoch, to)
            self._check_ready(epoch)
            # First what a crash after the last move left behind: no phase is left before its secrets are gone.
            epoch = self._begin(self._tidied(epoch))
            try:
                columns = self._compute(epoch)
            except Exception as error:
                self._note(epoch, _told(error))
                raise
            return self._tidied(self._finish(epoch, columns))

    def _note(self, epoch: Epoch, error: HushqueryError) -> None:
        """Keep the reason of a move that was refused; errors never show a value, so this doesn't either."""
        with self._store.write(frees=True) as connection:
            self._swap(connection, epoch, {"trouble": self._reason(error)})

    def _reason(self, error: HushqueryError) -> str:
        return _text({"what": error.what, "why": error.why, "fix": error.fix, "at": int(self._clock())})

    def _check_ready(self, epoch: Epoch) -> None:
        """Refuse a move that nothing can come of before it begins; one that had begun is taken back."""
        lacks = self._lacks_records(epoch) if epoch.phase == OPTIN_OPEN else _lacks_estimates(epoch)
        if lacks is None:
            return
        if epoch.moving is not None:  # such as after a restore, or when all that was given was taken back
            with self._store.write(frees=True) as connection:
                self._swap(connection, epoch, {"moving": None, "trouble": None})
        raise lacks

    def _lacks_records(self, epoch: Epoch) -> NotReady | None:
        """Keep the opt-in phase open until somebody has given records: of none, no head list can be made."""
        mine = (RECORD.c.task == epoch.task_number, RECORD.c.epoch == epoch.number)
        with self._store.read() as connection:
            if connection.execute(sa.select(RECORD.c.id).where(*mine).limit(1)).first() is not None:
                return None
        return NotReady("nobody has given records in this epoch yet", fix="Wait for some")

    def _compute(self, epoch: Epoch) -> dict[str, Any]:
        """Do the work of a move, and give the columns that it fills."""
        if epoch.moving == "publish_head":
            made = self._work.publish_head(epoch)
            try:
                Configuration.of(epoch.task, made.head)
            except HushqueryError as error:
                # The noise made a list that clients can't use, such as an empty one. That is the outcome, paid for and
                # seen: a second draw under the same payment would tell more than was paid for.
                return {"optin": _text(dict(made.optin)), "phase": EXPIRED, "trouble": self._reason(error)}
            head = [list(one) for one in made.head]
            return {"head": _text(head), "optin": _text(dict(made.optin))}
        if epoch.moving == "close":
            counts = _text(dict(self._work.close(epoch)))
            with self._store.read(reports_table(epoch.task_number, epoch.number)) as connection:
                reports, checksum = count_reports(connection, epoch)
            return {"counts": counts, "reports": reports, "checksum": checksum}
        if epoch.moving == "release":
            document = self._work.release(epoch)
            return {"release": hashlib.sha256(document).hexdigest(), "document": document}
        return {}

    def _begin(self, epoch: Epoch) -> Epoch:
        """Note durably that the move has begun; a move that began before is taken up again."""
        move, _ = MOVES[epoch.phase]
        if epoch.moving is not None:
            return epoch
        with self._store.write(frees=True) as connection:
            self._swap(connection, epoch, {"moving": move})
        return replace(epoch, moving=move)

    def _finish(self, epoch: Epoch, columns: dict[str, Any]) -> Epoch:
        """Enter the next phase with what the work gave."""
        _, following = MOVES[epoch.phase]
        document = columns.pop("document", None)
        with self._store.write(frees=True) as connection:
            entered = {"phase": following, "moving": None, "trouble": None, "since": int(self._clock())}
            self._swap(connection, epoch, {**entered, **columns})
            if following == REPORTS_OPEN:
                make_reports(connection, epoch.task_number, epoch.number)
            if document is not None:
                connection.execute(
                    sa.insert(RELEASE).values(
                        id=columns["release"], task=epoch.task_number, epoch=epoch.number, document=document
                    )
                )
        return self._read(epoch.task, epoch.task_number, epoch.number)

    def _swap(self, connection: sa.Connection, epoch: Epoch, values: Mapping[str, Any]) -> None:
        """Change an epoch if it still is as it was read."""
        changed = connection.execute(
            sa.update(EPOCH)
            .where(
                EPOCH.c.task == epoch.task_number,
                EPOCH.c.number == epoch.number,
                EPOCH.c.phase == epoch.phase,
                EPOCH.c.moving.is_not_distinct_from(epoch.moving),
            )
            .values(**values)
        )
        if changed.rowcount != 1:
            raise NotReady("another server moved the epoch in the meantime", fix="Look at it again")

    def _read(self, task: Task, task_number: int, number: int) -> Epoch:
        with self._store.read() as connection:
            epoch = epoch_row(connection, task, task_number, number, lock=False)
        if epoch is None:
            raise UsageError(f"the task has no epoch {number}", fix="`hushquery collect status` lists them")
        return epoch

    # ---- what is left behind -------------------------------------------------------------------------------

    def _tidied(self, epoch: Epoch) -> Epoch:
        """Destroy what is not needed any more; may be called any number of times."""
        if epoch.phase == HEAD_PUBLISHED:
            self._vault.destroy(epoch)
        if epoch.phase == EXPIRED and not epoch.scrubbed:
            self._vault.destroy(epoch)
            self._mark(epoch, scrubbed=True)
            return replace(epoch, scrubbed=True)
        if epoch.phase in PHASES[PHASES.index(CLOSED) :] and not epoch.scrubbed:
            keep_ids(self._store, epoch)
            self._store.wipe_traces()
            drop_reports(self._store, epoch)
            return replace(epoch, scrubbed=True)
        return epoch

    def _mark(self, epoch: Epoch, **values: bool) -> None:
        with self._store.write(frees=True) as connection:
            connection.execute(
                sa.update(EPOCH)
                .where(EPOCH.c.task == epoch.task_number, EPOCH.c.number == epoch.number)
                .values(**values)
            )

    # ---- by time -------------------------------------------------------------------------------------------

    def tick(self, tasks: Mapping[int, Task]) -> list[HushqueryError]:
        """Make the present epochs, resume what was interrupted, and do the moves whose time has come.

        While the time is in doubt no epoch begins or moves; only what earlier moves left behind is destroyed.
        Gives what went wrong; one epoch's trouble does not keep the others from moving.
        """
        troubles: list[HushqueryError] = []
        try:
            doubt = self._watch is not None and self._watch.look() is not None
        except HushqueryError as error:
            return [error]
        for task_number, task in tasks.items():
            try:
                if not doubt:
                    self.ensure(task, task_number)
                with self._store.read() as connection:
                    epochs = [one for one in standing(connection, {task_number: task}) if not one.forgotten]
            except Exception as error:
                troubles.append(_told(error))
                continue
            for epoch in epochs:
                try:
                    self._tick_one(epoch, doubt)
                except NotReady:
                    continue
                except Exception as error:  # whatever it is, the others are to move, and the watch goes on
                    self._complain(epoch, _told(error))
                    troubles.append(_told(error))
        return troubles

    def due(self, tasks: Mapping[int, Task]) -> list[tuple[Epoch, str]]:
        """Return which epochs time alone would end now, and how: what an operator has to know who confirms the time."""
        with self._store.read() as connection:
            epochs = [one for one in standing(connection, tasks) if not one.forgotten]
        found = []
        for epoch in epochs:
            if self._has_lapsed(epoch):
                found.append((epoch, "expires, and its opt-in records are destroyed"))
            elif epoch.phase == REPORTS_OPEN and self._is_due(epoch):
                found.append((epoch, "closes: it takes no more reports, and their payloads are erased"))
        return found

    def _complain(self, epoch: Epoch, error: HushqueryError) -> None:
        """Log a trouble once; it is tried again at every tick."""
        trouble = (epoch.task.id, epoch.number, error.what)
        if trouble not in self._logged:
            self._logged.add(trouble)
            _log.error("an epoch could not be moved: %s", error.what)

    def _has_lapsed(self, epoch: Epoch) -> bool:
        """Say whether the time for making a head list is over: nobody could use it any more."""
        period = epoch.task.task.period
        ends = epoch.since + epoch.task.collect.retention if period is None else (epoch.number + 1) * period
        return epoch.phase == OPTIN_OPEN and self._clock() >= ends

    def _expire(self, epoch: Epoch) -> Epoch:
        """End an opt-in phase that nobody finished, and destroy what was given in it."""
        entered = {"phase": EXPIRED, "moving": None, "since": int(self._clock())}
        with self._store.write(frees=True) as connection:
            self._swap(connection, epoch, entered)
        return self._tidied(self._read(epoch.task, epoch.task_number, epoch.number))

    def _waits(self, epoch: Epoch) -> bool:
        """Say whether a move was refused a moment ago."""
        return epoch.trouble is not None and self._clock() < epoch.trouble["at"] + _AGAIN_SECONDS

    def _tick_one(self, epoch: Epoch, doubt: bool) -> None:
        if doubt:
            if self._is_untidy(epoch):
                with self._store.alone(lock_name(epoch.task, epoch.number)):
                    self._tidied(self._read(epoch.task, epoch.task_number, epoch.number))
        else:
            epoch = self._moved_by_time(epoch)
        if epoch.takes_reports:
            with suppress(Unavailable):  # it needs room for a moment, and nobody who reads: it can wait
                mix(self._store, epoch)

    def _moved_by_time(self, epoch: Epoch) -> Epoch:
        """Move an epoch as far as the time says, and destroy what its time is over for."""
        if self._has_lapsed(epoch):
            with self._store.alone(lock_name(epoch.task, epoch.number)):
                epoch = self._read(epoch.task, epoch.task_number, epoch.number)
                epoch = self._expire(epoch) if self._has_lapsed(epoch) else epoch
        # What is left behind goes first: a move that is refused must not keep it.
        if self._is_untidy(epoch) or self._is_past(epoch):
            with self._store.alone(lock_name(epoch.task, epoch.number)):
                epoch = self._tidied(self._read(epoch.task, epoch.task_number, epoch.number))
                if not epoch.forgotten and self._is_past(epoch):
                    # Nothing is forgotten too early: a closed epoch takes no report, known or unknown.
                    forget_ids(self._store, epoch)
                    self._mark(epoch, forgotten=True)
        while (epoch.moving is not None and not self._waits(epoch)) or self._is_due(epoch):
            epoch = self.advance(epoch.task, epoch.task_number, epoch.number, MOVES[epoch.phase][1])
        return epoch

    def _is_untidy(self, epoch: Epoch) -> bool:
        """Return whether something that a move left behind is still to be destroyed; at most looks there is nothing."""
        over = epoch.phase in (EXPIRED, *PHASES[PHASES.index(CLOSED) :])
        return epoch.phase == HEAD_PUBLISHED or (over and not epoch.scrubbed)

    def _is_past(self, epoch: Epoch) -> bool:
        """Say whether the time is over for which an epoch's ids are kept."""
        return epoch.scrubbed and self._clock() - epoch.since > epoch.task.collect.retention

    def _is_due(self, epoch: Epoch) -> bool:
        """Say whether time alone moves this epoch on; a task without periods is moved by hand."""
        task, now = epoch.task, self._clock()
        if epoch.moving is not None:
            return False  # that is resumed, not begun
        if epoch.phase == HEAD_PUBLISHED:
            return True
        if epoch.phase == CLOSED:
            return _lacks_estimates(epoch) is None
        if task.task.period is None:
            return False
        begins = epoch.number * task.task.period
        if epoch.phase == OPTIN_OPEN:
            # A collector that was started late leaves people their time.
            return now >= max(begins, epoch.since) + self._optin_share * task.task.period
        # Reports tell the start of their interval of time and travel for a while.
        grace = task.collect.time_precision + task.collect.clock_skew
        return epoch.phase == REPORTS_OPEN and now >= begins + task.task.period + grace


def _check_move(epoch: Epoch, to: str | None) -> None:
    if epoch.phase == EXPIRED:
        raise UsageError(
            "this epoch ended without a head list that clients can use, and its records are destroyed",
            why=str((epoch.trouble or {}).get("what", "its opt-in phase was not finished in its time")),
            fix="The next period has its own epoch" if epoch.task.task.period else "Begin anew with another task",
        )
    if epoch.phase not in MOVES:
        raise UsageError("the epoch is released, and that is the last phase", fix="The next period has its own epoch")
    following = MOVES[epoch.phase][1]
    if to is not None and to != following:
        if to not in PHASES:
            raise UsageError("there is no such phase", fix=f"It is one of: {', '.join(PHASES)}")
        raise UsageError(f"an epoch does not go from {epoch.phase} to {to}", fix=f"The next phase is {following}")


def _lacks_estimates(epoch: Epoch) -> NotReady | None:
    """Say why nothing can be released from a closed epoch; where the counts were not read, they are not looked at."""
    if epoch.phase != CLOSED:
        return None
    fewest = epoch.task.collect.min_batch
    if (epoch.reports or 0) < fewest:
        return NotReady(
            "the epoch has fewer reports than the task's min_batch, so nothing is released from it",
            why=f"{epoch.reports or 0:,} of {fewest:,}",
            fix="Its reports stay counted; the next period has its own epoch",
        )
    if epoch.task.task.kind == "text":
        why = "texts are estimated for candidates, which a collector does not know"
        fix = "Name candidates: `hushquery collect save --candidates FILE --out FOLDER`"
    elif epoch.counts is not None and "estimates" not in epoch.counts:
        why = f"it was closed with {epoch.reports:,} of them, fewer than the task's min_batch was then"
        fix = "Leave it closed; the next period has its own epoch"
    else:
        return None
    return NotReady("the reports of this epoch are counted, not estimated", why=why, fix=fix)


def _told(error: Exception) -> HushqueryError:
    """Give what may be said of an error: of one that is not ours only its kind, for its text may hold a value."""
    if isinstance(error, HushqueryError):
        return error
    return HushqueryError("a move failed unexpectedly", why=type(error).__name__, fix="Report this as a defect")


def _text(data: object) -> str:
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise DataError(
            "what the move computed is no plain data", fix="Return numbers, texts, lists, mappings"
        ) from None
