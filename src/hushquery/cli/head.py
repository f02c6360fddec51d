"""``hushquery head``: publish the head list of a task from the log of those who opted in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushquery.cli import log_options as options
from hushquery.cli.common import JsonFlag, NewPopulation, emit, emit_plan, may_be_new, note_spent, progress

__all__ = ["Epoch", "LedgerOption", "NoCreate", "TaskFile", "head"]

#: The task file.
TaskFile = Annotated[Path, typer.Option("--task", metavar="FILE", help="The task file.", show_default=False)]
#: The ledger to spend from.
LedgerOption = Annotated[
    str, typer.Option("--ledger", envvar="HUSHQUERY_LEDGER", metavar="PATH_OR_URL", help="The ledger to spend from.")
]
#: Whether accounts may be opened.
NoCreate = Annotated[bool, typer.Option("--no-create", help="Refuse (exit code 3) when an account does not exist yet.")]
#: The number of the period.
Epoch = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="The number of the task's period; the present one by default.")
]


def head(
    log: options.LogFiles,
    task: TaskFile,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make. It must not exist (see --force).")],
    epoch: Epoch = None,
    previous: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An earlier period's head list, kept by head.keep: it is measured again."),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many users opted in, where that is public; add-remove needs it."),
    ] = None,
    keep: Annotated[
        str, typer.Option("--keep", metavar="RULE", help="Which records of a user count: random, or first (by time).")
    ] = "random",
    ledger: LedgerOption = "ledger.db",
    no_create: NoCreate = False,
    new_population: NewPopulation = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Only show the plan and its cost; spend and read nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an older head list at --out.")] = False,
    engine: options.Engine = None,
    format: options.Format = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    exclude_users: options.ExcludeUsers = None,
    no_patterns: options.NoPatterns = False,
    since: options.Since = None,
    until: options.Until = None,
    strict: options.Strict = False,
    private_report: options.PrivateReport = None,
    encoding: options.Encoding = "utf-8",
    time_unit: options.TimeUnit = None,
    time_format: options.TimeFormat = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Publish the frequent (query, URL) records of the users who opted in: the list that all others then measure.

        hushquery task new --out task.toml
        hushquery head optin.parquet --task task.toml --out head/
        hushquery randomize --task task.toml --head head/ --url https://weather.example "weather leeds"

    Both populations are charged before a row is read: the opt-in users for the list and its counts, the clients for the
    reports it will ask of them. Each has its own account and its own guarantee.

    Where the opt-in log is on a Spark cluster or in PostgreSQL, it is counted there:

        hushquery head optin/*.parquet --task task.toml --out head/ --engine spark://master:7077

    A task with a period does this in each epoch, so open both accounts for all epochs beforehand: --explain shows how.
    A list that the task keeps (head.keep) is measured again in the later epochs, and clients repeat their answers:

        hushquery head week3.parquet --task task.toml --epoch 3 --previous head2/ --out head3/
    """
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.hybrid.plan import plan_head
    from hushquery.hybrid.published import HEAD_FILE, PublishedHead
    from hushquery.release.release import check_target
    from hushquery.task import Task

    asked = Task.load(task)
    earlier = None if previous is None else PublishedHead.load(previous)
    if not explain:
        check_target(out, force, known={HEAD_FILE})
    opened = options.open_log(
        log,
        format=format,
        columns=columns,
        drop=drop,
        exclude_users=exclude_users,
        no_patterns=no_patterns,
        no_normalise=False,
        since=since,
        until=until,
        strict=strict,
        private_report=private_report,
        encoding=encoding,
        time_unit=time_unit,
        time_format=time_format,
        engine=engine,
    )
    plan = plan_head(opened, asked, keep=keep, head=earlier)  # type: ignore[arg-type]  # checked by the plan
    if explain:
        emit_plan(plan, as_json=as_json)
        return
    opened.check_files()
    book = Ledger.open(ledger, create=not no_create)
    accounts, entries = {account.name for account in book.accounts()}, len(book.history())
    new = may_be_new(book, asked.task.population, new=new_population)
    with progress("starting", 1.0) as (bar, line):
        made = plan.run(
            book,
            epoch=epoch,
            users=users,
            create=not no_create,
            new_population=new,
            progress=lambda what, done: bar.update(line, description=what, completed=done),
        )
        folder = made.save(out, force)
    note_spent(book, entries, accounts)
    if asked.task.period is not None and len(book.accounts()) > len(accounts):
        typer.secho(
            "note: the accounts were opened with what the task says of one epoch and of a device's life; a later epoch "
            "may be refused. To run many, open both beforehand (--explain shows how)",
            err=True,
        )
    guarantees = [made.optin_guarantee, *([made.client_guarantee] if made.records else [])]
    if not made.records:
        typer.secho("note: no record passed the threshold: there is nothing to ask clients", err=True, fg="yellow")
    emit(
        {
            "head": str(folder),
            "records": len(made),
            "epoch": made.epoch,
            "listed": made.listed,
            "oracle": made.configuration.oracle.name if made.records else None,
            "configuration": made.configuration.digest.hex() if made.records else None,
            "guarantees": [guarantee.to_json() for guarantee in guarantees],
        },
        "\n".join(
            [
                f"{folder}: {len(made):,} records"
                + (f", to be measured by {made.configuration.oracle.name}" if made.records else "")
                + (f"; the list of epoch {made.listed}, kept" if made.listed != made.epoch else ""),
                *(guarantee.summary() for guarantee in guarantees),
            ]
        ),
        as_json=as_json,
    )
