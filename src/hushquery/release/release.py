"""Make, save and load a release and its folder, which is written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from hushquery.core.description import Description
from hushquery.core.estimates import Tabular, to_pandas, to_polars
from hushquery.core.guarantee import Guarantee
from hushquery.errors import DataError, UsageError
from hushquery.release.manifest import (
    FORMAT,
    KINDS,
    check_references,
    check_shape,
    checked_table,
    make_manifest,
    measures_of,
)
from hushquery.release.signature import SIGNATURE, Signature, SigningKey, check_signature

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

__all__ = ["Release", "check_target", "load", "write_folder"]

#: The file that says how the release was made and what the others must hash to; the data card; the page to look at.
MANIFEST, CARD, PAGE = "manifest.json", "README.md", "report.html"

# The last entry of the manifest: the hash of all of it above. It can't be among the hashes of files.
_SEAL = "manifest_sha256"
_ROWS_PER_GROUP = 2**20


@dataclass(frozen=True, repr=False)
class Release(Tabular):
    """Public tables, what their publication promises, and how they were made. Made by :meth:`make` or :meth:`load`.

    ``tables`` are any of ``queries``, ``clicks``, ``reformulations`` and ``records``, or what clients reported:
    ``estimates``, ``support`` and ``candidates``; ``guarantees``, one per population; ``manifest`` is plain JSON data.

    >>> from hushquery.core.guarantee import Guarantee, Step
    >>> from hushquery.core.loss import LaplaceHistogram
    >>> from hushquery.core.budget import Unit
    >>> from fractions import Fraction
    >>> ran = LaplaceHistogram(1, Fraction(2), 30)
    >>> step = Step("laplace", "queries with noise of scale 2, released at 30 or more", ran.loss)
    >>> promise = Guarantee.of("readers of example.org", "curator", Unit("user", "add-remove"), [step], delta=1e-6)
    >>> release = Release.make(
    ...     {"queries": pa.table({"query": ["weather", "news"]})},
    ...     [promise],
    ...     kind="curator",
    ...     parameters={"epsilon": "1/2", "delta": 1e-6},
    ...     steps=[{"parameters": ran.to_json()}],
    ...     meanings={"queries": "queries that enough users searched for"},
    ... )
    >>> release
    Release(2 queries; epsilon 0.5, delta 1e-06 for one user, present or absent (add-remove), of "readers of
    example.org")
    >>> release.queries["query"].to_pylist()
    ['news', 'weather']
    """

    tables: Mapping[str, pa.Table]
    guarantees: tuple[Guarantee, ...]
    manifest: Mapping[str, Any]
    signature: Signature | None = None  #: of the folder it was loaded from; nobody has checked whose key it is

    @classmethod
    def make(
        cls,
        tables: Mapping[str, pa.Table],
        guarantees: Sequence[Guarantee],
        *,
        kind: str,
        parameters: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        meanings: Mapping[str, str],
        notes: Sequence[str] = (),
        created: date | None = None,
        level: float = 0.95,
        description: Description | None = None,
    ) -> Release:
        """Make a release from what may be published, in one order and form whatever made it.

        ``tables`` hold counts, shares or estimates. ``kind`` is ``curator``, ``hybrid`` or ``local``. ``parameters``
        are what the steward chose, nothing computed from the log; of shares also ``rest``, the share of everything not
        listed; of estimates the task, its domain and the number of reports.
        ``steps``, one per step of the guarantees, hold the exact ``parameters`` from which
        :func:`hushquery.release.verify` computes the cost anew; ``threshold`` and ``table`` among them state that no
        count in that table is below the threshold. ``meanings`` has a sentence per table on what a number is. ``level``
        is the coverage of the intervals. ``description`` is what the release says of itself.
        """
        if not tables:
            raise UsageError("a release needs a table", fix=f"Give any of: {', '.join(KINDS)}")
        if not guarantees or len({g.population for g in guarantees}) < len(guarantees):
            raise UsageError("a release needs one guarantee per population", fix="State what is promised, and to whom")
        known = list(KINDS)
        names = sorted(tables, key=lambda name: known.index(name) if name in known else len(known))
        checked = {name: checked_table(name, tables[name]) for name in names}
        check_references(checked, parameters)
        if set(meanings) != set(checked):
            raise UsageError("each table of a release needs what a number in it is", fix="Give meanings by table")
        manifest = make_manifest(
            guarantees,
            kind=kind,
            parameters=parameters,
            steps=steps,
            meanings={name: meanings[name] for name in checked},
            measures=measures_of(checked),
            notes=notes,
            created=created,
            level=level,
            description=description,
        )
        return cls(checked, tuple(guarantees), manifest)

    @property
    def queries(self) -> pa.Table | None:
        """The queries, or None."""
        return self.tables.get("queries")

    @property
    def clicks(self) -> pa.Table | None:
        """The clicks, or None."""
        return self.tables.get("clicks")

    @property
    def reformulations(self) -> pa.Table | None:
        """The reformulations, or None."""
        return self.tables.get("reformulations")

    @property
    def records(self) -> pa.Table | None:
        """The two estimates behind each blended share, or None."""
        return self.tables.get("records")

    @property
    def description(self) -> Description:
        """What the release says of itself: title, publisher, licence, period, contact, people; each may be missing."""
        return Description.from_json(self.manifest.get("description", {}))

    @property
    def estimates(self) -> pa.Table | None:
        """What clients reported: shares or an average, or None."""
        return self.tables.get("estimates")

    @property
    def test_noise(self) -> bool:
        """Whether the noise came from a test's seed, so that nothing is promised."""
        return any(guarantee.test_noise for guarantee in self.guarantees)

    def save(
        self,
        folder: Path | str,
        force: bool = False,
        *,
        budget: Mapping[str, Any] | None = None,
        sign: SigningKey | Path | str | None = None,
    ) -> Path:
        """Save the release as a new folder, whole or not at all; ``force`` replaces an older release, nothing else.

        ``budget`` (``population, epsilon, delta, remaining_epsilon``) is shown on the page if it may be public.
        ``sign`` is a private key, or its file: the folder then holds a signature, and its page names the key.
        """
        check_target(folder, force)
        key = None if sign is None else SigningKey.of(sign)
        signed = "" if key is None else key.public.fingerprint
        data = {f"{name}.parquet": parquet_bytes(table) for name, table in self.tables.items()}
        data |= {CARD: self.card().encode(), PAGE: self.page(budget=budget, signed=signed).encode()}
        files: dict[str, dict[str, Any]] = {name: {"sha256": sha256(body)} for name, body in data.items()}
        for name, table in self.tables.items():
            files[f"{name}.parquet"] |= {"rows": table.num_rows, "columns": table.column_names}
        data[MANIFEST] = _sealed({**self.manifest, "files": files})
        if key is not None:
            data[SIGNATURE] = key.sign("release", MANIFEST, data[MANIFEST], self.description.publisher).to_bytes()
        return write_folder(folder, data, force)

    @classmethod
    def load(cls, folder: Path | str) -> Release:
        """Load a release; refuse one whose files do not have their hashes, or whose signature is wrong.

        Whose key signed it, only :func:`hushquery.release.verify` with a key that you trust can tell.
        """
        from hushquery.release.verification import read_release

        check_there(Path(folder))
        release, problems, manifest = read_release(Path(folder))
        signature, wrong = check_signature(Path(folder), "release", MANIFEST, manifest.get("description"), None)
        problems += wrong
        if release is None or problems:
            fix = "Download it again; `hushquery verify` lists everything that is wrong"
            raise DataError(f"{folder} can't be used as a release", why="; ".join(problems[:5]), fix=fix)
        return replace(release, signature=signature)

    def card(self) -> str:
        """Return the data card: what this is and what it promises, in plain words, as Markdown."""
        from hushquery.release.page import card

        return card(self)

    def page(self, *, budget: Mapping[str, Any] | None = None, signed: str = "") -> str:
        """Return the page to look at, as HTML that needs no network; without a script it shows the first rows."""
        from hushquery.release.page import page

        return page(self, budget, signed)

    def to_csv(self, path: Path | str, force: bool = False, *, table: str | None = None) -> Path:
        """Write every table as CSV (RFC 4180) into a new folder, with the manifest and the data card; or one table
        into a new file.
        """
        from hushquery.release.export import to_csv, to_csv_file

        return to_csv(self, path, force) if table is None else to_csv_file(self._named(table), path, force)

    def to_sqlite(self, file: Path | str, force: bool = False) -> Path:
        """Write every table, and the manifest as a table of its own, into a new SQLite file."""
        from hushquery.release.export import to_sqlite

        return to_sqlite(self, file, force)

    def to_pandas(self, table: str | None = None) -> pandas.DataFrame:
        """Return a table as a pandas data frame: by default the queries, or the estimates from reports."""
        return to_pandas(self._named(table))

    def to_polars(self, table: str | None = None) -> polars.DataFrame:
        """Return a table as a Polars data frame: by default the queries, or the estimates from reports."""
        return to_polars(self._named(table))

    def to_arrow(self, table: str | None = None) -> pa.Table:
        """Return a table as an Arrow table."""
        return self._named(table)

    def to_duckdb(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB database in memory that holds every table under its name.

        ``release.to_duckdb().sql("SELECT query FROM queries LIMIT 10")`` asks it.
        """
        from hushquery.release.export import to_duckdb

        return to_duckdb(self)

    def _named(self, table: str | None = None) -> pa.Table:
        name = table or ("estimates" if "estimates" in self.tables else "queries")
        if name not in self.tables:
            raise DataError(f"this release has no table {name!r}", fix=f"It has: {', '.join(self.tables)}")
        return self.tables[name]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{table.num_rows:,} {name}" for name, table in self.tables.items())
        return f"Release({'; '.join([sizes, *(g.summary() for g in self.guarantees)])})"

    def _repr_html_(self) -> str:
        from hushquery.release.export import notebook

        return notebook(self)


def load(folder: Path | str) -> Release:
    """Load a release from its folder; refuse one whose files do not have the hashes that its manifest states.

    Its tables come as Arrow, pandas, Polars or DuckDB with one call each: ``to_arrow``, ``to_pandas``, ``to_polars``,
    ``to_duckdb``.

    >>> load("nowhere")
    Traceback (most recent call last):
    hushquery.errors.DataError: there is no folder nowhere...
    """
    return Release.load(folder)


def known_files() -> set[str]:
    """Return the name of every file that a release may hold."""
    return {MANIFEST, CARD, PAGE, SIGNATURE, *(f"{name}.parquet" for name in KINDS)}


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as Parquet; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    bare = table.replace_schema_metadata(None)
    pq.write_table(bare, sink, compression="zstd", row_group_size=_ROWS_PER_GROUP, store_schema=False)
    return bytes(sink.getvalue())


def read_table(data: bytes) -> pa.Table:
    """Read what :func:`parquet_bytes` wrote."""
    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError("a table can't be read as Parquet", why=type(error).__name__, fix="Download it again") from None


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as the only text that stands for it."""
    return (json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sign(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Add the manifest's own hash as its last entry. It finds accidents; whoever forges a release can compute it."""
    body = {name: value for name, value in manifest.items() if name != _SEAL}
    return {**body, _SEAL: sha256(manifest_bytes(body))}


def _sealed(manifest: Mapping[str, Any]) -> bytes:
    return manifest_bytes(sign(manifest))


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """Read the manifest of a folder with its entries about files, and what is wrong with its bytes (else empty)."""
    check_there(folder)
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise_io_error(folder / MANIFEST, "read", error)
    try:
        manifest = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise DataError(f"{MANIFEST} is not JSON", fix="Download the release again") from None
    check_shape(manifest)
    try:
        intact = _sealed(manifest) == data
    except (ValueError, RecursionError):
        intact = False
    return manifest, "" if intact else f"{MANIFEST} was changed: it does not have the hash it states"


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


def check_there(folder: Path) -> None:
    """Refuse a name that no release has: it is probably mistyped, and nothing is wrong with any release."""
    try:
        (folder / MANIFEST).lstat()
    except (FileNotFoundError, NotADirectoryError):
        what = f"{folder} holds no {MANIFEST}" if folder.is_dir() else f"there is no folder {folder}"
        raise DataError(what, fix="Check the name: give the folder that a release was saved to") from None
    except OSError as error:
        raise_io_error(folder / MANIFEST, "read", error)


def check_target(folder: Path | str, force: bool = False, *, known: Container[str] | None = None) -> Path:
    """Refuse a folder that a release can't be saved to; call it before a budget is spent on one.

    With ``force``, a folder that is empty or holds only files of ``known`` (a release's, by default) may be replaced.
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
    why = "only an older release is replaced"
    if target.is_symlink() or not target.is_dir():
        raise UsageError(f"{target} is not a folder", why=why, fix="Give another")
    there = {entry.name for entry in target.iterdir()}
    if there and not _is_release(target):
        raise UsageError(f"{target} is not a release of hushquery", why=why, fix="Give another folder")
    allowed = known_files() if known is None else known
    if strange := sorted(name for name in there if name not in allowed):
        why = f"replacing it would delete: {', '.join(strange[:5])}"
        raise UsageError(f"{target} holds what no release has", why=why, fix="Move these files, or give another folder")
    return target


def _is_release(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def write_folder(
    folder: Path | str, files: Mapping[str, bytes], force: bool = False, *, known: Container[str] | None = None
) -> Path:
    """Write all files to a hidden folder, then rename it: killed half-way, it never leaves half a release."""
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
        _remove(aside, known_files() if known is None else known)
    except OSError as error:
        raise_io_error(target, "written", error)
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


def _remove(folder: Path, names: Container[str]) -> None:
    """Remove a folder of ours, and nothing in it that is not."""
    if folder.is_dir():
        for entry in list(folder.iterdir()):
            if entry.name in names:
                entry.unlink()
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Wait until a folder's list of names is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def raise_io_error(path: Path, done: str, error: OSError) -> NoReturn:
    """Raise what the operating system refused as an error of ours: ``done`` is read or written."""
    why, fix = error.strerror or type(error).__name__, "Check the name, the space on the disk, and that you may"
    raise DataError(f"{path} can't be {done}", why=why, fix=fix) from None
