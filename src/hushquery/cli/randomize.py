"""``hushquery randomize``: what a client would send."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery.cli.common import JsonFlag, emit
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushquery.local.device.client import Client, Reportable
    from hushquery.local.report import Report
    from hushquery.task import Task

__all__ = ["randomize"]

# More digits than any bound has are no number of a task.
_MOST_DIGITS = 20


def randomize(
    task: Annotated[Path, typer.Option(metavar="FILE", help="The task file.", show_default=False)],
    value: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE...",
            help="The query, the value of the setting, the number or the text; as many as the task has "
            "records_per_user, or fewer. - reads a line of standard input, where other users of the machine can't see "
            "it.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[Path, typer.Option(metavar="FILE", help="What the clients remember.")] = Path("client.db"),
    client: Annotated[str, typer.Option(metavar="ID", help="Which client of the state file; never sent.")] = "default",
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help='The clicked URL, for searches. With several values one for each, in their order; "" for none.',
            show_default=False,
        ),
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The head list, for a task without a domain: a JSON list of lists of a query and a URL, or the folder "
            "of the published list.",
            show_default=False,
        ),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="Report that there is nothing to report.")] = False,
    outbox: Annotated[bool, typer.Option("--outbox", help="List the reports that were not sent yet.")] = False,
    account: Annotated[bool, typer.Option("--account", help="Show what the client has lost so far.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Randomise a value and print the report, the only thing that may leave the device.

    The first report of a period is kept in the state file; asking again prints the same bytes. A new value costs the
    task's epsilon, a repeated one nothing, and after the lifetime budget reports say nothing. A task with several
    records per user gets all its reports at once: how many values there are is private, so the rest say nothing.

        hushquery task new --kind setting --out task.toml
        hushquery randomize --task task.toml --state client.db --client laptop dark
        hushquery randomize --task task.toml --state client.db --client laptop --outbox
        hushquery randomize --task searches.toml --head head/ news --url https://news.example maps --url ""
    """
    from hushquery.local.configuration import read_head
    from hushquery.local.device.client import Client
    from hushquery.task import Task

    if sum((bool(value), nothing, outbox, account)) != 1:
        raise UsageError("give a VALUE, or one of --nothing, --outbox and --account")
    one = Client(Task.load(task), state, client, head=None if head is None else read_head(head))
    if outbox:
        waiting = one.outbox()
        data = {"outbox": [report.to_json() for report in waiting]}
        emit(data, "\n".join(report.to_text() for report in waiting) or "nothing waits to be sent", as_json=as_json)
    elif account:
        _emit_account(one, as_json=as_json)
    else:
        values = [_read(_line() if text == "-" else text, one.task) for text in value or []]
        records = _records(values, url or [])
        again = one.task.client.enabled and one.has_reported()
        reports = one.reports(records)
        if reports:
            _note(one, records, again=again)
        _emit_reports(one, reports, as_json=as_json)


def _line() -> str:
    # What is no UTF-8, or longer than any value, is just an unknown value.
    return sys.stdin.buffer.readline(1 << 16).decode("utf-8", "replace").rstrip("\r\n")


def _records(values: Sequence[str | int], urls: Sequence[str]) -> list[Reportable]:
    """Pair each value with its URL."""
    if not urls:
        return list(values)
    if len(urls) != len(values):
        raise UsageError(
            "there are not as many --url as values", fix='Give one for each, in their order, and --url "" for none'
        )
    return list(zip(values, urls, strict=True))


def _read(value: str, task: Task) -> str | int:
    """Give a value as its task wants it: digits are a number where one is collected."""
    if task.task.kind != "number":
        return value
    digits = value.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise UsageError("the value is no whole number from 0 on", fix="Round it on the device, and give its digits")
    return int(digits)


def _note(client: Client, records: Sequence[Reportable], *, again: bool) -> None:
    """Say what became of the values where it is not what they say; only of what was typed, never of what is kept."""
    from hushquery.task.domain import WILDCARD, Domain

    space = client.configuration.space
    pairs = [record if isinstance(record, tuple) else (record, None) for record in records]
    if isinstance(space, Domain) and not all(space.lists(str(value), url) for value, url in pairs):
        which = "the value is" if len(pairs) == 1 else "some of the values are"
        # A first report of a value that the task refuses has failed before.
        then = "" if again else f", and reported as {WILDCARD}, everything else"
        typer.secho(f"note: {which} not on the task's list{then}", err=True)
    if again:
        once = "this task" if client.task.task.period is None else "this period of the task"
        typer.secho(
            f"note: this client has reported in {once} before, and the first value decides: "
            "this is the same report again, whatever was given now",
            err=True,
        )


def _emit_reports(client: Client, reports: Sequence[Report], *, as_json: bool) -> None:
    if reports:
        data = {"reports": [{"report": report.to_json(), "bytes": report.to_text()} for report in reports]}
        emit(data, "\n".join(report.to_text() for report in reports), as_json=as_json)
        return
    off = not client.task.client.enabled
    why = "the task is switched off" if off else "the task's sampling leaves this client out in this period"
    if not as_json:
        typer.secho(f"note: nothing to send, {why}", err=True)
        return
    emit({"reports": [], "why": why}, "", as_json=True)


def _emit_account(client: Client, *, as_json: bool) -> None:
    account = client.account()
    text = (
        f"epsilon {float(account.spent):.4g} of {float(account.lifetime):.4g} spent on {len(account.entries)} answers"
    )
    emit(account.to_json(), f"{text}; it {account.claim}.", as_json=as_json)
