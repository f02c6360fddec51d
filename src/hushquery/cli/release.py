"""``hushquery release``: publish a search log privately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli import log_options as options
from hushquery.cli.common import (
    JsonFlag,
    NewPopulation,
    emit,
    emit_plan,
    may_be_new,
    named,
    open_to_spend,
    progress,
    sizes_in_words,
)
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.curator.plan import ReleasePlan

__all__ = ["plan_options", "release"]

#: The budget and the bounds, which ``plan`` shares.
Epsilon = Annotated[str, typer.Option(metavar="E", help="Of the whole release, for one user: 1, 0.5, ln(10).")]
Delta = Annotated[str, typer.Option(metavar="D", help="Of the whole release; well below 1 over the number of users.")]
QueriesPerUser = Annotated[int, typer.Option(metavar="D", help="The most distinct queries of a user that count.")]
ClicksPerUser = Annotated[
    int | None, typer.Option(metavar="D", help="Also publish clicks; the most (query, URL) pairs of a user that count.")
]
ReformulationsPerUser = Annotated[
    int | None,
    typer.Option(metavar="D", help="Also publish what is searched next; the most pairs of a user that count."),
]
SelectorOption = Annotated[
    str,
    typer.Option(
        "--selector",
        metavar="NAME",
        help="auto, laplace, gaussian, korolova2009, optimal, weighted or guided (most queries).",
    ),
]
Shares = Annotated[
    str | None,
    typer.Option(metavar="TABLE=S,...", help="How tables share the budget: queries=.6,clicks=.4,reformulations=.2."),
]
SelectOnly = Annotated[bool, typer.Option("--select-only", help="Only the list of queries, without counts.")]
KeepOption = Annotated[
    str, typer.Option("--keep", metavar="RULE", help="Which of a user's queries count: first (by time) or random.")
]
Results = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A public list of (query, url); then every listed pair gets a noisy count."),
]
SessionGap = Annotated[float, typer.Option(metavar="SECONDS", help="A pause after which a new session begins.")]
FalseEdges = Annotated[
    float, typer.Option(metavar="F", help="How many published reformulations may be pure noise, in expectation.")
]
Population = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Whose log it is: always the same name for the same people. Public: it names the ledger's account and the "
        "release. Only --explain does without.",
        show_default=False,
    ),
]


def plan_options(
    log: Any,
    *,
    epsilon: str,
    delta: str,
    queries_per_user: int,
    clicks_per_user: int | None,
    reformulations_per_user: int | None,
    selector: str,
    shares: str | None,
    select_only: bool,
    keep: str,
    results: Path | None,
    session_gap: float,
    false_edges: float,
    population: str,
) -> ReleasePlan:
    """Make the plan that the options of a command ask for."""
    from hushquery.curator.plan import plan_release

    return plan_release(
        log,
        epsilon=epsilon,
        delta=delta,
        queries_per_user=queries_per_user,
        clicks_per_user=clicks_per_user,
        reformulations_per_user=reformulations_per_user,
        selector=selector,  # type: ignore[arg-type]  # checked by the plan
        shares=options.pairs(shares, "--shares"),
        select_only=select_only,
        keep=keep,  # type: ignore[arg-type]  # checked by the plan
        public_pairs=results,
        session_gap=session_gap,
        expected_false_pairs=false_edges,
        population=population,
    )


def release(
    log: options.LogFiles,
    epsilon: Epsilon,
    delta: Delta,
    queries_per_user: QueriesPerUser,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder to make; only --explain does without. It must not exist (see --force).",
            show_default=False,
        ),
    ] = None,
    clicks_per_user: ClicksPerUser = None,
    reformulations_per_user: ReformulationsPerUser = None,
    selector: SelectorOption = "auto",
    shares: Shares = None,
    select_only: SelectOnly = False,
    keep: KeepOption = "first",
    results: Results = None,
    session_gap: SessionGap = 1800.0,
    false_edges: FalseEdges = 1.0,
    population: Population = None,
    ledger: Annotated[
        str, typer.Option(envvar="HUSHQUERY_LEDGER", metavar="PATH_OR_URL", help="The ledger to spend from.")
    ] = "ledger.db",
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Refuse (exit code 3) when the account does not exist yet.")
    ] = False,
    new_population: NewPopulation = False,
    users: Annotated[
        int | None, typer.Option(metavar="N", help="How many users there are, a public figure, for the warnings.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Only show the plan and its cost; spend and read nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an older release at --out.")] = False,
    engine: options.Engine = None,
    format: options.Format = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    exclude_users: options.ExcludeUsers = None,
    no_patterns: options.NoPatterns = False,
    no_normalise: options.NoNormalise = False,
    since: options.Since = None,
    until: options.Until = None,
    strict: options.Strict = False,
    private_report: options.PrivateReport = None,
    encoding: options.Encoding = "utf-8",
    time_unit: options.TimeUnit = None,
    time_format: options.TimeFormat = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Publish a search log: queries, clicks and reformulations, safe to give away.

        hushquery release log.txt --format aol --epsilon 1 --delta 1e-7 --queries-per-user 20 --clicks-per-user 5 \
            --population "users of example.org" --out release/

        hushquery release searches --engine postgresql://analyst@db.example/web --epsilon 1 --delta 1e-7 ...

    The budget is spent before a row is read; killed half-way, it stays spent and no half release is left. An account
    that does not exist yet is opened with this budget as its whole lifetime. Look first: --explain, or hushquery plan.
    """
    from hushquery.curator.forecast import forecast
    from hushquery.release import check_target

    if not explain:
        if out is None:
            raise UsageError("a release needs a folder", fix="Give --out DIR, or --explain to see the plan only")
        check_target(out, force)
    whose = named(population, ledger, explain=explain)
    opened = options.open_log(
        log,
        format=format,
        columns=columns,
        drop=drop,
        exclude_users=exclude_users,
        no_patterns=no_patterns,
        no_normalise=no_normalise,
        since=since,
        until=until,
        strict=strict,
        private_report=private_report,
        encoding=encoding,
        time_unit=time_unit,
        time_format=time_format,
        engine=engine,
    )
    plan = plan_options(
        opened,
        epsilon=epsilon,
        delta=delta,
        queries_per_user=queries_per_user,
        clicks_per_user=clicks_per_user,
        reformulations_per_user=reformulations_per_user,
        selector=selector,
        shares=shares,
        select_only=select_only,
        keep=keep,
        results=results,
        session_gap=session_gap,
        false_edges=false_edges,
        population=whose,
    )
    for line in plan.notes:
        typer.secho(f"note: {line}", err=True, fg=typer.colors.YELLOW)
    for line in () if users is None else forecast(plan.spec, users, plan.calibrated).warnings:
        typer.secho(f"warning: {line}", err=True, fg=typer.colors.YELLOW)
    if explain or out is None:
        emit_plan(plan, as_json=as_json)
        return
    opened.check_files()
    with open_to_spend(ledger, create=not no_create) as book:
        new = may_be_new(book, plan.population, new=new_population)
        with progress("starting", 1.0) as (bar, task):
            made = plan.run(
                book,
                create=not no_create,
                new_population=new,
                progress=lambda what, done: bar.update(task, description=what, completed=done),
            )
            folder = made.save(out, force, budget=_left(book, plan))
    sizes = {name: table.num_rows for name, table in made.tables.items()}
    emit(
        {
            "release": str(folder),
            "tables": sizes,
            "selector": plan.calibrated.selector.name,
            "guarantee": made.guarantees[0].to_json(),
        },
        "\n".join(
            [
                f"{folder}: " + sizes_in_words(sizes),
                made.guarantees[0].summary(),
                f"open {folder / 'report.html'}",
            ]
        ),
        as_json=as_json,
    )


def _left(book: Ledger, plan: ReleasePlan) -> dict[str, Any]:
    account = book.account(plan.population, "add-remove")
    budget = account.terms.budget
    return {
        "population": plan.population,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "remaining_epsilon": account.remaining_epsilon,
    }
