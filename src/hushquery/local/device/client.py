"""The client: randomises a value once, keeps the answer, and makes the reports that may leave the device.

One report loses at most the task's epsilon (its share, where a client reports several records), replace-one. An answer
is drawn once for each class of values that share one (a cell, a grid point, a Bloom filter) and repeated, so averaging
reports reveals nothing new; a new class costs epsilon again. The sum bounds the loss only between two histories that
change at the same times: that a value changed is not protected, and long answers make a client's reports linkable. Over
the lifetime budget a client answers with a report drawn once from coins that depend on no value, at no cost. Deleting
the state makes a new client, whose losses add to those of the old one. docs/report-format.md has all of it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hushquery.core.budget import round_up
from hushquery.errors import DataError, UsageError
from hushquery.local.configuration import Configuration, Head
from hushquery.local.device.store import ClientStore
from hushquery.local.randomizer import ONE, Device, MemoClass
from hushquery.local.report import MOST_PAYLOAD, Report
from hushquery.noise.sampler import Bits, SystemBits
from hushquery.task import Task

#: What can be reported: a value, or a query and its clicked URL.
Reportable = str | int | tuple[str | int, str]

#: What a client's total means, in the words that go with every number of it.
CLAIM = (
    "bounds the loss under replace-one given the change times: between two histories of values that change at the "
    "same times. That a value changed, and when, is not protected"
)

_SECRET_BYTES = 32
_MOST_NAME = 200
# Stands for "no value" where a memo key has a cell.
_EXHAUSTED = 2**32 - 1


@dataclass(frozen=True)
class PaidAnswer:
    """One line of a client's account: a permanent answer that was drawn for a new value."""

    task: str
    period: int
    epsilon: Fraction
    claim: str = "given the change times"


