"""Sign what is published, and check who signed it: Ed25519 over a file's hash, in a ``signature.json`` beside it.

The message that is signed names its purpose, so that no signature can stand for something else. A signature proves that
whoever has the private key signed this very file. Whose key it is, only a key from another channel can tell.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushquery.errors import DataError, Unavailable, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["PublicKey", "Signature", "SigningKey"]

#: The file that holds a signature, beside the file that is signed.
SIGNATURE = "signature.json"

#: The version of that file, which is signed too.
VERSION = 1
_FORMAT, _ALGORITHM = "hushquery-signature", "Ed25519"
_MOST_BYTES = 16_384
# What precedes the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
_SPKI = bytes.fromhex("302a300506032b6570032100")
_PUBLIC, _PRIVATE = (
    "-----BEGIN PUBLIC KEY-----",
    ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----"),
)
_PRINT = "SHA256:"


@dataclass(frozen=True)
class PublicKey:
    """A public key: its 32 bytes, known by their fingerprint.

    >>> PublicKey(bytes(32)).fingerprint
    'SHA256:...'
    """

    raw: bytes

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the key as SubjectPublicKeyInfo, in base64 without padding: what people compare."""
        return _PRINT + base64.b64encode(hashlib.sha256(_SPKI + self.raw).digest()).decode().rstrip("=")

    def to_pem(self) -> str:
        """Return the key as PEM, which every program for keys reads."""
        return f"{_PUBLIC}\n{base64.b64encode(_SPKI + self.raw).decode()}\n-----END PUBLIC KEY-----\n"

    @classmethod
    def load(cls, path: Path | str) -> PublicKey:
        """Read a public key from the PEM file that ``hushquery keys new`` wrote."""
        text = _read(Path(path), "the public key")
        if any(mark in text for mark in _PRIVATE):
            fix = f"Use its public half, {path}.pub, and give the private one to nobody"
            raise UsageError(f"{path} is a private key", why="to check a signature takes a public one", fix=fix)
        lines = text.strip().splitlines()
        try:
            data = base64.b64decode("".join(lines[1:-1]), validate=True)
        except ValueError:
            data = b""
        if not lines or lines[0] != _PUBLIC or len(data) != len(_SPKI) + 32 or not data.startswith(_SPKI):
            raise UsageError(f"{path} is not an Ed25519 public key", fix="Use the .pub file of `hushquery keys new`")
        return cls(data[len(_SPKI) :])

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this key made a signature of a message."""
        keys, wrong = _ed25519()
        try:
            keys.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (wrong, ValueError):
            return False
        return True


@dataclass(frozen=True, repr=False)
class SigningKey:
    """A private key that signs releases; it is never shown.

    >>> key = SigningKey.new()
    >>> key
    SigningKey(SHA256:...)
    >>> made = key.sign("release", "manifest.json", b"{}", signer="example.org")
    >>> made.problems("release", b"{}"), made.problems("release", b"[]")
    ([], ['the signature is of another manifest.json'])
    """

    _key: Ed25519PrivateKey = field(compare=False)

    @classmethod
    def new(cls) -> SigningKey:
        """Make a key from the operating system's randomness."""
        return cls(_ed25519()[0].Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path | str, passphrase: str | Callable[[], str] | None = None) -> SigningKey:
        """Read a private key: a PEM file (PKCS 8) that its owner alone can read; ``passphrase`` if it has one."""
        keys, _ = _ed25519()
        text = _read(Path(path), "the private key", private=True)
        if _PUBLIC in text:
            raise UsageError(f"{path} is a public key", why="to sign takes the private one", fix="Use it without .pub")
        secret = None
        if _PRIVATE[1] in text:
            secret = passphrase() if callable(passphrase) else passphrase
            if not secret:
                raise UsageError(f"{path} needs its passphrase", fix="Use passphrase=, or HUSHQUERY_PASSPHRASE")
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(text.encode(), secret.encode() if secret else None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, keys.Ed25519PrivateKey):
            why = "the passphrase is another one, or the file is damaged" if secret else ""
            fix = "Make a key with `hushquery keys new`"
            raise UsageError(f"{path} can't be read as an Ed25519 private key", why=why, fix=fix) from None
        return cls(key)

    @classmethod
    def of(cls, key: SigningKey | Path | str) -> SigningKey:
        """Return a key, or the key of a file that has no passphrase."""
        return key if isinstance(key, SigningKey) else cls.load(key)

    def save(self, path: Path | str, passphrase: str | None = None) -> tuple[Path, Path]:
        """Save the key (readable by its owner alone) and its public half in ``PATH.pub``; replace neither."""
        from cryptography.hazmat.primitives import serialization as form

        if passphrase == "":
            raise UsageError("the passphrase is empty", fix="Use a longer one, or none")
        lock = form.BestAvailableEncryption(passphrase.encode()) if passphrase else form.NoEncryption()
        private = self._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, lock)
        target, beside = Path(path), Path(f"{path}.pub")
        for file in (target, beside):
            if os.path.lexists(file):
                raise UsageError(f"{file} exists already", why="a key is never replaced", fix="Choose another name")
        _create(target, private, 0o600)
        _create(beside, self.public.to_pem().encode(), 0o644)
        return target, beside

    @property
    def public(self) -> PublicKey:
        """The public half, for everybody."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, kind: str, name: str, data: bytes, signer: str | None = None) -> Signature:
        """Sign a file: what ``kind`` of folder it belongs to, its ``name`` and its bytes."""
        digest = hashlib.sha256(data).hexdigest()
        made = base64.b64encode(self._key.sign(_message(kind, name, digest))).decode()
        public = base64.b64encode(self.public.raw).decode()
        return Signature(_ALGORITHM, name, digest, public, self.public.fingerprint, made, signer)

    def __repr__(self) -> str:
        return f"SigningKey({self.public.fingerprint})"


@dataclass(frozen=True)
class Signature:
    """What ``signature.json`` holds; ``signer`` is the publisher as the signed file names it, or None."""

    algorithm: str
    signed: str
    sha256: str
    public_key: str
    fingerprint: str
    signature: str
    signer: str | None = None

    def to_bytes(self) -> bytes:
        """Return it as the text of the file."""
        data = {"format": _FORMAT, "format_version": VERSION, **asdict(self)}
        return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def read(cls, folder: Path) -> Signature | None:
        """Read the signature in a folder; None where there is none. Only its form is checked."""
        path = folder / SIGNATURE
        if not os.path.lexists(path):
            return None
        try:
            data = json.loads(_read(path, "the signature"))
            if not isinstance(data, dict) or data.pop("format") != _FORMAT:
                raise ValueError
            if data.pop("format_version") != VERSION:
                raise DataError(f"{SIGNATURE} has an unknown version", fix="Upgrade hushquery")
            made = cls(**data)
            if not all(isinstance(v, str) or (n == "signer" and v is None) for n, v in asdict(made).items()):
                raise ValueError
            if made.algorithm != _ALGORITHM or made.key.fingerprint != made.fingerprint or len(made.key.raw) != 32:
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise DataError(f"{SIGNATURE} is damaged", fix="Download the release again") from None
        return made

    @property
    def key(self) -> PublicKey:
        """The public key that the signature names; who wants to know whose it is compares it with one they trust."""
        return PublicKey(base64.b64decode(self.public_key, validate=True))

    def problems(self, kind: str, data: bytes, key: PublicKey | str | None = None) -> list[str]:
        """Return what is wrong with this signature of a file's bytes; ``key`` is the key that is trusted, if any."""
        if self.sha256 != hashlib.sha256(data).hexdigest():
            return [f"the signature is of another {self.signed}"]
        trusted = key.fingerprint if isinstance(key, PublicKey) else key
        if trusted is not None and trusted != self.fingerprint:
            return [f"it is signed with another key, {self.fingerprint}, not with {trusted}"]
        try:
            made = base64.b64decode(self.signature, validate=True)
        except ValueError:
            made = b""
        valid = self.key.verifies(made, _message(kind, self.signed, self.sha256))
        return [] if valid else ["the signature is not one that its key made of this file"]

    def write(self, folder: Path, force: bool = False) -> Path:
        """Write it into a folder that exists, whole or not at all; ``force`` replaces another one."""
        path, draft = folder / SIGNATURE, folder / f".{SIGNATURE}.{secrets.token_hex(4)}"
        if os.path.lexists(path) and not force:
            raise UsageError(f"{folder} is signed already", fix="Use --force to replace its signature")
        _create(draft, self.to_bytes(), 0o644)
        try:
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise DataError(f"{path} can't be written", why=error.strerror or "", fix="Check that you may") from None
        return path

    def to_json(self) -> dict[str, Any]:
        """Return who signed, as plain data."""
        return {"algorithm": self.algorithm, "fingerprint": self.fingerprint, "signer": self.signer}


