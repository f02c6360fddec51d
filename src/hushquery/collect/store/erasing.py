"""The reports of an epoch from their arrival to their end: mixed while they wait, and erased once they are counted.

Pages and transactions of a database tell what came with what, and when: PostgreSQL's rows keep the number of their
transaction and lie in their order, and within a page of SQLite the newest row lies first. So the table of an epoch is
now and then written anew, in the order of the random ids and in one transaction. When the reports are counted, their
ids are written in that way into another table, and the table that held them is emptied as a whole: on PostgreSQL its
files are deleted (deleting rows would leave them there), on SQLite its pages are overwritten.
"""

from __future__ import annotations

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import Epoch
from hushquery.collect.store.schema import COUNTER, EPOCH, KNOWN, reports_table
from hushquery.collect.store.store import Store, StoreFull

__all__ = ["drop_reports", "forget_ids", "keep_ids", "make_reports", "mix"]

# SQLite's rows are moved or deleted in transactions of so many, each of which frees more room than it takes.
_BLOCK = 2000
# A table is written anew when this share of its reports is new, and as long as that takes a moment only: uploads wait.
_NEW_SHARE = 8
_MOST_MIXED = 100_000


def make_reports(connection: sa.Connection, task: int, number: int) -> None:
    """Make the table of an epoch that begins to take reports, in the transaction in which it does.

    One may be there: a backup from before the epoch was restored over what came after it.
    """
    table = reports_table(task, number)
    table.drop(connection, checkfirst=True)
    table.create(connection)


def mix(store: Store, epoch: Epoch) -> None:
    """Write the reports of an open epoch anew in the order of their ids, if an eighth of them came since the last time.

    Until then a request that nobody else's were written with can be told by its transaction. Larger tables than
    100,000 rows are left as they are.

    Raises:
        Unavailable: It waited for too long, or there is no room to write the table twice: it can wait.
    """
    table, here = reports_table(epoch.task_number, epoch.number), _of(epoch)
    accepted = sa.select(sa.func.coalesce(sa.func.sum(COUNTER.c.count), 0)).where(
        COUNTER.c.task == epoch.task_number, COUNTER.c.reason == "accepted"
    )
    query = sa.select(EPOCH.c.mixed, accepted.scalar_subquery().label("accepted")).where(*here)
    with store.read() as connection:
        before = connection.execute(query).one()
        new = int(before.accepted) - (before.mixed or 0)
        if not new:
            return
        rows = int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
    if not 1 < rows <= min(_MOST_MIXED, _NEW_SHARE * new):
        return
    with store.write() as connection:
        _wait_briefly(connection)
        now = connection.execute(sa.select(EPOCH.c.mixed, EPOCH.c.phase, EPOCH.c.moving).where(*here).with_for_update())
        row = now.one()
        if (row.mixed, row.phase, row.moving) != (before.mixed, epoch.phase, None):
            return  # another server has done it, or closes it
        _rewrite(connection, table)
        connection.execute(sa.update(EPOCH).where(*here).values(mixed=int(before.accepted)))
    store.shorten_log()
    store.vacuum(table)


def keep_ids(store: Store, epoch: Epoch) -> None:
    """Keep of the reports of a closed epoch the ids alone, and erase all else; may be called any number of times."""
    try:
        _keep_ids(store, epoch)
    except StoreFull:
        if store.path is not None:
            raise
        _erase_first(store, epoch)


def _erase_first(store: Store, epoch: Epoch) -> None:
    """Make room on a full PostgreSQL: its disk has none for the ids before the reports are gone.

    If this process dies in between, ids are lost. A closed epoch accepts nothing, so no report is counted twice, but a
    client that resends one of them gets "the epoch is over" instead of "already stored".
    """
    table = reports_table(epoch.task_number, epoch.number)
    with store.write(frees=True) as connection:
        _wait_briefly(connection)
        connection.exec_driver_sql(f'LOCK TABLE "{table.name}" IN ACCESS EXCLUSIVE MODE')
        ids = connection.execute(sa.select(table.c.id).order_by(table.c.id)).scalars().all()
        connection.exec_driver_sql(f'TRUNCATE "{table.name}"')
    for at in range(0, len(ids), _BLOCK):
        rows = [{"task": epoch.task_number, "epoch": epoch.number, "id": one} for one in ids[at : at + _BLOCK]]
        with store.write(frees=True) as connection:
            connection.execute(sa.insert(KNOWN), rows)


