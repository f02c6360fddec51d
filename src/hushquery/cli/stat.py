"""``hushquery stat``: private counts, sums, averages and histograms of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, NewPopulation, emit, emit_plan, may_be_new, named, open_to_spend
from hushquery.cli.log_options import Engine

if TYPE_CHECKING:
    from hushquery.statistics import StatisticPlan

__all__ = ["app"]

#: The commands of ``hushquery stat``.
app = typer.Typer(
    name="stat",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Private statistics of a CSV, Parquet or JSON-lines file.

    Each command spends from the ledger before it reads a row. An account that
    does not exist yet is opened with this command's budget as its whole
    lifetime, so the same command again is refused (exit code 3); open a
    larger one beforehand with `hushquery budget open`.
    """,
)

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A .csv or .tsv file with a header, or .parquet or .jsonl; with --engine one of its tables.",
    ),
]
UnitColumn = Annotated[
    str, typer.Option("--unit", metavar="COLUMN", help="The column that names whom to protect: user, household.")
]
Epsilon = Annotated[str, typer.Option(metavar="E", help="The epsilon to spend: 1, 0.5, 1/3 or ln(10).")]
Delta = Annotated[str, typer.Option(metavar="D", help="The delta to spend; 0 for a pure guarantee.")]
Population = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Whose data it is, and whose budget: always the same name for the same people. "
        "Only --explain does without.",
        show_default=False,
    ),
]
RelationName = Annotated[str, typer.Option("--relation", metavar="RELATION", help="add-remove or replace-one.")]
NoiseName = Annotated[
    str, typer.Option("--noise", metavar="NOISE", help="laplace, gaussian or auto (the smaller variance).")
]
LedgerPath = Annotated[
    str, typer.Option("--ledger", envvar="HUSHQUERY_LEDGER", metavar="PATH_OR_URL", help="The ledger to spend from.")
]
NoCreate = Annotated[
    bool, typer.Option("--no-create", help="Refuse (exit code 3) when the account does not exist yet.")
]
Explain = Annotated[bool, typer.Option("--explain", help="Only show the plan and its cost; spend and read nothing.")]
Lower = Annotated[str, typer.Option(metavar="X", help="What you know to be the smallest value a unit can have.")]
Upper = Annotated[str, typer.Option(metavar="X", help="What you know to be the largest value a unit can have.")]


@app.command()
def count(
    file: File,
    unit: UnitColumn,
    epsilon: Epsilon,
    delta: Delta = "0",
    rows_per_unit: Annotated[
        int | None, typer.Option(metavar="M", help="Count rows, at most M per unit, instead of units.")
    ] = None,
    population: Population = None,
    relation: RelationName = "add-remove",
    noise: NoiseName = "auto",
    ledger: LedgerPath = "ledger.db",
    no_create: NoCreate = False,
    new_population: NewPopulation = False,
    explain: Explain = False,
    engine: Engine = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Count the units in a file, or its rows.

    hushquery stat count visits.csv --unit user --epsilon 0.5 --population members
    """
    from hushquery import statistics

    plan = statistics.plan_count(
        _data(file, engine),
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        rows_per_unit=rows_per_unit,
        population=named(population, ledger, explain=explain),
        relation=relation,
        noise=noise,
    )
    _run(plan, ledger, no_create, new_population, explain, as_json)


@app.command("sum")
def sum_(
    file: File,
    column: Annotated[str, typer.Argument(help="The column to sum.")],
    lower: Lower,
    upper: Upper,
    unit: UnitColumn,
    epsilon: Epsilon,
    delta: Delta = "0",
    population: Population = None,
    relation: RelationName = "add-remove",
    noise: NoiseName = "auto",
    ledger: LedgerPath = "ledger.db",
    no_create: NoCreate = False,
    new_population: NewPopulation = False,
    explain: Explain = False,
    engine: Engine = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Sum a column, each unit's sum clamped to the bounds.

    hushquery stat sum visits.csv minutes --lower 0 --upper 120 --unit user --epsilon 0.5 --population members
    """
    from hushquery import statistics

    plan = statistics.plan_sum(
        _data(file, engine),
        column,
        lower=lower,
        upper=upper,
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        population=named(population, ledger, explain=explain),
        relation=relation,
        noise=noise,
    )
    _run(plan, ledger, no_create, new_population, explain, as_json)


@app.command()
def mean(
    file: File,
    column: Annotated[str, typer.Argument(help="The column to average.")],
    lower: Lower,
    upper: Upper,
    unit: UnitColumn,
    epsilon: Epsilon,
    delta: Delta = "0",
    users: Annotated[
        int | None, typer.Option(metavar="N", help="With replace-one: the public number of units.")
    ] = None,
    population: Population = None,
    relation: RelationName = "add-remove",
    noise: NoiseName = "auto",
    ledger: LedgerPath = "ledger.db",
    no_create: NoCreate = False,
    new_population: NewPopulation = False,
    explain: Explain = False,
    engine: Engine = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Average a column over units, each unit's average clamped to the bounds.

    hushquery stat mean visits.csv age --lower 0 --upper 120 --unit user --epsilon 0.5 --population members
    """
    from hushquery import statistics

    plan = statistics.plan_mean(
        _data(file, engine),
        column,
        lower=lower,
        upper=upper,
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        population=named(population, ledger, explain=explain),
        relation=relation,
        users=users,
        noise=noise,
    )
    _run(plan, ledger, no_create, new_population, explain, as_json)


@app.command()
def histogram(
    file: File,
    column: Annotated[str, typer.Argument(help="The column to count by.")],
    keys: Annotated[
        str, typer.Option(metavar="A,B,C", help="The publicly known values to count, with commas between.")
    ],
    unit: UnitColumn,
    epsilon: Epsilon,
    delta: Delta = "0",
    keys_per_unit: Annotated[int, typer.Option(metavar="D", min=1, help="In how many values a unit may count.")] = 1,
    population: Population = None,
    relation: RelationName = "add-remove",
    noise: NoiseName = "auto",
    ledger: LedgerPath = "ledger.db",
    no_create: NoCreate = False,
    new_population: NewPopulation = False,
    explain: Explain = False,
    engine: Engine = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Count units per value of a column. The values must be public: those in the data could name a person.

    hushquery stat histogram visits.csv branch --keys north,south --unit user --epsilon 0.5 --population members
    """
    from hushquery import statistics

    wanted = [key.strip() for key in keys.split(",") if key.strip()]
    plan = statistics.plan_histogram(
        _data(file, engine),
        column,
        wanted,
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        population=named(population, ledger, explain=explain),
        relation=relation,
        keys_per_unit=keys_per_unit,
        noise=noise,
    )
    _run(plan, ledger, no_create, new_population, explain, as_json)


def _data(file: str, engine: str | None) -> Any:
    """Give what a plan reads: a file's name, or a table of an engine."""
    from hushquery.engine import connect, engine_table

    return file if _here(engine) else engine_table(file, connect(str(engine)))


def _here(engine: str | None) -> bool:
    """Return whether this process counts: then a file is read in one way, whether DuckDB is named or not."""
    return engine is None or engine == "duckdb"


def _run(plan: StatisticPlan, ledger: str, no_create: bool, new_population: bool, explain: bool, as_json: bool) -> None:
    if explain:
        emit_plan(plan, as_json=as_json)
        return
    with open_to_spend(ledger, create=not no_create) as book:
        new = may_be_new(book, plan.population, new=new_population)
        estimates = plan.run(book, create=not no_create, new_population=new)
    emit(estimates.to_json(), str(estimates), as_json=as_json)
