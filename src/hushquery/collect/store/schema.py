"""The collector's tables, their version, and how an older version is converted.

No column identifies a client or holds a time of arrival, and none holds the hash of a report: its short payload could
be found by trying all. Counted reports leave only their random ids. Opt-in records are stored only as ciphertext.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import sqlalchemy as sa

from hushquery.errors import DataError

#: One step from a version of the tables to the next, inside the transaction that also writes the new version.
Migration = Callable[[sa.Connection], None]
SCHEMA = 3  #: The version of the tables that this hushquery works with.

TABLES = sa.MetaData()  #: All tables.

#: One row: the version of the tables.
META = sa.Table(
    "hushquery_collect_meta",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("schema", sa.Integer, nullable=False),
)

#: The tasks as they were last served; all other tables name a task by its number here, its row.
TASK = sa.Table(
    "hushquery_collect_task",
    TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", sa.LargeBinary(32), nullable=False, unique=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
)

#: An epoch: its phase, the move under way and what stopped it, results, and reports of its task at the last rewrite.
EPOCH = sa.Table(
    "hushquery_collect_epoch",
    TABLES,
    sa.Column("task", sa.Integer, sa.ForeignKey(TASK.c.number), primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("moving", sa.Text),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("head", sa.Text),
    sa.Column("optin", sa.Text),
    sa.Column("counts", sa.Text),
    sa.Column("reports", sa.BigInteger),
    sa.Column("checksum", sa.LargeBinary(32)),
    sa.Column("release", sa.Text),
    sa.Column("trouble", sa.Text),
    sa.Column("mixed", sa.BigInteger),
    sa.Column("scrubbed", sa.Boolean, nullable=False, default=False),
    sa.Column("forgotten", sa.Boolean, nullable=False, default=False),
    sqlite_with_rowid=False,
)

#: The ids of reports that were counted, so that repeats are recognised; written when an epoch is closed.
KNOWN = sa.Table(
    "hushquery_collect_known",
    TABLES,
    sa.Column("task", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sqlite_with_rowid=False,
)


@cache
def reports_table(task_row: int, epoch: int) -> sa.Table:
    """Return the table that holds the reports of one epoch from their arrival until they are counted."""
    return sa.Table(
        f"hushquery_collect_reports_{task_row}_{epoch}",
        sa.MetaData(),
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )


#: Opt-in records: ciphertext under the epoch's key, and an HMAC under it by which a repeat is recognised.
RECORD = sa.Table(
    "hushquery_collect_record",
    TABLES,
    sa.Column("task", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("giver", sa.Text, nullable=False),
    sa.Column("mac", sa.LargeBinary(32), nullable=False),
    sa.Column("ciphertext", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("task", "epoch", "giver"),
    sqlite_with_rowid=False,
)

#: Bearer tokens: their public name and the hash of their secret.
TOKEN = sa.Table(
    "hushquery_collect_token",
    TABLES,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("task", sa.Integer, sa.ForeignKey(TASK.c.number), nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("shared", sa.Boolean, nullable=False),
    sa.Column("made", sa.BigInteger, nullable=False),
    sa.Column("revoked", sa.BigInteger),
    sqlite_with_rowid=False,
)

#: How many uploads ended how. Each writing process has a slot of its own, so that none waits for another's row.
COUNTER = sa.Table(
    "hushquery_collect_counter",
    TABLES,
    sa.Column("task", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("reason", sa.Text, primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Releases as they are served, named by the hash of their bytes.
RELEASE = sa.Table(
    "hushquery_collect_release",
    TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("task", sa.Integer, sa.ForeignKey(TASK.c.number), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("task", "epoch"),
    sqlite_with_rowid=False,
)


#: One row: the newest time that was trusted, how often the operator confirmed it, and why epochs do not move by it.
CLOCK = sa.Table(
    "hushquery_collect_clock",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("newest", sa.BigInteger),
    sa.Column("confirmed", sa.BigInteger, nullable=False),
    sa.Column("stopped", sa.Text),
)


def _whole_tasks_and_troubles(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"ALTER TABLE {TASK.name} RENAME COLUMN canonical TO document")
    connection.exec_driver_sql(f"ALTER TABLE {EPOCH.name} ADD COLUMN trouble TEXT")


def _reports_by_epoch(connection: sa.Connection) -> None:
    """Create a table for each epoch not yet counted, and keep only ids of others; names the columns of version 2."""
    old = sa.table("hushquery_collect_report", *(sa.column(name) for name in ("task", "epoch", "id", "data")))
    KNOWN.create(connection)
    counted = sa.select(old.c.task, old.c.epoch, old.c.id).where(old.c.data.is_(None))
    ordered = counted.order_by(old.c.task, old.c.epoch, old.c.id)
    connection.execute(sa.insert(KNOWN).from_select(["task", "epoch", "id"], ordered))
    epochs = sa.text(
        f"SELECT task, number FROM {EPOCH.name} WHERE NOT scrubbed AND phase IN ('reports_open', 'closed', 'released')"  # noqa: S608
    )
    for task, number in connection.execute(epochs).all():
        table = reports_table(task, number)
        table.create(connection)
        mine = (old.c.task == task, old.c.epoch == number, old.c.data.is_not(None))
        rows = sa.select(old.c.id, old.c.data).where(*mine).order_by(old.c.id)
        connection.execute(sa.insert(table).from_select(["id", "data"], rows))
    CLOCK.create(connection)
    connection.exec_driver_sql(f"DROP TABLE {old.name}")
    connection.exec_driver_sql(f"ALTER TABLE {EPOCH.name} ADD COLUMN mixed BIGINT")


#: The conversions, by the version they start from.
MIGRATIONS: Mapping[int, Migration] = {1: _whole_tasks_and_troubles, 2: _reports_by_epoch}


def make_tables(connection: sa.Connection) -> None:
    """Create the tables of an empty store, in the caller's transaction."""
    TABLES.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(META).values(id=1, schema=SCHEMA))


def check_version(version: int, name: str) -> None:
    """Raise DataError unless this hushquery works with tables of this version; nothing is converted unasked."""
    if version > SCHEMA:
        raise DataError(
            f"the store {name} has tables of version {version} and this hushquery knows only version {SCHEMA}",
            fix="Upgrade hushquery to the version that wrote it",
        )
    if version < SCHEMA:
        raise DataError(
            f"the store {name} has tables of version {version} and this hushquery works with version {SCHEMA}",
            why="nothing was changed",
            fix="Stop the collector and run `hushquery collect migrate`, which keeps a copy",
        )


def migrate(connection: sa.Connection, version: int, name: str) -> None:
    """Convert tables of an older version, in the caller's transaction, which keeps all others out."""
    for step in range(version, SCHEMA):
        if step not in MIGRATIONS:
            raise DataError(
                f"the store {name} has tables of version {version}, which are too old to be converted",
                fix="Convert it with an earlier hushquery first",
            )
        MIGRATIONS[step](connection)
        connection.execute(sa.update(META).values(schema=step + 1))


def version_of(connection: sa.Connection, name: str) -> int | None:
    """Read the version of the tables; None if there are none yet."""
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names())
    if META.name not in names:
        if connection.dialect.name == "sqlite" and names:
            raise DataError(f"{name} is a database of something else", fix="Give --store another path")
        return None
    rows = connection.execute(sa.select(META.c.schema)).scalars().all()
    if len(rows) != 1 or not isinstance(rows[0], int):
        raise DataError(f"the store {name} does not say which version its tables have", fix="Restore a backup")
    return rows[0]
