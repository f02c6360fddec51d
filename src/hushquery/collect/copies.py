"""Copies of a store: a backup that another collector can run on, and the reports of an epoch as lines of text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import escape
from pathlib import Path

import sqlalchemy as sa

from hushquery.collect.epochs import Epoch, reports_of
from hushquery.collect.schema import META, RECORD, TABLES
from hushquery.collect.store import Store
from hushquery.errors import DataError, UsageError
from hushquery.local.report import Report

__all__ = ["backup", "report_lines"]

_BLOCK = 1000


def backup(store: Store, path: str | os.PathLike[str]) -> int:
    """Copy a store, SQLite or PostgreSQL, as it stands at one moment into a new SQLite file; gives the rows copied.

    Opt-in records are left out: they are to vanish when their key does, and a copy would not.
    """
    target = Path(path)
    if target.exists():
        raise UsageError(f"{target.name} exists already", fix="Choose another name for the backup")
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    rows = 0
    try:
        copy = Store.open(draft)
        try:
            with store.read() as source, copy.write() as into:
                for table in TABLES.sorted_tables:
                    if table in (META, RECORD):
                        continue
                    found = source.execution_options(yield_per=_BLOCK).execute(sa.select(table))
                    for block in found.mappings().partitions(_BLOCK):
                        into.execute(sa.insert(table), [dict(row) for row in block])
                        rows += len(block)
            copy.wipe_traces()
        finally:
            copy.close()
        # A link, and not a rename: a backup that somebody else made meanwhile is not replaced.
        os.link(draft, target)
    except OSError as error:
        raise DataError(f"the backup {target.name} can't be written", why=error.strerror or "") from None
    finally:
        for left in target.parent.glob(f"{escape(draft.name)}*"):  # a name may hold what is a pattern to glob
            left.unlink()
    return rows


def report_lines(store: Store, epoch: Epoch) -> Iterator[str]:
    """Give the reports of an epoch as words of base64url, in the order of their random ids."""
    if epoch.scrubbed:
        raise DataError(
            "the reports of this epoch are counted and scrubbed",
            why="only their ids are kept, so that repeats are recognised",
            fix="Use its counts (`hushquery collect status --json`) or its release",
        )
    for data in reports_of(store, epoch):
        yield Report.from_bytes(data).to_text()
