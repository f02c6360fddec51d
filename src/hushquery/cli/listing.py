"""How commands that use a release show rows: a Rich table on a terminal, plain aligned text everywhere else."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hushquery.release import Release

__all__ = [
    "Folder",
    "Limit",
    "Words",
    "as_rows",
    "interval",
    "joined",
    "listing",
    "number",
    "open_release",
    "take_note",
]

#: The release to use.
Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of a release.")]

#: How many results to show.
Limit = Annotated[int, typer.Option(metavar="N", min=1, help="How many rows to show at most.")]

#: Text that need not be quoted.
Words = Annotated[list[str], typer.Argument(metavar="TEXT", help="What to look for; several words need no quotes.")]

# A release is text from strangers: what could move the cursor or turn the line round is shown as a mark.
_DANGEROUS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def open_release(folder: str) -> Release:
    """Load a release, and warn where it is not private or its promise is weak."""
    from hushquery.release import Release
    from hushquery.release.page import weakness

    release = Release.load(folder)
    if release.test_noise:
        typer.secho(
            f"warning: {folder} is NOT PRIVATE: its noise came from a test's seed", err=True, fg=typer.colors.YELLOW
        )
    for guarantee in release.guarantees:
        if said := weakness(guarantee):
            typer.secho(f"warning: {said}", err=True, fg=typer.colors.YELLOW)
    return release


def rare_missing(release: Release) -> str:
    """Say why what somebody looks for may not be there; nothing where the promise does not keep rare searches out."""
    from hushquery.release.page import weakness

    return "" if any(map(weakness, release.guarantees)) else "rare searches are never released"


def joined(words: Sequence[str]) -> str:
    """Give the words of a command line as one text; bytes that are no text become marks."""
    return " ".join(words).encode("utf-8", "replace").decode()


def take_note(notes: Sequence[str], *, as_json: bool) -> None:
    """Print notes on standard error; in JSON they are part of the result."""
    for note in () if as_json else notes:
        typer.echo(f"note: {note}", err=True)


def as_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Give rows as plain data."""
    return [asdict(row) for row in rows]


def number(value: float | None) -> str:
    """Print a count; nothing where none was released."""
    return "" if value is None else f"{value:,.0f}"


def interval(low: float | None, high: float | None) -> str:
    """Print an interval; nothing where there is none."""
    return "" if low is None or high is None else f"{low:,.0f} to {high:,.0f}"


def listing(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    """Lay out rows under their columns.

    Args:
        columns: The heads.
        rows: The cells; they may hold anything.
        numbers: The heads of the columns to align on the right.
    """
    cells = [[_shown(cell) for cell in row] for row in rows]
    return _rich(columns, cells, numbers) if sys.stdout.isatty() else _plain(columns, cells, numbers)


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> str:
    from rich.cells import cell_len  # Chinese characters and emoji are two cells wide

    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    lines = []
    for row in (columns, *rows):
        padded = [
            " " * (width - cell_len(cell)) + cell if name in numbers else cell + " " * (width - cell_len(cell))
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> str:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def _shown(cell: str) -> str:
    if cell.isascii() and cell.isprintable():
        return cell
    return "".join(
        "�" if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or ord(c) in _DANGEROUS else c for c in cell
    )
