"""The phases of an epoch: one move after another, each done once whatever crashes or races.

::

    optin_open --publish_head--> head_published --open_reports--> reports_open --close--> closed --release--> released

A task with its own domain begins at ``reports_open``. An opt-in phase not finished by the end of its period (of the
retention, without periods), or whose head list nobody can use, becomes ``expired``: records and key are destroyed.

A move has three parts: (1) a transaction records that it began, after which nothing more is accepted; (2) the work is
done outside any transaction; (3) a transaction enters the next phase with the results, if the epoch is where (1) left
it. A lock that dies with its process admits one server at a time. A crashed move is resumed under the same key, so it
is paid for once and draws the same noise, and only (3) publishes. A refused move (insufficient budget) stays begun and
is retried; one that can never succeed is refused before (1).
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

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
    EpochWork,
    count_reports,
    epoch_row,
    epoch_statuses,
    insert_new,
    lock_name,
)
from hushquery.collect.store.reports import drop_reports, forget_ids, keep_ids, make_reports, mix, row_of
from hushquery.collect.store.schema import EPOCH, RECORD, RELEASE, reports_table
from hushquery.collect.store.store import Store, StoreFull
from hushquery.collect.store.vault import Vault
from hushquery.errors import DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.local.configuration import Configuration
from hushquery.local.rappor.channel import looked_for
from hushquery.task import Task

_AGAIN_SECONDS = 60  # a refused move is retried after so many seconds

_log = logging.getLogger("hushquery.collect")


class Phases:
    """Moves the epochs of a store; ``watch`` knows whether the clock can be trusted, None if it always can."""

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

    def ensure(self, task: Task, task_row: int) -> None:
        """Create the epoch of the current period if there is none yet."""
        now = self._clock()
        begins = REPORTS_OPEN if task.head is None else OPTIN_OPEN
        with self._store.write() as connection:
            values = {"task": task_row, "number": task.period_at(now), "phase": begins, "since": int(now)}
            inserted = connection.execute(
                insert_new(connection, EPOCH)
                .values(**values, scrubbed=False, forgotten=False)
                .returning(EPOCH.c.number)
            ).all()
            if inserted and begins == REPORTS_OPEN:
                make_reports(connection, task_row, inserted[0].number)

    def advance(
        self, task: Task, task_row: int, number: int, to: str | None = None, candidates: Sequence[str] | None = None
    ) -> Epoch:
        """Move an epoch to its next phase, or resume an interrupted move; leave one alone that is in phase ``to``.

        ``candidates`` are for the release of texts: what to look for, instead of what the task says.
        """
        if candidates is not None:
            if task.task.kind != "text":
                raise UsageError("only a task of texts takes candidates", fix="Leave them out")
            candidates = looked_for(candidates)
        try:
            return self._advance(task, task_row, number, to, candidates)
        except StoreFull:
            if not self._store.make_room():  # the move frees more than it needs
                raise
            return self._advance(task, task_row, number, to, candidates)

    def _advance(
        self, task: Task, task_row: int, number: int, to: str | None, candidates: Sequence[str] | None
    ) -> Epoch:
        with self._store.locked(lock_name(task, number)):
            epoch = self._read(task, task_row, number)
            if to is not None and epoch.phase == to:
                return self._tidied(epoch)  # what was left behind may not be destroyed yet
            if self._has_lapsed(epoch):
                if self._watch is not None:
                    self._watch.check()
                epoch = self._expire(epoch)
            _check_move(epoch, to)
            self._check_ready(epoch, candidates)
            # First what a crash after the last move left behind: secrets go before their phase does.
            epoch = self._begin(self._tidied(epoch))
            try:
                columns = self._compute(epoch, candidates)
            except Exception as error:
                self._note(epoch, _safe_error(error))
                raise
            return self._tidied(self._finish(epoch, columns))

    def _note(self, epoch: Epoch, error: HushqueryError) -> None:
        """Store why a move was refused; errors never show a value, so this doesn't either."""
        with self._store.write(frees=True) as connection:
            self._swap(connection, epoch, {"trouble": self._reason(error)})

    def _reason(self, error: HushqueryError) -> str:
        return _text({"what": error.what, "why": error.why, "fix": error.fix, "at": int(self._clock())})

    def _check_ready(self, epoch: Epoch, candidates: Sequence[str] | None) -> None:
        """Refuse a move that can never succeed before it begins, and take back one that had begun."""
        refusal = self._without_records(epoch) if epoch.phase == OPTIN_OPEN else _without_estimates(epoch, candidates)
        if refusal is None:
            return
        if epoch.moving is not None:  # such as after a restore, or when all records were withdrawn
            with self._store.write(frees=True) as connection:
                self._swap(connection, epoch, {"moving": None, "trouble": None})
        raise refusal

    def _without_records(self, epoch: Epoch) -> NotReady | None:
        """Keep the opt-in phase open until there are records: without any there is no head list."""
        mine = (RECORD.c.task == epoch.task_row, RECORD.c.epoch == epoch.number)
        with self._store.read() as connection:
            if connection.execute(sa.select(RECORD.c.id).where(*mine).limit(1)).first() is not None:
                return None
        return NotReady("nobody has given records in this epoch yet", fix="Wait for some")

    def _compute(self, epoch: Epoch, candidates: Sequence[str] | None) -> dict[str, Any]:
        if epoch.moving == "publish_head":
            published = self._work.publish_head(epoch)
            optin = _text(published.to_json())
            try:
                Configuration.of(epoch.task, published.records)
            except HushqueryError as error:
                # The noise made a list that clients can't use. A second draw would reveal more than was paid for.
                return {"optin": optin, "phase": EXPIRED, "trouble": self._reason(error)}
            return {"head": _text([list(record) for record in published.records]), "optin": optin}
        if epoch.moving == "close":
            counts = _text(dict(self._work.close(epoch)))
            with self._store.read(reports_table(epoch.task_row, epoch.number)) as connection:
                reports, checksum = count_reports(connection, epoch)
            return {"counts": counts, "reports": reports, "checksum": checksum}
        if epoch.moving == "release":
            document = self._work.release(epoch, candidates)
            return {"release": hashlib.sha256(document).hexdigest(), "document": document}
        return {}

    def _begin(self, epoch: Epoch) -> Epoch:
        """Record durably that the move has begun; one that had begun is resumed."""
        move, _ = MOVES[epoch.phase]
        if epoch.moving is not None:
            return epoch
        with self._store.write(frees=True) as connection:
            self._swap(connection, epoch, {"moving": move})
        return replace(epoch, moving=move)

    def _finish(self, epoch: Epoch, columns: dict[str, Any]) -> Epoch:
        _, following = MOVES[epoch.phase]
        document = columns.pop("document", None)
        with self._store.write(frees=True) as connection:
            entered = {"phase": following, "moving": None, "trouble": None, "since": int(self._clock())}
            self._swap(connection, epoch, {**entered, **columns})
            if following == REPORTS_OPEN:
                make_reports(connection, epoch.task_row, epoch.number)
            if document is not None:
                values = {"id": columns["release"], "task": epoch.task_row, "epoch": epoch.number}
                connection.execute(sa.insert(RELEASE).values(**values, document=document))
        return self._read(epoch.task, epoch.task_row, epoch.number)

    def _swap(self, connection: sa.Connection, epoch: Epoch, values: Mapping[str, Any]) -> None:
        """Change an epoch if it still is in the state that was read."""
        same = (*row_of(epoch), EPOCH.c.phase == epoch.phase, EPOCH.c.moving.is_not_distinct_from(epoch.moving))
        if connection.execute(sa.update(EPOCH).where(*same).values(**values)).rowcount != 1:
            raise NotReady("another server moved the epoch in the meantime", fix="Read its status again")

    def _read(self, task: Task, task_row: int, number: int) -> Epoch:
        with self._store.read() as connection:
            epoch = epoch_row(connection, task, task_row, number)
        if epoch is None:
            raise UsageError(f"the task has no epoch {number}", fix="`hushquery collect status` lists them")
        return epoch

    @contextmanager
    def _locked(self, epoch: Epoch) -> Iterator[Epoch]:
        """Keep other servers from moving an epoch, and read it again."""
        with self._store.locked(lock_name(epoch.task, epoch.number)):
            yield self._read(epoch.task, epoch.task_row, epoch.number)

    def _tidied(self, epoch: Epoch) -> Epoch:
        """Destroy what is no longer needed; may be called any number of times."""
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
            connection.execute(sa.update(EPOCH).where(*row_of(epoch)).values(**values))

    def tick(self, tasks: Mapping[int, Task]) -> list[HushqueryError]:
        """Create the current epochs, and make all moves that are due or interrupted; return what went wrong.

        While the time is in doubt, only what earlier moves left behind is destroyed.
        """
        troubles: list[HushqueryError] = []
        try:
            doubt = self._watch is not None and self._watch.compare() is not None
        except HushqueryError as error:
            return [error]
        for task_row, task in tasks.items():
            try:
                if not doubt:
                    self.ensure(task, task_row)
                with self._store.read() as connection:
                    epochs = [one for one in epoch_statuses(connection, {task_row: task}) if not one.forgotten]
            except Exception as error:
                troubles.append(_safe_error(error))
                continue
            for epoch in epochs:
                try:
                    self._tick_one(epoch, doubt)
                except NotReady:
                    continue
                except Exception as error:  # whatever it is, the other epochs move
                    self._log_once(epoch, _safe_error(error))
                    troubles.append(_safe_error(error))
        return troubles

    def due(self, tasks: Mapping[int, Task]) -> list[tuple[Epoch, str]]:
        """Return the epochs that time alone would end now, and how, for the operator who confirms the time."""
        with self._store.read() as connection:
            epochs = [one for one in epoch_statuses(connection, tasks) if not one.forgotten]
        ending = []
        for epoch in epochs:
            if self._has_lapsed(epoch):
                ending.append((epoch, "expires, and its opt-in records are destroyed"))
            elif epoch.phase == REPORTS_OPEN and self._is_due(epoch):
                ending.append((epoch, "closes: it takes no more reports, and their payloads are erased"))
        return ending

    def _log_once(self, epoch: Epoch, error: HushqueryError) -> None:
        """Log an error the first time; the move is retried at every tick."""
        trouble = (epoch.task.id, epoch.number, error.what)
        if trouble not in self._logged:
            self._logged.add(trouble)
            _log.error("an epoch could not be moved: %s", error.what)

    def _has_lapsed(self, epoch: Epoch) -> bool:
        period = epoch.task.task.period
        ends = epoch.since + epoch.task.collect.retention if period is None else (epoch.number + 1) * period
        return epoch.phase == OPTIN_OPEN and self._clock() >= ends

    def _expire(self, epoch: Epoch) -> Epoch:
        """End an opt-in phase that was not finished, and destroy its records."""
        entered = {"phase": EXPIRED, "moving": None, "since": int(self._clock())}
        with self._store.write(frees=True) as connection:
            self._swap(connection, epoch, entered)
        return self._tidied(self._read(epoch.task, epoch.task_row, epoch.number))

    def _waits(self, epoch: Epoch) -> bool:
        """Return whether a move was refused a moment ago."""
        return epoch.trouble is not None and self._clock() < epoch.trouble["at"] + _AGAIN_SECONDS

    def _tick_one(self, epoch: Epoch, doubt: bool) -> None:
        if doubt:
            if self._is_untidy(epoch):
                with self._locked(epoch) as current:
                    self._tidied(current)
        else:
            epoch = self._moved_by_time(epoch)
        if epoch.takes_reports:
            with suppress(Unavailable):  # it needs room for a moment and no readers: it can wait
                mix(self._store, epoch)

    def _moved_by_time(self, epoch: Epoch) -> Epoch:
        if self._has_lapsed(epoch):
            with self._locked(epoch) as current:
                epoch = self._expire(current) if self._has_lapsed(current) else current
        # What is left behind goes first: a refused move must not keep it.
        if self._is_untidy(epoch) or self._is_past(epoch):
            with self._locked(epoch) as current:
                epoch = self._tidied(current)
                if not epoch.forgotten and self._is_past(epoch):
                    # A closed epoch takes no report, known or unknown, so forgetting ids admits no repeats.
                    forget_ids(self._store, epoch)
                    self._mark(epoch, forgotten=True)
        while (epoch.moving is not None and not self._waits(epoch)) or self._is_due(epoch):
            epoch = self.advance(epoch.task, epoch.task_row, epoch.number, MOVES[epoch.phase][1])
        return epoch

    def _is_untidy(self, epoch: Epoch) -> bool:
        """Return whether a move left something behind that is still to be destroyed."""
        over = epoch.phase in (EXPIRED, *PHASES[PHASES.index(CLOSED) :])
        return epoch.phase == HEAD_PUBLISHED or (over and not epoch.scrubbed)

    def _is_past(self, epoch: Epoch) -> bool:
        """Return whether the retention of an epoch's ids is over."""
        return epoch.scrubbed and self._clock() - epoch.since > epoch.task.collect.retention

    def _is_due(self, epoch: Epoch) -> bool:
        """Return whether time alone moves this epoch on; a task without periods is moved by hand."""
        if epoch.moving is not None:
            return False  # it is resumed, not begun
        if epoch.phase == HEAD_PUBLISHED:
            return True
        if epoch.phase == CLOSED:
            return _without_estimates(epoch) is None
        ends = phase_ends(epoch, self._optin_share)
        return ends is not None and self._clock() >= ends