def trusted_key(text: Path | str | PublicKey) -> PublicKey | str:
    """Return the key that somebody trusts: a file, or a fingerprint as text."""
    if isinstance(text, PublicKey):
        return text
    if not str(text).startswith(_PRINT):
        return PublicKey.load(text)
    if len(str(text)) != len(_PRINT) + 43:
        raise UsageError("this is not a whole fingerprint", fix=f"It has 43 characters after {_PRINT}")
    return str(text)


def check_signature(
    folder: Path, kind: str, name: str, stated: Any, key: PublicKey | str | None
) -> tuple[Signature | None, list[str]]:
    """Read the signature of a folder and return it with what is wrong; without ``key`` a folder may be unsigned.

    ``stated`` is the description in the signed file, if it has one, whose publisher the signature names too.
    """
    try:
        signature = Signature.read(folder)
        if signature is None:
            return None, [] if key is None else ["it is not signed, and a key to check it with was given"]
        if signature.signed != name:
            return signature, [f"the signature is of another file than {name}"]
        problems = signature.problems(kind, (folder / name).read_bytes(), key)
    except OSError as error:
        return None, [f"{name} can't be read: {error.strerror}"]
    except Unavailable:
        if key is not None:
            raise
        return signature, []  # said by whoever shows it: nobody checked it against a key
    except DataError as error:
        return None, [error.what]
    publisher = stated.get("publisher") if isinstance(stated, Mapping) else None
    if not problems and signature.signer != publisher:
        problems = ["the signature names another publisher than the release"]
    return signature, problems


