"""A store as hushquery wrote it when its tables were of version 2, by the statements that it ran then."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from collect.helpers import HEAD, NOW, SEARCHES, WEEKLY, make_report
from hushquery.local.report import Report
from hushquery.task import Task
from ledger.workers import sql

WEEK = 7 * 86400
TASK, HYBRID = Task.loads(WEEKLY), Task.loads(SEARCHES)
PERIOD = TASK.period_at(NOW)

TABLES = """
CREATE TABLE hushquery_collect_counter (task INTEGER NOT NULL, reason TEXT NOT NULL, slot INTEGER NOT NULL,
    count BIGINT NOT NULL, PRIMARY KEY (task, reason, slot)) WITHOUT ROWID;
CREATE TABLE hushquery_collect_meta (id INTEGER NOT NULL, schema INTEGER NOT NULL, PRIMARY KEY (id));
CREATE TABLE hushquery_collect_record (task INTEGER NOT NULL, epoch BIGINT NOT NULL, id BLOB NOT NULL,
    giver TEXT NOT NULL, mac BLOB NOT NULL, ciphertext BLOB NOT NULL, PRIMARY KEY (task, epoch, id),
    UNIQUE (task, epoch, giver)) WITHOUT ROWID;
CREATE TABLE hushquery_collect_report (task INTEGER NOT NULL, id BLOB NOT NULL, epoch BIGINT NOT NULL,
    sha256 BLOB NOT NULL, data BLOB, received BIGINT NOT NULL, PRIMARY KEY (task, id)) WITHOUT ROWID;
CREATE TABLE hushquery_collect_task (number SERIAL NOT NULL, id BLOB NOT NULL, document TEXT NOT NULL,
    since BIGINT NOT NULL, PRIMARY KEY (number), UNIQUE (id));
CREATE TABLE hushquery_collect_epoch (task INTEGER NOT NULL, number BIGINT NOT NULL, phase TEXT NOT NULL, moving TEXT,
    since BIGINT NOT NULL, head TEXT, optin TEXT, counts TEXT, reports BIGINT, checksum BLOB, release TEXT,
    trouble TEXT, scrubbed BOOLEAN NOT NULL, forgotten BOOLEAN NOT NULL, PRIMARY KEY (task, number),
    FOREIGN KEY(task) REFERENCES hushquery_collect_task (number)) WITHOUT ROWID;
CREATE TABLE hushquery_collect_release (id TEXT NOT NULL, task INTEGER NOT NULL, epoch BIGINT NOT NULL,
    document BLOB NOT NULL, PRIMARY KEY (id), UNIQUE (task, epoch),
    FOREIGN KEY(task) REFERENCES hushquery_collect_task (number)) WITHOUT ROWID;
CREATE TABLE hushquery_collect_token (name TEXT NOT NULL, task INTEGER NOT NULL, sha256 BLOB NOT NULL,
    note TEXT NOT NULL, shared BOOLEAN NOT NULL, made BIGINT NOT NULL, revoked BIGINT, PRIMARY KEY (name),
    FOREIGN KEY(task) REFERENCES hushquery_collect_task (number)) WITHOUT ROWID
"""


@dataclass
class Old:
    """What is in the store.

    Args:
        released: Reports of an epoch that is over: only their ids and hashes are there.
        closed: Reports of an epoch that was being emptied when the server died: of the first half as above.
        waiting: Reports of an epoch that takes reports.
    """

    released: list[Report]
    closed: list[Report]
    waiting: list[Report]


def make_version_2(url: str) -> Old:
    """Write the store: four epochs of a weekly task, and one of a hybrid task in which opt-in users give records."""
    text = TABLES
    if url.startswith("sqlite"):
        text = text.replace("SERIAL", "INTEGER")
        sql(url, "PRAGMA journal_mode=WAL")
    else:
        text = text.replace("BLOB", "BYTEA").replace(" WITHOUT ROWID", "")
    for statement in text.split(";"):
        sql(url, statement)
    sql(url, "INSERT INTO hushquery_collect_meta VALUES (1, 2)")
    for task in (TASK, HYBRID):
        document = json.dumps(task.to_json(), sort_keys=True, separators=(",", ":"))
        insert = "INSERT INTO hushquery_collect_task (id, document, since) VALUES (?, ?, ?)"
        sql(url, insert, (task.digest, document, int(NOW)))
    epochs: Sequence[tuple[Any, ...]] = (
        (1, PERIOD - 3, "released", 4, True, "r" * 64),
        (1, PERIOD - 2, "closed", 6, False, None),
        (1, PERIOD - 1, "expired", None, True, None),
        (1, PERIOD, "reports_open", None, False, None),
        (2, PERIOD, "optin_open", None, False, None),
        (2, PERIOD - 1, "head_published", None, False, None),
    )
    for task, number, phase, reports, scrubbed, release in epochs:
        counts = None if reports is None else json.dumps({"n": reports, "support": [reports, 0, 0, 0]})
        head = json.dumps(HEAD) if phase == "head_published" else None
        sql(
            url,
            "INSERT INTO hushquery_collect_epoch VALUES (?, ?, ?, NULL, ?, ?, NULL, ?, ?, ?, ?, NULL, ?, ?)",
            (task, number, phase, int(NOW), head, counts, reports, None, release, scrubbed, False),
        )
    sql(url, "INSERT INTO hushquery_collect_release VALUES (?, 1, ?, ?)", ("r" * 64, PERIOD - 3, b'{"kept": true}'))
    sql(url, "INSERT INTO hushquery_collect_counter VALUES (1, 'accepted', 3, 17)")
    token = ("0" * 16, 2, bytes(32), "ward 3", True, 5)
    sql(url, "INSERT INTO hushquery_collect_token VALUES (?, ?, ?, ?, ?, ?, NULL)", token)
    record = (2, PERIOD, bytes(16), "x", bytes(32), b"ciphertext of a record")
    sql(url, "INSERT INTO hushquery_collect_record VALUES (?, ?, ?, ?, ?, ?)", record)
    old = Old(_reports(4, weeks=3), _reports(6, weeks=2), _reports(7, weeks=0))
    emptied = {report.id for report in (*old.released, *old.closed[:3])}
    for weeks, made in ((3, old.released), (2, old.closed), (0, old.waiting)):
        for report in made:
            data = report.to_bytes()
            row = (report.id, PERIOD - weeks, hashlib.sha256(data).digest(), None if report.id in emptied else data)
            sql(url, "INSERT INTO hushquery_collect_report VALUES (1, ?, ?, ?, ?, 0)", row)
    return old


def _reports(number: int, weeks: int) -> list[Report]:
    return [replace(make_report(TASK, n, time=NOW - weeks * WEEK), id=os.urandom(16)) for n in range(number)]
