"""How commands show a release: as tables, folded and bold on a terminal, plain everywhere else."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.common import argument, note, option, warn

if TYPE_CHECKING:
    from hushquery.release import Release

#: The folder of the release to use; how many results to show; text that need not be quoted.
Folder = Annotated[str, argument("DIR", "The folder of a release.")]
Folders = Annotated[list[str], argument("DIR", "The folder of a release; several are ordered by date.")]
Limit = Annotated[int, option("N", "How many rows to show at most.", min=1)]
Words = Annotated[list[str], argument("TEXT", "What to look for; several words need no quotes.")]

# A release is text from strangers: what could move the cursor or turn the line round is shown as a mark.
_DANGEROUS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def open_release(folder: str) -> Release:
    """Load a release, and warn where it is not private or its promise is weak."""
    from hushquery.release import Release
    from hushquery.release.page import weakness

    release = Release.load(folder)
    if release.test_noise:
        warn(f"{folder} is NOT PRIVATE: its noise came from a test's seed")
    for weak in filter(None, map(weakness, release.guarantees)):
        warn(weak)
    return release


def rare_missing(release: Release) -> str:
    """Explain why a rare query is not there; return nothing where the promise does not keep rare searches out."""
    from hushquery.release.page import weakness

    return "" if any(map(weakness, release.guarantees)) else "rare searches are never released"


def joined(words: Sequence[str]) -> str:
    """Return the words of a command line as one text; bytes that are no text become marks."""
    return " ".join(words).encode("utf-8", "replace").decode()


def take_note(notes: Sequence[str], as_json: bool) -> None:
    """Print notes on standard error; in JSON they are part of the result."""
    for text in () if as_json else notes:
        note(text)


def as_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return rows as plain data, with the count or the share, whichever was released: never an empty one beside it."""
    return [_one_measure(asdict(row)) for row in rows]


def _one_measure(row: dict[str, Any]) -> dict[str, Any]:
    ours, others = ("share", "shares"), ("count", "counts", "clicks")
    shares = any(row.get(name) not in (None, ()) for name in ours)
    return {name: value for name, value in row.items() if name not in (others if shares else ours)}


def number(value: float | None) -> str:
    """Print a count; nothing where none was released."""
    return "" if value is None else f"{value:,.0f}"


def percent(share: float) -> str:
    """Print a share in per cent, with the minus sign of a keyboard."""
    from hushquery.templates import percent as shown

    return shown(share).replace("−", "-")


def amount(count: float | None, share: float | None) -> str:
    """Print a count or a share, whichever was released; nothing where neither was."""
    return number(count) if share is None else percent(share)


def between(low: float | None, high: float | None, share: float | None) -> str:
    """Print the interval of a count, or of a share where there is one; nothing where there is no interval."""
    if low is None or high is None:
        return ""
    return f"{low:,.0f} to {high:,.0f}" if share is None else f"{percent(low).removesuffix('%')} to {percent(high)}"


def measured(row: Any) -> tuple[str, str]:
    """Print the count or share of a row, a dataclass or a dictionary, and its interval, cut at zero."""
    values = row if isinstance(row, dict) else vars(row)
    share = values.get("share")
    low, high = (None if values[end] is None else max(0.0, values[end]) for end in ("low", "high"))
    return amount(values.get("count"), share), between(low, high, share)


def measures(rows: Sequence[Any]) -> tuple[str, str]:
    """Return the heads of what :func:`measured` prints."""
    return "count" if not rows or rows[0].share is None else "share", "interval"


def listing(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    """Lay out rows, which may hold anything, under their columns, ``numbers`` on the right; nothing without rows."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    # What is no terminal gets every row on a line of its own, however long.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000_000)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).rstrip() if rows else ""


def _shown(cell: str) -> str:
    if cell.isascii() and cell.isprintable():
        return cell
    return "".join(
        "�" if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or ord(c) in _DANGEROUS else c for c in cell
    )