def _message(kind: str, name: str, digest: str) -> bytes:
    """Return what is signed: the purpose, the kind of folder and the file before its hash."""
    return f"hushquery signature {VERSION}\n{kind}\n{name}\nsha256 {digest}\n".encode()


def _read(path: Path, what: str, *, private: bool = False) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if private and stat.S_IMODE(mode) & 0o077:
                fix = f"Type: chmod 600 {path}. If others could read it for long, make a new key"
                raise UsageError(f"{what} {path} can be read by others", fix=fix)
            data = file.read(_MOST_BYTES + 1)
        if len(data) <= _MOST_BYTES:
            return data.decode("ascii" if private else "utf-8")
    except OSError as error:
        fix = "Check the name; `hushquery keys new` makes a key"
        raise UsageError(f"{what} {path} can't be read", why=error.strerror or "", fix=fix) from None
    except UnicodeDecodeError:
        pass
    raise DataError(f"{path} is not {what}", why="it is no text, or too long", fix="Check the name")


def _create(path: Path, data: bytes, mode: int) -> None:
    """Write a new file with these permissions from its first byte on."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(handle, "wb") as file:
            if mode == 0o600:
                os.fchmod(handle, mode)  # a umask may have taken something from the owner too
            file.write(data)
            file.flush()
            os.fsync(handle)
    except OSError as error:
        fix = "Choose a place where you may write"
        raise UsageError(f"{path} can't be written", why=error.strerror or "", fix=fix) from None


def _ed25519() -> tuple[Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        what = "signatures need the package cryptography"
        raise Unavailable(what, fix="pip install 'hushquery[sign]'") from None
    return ed25519, InvalidSignature
