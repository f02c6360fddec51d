"""``hushquery stat``: private counts, sums, averages and histograms of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.common import (
    Columns,
    Encoding,
    Engine,
    Explain,
    Header,
    JsonFlag,
    Separator,
    Spending,
    Title,
    argument,
    columns_of,
    emit,
    emit_plan,
    group,
    named,
    option,
    sign,
    takes_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushquery.statistics import StatisticPlan

app = group(
    "stat",
    """Private statistics of a CSV, Parquet or JSON-lines file.

    Each command spends from the ledger before it reads a row. An account that
    does not exist yet is opened with this command's budget as its whole
    lifetime, so the same command again is refused (exit code 3); open a
    larger one beforehand with `hushquery budget open`.
    """,
)

File = Annotated[
    str,
    argument("FILE", "A CSV, TSV, Parquet or JSON-lines file, a folder or a pattern; with --engine one of its tables."),
]
Lower = Annotated[str, option("X", "What you know to be the smallest value a unit can have.")]
Upper = Annotated[str, option("X", "What you know to be the largest value a unit can have.")]


@dataclass(frozen=True)
class Cost:
    """Whom a statistic protects, and what is spent on it."""

    unit: Annotated[str, option("COLUMN", "The column that names whom to protect: user, household.")]
    epsilon: Annotated[str, option("E", "The epsilon to spend: 1, 0.5, 1/3 or ln(10).")]
    delta: Annotated[str, option("D", "The delta to spend; 0 for a pure guarantee.")] = "0"


@dataclass(frozen=True)
class Promise:
    """Whose data it is, and what hides one of them."""

    population: Annotated[
        str | None,
        option(
            "NAME",
            "Whose data it is, and whose budget: always the same name for the same people. "
            "Only --explain does without.",
        ),
    ] = None
    relation: Annotated[str, option("RELATION", "add-remove or replace-one.")] = "add-remove"
    noise: Annotated[str, option("NOISE", "laplace, gaussian or auto (the smaller variance).")] = "auto"


@dataclass(frozen=True)
class How(Spending, Promise):
    """What every statistic is told: its options are those of the bases, the last base first, then these."""

    title: Title = None
    period: Annotated[str | None, option("START..END", "The days of the data, for the ledger's history.")] = None
    users: Annotated[
        int | None,
        option(
            "N",
            "How many units there are, a public figure: a delta above 1/N is refused. Means under replace-one need it.",
            min=1,
        ),
    ] = None
    explain: Explain = False
    engine: Engine = None
    format: Annotated[str | None, option("FORMAT", "csv, tsv, parquet or jsonl; by default as the file ends.")] = None
    columns: Columns = None
    header: Header = None
    separator: Separator = None
    encoding: Encoding = "utf-8"
    as_json: JsonFlag = False


@app.command()
@takes_options
def count(
    file: File,
    cost: Cost,
    *,
    rows_per_unit: Annotated[int | None, option("M", "Count rows, at most M per unit, instead of units.")] = None,
    how: How,
) -> None:
    r"""Count the units in a file, or its rows.

    hushquery stat count visits.csv --unit user --epsilon 0.5 --population members
    """
    from hushquery.statistics import plan_count as plan

    _run(plan, file, cost, how, rows_per_unit=rows_per_unit)


@app.command("sum")
@takes_options
def sum_(
    file: File,
    column: Annotated[str, argument("COLUMN", "The column to sum.")],
    lower: Lower,
    upper: Upper,
    cost: Cost,
    how: How,
) -> None:
    r"""Sum a column, each unit's sum clamped to the bounds.

    hushquery stat sum visits.csv minutes --lower 0 --upper 120 --unit user --epsilon 0.5 --population members
    """
    from hushquery.statistics import plan_sum as plan

    _run(plan, file, cost, how, column=column, lower=lower, upper=upper)


@app.command()
@takes_options
def mean(
    file: File,
    column: Annotated[str, argument("COLUMN", "The column to average.")],
    lower: Lower,
    upper: Upper,
    cost: Cost,
    how: How,
) -> None:
    r"""Average a column over units, each unit's average clamped to the bounds.

    hushquery stat mean visits.csv age --lower 0 --upper 120 --unit user --epsilon 0.5 --population members
    """
    from hushquery.statistics import plan_mean as plan

    _run(plan, file, cost, how, column=column, lower=lower, upper=upper, users=how.users)


@app.command()
@takes_options
def histogram(
    file: File,
    column: Annotated[str, argument("COLUMN", "The column to count by.")],
    keys: Annotated[str, option("A,B,C", "The publicly known values to count, with commas between.")],
    cost: Cost,
    *,
    keys_per_unit: Annotated[int, option("D", "In how many values a unit may count.", min=1)] = 1,
    how: How,
) -> None:
    r"""Count units per value of a column. The values must be public: those in the data could name a person.

    hushquery stat histogram visits.csv branch --keys north,south --unit user --epsilon 0.5 --population members
    """
    from hushquery.statistics import plan_histogram as plan

    wanted = [key.strip() for key in keys.split(",") if key.strip()]
    _run(plan, file, cost, how, column=column, keys=wanted, keys_per_unit=keys_per_unit)


def _run(make: Callable[..., StatisticPlan], file: str, cost: Cost, how: How, **question: Any) -> None:
    from hushquery.core.description import Description
    from hushquery.engine import connect, engine_table
    from hushquery.log.sources import Layout
    from hushquery.log.tables import TableFiles

    # DuckDB in this process reads a file in one way, whether it is named or not.
    data: Any
    if how.engine in (None, "duckdb"):
        layout = Layout(how.format, how.encoding, how.header, sign(how.separator))
        data = TableFiles(file, layout, columns_of(how.columns))
    else:
        data = engine_table(file, connect(str(how.engine)))
    people = named(how.population, how.ledger, explain=how.explain)
    about = Description(title=how.title, period=how.period)
    chosen = {"relation": how.relation, "noise": how.noise, "description": about}
    plan = make(data, **vars(cost), population=people, **chosen, **question)
    if how.explain:
        emit_plan(plan, how.as_json, how.users, anyway=how.anyway)
        return
    if isinstance(data, TableFiles):
        data.check()
    with how.open(plan, plan.population, how.users) as (book, accounts):
        estimates = plan.run(book, **accounts)
    stated = {"description": about.to_json()} if about else {}
    emit(estimates.to_json() | stated, str(estimates), how.as_json)
