"""Opt-in records at rest: encrypted under a key of their epoch, and beyond reading once that key is destroyed.

The key is 32 random bytes in a file of its own (mode 0600), never in the database. An operator key, where there is
one, wraps it: then the file alone opens nothing. Each record is sealed with AES-256-GCM under a random nonce, bound
to task, epoch and id. Repeats are recognised by an HMAC under another key drawn from the same secret: a plain hash of
a query could be found by trying queries. The noise of the head list that is made of the records is drawn from a key
that takes the same secret and the records themselves: a list that is made again is the same list.

:meth:`Vault.destroy` overwrites and deletes the key file, deletes the rows, and empties SQLite's write-ahead log. On
PostgreSQL, and on disks that move blocks around, old bytes may linger; they are ciphertext, and the key is gone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hushquery.collect.store.schema import RECORD
from hushquery.collect.store.store import Store, sync_folder
from hushquery.errors import DataError, Unavailable, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from hushquery.collect.epochs.epochs import Epoch

__all__ = ["OPERATOR_VARIABLE", "Vault", "operator_key"]

_KEY_BYTES = 32
_NONCE_BYTES = 12
_PLAIN, _WRAPPED = b"HQK1", b"HQW1"
_BLOCK = 1000

#: The environment variable with the operator key, as base64 of 32 bytes.
OPERATOR_VARIABLE = "HUSHQUERY_OPERATOR_KEY"


def operator_key(text: str | None) -> bytes | None:
    """Read the operator key: base64 of 32 bytes, as `openssl rand -base64 32` prints it."""
    if text is None or not text.strip():
        return None
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise UsageError("the operator key is not base64 of 32 bytes", fix="Make one with `openssl rand -base64 32`")
    return key


class Vault:
    """The opt-in records of a store.

    Args:
        store: Where the ciphertext is.
        folder: Where the keys are: beside the ledger, not in the database, not in its backups.
        operator: The operator key, which wraps the key of each epoch.
    """

    def __init__(self, store: Store, folder: str | os.PathLike[str], operator: bytes | None = None) -> None:
        self._store = store
        self._folder = Path(folder)
        self._operator = operator

    # ---- records -------------------------------------------------------------------------------------------

    def seal(self, epoch: Epoch, record_id: bytes, records: list[list[str]]) -> tuple[bytes, bytes]:
        """Encrypt what one user gave; gives the ciphertext, and the mark by which a repeat is recognised."""
        secret = self._secret(epoch, make=True)
        plain = json.dumps(records, separators=(",", ":")).encode()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + _cipher(_derived(secret, b"seal")).encrypt(nonce, plain, _bound(epoch, record_id))
        mark = hmac.new(_derived(secret, b"mark"), _bound(epoch, record_id) + plain, hashlib.sha256).digest()
        return sealed, mark

    def records(self, epoch: Epoch) -> Iterator[tuple[bytes, list[list[str]]]]:
        """Decrypt the records of an epoch: random ids, and what each user gave."""
        damaged, last, cipher = _damaged(), b"", None
        while True:
            with self._store.read() as connection:
                rows = connection.execute(
                    sa.select(RECORD.c.id, RECORD.c.ciphertext)
                    .where(RECORD.c.task == epoch.task_number, RECORD.c.epoch == epoch.number, RECORD.c.id > last)
                    .order_by(RECORD.c.id)
                    .limit(_BLOCK)
                ).all()
            if rows and cipher is None:
                cipher = _cipher(_derived(self._secret(epoch, make=False), b"seal"))
            for record_id, sealed in rows:
                assert cipher is not None  # noqa: S101 -- for the type checker: rows is not empty
                last = bytes(record_id)
                nonce, body = bytes(sealed[:_NONCE_BYTES]), bytes(sealed[_NONCE_BYTES:])
                try:
                    plain = cipher.decrypt(nonce, body, _bound(epoch, last))
                except damaged:
                    raise DataError(
                        "an opt-in record can't be decrypted", why="it was changed, or the key is another"
                    ) from None
                yield last, json.loads(plain)
            if len(rows) < _BLOCK:
                return

    def noise_key(self, epoch: Epoch) -> bytes:
        """Return the key for the noise on the records that are there now: the same for the same records, no others.

        It is an HMAC of them as they lie there, under a key drawn from the epoch's secret; nothing is decrypted. Only
        who has both the secret and the records has it, and :meth:`destroy` destroys both.
        """
        mac = hmac.new(_derived(self._secret(epoch, make=False), b"noise"), _bound(epoch, b""), hashlib.sha256)
        mine = (RECORD.c.task == epoch.task_number, RECORD.c.epoch == epoch.number)
        with self._store.read() as connection:
            for record_id, sealed in connection.execute(
                sa.select(RECORD.c.id, RECORD.c.ciphertext).where(*mine).order_by(RECORD.c.id)
            ):
                mac.update(bytes(record_id) + hashlib.sha256(bytes(sealed)).digest())
        return mac.digest()

    def destroy(self, epoch: Epoch) -> None:
        """Make the opt-in records of an epoch unreadable, then delete them; may be called any number of times.

        Raises:
            DataError: There are records, and their key is not in this folder: it lives on somewhere else.
        """
        path = self._path(epoch)
        mine = (RECORD.c.task == epoch.task_number, RECORD.c.epoch == epoch.number)
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
                    raise self._elsewhere(path) from None
        except OSError as error:
            raise self._unusable(error) from None
        with self._store.write() as connection:
            connection.execute(sa.delete(RECORD).where(*mine))
        self._store.wipe_traces()
        # Last, so that records without a file tell a folder in which their key has never been.
        try:
            path.unlink(missing_ok=True)
            if self._folder.exists():
                sync_folder(self._folder)
        except OSError as error:
            raise self._unusable(error) from None

    # ---- keys ----------------------------------------------------------------------------------------------

    def check(self, epoch: Epoch) -> None:
        """Refuse a key that is there and can't be used: every upload of records would fail.

        Raises:
            DataError: It is damaged, or wrapped by another operator key.
        """
        if self._path(epoch).exists():
            self._secret(epoch, make=False)

    def _path(self, epoch: Epoch) -> Path:
        return self._folder / f"{epoch.task.id}-{epoch.number}.key"

    def _secret(self, epoch: Epoch, *, make: bool) -> bytes:
        path = self._path(epoch)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if not make:
                raise DataError(
                    "the key of the epoch's opt-in records is not there", fix=f"Put its file back into {self._folder}"
                ) from None
            data = self._make(epoch, path)
        except OSError as error:
            raise self._unusable(error) from None
        kind, rest = data[: len(_PLAIN)], data[len(_PLAIN) :]
        if kind == _PLAIN and len(rest) == _KEY_BYTES:
            return rest
        if kind == _WRAPPED and self._operator is not None:
            with suppress(_damaged()):
                return _cipher(self._operator).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _bound(epoch, b""))
        raise DataError(
            "the key of the epoch's opt-in records can't be used",
            why="it is damaged, or wrapped by another operator key",
            fix=f"Set {OPERATOR_VARIABLE} to the key that the collector was started with",
        )

    def _make(self, epoch: Epoch, path: Path) -> bytes:
        """Make a key under another name, then link it to its own: two processes end up with the same one."""
        secret = os.urandom(_KEY_BYTES)
        if self._operator is None:
            data = _PLAIN + secret
        else:
            nonce = os.urandom(_NONCE_BYTES)
            data = _WRAPPED + nonce + _cipher(self._operator).encrypt(nonce, secret, _bound(epoch, b""))
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        try:
            # A key in a folder that a power cut takes away is lost too.
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
        except OSError as error:
            raise self._unusable(error) from None
        return data

    def _elsewhere(self, path: Path) -> DataError:
        return DataError(
            "the key of the epoch's opt-in records is not there, so it can't be destroyed",
            why=f"the records are, and {self._folder} has no {path.name}",
            fix="Give the folder of keys that the collector runs with, or run this on the machine that has it. If the "
            "key is lost for good, make an empty file of that name",
        )

    def _unusable(self, error: OSError) -> Unavailable:
        return Unavailable(
            "the keys of opt-in records can't be read or written", why=error.strerror or "", fix=f"See {self._folder}"
        )


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise _no_cryptography() from None
    return AESGCM(key)


def _damaged() -> type[Exception]:
    """Give the error that says that a ciphertext is not what it was."""
    try:
        from cryptography.exceptions import InvalidTag
    except ImportError:
        raise _no_cryptography() from None
    return InvalidTag


def _no_cryptography() -> Unavailable:
    return Unavailable("opt-in records need the package cryptography", fix="pip install 'hushquery[serve]'")


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.new(secret, b"hushquery-vault " + purpose, hashlib.sha256).digest()


def _bound(epoch: Epoch, record_id: bytes) -> bytes:
    return epoch.task.digest + epoch.number.to_bytes(8, "big", signed=True) + record_id
