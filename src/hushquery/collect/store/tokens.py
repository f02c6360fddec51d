"""Bearer tokens of users who opted in: made once, shown once, kept only as a hash.

A token is ``hq_NAME.SECRET``. The name is public and finds the row; the secret has 32 bytes from the operating
system. A plain SHA-256 is the right hash for it: slow, salted hashes protect passwords, which people choose and others
can guess, and nobody guesses 256 random bits. Hashes are compared in constant time.

A personal token (the default) lets its holder give records once in an epoch, which is how the bound on what a user
contributes is kept. A shared token is for an uploader that keeps the bound itself.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import OPTIN_OPEN, epoch_row, lock_name, registered
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.schema import RECORD, TOKEN
from hushquery.collect.store.store import Store
from hushquery.errors import NotReady, UsageError

__all__ = ["Forgotten", "Token", "Tokens"]

_NOTE = 200
_FORM = re.compile(r"hq_([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Token:
    """What is known of a token; its secret is not.

    Args:
        name: Its public name.
        task: The task's number in the store.
        note: Whom it was made for, in the operator's words.
        shared: Whether it may give records of many users.
        made: When.
        revoked: When it was revoked, or None.
    """

    name: str
    task: int
    note: str
    shared: bool
    made: int
    revoked: int | None


@dataclass(frozen=True)
class Forgotten:
    """What was deleted of what a token gave.

    Args:
        deleted: How many uploads.
        busy: In how many epochs it could not be, because a head list is being made of it at this moment.
    """

    deleted: int
    busy: int


class Tokens:
    """The tokens of a store.

    Args:
        store: The store.
        clock: Gives the time in seconds since 1970.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def new(self, task: int, note: str = "", *, shared: bool = False) -> str:
        """Make a token for a task; this is the only time that it is shown."""
        if len(note) > _NOTE or not (note == "" or note.isprintable()):
            raise UsageError(f"a note is one line of at most {_NOTE} characters")
        name, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with self._store.write() as connection:
            connection.execute(
                sa.insert(TOKEN).values(
                    name=name, task=task, sha256=_hash(secret), note=note, shared=shared, made=int(self._clock())
                )
            )
        return f"hq_{name}.{secret}"

    def check(self, task: int, header: str | None) -> Token:
        """Read an Authorization header; gives the token, if it is one of this task and was not revoked.

        Raises:
            Refusal: 401, always the same whatever is wrong.
        """
        scheme, _, text = (header or "").partition(" ")
        form = _FORM.fullmatch(text.strip())
        if scheme.lower() != "bearer" or form is None:
            raise refuse("unauthorized")
        with self._store.read() as connection:
            row = connection.execute(sa.select(TOKEN).where(TOKEN.c.name == form[1])).one_or_none()
        # A name that does not exist takes as long as a wrong secret.
        same = hmac.compare_digest(bytes(32) if row is None else bytes(row.sha256), _hash(form[2]))
        if row is None or not same or row.task != task or row.revoked is not None:
            raise refuse("unauthorized")
        return _token(row)

    def listed(self) -> list[Token]:
        """Give all tokens, the oldest first."""
        with self._store.read() as connection:
            rows = connection.execute(sa.select(TOKEN).order_by(TOKEN.c.made, TOKEN.c.name)).all()
        return [_token(row) for row in rows]

    def forget(self, name: str) -> Forgotten:
        """Delete the records that a token gave, as long as no head list was made of them; revoke it first.

        That its epoch was to move and could not (nobody has the budget) keeps nothing: a list is paid for the records
        that are there when it is made (:meth:`~hushquery.collect.store.vault.Vault.noise_key`), so fewer are paid for
        anew.
        """
        name = _bare(name)
        mine = sa.or_(RECORD.c.giver == name, RECORD.c.giver.startswith(f"{name}/", autoescape=True))
        tasks = dict(registered(self._store))
        with self._store.read() as connection:
            found = connection.execute(sa.select(RECORD.c.task, RECORD.c.epoch).where(mine).distinct()).all()
        deleted = busy = 0
        for task, number in found:
            here = (RECORD.c.task == task, RECORD.c.epoch == number, mine)
            try:
                # Not while somebody makes a list of them; where one is made already, its records go without us.
                with self._store.alone(lock_name(tasks[task], number)), self._store.write() as connection:
                    epoch = epoch_row(connection, tasks[task], task, number, lock=False)
                    if epoch is not None and epoch.phase == OPTIN_OPEN:
                        deleted += connection.execute(sa.delete(RECORD).where(*here)).rowcount
            except NotReady:
                busy += 1
        self._store.wipe_traces()
        return Forgotten(deleted, busy)

    def revoke(self, name: str) -> None:
        """Revoke a token by its name; from the next request on it is nothing."""
        name = _bare(name)
        with self._store.write() as connection:
            there = connection.execute(sa.select(TOKEN.c.name).where(TOKEN.c.name == name)).one_or_none()
            if there is None:
                raise UsageError("there is no token of that name", fix="`hushquery collect tokens list` lists them")
            connection.execute(
                sa.update(TOKEN)
                .where(TOKEN.c.name == name, TOKEN.c.revoked.is_(None))
                .values(revoked=int(self._clock()))
            )


def _bare(name: str) -> str:
    """Give the name alone where somebody pasted the whole token."""
    return name.removeprefix("hq_").partition(".")[0]


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _token(row: sa.Row[tuple[object, ...]]) -> Token:
    return Token(row.name, row.task, row.note, row.shared, row.made, row.revoked)
