"""What every command shares: output as text or JSON, errors, warnings, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from hushquery.errors import AccountMissing, HushqueryError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from hushquery.core.ledger.ledger import Ledger

__all__ = [
    "JsonFlag",
    "NewPopulation",
    "at_a_terminal",
    "emit",
    "emit_plan",
    "may_be_new",
    "named",
    "note_spent",
    "open_to_spend",
    "progress",
    "report_error",
    "show_warning",
    "sizes_in_words",
    "write_secret",
]

#: The option that every command that prints a result has.
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of text.")]

#: The option of every command that may open an account.
NewPopulation = Annotated[
    bool,
    typer.Option(
        "--new-population",
        help="These are other people than those of an account with nearly the same name (users of 2025, of 2026).",
    ),
]

#: What a plan is for as long as it is only looked at.
_UNNAMED = "(no population named)"


def named(population: str | None, ledger: str, *, explain: bool = False) -> str:
    """Return whose privacy is spent, which only the person who spends can know; to look at a plan needs no name."""
    if population is not None:
        return population
    if explain:
        return _UNNAMED
    book = _existing(ledger)
    known = sorted({f'"{account.population}"' for account in book.accounts()}) if book else []
    shown = f", or one that is known to the ledger: {', '.join(known[:10])}" if known else ""
    raise UsageError(
        "--population is missing: whose data is this?",
        why="The ledger keeps one budget for each population, whatever files, copies and tables their data is in",
        fix=f"Use --population NAME, such as 'readers of example.org', always the same for the same people{shown}",
    )


def at_a_terminal() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def may_be_new(ledger: Ledger | str, population: str, *, new: bool) -> bool:
    """Return whether an account beside one of nearly the same name may be opened: as the option says, else ask."""
    if new or not at_a_terminal():
        return new
    book = _existing(ledger) if isinstance(ledger, str) else ledger
    near = book.near(population) if book else None
    if near is None:
        return new
    question = f'There is already a population "{near}". Are "{population}" other people, with a budget of their own?'
    return typer.confirm(question, default=False, err=True)


def _existing(ledger: str) -> Ledger | None:
    from hushquery.core.ledger.ledger import Ledger

    try:
        return Ledger.open(ledger, create=False)
    except AccountMissing:
        return None


def emit(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result on standard output: JSON where asked for, else text."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) if as_json else text)


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """Say how many rows each table has, by its name."""
    from hushquery.templates import plural

    return ", ".join(f"{rows:,} {plural(rows, name)}" for name, rows in sizes.items())


def emit_plan(plan: Any, *, as_json: bool) -> None:
    """Print a plan: every step with its cost, and in JSON also its SQL and its guarantee."""
    data = {"plan": plan.explain(), "sql": plan.sql(), "guarantee": plan.guarantee.to_json()}
    emit(data, data["plan"], as_json=as_json)


@contextmanager
def open_to_spend(path: str, *, create: bool) -> Iterator[Ledger]:
    """Open a ledger to spend from; once it is done, print what is left of each account that was spent from."""
    from hushquery.core.ledger.ledger import Ledger

    book = Ledger.open(path, create=create)
    before, entries = {account.name for account in book.accounts()}, len(book.history())
    yield book
    note_spent(book, entries, before)


def note_spent(book: Ledger, entries: int, before: Container[str]) -> None:
    """Print what is left of each account that was spent from after so many entries, and which of them are new."""
    spent = {(entry.population, entry.relation) for entry in book.history()[entries:] if entry.loss is not None}
    for account in book.accounts():
        if (account.population, account.relation) in spent:
            typer.secho(f"note: {account.after_spend(created=account.name not in before)}", err=True)


def write_secret(path: Path, text: str) -> None:
    """Write a file for its owner only; it is never there with other permissions, nor half written."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.fchmod(handle, 0o600)  # a umask may have taken something from the owner too
                file.write(text)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"{path} can't be written",
            why=error.strerror or type(error).__name__,
            fix="Choose a file in a folder where you may write",
        ) from None


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