def phase_ends(epoch: Epoch, optin_share: float) -> float | None:
    """Return when time alone ends the phase of an epoch; None for one that is moved by hand, or at once."""
    task, period = epoch.task, epoch.task.task.period
    if period is None or epoch.phase not in (OPTIN_OPEN, REPORTS_OPEN):
        return None
    begins = epoch.number * period
    if epoch.phase == OPTIN_OPEN:
        # A collector that was started late gives people their full time.
        return max(begins, epoch.since) + optin_share * period
    # Reports carry the start of their time interval and travel for a while.
    return begins + period + task.collect.time_precision + task.collect.clock_skew


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


def _without_estimates(epoch: Epoch, candidates: Sequence[str] | None = None) -> NotReady | None:
    """Return why nothing can be released from a closed epoch; counts that were not read are not checked."""
    if epoch.phase != CLOSED:
        return None
    fewest = epoch.task.collect.min_batch
    if (epoch.reports or 0) < fewest:
        return NotReady(
            "the epoch has fewer reports than the task's min_batch, so nothing is released from it",
            why=f"{epoch.reports or 0:,} of {fewest:,}",
            fix="Its reports stay counted; the next period has its own epoch",
        )
    if epoch.task.task.kind == "text" and candidates is None and epoch.task.collect.candidates is None:
        why = "texts are estimated for candidates, and nobody has named any"
        fix = (
            "Use `hushquery collect advance --to released --candidates FILE`, or write [collect] candidates in the task"
        )
    elif epoch.counts is not None and _was_too_small(epoch, epoch.counts):
        why = f"it was closed with {epoch.reports:,} of them, fewer than the task's min_batch was then"
        fix = "Leave it closed; the next period has its own epoch"
    else:
        return None
    return NotReady("the reports of this epoch are counted, not estimated", why=why, fix=fix)


def _was_too_small(epoch: Epoch, counts: Mapping[str, Any]) -> bool:
    """Return whether an epoch had too few reports when it was closed; earlier versions estimated then, or never."""
    if "min_batch" in counts:
        return (epoch.reports or 0) < int(counts["min_batch"])
    return "estimates" not in counts and epoch.task.task.kind != "text"


def _safe_error(error: Exception) -> HushqueryError:
    """Return an error whose text may be shown: for a foreign one only its type, because its text may hold a value."""
    if isinstance(error, HushqueryError):
        return error
    return HushqueryError("a move failed unexpectedly", why=type(error).__name__, fix="Report this as a defect")


def _text(data: object) -> str:
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise DataError("the result of the move is not JSON", fix="Return numbers, texts, lists, mappings") from None
