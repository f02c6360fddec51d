"""Taking the records of a user who opted in: sealed before they reach the database, once for each giver and epoch."""

from __future__ import annotations

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import Epoch, insert_new
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.schema import EPOCH, RECORD, TOKEN
from hushquery.collect.store.store import Store
from hushquery.collect.store.tokens import Token
from hushquery.collect.store.vault import Vault
from hushquery.collect.store.writer import ACCEPTED, REPEATED
from hushquery.task import Task

__all__ = ["put_records"]


def put_records(
    store: Store,
    vault: Vault,
    task: Task,
    task_number: int,
    number: int,
    token: Token,
    record_id: bytes,
    records: list[list[str]],
) -> str:
    """Store what one user gave, durably, and say whether it was new.

    Args:
        store: The store.
        vault: What seals it.
        task: The task.
        task_number: Its number in the store.
        number: The epoch.
        token: Who gives it.
        record_id: The id that the client chose, at random.
        records: The [query, URL] pairs.

    Raises:
        Refusal: The token is revoked, the epoch does not take records, or the id or the token was used for something
            else.
    """
    giver = f"{token.name}/{record_id.hex()}" if token.shared else token.name
    with store.write() as connection:
        # Looked at again: it may have been revoked, and what it gave deleted, while the body arrived.
        valid = sa.select(TOKEN.c.name).where(TOKEN.c.name == token.name, TOKEN.c.revoked.is_(None))
        if connection.execute(valid.with_for_update(read=True)).one_or_none() is None:
            raise refuse("unauthorized")
        row = connection.execute(
            sa.select(EPOCH)
            .where(EPOCH.c.task == task_number, EPOCH.c.number == number)
            .with_for_update(read=True)  # it does not move before this is committed
        ).one_or_none()
        if row is None:
            raise refuse("too-early")
        epoch = Epoch.read(task, row)
        if not epoch.takes_records:
            raise refuse("phase-over")
        sealed, mark = vault.seal(epoch, record_id, records)
        key = {"task": task_number, "epoch": number, "id": record_id}
        added = connection.execute(
            insert_new(connection, RECORD)
            .values(**key, giver=giver, mac=mark, ciphertext=sealed)
            .returning(RECORD.c.id)
        ).all()
        if added:
            return ACCEPTED
        there = connection.execute(
            sa.select(RECORD.c.mac).where(*(RECORD.c[name] == value for name, value in key.items()))
        ).scalar_one_or_none()
        if there is None:
            raise refuse("contributed")
        if bytes(there) != mark:
            raise refuse("other-bytes")
        return REPEATED
