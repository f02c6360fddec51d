"""Opt-in records: tokens to send them, encryption under a key per epoch, and destruction of that key.

A token is ``hq_NAME.SECRET``; the secret, 32 random bytes that nobody guesses, is stored as a plain SHA-256. A personal
token gives records once in an epoch, which bounds a user's contribution; the uploader with a shared one bounds it.

Records are sealed with AES-256-GCM, bound to task, epoch and id, under a key of their epoch in a file, never in the
database. Repeats are recognised by an HMAC, because a plain hash of a query could be found by trying queries. The noise
of the head list is drawn from a key derived from the secret and the records: a list made again is the same list. On
PostgreSQL, and on disks that move blocks, destroyed ciphertext may linger, but its key is gone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hushquery.collect.epochs.epochs import OPTIN_OPEN, Epoch, epoch_row, insert_new, lock_name, registered
from hushquery.collect.http.problems import refuse
from hushquery.collect.store.reports import ACCEPTED, REPEATED
from hushquery.collect.store.schema import EPOCH, RECORD, TOKEN
from hushquery.collect.store.store import Store, sync_folder
from hushquery.errors import DataError, NotReady, Unavailable, UsageError, install
from hushquery.task import Task

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_NONCE_BYTES = 12
_PLAIN, _WRAPPED = b"HQK1", b"HQW1"
_BLOCK = 1000
_NOTE = 200
_TOKEN = re.compile(r"hq_([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")
OPERATOR_VARIABLE = "HUSHQUERY_OPERATOR_KEY"  #: The environment variable with the operator key, as base64 of 32 bytes.


def read_operator_key(path: str | None) -> bytes | None:
    """Read the operator key, base64 of 32 bytes, from a file or else from the environment, if there is one."""
    try:
        text = os.environ.get(OPERATOR_VARIABLE, "") if path is None else Path(path).read_text("ascii")
    except (OSError, UnicodeError):
        raise DataError("the file of the operator key can't be read", fix="Check --operator-key") from None
    if not text.strip():
        return None
    key = b""
    with suppress(binascii.Error, ValueError):
        key = base64.b64decode(text.strip(), validate=True)
    if len(key) != _KEY_BYTES:
        raise UsageError("the operator key is not base64 of 32 bytes", fix="Make one with `openssl rand -base64 32`")
    return key


class Vault:
    """The opt-in records of a store, with their keys in a folder, wrapped by the operator key if there is one."""

    def __init__(self, store: Store, folder: str | os.PathLike[str], operator: bytes | None = None) -> None:
        self._store = store
        self._folder = Path(folder)
        self._operator = operator

    def seal(self, epoch: Epoch, record_id: bytes, records: list[list[str]]) -> tuple[bytes, bytes]:
        """Encrypt the records of one user; return the ciphertext, and the mark by which a repeat is recognised."""
        secret = self._secret(epoch, make=True)
        plain = json.dumps(records, separators=(",", ":")).encode()
        sealed = _encrypt(_derived(secret, b"seal"), plain, _bound(epoch, record_id))
        mark = hmac.new(_derived(secret, b"mark"), _bound(epoch, record_id) + plain, hashlib.sha256).digest()
        return sealed, mark

    def records(self, epoch: Epoch) -> Iterator[tuple[bytes, list[list[str]]]]:
        """Decrypt the records of an epoch: yield the random id and the records of each user."""
        last, key = b"", b""
        columns = sa.select(RECORD.c.id, RECORD.c.ciphertext).where(*_records_of(epoch))
        while True:
            with self._store.read() as connection:
                query = columns.where(RECORD.c.id > last).order_by(RECORD.c.id).limit(_BLOCK)
                rows = connection.execute(query).all()
            if rows and not key:
                key = _derived(self._secret(epoch, make=False), b"seal")
            for record_id, sealed in rows:
                last = bytes(record_id)
                plain = _decrypt(key, bytes(sealed), _bound(epoch, last))
                if plain is None:
                    raise DataError("an opt-in record can't be decrypted", why="it was changed, or the key is another")
                yield last, json.loads(plain)
            if len(rows) < _BLOCK:
                return

    def noise_key(self, epoch: Epoch) -> bytes:
        """Return the key for the noise on the stored records: the same for the same records and for no others."""
        mac = hmac.new(_derived(self._secret(epoch, make=False), b"noise"), _bound(epoch, b""), hashlib.sha256)
        query = sa.select(RECORD.c.id, RECORD.c.ciphertext).where(*_records_of(epoch)).order_by(RECORD.c.id)
        with self._store.read() as connection:
            for record_id, sealed in connection.execute(query):
                mac.update(bytes(record_id) + hashlib.sha256(bytes(sealed)).digest())
        return mac.digest()

    def destroy(self, epoch: Epoch) -> None:
        """Make the opt-in records of an epoch unreadable, then delete them; may be called any number of times.

        Records without a key in this folder are refused: the key exists somewhere else.
        """
        path, mine = self._path(epoch), _records_of(epoch)
        with self._usable():
            try:
                with path.open("r+b") as file:
                    length = file.seek(0, os.SEEK_END)
                    for filler in (os.urandom(length), bytes(length)):
                        file.seek(0)
                        file.write(filler)
                        file.flush()
                        os.fsync(file.fileno())
            except FileNotFoundError:
                with self._store.read() as connection:
                    if connection.execute(sa.select(RECORD.c.id).where(*mine).limit(1)).first() is not None:
                        raise DataError(
                            "the key of the epoch's opt-in records is not there, so it can't be destroyed",
                            why=f"the records are, and {self._folder} has no {path.name}",
                            fix="Use the folder of keys that the collector runs with, on the machine that has it. If "
                            "the key is lost for good, make an empty file of that name",
                        ) from None
        with self._store.write() as connection:
            connection.execute(sa.delete(RECORD).where(*mine))
        self._store.wipe_traces()
        # Last, so that records without a key file mean that the key was never in this folder.
        with self._usable():
            path.unlink(missing_ok=True)
            if self._folder.exists():
                sync_folder(self._folder)

    def check(self, epoch: Epoch) -> None:
        """Raise DataError for a key that is damaged or wrapped by another operator key: every upload would fail."""
        if self._path(epoch).exists():
            self._secret(epoch, make=False)

    def _path(self, epoch: Epoch) -> Path:
        return self._folder / f"{epoch.task.id}-{epoch.number}.key"

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = "the keys of opt-in records can't be read or written"
            raise Unavailable(what, why=error.strerror or "", fix=f"See {self._folder}") from None

    def _secret(self, epoch: Epoch, *, make: bool) -> bytes:
        path = self._path(epoch)
        with self._usable():
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                if not make:
                    what = "the key of the epoch's opt-in records is not there"
                    raise DataError(what, fix=f"Put its file back into {self._folder}") from None
                data = self._make(epoch, path)
        kind, rest = data[: len(_PLAIN)], data[len(_PLAIN) :]
        if kind == _PLAIN and len(rest) == _KEY_BYTES:
            return rest
        if kind == _WRAPPED and self._operator is not None:
            secret = _decrypt(self._operator, rest, _bound(epoch, b""))
            if secret is not None:
                return secret
        raise DataError(
            "the key of the epoch's opt-in records can't be used",
            why="it is damaged, or wrapped by another operator key",
            fix=f"Set {OPERATOR_VARIABLE} to the key that the collector was started with",
        )

    def _make(self, epoch: Epoch, path: Path) -> bytes:
        """Create a key under another name, then link it to its own, so that two processes get the same one."""
        secret = os.urandom(_KEY_BYTES)
        data = _PLAIN + secret
        if self._operator is not None:
            data = _WRAPPED + _encrypt(self._operator, secret, _bound(epoch, b""))
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        # A key in a folder that a power cut removes is lost too.
        new = [one for one in (self._folder, *self._folder.parents) if not one.exists()]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in new:
            sync_folder(one.parent)
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(draft, path)
        except FileExistsError:
            data = path.read_bytes()
        finally:
            draft.unlink()
        sync_folder(self._folder)
        return data


def _encrypt(key: bytes, plain: bytes, bound: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _aes()[0](key).encrypt(nonce, plain, bound)


def _decrypt(key: bytes, sealed: bytes, bound: bytes) -> bytes | None:
    """Return the plain text, or None if the ciphertext was changed or the key is another."""
    cipher, damaged = _aes()
    try:
        return cipher(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
    except damaged:
        return None


def _aes() -> tuple[type[AESGCM], type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        what = "opt-in records need the package cryptography"
        raise Unavailable(what, fix=install("serve")) from None
    return AESGCM, InvalidTag


def _records_of(epoch: Epoch) -> tuple[sa.ColumnElement[bool], ...]:
    return RECORD.c.task == epoch.task_row, RECORD.c.epoch == epoch.number


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.new(secret, b"hushquery-vault " + purpose, hashlib.sha256).digest()


def _bound(epoch: Epoch, record_id: bytes) -> bytes:
    return epoch.task.digest + epoch.number.to_bytes(8, "big", signed=True) + record_id


def put_records(
    store: Store,
    vault: Vault,
    task: Task,
    task_row: int,
    number: int,
    token: Token,
    record_id: bytes,
    records: list[list[str]],
) -> str:
    """Seal and store the records of one user durably, once per giver and epoch; return whether they are new."""
    giver = f"{token.name}/{record_id.hex()}" if token.shared else token.name
    with store.write() as connection:
        # Checked again: it may have been revoked, and its records deleted, while the body arrived.
        valid = sa.select(TOKEN.c.name).where(TOKEN.c.name == token.name, TOKEN.c.revoked.is_(None))
        if connection.execute(valid.with_for_update(read=True)).one_or_none() is None:
            raise refuse("unauthorized")
        row = connection.execute(
            sa.select(EPOCH)
            .where(EPOCH.c.task == task_row, EPOCH.c.number == number)
            .with_for_update(read=True)  # it can't move before this is committed
        ).one_or_none()
        if row is None:
            raise refuse("too-early")
        epoch = Epoch.read(task, row)
        if not epoch.takes_records:
            raise refuse("phase-over")
        sealed, mark = vault.seal(epoch, record_id, records)
        key = {"task": task_row, "epoch": number, "id": record_id}
        added = connection.execute(
            insert_new(connection, RECORD)
            .values(**key, giver=giver, mac=mark, ciphertext=sealed)
            .returning(RECORD.c.id)
        ).all()
        if added:
            return ACCEPTED
        stored = connection.execute(
            sa.select(RECORD.c.mac).where(*(RECORD.c[name] == value for name, value in key.items()))
        ).scalar_one_or_none()
        if stored is None:
            raise refuse("contributed")
        if bytes(stored) != mark:
            raise refuse("other-bytes")
        return REPEATED


@dataclass(frozen=True)
class Token:
    """A token of a task (by row) without its secret; a shared one may give the records of many users."""

    name: str
    task: int
    note: str
    shared: bool
    made: int
    revoked: int | None


@dataclass(frozen=True)
class Forgotten:
    """How many uploads of a token were deleted; in busy epochs a head list is being made of them right now."""

    deleted: int
    busy: int


class Tokens:
    """The tokens of a store."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def new(self, task_row: int, note: str = "", *, shared: bool = False) -> str:
        """Create a token for a task; its secret is never shown again."""
        if len(note) > _NOTE or not (note == "" or note.isprintable()):
            raise UsageError(f"a note is one line of at most {_NOTE} characters")
        name, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with self._store.write() as connection:
            values = {"name": name, "task": task_row, "sha256": _hash(secret), "note": note, "shared": shared}
            connection.execute(sa.insert(TOKEN).values(**values, made=int(self._clock())))
        return f"hq_{name}.{secret}"

    def check(self, task_row: int, header: str | None) -> Token:
        """Return the token of an Authorization header, or refuse with 401, the same whatever is wrong."""
        scheme, _, text = (header or "").partition(" ")
        form = _TOKEN.fullmatch(text.strip())
        if scheme.lower() != "bearer" or form is None:
            raise refuse("unauthorized")
        with self._store.read() as connection:
            row = connection.execute(sa.select(TOKEN).where(TOKEN.c.name == form[1])).one_or_none()
        # A name that does not exist takes as long as a wrong secret.
        same = hmac.compare_digest(bytes(32) if row is None else bytes(row.sha256), _hash(form[2]))
        if row is None or not same or row.task != task_row or row.revoked is not None:
            raise refuse("unauthorized")
        return _token(row)

    def listed(self) -> list[Token]:
        """Return all tokens, oldest first."""
        with self._store.read() as connection:
            rows = connection.execute(sa.select(TOKEN).order_by(TOKEN.c.made, TOKEN.c.name)).all()
        return [_token(row) for row in rows]

    def forget(self, name: str) -> Forgotten:
        """Delete the records of a token that no head list was made of; revoke it first.

        A list is paid for the records that exist when it is made (:meth:`Vault.noise_key`), so fewer are paid for anew.
        """
        name = _bare(name)
        mine = sa.or_(RECORD.c.giver == name, RECORD.c.giver.startswith(f"{name}/", autoescape=True))
        tasks = dict(registered(self._store))
        with self._store.read() as connection:
            epochs = connection.execute(sa.select(RECORD.c.task, RECORD.c.epoch).where(mine).distinct()).all()
        deleted = busy = 0
        for task_row, number in epochs:
            task, here = tasks[task_row], (RECORD.c.task == task_row, RECORD.c.epoch == number, mine)
            try:
                # Not while a list is being made of them; if it is made already, its records are destroyed anyway.
                with self._store.locked(lock_name(task, number)), self._store.write() as connection:
                    epoch = epoch_row(connection, task, task_row, number)
                    if epoch is not None and epoch.phase == OPTIN_OPEN:
                        deleted += connection.execute(sa.delete(RECORD).where(*here)).rowcount
            except NotReady:
                busy += 1
        self._store.wipe_traces()
        return Forgotten(deleted, busy)

    def revoke(self, name: str) -> None:
        """Revoke a token by its name, effective with the next request."""
        name = _bare(name)
        with self._store.write() as connection:
            if connection.execute(sa.select(TOKEN.c.name).where(TOKEN.c.name == name)).one_or_none() is None:
                raise UsageError("there is no token of that name", fix="`hushquery collect tokens list` lists them")
            active = sa.update(TOKEN).where(TOKEN.c.name == name, TOKEN.c.revoked.is_(None))
            connection.execute(active.values(revoked=int(self._clock())))


def _bare(name: str) -> str:
    """Return the name, even if the whole token was pasted."""
    return name.removeprefix("hq_").partition(".")[0]


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _token(row: sa.Row[tuple[object, ...]]) -> Token:
    return Token(row.name, row.task, row.note, row.shared, row.made, row.revoked)