def _keep_ids(store: Store, epoch: Epoch) -> None:
    table = reports_table(epoch.task_number, epoch.number)
    columns = [sa.literal(epoch.task_number), sa.literal(epoch.number), table.c.id]
    while True:
        with store.write(frees=True) as connection:
            chosen = sa.select(*columns).order_by(table.c.id)
            _wait_briefly(connection)
            if store.path is None:
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # nobody waits for this
                connection.exec_driver_sql(f'LOCK TABLE "{table.name}" IN ACCESS EXCLUSIVE MODE')
                connection.execute(sa.insert(KNOWN).from_select(KNOWN.c.keys(), chosen))
                connection.exec_driver_sql(f'TRUNCATE "{table.name}"')
                return
            rows = connection.execute(chosen.limit(_BLOCK)).all()
            if rows:
                connection.execute(sa.delete(table).where(table.c.id <= rows[-1].id))
                connection.execute(sa.insert(KNOWN), [dict(zip(KNOWN.c.keys(), row, strict=True)) for row in rows])
            if len(rows) < _BLOCK:
                # Whatever its last page held besides rows goes with the page.
                table.drop(connection)
                table.create(connection)
                return
        store.shorten_log()  # the next block needs no more of the disk than this one did


def drop_reports(store: Store, epoch: Epoch) -> None:
    """Drop the table of an epoch whose reports are erased, and note that they are."""
    with store.write(frees=True) as connection:
        _wait_briefly(connection)
        # The epoch first, as whoever writes reports does.
        connection.execute(sa.update(EPOCH).where(*_of(epoch)).values(scrubbed=True))
        reports_table(epoch.task_number, epoch.number).drop(connection)


def forget_ids(store: Store, epoch: Epoch) -> None:
    """Delete the ids of an epoch, in short transactions."""
    mine = (KNOWN.c.task == epoch.task_number, KNOWN.c.epoch == epoch.number)
    while True:
        with store.write(frees=True) as connection:
            ids = connection.execute(sa.select(KNOWN.c.id).where(*mine).limit(_BLOCK)).scalars().all()
            connection.execute(sa.delete(KNOWN).where(*mine, KNOWN.c.id.in_(ids)))
        if len(ids) < _BLOCK:
            return


def _wait_briefly(connection: sa.Connection) -> None:
    """Give up soon where somebody, such as a backup, reads the reports: uploads would have to wait behind us."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")


def _of(epoch: Epoch) -> tuple[sa.ColumnElement[bool], ...]:
    return EPOCH.c.task == epoch.task_number, EPOCH.c.number == epoch.number


def _rewrite(connection: sa.Connection, table: sa.Table) -> None:
    """Write a table anew in the order of its ids."""
    name = table.name
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f'CREATE TEMPORARY TABLE mixing ON COMMIT DROP AS TABLE "{name}"')
        # TRUNCATE would leave nothing of the old rows, and show an empty table to a pg_dump that began a moment before.
        connection.exec_driver_sql(f'DELETE FROM "{name}"')  # noqa: S608
        connection.exec_driver_sql(f'INSERT INTO "{name}" SELECT * FROM mixing ORDER BY id')  # noqa: S608
        return
    old = f"{name}_old"
    connection.exec_driver_sql(f'ALTER TABLE "{name}" RENAME TO "{old}"')
    table.create(connection)
    connection.exec_driver_sql(f'INSERT INTO "{name}" SELECT * FROM "{old}" ORDER BY id')  # noqa: S608
    connection.exec_driver_sql(f'DROP TABLE "{old}"')
