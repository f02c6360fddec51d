"""What every command shares: output as text or JSON, errors, warnings, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from hushquery.errors import HushqueryError

if TYPE_CHECKING:
    from rich.progress import Progress

    from hushquery.privacy.ledger import Ledger

__all__ = [
    "JsonFlag",
    "emit",
    "emit_plan",
    "note_spent",
    "open_to_spend",
    "progress",
    "report_error",
    "show_warning",
    "sizes_in_words",
]

#: The option that every command that prints a result has.
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of text.")]


def emit(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result on standard output: JSON where asked for, else text."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) if as_json else text)


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """Say how many rows each table has, by its name."""
    from hushquery.release.markup import plural

    return ", ".join(f"{rows:,} {plural(rows, name)}" for name, rows in sizes.items())


def emit_plan(plan: Any, *, as_json: bool) -> None:
    """Print a plan: every step with its cost, and in JSON also its SQL and its guarantee."""
    data = {"plan": plan.explain(), "sql": plan.sql(), "guarantee": plan.guarantee.to_json()}
    emit(data, data["plan"], as_json=as_json)


@contextmanager
def open_to_spend(path: str, population: str, relation: str, budget: object, *, create: bool) -> Iterator[Ledger]:
    """Open a ledger to spend from; once it is done, say what is left, or that it opened an account for its lifetime."""
    from pathlib import Path

    from hushquery.privacy.ledger import Ledger

    book = Ledger.open(path, create=create)
    before = {account.name for account in book.accounts()}
    entries = len(book.history())
    yield book
    if len(book.accounts()) > len(before):
        typer.secho(
            f'note: opened the account of "{population}" ({relation}) in {Path(book.name).name} '
            f"with {budget} as its whole lifetime budget, which is now spent",
            err=True,
        )
    note_spent(book, entries, before)


def note_spent(book: Ledger, entries: int, before: Container[str]) -> None:
    """Say what is left of each account that existed before and was spent from after so many entries."""
    spent = {(entry.population, entry.relation) for entry in book.history()[entries:] if entry.loss is not None}
    for account in book.accounts():
        if (account.population, account.relation) in spent and account.name in before:
            typer.secho(f"note: {account.after_spend()}", err=True)


def report_error(error: HushqueryError, *, as_json: bool) -> None:
    """Print an error: what, why and what to do on standard error, or one JSON object on standard output."""
    if as_json:
        typer.echo(json.dumps(error.as_dict(), ensure_ascii=False))
        return
    typer.secho(f"error: {error.what}", err=True, fg=typer.colors.RED)
    for part in (error.why, error.fix):
        if part:
            typer.echo(f"  {part}", err=True)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line on standard error, without the line of code it came from."""
    del category, filename, lineno, file, line
    typer.secho(f"warning: {message}", err=True, fg=typer.colors.YELLOW)


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[tuple[Progress, Any]]:
    """Show a progress bar on standard error while a long step runs; silent when standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        yield bar, bar.add_task(description, total=total)