@dataclass(frozen=True)
class DeviceAccount:
    """What a client has lost in all its tasks, and may lose."""

    spent: Fraction
    lifetime: Fraction
    entries: tuple[PaidAnswer, ...]
    claim: str = CLAIM

    @property
    def left(self) -> Fraction:
        """What may still be lost."""
        return max(Fraction(0), self.lifetime - self.spent)

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain data; numbers are rounded up."""
        return {
            "spent": round_up(self.spent),
            "lifetime": round_up(self.lifetime),
            "claim": self.claim,
            "entries": [
                {"task": one.task, "period": one.period, "epsilon": round_up(one.epsilon), "claim": one.claim}
                for one in self.entries
            ],
        }


@dataclass(frozen=True)
class Answered:
    """The reports of a period, what making them cost now, and what the client has lost since it began."""

    reports: tuple[Report, ...]
    cost: Fraction
    spent: Fraction
    lifetime: Fraction


class Client:
    """One client of a task.

    Args:
        task: The task.
        state: The file that remembers; one file can hold many clients and many tasks of each.
        client_id: Which client of the file this is. It never leaves the device.
        head: The published head list (pairs, or an object with ``records``), for a task without a domain of its own.
        bits: The source of coins; with any other than the system's, reports are not private.
        clock: Returns the time in seconds since 1970.

    All tasks of a client draw from one lifetime budget: the smallest ``lifetime_epsilon`` of the tasks it has answered.
    """

    def __init__(
        self,
        task: Task,
        state: str | os.PathLike[str] = "client.db",
        client_id: str = "default",
        *,
        head: Head | None = None,
        bits: Bits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(client_id, str) or not 1 <= len(client_id) <= _MOST_NAME or not client_id.isprintable():
            raise UsageError(f"the name of a client is 1 to {_MOST_NAME} printable characters")
        self.task = task
        self.configuration = Configuration.of(task, head)
        if self.configuration.channel.report_bytes > MOST_PAYLOAD:
            raise UsageError(
                f"a report of this task would be longer than {MOST_PAYLOAD:,} bytes",
                fix="Use a shorter domain, or an oracle with short reports such as olh",
            )
        self.client_id = client_id
        self._store = ClientStore(state)
        self._bits = SystemBits() if bits is None else bits
        self._clock = clock

    def __repr__(self) -> str:
        return f"Client(task {self.task.id[:12]}, state {self._store.name!r})"

    def report(self, value: str | int | None, url: str | None = None, *, slot: int = 0) -> Report | None:
        """Return the report of this period: the only thing that leaves the device.

        The first call of a period decides. Its report is on disk before it is returned, and every later call returns
        the same bytes, whatever the value and even if the process was killed in between. Returns None if the task is
        switched off or its sampling leaves this client out.

        Args:
            value: The query, setting, number or text. None means "nothing to report" and is reported as the wildcard,
                so that silence reveals nothing; tasks of numbers and texts refuse it.
            url: The clicked URL, for searches.
            slot: Which of the task's ``records_per_user`` records this is, from 0.

        Raises:
            UnknownValue: The task refuses values outside its domain, or a number is out of range.
        """
        if type(slot) is not int or not 0 <= slot < self.task.client.records_per_user:
            raise UsageError("the task has no such slot", fix=f"Slots are 0 to {self.task.client.records_per_user - 1}")
        made = self._answered([(slot, value, url)]).reports
        return made[0] if made else None

    def reports(self, values: Sequence[Reportable | None]) -> list[Report]:
        """Return all reports of this period; if one value is refused, none is made and nothing is spent.

        Missing records are padded with "nothing to report", because their number is private too.
        """
        return list(self.answer(values).reports)

    def answer(self, values: Sequence[Reportable | None]) -> Answered:
        """Return all reports of this period, as :meth:`reports` does, with what making them cost."""
        slots = self.task.client.records_per_user
        if isinstance(values, str) or len(values) > slots:
            raise UsageError(
                f"the task takes a list of at most {slots} values in a period", fix="Choose among them on the device"
            )
        padded = [*values, *[None] * (slots - len(values))]
        if any(isinstance(value, tuple) and len(value) != 2 for value in padded):
            raise UsageError("a record is a value, or a pair of a query and a URL")
        pairs = [value if isinstance(value, tuple) else (value, None) for value in padded]
        return self._answered([(slot, value, url) for slot, (value, url) in enumerate(pairs)])

    def _answered(self, slots: Sequence[tuple[int, str | int | None, str | None]]) -> Answered:
        """Return the reports of some slots in this period, all from one transaction; none if it is switched off."""
        now = self._now()
        with self._store.transaction() as connection:
            before, _ = self._budget(connection)
            asked = slots if self.task.client.enabled else []
            reports = [self._report(connection, now, *one) for one in asked]
            spent, cap = self._budget(connection)
        # The transaction has ended: the reports are durable, and only now does anybody see them.
        return Answered(tuple(one for one in reports if one is not None), spent - before, spent, cap)

    def has_reported(self) -> bool:
        """Return whether this client has made its report of this period: then every call gives the same bytes again."""
        period = self.task.period_at(self._now())
        slots = range(self.task.client.records_per_user)
        with self._store.transaction() as connection:
            return any(self._made(connection, period, slot) is not None for slot in slots)

    def outbox(self) -> list[Report]:
        """Return the reports of all tasks of this client that were made and not yet marked as sent, oldest first."""
        with self._store.transaction() as connection:
            rows = connection.execute("SELECT data FROM report WHERE client = ? AND NOT sent", (self.client_id,))
            reports = [Report.from_bytes(data) for (data,) in rows]
        return sorted(reports, key=lambda report: (report.time, report.id))

    def sent(self, report_id: bytes) -> None:
        """Note that the collector has acknowledged a report; the report itself stays, to answer the same again."""
        with self._store.transaction() as connection:
            changed = connection.execute(
                "UPDATE report SET sent = 1 WHERE client = ? AND id = ?", (self.client_id, report_id)
            )
            if changed.rowcount != 1:
                raise UsageError("this client has made no report with that id", fix="Take ids from the outbox")

    def account(self) -> DeviceAccount:
        """Return what this client has lost in all its tasks; the claim says what the number bounds."""
        with self._store.transaction() as connection:
            spent, cap = self._budget(connection)
            rows = connection.execute(
                "SELECT task, period, cost FROM memo WHERE client = ? AND cost <> '0' ORDER BY task, period, key",
                (self.client_id,),
            )
            entries = tuple(PaidAnswer(task.hex(), period, Fraction(cost)) for task, period, cost in rows)
        return DeviceAccount(spent, cap, entries)

    def forget(self) -> None:
        """Delete this client: its secret, answers, outbox and account. Its loss and that of the next client add up."""
        with self._store.transaction() as connection:
            for statement in (
                "DELETE FROM report WHERE client = ?",
                "DELETE FROM memo WHERE client = ?",
                "DELETE FROM client WHERE id = ?",
            ):
                connection.execute(statement, (self.client_id,))

    def _now(self) -> float:
        now = self._clock()
        if not math.isfinite(now) or not 0 <= now < 2**40:
            raise DataError("the device's clock shows no time after 1970", fix="Set the clock")
        return now

    def _report(
        self, connection: sqlite3.Connection, now: float, slot: int, value: str | int | None, url: str | None
    ) -> Report | None:
        """Return the report that the slot has in this period, else make it; None if the client is not sampled."""
        period = self.task.period_at(now)
        # Check for an existing report first; rejecting the new value would reveal it.
        known = self._made(connection, period, slot)
        if known is not None:
            return known
        cell = self.configuration.space.cell(value, url)
        secret = self._secret(connection)
        if not self._sampled(secret, period):
            return None
        self._keep_cap(connection)
        kept = self._answer(connection, secret, cell, slot, period)
        payload = self.configuration.channel.payload(kept, self._bits)
        report = Report(os.urandom(16), self.task.digest, self.configuration.digest, self.task.truncate(now), payload)
        connection.execute(
            "INSERT INTO report (client, task, period, slot, id, data) VALUES (?, ?, ?, ?, ?, ?)",
            (self.client_id, self.task.digest, period, slot, report.id, report.to_bytes()),
        )
        return report

    def _made(self, connection: sqlite3.Connection, period: int, slot: int) -> Report | None:
        row = connection.execute(
            "SELECT data FROM report WHERE client = ? AND task = ? AND period = ? AND slot = ?",
            (self.client_id, self.task.digest, period, slot),
        ).fetchone()
        if row is None:
            return None
        report = Report.from_bytes(row[0])
        if report.configuration != self.configuration.digest:
            once = self.task.task.period is None
            raise DataError(
                f"the report of this {'task' if once else 'period'} was made with another head list",
                why="a second one would tell more than the task allows",
                fix="The task asks each client once: give the first list, or make a new task for another list"
                if once
                else "Give the list of this period; another one can be used from the next period on",
            )
        return report

    def _secret(self, connection: sqlite3.Connection) -> bytes:
        row = connection.execute("SELECT secret FROM client WHERE id = ?", (self.client_id,)).fetchone()
        if row is None:
            row = (os.urandom(_SECRET_BYTES),)
            connection.execute("INSERT INTO client (id, secret, spent) VALUES (?, ?, '0')", (self.client_id, *row))
        if not isinstance(row[0], bytes) or len(row[0]) != _SECRET_BYTES:
            raise DataError("the state file is damaged: a client's secret is not 32 bytes", fix="Restore the file")
        return row[0]

    def _budget(self, connection: sqlite3.Connection) -> tuple[Fraction, Fraction]:
        """Return what was spent, and the cap: the smallest lifetime of this task and those answered before."""
        cap = Fraction(self.task.client.lifetime_epsilon)
        row = connection.execute("SELECT spent, cap FROM client WHERE id = ?", (self.client_id,)).fetchone()
        if row is None:
            return Fraction(0), cap
        try:
            return Fraction(row[0]), cap if row[1] is None else min(cap, Fraction(row[1]))
        except (ValueError, TypeError, ZeroDivisionError):
            raise DataError("the state file is damaged: a client's total is no number", fix="Restore it") from None

    def _keep_cap(self, connection: sqlite3.Connection) -> None:
        """Remember the cap with every report, also one that costs nothing: the task has now been answered."""
        _, cap = self._budget(connection)
        connection.execute("UPDATE client SET cap = ? WHERE id = ?", (str(cap), self.client_id))

    def _sampled(self, secret: bytes, period: int) -> bool:
        """Return whether this client reports in this period: decided once, by its secret, without its value."""
        drawn = sampling_number(secret, self.task.digest, period)
        return drawn < math.floor(self.task.client.sampling * ONE)

    def _answer(self, connection: sqlite3.Connection, secret: bytes, value: Any, slot: int, period: int) -> bytes:
        """Return the permanent answer of a value: from the memo, or drawn and paid for; after the cap an empty one."""
        channel, device = self.configuration.channel, Device(secret, self.task.digest, self.configuration.digest)
        own, none = (
            memo_key(secret, device.task, device.configuration, slot, name)
            for name in (channel.memo_class(value, device), _EXHAUSTED)
        )
        known = self._recall(connection, own)
        if known is not None:
            return known
        cost = self.configuration.cost
        spent, cap = self._budget(connection)
        if spent + cost <= cap:
            connection.execute("UPDATE client SET spent = ? WHERE id = ?", (str(spent + cost), self.client_id))
            return self._remember(connection, own, period, channel.answer(value, device, self._bits), cost)
        empty = self._recall(connection, none)
        if empty is not None:
            return empty
        return self._remember(connection, none, period, self.configuration.empty(device, self._bits), Fraction(0))

    @staticmethod
    def _recall(connection: sqlite3.Connection, key: bytes) -> bytes | None:
        row = connection.execute("SELECT payload FROM memo WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def _remember(self, connection: sqlite3.Connection, key: bytes, period: int, kept: bytes, cost: Fraction) -> bytes:
        """Keep an answer that was drawn, this once."""
        connection.execute(
            "INSERT INTO memo (key, client, task, period, cost, payload) VALUES (?, ?, ?, ?, ?, ?)",
            (key, self.client_id, self.task.digest, period, str(cost), kept),
        )
        return kept


def memo_key(secret: bytes, task: bytes, configuration: bytes, slot: int, name: MemoClass) -> bytes:
    """Name an answer by an HMAC-SHA256 under the device's secret, so that its value is not stored.

    Two records of one period that shared an answer would show that they are equal, so the slot is part of it. A class
    is a number, as 4 bytes (2^32 - 1 stands for the empty answer), or bytes, as their SHA-256.
    """
    named = name.to_bytes(4, "big") if isinstance(name, int) else hashlib.sha256(name).digest()
    return _mac(secret, b"memo", task, configuration + slot.to_bytes(4, "big") + named)


def sampling_number(secret: bytes, task: bytes, period: int) -> int:
    """Compute a 53-bit number from the device's secret: a client reports in a period if it is below the rate."""
    return int.from_bytes(_mac(secret, b"sampling", task, period.to_bytes(8, "big"))[:8], "big") >> 11


def _mac(secret: bytes, purpose: bytes, task: bytes, rest: bytes) -> bytes:
    # What follows the zero byte has one length per configuration, or another for the empty answer: no two are alike.
    return hmac.new(secret, b"hushquery-v1 " + purpose + b"\0" + task + rest, hashlib.sha256).digest()
