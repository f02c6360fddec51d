"""``hushquery verify`` and ``hushquery export``: check a release, and hand it to other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushquery.cli.common import JsonFlag, emit, sizes_in_words
from hushquery.errors import DataError, UsageError

__all__ = ["export", "verify"]

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")]


def verify(folder: Folder, as_json: JsonFlag = False) -> None:
    r"""Check that a release is whole and promises what its parameters give.

        hushquery verify release

    Compares every file with its hash, reads every table, and computes the
    guarantee anew from the exact numbers that each step ran with. Ends with
    exit code 4 and a list when anything is wrong. A promise that is weaker
    than usual (epsilon above 5, delta above 1e-4) is named in a warning.

    It finds accidents and inconsistencies, not forgers: whoever changes a
    release on purpose can change its hashes too, and nobody signs it. Get a
    release from somebody you trust.
    """
    from hushquery.release import verify as check
    from hushquery.release.release import check_there

    found = check(folder)
    if not found.ok:
        if as_json:
            emit(found.to_json(), "", as_json=True)
            raise typer.Exit(DataError.exit_code)
        check_there(folder)
        many = len(found.problems)
        raise DataError(
            f"{folder} has {many} problem{'' if many == 1 else 's'}",
            why="\n  ".join(f"- {problem}" for problem in found.problems),
            fix="Get the release again from where it was published; do not use or publish this one",
        )
    several = len(found.guarantees) > 1
    which = "each of its guarantees, for its own people, follows" if several else "its guarantee follows"
    lines = [f"{folder} is whole, and {which} from its parameters:"]
    lines += [f"  {guarantee.summary()}" for guarantee in found.guarantees]
    if any(guarantee.test_noise for guarantee in found.guarantees):
        typer.secho(
            "warning: its noise came from a test's seed: nothing is promised, do not publish it",
            err=True,
            fg=typer.colors.RED,
        )
    for warning in found.warnings:
        typer.secho(f"warning: {warning}", err=True, fg=typer.colors.RED)
    emit(found.to_json(), "\n".join(lines), as_json=as_json)


def export(
    folder: Folder,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="DIR2", help="A new folder for one CSV file per table.")
    ] = None,
    sqlite: Annotated[Path | None, typer.Option("--sqlite", metavar="FILE", help="A new SQLite file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an older export; nothing else is replaced.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Write a release as CSV or SQLite; the manifest goes along.

        hushquery export release --csv tables
        hushquery export release --sqlite release.db

    Text is written as it is, also in CSV (RFC 4180). People search for text
    that begins with =, +, - or @, which a spreadsheet takes for a formula when
    it opens a CSV file by double click: import the columns as text there.
    """
    if (csv is None) == (sqlite is None):
        raise UsageError("say where the export goes, once", fix="Give either --csv DIR2 or --sqlite FILE")
    from hushquery.release import Release

    release = Release.load(folder)
    if csv is not None:
        written = release.to_csv(csv, force)
    elif sqlite is not None:
        written = release.to_sqlite(sqlite, force)
    sizes = {name: table.num_rows for name, table in release.tables.items()}
    emit({"written": str(written), "rows": sizes}, f"wrote {sizes_in_words(sizes)} to {written}", as_json=as_json)
