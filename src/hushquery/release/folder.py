"""The folder of a release: written whole or not at all, and read only where every hash agrees.

A release is written to a hidden folder beside its target and renamed when everything is on the disk. Killed half-way,
it leaves at most that hidden folder, never half a release under the name it was to have.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from hushquery.errors import DataError, UsageError
from hushquery.release.manifest import FORMAT, check_shape
from hushquery.release.tables import KINDS

__all__ = [
    "CARD",
    "MANIFEST",
    "PAGE",
    "can_not",
    "check_target",
    "check_there",
    "known_files",
    "manifest_bytes",
    "parquet_bytes",
    "read_manifest",
    "read_table",
    "sha256",
    "sign",
    "sync_folder",
    "write_folder",
]

#: The file that says how the release was made and what the others must hash to.
MANIFEST = "manifest.json"

#: The data card.
CARD = "README.md"

#: The page to look at.
PAGE = "report.html"

# The last entry of the manifest: the hash of all of it above. It can't be among the hashes of files.
_SEAL = "manifest_sha256"
_ROWS_PER_GROUP = 2**20


def known_files() -> set[str]:
    """Give the name of every file that a release may hold."""
    return {MANIFEST, CARD, PAGE, *(f"{name}.parquet" for name in KINDS)}


def sha256(data: bytes) -> str:
    """Give the SHA-256 of some bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def parquet_bytes(table: pa.Table) -> bytes:
    """Give a table as Parquet; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(None),
        sink,
        compression="zstd",
        row_group_size=_ROWS_PER_GROUP,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def read_table(data: bytes) -> pa.Table:
    """Read what :func:`parquet_bytes` wrote."""
    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError("a table can't be read as Parquet", why=type(error).__name__, fix="Get it again") from None


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """Give a manifest as the only text that stands for it."""
    return (json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sign(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Add the manifest's own hash as its last entry. It finds accidents; whoever forges a release can compute it."""
    body = {name: value for name, value in manifest.items() if name != _SEAL}
    return {**body, _SEAL: sha256(manifest_bytes(body))}


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """Read the manifest of a folder, and what is wrong with its bytes (empty when nothing is).

    The entries that speak of files and hashes stay in.
    """
    check_there(folder)
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        can_not(folder / MANIFEST, "read", error)
    try:
        manifest = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise DataError(f"{MANIFEST} is not JSON", fix="Get the release again") from None
    check_shape(manifest)
    try:
        intact = manifest_bytes(sign(manifest)) == data
    except (ValueError, RecursionError):
        intact = False
    return manifest, "" if intact else f"{MANIFEST} was changed: it does not have the hash it states"


def check_there(folder: Path) -> None:
    """Refuse a name that no release has: it is probably mistyped, and nothing is wrong with any release."""
    try:
        (folder / MANIFEST).lstat()
    except (FileNotFoundError, NotADirectoryError):
        what = f"{folder} holds no {MANIFEST}" if folder.is_dir() else f"there is no folder {folder}"
        raise DataError(what, fix="Check the name: give the folder that a release was saved to") from None
    except OSError as error:
        can_not(folder / MANIFEST, "read", error)


def check_target(folder: Path | str, force: bool = False, *, known: Collection[str] | None = None) -> Path:
    """Refuse a folder that a release can't be saved to; to be asked before a budget is spent on one.

    Args:
        folder: Where the release is to go.
        force: Allow to replace an older release (or an empty folder); anything else is never replaced.
        known: The files that such a folder may hold; those of a release by default.
    """
    target = Path(folder)
    if not target.name or target.name == "..":
        raise UsageError(f"{target} can't be a release's folder", fix="Give the name of a new folder")
    if not os.path.lexists(target):
        nearest = next(parent for parent in target.absolute().parents if os.path.lexists(parent))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise DataError(f"{target} can't be written", why=f"nothing can be made in {nearest}", fix="Give another")
        return target
    if not force:
        raise UsageError(f"{target} exists already", fix="Give another folder, or --force to replace an older release")
    if target.is_symlink() or not target.is_dir():
        raise UsageError(f"{target} is not a folder", why="only an older release is replaced", fix="Give another")
    there = {entry.name for entry in target.iterdir()}
    if there and not _is_release(target):
        raise UsageError(
            f"{target} is not a release of hushquery",
            why="only an older release is replaced",
            fix="Give another folder",
        )
    strange = sorted(there - set(known or known_files()))
    if strange:
        raise UsageError(
            f"{target} holds what no release has",
            why=f"replacing it would delete: {', '.join(strange[:5])}",
            fix="Move these files elsewhere, or give another folder",
        )
    return target


def _is_release(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def write_folder(
    folder: Path | str, files: Mapping[str, bytes], force: bool = False, *, known: Collection[str] | None = None
) -> Path:
    """Write all files or nothing; see :func:`check_target` for what ``force`` allows."""
    target = check_target(folder, force, known=known)
    tag = secrets.token_hex(4)
    fresh, aside = (target.parent / f".{target.name}.{what}-{tag}" for what in ("partial", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
        try:
            for name, data in files.items():
                with (fresh / name).open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            sync_folder(fresh)
            _move_in(fresh, target, aside)
        except BaseException:
            _remove(fresh, files)
            raise
        sync_folder(target.parent)
        _remove(aside, known or known_files())
    except OSError as error:
        can_not(target, "written", error)
    return target


def _move_in(fresh: Path, target: Path, aside: Path) -> None:
    """Give the fresh folder its name; an older release steps aside first and comes back if that fails."""
    if not target.exists():
        os.rename(fresh, target)  # noqa: PTH104 -- the one call that must be atomic, by its own name
        return
    os.rename(target, aside)  # noqa: PTH104
    try:
        os.rename(fresh, target)  # noqa: PTH104
    except BaseException:
        os.rename(aside, target)  # noqa: PTH104
        raise


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove a folder of ours, and nothing in it that is not."""
    if folder.is_dir():
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Wait until a folder's list of names is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


def can_not(path: Path, done: str, error: OSError) -> NoReturn:
    """Word what the operating system refused: ``done`` is read or written."""
    raise DataError(
        f"{path} can't be {done}",
        why=error.strerror or type(error).__name__,
        fix="Check the name, the space on the disk, and that you may",
    ) from None
