"""``hushquery head`` and ``hushquery blend``: the head list of opt-in users, and one release with the clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.common import (
    Anyway,
    Described,
    Explain,
    JsonFlag,
    LedgerOption,
    LogFiles,
    LogOptions,
    NewPopulation,
    Period,
    Spending,
    Title,
    argument,
    emit,
    emit_plan,
    flag,
    may_be_new,
    named,
    note,
    option,
    progress,
    sizes_in_words,
    takes_options,
    tell_left_out,
)
from hushquery.cli.keys import SignWith, signing_key
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.task import Task

Epoch = Annotated[int | None, option("N", "The number of the task's period; the present one by default.", min=0)]


@takes_options
def head(
    log: LogFiles,
    task: Annotated[Path, option("FILE", "The task file.")],
    out: Annotated[Path, option("DIR", "The folder to make. It must not exist (see --force).")],
    *,
    epoch: Epoch = None,
    previous: Annotated[
        Path | None, option("DIR", "An earlier period's head list, kept by head.keep: it is measured again.")
    ] = None,
    users: Annotated[
        int | None, option("N", "How many users opted in, where that is public; add-remove needs it.", min=1)
    ] = None,
    keep: Annotated[str, option("RULE", "Which records of a user count: random, or first (by time).")] = "random",
    title: Title = None,
    period: Period = None,
    spending: Spending,
    explain: Explain = False,
    force: Annotated[bool, flag("--force", "Replace an older head list at --out.")] = False,
    reading: LogOptions,
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
    from hushquery.core.description import Description
    from hushquery.hybrid.plan import plan_head
    from hushquery.hybrid.published import HEAD_FILE, PublishedHead
    from hushquery.release.release import check_target
    from hushquery.task import Task

    agreed = Task.load(task)
    earlier = None if previous is None else PublishedHead.load(previous)
    if not explain:
        check_target(out, force, known={HEAD_FILE})
    opened = reading.open(log)
    about = Description(title=title, period=period)  # for the ledger
    plan = plan_head(opened, agreed, keep=keep, head=earlier, description=about)  # type: ignore[arg-type]  # checked there
    if explain:
        emit_plan(plan, as_json, users, anyway=spending.anyway)
        return
    with spending.open(plan, agreed.task.population, users) as (book, accounts), progress("starting", 1.0) as show:
        before = len(book.accounts())
        made = plan.run(book, epoch=epoch, **accounts, progress=show)
        folder = made.save(out, force)
    tell_left_out(opened)
    if agreed.task.period is not None and len(book.accounts()) > before:
        note(
            "the accounts were opened with what the task says of one epoch and of a device's life; a later epoch "
            "may be refused. To run many, open both beforehand (--explain shows how)"
        )
    guarantees, measured, oracle = [made.optin_guarantee], "", None
    if made.records:
        guarantees, oracle = [*guarantees, made.client_guarantee], made.configuration.oracle.name
        measured = f", to be measured by {oracle}"
    else:
        note("no record passed the threshold: there is nothing to ask clients")
    data = {
        "head": str(folder),
        "records": len(made),
        "epoch": made.epoch,
        "listed": made.listed,
        "oracle": oracle,
        "configuration": made.configuration.digest.hex() if made.records else None,
        "guarantees": [guarantee.to_json() for guarantee in guarantees],
    }
    repeated = f"; the list of epoch {made.listed}, kept" if made.listed != made.epoch else ""
    lines = [f"{folder}: {len(made):,} records{measured}{repeated}", *(promise.summary() for promise in guarantees)]
    emit(data, "\n".join(lines), as_json)


@takes_options
def blend(
    out: Annotated[Path, option("DIR", "The folder of the release. It must not exist.")],
    folders: Annotated[
        list[Path] | None, argument("HEAD EST", "What `hushquery head` and `hushquery estimate --out` wrote.")
    ] = None,
    *,
    robust: Annotated[
        bool, flag("--robust", "Where opt-in users search differently, fall back toward the clients.")
    ] = False,
    level: Annotated[float, option("P", "The coverage of the intervals.")] = 0.95,
    simulate: Annotated[
        str | None, option("LOG", "Instead of folders: a log whose users are split, all clients simulated.")
    ] = None,
    optin: Annotated[str, option("SHARE", "With --simulate: the share of users who opt in.")] = "0.05",
    task: Annotated[Path | None, option("FILE", "With --simulate: the task; else one of the next options.")] = None,
    epsilon: Annotated[str | None, option("E", "With --simulate: of both populations, each; 4 by default.")] = None,
    delta: Annotated[str | None, option("D", "With --simulate: of the opt-in users; 1e-5 by default.")] = None,
    head_size: Annotated[int | None, option("M", "With --simulate: the most records; 50 by default.", min=1)] = None,
    mode: Annotated[str | None, option("MODE", "With --simulate: best, or paper; best by default.")] = None,
    population: Annotated[
        str | None, option("NAME", "With --simulate and without a task: whose log it is, and whose budget.")
    ] = None,
    new_population: NewPopulation = False,
    epoch: Epoch = None,
    users: Annotated[
        int | None, option("N", "How many people it is about, a public figure, stated in the release.", min=1)
    ] = None,
    described: Described,
    sign: SignWith = None,
    ledger: LedgerOption = "",
    anyway: Anyway = False,
    force: Annotated[bool, flag("--force", "Replace an older release at --out.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Blend the opt-in users' and the clients' estimates of a head list into one release.

        hushquery blend head/ est/ --out release/
        hushquery blend --simulate log.parquet --optin 0.05 --epsilon 4 --delta 1e-5 --head-size 50 \
            --population readers --out release/

    Each record's two shares are weighted by how little they vary. Blending only looks at what is public, so it costs
    nothing; the release states what each of the two populations was promised.
    """
    from hushquery.hybrid.published import PublishedHead
    from hushquery.hybrid.published import blend as blend_both
    from hushquery.hybrid.simulate import simulate as simulate_both
    from hushquery.local.server.estimate import ClientEstimate
    from hushquery.log import read_log
    from hushquery.release import check_target

    check_target(out, force)
    if not 0 < level < 1:
        raise UsageError("an interval's level lies between 0 and 1", fix="Use a value such as 0.95")
    if (simulate is None) == (not folders):
        raise UsageError("give the folders HEAD and EST, or --simulate LOG", fix="See `hushquery blend --help`")
    how: dict[str, Any] = {"robust": robust, "level": level, "description": described.with_people(users)}
    key = None if sign is None else signing_key(sign)
    if simulate is not None:
        given = {"epsilon": epsilon, "delta": delta, "head-size": head_size, "mode": mode, "population": population}
        agreed = _task(task, given, ledger)
        how |= {
            "epoch": epoch or 0,
            "new_population": may_be_new(ledger, agreed.task.population, new=new_population),
            "anyway": anyway,
        }
        with progress("starting", 1.0) as show:
            release = simulate_both(read_log(simulate), agreed, optin, ledger, **how, progress=show).release
    elif folders is None or len(folders) != 2:
        raise UsageError("give two folders: of the head list, and of the clients' estimate")
    else:
        release = blend_both(PublishedHead.load(folders[0]), ClientEstimate.load(folders[1]), **how)
    folder = release.save(out, force, sign=key)
    sizes, parameters = {name: table.num_rows for name, table in release.tables.items()}, release.manifest["parameters"]
    data = {
        "release": str(folder),
        "tables": sizes,
        "rest": parameters["rest"],
        "shift_p_value": parameters["shift_p_value"],
        "guarantees": [guarantee.to_json() for guarantee in release.guarantees],
    }
    promises = [guarantee.summary() for guarantee in release.guarantees]
    lines = [f"{folder}: {sizes_in_words(sizes)}", *promises, *release.manifest["notes"]]
    emit(data, "\n".join([*lines, f"open {folder / 'report.html'}"]), as_json)


def _task(path: Path | None, options: Mapping[str, Any], ledger: str) -> Task:
    from hushquery.task import Task

    given = [name for name, value in options.items() if value is not None]
    if path is not None:
        if given:
            raise UsageError(f"--{given[0]} and --task can't both be given", fix="The task says it: change it there")
        return Task.load(path)
    epsilon, mode = options["epsilon"] or "4", options["mode"] or "best"
    # Paper mode has two-stage reports, of which the query gets the paper's 85% of epsilon.
    oracle = {"oracle": "two-stage", "query_share": "0.85"} if mode == "paper" else {}
    return Task.make(
        {
            "task": {"name": "simulated", "population": named(options["population"], ledger)},
            "optin": {"epsilon": epsilon, "delta": options["delta"] or "1e-5"},
            "client": {"epsilon": epsilon, "lifetime_epsilon": epsilon, **oracle},
            "head": {"size": options["head-size"] or 50, "mode": mode},
        },
        source="what the options say",
    )
